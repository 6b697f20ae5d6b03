//! The content of a report, in any format.
//!
//! Texts are cleaned and bounded here: a renderer only escapes the markup of its own format.

use super::super::entry::Outcome;
use super::super::state::{Phase, Run, StepState};
use super::FullRun;
use super::failures::{FailedAttempt, failed_attempt, wait_summary};
use super::measure::{self, TimeRange};
use outlast_kernel::budget::Cost;
use outlast_kernel::event::Usage;
use outlast_kernel::time::Span;
use outlast_kernel::{Timestamp, text};
use std::time::Duration;

/// Maximum number of steps to list.
const MAX_STEPS: usize = 500;
/// Maximum number of failed attempts to list.
const MAX_FAILURES: usize = 200;
/// Maximum number of artifacts to list.
const MAX_ARTIFACTS: usize = 1000;
/// Maximum lines of a list: inputs, resumes, violations.
const MAX_LIST_LINES: usize = 30;
/// Maximum bytes of a text on a line.
const MAX_LINE_BYTES: usize = 300;

/// The content of a report.
pub(super) struct Summary {
    pub(super) title: String,
    /// The outcome, in a sentence.
    pub(super) verdict: String,
    pub(super) facts: Vec<(&'static str, String)>,
    pub(super) rows: Vec<StepRow>,
    pub(super) failures: Vec<FailedAttempt>,
    /// Further notes.
    pub(super) notes: Vec<String>,
    pub(super) artifacts: Vec<ArtifactRow>,
    /// The omissions.
    pub(super) left_out: Vec<String>,
}

/// A row of the table of steps.
pub(super) struct StepRow {
    pub(super) step: String,
    pub(super) outcome: String,
    pub(super) visits: usize,
    pub(super) attempts: usize,
    pub(super) worked: String,
    pub(super) waited: String,
    pub(super) tokens: u64,
    pub(super) cost: String,
}

/// A row of the table of artifacts.
pub(super) struct ArtifactRow {
    pub(super) step: String,
    pub(super) name: String,
    pub(super) size: u64,
    pub(super) hash: String,
}

impl Summary {
    pub(super) fn new(whole: &FullRun, id: &str, now: Timestamp) -> Self {
        let run = &whole.run;
        let (end, gaps) = (measure::observed_end(run, now), measure::gaps(run));
        let steps = whole.steps_by_start();
        let mut account = Self {
            title: title(run),
            verdict: verdict(run, &steps, end),
            facts: facts(run, id),
            rows: Vec::new(),
            failures: Vec::new(),
            notes: Vec::new(),
            artifacts: Vec::new(),
            left_out: Vec::new(),
        };
        for (id, step) in &steps {
            account.rows.push(row(id, step, &gaps, end));
            account.add_visits(id, step, &gaps);
            account.notes.extend(wait_summary(id, step, end));
            account.artifacts.extend(artifact_rows(id, step));
        }
        account.truncate();
        account
    }

    fn add_visits(&mut self, id: &str, step: &StepState, gaps: &[TimeRange]) {
        for visit in &step.visits {
            for attempt in &visit.attempts {
                self.failures
                    .extend(failed_attempt(id, visit, attempt, gaps));
                let warning = |warning: &String| format!("{}: {}", one_line(id), one_line(warning));
                self.notes.extend(attempt.warnings.iter().map(warning));
            }
            if let Some(ended) = &visit.ended
                && ended.outcome == Outcome::Completed
                && let Some(reason) = &ended.reason
            {
                self.notes
                    .push(format!("{}: {}.", one_line(id), one_line(reason)));
            }
            if let Some(choice) = &visit.choice {
                let waited = visit
                    .gate
                    .and_then(|gate| Some(gate.ended?.since(gate.since)));
                let waited = Span(waited.unwrap_or_default());
                let (id, choice) = (one_line(id), one_line(choice));
                self.notes.push(match visit.is_default_choice {
                    true => format!("{id}: nobody answered within {waited}, so “{choice}” counts."),
                    false => format!("{id} was answered “{choice}” after {waited}."),
                });
            }
        }
    }

