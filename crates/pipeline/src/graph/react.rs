//! The reaction to a report about a step: a report in, journal entries out.
//!
//! Pure, except for the breaker's counts. Invariant: every decision about a failure is part of the entry that reports
//! it.

use crate::definition::{Choice, Gate, Pipeline, Step, Work};
use crate::entry::{Artifact, Entry, NextAction, Problem};
use crate::graph::{Graph, StepResult};
use crate::state::{Run, Visit};
use outlast_kernel::Timestamp;
use outlast_kernel::breaker::{Breaker, Trip};
use outlast_kernel::budget::Cost;
use outlast_kernel::event::Usage;
use outlast_kernel::fingerprint::Fingerprint;
use outlast_kernel::step_decision::{self, AttemptFailure, StepStatus};
use outlast_kernel::time::Span;
use outlast_kernel::verdict::{Cause, Class};
use std::collections::BTreeMap;

/// The result of an attempt.
#[derive(Debug)]
pub(crate) struct AttemptResult {
    pub(crate) output: std::result::Result<StepOutput, Problem>,
    pub(crate) usage: Usage,
    pub(crate) cost: Cost,
    pub(crate) warnings: Vec<String>,
}

/// The output of a successful attempt.
#[derive(Debug, Default)]
pub(crate) struct StepOutput {
    pub(crate) artifacts: BTreeMap<String, Artifact>,
    pub(crate) context: BTreeMap<String, String>,
}

/// The facts beside the run that a decision needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DecisionContext {
    pub(crate) time: Timestamp,
    /// The time by which the run must end.
    pub(crate) deadline: Option<Timestamp>,
    pub(crate) entropy: u64,
}

/// Returns the entries that follow the end of an attempt.
pub(crate) fn handle_attempt_result(
    graph: &mut Graph,
    run: &Run,
    name: &str,
    done: AttemptResult,
    now: DecisionContext,
) -> Vec<Entry> {
    let visit = run.steps.get(name).and_then(|state| state.visit());
    let (Some(visit), Some(step)) = (visit, graph.step(name).cloned()) else {
        return Vec::new();
    };
    let step = &step;
    let attempt = visit.attempts.last().map_or(1, |attempt| attempt.number);
    let next = match &done.output {
        Ok(_) => {
            graph.breaker.record_success(&step.id);
            NextAction::Finish
        }
        Err(_) if graph.is_canceled() => NextAction::Stop {
            why: step_decision::StopCause::Canceled.to_string(),
        },
        Err(problem) => {
            let standing = retry_state(step, visit, problem);
            let decided = next_action(step, problem, standing, visit, now);
            let failure = fingerprint(&step.id, problem);
            match graph.breaker.record_failure(failure, now.time) {
                // A step that stops anyway already has its reason.
                Some(trip)
                    if !matches!(decided, NextAction::Stop { .. }) || standing.attempts > 1 =>
                {
                    NextAction::Stop {
                        why: trip_message(&trip),
                    }
                }
                _ => decided,
            }
        }
    };
    let mut entries = vec![Entry::AttemptEnded {
        step: step.id.clone(),
        visit: visit.number,
        attempt,
        usage: done.usage,
        cost: done.cost,
        problem: done.output.as_ref().err().cloned(),
        next: next.clone(),
        warnings: done.warnings,
    }];
    entries.extend(match (done.output, next) {
        (Ok(made), _) => {
            let result = StepResult::succeeded(made.artifacts, made.context);
            graph.end_step(step, run, result)
        }
        // A run that is being cancelled retries nothing; an attempt that was ended from outside has failed.
        (Err(_), _) if graph.is_canceled() => vec![Graph::cancel_step(step, run)],
        (Err(problem), NextAction::Stop { why }) => {
            graph.end_step(step, run, StepResult::failed(reason(&problem, &why)))
        }
        _ => Vec::new(),
    });
    entries
}

/// Rebuilds the breaker's counts since the last start of the run, so that they survive the process that counted.
pub(super) fn rebuild_breaker(pipeline: &Pipeline, run: &Run) -> Breaker {
    let mut breaker = Breaker::new(pipeline.runtime.circuit_breaker.clone());
    for (name, state) in &run.steps {
        let attempts = state.visits.iter().flat_map(|visit| &visit.attempts);
        for attempt in attempts.filter(|attempt| attempt.started >= run.last_started) {
            match (&attempt.problem, attempt.ended) {
                (Some(problem), Some(ended)) => {
                    drop(breaker.record_failure(fingerprint(name, problem), ended))
                }
                (None, Some(_)) => breaker.record_success(name),
                _ => {}
            }
        }
    }
    breaker
}

/// Failures are the same if their messages are. Violations are ignored, since they quote the result, which always
/// differs.
fn fingerprint(step: &str, problem: &Problem) -> Fingerprint {
    Fingerprint::new(step, problem.class, &problem.message)
}

pub(super) fn trip_message(trip: &Trip) -> String {
    let count = trip.count;
    format!("the circuit breaker ended it: the same failure came {count} times")
}

