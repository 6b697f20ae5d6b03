//! The world: takes what comes next and lets it happen.

mod store;

use super::agent::{Activity, Agent, FailureOutcome, Report};
use super::event_queue::{Event, EventQueue, Index};
use super::metrics::{Metrics, Recorder};
use super::provider::{Provider, Reply};
use super::scenario::Scenario;
use super::shared_state::SharedState;
use super::strategy::Strategy;
use outlast_kernel::Timestamp;
use outlast_kernel::gate::Pass;
use outlast_kernel::policy::Jitter;
use outlast_kernel::time::millis;

/// A call that was given up is started again after this long, by whoever runs the agent.
const RESTART_DELAY_MILLIS: u64 = 30_000;
/// The longest that an agent is busy with a call, on average.
const MAX_BUSY_MILLIS: u64 = 9_000;
/// A refusal comes quickly.
const REFUSAL_MILLIS: std::ops::RangeInclusive<u64> = 50..=150;

pub(super) struct Simulator<'a> {
    scenario: &'a Scenario,
    strategy: &'a Strategy,
    now: u64,
    events: EventQueue,
    agents: Vec<Agent>,
    provider: Provider,
    shared: SharedState,
    recorder: Recorder,
    rng: fastrand::Rng,
    dead_probes_left: u32,
}

impl<'a> Simulator<'a> {
    pub(super) fn new(scenario: &'a Scenario, strategy: &'a Strategy) -> Self {
        let agents = scenario.agents as usize;
        let mut world = Self {
            scenario,
            strategy,
            now: 0,
            events: EventQueue::default(),
            agents: (0..agents)
                .map(|index| Agent::new(index, strategy))
                .collect(),
            provider: Provider::new(scenario),
            shared: SharedState::new(scenario),
            recorder: Recorder::new(scenario),
            rng: fastrand::Rng::with_seed(scenario.seed),
            dead_probes_left: scenario.dead_probes,
        };
        for agent in 0..agents {
            let at = world.rng.u64(0..scenario.cycle_millis());
            world.events.push(at, Event::CallWanted(agent));
        }
        if strategy.is_gated {
            (0..scenario.processes as usize).for_each(|process| world.tally(process));
        }
        if scenario.outage.is_some() {
            world
                .events
                .push(scenario.outage_millis().end, Event::Recovery);
        }
        if !world.shared.store_outage.is_empty() {
            world
                .events
                .push(world.shared.store_outage.start, Event::StoreChanged);
            world
                .events
                .push(world.shared.store_outage.end, Event::StoreChanged);
        }
        world
    }

    pub(super) fn run(mut self) -> Metrics {
        let end = millis(self.scenario.length);
        while let Some((at, event)) = self.events.pop() {
            if at >= end {
                break;
            }
            self.now = at;
            self.handle_event(event);
        }
        let agents = self.agents;
        self.recorder
            .into_metrics(|agent| agents[agent].activity == Activity::Dead)
    }

    fn handle_event(&mut self, event: Event) {
        match event {
            Event::CallWanted(agent) => self.start_call(agent),
            Event::AdmissionRequested(agent) => self.ask(agent),
            Event::Report(agent, report) => self.report(agent, report),
            Event::Replied(agent) => self.handle_reply(agent),
            Event::Timer(agent, timer) if self.agents[agent].timer == timer => self.wake(agent),
            Event::Timer(..) => {}
            Event::Poll(process)
                if self.shared.processes[process].next_poll_at == Some(self.now) =>
            {
                self.look(process);
            }
            Event::Poll(_) => {}
            Event::SuccessesReported(process) => self.tally(process),
            Event::StoreChanged => self.handle_store_change(),
            Event::Recovery => {
                let agents = self.agents.iter().enumerate();
                let unserved = agents
                    .filter(|(_, agent)| agent.is_unserved && agent.activity != Activity::Dead);
                self.recorder
                    .record_recovery(unserved.map(|(index, _)| index));
            }
        }
    }

    fn time(&self) -> Timestamp {
        Timestamp::from_millis(self.now)
    }

    /// Half to one and a half of it.
    fn vary(&mut self, mean: u64) -> u64 {
        self.rng.u64(mean / 2..=mean + mean / 2)
    }

    /// How long an agent is busy with one call, on average.
    fn mean_busy_millis(&self) -> u64 {
        MAX_BUSY_MILLIS.min(self.scenario.cycle_millis() / 2)
    }

    fn has_store(&mut self, agent: Index) -> bool {
        self.strategy.is_gated && self.shared.can_reach_store(agent, self.now)
    }
}

// --- a call ---

