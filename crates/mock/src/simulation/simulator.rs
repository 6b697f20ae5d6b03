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
    record: Recorder,
    chance: fastrand::Rng,
    dead_probes: u32,
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
            record: Recorder::new(scenario),
            chance: fastrand::Rng::with_seed(scenario.seed),
            dead_probes: scenario.dead_probes,
        };
        for agent in 0..agents {
            let at = world.chance.u64(0..scenario.cycle());
            world.events.push(at, Event::Want(agent));
        }
        if strategy.gated {
            (0..scenario.processes as usize).for_each(|process| world.tally(process));
        }
        if scenario.outage.is_some() {
            world
                .events
                .push(scenario.outage_millis().end, Event::Recovery);
        }
        if !world.shared.down.is_empty() {
            world
                .events
                .push(world.shared.down.start, Event::StoreChanges);
            world
                .events
                .push(world.shared.down.end, Event::StoreChanges);
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
            self.happens(event);
        }
        let agents = self.agents;
        self.record
            .numbers(|agent| agents[agent].doing == Activity::Dead)
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Want(agent) => self.want(agent),
            Event::Ask(agent) => self.ask(agent),
            Event::Report(agent, report) => self.report(agent, report),
            Event::Answer(agent) => self.answered(agent),
            Event::Timer(agent, timer) if self.agents[agent].timer == timer => self.wake(agent),
            Event::Timer(..) => {}
            Event::Poll(process) if self.shared.processes[process].looks_at == Some(self.now) => {
                self.look(process);
            }
            Event::Poll(_) => {}
            Event::Tally(process) => self.tally(process),
            Event::StoreChanges => self.handle_store_change(),
            Event::Recovery => {
                let agents = self.agents.iter().enumerate();
                let unserved =
                    agents.filter(|(_, agent)| agent.unserved && agent.doing != Activity::Dead);
                self.record.recovery_finds(unserved.map(|(index, _)| index));
            }
        }
    }

    fn time(&self) -> Timestamp {
        Timestamp::from_millis(self.now)
    }

    /// Half to one and a half of it.
    fn about(&mut self, mean: u64) -> u64 {
        self.chance.u64(mean / 2..=mean + mean / 2)
    }

    /// How long an agent is busy with one call, on average.
    fn busy(&self) -> u64 {
        MAX_BUSY_MILLIS.min(self.scenario.cycle() / 2)
    }

    fn has_store(&mut self, agent: Index) -> bool {
        self.strategy.gated && self.shared.can_reach_store(agent, self.now)
    }
}

// --- a call ---

impl Simulator<'_> {
    fn want(&mut self, agent: Index) {
        let tokens = self.about(self.scenario.tokens_per_call());
        let now = self.time();
        self.agents[agent].tokens = tokens;
        self.agents[agent].start(self.strategy, now);
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
                self.agents[agent].doing = Activity::Asking;
                let arrives = self.now + self.shared.latency;
                self.events.push(arrives, Event::Ask(agent));
            }
        }
    }

    fn call(&mut self, agent: Index, pass: Option<Pass>) {
        let now = self.time();
        let caller = &mut self.agents[agent];
        let reply = self.provider.call(caller.tokens, self.now);
        let accepted = reply == Reply::Accepted;
        (caller.pass, caller.reply, caller.doing) = (pass, reply, Activity::Calling);
        caller.go(now);
        self.record.attempt(self.now, caller.tokens, accepted);
        self.record.trace(self.now, 1 + u64::from(accepted), agent);
        let takes = if accepted {
            let busy = self.busy();
            self.chance.u64(busy / 30..=busy / 6)
        } else {
            self.chance.u64(REFUSAL_MILLIS)
        };
        self.events.push(self.now + takes, Event::Answer(agent));
    }

    /// Nobody will hear of its probe.
    fn die(&mut self, agent: Index) {
        self.dead_probes -= 1;
        self.agents[agent].doing = Activity::Dead;
        self.record.unblock(agent, self.now);
    }

    fn answered(&mut self, agent: Index) {
        let now = self.time();
        let Some(failure) = self.agents[agent].reply.judged(now) else {
            return self.accepted(agent);
        };
        let stated = failure.verdict.hint.as_ref().map(|hint| hint.not_before);
        let delay = self.own_delay(agent);
        let next = self.agents[agent].fail(failure, delay, now);
        let waits = next != FailureOutcome::GaveUp;
        if self.has_store(agent) {
            let pass = self.agents[agent].pass;
            self.agents[agent].doing = Activity::Asking;
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
            self.record.given_up += 1;
            self.record.trace(self.now, 3, agent);
            self.agents[agent].doing = Activity::Thinking;
            self.events
                .push(self.now + RESTART_DELAY_MILLIS, Event::Want(agent));
        }
    }

    fn own_delay(&mut self, agent: Index) -> Option<std::time::Duration> {
        let entropy = self.chance.u64(..);
        let delay = self.agents[agent].own_delay(self.strategy, entropy);
        if self.strategy.gated && !self.has_store(agent) {
            delay.map(|delay| Jitter::Full.apply(delay, entropy))
        } else {
            delay
        }
    }

    fn accepted(&mut self, agent: Index) {
        self.agents[agent].succeed();
        self.agents[agent].doing = Activity::Thinking;
        self.record.success(agent, self.now);
        self.record.trace(self.now, 4, agent);
        if self.shared.process(agent).view.is_closed() {
            self.shared.process(agent).carried += 1;
        } else if self.has_store(agent) {
            self.tell(agent, Report::Accepted(self.agents[agent].pass));
        }
        let busy = self.busy();
        let rest = self.about(busy * 9 / 10) + self.about(self.scenario.cycle() - busy);
        self.events.push(self.now + rest, Event::Want(agent));
    }

    fn sleep(&mut self, agent: Index, until: Timestamp) {
        let sleeper = &mut self.agents[agent];
        sleeper.doing = Activity::Sleeping;
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
        match self.agents[agent].doing {
            Activity::Held | Activity::Sleeping => {
                let key = (self.agents[agent].waiter.since, agent);
                self.shared.process(agent).held.remove(&key);
                self.attempt(agent);
            }
            Activity::Thinking | Activity::Asking | Activity::Calling | Activity::Dead => {}
        }
    }
}
