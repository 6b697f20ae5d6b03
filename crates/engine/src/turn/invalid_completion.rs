//! Answers that ended and are none: empty, cut short, refused, announced and not done, said over and over.
//!
//! Invariants: what is no answer is no part of the conversation, also after a restart; the model is told what was wrong
//! and asked again so many times in a row, then the turn ends with an error that says so; nothing that was answered
//! well is asked again. Not here: what is odd (see the kernel's `stop` and `repetition`).

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

/// After so many identical calls with identical results the model is told, and again after as many.
const REPEAT_NOTICE_INTERVAL: u32 = 5;
/// After so many the turn ends.
const MAX_REPEATS: u32 = 20;

const NOT_RUN: &str = "it was not run: the answer reached its output limit before it was complete; split the work into \
                       smaller calls";
const REPEAT_NOTICE: &str = "You have made the same tool calls with the same results several times in a row. They will not \
                       change. Do something else, or say what keeps you from going on.";
const UNUSABLE_NOTICE: &str = "Your last answer could not be used";
const CUT_SHORT: &str = "the answer reached the output limit and is incomplete";

/// What is odd about the answers of a turn.
#[derive(Default)]
pub(super) struct InvalidCompletionState {
    /// About the one under way.
    pub(super) what: Option<InvalidCompletion>,
    /// How many in a row were.
    in_a_row: u32,
    /// What the model is told next.
    correction: Option<Correction>,
    /// Whether another step follows although no tool was called.
    pub(super) goes_on: bool,
    pub(super) reasoning: LoopDetector,
    repeats: RepeatedCallCounter,
}

/// What a model is told before it is asked again.
struct Correction {
    cause: Cause,
    notice: String,
    problem: String,
}

impl Runner<'_> {
    /// What becomes of an answer that ended by itself.
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
        // What was announced may have been all there was to say.
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

    /// An answer that is none, as a failure. When the model was told often enough, it is final.
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

    /// Offers to tell the model what was wrong with its answer.
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

    /// Tells the model what was wrong with its answer, which was dropped.
    pub(super) async fn correct(&mut self) -> Effects {
        match self.odd.correction.take() {
            Some(correction) => self.notice(correction).await,
            None => self.go_on_otherwise(),
        }
        step(&mut self.state, Event::RemedyDone)
    }

    /// Keeps the answer, tells the model what is missing and goes on with another step. The two are written down as one:
    /// whoever carries on after a crash must not run a call that is not complete.
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

    /// Calls that may not be complete have a result that says so.
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
            // An answer that is odd in another way, right after this, is the second in a row.
            self.odd.in_a_row = 1;
        }
        None
    }
}

/// Whether that is something that the turn has told the model, and nobody has said.
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
