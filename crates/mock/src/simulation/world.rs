//! The world: takes what comes next and lets it happen.

use super::agent::{Agent, Doing, Next, Report};
use super::events::{Event, Events, Index};
use super::numbers::{Numbers, Record};
use super::provider::{Provider, Reply};
use super::scenario::Scenario;
use super::shared::Shared;
use super::strategy::Strategy;
use outlast_kernel::Timestamp;
use outlast_kernel::gate::{Answer, Pass};
use outlast_kernel::policy::Jitter;
use outlast_kernel::time::millis;

/// A call that was given up is started again after this long, by whoever runs the agent.
const STARTED_AGAIN_AFTER: u64 = 30_000;
/// The longest that an agent is busy with a call, on average.
const LONGEST_BUSY: u64 = 9_000;
/// A refusal comes quickly.
const REFUSAL: std::ops::RangeInclusive<u64> = 50..=150;

pub(super) struct World<'a> {
    scenario: &'a Scenario,
    strategy: &'a Strategy,
    now: u64,
    events: Events,
    agents: Vec<Agent>,
    provider: Provider,
    shared: Shared,
    record: Record,
    chance: fastrand::Rng,
    dead_probes: u32,
}

impl<'a> World<'a> {
    pub(super) fn new(scenario: &'a Scenario, strategy: &'a Strategy) -> Self {
        let agents = scenario.agents as usize;
        let mut world = Self {
            scenario,
            strategy,
            now: 0,
            events: Events::default(),
            agents: (0..agents)
                .map(|index| Agent::new(index, strategy))
                .collect(),
            provider: Provider::new(scenario),
            shared: Shared::new(scenario),
            record: Record::new(scenario),
            chance: fastrand::Rng::with_seed(scenario.seed),
            dead_probes: scenario.dead_probes,
        };
        for agent in 0..agents {
            let at = world.chance.u64(0..scenario.cycle());
            world.events.push(at, Event::Want(agent));
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

    pub(super) fn run(mut self) -> Numbers {
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
            .numbers(|agent| agents[agent].doing == Doing::Dead)
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
            Event::StoreChanges => self.store_changes(),
            Event::Recovery => {
                let agents = self.agents.iter().enumerate();
                let unserved =
                    agents.filter(|(_, agent)| agent.unserved && agent.doing != Doing::Dead);
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
        LONGEST_BUSY.min(self.scenario.cycle() / 2)
    }

    fn has_store(&mut self, agent: Index) -> bool {
        self.strategy.gated && self.shared.reaches_store(agent, self.now)
    }
}

// --- a call ---

impl World<'_> {
    fn want(&mut self, agent: Index) {
        let tokens = self.about(self.scenario.tokens_per_call());
        let now = self.time();
        self.agents[agent].tokens = tokens;
        self.agents[agent].start(self.strategy, now);
        self.attempt(agent);
    }

    /// Asks the gate where there is one, else makes the call.
    fn attempt(&mut self, agent: Index) {
        if self.has_store(agent) {
            self.agents[agent].doing = Doing::Asking;
            let arrives = self.now + self.shared.latency;
            self.events.push(arrives, Event::Ask(agent));
        } else {
            self.call(agent, None);
        }
    }

    fn call(&mut self, agent: Index, pass: Option<Pass>) {
        let now = self.time();
        let caller = &mut self.agents[agent];
        let reply = self.provider.call(caller.tokens, self.now);
        let accepted = reply == Reply::Accepted;
        (caller.pass, caller.reply, caller.doing) = (pass, reply, Doing::Calling);
        caller.go(now);
        self.record.attempt(self.now, caller.tokens, accepted);
        self.record.trace(self.now, 1 + u64::from(accepted), agent);
        let takes = if accepted {
            let busy = self.busy();
            self.chance.u64(busy / 30..=busy / 6)
        } else {
            self.chance.u64(REFUSAL)
        };
        self.events.push(self.now + takes, Event::Answer(agent));
    }

    /// Nobody will hear of its probe.
    fn die(&mut self, agent: Index) {
        self.dead_probes -= 1;
        self.agents[agent].doing = Doing::Dead;
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
        let waits = next != Next::GaveUp;
        if self.has_store(agent) {
            let pass = self.agents[agent].pass;
            self.agents[agent].doing = Doing::Asking;
            self.tell(
                agent,
                Report::Failed {
                    pass,
                    stated,
                    waits,
                },
            );
        } else if let Next::WaitUntil(at) = next {
            self.sleep(agent, at);
        }
        if !waits {
            self.record.given_up += 1;
            self.record.trace(self.now, 3, agent);
            self.agents[agent].doing = Doing::Thinking;
            self.events
                .push(self.now + STARTED_AGAIN_AFTER, Event::Want(agent));
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
        self.agents[agent].doing = Doing::Thinking;
        self.record.success(agent, self.now);
        self.record.trace(self.now, 4, agent);
        if self.has_store(agent) {
            self.tell(agent, Report::Accepted(self.agents[agent].pass));
        }
        let busy = self.busy();
        let rest = self.about(busy * 9 / 10) + self.about(self.scenario.cycle() - busy);
        self.events.push(self.now + rest, Event::Want(agent));
    }

    fn sleep(&mut self, agent: Index, until: Timestamp) {
        let sleeper = &mut self.agents[agent];
        sleeper.doing = Doing::Sleeping;
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
            Doing::Held | Doing::Sleeping => {
                let key = (self.agents[agent].waiter.since, agent);
                self.shared.process(agent).held.remove(&key);
                self.attempt(agent);
            }
            Doing::Thinking | Doing::Asking | Doing::Calling | Doing::Dead => {}
        }
    }
}

// --- the store ---

impl World<'_> {
    fn tell(&mut self, agent: Index, report: Report) {
        let arrives = self.now + self.shared.latency;
        self.events.push(arrives, Event::Report(agent, report));
    }

    fn ask(&mut self, agent: Index) {
        if !self.has_store(agent) {
            return if self.agents[agent].is_retrying() {
                self.go_on_alone(agent);
            } else {
                self.call(agent, None);
            };
        }
        match self.shared.ask(&self.agents[agent].waiter, self.now) {
            Answer::Go(pass) => self.call(agent, Some(pass)),
            Answer::Probe(_) if self.dead_probes > 0 => self.die(agent),
            Answer::Probe(pass) => self.call(agent, Some(pass)),
            Answer::Hold(until) => self.hold(agent, until.as_millis()),
            // No agent has a deadline.
            Answer::TooLate => {}
        }
        self.waiters_look();
    }

    fn report(&mut self, agent: Index, report: Report) {
        let down = !self.has_store(agent);
        match report {
            Report::Failed { waits: true, .. } if down => return self.go_on_alone(agent),
            Report::Accepted(Some(pass)) if !down => self.shared.accepted(pass, self.now),
            Report::Failed {
                pass,
                stated,
                waits,
            } if !down => {
                self.shared.failed(pass, stated, self.now);
                if waits {
                    self.join(agent);
                }
            }
            Report::Accepted(_) | Report::Failed { .. } => {}
        }
        self.waiters_look();
    }

    /// Puts an agent in line.
    fn join(&mut self, agent: Index) {
        let waiter = self.agents[agent].waiter.clone();
        self.shared.line.wait(waiter.clone());
        let wake = self.shared.wake_time(&waiter);
        self.hold(agent, wake);
    }

    /// Its process will see when its turn comes, unless that is before it looks again.
    fn hold(&mut self, agent: Index, until: u64) {
        self.agents[agent].doing = Doing::Held;
        let key = (self.agents[agent].waiter.since, agent);
        self.shared.process(agent).held.insert(key);
        let process = self.shared.process_of(agent);
        self.stop_timer(agent);
        if until < self.shared.next_look(process, self.now) {
            self.set_timer(agent, until);
        }
    }

    /// Without the store an agent keeps to its own schedule, spread by chance.
    fn go_on_alone(&mut self, agent: Index) {
        let entropy = self.chance.u64(..);
        let delay = self.agents[agent].lonely_delay(self.strategy, entropy);
        let waiter = self.agents[agent].waiter.clone();
        let process = self.shared.process(agent);
        process.held.remove(&(waiter.since, agent));
        process.stale.push(waiter);
        self.sleep(agent, self.time() + delay);
    }

    /// Something changed: every process that has someone in line will see it when it looks next.
    fn waiters_look(&mut self) {
        for process in 0..self.shared.processes.len() {
            if !self.shared.processes[process].held.is_empty() {
                let at = self.shared.next_look(process, self.now);
                self.look_at(process, at);
            }
        }
    }

    fn store_changes(&mut self) {
        for process in 0..self.shared.processes.len() {
            let next = self.shared.next_look(process, self.now);
            let search = self.shared.next_search(process, self.now, &mut self.chance);
            let lost = self.shared.processes[process].lost;
            self.look_at(process, if lost { search } else { next });
        }
    }

    fn look_at(&mut self, process: Index, at: u64) {
        let looks_at = &mut self.shared.processes[process].looks_at;
        if looks_at.is_none_or(|planned| at < planned) {
            *looks_at = Some(at);
            self.events.push(at, Event::Poll(process));
        }
    }

    /// A process looks at the gate and sets the timers of those whose turn comes before it looks again.
    fn look(&mut self, process: Index) {
        self.shared.processes[process].looks_at = None;
        if self.shared.is_down(self.now) {
            self.shared.processes[process].lost = true;
            let held = std::mem::take(&mut self.shared.processes[process].held);
            held.into_iter()
                .for_each(|(_, agent)| self.go_on_alone(agent));
            return;
        }
        self.join_again(process);
        let next = self.shared.next_look(process, self.now);
        let mut looks_at = (!self.shared.processes[process].held.is_empty()).then_some(next);
        let mut due = Vec::new();
        for (_, agent) in &self.shared.processes[process].held {
            let wake = self.shared.wake_time(&self.agents[*agent].waiter);
            if wake < next {
                due.push((*agent, wake));
            } else if !self.shared.gate.is_closed() {
                // Behind it in line nobody's turn comes earlier.
                looks_at = Some(self.shared.look_before(process, self.now, wake));
                break;
            }
        }
        for (agent, wake) in due {
            self.set_timer(agent, wake);
        }
        if let Some(at) = looks_at {
            self.look_at(process, at);
        }
    }

    /// The store is back: whoever waits by its own schedule waits in line again.
    fn join_again(&mut self, process: Index) {
        if !std::mem::take(&mut self.shared.processes[process].lost) {
            return;
        }
        for waiter in std::mem::take(&mut self.shared.processes[process].stale) {
            self.shared.line.leave(&waiter);
        }
        let ours = (process..self.agents.len()).step_by(self.shared.processes.len());
        for agent in ours {
            if self.agents[agent].doing == Doing::Sleeping {
                if self.agents[agent].is_retrying() {
                    self.shared.failed(None, None, self.now);
                }
                self.join(agent);
            }
        }
        self.record.joined_again = Some(self.now - self.shared.down.end);
        self.waiters_look();
    }
}
