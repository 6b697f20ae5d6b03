use super::*;
use crate::policy::Policy;
use proptest::prelude::*;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

// --- five hundred agents, one outage ---

const CAPACITY: u64 = 25;

#[derive(Clone, Copy, Debug)]
struct Setting {
    agents: u64,
    capacity: u64,
    /// The calls above its pace that the provider accepts after a quiet time.
    burst: u64,
    outage: u64,
    /// The shortest and the longest time in which a call is answered.
    latency: (u64, u64),
    /// How often an agent looks at the gate; `None` when it learns of each change at once.
    look_every: Option<u64>,
    start_every: u64,
}

impl Default for Setting {
    fn default() -> Self {
        Self {
            agents: 500,
            capacity: CAPACITY,
            burst: CAPACITY,
            outage: 30 * 60 * 1000,
            latency: (50, 50),
            look_every: None,
            start_every: 3000,
        }
    }
}

#[derive(Debug, Default)]
struct Numbers {
    useless: usize,
    most_probes_in_flight: usize,
    first_success: u64,
    drained: u64,
    peak: usize,
    calls_after: usize,
    opened: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Happens {
    Answered { accepted: bool },
    Looks,
}

struct Agent {
    waiter: Waiter,
    retries: u32,
    pass: Option<(Pass, bool)>,
    charged: bool,
}

struct World {
    setting: Setting,
    overnight: Policy,
    gate: Gate,
    agents: Vec<Agent>,
    coming: BinaryHeap<Reverse<(u64, usize, Happens)>>,
    tokens: u64,
    filled: u64,
    sent: Vec<u64>,
    successes: Vec<u64>,
    most_probes_in_flight: usize,
    chance: u64,
}

impl World {
    fn new(setting: Setting) -> Self {
        let agents = (0..setting.agents)
            .map(|n| Agent {
                waiter: Waiter {
                    id: WaiterId(format!("{n:03}")),
                    since: Timestamp::from_millis(n * setting.start_every),
                    own_wake: Timestamp::from_millis(n * setting.start_every),
                    deadline: None,
                },
                retries: 0,
                pass: None,
                charged: true,
            })
            .collect::<Vec<_>>();
        let coming = (0..agents.len())
            .map(|n| Reverse((agents[n].waiter.since.as_millis(), n, Happens::Looks)))
            .collect();
        Self {
            setting,
            overnight: Policy::named("overnight").unwrap(),
            gate: Gate::default(),
            agents,
            coming,
            tokens: setting.burst * 1000,
            filled: setting.outage,
            sent: Vec::new(),
            successes: Vec::new(),
            most_probes_in_flight: 0,
            chance: 1,
        }
    }

    fn run(mut self) -> Numbers {
        while self.successes.len() < self.agents.len() {
            let asks = self.next_in_line();
            let comes = self.coming.peek().map(|Reverse((at, ..))| *at);
            match (asks, comes) {
                (Some((at, n)), None) => self.ask(n, at),
                (Some((at, n)), Some(other)) if at < other => self.ask(n, at),
                (_, None) => panic!("nothing happens any more"),
                (_, Some(_)) => {
                    let Reverse((at, n, happens)) = self.coming.pop().unwrap();
                    match happens {
                        Happens::Answered { accepted } => self.answered(n, accepted, at),
                        Happens::Looks => self.look(n, at),
                    }
                }
            }
            assert!(
                self.sent.len() < 100_000 && self.sent.last().is_none_or(|t| *t < 100_000_000),
                "{}",
                self.sent.len()
            );
        }
        self.numbers()
    }

    /// Who asks next when everyone follows the gate: the first in line, or with a closed gate the
    /// first whose own time comes.
    fn next_in_line(&self) -> Option<(u64, usize)> {
        if self.setting.look_every.is_some() {
            return None;
        }
        let most = if self.gate.is_closed() { usize::MAX } else { 1 };
        let line = self.gate.waiters.iter().take(most);
        line.map(|waiter| {
            let wake = self.gate.wake_time(&waiter.id).unwrap();
            (wake.as_millis(), waiter.id.0.parse().unwrap())
        })
        .min()
    }

    fn look(&mut self, n: usize, now: u64) {
        let agent = &self.agents[n];
        match self.gate.wake_time(&agent.waiter.id) {
            Some(wake) if wake.as_millis() > now => {
                if let Some(pause) = self.setting.look_every {
                    let next = wake.as_millis().min(now + pause);
                    self.coming.push(Reverse((next, n, Happens::Looks)));
                }
            }
            None if agent.waiter.own_wake.as_millis() > now && self.gate.is_closed() => {
                self.coming.push(Reverse((
                    agent.waiter.own_wake.as_millis(),
                    n,
                    Happens::Looks,
                )));
            }
            _ => self.ask(n, now),
        }
    }

