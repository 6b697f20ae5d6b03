//! One call of a turn: its stream, followed to the end, and what is made of a failure.

use super::Runner;
use super::continuation::Continuation;
use crate::attempt::{deadline_passed, maybe};
use crate::journal::Entry;
use crate::token_estimate::BilledTokens;
use crate::{Clock, RetryStrategy};
use futures_util::StreamExt;
use outlast_dialect::{Delta, Part};
use outlast_kernel::Timestamp;
use outlast_kernel::attempt::{Effects, Event, step};
use outlast_kernel::budget::{Cost, Price};
use outlast_kernel::completion::InvalidCompletion;
use outlast_kernel::decision::{Remedies, RetryRules};
use outlast_kernel::event::{Body, Reasoning, StopReason, TurnStatus};
use outlast_kernel::failure::{ClassifiedFailure, Failure, IoKind, Phase};
use outlast_kernel::loops::LoopDetector;
use std::sync::Arc;

impl Runner<'_> {
    /// Prepares a call: delivers queued messages, and makes the conversation fit. Returns the effects if no call may be made.
    pub(super) async fn prepare_call(&mut self) -> Option<Effects> {
        if self.turn.control.is_aborted() {
            return Some(self.abort());
        }
        if let Some(failure) = self.call_blocker() {
            return Some(self.handle_failure(failure).await);
        }
        if self.deliver_inbox().await
            && let Some(failure) = self.call_blocker()
        {
            return Some(self.handle_failure(failure).await);
        }
        self.choose_model().await;
        if let Err(effects) = self.compact_if_due().await {
            return Some(effects);
        }
        // A summary takes time and money, too.
        let spent = self.budget_failure()?;
        Some(self.handle_failure(spent).await)
    }

    /// Why there may not be another call, if the turn is somebody else's or has nothing more to spend.
    fn call_blocker(&self) -> Option<Failure> {
        let lost = self
            .journal_writer
            .ownership_lost_reason()
            .map(|why| self.ownership_lost(why));
        lost.or_else(|| self.budget_failure())
    }

    /// Why there may not be another call, if the prompt's time or money is spent.
    fn budget_failure(&self) -> Option<Failure> {
        if self.is_deadline_passed() {
            return Some(self.deadline_passed());
        }
        let cost_is_spent = self.driver.state().prompt().cost_limit_reached();
        cost_is_spent.then(|| self.cost_limit_reached())
    }

    /// Follows the stream of one call to its end.
    pub(super) async fn run_stream(&mut self) -> Effects {
        let attempt = self.emitter.attempt + 1;
        self.journal_writer
            .record(Entry::AttemptStarted { attempt });
        self.commit().await;
        if let Some(why) = self.journal_writer.ownership_lost_reason() {
            let failure = self.ownership_lost(why);
            return self.handle_failure(failure).await;
        }
        self.reset_for_attempt();
        let deadline = self.driver.state().prompt().deadline();
        let account = self.driver.account().cloned();
        let credential = account.as_ref().map(|account| &account.credential);
        self.resume_token = None;
        let rest = self
            .continuation
            .as_ref()
            .and_then(Continuation::resume_token);
        let rest = rest.and_then(|place| self.turn.provider.resume(place, credential));
        let mut stream =
            rest.unwrap_or_else(|| self.turn.provider.stream(&self.next_request(), credential));
        loop {
            let item = tokio::select! {
                biased;
                () = self.turn.control.aborted() => return self.cancel_attempt(),
                item = stream.next() => item,
                () = sleep_until(self.turn.clock, deadline) => return self.handle_failure(self.deadline_passed()).await,
            };
            let delta = match item {
                Some(Ok(delta)) => delta,
                Some(Err(failure)) => return self.handle_failure(*failure).await,
                None => return self.handle_failure(self.truncated_stream()).await,
            };
            if delta.is_output() {
                self.record_acceptance().await;
            }
            // What the provider keeps is not asked for anew, even if none of it has come yet.
            if matches!(delta, Delta::Cursor(_)) {
                step(self.driver.state_mut(), Event::ContentSent);
            }
            if delta.is_content() {
                self.emit_seam();
                self.completion.has_emitted_content = true;
                step(self.driver.state_mut(), Event::ContentSent);
            }
            if let Some(stop_reason) = self.handle_delta(delta) {
                return self.finish_completion(stop_reason).await;
            }
            if self.invalid_completion.current.is_some() {
                let failure = self.invalid_completion_failure(InvalidCompletion::RepeatedReasoning);
                return self.handle_failure(failure).await;
            }
        }
    }

    /// Announces the attempt, and forgets what the one before it left.
    fn reset_for_attempt(&mut self) {
        self.emitter.start_attempt();
        self.model_selection.mark_attempted();
        self.commit_retry_billing();
        self.unanswered_since = Some(self.turn.clock.now());
        let kept = self.continuation.as_ref().map(|kept| kept.parts().to_vec());
        self.completion.begin_attempt(kept.unwrap_or_default());
        self.invalid_completion.current = None;
        self.invalid_completion.reasoning_guard = LoopDetector::default();
    }

    /// Hands a delta on and returns the stop reason, if it was the last one.
    fn handle_delta(&mut self, delta: Delta) -> Option<StopReason> {
        self.resume_token = None;
        let body = match delta {
            Delta::Text(text) => {
                let text = match &mut self.continuation {
                    Some(kept) => kept.strip_trimmed_suffix(text),
                    None => text,
                };
                self.completion.push_text(&text);
                Body::TextDelta { text }
            }
            Delta::Reasoning(text) => {
                self.completion.push_reasoning(&text);
                if self.turn.corrections > 0
                    && self
                        .invalid_completion
                        .reasoning_guard
                        .push(&text)
                        .is_some()
                {
                    self.invalid_completion.current = Some(InvalidCompletion::RepeatedReasoning);
                }
                Body::ReasoningDelta { text }
            }
            Delta::ReasoningDone(reasoning) => {
                let model = Some(self.turn.request.model.clone());
                let reasoning = Reasoning { model, ..reasoning };
                self.completion.finish_reasoning(reasoning.clone());
                Body::ReasoningDone(reasoning)
            }
            Delta::ToolCall(call) => {
                self.completion.parts.push(Part::ToolCall(call.clone()));
                Body::ToolCall(call)
            }
            Delta::IncompleteToolCall { name } => {
                self.completion.truncated_calls.push(name);
                return None;
            }
            Delta::Usage(usage) => {
                self.completion.usage = usage;
                Body::Usage(usage)
            }
            Delta::Stopped(stop_reason) => {
                self.completion.stop_reason = Some(stop_reason);
                self.completion.is_in_progress = false;
                return Some(stop_reason);
            }
            Delta::Cursor(place) => {
                self.resume_token = Some(place);
                return None;
            }
            _ => return None,
        };
        self.emitter.emit(body);
        None
    }

    /// Writes a whole answer down, with what belongs to it and with the settlement when it is the last one, then says it.
    pub(super) async fn complete_step(&mut self, stop_reason: StopReason, with: Vec<Entry>) {
        self.update_cost();
        self.compacted_sizes = None;
        self.continuation = None;
        self.model_selection.end_chain();
        let message = self.completion.message();
        self.journal_writer.record(Entry::Message {
            message: message.clone(),
            stop_reason,
            usage: self.completion.usage,
            model: self.turn.request.model.clone(),
        });
        with.into_iter()
            .for_each(|entry| self.journal_writer.record(entry));
        if self.calls_to_run().is_none() && !self.invalid_completion.needs_another_step {
            self.record_settlement(TurnStatus::Completed);
        }
        self.commit().await;
        // What says nothing is no part of a conversation, and would be refused in one.
        if !message.parts.is_empty() {
            self.push_message(message);
        }
        self.record_billed_tokens();
        let model = self.turn.request.model.clone();
        self.emitter.emit(Body::StepComplete { model, stop_reason });
    }

    /// What the provider says it read and wrote is how large the conversation is.
    fn record_billed_tokens(&mut self) {
        let usage = self.completion.usage;
        let tokens = usage.total_input().saturating_add(usage.output);
        let messages = self.turn.request.messages.len();
        self.billed_tokens = (tokens > 0).then_some(BilledTokens { tokens, messages });
    }

    /// Retries can be switched off while the turn runs.
    pub(super) fn refresh_rules(&mut self) {
        let rules = self
            .turn
            .retry
            .map_or(RetryRules::NONE, RetryStrategy::rules);
        self.driver.state_mut().set_rules(rules);
    }

    pub(super) async fn handle_failure(&mut self, failure: Failure) -> Effects {
        self.refresh_rules();
        // Classified and decided at one moment, so that a stated wait is announced as it was stated.
        let now = self.turn.clock.now();
        let failure = self.driver.failed(failure, now);
        if let Some(effects) = self.salvage(&failure).await {
            return effects;
        }
        let (seen, remedies) = match self.journal_writer.ownership_lost_reason() {
            None => self.collect_remedies(failure).await,
            // Whatever could be done is somebody else's to do.
            Some(_) => (failure, Remedies::NONE),
        };
        self.update_cost();
        let is_ours = self.journal_writer.ownership_lost_reason().is_none();
        let nothing_else =
            is_ours && !remedies.switch.model && !remedies.switch.account && !remedies.rework;
        let earlier = match nothing_else
            && !self.completion.has_emitted_content
            && self.can_return_to_earlier_model(&seen)
        {
            true => {
                self.record_failure(Some(&seen), self.continuation.is_some());
                self.return_to_earlier_model(&seen).await
            }
            false => None,
        };
        let failure = earlier.unwrap_or_else(|| Arc::clone(&seen));
        self.schedule_recovery(failure, &seen, remedies, now)
    }

    /// Decides about a failure, which stands for the one that was seen.
    pub(super) fn schedule_recovery(
        &mut self,
        failure: Arc<ClassifiedFailure>,
        seen: &ClassifiedFailure,
        remedies: Remedies,
        now: Timestamp,
    ) -> Effects {
        let strategy = self.turn.retry;
        let effects = self
            .driver
            .decide(Arc::clone(&failure), remedies, strategy, now);
        let keeps = self.keeps_partial(&effects);
        self.record_failure(Some(seen), keeps);
        self.last_failure = Some(failure);
        effects
    }

    /// A failure with all that is known in view, and what could be done about it other than wait.
    async fn collect_remedies(
        &mut self,
        failure: Arc<ClassifiedFailure>,
    ) -> (Arc<ClassifiedFailure>, Remedies) {
        self.failure_note = None;
        let (failure, mut remedies) = self.consider_accounts(failure).await;
        let failure = self.final_if_compacted(failure);
        remedies.after_content = self.after_content_policy(&failure);
        self.consider_models(&failure, &mut remedies);
        self.consider_compaction(&failure, &mut remedies);
        self.consider_correction(&failure, &mut remedies);
        if self.can_continue_by_prompt(&failure) {
            // It is not the model that is wrong, but how it was asked.
            (remedies.rework, remedies.model_first) = (true, false);
        }
        (failure, remedies)
    }

    fn cancel_attempt(&mut self) -> Effects {
        self.update_cost();
        self.record_failure(None, false);
        self.abort()
    }

    /// What came of an attempt that failed is kept; it is not part of the conversation, unless it is gone on with.
    fn record_failure(&mut self, judged: Option<&ClassifiedFailure>, kept: bool) {
        if !self.completion.is_in_progress {
            return;
        }
        self.completion.is_in_progress = false;
        self.journal_writer.record(Entry::AttemptFailed {
            attempt: self.emitter.attempt,
            judged: judged.cloned(),
            // Half a thought cannot be gone on with.
            message: match kept {
                true => self.completion.message(),
                false => self.completion.message_with_partial_reasoning(),
            },
            usage: self.completion.usage,
            kept,
            place: self.continuation_resume_token().filter(|_| kept),
        });
    }

    /// A provider that ends its stream without a stop reason has not finished.
    fn truncated_stream(&self) -> Failure {
        let message = "the stream ended without a stop reason";
        let failure = Failure::thrown(self.turn.provider.name(), message, self.turn.clock.now());
        Failure {
            phase: Phase::BeforeContent,
            ..failure.with_io(IoKind::Truncated)
        }
    }

    /// Brings what the prompt has cost up to date.
    pub(super) fn update_cost(&mut self) {
        if let Some(price) = self.turn.price {
            self.update_cost_at(price);
        }
    }

    /// Counts what an earlier process used after it last wrote down what was paid, at the price of who was asked then.
    pub(super) fn update_earlier_cost(&mut self, model: Option<&str>) {
        let known = model.and_then(|key| self.price_of(key));
        // Of one that is not in the list any more, nobody knows it.
        if let Some(price) = known.unwrap_or(self.turn.price) {
            self.update_cost_at(price);
        }
        self.reset_cost_baseline();
    }

    /// What is used from here on has another price than what was used before.
    pub(super) fn reset_cost_baseline(&mut self) {
        self.cost_baseline = (
            self.driver.state().prompt().cost(),
            self.completion.total_usage(),
        );
    }

    fn update_cost_at(&mut self, price: Price) {
        let (before, counted) = self.cost_baseline;
        let cost = price.cost(self.completion.total_usage().minus(counted));
        let cost = before.0.saturating_add(cost.0);
        let rest = Cost(cost.saturating_sub(self.driver.state().prompt().cost().0));
        step(self.driver.state_mut(), Event::CostIncurred(rest));
    }

    /// The deadline of the prompt has passed, which is no fault of the provider.
    fn deadline_passed(&self) -> Failure {
        deadline_passed(self.turn.provider.name(), self.turn.clock.now())
    }

    fn cost_limit_reached(&self) -> Failure {
        let message = "this prompt has cost what it may, and the next call would exceed the budget";
        Failure::thrown(self.turn.provider.name(), message, self.turn.clock.now())
    }

    /// Another process has taken the turn over.
    fn ownership_lost(&self, why: &str) -> Failure {
        let failure = Failure::thrown(self.turn.provider.name(), why, self.turn.clock.now());
        failure.with_io(IoKind::Misconfigured)
    }
}

/// Waits until that time, or for ever.
pub(super) fn sleep_until(clock: &dyn Clock, time: Option<Timestamp>) -> impl Future<Output = ()> {
    maybe(time.map(|time| clock.sleep_until(time)))
}
