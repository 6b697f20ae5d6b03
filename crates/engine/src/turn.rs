//! One turn: a model call and its retries.
//!
//! The kernel's reducer decides; this loop carries its effects out and reports back what happened.
//! Invariants: every turn is sealed exactly once; each retry is announced before its wait begins; an abort is noticed
//! in every wait and between any two pieces of a stream, and closes the stream.

mod account;
mod control;
mod emit;
mod gate;
mod seat;
mod wait;

use crate::accounts::{Accounts, Chosen};
use crate::knowledge::Knowledge;
use crate::{Clock, Provider, RetryStrategy};
use emit::Emitter;
use futures_util::StreamExt;
use gate::AtGate;
use outlast_dialect::{Delta, Message, Part, Request, Role};
use outlast_kernel::Timestamp;
use outlast_kernel::budget::Prompt;
use outlast_kernel::decision::{GiveUp, Remedy, Rules, Target};
use outlast_kernel::event::{Body, Seal, StopReason, Usage};
use outlast_kernel::failure::{Failure, IoKind, Judged, Phase};
use outlast_kernel::recovery::{Effect, Effects, Event, Outcome, State, step};
use seat::Seat;
use std::collections::VecDeque;
use std::sync::Arc;
use wait::until;

pub use control::{Control, Handle};
pub use emit::{Ids, Sink};

/// Everything that a turn needs.
pub struct Turn<'a> {
    /// Who answers.
    pub provider: &'a dyn Provider,
    /// What is asked.
    pub request: &'a Request,
    /// When to try again; `None` means never.
    pub retry: Option<&'a dyn RetryStrategy>,
    /// What the turn may spend, as its outermost caller made it.
    pub budget: Prompt,
    /// The time.
    pub clock: &'a dyn Clock,
    /// Where the turn belongs.
    pub ids: Ids,
    /// How others stop or hurry it.
    pub control: Control,
    /// The accounts to ask with; without them, the provider's own credential is used.
    pub accounts: Option<&'a Accounts>,
    /// What is known of the provider beyond this turn; without it, the turn keeps to its own schedule.
    pub knowledge: Option<&'a Knowledge>,
}

/// What came of a turn.
#[derive(Clone, Debug)]
pub struct Ended {
    /// How it ended.
    pub seal: Seal,
    /// The answer of the attempt that succeeded, or as much of it as was handed on, to go on from.
    pub message: Message,
    /// Why the model stopped, if it did.
    pub stop_reason: Option<StopReason>,
    /// What all attempts used together.
    pub usage: Usage,
    /// The error that ended it, and why nothing more was tried.
    pub error: Option<(Arc<Judged>, GiveUp)>,
    /// What is left of the budget.
    pub budget: Prompt,
}

/// Runs one turn to its end. Every event is handed to `sink` before the next thing happens.
pub async fn run_turn(turn: Turn<'_>, sink: Sink<'_>) -> Ended {
    let rules = turn.retry.map_or(Rules::NONE, RetryStrategy::rules);
    let state = State::new(rules, turn.budget.clone());
    let emitter = Emitter::new(turn.ids.clone(), turn.clock, sink);
    let mut runner = Runner {
        turn,
        gate: None,
        rules,
        account: None,
        left: Vec::new(),
        refreshed: Vec::new(),
        has_new_key: false,
        unanswered: None,
        held_since: None,
        seat: None,
        said_held: None,
        state,
        emitter,
        answer: Answer::default(),
        error: None,
    };
    runner.run().await
}

struct Runner<'a> {
    turn: Turn<'a>,
    gate: Option<AtGate<'a>>,
    rules: Rules,
    /// The account that is asked with.
    account: Option<Chosen>,
    /// The accounts that this turn has switched away from, and those whose key was fetched again.
    left: Vec<String>,
    refreshed: Vec<String>,
    has_new_key: bool,
    /// When the running call began, until the provider has begun to answer it.
    unanswered: Option<Timestamp>,
    /// Since when the call is held at the gate.
    held_since: Option<Timestamp>,
    seat: Option<Seat>,
    /// The time at the gate that was said last.
    said_held: Option<Timestamp>,
    state: State,
    emitter: Emitter<'a>,
    answer: Answer,
    error: Option<(Arc<Judged>, GiveUp)>,
}

/// What the attempts have produced.
#[derive(Default)]
struct Answer {
    parts: Vec<Part>,
    stop_reason: Option<StopReason>,
    earlier_usage: Usage,
    usage: Usage,
}