impl Simulator<'_> {
    fn start_call(&mut self, agent: Index) {
        let tokens = self.vary(self.scenario.tokens_per_call());
        let now = self.time();
        self.agents[agent].tokens = tokens;
        self.agents[agent].begin_call(self.strategy, now);
        self.attempt(agent);
    }

    /// Asks the gate where there is one, else makes the call.
    fn attempt(&mut self, agent: Index) {
        if !self.has_store(agent) {
            return self.call(agent, None);
        }
        let waiter = &self.agents[agent].waiter;
        match self.shared.local_pass(agent, waiter, self.now) {
            Some(pass) => self.call(agent, Some(pass)),
            None => {
                self.agents[agent].activity = Activity::AwaitingStore;
                let arrives = self.now + self.shared.latency;
                self.events.push(arrives, Event::AdmissionRequested(agent));
            }
        }
    }

    fn call(&mut self, agent: Index, pass: Option<Pass>) {
        let now = self.time();
        let caller = &mut self.agents[agent];
        let reply = self.provider.call(caller.tokens, self.now);
        let accepted = reply == Reply::Accepted;
        (caller.pass, caller.reply, caller.activity) = (pass, reply, Activity::Calling);
        caller.start_attempt(now);
        self.recorder.attempt(self.now, caller.tokens, accepted);
        self.recorder
            .trace(self.now, 1 + u64::from(accepted), agent);
        let takes = if accepted {
            let busy = self.mean_busy_millis();
            self.rng.u64(busy / 30..=busy / 6)
        } else {
            self.rng.u64(REFUSAL_MILLIS)
        };
        self.events.push(self.now + takes, Event::Replied(agent));
    }

    /// Nobody will hear of its probe.
    fn die(&mut self, agent: Index) {
        self.dead_probes_left -= 1;
        self.agents[agent].activity = Activity::Dead;
        self.recorder.unblock(agent, self.now);
    }

    fn handle_reply(&mut self, agent: Index) {
        let now = self.time();
        let Some(failure) = self.agents[agent].reply.classified_failure(now) else {
            return self.handle_success(agent);
        };
        let stated = failure.verdict.hint.as_ref().map(|hint| hint.not_before);
        let delay = self.own_delay(agent);
        let next = self.agents[agent].fail(failure, delay, now);
        let waits = next != FailureOutcome::GaveUp;
        if self.has_store(agent) {
            let pass = self.agents[agent].pass;
            self.agents[agent].activity = Activity::AwaitingStore;
            self.tell(
                agent,
                Report::Failed {
                    pass,
                    stated,
                    waits,
                },
            );
        } else if let FailureOutcome::WaitUntil(at) = next {
            self.sleep(agent, at);
        }
        if !waits {
            self.recorder.given_up += 1;
            self.recorder.trace(self.now, 3, agent);
            self.agents[agent].activity = Activity::Thinking;
            self.events
                .push(self.now + RESTART_DELAY_MILLIS, Event::CallWanted(agent));
        }
    }

    fn own_delay(&mut self, agent: Index) -> Option<std::time::Duration> {
        let entropy = self.rng.u64(..);
        let delay = self.agents[agent].own_delay(self.strategy, entropy);
        if self.strategy.is_gated && !self.has_store(agent) {
            delay.map(|delay| Jitter::Full.apply(delay, entropy))
        } else {
            delay
        }
    }

    fn handle_success(&mut self, agent: Index) {
        self.agents[agent].succeed();
        self.agents[agent].activity = Activity::Thinking;
        self.recorder.success(agent, self.now);
        self.recorder.trace(self.now, 4, agent);
        if self.shared.process(agent).view.is_closed() {
            self.shared.process(agent).unreported_successes += 1;
        } else if self.has_store(agent) {
            self.tell(agent, Report::Accepted(self.agents[agent].pass));
        }
        let busy = self.mean_busy_millis();
        let rest = self.vary(busy * 9 / 10) + self.vary(self.scenario.cycle_millis() - busy);
        self.events.push(self.now + rest, Event::CallWanted(agent));
    }

    fn sleep(&mut self, agent: Index, until: Timestamp) {
        let sleeper = &mut self.agents[agent];
        sleeper.activity = Activity::Sleeping;
        sleeper.waiter.own_wake = until;
        self.set_timer(agent, until.as_millis());
    }

    fn stop_timer(&mut self, agent: Index) {
        let timer = &mut self.agents[agent].timer;
        *timer = timer.wrapping_add(1);
    }

    fn set_timer(&mut self, agent: Index, at: u64) {
        self.stop_timer(agent);
        let event = Event::Timer(agent, self.agents[agent].timer);
        self.events.push(at.max(self.now), event);
    }

    fn wake(&mut self, agent: Index) {
        match self.agents[agent].activity {
            Activity::Queued | Activity::Sleeping => {
                let key = (self.agents[agent].waiter.since, agent);
                self.shared.process(agent).queued.remove(&key);
                self.attempt(agent);
            }
            Activity::Thinking | Activity::AwaitingStore | Activity::Calling | Activity::Dead => {}
        }
    }
}
