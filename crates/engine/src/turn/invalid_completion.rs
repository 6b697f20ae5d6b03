//! Handles invalid completions: empty, cut short, refused, announced but not done, repeated over and over.
//!
//! Invariants: an invalid completion is never part of the conversation, also after a restart; the model gets a bounded
//! number of corrections in a row, then the turn ends with an error that says so; a valid completion is never requested
//! again.
//! Not here: the detection (see the kernel's `completion` and `loops`).

use super::Runner;
use super::tools::{finished_entry, result_part};
use crate::journal::Entry;
use crate::tools::Output;
use outlast_dialect::{Message, Part, Role};
use outlast_kernel::attempt::{Effects, Event, Outcome, step};
use outlast_kernel::completion::{
    self, FinishedCompletion, InvalidCompletion, ReasoningKind, check_completion,
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
    pub(super) current: Option<InvalidCompletion>,
    /// The number of invalid completions in a row.
    consecutive: u32,
    /// The correction for the next call.
    correction: Option<Correction>,
    /// Whether another step follows although no tool was called.
    pub(super) needs_another_step: bool,
    pub(super) reasoning_guard: LoopDetector,
    repeated_calls: RepeatedCallCounter,
}

/// A message to the model before the next call.
struct Correction {
    cause: Cause,
    notice: String,
    problem: String,
}