impl Runner<'_> {
    async fn run(&mut self) -> Ended {
        let input = self.turn.request.messages.last().map(Message::text);
        let (provider, model) = (
            self.turn.provider.name().to_owned(),
            self.turn.request.model.clone(),
        );
        self.emitter.emit(Body::Start { provider, model });
        self.emitter.emit(Body::Input {
            text: input.unwrap_or_default(),
        });

        let mut todo = VecDeque::from_iter(step(&mut self.state, Event::Started));
        loop {
            let Some(effect) = todo.pop_front() else {
                // The reducer always ends in `Settle`; should it not, the turn is still sealed.
                return self.seal(Outcome::Aborted);
            };
            match effect {
                Effect::Settle(outcome) => {
                    if let Some(gate) = &mut self.gate {
                        gate.leave().await;
                    }
                    return self.seal(outcome);
                }
                effect => todo.extend(self.carry_out(effect).await),
            }
        }
    }

    async fn carry_out(&mut self, effect: Effect) -> Effects {
        match effect {
            Effect::Call => self.call().await,
            Effect::SleepUntil(at) => {
                let event = self.sleep(at).await;
                step(&mut self.state, event)
            }
            Effect::AnnounceRetry(retry) => {
                self.emitter.emit_at(retry.decided_at, retry.into());
                Effects::new()
            }
            Effect::AnnounceEnd(end) => self.say(end.into()),
            Effect::Report(judged, why) => {
                let body = Body::error(&judged, why);
                self.error = Some((judged, why));
                self.say(body)
            }
            // The next call chooses anew; what else there is to switch to is not the turn's.
            Effect::Apply(Remedy::Switch(Target::Account)) => {
                self.leave_account();
                step(&mut self.state, Event::RemedyDone)
            }
            Effect::Apply(_) => step(&mut self.state, Event::RemedyFailed),
            // Dropping the stream or the timer has done it already.
            Effect::CancelCall | Effect::CancelSleep | Effect::Settle(_) => Effects::new(),
        }
    }

    fn say(&mut self, body: Body) -> Effects {
        self.emitter.emit(body);
        Effects::new()
    }

    /// Makes one call and follows its stream to the end.
    async fn call(&mut self) -> Effects {
        if self.turn.control.is_aborted() {
            return self.abort();
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
        self.emitter.start_attempt();
        (self.said_held, self.held_since) = (None, None);
        self.unanswered = Some(self.turn.clock.now());
        self.answer.begin_attempt();
        let credential = self.account.as_ref().map(|account| &account.credential);
        let mut stream = self.turn.provider.stream(self.turn.request, credential);
        loop {
            let renewal = self.renew_at();
            let item = tokio::select! {
                biased;
                () = self.turn.control.aborted() => return self.abort(),
                item = stream.next() => item,
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
                self.emitter.emit(Body::StepComplete { stop_reason });
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
                return Some(stop_reason);
            }
            _ => return None,
        };
        self.emitter.emit(body);
        None
    }

    async fn fail(&mut self, failure: Failure) -> Effects {
        let retry = self.turn.retry;
        let own_delay = retry
            .and_then(|retry| retry.delay_for(self.state.chain().schedule_index()))
            .map(|delay| self.spread(delay));
        // Judged and decided at one moment, so that a stated wait is announced as it was stated.
        let now = self.turn.clock.now();
        let failure = Judged::new(Failure { at: now, ..failure });
        let own = Arc::clone(&failure);
        let (failure, remedies) = self.with_accounts(failure).await;
        let event = Event::Failed {
            failure,
            own_delay,
            remedies,
            now,
        };
        let effects = step(&mut self.state, event);
        if let Some(gate) = &mut self.gate {
            let waits_until = effects.iter().find_map(|effect| match effect {
                Effect::SleepUntil(at) => Some(*at),
                _ => None,
            });
            gate.failed(&own, waits_until).await;
        }
        effects
    }

    fn abort(&mut self) -> Effects {
        let now = self.turn.clock.now();
        step(&mut self.state, Event::Aborted { now })
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

    fn seal(&mut self, outcome: Outcome) -> Ended {
        let seal = match outcome {
            Outcome::Completed => Seal::Completed,
            Outcome::Failed(_) => Seal::Error,
            Outcome::Aborted => Seal::Aborted,
        };
        if let (Seal::Completed, Some(stop_reason)) = (seal, self.answer.stop_reason) {
            self.emitter.emit(Body::Done { stop_reason });
        }
        self.emitter.emit(Body::Sealed { status: seal });
        let answer = std::mem::take(&mut self.answer);
        Ended {
            seal,
            message: Message {
                role: Role::Assistant,
                parts: answer.parts,
            },
            stop_reason: answer.stop_reason,
            usage: answer.earlier_usage.plus(answer.usage),
            error: self.error.take(),
            budget: self.state.prompt().clone(),
        }
    }
}

impl Answer {
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
        let earlier_usage = self.earlier_usage.plus(self.usage);
        *self = Self {
            earlier_usage,
            ..Self::default()
        };
    }
}
