//! The failures of a run, and its waits.

use super::super::entry::{NextAction, Problem};
use super::super::state::{Attempt, StepState, Visit};
use super::measure::{self, TimeRange};
use super::summary::{lines, one_line};
use outlast_kernel::time::Span;
use outlast_kernel::verdict::Cause;
use outlast_kernel::{Timestamp, text};
use std::collections::BTreeMap;
use std::time::Duration;

/// An attempt that failed, or was interrupted.
pub(super) struct FailedAttempt {
    pub(super) title: String,
    pub(super) time: String,
    pub(super) message: String,
    pub(super) violations: Vec<String>,
    pub(super) last_events: Vec<String>,
    /// The action after the failure.
    pub(super) remedy: String,
}

impl FailedAttempt {
    /// Returns the non-empty lists of details, by name.
    pub(super) fn lists(&self) -> impl Iterator<Item = (&'static str, &[String])> {
        let lists = [
            ("What the result breaks", self.violations.as_slice()),
            ("What was seen last", self.last_events.as_slice()),
        ];
        lists.into_iter().filter(|(_, lines)| !lines.is_empty())
    }
}

pub(super) fn failed_attempt(
    id: &str,
    visit: &Visit,
    attempt: &Attempt,
    gaps: &[TimeRange],
) -> Option<FailedAttempt> {
    let name = attempt_name(id, visit, attempt);
    let Some(problem) = &attempt.problem else {
        let interrupted = measure::is_interrupted(visit, attempt, gaps);
        return interrupted.then(|| FailedAttempt {
            title: format!("{name}: interrupted"),
            time: attempt.started.to_string(),
            message: String::new(),
            violations: Vec::new(),
            last_events: Vec::new(),
            remedy: "Its process ended before it did.".to_owned(),
        });
    };
    let took = attempt.ended.map(|ended| ended.since(attempt.started));
    let after = took.map_or(String::new(), |took| format!(", after {}", Span(took)));
    Some(FailedAttempt {
        title: format!(
            "{name}: {} ({}, {})",
            problem.cause.phrase(),
            problem.cause,
            problem.class.as_str()
        ),
        time: format!("{}{after}", attempt.ended.unwrap_or(attempt.started)),
        message: text::sanitized_message(&problem.message),
        violations: lines(&problem.violations),
        last_events: lines(&problem.last_events),
        remedy: remedy(problem, attempt),
    })
}

/// Names an attempt: `fetch, visit 2, attempt 3`; a number is omitted if there is only one.
pub(super) fn attempt_name(id: &str, visit: &Visit, attempt: &Attempt) -> String {
    let mut name = one_line(id);
    if visit.number > 1 {
        name += &format!(", visit {}", visit.number);
    }
    name += &format!(", attempt {}", attempt.number);
    if let Some(instead) = &attempt.fallback {
        name += &format!(" ({})", one_line(instead));
    }
    name
}

fn remedy(problem: &Problem, attempt: &Attempt) -> String {
    let mut said = match &attempt.next {
        Some(NextAction::Wait { since, until }) => {
            let ended = attempt.waits.last().and_then(|wait| wait.ended);
            let planned = until.since(*since);
            match ended.map(|ended| ended.since(*since)) {
                Some(waited) if waited < planned => format!(
                    "Waited {} instead of {}, and tried again.",
                    Span(waited),
                    Span(planned)
                ),
                Some(_) => format!("Waited {}, and tried again.", Span(planned)),
                None => format!("Was to wait {}, until {until}.", Span(planned)),
            }
        }
        Some(NextAction::Again) => "Tried again at once, and told what was wrong.".to_owned(),
        Some(NextAction::FallBack { to }) => format!("{} took its place.", one_line(to)),
        Some(NextAction::Stop { why }) => format!("Nothing more was tried: {}.", one_line(why)),
        Some(NextAction::Finish) => "It was let pass.".to_owned(),
        None => String::new(),
    };
    if problem.retries_spent && !matches!(attempt.next, Some(NextAction::Stop { .. })) {
        said += " Its turn had spent its retries on it already.";
    }
    said
}

/// Describes the waits of a step, by cause.
pub(super) fn wait_summary(id: &str, step: &StepState, end: Timestamp) -> Option<String> {
    let mut causes: BTreeMap<Cause, (usize, Duration)> = BTreeMap::new();
    let attempts = step.visits.iter().flat_map(|visit| &visit.attempts);
    for wait in attempts.flat_map(|attempt| &attempt.waits) {
        let (count, waited) = causes.entry(wait.cause?).or_default();
        *count += 1;
        *waited = waited.saturating_add(measure::wait_range(wait, end).length());
    }
    let said = |(cause, (count, waited)): (&Cause, &(usize, Duration))| {
        let times = if *count == 1 { "once" } else { "times" };
        let count = if *count == 1 {
            String::new()
        } else {
            format!("{count} ")
        };
        format!("{} {count}{times}, {}", cause.phrase(), Span(*waited))
    };
    let said: Vec<String> = causes.iter().map(said).collect();
    (!said.is_empty()).then(|| format!("{} waited: {}.", one_line(id), said.join("; ")))
}
