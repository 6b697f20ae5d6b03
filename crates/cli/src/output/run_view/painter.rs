//! A run while somebody watches: a line for each thing that happens, and on a terminal below them where it stands, painted
//! anew in place.
//!
//! Invariant: what is painted is no larger than the terminal, so that all of it can be taken back.

use super::event_lines::EventContext;
use super::formatting::{one_line, truncate};
use super::live::{Countdown, LiveStep};
use super::{PlannedStep, StatusLines};
use crate::output::diagnostics;
use crate::output::progress::event_lines;
use outlast_kernel::event::Body;
use outlast_kernel::{Timestamp, text};
use outlast_pipeline::entry::Entry;
use outlast_pipeline::run_view::{Question, RunStatus};
use outlast_pipeline::state::Run;
use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;

/// How much room there is, in columns and lines.
pub(crate) type Size = (usize, usize);

/// How much room there is when nobody says so.
const DEFAULT_SIZE: Size = (80, 24);
/// A time at the gate that moves by less is no news.
const MIN_GATE_CHANGE: Duration = Duration::from_secs(60);

/// Tells of a run as it goes on. What it is told is all that it knows.
pub(crate) struct Painter<Out: Write> {
    out: Out,
    /// How much room there is; nothing where lines stay.
    size: Option<fn() -> Size>,
    run_id: String,
    steps: Vec<PlannedStep>,
    run: Run,
    live: BTreeMap<String, LiveStep>,
    status: RunStatus,
    /// Whether only what matters is said.
    is_quiet: bool,
    /// What is painted just now.
    painted: Vec<String>,
}

impl<Out: Write> Painter<Out> {
    /// For a terminal, whose size can be asked for, or with `None` for anything else.
    pub(crate) fn new(out: Out, size: Option<fn() -> Size>, run_id: &str) -> Self {
        Self {
            out,
            size,
            run_id: run_id.to_owned(),
            steps: Vec::new(),
            run: Run::default(),
            live: BTreeMap::new(),
            status: RunStatus::Running,
            is_quiet: false,
            painted: Vec::new(),
        }
    }

    /// The same, with nothing said but what matters.
    pub(crate) fn quiet(self) -> Self {
        Self {
            size: None,
            is_quiet: true,
            ..self
        }
    }

    /// The steps that there are, in order.
    pub(crate) fn set_steps(&mut self, steps: Vec<PlannedStep>) {
        self.steps = steps;
    }

    /// Whether that is one of them.
    pub(crate) fn has_step(&self, step: &str) -> bool {
        self.steps.iter().any(|known| known.id == step)
    }

    /// Whether a process is at work on it.
    pub(crate) fn set_status(&mut self, status: RunStatus) {
        self.status = status;
    }

    /// Goes on from where a run stands.
    pub(crate) fn set_run(&mut self, run: &Run) {
        self.run = run.clone();
    }

    /// Takes note of what happens, and tells of it.
    pub(crate) fn entry(&mut self, time: Timestamp, entry: &Entry) {
        self.apply(time, entry);
        let news = EventContext {
            run_id: &self.run_id,
            run: &self.run,
            steps: &self.steps,
            now: time,
        };
        for line in news.lines(entry) {
            self.print(&line);
        }
    }

    /// Takes note of what happened, and tells nothing.
    pub(crate) fn apply(&mut self, time: Timestamp, entry: &Entry) {
        self.run.apply(time, entry);
        let Some(step) = entry.step() else { return };
        match entry {
            Entry::GateOpened {
                message: Some(message),
                choices,
                ..
            } => {
                self.live_step(step).question = Some(Question {
                    message: message.clone(),
                    choices: choices.clone(),
                });
            }
            Entry::AttemptStarted { .. }
            | Entry::AttemptEnded { .. }
            | Entry::GateClosed { .. }
            | Entry::StepEnded { .. } => {
                self.live.remove(step);
            }
            _ => {}
        }
    }

