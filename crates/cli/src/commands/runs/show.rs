//! `outlast runs show`: the status of a run, and its history.

use super::{find_or_newest, step, watch};
use crate::args::ShowArguments;
use crate::output::run_view::{self, StatusLines};
use crate::output::{print, safe_json};
use crate::platform::exit::Exit;
use outlast_engine::Clock;
use outlast_kernel::time::Span;
use outlast_kernel::{Timestamp, text};
use outlast_pipeline::entry::{Entry, NextAction};
use outlast_pipeline::history::RecordedEntry;
use outlast_pipeline::run_store::RunStore;
use outlast_pipeline::run_view::{RunSnapshot, RunStatus};
use outlast_pipeline::state::{Attempt, Run, Visit};
use outlast_store::journal::Summary;
use serde::Serialize;
use std::fmt::Write;
use std::io::IsTerminal;

/// The largest number of attempts that are shown for each step.
const MAX_SHOWN_ATTEMPTS: usize = 20;
/// The longest part of a message that is shown, in bytes.
const MAX_MESSAGE_BYTES: usize = 400;

pub(super) async fn show(
    home: &RunStore,
    arguments: &ShowArguments,
    clock: &dyn Clock,
) -> anyhow::Result<Exit> {
    let summary = find_or_newest(home, arguments.run.as_deref()).await?;
    if let Some(id) = &arguments.step {
        return step::show(home, &summary.id, id).await;
    }
    let seen = home.snapshot(&summary.id).await?;
    match (arguments.json, arguments.watch) {
        (true, false) => print(&json_lines(&seen.summary.id, &seen.entries)?),
        (false, false) => print(&document(&seen, clock.now())),
        (json, true) => watch::watch(home, seen, json, clock).await,
    }
}

// --- as JSON ---

#[derive(Serialize)]
struct JsonLine<'a> {
    v: u32,
    seq: u64,
    time: Timestamp,
    run_id: &'a str,
    #[serde(flatten)]
    entry: &'a Entry,
}

/// Formats entries as lines of JSON.
pub(super) fn json_lines(run_id: &str, entries: &[RecordedEntry]) -> anyhow::Result<String> {
    let mut lines = String::new();
    for (seq, time, entry) in entries {
        let line = JsonLine {
            v: 1,
            seq: *seq,
            time: *time,
            run_id,
            entry,
        };
        lines += &safe_json(&serde_json::to_string(&line)?);
        lines.push('\n');
    }
    Ok(lines)
}

// --- for a person ---

/// Describes a run: its status, its steps and its failures so far.
pub(super) fn document(seen: &RunSnapshot, now: Timestamp) -> String {
    let RunSnapshot { summary, run, .. } = seen;
    let columns = match std::io::stdout().is_terminal() {
        true => run_view::stdout_size().0,
        false => usize::MAX,
    };
    let steps = run_view::recorded_steps(run);
    let view = StatusLines {
        steps: &steps,
        run,
        live: &run_view::recorded_live_steps(seen),
        status: seen.state,
        now,
    };
    let mut text = head(summary, run);
    let mut lines = view.lines(columns).into_iter();
    text += &lines.next().unwrap_or_default();
    text.push('\n');
    for (line, step) in lines.zip(&steps) {
        text += &line;
        text.push('\n');
        text += &attempts(run, &step.id);
    }
    if run.ended.is_none() && seen.state != RunStatus::Running {
        text += &format!("\n`outlast run --resume {}` carries it on.\n", summary.id);
    }
    text::plain(&text).into_owned()
}

fn head(summary: &Summary, run: &Run) -> String {
    let mut head = format!("Run      {}\n", summary.id);
    for (name, value) in [
        ("File", &run.parameters.file),
        ("Folder", &run.parameters.folder),
    ] {
        // Writing to a string cannot fail.
        writeln!(head, "{name:<8} {}", one_line(value)).ok();
    }
    for (name, value) in &run.parameters.inputs {
        let value = text::without_secrets(value);
        writeln!(head, "Input    {}: {}", one_line(name), one_line(&value)).ok();
    }
    writeln!(head, "Begun    {}", run.started).ok();
    for time in last_attempts(&run.resumed_at) {
        writeln!(head, "Resumed  {time}").ok();
    }
    head.push('\n');
    head
}

/// Returns the last [`MAX_SHOWN_ATTEMPTS`] items.
fn last_attempts<T>(all: &[T]) -> &[T] {
    &all[all.len().saturating_sub(MAX_SHOWN_ATTEMPTS)..]
}

/// Describes the failures of a step, one line for each attempt.
fn attempts(run: &Run, step: &str) -> String {
    let visits = run.steps.get(step).map_or(&[][..], |step| &step.visits);
    let failed = |visit: &Visit| -> Vec<String> {
        let failed = |attempt: &Attempt| failed(visit.number, attempt);
        visit.attempts.iter().filter_map(failed).collect()
    };
    let lines: Vec<String> = visits.iter().flat_map(failed).collect();
    let shown = last_attempts(&lines);
    let mut text = match lines.len() - shown.len() {
        0 => String::new(),
        more => format!("      … earlier attempts that failed: {more}\n"),
    };
    text += &shown.concat();
    text
}

fn failed(visit: u32, attempt: &Attempt) -> Option<String> {
    let problem = attempt.problem.as_ref()?;
    let visit = match visit {
        1 => String::new(),
        visit => format!("visit {visit}, "),
    };
    let took = attempt.ended.map_or(String::new(), |ended| {
        format!(" after {}", Span(ended.since(attempt.started)))
    });
    let message = match problem.message.trim() {
        "" => String::new(),
        message => format!(": {}", one_line(message)),
    };
    let next = match &attempt.next {
        Some(NextAction::Wait { since, until }) => format!("; waits {}", Span(until.since(*since))),
        Some(NextAction::Again) => "; tried again at once".to_owned(),
        Some(NextAction::FallBack { to }) => format!("; {} takes over", one_line(to)),
        Some(NextAction::Stop { why }) => format!("; {}", one_line(why)),
        Some(NextAction::Finish) | None => String::new(),
    };
    let (number, phrase) = (attempt.number, problem.cause.phrase());
    Some(format!(
        "      {visit}attempt {number} failed{took}: {phrase}{message}{next}\n"
    ))
}

/// Puts a text from outside on one line, so that it cannot imitate our own lines.
fn one_line(text: &str) -> String {
    let text = text::bounded(text, MAX_MESSAGE_BYTES);
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ")
}