impl Runner<'_> {
    /// Handles a completion that ended by itself.
    pub(super) async fn finish_completion(&mut self, stop_reason: StopReason) -> Effects {
        let Some(invalid) = self.completion_problem(stop_reason) else {
            if self.completion.has_calls() {
                self.invalid_completion.consecutive = 0;
            }
            self.complete_step(stop_reason, Vec::new()).await;
            if stop_reason == StopReason::Length {
                let message = CUT_SHORT.to_owned();
                self.emitter.emit(Body::Warning { message });
            }
            return step(self.driver.state_mut(), Event::Succeeded);
        };
        self.refresh_rules();
        let may_correct = self.can_correct();
        let keeps = invalid.keeps_completion() && !self.completion.parts.is_empty();
        // The announcement may be the complete message.
        if invalid == InvalidCompletion::Announced && !may_correct {
            self.complete_step(stop_reason, Vec::new()).await;
            return step(self.driver.state_mut(), Event::Succeeded);
        }
        if keeps && may_correct {
            return self.complete_and_correct(stop_reason, invalid).await;
        }
        self.completion.is_in_progress = true;
        self.invalid_completion.current = Some(invalid);
        let failure = self.invalid_completion_failure(invalid);
        self.handle_failure(failure).await
    }

    fn can_correct(&self) -> bool {
        self.invalid_completion.consecutive < self.turn.corrections
            && self.driver.state().rules().retries != Some(0)
    }

    fn completion_problem(&self, stop_reason: StopReason) -> Option<InvalidCompletion> {
        if self.turn.corrections == 0 {
            return None;
        }
        let parts = &self.completion.parts;
        let message = self.completion.message();
        let calls: Vec<&ToolCall> = message.tool_calls().collect();
        let proven =
            |part: &Part| matches!(part, Part::Reasoning(reasoning) if reasoning.proof.is_some());
        let reasoned = match (parts.iter().any(proven), self.completion.has_reasoning) {
            (true, _) => ReasoningKind::Replayable,
            (false, true) => ReasoningKind::NotReplayable,
            (false, false) => ReasoningKind::None,
        };
        let incomplete_calls = self.completion.truncated_calls.iter();
        let incomplete_calls: Vec<&str> = incomplete_calls.map(String::as_str).collect();
        check_completion(&FinishedCompletion {
            stop_reason,
            text: &message.text(),
            calls: &calls,
            reasoning: reasoned,
            incomplete_calls: &incomplete_calls,
            usage: self.completion.usage,
            has_tools: !self.turn.request.tools.is_empty(),
            window: self.turn.traits.window,
        })
    }

    /// Converts an invalid completion to a failure, which is final when no correction is left.
    pub(super) fn invalid_completion_failure(&self, invalid: InvalidCompletion) -> Failure {
        let mut message = invalid.user_message().to_owned();
        let said = self.completion.text();
        if invalid == InvalidCompletion::Refused && !said.trim().is_empty() {
            message = format!("{message}: {}", said.trim());
        }
        let verdict = Verdict::new(invalid.cause(), Scope::Request);
        let failure = self.thrown(&message).with_verdict(verdict);
        match self.can_correct() || invalid.correction().is_none() {
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
        self.invalid_completion.correction = None;
        let cause = judged.verdict.cause;
        let is_invalid =
            self.invalid_completion.current.is_some() || cause == Cause::MalformedOutput;
        if !is_invalid || !self.can_correct() || !self.completion.is_in_progress {
            return;
        }
        let problem = judged.failure.message.clone();
        let notice = match self.invalid_completion.current {
            Some(invalid) => invalid.correction().map(str::to_owned),
            None => Some(format!("{UNUSABLE_NOTICE} ({problem}). Answer again.")),
        };
        self.invalid_completion.correction = notice.map(|notice| Correction {
            cause,
            notice,
            problem,
        });
        remedies.rework = self.invalid_completion.correction.is_some();
    }

    /// Tells the model about the problem of its completion, which was dropped.
    pub(super) async fn apply_correction(&mut self) -> Effects {
        match self.invalid_completion.correction.take() {
            Some(correction) => self.send_correction(correction).await,
            None => self.continue_by_prompt(),
        }
        step(self.driver.state_mut(), Event::RemedyDone)
    }

    /// Keeps the completion, tells the model what is missing, and continues with another step. Both are journaled as
    /// one write: a process that resumes the turn after a crash must not run an incomplete call.
    async fn complete_and_correct(
        &mut self,
        stop_reason: StopReason,
        invalid: InvalidCompletion,
    ) -> Effects {
        self.invalid_completion.needs_another_step = true;
        let calls: Vec<ToolCall> = self.completion.message().tool_calls().cloned().collect();
        let cause = invalid.cause();
        let correction = Correction {
            cause,
            notice: invalid.correction().unwrap_or_default().to_owned(),
            problem: invalid.user_message().to_owned(),
        };
        if calls.is_empty() {
            let message = Message::user(correction.notice.clone());
            let noticed = Entry::Noticed {
                message: message.clone(),
                cause,
            };
            self.complete_step(stop_reason, vec![noticed]).await;
            self.push_message(message);
        } else {
            let not_run = Output::error(NOT_RUN);
            let entry = |(index, call)| finished_entry(index, call, &not_run);
            let refused = calls.iter().enumerate().map(entry).collect();
            self.complete_step(stop_reason, refused).await;
            calls
                .iter()
                .for_each(|call| self.emit_result(call, &not_run));
            let parts = calls.iter().map(|call| result_part(call, &not_run));
            self.push_message(Message {
                role: Role::User,
                parts: parts.collect(),
            });
        }
        self.emit_correction(&correction);
        step(self.driver.state_mut(), Event::Succeeded)
    }

    async fn send_correction(&mut self, correction: Correction) {
        let message = Message::user(correction.notice.clone());
        self.journal_writer.record(Entry::Noticed {
            message: message.clone(),
            cause: correction.cause,
        });
        self.commit().await;
        self.push_message(message);
        self.emit_correction(&correction);
    }

    fn emit_correction(&mut self, correction: &Correction) {
        self.invalid_completion.consecutive += 1;
        self.emitter.emit(Body::Corrected {
            cause: correction.cause,
            message: correction.problem.clone(),
            attempt: self.invalid_completion.consecutive,
            max_attempts: self.turn.corrections,
        });
    }

    /// Tells a model that makes the same calls over and over, and ends the turn when that does not help.
    pub(super) async fn check_repeated_calls(
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
        let times = self.invalid_completion.repeated_calls.record(&pairs);
        let problem = format!(
            "the model made the same tool calls with the same results {times} times in a row"
        );
        if times >= MAX_REPEATS {
            let verdict = Verdict::new(Cause::MalformedOutput, Scope::Request);
            let failure = self.thrown(&problem).with_verdict(verdict);
            self.report_failure(ClassifiedFailure::new(failure), GiveUp::NotRetryable);
            return Some(Outcome::Failed(GiveUp::NotRetryable));
        }
        if times > 0 && times.is_multiple_of(REPEAT_NOTICE_INTERVAL) {
            self.invalid_completion.consecutive = times / REPEAT_NOTICE_INTERVAL - 1;
            let correction = Correction {
                cause: Cause::MalformedOutput,
                notice: REPEAT_NOTICE.to_owned(),
                problem,
            };
            self.send_correction(correction).await;
            // If another invalid completion follows right after this, it is the second in a row.
            self.invalid_completion.consecutive = 1;
        }
        None
    }
}

/// Returns whether the text is a notice from the turn to the model, not a user's message.
pub fn is_correction_notice(text: &str) -> bool {
    text == REPEAT_NOTICE || text.starts_with(UNUSABLE_NOTICE) || completion::is_correction(text)
}