    /// What the session of a step waits for, said by who knows it by other means than its events.
    pub(crate) fn set_wait(&mut self, step: &str, countdown: Option<Countdown>) {
        self.live_step(step).retry = countdown;
    }

    fn live_step(&mut self, step: &str) -> &mut LiveStep {
        self.live.entry(step.to_owned()).or_default()
    }

    /// Takes note of what the session of a step says, and tells of what a person wants to know.
    pub(crate) fn event(&mut self, step: &str, body: &Body, now: Timestamp) {
        let live = self.live_step(step);
        let before = live.retry.clone();
        live.event(body, now);
        let (after, first) = (live.retry.clone(), live.first_model.clone());
        let label = one_line(step);
        match after {
            Some(wait) if Some(&wait) != before.as_ref() => {
                let moved = before.filter(|before| before.retry.is_none() && wait.retry.is_none());
                let is_news =
                    moved.is_none_or(|before| differs_noticeably(before.until, wait.until));
                if is_news {
                    self.print(&format!("⚠ {label}: {}", wait.announcement(now)));
                }
            }
            _ => {
                if let Some(line) = event_lines::line(body, &first, now) {
                    self.print(&labelled(&label, &line));
                }
            }
        }
    }

    /// Brings what counts down up to date.
    pub(crate) fn tick(&mut self, now: Timestamp) {
        let Some(size) = self.size else { return };
        let (columns, rows) = size();
        let view = StatusLines {
            steps: &self.steps,
            run: &self.run,
            live: &self.live,
            status: self.status,
            now,
        };
        let mut lines = view.active_lines(columns);
        let room = rows.saturating_sub(1).max(1);
        if lines.len() > room {
            let more = lines.len() - (room - 1);
            lines.truncate(room - 1);
            lines.push(truncate(&format!("  … and {more} more"), columns));
        }
        if lines != self.painted {
            let painted = self.erase_painted() + &lines.join("\n") + "\n";
            self.write(&painted);
            self.painted = lines;
        }
    }

    /// Says something, above what is painted.
    pub(crate) fn print(&mut self, line: &str) {
        if self.is_quiet && diagnostics::is_progress_line(line) {
            return;
        }
        let line = self.erase_painted() + &text::plain(line) + "\n";
        self.write(&line);
    }

    /// Takes back what is painted, for others who write to the terminal.
    pub(crate) fn clear(&mut self) {
        let cleared = self.erase_painted();
        self.write(&cleared);
    }

    /// What makes the terminal forget what is painted.
    fn erase_painted(&mut self) -> String {
        match std::mem::take(&mut self.painted).len() {
            0 => String::new(),
            lines => format!("\u{1b}[{lines}A\r\u{1b}[J"),
        }
    }

    fn write(&mut self, text: &str) {
        // A reader that is gone cannot be told so.
        self.out
            .write_all(text.as_bytes())
            .and_then(|()| self.out.flush())
            .ok();
    }
}

/// How much room the terminal has that answers go to.
pub(crate) fn stdout_size() -> Size {
    size(terminal_size::terminal_size_of(std::io::stdout()))
}

/// How much room the terminal has that progress goes to.
pub(crate) fn stderr_size() -> Size {
    size(terminal_size::terminal_size_of(std::io::stderr()))
}

fn size(known: Option<(terminal_size::Width, terminal_size::Height)>) -> Size {
    known.map_or(DEFAULT_SIZE, |(width, height)| {
        (usize::from(width.0), usize::from(height.0))
    })
}

fn differs_noticeably(one: Timestamp, other: Timestamp) -> bool {
    one.since(other).max(other.since(one)) >= MIN_GATE_CHANGE
}

/// A line about a session, with the step that it belongs to behind its mark.
fn labelled(step: &str, line: &str) -> String {
    match line.split_once(' ') {
        Some((mark @ ("⚠" | "●"), rest)) => format!("{mark} {step}: {rest}"),
        _ => format!("{step}: {line}"),
    }
}
