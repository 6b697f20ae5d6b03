//! One turn: steps of a model call, with its retries, and the tools that it wants, until the model stops.
//!
//! The kernel's reducer decides; the attempt driver carries its effects out.
//! Invariants: every turn is sealed exactly once; each retry is journaled and announced before its wait begins; an abort
//! ends every wait, every stream between two deltas, and every tool; a step is emitted once it is journaled.

mod attempts;
mod call;
mod compaction;
mod continuation;
mod control;
mod fallback;
mod input;
mod invalid_completion;
mod record;
mod tools;

use crate::RetryStrategy;
use crate::attempt::{self, Driver};
use crate::journal::{Entry, TurnError};
use crate::token_estimate::BilledTokens;
use continuation::{Continuation, PartialCompletion, RetryBilling};
use fallback::ModelSelection;
use invalid_completion::InvalidCompletionState;
use outlast_dialect::{Message, Role, StreamCursor};
use outlast_kernel::Timestamp;
use outlast_kernel::attempt::{Effects, Event, Outcome, State, Wait, step};
use outlast_kernel::budget::{Cost, Prompt};
use outlast_kernel::decision::{GiveUp, Remedy, RetryRules, Target};
use outlast_kernel::event::{Body, CompactionReason, StopReason, TurnStatus, Usage};
use outlast_kernel::failure::ClassifiedFailure;
use record::{Emitter, JournalWriter};
use std::sync::Arc;

pub use control::{Control, Handle};
pub use fallback::Models;
pub use input::{CompletionPrefix, ResumeState, Turn};
pub use invalid_completion::is_correction_notice;
pub use record::{Ids, Sink};
pub use tools::{CallProgress, OutstandingCall};

/// The outcome of a turn.
#[derive(Clone, Debug)]
pub struct TurnOutcome {
    /// The final status.
    pub seal: TurnStatus,
    /// The last completion, or the part of it that was emitted, from which a later turn can continue.
    pub message: Message,
    /// The messages that its steps add to the conversation: completions, and the results of tools.
    pub messages: Vec<Message>,
    /// The reason for which the model stopped, if it did.
    pub stop_reason: Option<StopReason>,
    /// The usage of all attempts together.
    pub usage: Usage,
    /// The error that ended it, and the reason for which nothing more was tried.
    pub error: Option<(Arc<ClassifiedFailure>, GiveUp)>,
    /// The rest of the budget.
    pub budget: Prompt,
    /// Whether all of it is journaled; `true` without a journal.
    pub is_recorded: bool,
    /// The additional usage of interrupted completions; an estimate where the provider did not report it.
    pub extra_retry_usage: Usage,
}

/// Runs one turn to its end. `sink` receives every event before the next step.
pub async fn run_turn(mut turn: Turn<'_>, sink: Sink<'_>) -> TurnOutcome {
    let rules = turn.retry.map_or(RetryRules::NONE, RetryStrategy::rules);
    let resume_state = std::mem::take(&mut turn.resume_state);
    let state = State::new(rules, turn.budget.clone()).with_chain(resume_state.chain);
    let mut emitter = Emitter::new(turn.ids.clone(), turn.clock, sink);
    emitter.attempt = resume_state.attempts;
    let journal_writer =
        JournalWriter::new(turn.journal, std::mem::take(&mut turn.initial_entries));
    turn.request.resumable = turn.is_resumable();
    let model_selection = ModelSelection::new(turn.models.as_ref(), &resume_state);
    let kept = resume_state.continuation;
    let by = turn.traits.continues_by;
    let mut runner = Runner {
        messages: Vec::new(),
        journal_writer,
        model_selection,
        continuation: kept.map(|beginning| Continuation::from_prefix(beginning, by)),
        resume_token: None,
        inputs: resume_state.inputs,
        billed_tokens: None,
        cost_baseline: (turn.budget.cost(), resume_state.priced_usage),
        retry_billing: RetryBilling::default(),
        compacted_sizes: None,
        compaction_reason: None,
        invalid_completion: InvalidCompletionState::default(),
        last_failure: None,
        failure_note: None,
        driver: Driver::new(state, turn.shared_state.cloned())
            .resumed(None, resume_state.abandoned_accounts),
        turn,
        unanswered_since: None,
        emitter,
        completion: PartialCompletion::with_earlier_usage(resume_state.usage),
        error: None,
    };
    // A retry that was under way is scheduled and announced again.
    let again = resume_state
        .failure
        .filter(|_| resume_state.chain.is_open());
    let now = runner.turn.clock.now();
    let again = again.map(|failure| Wait {
        since: now,
        until: now,
        failure,
    });
    // The future of a turn is large; boxed, it takes no room on the stack of its caller.
    runner.update_earlier_cost(resume_state.model.as_deref());
    Box::pin(runner.run(resume_state.wait.or(again), resume_state.outstanding_calls)).await
}

