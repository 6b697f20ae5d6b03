//! Handles invalid completions: empty, cut short, refused, announced but not done, repeated over and over.
//!
//! Invariants: an invalid completion is never part of the conversation, also after a restart; the model gets a bounded
//! number of corrections in a row, then the turn ends with an error that says so; a valid completion is never requested
//! again.
//! Not here: the detection (see the kernel's `completion` and `loops`).

use super::Runner;
use crate::journal::Entry;
use outlast_dialect::{Message, Part, Role, ToolResult};
use outlast_kernel::attempt::{Effects, Event, Outcome, step};
use outlast_kernel::completion::{
    self, FinishedCompletion, InvalidCompletion, ReasoningKind, judge,
};
use outlast_kernel::decision::{GiveUp, Remedies};
use outlast_kernel::event::{Body, StopReason, ToolCall};
use outlast_kernel::failure::{ClassifiedFailure, Failure};
use outlast_kernel::loops::{LoopDetector, RepeatedCallCounter};
use outlast_kernel::verdict::{Cause, Scope, Verdict};

/// The number of identical calls with identical results after which the model gets a notice; repeated at each multiple.
const REPEAT_NOTICE_INTERVAL: u32 = 5;
/// The number of repetitions after which the turn ends.
const MAX_REPEATS: u32 = 20;

const NOT_RUN: &str = "it was not run: the answer reached its output limit before it was complete; split the work into \
                       smaller calls";
const REPEAT_NOTICE: &str = "You have made the same tool calls with the same results several times in a row. They will not \
                       change. Do something else, or say what keeps you from going on.";
const UNUSABLE_NOTICE: &str = "Your last answer could not be used";
const CUT_SHORT: &str = "the answer reached the output limit and is incomplete";

/// The state of the invalid completions of a turn.
#[derive(Default)]
pub(super) struct InvalidCompletionState {
    /// The problem of the current completion.
    pub(super) what: Option<InvalidCompletion>,
    /// The number of invalid completions in a row.
    in_a_row: u32,
    /// The correction for the next call.
    correction: Option<Correction>,
    /// Whether another step follows although no tool was called.
    pub(super) goes_on: bool,
    pub(super) reasoning: LoopDetector,
    repeats: RepeatedCallCounter,
}

/// A message to the model before the next call.
struct Correction {
    cause: Cause,
    notice: String,
    problem: String,
}

