//! One call of a turn: its stream, followed to the end, and what is made of a failure.

use super::Runner;
use super::continuation::Continuation;
use super::wait::until;
use crate::RetryStrategy;
use crate::journal::Entry;
use crate::token_estimate::BilledTokens;
use futures_util::StreamExt;
use outlast_dialect::{Delta, Part};
use outlast_kernel::Timestamp;
use outlast_kernel::attempt::{Effect, Effects, Event, step};
use outlast_kernel::budget::{Cost, Price};
use outlast_kernel::completion::InvalidCompletion;
use outlast_kernel::decision::{Remedies, RetryRules};
use outlast_kernel::event::{Body, Reasoning, StopReason, TurnStatus};
use outlast_kernel::failure::{ClassifiedFailure, Failure, IoKind, Phase};
use outlast_kernel::loops::LoopDetector;
use std::sync::Arc;
use std::time::Duration;

impl Runner<'_> {
    /// Makes one call and follows its stream to the end.
    pub(super) async fn call(&mut self) -> Effects {
        if self.turn.control.is_aborted() {
            return self.abort();
        }
        if let Some(failure) = self.call_blocker() {
            return self.fail(failure).await;
        }
        if self.say_waiting().await
            && let Some(failure) = self.call_blocker()
        {
            return self.fail(failure).await;
        }
        self.choose_model().await;
        if let Err(effects) = self.compact_in_time().await {
            return effects;
        }
        // A summary takes time and money, too.
        if let Some(spent) = self.is_spent() {
            return self.fail(spent).await;
        }
        if let Err(effects) = self.be_admitted().await {
            return effects;
        }
        let effects = self.stream().await;
        self.leave_seat().await;
        effects
    }

    /// Why there may not be another call, if the turn is somebody else's or has nothing more to spend.
    fn call_blocker(&self) -> Option<Failure> {
        let lost = self.scribe.lost().map(|why| self.ownership_lost(why));
        lost.or_else(|| self.is_spent())
    }

    /// Why there may not be another call, if the prompt's time or money is spent.
    fn is_spent(&self) -> Option<Failure> {
        if self.is_deadline_passed() {
            return Some(self.too_late());
        }
        let cost_is_spent = self.state.prompt().cost_is_spent();
        cost_is_spent.then(|| self.cost_limit_reached())
    }

    /// Follows the stream of one call to its end.
    async fn stream(&mut self) -> Effects {
        let attempt = self.emitter.attempt + 1;
        self.scribe.note(Entry::AttemptStarted { attempt });
        self.commit().await;
        if let Some(why) = self.scribe.lost() {
            let failure = self.ownership_lost(why);
            return self.fail(failure).await;
        }
        self.emitter.start_attempt();
        self.in_use.ask();
        self.commit_retry_billing();
        (self.said_held, self.held_since) = (None, None);
        self.unanswered = Some(self.turn.clock.now());
        let kept = self.kept.as_ref().map(|kept| kept.parts().to_vec());
        self.answer.begin_attempt(kept.unwrap_or_default());
        (self.odd.what, self.odd.reasoning) = (None, LoopDetector::default());
        let deadline = self.state.prompt().deadline();
        let credential = self.account.as_ref().map(|account| &account.credential);
        self.place = None;
        let rest = self.kept.as_ref().and_then(Continuation::place);
        let rest = rest.and_then(|place| self.turn.provider.resume(place, credential));
        let mut stream =
            rest.unwrap_or_else(|| self.turn.provider.stream(&self.request(), credential));
        loop {
            let renewal = self.renew_at();
            let item = tokio::select! {
                biased;
                () = self.turn.control.aborted() => return self.cancelled(),
                item = stream.next() => item,
                () = until(self.turn.clock, deadline) => return self.fail(self.too_late()).await,
                () = until(self.turn.clock, renewal) => {
                    self.renew().await;
                    continue;
                }
            };
            let delta = match item {
                Some(Ok(delta)) => delta,
                Some(Err(failure)) => return self.fail(*failure).await,
                None => return self.fail(self.cut_off()).await,
            };
            if delta.is_output() {
                self.accepted().await;
            }
            // What the provider keeps is not asked for anew, even if none of it has come yet.
            if matches!(delta, Delta::Place(_)) {
                step(&mut self.state, Event::ContentSent);
            }
            if delta.is_content() {
                self.emit_seam();
                self.answer.was_heard = true;
                step(&mut self.state, Event::ContentSent);
            }
            if let Some(stop_reason) = self.take_in(delta) {
                return self.answered(stop_reason).await;
            }
            if self.odd.what.is_some() {
                let failure = self.is_odd(InvalidCompletion::RepeatedReasoning);
                return self.fail(failure).await;
            }
        }
    }

    /// Hands a delta on; the answer is the stop reason, if it was the last one.
    fn take_in(&mut self, delta: Delta) -> Option<StopReason> {
        self.place = None;
        let body = match delta {
            Delta::Text(text) => {
                let text = match &mut self.kept {
                    Some(kept) => kept.without_echo(text),
                    None => text,
                };
                self.answer.say(&text);
                Body::TextDelta { text }
            }
            Delta::Reasoning(text) => {
                self.answer.think(&text);
                if self.turn.corrections > 0 && self.odd.reasoning.push(&text).is_some() {
                    self.odd.what = Some(InvalidCompletion::RepeatedReasoning);
                }
                Body::ReasoningDelta { text }
            }
            Delta::ReasoningDone(reasoning) => {
                let model = Some(self.turn.request.model.clone());
                let reasoning = Reasoning { model, ..reasoning };
                self.answer.finish_reasoning(reasoning.clone());
                Body::ReasoningDone(reasoning)
            }
            Delta::ToolCall(call) => {
                self.answer.parts.push(Part::ToolCall(call.clone()));
                Body::ToolCall(call)
            }
            Delta::CallCut { name } => {
                self.answer.cut_calls.push(name);
                return None;
            }
            Delta::Usage(usage) => {
                self.answer.usage = usage;
                Body::Usage(usage)
            }
            Delta::Stopped(stop_reason) => {
                self.answer.stop_reason = Some(stop_reason);
                self.answer.is_under_way = false;
                return Some(stop_reason);
            }
            Delta::Place(place) => {
                self.place = Some(place);
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
        self.made_smaller = None;
        self.kept = None;
        self.in_use.end_chain();
        let message = self.answer.message();
        self.scribe.note(Entry::Message {
            message: message.clone(),
            stop_reason,
            usage: self.answer.usage,
            model: self.turn.request.model.clone(),
        });
        with.into_iter().for_each(|entry| self.scribe.note(entry));
        if self.calls_to_run().is_none() && !self.odd.goes_on {
            self.settle(TurnStatus::Completed);
        }
        self.commit().await;
        // What says nothing is no part of a conversation, and would be refused in one.
        if !message.parts.is_empty() {
            self.say_message(message);
        }
        self.note_size();
        let model = self.turn.request.model.clone();
        self.emitter.emit(Body::StepComplete { model, stop_reason });
    }

    /// What the provider says it read and wrote is how large the conversation is.
    fn note_size(&mut self) {
        let usage = self.answer.usage;
        let tokens = usage.read().saturating_add(usage.output);
        let messages = self.turn.request.messages.len();
        self.seen = (tokens > 0).then_some(BilledTokens { tokens, messages });
    }

    /// Retries can be switched off while the turn runs.
    pub(super) fn look_at_rules(&mut self) {
        self.rules = self
            .turn
            .retry
            .map_or(RetryRules::NONE, RetryStrategy::rules);
        self.state.set_rules(self.rules);
    }

    pub(super) async fn fail(&mut self, failure: Failure) -> Effects {
        self.look_at_rules();
        // Judged and decided at one moment, so that a stated wait is announced as it was stated.
        let now = self.turn.clock.now();
        let failure = ClassifiedFailure::new(Failure { at: now, ..failure });
        let own = Arc::clone(&failure);
        if let Some(effects) = self.salvage(&own).await {
            self.report_to_gate(&own, None).await;
            return effects;
        }
        let (seen, remedies) = match self.scribe.lost() {
            None => self.collect_remedies(failure).await,
            // Whatever could be done is somebody else's to do.
            Some(_) => (failure, Remedies::NONE),
        };
        self.update_cost();
        let is_ours = self.scribe.lost().is_none();
        let nothing_else =
            is_ours && !remedies.switch.model && !remedies.switch.account && !remedies.rework;
        let earlier =
            match nothing_else && !self.answer.was_heard && self.can_return_to_earlier_model(&seen)
            {
                true => {
                    self.note_failure(Some(&seen), self.kept.is_some());
                    self.go_back(&seen).await
                }
                false => None,
            };
        let failure = earlier.unwrap_or_else(|| Arc::clone(&seen));
        let (effects, waits_until) = self.follow(failure, &seen, remedies, now).await;
        self.report_to_gate(&own, waits_until).await;
        effects
    }

    /// What follows from a failure, which stands for the one that was seen. A wait is written down before it begins.
    pub(super) async fn follow(
        &mut self,
        failure: Arc<ClassifiedFailure>,
        seen: &ClassifiedFailure,
        remedies: Remedies,
        now: Timestamp,
    ) -> (Effects, Option<Timestamp>) {
        let event = Event::Failed {
            failure: Arc::clone(&failure),
            own_delay: self.own_delay(),
            remedies,
            now,
        };
        let effects = step(&mut self.state, event);
        let keeps = self.keeps_partial(&effects);
        self.note_failure(Some(seen), keeps);
        let waits_until = effects.iter().find_map(|effect| match effect {
            Effect::SleepUntil(at) => Some(*at),
            _ => None,
        });
        if let Some(until) = waits_until {
            let (since, spent) = (now, self.spent());
            self.scribe.note(Entry::WaitScheduled {
                since,
                until,
                cause: failure.verdict.cause,
                spent,
            });
            self.commit().await;
        }
        self.failed = Some(failure);
        (effects, waits_until)
    }

    /// The delay that the schedule has next for the model in use.
    fn own_delay(&self) -> Option<Duration> {
        let delay = self.turn.retry?;
        let delay = delay.delay_for(self.state.chain().schedule_index())?;
        Some(self.spread(delay))
    }

    async fn report_to_gate(&mut self, judged: &ClassifiedFailure, waits_until: Option<Timestamp>) {
        if let Some(gate) = &mut self.gate {
            gate.failed(judged, waits_until).await;
        }
    }

    /// A failure with all that is known in view, and what could be done about it other than wait.
    async fn collect_remedies(
        &mut self,
        failure: Arc<ClassifiedFailure>,
    ) -> (Arc<ClassifiedFailure>, Remedies) {
        self.remark = None;
        let (failure, mut remedies) = self.with_accounts(failure).await;
        let failure = self.final_if_compacted(failure);
        remedies.after_content = self.after_content(&failure);
        self.consider_models(&failure, &mut remedies);
        self.consider_compaction(&failure, &mut remedies);
        self.consider_correction(&failure, &mut remedies);
        if self.can_continue_by_prompt(&failure) {
            // It is not the model that is wrong, but how it was asked.
            (remedies.rework, remedies.model_first) = (true, false);
        }
        (failure, remedies)
    }

    fn cancelled(&mut self) -> Effects {
        self.update_cost();
        self.note_failure(None, false);
        self.abort()
    }

    /// What came of an attempt that failed is kept; it is not part of the conversation, unless it is gone on with.
    fn note_failure(&mut self, judged: Option<&ClassifiedFailure>, kept: bool) {
        if !self.answer.is_under_way {
            return;
        }
        self.answer.is_under_way = false;
        self.scribe.note(Entry::AttemptFailed {
            attempt: self.emitter.attempt,
            judged: judged.cloned(),
            // Half a thought cannot be gone on with.
            message: match kept {
                true => self.answer.message(),
                false => self.answer.heard(),
            },
            usage: self.answer.usage,
            kept,
            place: self.continuation_resume_token().filter(|_| kept),
        });
    }

    /// A provider that ends its stream without a stop reason has not finished.
    fn cut_off(&self) -> Failure {
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
        self.price_from_here();
    }

    /// What is used from here on has another price than what was used before.
    pub(super) fn price_from_here(&mut self) {
        self.priced = (self.state.prompt().cost(), self.answer.total_usage());
    }

    fn update_cost_at(&mut self, price: Price) {
        let (before, counted) = self.priced;
        let cost = price.of(self.answer.total_usage().minus(counted));
        let cost = before.0.saturating_add(cost.0);
        let rest = Cost(cost.saturating_sub(self.state.prompt().cost().0));
        step(&mut self.state, Event::Spent(rest));
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