struct Runner<'a> {
    turn: Turn<'a>,
    /// The messages that the steps have added to the conversation.
    messages: Vec<Message>,
    journal_writer: JournalWriter<'a>,
    /// The model in use.
    model_selection: ModelSelection,
    /// The beginning of a completion that the next call continues.
    continuation: Option<Continuation>,
    /// The cursor of the rest of the completion, if the provider stores completions.
    resume_token: Option<StreamCursor>,
    inputs: Vec<String>,
    /// The size of the conversation, as the provider last billed it.
    billed_tokens: Option<BilledTokens>,
    /// The cost up to the last change of prices, and its usage.
    cost_baseline: (Cost, Usage),
    retry_billing: RetryBilling,
    /// The tokens before and after a compaction that followed a failure, since the last call that succeeded; and the reason
    /// for the next one.
    compacted_sizes: Option<(u64, u64)>,
    compaction_reason: Option<CompactionReason>,
    invalid_completion: InvalidCompletionState,
    /// The last failure, and a remark on it.
    last_failure: Option<Arc<ClassifiedFailure>>,
    failure_note: Option<String>,
    /// The retries, the account and the gate of the current call.
    driver: Driver,
    /// The time at which the running call began, until the provider has begun to answer it.
    unanswered_since: Option<Timestamp>,
    emitter: Emitter<'a>,
    completion: PartialCompletion,
    error: Option<(Arc<ClassifiedFailure>, GiveUp)>,
}