fn reason(problem: &Problem, why: &str) -> String {
    let phrase = problem.cause.phrase();
    match problem.message.as_str() {
        "" => format!("{phrase} ({why})"),
        message => format!("{phrase}: {message} ({why})"),
    }
}

fn retry_state(step: &Step, visit: &Visit, problem: &Problem) -> StepStatus {
    let is_transient = problem.class == Class::Transient;
    let earlier = visit.attempts.iter().rev().skip(1);
    let earlier = earlier.take_while(|attempt| {
        let class = attempt.problem.as_ref().map(|problem| problem.class);
        class == Some(Class::Transient)
    });
    let in_a_row = u32::try_from(earlier.count()).unwrap_or(u32::MAX);
    StepStatus {
        attempts: visit.attempts.last().map_or(1, |attempt| attempt.number),
        consecutive_transient: match is_transient {
            true => in_a_row.saturating_add(1),
            false => 0,
        },
        turn_retries_exhausted: problem.retries_spent,
        has_fallback: next_fallback(step, visit).is_some(),
        runs_once: step.once,
    }
}

fn next_action(
    step: &Step,
    problem: &Problem,
    standing: StepStatus,
    visit: &Visit,
    now: DecisionContext,
) -> NextAction {
    let failed = AttemptFailure {
        cause: problem.cause,
        not_before: problem.not_before,
        at: now.time,
    };
    let policy = &step.retry.policy;
    match step_decision::decide(policy, now.deadline, failed, standing, now.entropy) {
        step_decision::StepDecision::RetryAt(until) => NextAction::Wait {
            since: now.time,
            until,
        },
        step_decision::StepDecision::RetryNow => NextAction::Again,
        step_decision::StepDecision::FallBack => match next_fallback(step, visit) {
            Some(to) => NextAction::FallBack { to: to.to_owned() },
            None => NextAction::Stop {
                why: step_decision::StopCause::NoFallback.to_string(),
            },
        },
        step_decision::StepDecision::Stop(_)
            if problem.cause == Cause::Unknown && !step.retry.is_explicit =>
        {
            NextAction::Stop {
                why: "it says nothing about itself, and the step has no `retry`".to_owned(),
            }
        }
        step_decision::StepDecision::Stop(why) => NextAction::Stop {
            why: why.to_string(),
        },
    }
}

/// Returns the agent to fall back to from the last one of this visit. Models fall back within their session.
fn next_fallback<'a>(step: &'a Step, visit: &Visit) -> Option<&'a str> {
    let Work::Agent(agent) = &step.work else {
        return None;
    };
    let last = visit
        .attempts
        .last()
        .and_then(|attempt| attempt.fallback.as_ref());
    let next = last.map_or(0, |last| {
        let place = agent.fallbacks.iter().position(|name| name == last);
        place.map_or(agent.fallbacks.len(), |place| place + 1)
    });
    agent.fallbacks.get(next).map(String::as_str)
}

/// Returns the entries that follow an answer at a gate, or its timeout.
pub(crate) fn handle_gate_answer(
    graph: &Graph,
    run: &Run,
    step: &Step,
    choice: Option<&str>,
) -> Vec<Entry> {
    let is_answered = choice.is_some();
    let closed = |choice: Option<&str>| Entry::GateClosed {
        step: step.id.clone(),
        choice: choice.map(str::to_owned),
        by_default: choice.is_some() && !is_answered,
    };
    let success = |context| StepResult::succeeded(BTreeMap::new(), context);
    let Work::Gate(Gate::Approval(approval)) = &step.work else {
        let ended = graph.end_step(step, run, success(BTreeMap::new()));
        return std::iter::once(closed(None)).chain(ended).collect();
    };
    let Some(key) = choice.or(approval.default.as_deref()) else {
        let why = format!("nobody answered within {}", Span(approval.timeout));
        let ended = graph.end_step(step, run, StepResult::failed(why));
        return std::iter::once(closed(None)).chain(ended).collect();
    };
    let chosen = approval.choices.iter().find(|choice| choice.key == key);
    let target = chosen.and_then(|choice| choice.target.clone());
    let result = match chosen {
        Some(chosen) if chosen.is_rejection => StepResult {
            target,
            ..StepResult::failed(format!("the answer was `{key}`: {}", chosen.label))
        },
        _ => StepResult {
            target,
            ..success(BTreeMap::from([("choice".to_owned(), key.to_owned())]))
        },
    };
    let ended = graph.end_step(step, run, result);
    std::iter::once(closed(Some(key))).chain(ended).collect()
}

/// Returns whether the key is a choice of the gate.
pub(crate) fn is_choice(step: &Step, key: &str) -> bool {
    choices(step).iter().any(|choice| choice.key == key)
}

/// Returns the key of the choice that lets the run continue.
pub(crate) fn first_choice(step: &Step) -> Option<&str> {
    choices(step).first().map(|choice| choice.key.as_str())
}

fn choices(step: &Step) -> &[Choice] {
    match &step.work {
        Work::Gate(Gate::Approval(approval)) => &approval.choices,
        _ => &[],
    }
}