impl Runner<'_> {
    /// Handles a completion that ended by itself.
    pub(super) async fn answered(&mut self, stop_reason: StopReason) -> Effects {
        let Some(oddity) = self.oddity(stop_reason) else {
            if self.answer.has_calls() {
                self.odd.in_a_row = 0;
            }
            self.complete_step(stop_reason, Vec::new()).await;
            if stop_reason == StopReason::Length {
                let message = CUT_SHORT.to_owned();
                self.emitter.emit(Body::Warning { message });
            }
            return step(&mut self.state, Event::Succeeded);
        };
        self.look_at_rules();
        let may_correct = self.may_correct();
        let keeps = oddity.keeps_answer() && !self.answer.parts.is_empty();
        // The announcement may be the complete message.
        if oddity == InvalidCompletion::Announced && !may_correct {
            self.complete_step(stop_reason, Vec::new()).await;
            return step(&mut self.state, Event::Succeeded);
        }
        if keeps && may_correct {
            return self.complete_and_correct(stop_reason, oddity).await;
        }
        self.answer.is_under_way = true;
        self.odd.what = Some(oddity);
        let failure = self.is_odd(oddity);
        self.fail(failure).await
    }

    fn may_correct(&self) -> bool {
        self.odd.in_a_row < self.turn.corrections && self.rules.retries != Some(0)
    }

    fn oddity(&self, stop_reason: StopReason) -> Option<InvalidCompletion> {
        if self.turn.corrections == 0 {
            return None;
        }
        let parts = &self.answer.parts;
        let calls = parts.iter().filter_map(|part| match part {
            Part::ToolCall(call) => Some(call),
            _ => None,
        });
        let calls: Vec<&ToolCall> = calls.collect();
        let proven =
            |part: &Part| matches!(part, Part::Reasoning(reasoning) if reasoning.proof.is_some());
        let reasoned = match (parts.iter().any(proven), self.answer.was_reasoned) {
            (true, _) => ReasoningKind::Proven,
            (false, true) => ReasoningKind::Unproven,
            (false, false) => ReasoningKind::None,
        };
        let cut_calls: Vec<&str> = self.answer.cut_calls.iter().map(String::as_str).collect();
        judge(&FinishedCompletion {
            stop_reason,
            text: &self.answer.text(),
            calls: &calls,
            reasoned,
            cut_calls: &cut_calls,
            usage: self.answer.usage,
            tools: !self.turn.request.tools.is_empty(),
            window: self.turn.traits.window,
        })
    }

    /// Converts an invalid completion to a failure, which is final when no correction is left.
    pub(super) fn is_odd(&self, oddity: InvalidCompletion) -> Failure {
        let now = self.turn.clock.now();
        let mut message = oddity.problem().to_owned();
        let said = self.answer.text();
        if oddity == InvalidCompletion::Refused && !said.trim().is_empty() {
            message = format!("{message}: {}", said.trim());
        }
        let failure = Failure::thrown(self.turn.provider.name(), &message, now)
            .with_verdict(Verdict::of(oddity.cause(), Scope::Request));
        match self.may_correct() || oddity.notice().is_none() {
            true => failure,
            false => failure.with_retryable(false),
        }
    }

    /// Offers the remedy of telling the model about the problem.
    pub(super) fn consider_correction(
        &mut self,
        judged: &ClassifiedFailure,
        remedies: &mut Remedies,
    ) {
        self.odd.correction = None;
        let cause = judged.verdict.cause;
        let is_odd = self.odd.what.is_some() || cause == Cause::MalformedOutput;
        if !is_odd || !self.may_correct() || !self.answer.is_under_way {
            return;
        }
        let problem = judged.failure.message.clone();
        let notice = match self.odd.what {
            Some(oddity) => oddity.notice().map(str::to_owned),
            None => Some(format!("{UNUSABLE_NOTICE} ({problem}). Answer again.")),
        };
        self.odd.correction = notice.map(|notice| Correction {
            cause,
            notice,
            problem,
        });
        remedies.rework = self.odd.correction.is_some();
    }

    /// Tells the model about the problem of its completion, which was dropped.
    pub(super) async fn correct(&mut self) -> Effects {
        match self.odd.correction.take() {
            Some(correction) => self.notice(correction).await,
            None => self.go_on_otherwise(),
        }
        step(&mut self.state, Event::RemedyDone)
    }

    /// Keeps the completion, tells the model what is missing, and continues with another step. Both are journaled as
    /// one write: a process that resumes the turn after a crash must not run an incomplete call.
    async fn complete_and_correct(
        &mut self,
        stop_reason: StopReason,
        oddity: InvalidCompletion,
    ) -> Effects {
        self.odd.goes_on = true;
        let calls: Vec<ToolCall> = self.answer.message().tool_calls().cloned().collect();
        let cause = oddity.cause();
        let correction = Correction {
            cause,
            notice: oddity.notice().unwrap_or_default().to_owned(),
            problem: oddity.problem().to_owned(),
        };
        if calls.is_empty() {
            let message = Message::user(correction.notice.clone());
            let noticed = Entry::Noticed {
                message: message.clone(),
                cause,
            };
            self.complete_step(stop_reason, vec![noticed]).await;
            self.say_message(message);
        } else {
            let refused = calls.iter().enumerate().map(not_run).collect();
            self.complete_step(stop_reason, refused).await;
            self.say_not_run(&calls);
        }
        self.say_corrected(&correction);
        step(&mut self.state, Event::Succeeded)
    }

    /// Adds an error result for each call that may be incomplete.
    fn say_not_run(&mut self, calls: &[ToolCall]) {
        let mut parts = Vec::with_capacity(calls.len());
        for call in calls {
            let (id, output, is_error) = (call.id.clone(), NOT_RUN.to_owned(), true);
            self.emitter.emit(Body::ToolResult {
                id: id.clone(),
                output: output.clone(),
                is_error,
            });
            parts.push(Part::ToolResult(ToolResult {
                id,
                output,
                is_error,
            }));
        }
        let role = Role::User;
        self.say_message(Message { role, parts });
    }

    async fn notice(&mut self, correction: Correction) {
        let message = Message::user(correction.notice.clone());
        self.scribe.note(Entry::Noticed {
            message: message.clone(),
            cause: correction.cause,
        });
        self.commit().await;
        self.say_message(message);
        self.say_corrected(&correction);
    }

    fn say_corrected(&mut self, correction: &Correction) {
        self.odd.in_a_row += 1;
        self.emitter.emit(Body::Corrected {
            cause: correction.cause,
            message: correction.problem.clone(),
            attempt: self.odd.in_a_row,
            max_attempts: self.turn.corrections,
        });
    }

    /// Tells a model that makes the same calls over and over, and ends the turn when that does not help.
    pub(super) async fn watch_for_repeats(
        &mut self,
        calls: &[(ToolCall, String)],
    ) -> Option<Outcome> {
        if self.turn.corrections == 0 {
            return None;
        }
        let pairs: Vec<(&ToolCall, &str)> = calls
            .iter()
            .map(|(call, output)| (call, output.as_str()))
            .collect();
        let times = self.odd.repeats.after(&pairs);
        let problem = format!(
            "the model made the same tool calls with the same results {times} times in a row"
        );
        if times >= MAX_REPEATS {
            let now = self.turn.clock.now();
            let failure = Failure::thrown(self.turn.provider.name(), &problem, now)
                .with_verdict(Verdict::of(Cause::MalformedOutput, Scope::Request));
            self.report(ClassifiedFailure::new(failure), GiveUp::NotRetryable);
            return Some(Outcome::Failed(GiveUp::NotRetryable));
        }
        if times > 0 && times.is_multiple_of(REPEAT_NOTICE_INTERVAL) {
            self.odd.in_a_row = times / REPEAT_NOTICE_INTERVAL - 1;
            let correction = Correction {
                cause: Cause::MalformedOutput,
                notice: REPEAT_NOTICE.to_owned(),
                problem,
            };
            self.notice(correction).await;
            // If another invalid completion follows right after this, it is the second in a row.
            self.odd.in_a_row = 1;
        }
        None
    }
}

/// Returns whether the text is a notice from the turn to the model, not a user's message.
pub fn is_notice(text: &str) -> bool {
    text == REPEAT_NOTICE || text.starts_with(UNUSABLE_NOTICE) || completion::is_notice(text)
}

fn not_run((index, call): (usize, &ToolCall)) -> Entry {
    Entry::ToolFinished {
        index,
        id: call.id.clone(),
        output: NOT_RUN.to_owned(),
        is_error: true,
    }
}
