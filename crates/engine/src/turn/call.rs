//! One call of a turn: its stream, followed to the end, and what is made of a failure.

use super::Runner;
use super::wait::until;
use crate::RetryStrategy;
use crate::journal::Entry;
use futures_util::StreamExt;
use outlast_dialect::{Delta, Message, Part, Role};
use outlast_kernel::budget::Cost;
use outlast_kernel::decision::Rules;
use outlast_kernel::event::{Body, Seal, StopReason, Usage};
use outlast_kernel::failure::{Failure, IoKind, Judged, Phase};
use outlast_kernel::recovery::{Effect, Effects, Event, step};
use std::sync::Arc;

impl Runner<'_> {
    /// Makes one call and follows its stream to the end.
    pub(super) async fn call(&mut self) -> Effects {
        if self.turn.control.is_aborted() {
            return self.abort();
        }
        if self.is_too_late() {
            return self.fail(self.too_late()).await;
        }
        if self.state.prompt().cost_is_spent() {
            return self.fail(self.too_dear()).await;
        }
        if let Err(effects) = self.be_admitted().await {
            return effects;
        }
        let effects = self.stream().await;
        self.leave_seat().await;
        effects
    }

    /// Follows the stream of one call to its end.
    async fn stream(&mut self) -> Effects {
        let attempt = self.emitter.attempt + 1;
        self.scribe.note(Entry::AttemptStarted { attempt });
        self.commit().await;
        if let Some(why) = self.scribe.lost() {
            let failure = self.not_ours(why);
            return self.fail(failure).await;
        }
        self.emitter.start_attempt();
        (self.said_held, self.held_since) = (None, None);
        self.unanswered = Some(self.turn.clock.now());
        self.answer.begin_attempt();
        let deadline = self.state.prompt().deadline();
        let credential = self.account.as_ref().map(|account| &account.credential);
        let mut stream = self.turn.provider.stream(&self.turn.request, credential);
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
            if delta.is_content() {
                step(&mut self.state, Event::ContentSent);
            }
            if delta.is_answer() {
                self.accepted().await;
            }
            if let Some(stop_reason) = self.take_in(delta) {
                self.complete_step(stop_reason).await;
                return step(&mut self.state, Event::Succeeded);
            }
        }
    }

    /// Hands a delta on; the answer is the stop reason, if it was the last one.
    fn take_in(&mut self, delta: Delta) -> Option<StopReason> {
        let body = match delta {
            Delta::Text(text) => {
                self.answer.say(&text);
                Body::TextDelta { text }
            }
            Delta::Reasoning(text) => Body::ReasoningDelta { text },
            Delta::ReasoningDone(reasoning) => {
                self.answer.parts.push(Part::Reasoning(reasoning.clone()));
                Body::ReasoningDone(reasoning)
            }
            Delta::ToolCall(call) => {
                self.answer.parts.push(Part::ToolCall(call.clone()));
                Body::ToolCall(call)
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
            _ => return None,
        };
        self.emitter.emit(body);
        None
    }

    /// Writes a whole answer down, with the settlement when it is the last one, then says it.
    async fn complete_step(&mut self, stop_reason: StopReason) {
        self.count_cost();
        let message = self.answer.message();
        self.scribe.note(Entry::Message {
            message: message.clone(),
            stop_reason,
            usage: self.answer.usage,
            model: self.turn.request.model.clone(),
        });
        if self.calls_to_run().is_none() {
            self.settle(Seal::Completed);
        }
        self.commit().await;
        // What says nothing is no part of a conversation, and would be refused in one.
        if !message.parts.is_empty() {
            self.say_message(message);
        }
        self.emitter.emit(Body::StepComplete { stop_reason });
    }

    pub(super) async fn fail(&mut self, failure: Failure) -> Effects {
        let retry = self.turn.retry;
        // Retries can be switched off while the turn runs.
        self.rules = retry.map_or(Rules::NONE, RetryStrategy::rules);
        self.state.set_rules(self.rules);
        let own_delay = retry
            .and_then(|retry| retry.delay_for(self.state.chain().schedule_index()))
            .map(|delay| self.spread(delay));
        // Judged and decided at one moment, so that a stated wait is announced as it was stated.
        let now = self.turn.clock.now();
        let failure = Judged::new(Failure { at: now, ..failure });
        let own = Arc::clone(&failure);
        let (failure, remedies) = self.with_accounts(failure).await;
        self.note_failure(Some(&failure));
        let cause = failure.verdict.cause;
        let event = Event::Failed {
            failure,
            own_delay,
            remedies,
            now,
        };
        let effects = step(&mut self.state, event);
        let waits_until = effects.iter().find_map(|effect| match effect {
            Effect::SleepUntil(at) => Some(*at),
            _ => None,
        });
        if let Some(until) = waits_until {
            let (since, spent) = (now, self.spent());
            self.scribe.note(Entry::WaitScheduled {
                since,
                until,
                cause,
                spent,
            });
            self.commit().await;
        }
        if let Some(gate) = &mut self.gate {
            gate.failed(&own, waits_until).await;
        }
        effects
    }

    fn cancelled(&mut self) -> Effects {
        self.note_failure(None);
        self.abort()
    }

    /// What came of an attempt that failed is kept; it is not part of the conversation.
    fn note_failure(&mut self, judged: Option<&Judged>) {
        if !self.answer.is_under_way {
            return;
        }
        self.answer.is_under_way = false;
        self.count_cost();
        self.scribe.note(Entry::AttemptFailed {
            attempt: self.emitter.attempt,
            judged: judged.cloned(),
            message: self.answer.message(),
            usage: self.answer.usage,
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

    /// Brings what the prompt has cost up to date, those attempts included that an earlier process made.
    pub(super) fn count_cost(&mut self) {
        let Some(price) = self.turn.price else {
            return;
        };
        let cost = price.of(self.answer.usage_in_all());
        let counted = self.state.prompt().cost();
        let rest = Cost(cost.0.saturating_sub(counted.0));
        step(&mut self.state, Event::Spent(rest));
    }

    fn too_dear(&self) -> Failure {
        let message = "this prompt has cost what it may, and the next call would exceed the budget";
        Failure::thrown(self.turn.provider.name(), message, self.turn.clock.now())
    }

    /// Another process has taken the turn over.
    fn not_ours(&self, why: &str) -> Failure {
        let failure = Failure::thrown(self.turn.provider.name(), why, self.turn.clock.now());
        failure.with_io(IoKind::Misconfigured)
    }
}

/// What the attempts have produced.
#[derive(Default)]
pub(super) struct Answer {
    pub(super) parts: Vec<Part>,
    pub(super) stop_reason: Option<StopReason>,
    /// Whether a call is made that has not ended.
    is_under_way: bool,
    earlier_usage: Usage,
    usage: Usage,
}

impl Answer {
    /// Nothing yet, after attempts that used that much.
    pub(super) fn after(earlier_usage: Usage) -> Self {
        Self {
            earlier_usage,
            ..Self::default()
        }
    }

    fn say(&mut self, piece: &str) {
        if let Some(Part::Text { text }) = self.parts.last_mut() {
            text.push_str(piece);
        } else {
            let text = piece.to_owned();
            self.parts.push(Part::Text { text });
        }
    }

    /// A new attempt starts from nothing, but what earlier ones used was used.
    fn begin_attempt(&mut self) {
        *self = Self::after(self.usage_in_all());
        self.is_under_way = true;
    }

    pub(super) fn usage_in_all(&self) -> Usage {
        self.earlier_usage.plus(self.usage)
    }

    fn message(&self) -> Message {
        Message {
            role: Role::Assistant,
            parts: self.parts.clone(),
        }
    }

    pub(super) fn into_message(self) -> Message {
        Message {
            role: Role::Assistant,
            parts: self.parts,
        }
    }
}
