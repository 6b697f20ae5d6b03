//! One call of a turn: delivers queued messages, reads its stream to the end, and decides about its failure.
//!
//! Invariants: messages are sent at the start of a call, never in the middle of a completion that is being continued;
//! they are journaled before any listener receives them; if the journal fails, they are still sent, once.

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

    /// Sends the queued messages; returns `false` when there are none.
    pub(super) async fn deliver_inbox(&mut self) -> bool {
        let inbox = self.turn.inbox.filter(|_| self.continuation.is_none());
        let letters = inbox.map(|inbox| inbox.take()).unwrap_or_default();
        if letters.is_empty() {
            return false;
        }
        let entries = Entry::delivered(letters);
        // There is no await between taking the messages and noting them.
        for entry in &entries {
            self.journal_writer.record(entry.clone());
        }
        self.commit().await;
        for entry in entries {
            let Entry::Delivered { messages, note, .. } = entry else {
                continue;
            };
            for message in messages {
                let text = message.text();
                self.push_message(message);
                if !note {
                    self.emitter.emit(Body::Input { text });
                }
            }
        }
        true
    }

    /// Returns the failure that forbids another call: another process owns the turn, or its budget is spent.
    fn call_blocker(&self) -> Option<Failure> {
        let lost = self
            .journal_writer
            .ownership_lost_reason()
            .map(|why| self.ownership_lost(why));
        lost.or_else(|| self.budget_failure())
    }

    /// Returns the failure that forbids another call because the prompt's time or money is spent.
    fn budget_failure(&self) -> Option<Failure> {
        if self.is_deadline_passed() {
            return Some(self.deadline_passed());
        }
        let message = "this prompt has cost what it may, and the next call would exceed the budget";
        let cost_is_spent = self.driver.state().prompt().cost_limit_reached();
        cost_is_spent.then(|| self.thrown(message))
    }

    /// Makes one call, and reads its stream to the end.
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
            // A completion that the provider stores is resumed, not repeated, even if none of it has arrived.
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

    /// Announces the attempt, and resets the state of the last one.
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

    /// Emits a delta; returns the stop reason, if it was the last one.
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

    /// Journals a complete completion with further entries, and with the settlement if it is the last one, then emits it.
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
        // An empty message is no part of a conversation: providers refuse it.
        if !message.parts.is_empty() {
            self.push_message(message);
        }
        self.record_billed_tokens();
        let model = self.turn.request.model.clone();
        self.emitter.emit(Body::StepComplete { model, stop_reason });
    }

    /// Records the size of the conversation, as the provider billed it.
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
            // The process that owns the turn acts on the failure.
            Some(_) => (failure, Remedies::NONE),
        };
        self.update_cost();
        let returns = self.journal_writer.ownership_lost_reason().is_none()
            && !(remedies.switch.model || remedies.switch.account || remedies.rework)
            && !self.completion.has_emitted_content
            && self.can_return_to_earlier_model(&seen);
        let mut failure = Arc::clone(&seen);
        if returns {
            self.record_failure(Some(&seen), self.continuation.is_some());
            let earlier = self.return_to_earlier_model(&seen).await;
            failure = earlier.unwrap_or(failure);
        }
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
        let own = |index| strategy?.delay_for(index);
        let effects = (self.driver).decide(Arc::clone(&failure), remedies, own, now);
        let keeps = self.keeps_partial(&effects);
        self.record_failure(Some(seen), keeps);
        self.last_failure = Some(failure);
        effects
    }

    /// Returns the failure as all accounts see it, and the remedies besides waiting.
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
            // The request is wrong, not the model.
            (remedies.rework, remedies.model_first) = (true, false);
        }
        (failure, remedies)
    }

    fn cancel_attempt(&mut self) -> Effects {
        self.update_cost();
        self.record_failure(None, false);
        self.abort()
    }

    /// Journals the partial completion of a failed attempt. It is part of the conversation only if it is continued.
    fn record_failure(&mut self, judged: Option<&ClassifiedFailure>, kept: bool) {
        if !self.completion.is_in_progress {
            return;
        }
        self.completion.is_in_progress = false;
        self.journal_writer.record(Entry::AttemptFailed {
            attempt: self.emitter.attempt,
            judged: judged.cloned(),
            // Partial reasoning cannot be continued.
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
        let failure = self.thrown("the stream ended without a stop reason");
        Failure {
            phase: Phase::BeforeContent,
            ..failure.with_io(IoKind::Truncated)
        }
    }

    /// Updates the cost of the prompt.
    pub(super) fn update_cost(&mut self) {
        if let Some(price) = self.turn.price {
            self.update_cost_at(price);
        }
    }

    /// Counts the usage that an earlier process did not journal as paid, at the price of the model that it called.
    pub(super) fn update_earlier_cost(&mut self, model: Option<&str>) {
        let known = model.and_then(|key| self.price_of(key));
        // The price of a model that is not in the list any more is unknown.
        if let Some(price) = known.unwrap_or(self.turn.price) {
            self.update_cost_at(price);
        }
        self.reset_cost_baseline();
    }

    /// Starts to count at another price.
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

    /// Another process has taken the turn over.
    fn ownership_lost(&self, why: &str) -> Failure {
        self.thrown(why).with_io(IoKind::Misconfigured)
    }

    /// Returns a failure with that message, as seen now.
    pub(super) fn thrown(&self, message: &str) -> Failure {
        Failure::thrown(self.turn.provider.name(), message, self.turn.clock.now())
    }
}

/// Waits until that time, or for ever.
pub(super) fn sleep_until(clock: &dyn Clock, time: Option<Timestamp>) -> impl Future<Output = ()> {
    maybe(time.map(|time| clock.sleep_until(time)))
}
