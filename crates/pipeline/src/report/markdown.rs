//! Renders a report as Markdown.

use super::failures::FailedAttempt;
use super::summary::{ArtifactRow, StepRow, Summary};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use outlast_session::transcript::escape::{escape_line, fence};

/// Renders the whole document, with the picture inside.
pub(super) fn document(account: &Summary, picture: &str) -> String {
    let mut text = format!(
        "# {}\n\n{}\n\n",
        escape_line(&account.title),
        escape_line(&account.verdict)
    );
    let fact = |(name, value): &(&str, String)| format!("- {name}: {}\n", escape_line(value));
    text.extend(account.facts.iter().map(fact));
    text += "\n![Timeline][timeline]\n\n";
    text += "## Steps\n\n";
    text += "| step | outcome | visits | attempts | worked | waited | tokens | cost |\n";
    text += "|---|---|--:|--:|--:|--:|--:|--:|\n";
    text.extend(account.rows.iter().map(row));
    text.push('\n');
    if !account.failures.is_empty() {
        text += "## What failed, and what was done about it\n\n";
        text.extend(account.failures.iter().map(failed_attempt));
    }
    if !account.notes.is_empty() {
        text += "## Notes\n\n";
        text.extend(list(&account.notes));
    }
    if !account.artifacts.is_empty() {
        text += "## Artifacts\n\n| step | name | bytes | SHA-256 |\n|---|---|--:|---|\n";
        text.extend(account.artifacts.iter().map(artifact_row));
        text.push('\n');
    }
    for said in &account.left_out {
        text += &format!("{}\n\n", escape_line(said));
    }
    // At the end, where readers need not scroll past it.
    let picture = STANDARD.encode(picture);
    text += &format!("[timeline]: data:image/svg+xml;base64,{picture}\n");
    text
}

fn row(row: &StepRow) -> String {
    let StepRow {
        step,
        outcome,
        visits,
        attempts,
        worked,
        waited,
        tokens,
        cost,
    } = row;
    let (step, outcome, cost) = (escape_line(step), escape_line(outcome), escape_line(cost));
    format!(
        "| {step} | {outcome} | {visits} | {attempts} | {worked} | {waited} | {tokens} | {cost} |\n"
    )
}

fn failed_attempt(trouble: &FailedAttempt) -> String {
    let mut text = format!("### {}\n\n", escape_line(&trouble.title));
    text += &format!("{}\n\n", escape_line(&trouble.time));
    if !trouble.message.trim().is_empty() {
        text += &fence("text", &trouble.message);
    }
    for (name, lines) in trouble.lists() {
        text += &format!("{name}:\n\n");
        text.extend(list(lines));
    }
    if !trouble.remedy.is_empty() {
        text += &format!("{}\n\n", escape_line(&trouble.remedy));
    }
    text
}

fn list(lines: &[String]) -> Vec<String> {
    let items = lines
        .iter()
        .map(|item| format!("- {}\n", escape_line(item)));
    items.chain(["\n".to_owned()]).collect()
}

fn artifact_row(made: &ArtifactRow) -> String {
    let ArtifactRow {
        step,
        name,
        size,
        hash,
    } = made;
    let (step, name, hash) = (escape_line(step), escape_line(name), escape_line(hash));
    format!("| {step} | {name} | {size} | {hash} |\n")
}
