//! What is told of each thing that happens in a run, in a line.
//!
//! Invariant: what is decided about a failure is told with it, and not once more when it is carried out.

use crate::output::progress::time_of_day;
use crate::output::run_view::formatting::{
    self, TimeLeft, attempts, one_line, outcome_phrase, reason_suffix,
};
use crate::output::run_view::{PlannedStep, run_ended};
use outlast_kernel::Timestamp;
use outlast_kernel::verdict::Class;
use outlast_pipeline::entry::{Entry, NextAction, Outcome, Problem};
use outlast_pipeline::state::{Phase, Run, StepState};

/// What a line is made of: the run as it is with the entry.
pub(super) struct EventContext<'a> {
    pub(super) run_id: &'a str,
    pub(super) run: &'a Run,
    pub(super) steps: &'a [PlannedStep],
    pub(super) now: Timestamp,
}

impl EventContext<'_> {
    /// The lines about an entry, if a person is told of it.
    pub(super) fn lines(&self, entry: &Entry) -> Vec<String> {
        let step = one_line(entry.step().unwrap_or_default());
        let line = match entry {
            Entry::RunStarted(_) if self.run.turn > 1 => {
                "● what did not end well is tried anew".to_owned()
            }
            Entry::RunStarted(begun) => {
                let (name, id) = (one_line(&begun.name), self.run_id);
                format!("● {name}: run {id}")
            }
            Entry::RunResumed {} => self.resumed(),
            Entry::StepStarted { visit: 1, .. } => format!("▶ {step}"),
            Entry::StepStarted { visit, .. } => format!("▶ {step} (visit {visit})"),
            Entry::AttemptEnded { .. } => return self.attempt_ended(&step, entry),
            Entry::GateOpened { .. } => self.gate_opened(&step, entry),
            Entry::GateClosed {
                choice: Some(choice),
                by_default: true,
                ..
            } => format!("● {step}: nobody answered, so {} counts", one_line(choice)),
            Entry::GateClosed {
                choice: Some(choice),
                ..
            } => format!("● {step}: answered {}", one_line(choice)),
            Entry::ReworkStarted { by, .. } => {
                format!("↻ {step}: {} makes good for it", one_line(by))
            }
            Entry::LoopRepeated { iterations, .. } => {
                format!(
                    "↻ {step}: once more (has run {})",
                    count_phrase(*iterations)
                )
            }
            Entry::StepEnded {
                step,
                outcome,
                reason,
                ..
            } => self.step_ended(step, *outcome, reason.as_deref()),
            Entry::EdgeTaken { to: Some(to), .. } => {
                format!("→ {step}: leads to {}", one_line(to))
            }
            Entry::EdgeTaken { to: None, .. } => format!("→ {step}: leads to the end"),
            Entry::RunEnded { .. } => return self.run_ended().into_iter().collect(),
            _ => return Vec::new(),
        };
        vec![line]
    }

    fn resumed(&self) -> String {
        let over = self.run.steps.values().filter(|step| step.phase.is_over());
        let (over, all) = (over.count(), self.steps.len());
        let (name, id) = (one_line(&self.run.parameters.name), self.run_id);
        let folder = one_line(&self.run.parameters.folder);
        format!("● {name}: run {id} is taken up again in {folder}; {over} of {all} steps are over")
    }

    fn attempt_ended(&self, step: &str, entry: &Entry) -> Vec<String> {
        let Entry::AttemptEnded {
            attempt,
            problem,
            next,
            warnings,
            ..
        } = entry
        else {
            return Vec::new();
        };
        // That it was cancelled is said of the step.
        let is_canceled = |problem: &Problem| problem.class == Class::Canceled;
        if problem.as_ref().is_some_and(is_canceled) {
            return Vec::new();
        }
        let warning = |warning: &String| format!("warning: {step}: {}", one_line(warning));
        let mut lines: Vec<String> = warnings.iter().map(warning).collect();
        if let Some(problem) = problem {
            let following = attempts(attempt.saturating_add(1), self.max_attempts(entry));
            lines.push(self.failed(step, problem, next, &following));
        }
        lines
    }

    fn failed(&self, step: &str, problem: &Problem, next: &NextAction, following: &str) -> String {
        let phrase = problem.cause.phrase();
        let message = match problem.message.trim() {
            "" => String::new(),
            message => format!(": {}", one_line(message)),
        };
        match next {
            NextAction::Wait { until, .. } => {
                let left = TimeLeft::new(*until, self.now).exact();
                format!("⚠ {step}: {phrase}, retrying {left} ({following}){message}")
            }
            NextAction::Again => {
                format!("⚠ {step}: {phrase}, trying again at once ({following}){message}")
            }
            NextAction::FallBack { to } => {
                format!("⚠ {step}: {phrase}, {} takes over{message}", one_line(to))
            }
            NextAction::Finish => format!("⚠ {step}: {phrase}{message}"),
            NextAction::Stop { why } => {
                let class = problem.class.as_str().replace('_', " ");
                let why = one_line(why);
                format!("✗ {step}: {phrase} ({class}){message}; {why}")
            }
        }
    }

    fn max_attempts(&self, entry: &Entry) -> Option<u32> {
        let id = entry.step()?;
        let mut steps = self.steps.iter();
        steps.find(|step| step.id == id)?.max_attempts
    }

    fn gate_opened(&self, step: &str, entry: &Entry) -> String {
        let Entry::GateOpened {
            message,
            choices,
            until,
            ..
        } = entry
        else {
            return String::new();
        };
        let (clock, left) = (
            time_of_day(*until, self.now),
            formatting::whole_seconds(until.since(self.now)),
        );
        let Some(message) = message else {
            return format!("… {step}: waits until {clock} ({left})");
        };
        let choices = one_line(&choices.join(", "));
        format!(
            "? {step}: {} [{choices}] until {clock} ({left}); `outlast runs approve {} {step} --choice …` answers",
            one_line(message),
            self.run_id
        )
    }

    fn step_ended(&self, id: &str, outcome: Outcome, reason: Option<&str>) -> String {
        let nothing = StepState::default();
        let state = self.run.steps.get(id).unwrap_or(&nothing);
        let last = state.attempt().and_then(|attempt| attempt.next.as_ref());
        // Why an attempt was the last one was told with it.
        let reason = match last {
            Some(NextAction::Stop { .. }) => String::new(),
            _ => reason_suffix(reason),
        };
        let (mark, ended) = (
            formatting::outcome_mark(outcome),
            outcome_phrase(state, outcome),
        );
        format!("{mark} {}: {ended}{reason}", one_line(id))
    }

    fn run_ended(&self) -> Option<String> {
        let ended = self.run.ended.as_ref()?;
        let name = one_line(&self.run.parameters.name);
        let (mark, how) = (
            formatting::outcome_mark(ended.outcome),
            run_ended(self.run, ended),
        );
        let went_on =
            |(_, step): &(&String, &StepState)| step.phase == Phase::Ended(Outcome::Continued);
        let failed = self.run.steps.iter().filter(went_on);
        let failed: Vec<&str> = failed.map(|(id, _)| id.as_str()).collect();
        let but = match failed.is_empty() || ended.outcome != Outcome::Completed {
            true => String::new(),
            false => format!(", although these failed: {}", one_line(&failed.join(", "))),
        };
        let spent = formatting::spent(self.run.usage, self.run.cost);
        Some(format!("{mark} {name}: {how}{but}{spent}"))
    }
}

fn count_phrase(count: u32) -> String {
    match count {
        1 => "once".to_owned(),
        count => format!("{count} times"),
    }
}
