//! One agent: a call after another, each through the kernel's reducer.

use super::provider::Reply;
use super::strategy::Strategy;
use outlast_kernel::Timestamp;
use outlast_kernel::attempt::{Effect, Event, State, step};
use outlast_kernel::budget::Prompt;
use outlast_kernel::decision::Remedies;
use outlast_kernel::failure::ClassifiedFailure;
use outlast_kernel::gate::{Pass, Waiter, WaiterId};
use outlast_kernel::policy::Jitter;
use std::sync::Arc;
use std::time::Duration;

/// What is told to the gate about a call.
#[derive(Clone, Copy, Debug)]
pub(super) enum Report {
    Accepted(Option<Pass>),
    Failed {
        pass: Option<Pass>,
        stated: Option<Timestamp>,
        /// Whether the agent stays, to try again.
        waits: bool,
    },
}

/// What the agent is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Activity {
    /// Nothing that needs the provider.
    Thinking,
    /// A question or a report is on its way to the store.
    AwaitingStore,
    /// It stands in line.
    Queued,
    /// It waits by its own schedule.
    Sleeping,
    /// A call is under way.
    Calling,
    /// It died.
    Dead,
}

pub(super) struct Agent {
    pub(super) activity: Activity,
    /// Whether it wants something that it has not got yet.
    pub(super) is_unserved: bool,
    pub(super) tokens: u64,
    pub(super) waiter: Waiter,
    pub(super) pass: Option<Pass>,
    pub(super) reply: Reply,
    /// The only timer that counts.
    pub(super) timer: u32,
    state: State,
}

/// What follows from a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FailureOutcome {
    WaitUntil(Timestamp),
    GaveUp,
}

impl Agent {
    pub(super) fn new(index: usize, strategy: &Strategy) -> Self {
        Self {
            activity: Activity::Thinking,
            is_unserved: false,
            tokens: 0,
            waiter: Waiter {
                // As long as any other, so that they sort by number.
                id: WaiterId(format!("{index:06}")),
                since: Timestamp::default(),
                own_wake: Timestamp::default(),
                deadline: None,
                batch: None,
            },
            pass: None,
            reply: Reply::Accepted,
            timer: 0,
            state: State::new(strategy.rules, Prompt::default()),
        }
    }

    /// A new call is wanted.
    pub(super) fn begin_call(&mut self, strategy: &Strategy, now: Timestamp) {
        self.is_unserved = true;
        self.waiter.since = now;
        self.waiter.own_wake = now;
        self.state = State::new(strategy.rules, Prompt::default());
        step(&mut self.state, Event::Started);
    }

    /// It makes its call: because its wait is over, or because the gate lets it pass before that.
    pub(super) fn start_attempt(&mut self, now: Timestamp) {
        let early = self.pass.is_some() && now < self.waiter.own_wake;
        let event = if early {
            Event::AdmittedEarly { now }
        } else {
            Event::Woke { now }
        };
        step(&mut self.state, event);
    }

    pub(super) fn succeed(&mut self) {
        step(&mut self.state, Event::Succeeded);
        self.is_unserved = false;
    }

    /// Its call failed; `own_delay` is where its schedule stands.
    pub(super) fn fail(
        &mut self,
        failure: Arc<ClassifiedFailure>,
        scheduled_delay: Option<Duration>,
        now: Timestamp,
    ) -> FailureOutcome {
        let failed = Event::Failed {
            failure,
            scheduled_delay,
            remedies: Remedies::NONE,
            now,
        };
        for effect in step(&mut self.state, failed) {
            if let Effect::SleepUntil(at) = effect {
                self.waiter.own_wake = at;
                return FailureOutcome::WaitUntil(at);
            }
        }
        FailureOutcome::GaveUp
    }

    /// The delay at the chain's place in its schedule.
    pub(super) fn own_delay(&self, strategy: &Strategy, entropy: u64) -> Option<Duration> {
        let retry = self.state.chain().schedule_index();
        strategy.policy.jittered_delay(retry, entropy)
    }

    /// The delay without a store: the last one of the schedule that began, spread from 0 to all of it.
    pub(super) fn delay_without_store(&self, strategy: &Strategy, entropy: u64) -> Duration {
        let retry = self.state.chain().schedule_index().saturating_sub(1);
        let delay = strategy.policy.delay_for(retry).unwrap_or_default();
        Jitter::Full.apply(delay, entropy)
    }

    pub(super) fn is_retrying(&self) -> bool {
        self.state.is_retrying()
    }
}