    fn ask(&mut self, n: usize, now: u64) {
        let at = Timestamp::from_millis(now);
        let pass = match self.gate.ask(self.agents[n].waiter.clone(), at) {
            Answer::Go(pass) => (pass, false),
            Answer::Probe(pass) => (pass, true),
            Answer::Hold(until) => {
                assert!(until > at);
                if let Some(pause) = self.setting.look_every {
                    let next = until.as_millis().min(now + pause);
                    self.coming.push(Reverse((next, n, Happens::Looks)));
                }
                return;
            }
            Answer::TooLate => panic!("no agent has a deadline"),
        };
        self.agents[n].charged = !pass.1 || self.gate.waiting() == 0;
        self.agents[n].pass = Some(pass);
        let probing = self
            .agents
            .iter()
            .filter(|agent| agent.pass.is_some_and(|(_, probe)| probe));
        self.most_probes_in_flight = self.most_probes_in_flight.max(probing.count());
        self.sent.push(now);
        let accepted = self.provider_accepts(now);
        let back = now + self.draw();
        self.coming
            .push(Reverse((back, n, Happens::Answered { accepted })));
    }

    fn answered(&mut self, n: usize, accepted: bool, now: u64) {
        let at = Timestamp::from_millis(now);
        let (pass, _) = self.agents[n].pass.take().unwrap();
        if accepted {
            self.successes.push(now);
            self.gate.succeeded(pass, at);
            return;
        }
        self.gate.failed(pass, None, at);
        let agent = &mut self.agents[n];
        if agent.charged {
            agent.waiter.own_wake = at + self.overnight.delay_for(agent.retries).unwrap();
            agent.retries += 1;
        }
        self.gate.wait(agent.waiter.clone());
        if self.setting.look_every.is_some() {
            self.look(n, now);
        }
    }

    fn provider_accepts(&mut self, now: u64) -> bool {
        if now < self.setting.outage {
            return false;
        }
        let filled = self.tokens + (now - self.filled) * self.setting.capacity;
        self.tokens = filled.min(self.setting.burst * 1000);
        self.filled = now;
        let accepts = self.tokens >= 1000;
        self.tokens -= if accepts { 1000 } else { 0 };
        accepts
    }

    fn draw(&mut self) -> u64 {
        self.chance = self
            .chance
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let (shortest, longest) = self.setting.latency;
        shortest + (self.chance >> 33) % (longest - shortest + 1)
    }

    fn numbers(&self) -> Numbers {
        let recovery = self.setting.outage;
        let after: Vec<u64> = self
            .sent
            .iter()
            .copied()
            .filter(|t| *t >= recovery)
            .collect();
        let in_window = |from: &u64| {
            after
                .iter()
                .filter(|t| (*from..from + 1000).contains(t))
                .count()
        };
        Numbers {
            useless: self.sent.len() - after.len(),
            most_probes_in_flight: self.most_probes_in_flight,
            first_success: self.successes[0] - recovery,
            drained: self.successes[self.successes.len() - 1] - recovery,
            peak: after.iter().map(in_window).max().unwrap_or(0),
            calls_after: after.len(),
            opened: self.gate.token,
        }
    }
}

#[test]
fn explore() {
    for (agents, capacity) in [
        (500, 25),
        (50, 25),
        (50, 5),
        (50, 1),
        (500, 5),
        (1000, 25),
        (2000, 100),
        (5000, 250),
    ] {
        for latency in [(50, 50), (500, 2000)] {
            for burst in [1, capacity / 5 + 1, capacity] {
                let mut all = Vec::new();
                for phase in 0..8 {
                    let setting = Setting {
                        agents,
                        capacity,
                        burst,
                        latency,
                        outage: 600_000 + 2000 * phase,
                        start_every: 500_000 / agents,
                        ..Setting::default()
                    };
                    all.push(World::new(setting).run());
                }
                let max = |f: fn(&Numbers) -> u64| all.iter().map(f).max().unwrap();
                println!(
                    "{agents:5} at {capacity:3} burst {burst:3} latency {latency:?}: useless {} first {} drained {} (of {}) peak {} (of {}) attempts {} ({:.3}), token {} probes {}",
                    max(|n| n.useless as u64),
                    max(|n| n.first_success),
                    max(|n| n.drained),
                    1500 * agents / capacity + 20_000,
                    max(|n| n.peak as u64),
                    capacity as f64 * 1.2,
                    max(|n| n.calls_after as u64),
                    max(|n| n.calls_after as u64) as f64 / agents as f64,
                    max(|n| n.opened),
                    max(|n| n.most_probes_in_flight as u64)
                );
            }
        }
    }
}