impl Runner<'_> {
    async fn run(&mut self, wait: Option<Wait>, calls: Vec<OutstandingCall>) -> TurnOutcome {
        let (provider, model) = (self.turn.provider.name(), &self.turn.request.model);
        self.emitter.emit(Body::Start {
            provider: provider.to_owned(),
            model: model.clone(),
        });
        self.commit().await;
        self.emit_input();
        self.emit_continuation_text();
        if !calls.is_empty() {
            self.emit_outstanding_calls(&calls);
            if let Some(outcome) = self.run_calls(calls).await {
                return self.seal(outcome).await;
            }
        }
        let mut effects = match wait {
            Some(wait) => {
                self.choose_model().await;
                let now = self.turn.clock.now();
                self.driver.resume_wait(wait, now)
            }
            None => step(self.driver.state_mut(), Event::Started),
        };
        loop {
            let outcome = attempt::run(self, effects)
                .await
                .unwrap_or(Outcome::Aborted);
            let goes_on = std::mem::take(&mut self.invalid_completion.needs_another_step);
            let calls = self.calls_to_run();
            let ended = match calls.filter(|_| outcome == Outcome::Completed) {
                Some(calls) => self.run_calls(calls).await,
                None if goes_on && outcome == Outcome::Completed => None,
                None => Some(outcome),
            };
            if let Some(outcome) = ended {
                return self.seal(outcome).await;
            }
            effects = step(self.driver.state_mut(), Event::Started);
        }
    }

    /// Emits the input, once it is journaled.
    fn emit_input(&mut self) {
        if !self.inputs.is_empty() {
            for text in std::mem::take(&mut self.inputs) {
                self.emitter.emit(Body::Input { text });
            }
            return;
        }
        let messages = self.turn.request.messages.iter().rev();
        let inputs = messages.filter(|message| message.role == Role::User);
        let text = inputs.map(Message::text).find(|text| !text.is_empty());
        let text = text.unwrap_or_default();
        self.emitter.emit(Body::Input { text });
    }

    async fn apply_remedy(&mut self, remedy: Remedy) -> Effects {
        match (remedy, self.last_failure.take()) {
            (Remedy::Switch(Target::Model | Target::Provider), Some(failed)) => {
                self.abandon_model(&failed).await;
                step(self.driver.state_mut(), Event::RemedyDone)
            }
            (Remedy::Compact, failed) => self.compact_after_failure(failed).await,
            (Remedy::Rework, _) => self.apply_correction().await,
            (Remedy::Switch(_), _) => step(self.driver.state_mut(), Event::RemedyFailed),
        }
    }

    /// Emits the error that ends the turn.
    fn report_failure(&mut self, judged: Arc<ClassifiedFailure>, why: GiveUp) {
        let reason = self.failure_reason(why);
        self.emitter.emit(Body::error(&judged, reason));
        self.error = Some((judged, why));
    }

    /// Returns the reason for which nothing more is tried, with the remark on the failure.
    fn failure_reason(&self, why: GiveUp) -> String {
        match &self.failure_note {
            Some(remark) => format!("{why}; {remark}"),
            None => why.to_string(),
        }
    }

    fn abort(&mut self) -> Effects {
        let now = self.turn.clock.now();
        step(self.driver.state_mut(), Event::Aborted { now })
    }

    /// Adds a message to the conversation.
    fn push_message(&mut self, message: Message) {
        self.turn.request.messages.push(message.clone());
        self.messages.push(message);
    }

    /// Returns whether the deadline of the prompt has passed.
    fn is_deadline_passed(&self) -> bool {
        let deadline = self.driver.state().prompt().deadline();
        deadline.is_some_and(|deadline| self.turn.clock.now() >= deadline)
    }

    async fn seal(&mut self, outcome: Outcome) -> TurnOutcome {
        let seal = match outcome {
            Outcome::Completed => TurnStatus::Completed,
            Outcome::Failed(_) => TurnStatus::Error,
            Outcome::Aborted => TurnStatus::Aborted,
        };
        // A last completion is settled together with its message.
        if seal != TurnStatus::Completed {
            self.record_settlement(seal);
            self.commit().await;
        }
        if let (TurnStatus::Completed, Some(stop_reason)) = (seal, self.completion.stop_reason) {
            self.emitter.emit(Body::Done { stop_reason });
        }
        self.emit_retry_billing();
        self.emitter.emit(Body::Sealed { status: seal });
        let is_recorded = !self.journal_writer.has_unwritten();
        let answer = std::mem::take(&mut self.completion);
        TurnOutcome {
            seal,
            usage: answer.total_usage(),
            stop_reason: answer.stop_reason,
            message: answer.into_message(),
            messages: std::mem::take(&mut self.messages),
            error: self.error.take(),
            budget: self.driver.state().prompt().clone(),
            is_recorded,
            extra_retry_usage: self.retry_billing.usage,
        }
    }

    fn record_settlement(&mut self, seal: TurnStatus) {
        let error = self.error.as_ref().map(|(judged, why)| TurnError {
            cause: judged.verdict.cause,
            message: judged.failure.message.clone(),
            reason: self.failure_reason(*why),
        });
        let usage = self.completion.total_usage();
        self.journal_writer
            .record(Entry::Settled { seal, usage, error });
    }
}
