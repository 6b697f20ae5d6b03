//! Renders a report as Markdown.

use super::failures::FailedAttempt;
use super::summary::{ArtifactRow, StepRow, Summary};
use super::timeline::{Bar, LEGEND, Row, Timeline};
use outlast_session::transcript::escape::{escape_line, fence};

/// The width of the timeline, in characters.
const COLUMNS: usize = 60;
/// The maximum length of a step's name in the timeline, in characters.
const MAX_NAME_CHARS: usize = 24;

/// Renders the whole document.
pub(super) fn document(account: &Summary, timeline: &Timeline) -> String {
    let mut text = format!(
        "# {}\n\n{}\n\n",
        escape_line(&account.title),
        escape_line(&account.verdict)
    );
    let fact = |(name, value): &(&str, String)| format!("- {name}: {}\n", escape_line(value));
    text.extend(account.facts.iter().map(fact));
    text.push('\n');
    text += &fence("text", &drawn(timeline));
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
    text
}

/// Draws the timeline with characters: a line for each step, and a legend.
fn drawn(timeline: &Timeline) -> String {
    let names = timeline.rows.iter().map(|row| row.step.chars().count());
    let names = names.max().unwrap_or_default().min(MAX_NAME_CHARS);
    let line = |row: &Row| {
        let bars = || row.bars.iter().rev().chain(&timeline.gaps);
        let symbol = |cell| {
            let bar = bars().find(|bar| covers(bar, cell));
            bar.map_or(' ', |bar| bar.look.symbol)
        };
        let cells: String = (0..COLUMNS).map(symbol).collect();
        let name: String = row.step.chars().take(names).collect();
        format!("{name:<names$} |{cells}| {}\n", row.note).replace("| \n", "|\n")
    };
    let mut text: String = timeline.rows.iter().map(line).collect();
    let legend = LEGEND.map(|look| format!("{} {}", look.symbol, look.legend));
    text += &format!("{}\n", legend.join(" · "));
    let times: Vec<&str> = timeline.times.iter().map(|mark| &*mark.text).collect();
    text += &format!(
        "Times, from left to right: {}\n{}",
        times.join(" · "),
        timeline.left_out
    );
    text
}

/// Whether a bar covers the middle of a cell, or begins in it.
fn covers(bar: &Bar, cell: usize) -> bool {
    let width = 100.0 / COLUMNS as f64;
    let left = cell as f64 * width;
    let middle = left + width / 2.0;
    let begins = bar.left >= left && bar.left < left + width;
    begins || (bar.left <= middle && middle < bar.left + bar.width)
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