    fn truncate(&mut self) {
        let cuts = [
            (truncate_list(&mut self.rows, MAX_STEPS), "steps"),
            (
                truncate_list(&mut self.failures, MAX_FAILURES),
                "attempts that failed",
            ),
            (truncate_list(&mut self.notes, MAX_FAILURES), "notes"),
            (
                truncate_list(&mut self.artifacts, MAX_ARTIFACTS),
                "artifacts",
            ),
        ];
        let said = cuts.into_iter().filter(|(count, _)| *count > 0);
        let said =
            said.map(|(count, what)| format!("Left out to keep this short: {count} {what}."));
        self.left_out = said.collect();
    }
}

/// Cuts a list to a maximum length; returns the number of removed items.
fn truncate_list<T>(list: &mut Vec<T>, most: usize) -> usize {
    let more = list.len().saturating_sub(most);
    list.truncate(most);
    more
}

/// Returns the first lines of a list, cleaned and bounded, and a line that counts the omitted ones.
pub(super) fn lines(list: &[String]) -> Vec<String> {
    let mut lines: Vec<String> = list
        .iter()
        .take(MAX_LIST_LINES)
        .map(|text| one_line(text))
        .collect();
    match list.len().saturating_sub(MAX_LIST_LINES) {
        0 => {}
        more => lines.push(format!("… {more} more")),
    }
    lines
}

/// Cleans and bounds a text from outside, on one line.
pub(super) fn one_line(text: &str) -> String {
    let text = text::sanitized_message(&text::bounded(text, 4 * MAX_LINE_BYTES));
    let words: Vec<&str> = text.split_whitespace().collect();
    text::bounded(&words.join(" "), MAX_LINE_BYTES).into_owned()
}

/// Returns the title of the run.
pub(super) fn title(run: &Run) -> String {
    match one_line(&run.parameters.name) {
        name if name.is_empty() => "Run of a pipeline".to_owned(),
        name => name,
    }
}

fn facts(run: &Run, id: &str) -> Vec<(&'static str, String)> {
    let mut facts = vec![
        ("Run", one_line(id)),
        ("Pipeline", one_line(&run.parameters.file)),
        ("Folder", one_line(&run.parameters.folder)),
        ("Begun", run.started.to_string()),
    ];
    if let Some(ended) = &run.ended {
        facts.push(("Ended", ended.at.to_string()));
    }
    for (name, value) in run.parameters.inputs.iter().take(MAX_LIST_LINES) {
        facts.push(("Input", format!("{}: {}", one_line(name), one_line(value))));
    }
    let resumed = run.resumed_at.iter().rev().take(MAX_LIST_LINES).rev();
    facts.extend(resumed.map(|time| ("Taken up again", time.to_string())));
    facts
}

/// Names the steps that failed in a run that completed anyway.
fn tolerated_failures(steps: &[(&String, &StepState)]) -> String {
    let failed = |step: &StepState| step.phase == Phase::Ended(Outcome::Continued);
    let failed = steps.iter().filter(|(_, step)| failed(step));
    let names: Vec<String> = failed.map(|(id, _)| one_line(id)).collect();
    match names.is_empty() {
        true => String::new(),
        false => format!(", although these failed: {}", names.join(", ")),
    }
}

fn verdict(run: &Run, steps: &[(&String, &StepState)], end: Timestamp) -> String {
    let took = Span(end.since(run.started));
    let mut said = match &run.ended {
        None => format!("Not finished; under way for {took}."),
        Some(ended) => {
            let reason = ended.reason.as_deref().map(one_line);
            let reason = reason.map_or(String::new(), |reason| format!(": {reason}"));
            match ended.outcome {
                Outcome::Completed | Outcome::Continued => {
                    format!("Completed in {took}{}.", tolerated_failures(steps))
                }
                Outcome::Canceled => format!("Cancelled after {took}{reason}."),
                Outcome::Failed | Outcome::Skipped => format!("Failed after {took}{reason}."),
            }
        }
    };
    let attempts = || {
        let visits = steps.iter().flat_map(|(_, step)| &step.visits);
        visits.flat_map(|visit| &visit.attempts)
    };
    let failed = attempts().filter(|attempt| attempt.problem.is_some());
    let (steps, all, failed) = (steps.len(), attempts().count(), failed.count());
    said += &format!(" Steps: {steps}. Attempts: {all}, of which failed: {failed}.");
    let tokens = tokens(run.usage);
    if tokens > 0 {
        said += &format!(" Tokens: {tokens}.");
    }
    if run.cost.0 > 0 {
        said += &format!(" Cost: {}.", money(run.cost));
    }
    said
}

fn row(id: &str, step: &StepState, gaps: &[TimeRange], end: Timestamp) -> StepRow {
    let took = measure::step_time(step, gaps, end);
    let attempts = || step.visits.iter().flat_map(|visit| &visit.attempts);
    let usage = attempts().fold(Usage::default(), |usage, one| usage.plus(one.usage));
    let cost = attempts().fold(0_u64, |cost, one| cost.saturating_add(one.cost.0));
    StepRow {
        step: one_line(id),
        outcome: outcome(step),
        visits: step.visits.len(),
        attempts: attempts().count(),
        worked: time(took.worked),
        waited: time(took.waited),
        tokens: tokens(usage),
        cost: money(Cost(cost)),
    }
}

/// Describes the outcome of a step, or its current phase.
pub(super) fn outcome(step: &StepState) -> String {
    let word = match step.phase {
        Phase::Idle | Phase::Triggered => "not begun",
        Phase::Ready | Phase::Working => "working",
        Phase::Waiting { cause, .. } => return format!("waiting: {}", cause.phrase()),
        Phase::AtGate { .. } => "at its gate",
        Phase::Reworking => "failed, being made good for",
        Phase::Ended(outcome) => match outcome {
            Outcome::Completed => "completed",
            Outcome::Continued => "failed, the run went on",
            Outcome::Skipped => "left out",
            Outcome::Failed => "failed",
            Outcome::Canceled => "cancelled",
        },
    };
    let ended = step.visit().and_then(|visit| visit.ended.as_ref());
    let reason = ended.and_then(|ended| ended.reason.as_deref());
    match reason.filter(|_| step.phase.is_over()) {
        Some(reason) => format!("{word}: {}", one_line(reason)),
        None => word.to_owned(),
    }
}

fn artifact_rows(id: &str, step: &StepState) -> Vec<ArtifactRow> {
    let made = step.artifacts.iter().map(|(name, artifact)| ArtifactRow {
        step: one_line(id),
        name: one_line(name),
        size: artifact.size,
        hash: one_line(&artifact.hash),
    });
    made.collect()
}

// --- Words ---

fn tokens(usage: Usage) -> u64 {
    usage.total_input().saturating_add(usage.output)
}

fn money(cost: Cost) -> String {
    match cost.0 {
        0 => "–".to_owned(),
        millionths @ 1..10_000 => format!("${:.4}", millionths as f64 / 1e6),
        millionths => format!(
            "${}.{:02}",
            millionths / 1_000_000,
            millionths / 10_000 % 100
        ),
    }
}

fn time(time: Duration) -> String {
    match time {
        Duration::ZERO => "–".to_owned(),
        time => Span(time).to_string(),
    }
}
