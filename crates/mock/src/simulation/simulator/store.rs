//! Agents before the gate: what they ask and report, what their process sees when it looks, and how they go on alone.

use super::Simulator;
use crate::simulation::agent::{Activity, Report};
use crate::simulation::event_queue::{Event, Index};
use outlast_kernel::gate::GateReply;

/// How often a process tells the gate what was carried, in milliseconds.
const REPORT_INTERVAL_MILLIS: u64 = 10_000;

impl Simulator<'_> {
    pub(super) fn tell(&mut self, agent: Index, report: Report) {
        let arrives = self.now + self.shared.latency;
        self.events.push(arrives, Event::Report(agent, report));
    }

    pub(super) fn ask(&mut self, agent: Index) {
        if !self.has_store(agent) {
            return if self.agents[agent].is_retrying() {
                self.continue_without_store(agent);
            } else {
                self.call(agent, None);
            };
        }
        match self
            .shared
            .request_admission(&self.agents[agent].waiter, self.now)
        {
            GateReply::Proceed(pass) => self.call(agent, Some(pass)),
            GateReply::Probe(_) if self.dead_probes_left > 0 => self.die(agent),
            GateReply::Probe(pass) => self.call(agent, Some(pass)),
            GateReply::Hold(until) => self.hold(agent, until.as_millis()),
            // No agent has a deadline.
            GateReply::DeadlineExceeded => {}
        }
        self.refresh_process_view(agent);
    }

    pub(super) fn report(&mut self, agent: Index, report: Report) {
        let down = !self.has_store(agent);
        match report {
            Report::Failed { waits: true, .. } if down => {
                return self.continue_without_store(agent);
            }
            Report::Accepted(Some(pass)) if !down => self.shared.record_success(pass, self.now),
            Report::Failed {
                pass,
                stated,
                waits,
            } if !down => {
                self.shared.record_failure(pass, stated, self.now);
                if waits {
                    self.join(agent);
                }
            }
            Report::Accepted(_) | Report::Failed { .. } => {}
        }
        if !down {
            self.refresh_process_view(agent);
        }
    }

    /// An agent's process sees what the store answered it; the others will when they look.
    fn refresh_process_view(&mut self, agent: Index) {
        self.shared.refresh_view(self.shared.process_of(agent));
        self.schedule_polls();
    }

    /// A process tells the gate what was carried without asking.
    pub(super) fn tally(&mut self, process: Index) {
        if !self.shared.is_store_down(self.now) && !self.shared.processes[process].is_disconnected {
            self.shared.report_successes(process, self.now);
        }
        self.events.push(
            self.now + REPORT_INTERVAL_MILLIS,
            Event::SuccessesReported(process),
        );
    }

    /// Puts an agent in line.
    fn join(&mut self, agent: Index) {
        let waiter = self.agents[agent].waiter.clone();
        self.shared.queue.join(waiter.clone());
        let wake = self.shared.wake_time(&waiter);
        self.hold(agent, wake);
    }

    /// Its process will see when its turn comes, unless that is before it looks again.
    fn hold(&mut self, agent: Index, until: u64) {
        self.agents[agent].activity = Activity::Queued;
        let key = (self.agents[agent].waiter.since, agent);
        self.shared.process(agent).queued.insert(key);
        let process = self.shared.process_of(agent);
        self.stop_timer(agent);
        if until < self.shared.next_poll(process, self.now) {
            self.set_timer(agent, until);
        }
    }

    /// Without the store an agent keeps to its own schedule, spread by chance.
    fn continue_without_store(&mut self, agent: Index) {
        let entropy = self.rng.u64(..);
        let delay = self.agents[agent].delay_without_store(self.strategy, entropy);
        let waiter = self.agents[agent].waiter.clone();
        let process = self.shared.process(agent);
        process.queued.remove(&(waiter.since, agent));
        process.stale_waiters.push(waiter);
        self.sleep(agent, self.time() + delay);
    }

    /// Something changed: every process will see it when it looks next.
    fn schedule_polls(&mut self) {
        for process in 0..self.shared.processes.len() {
            if self.shared.should_poll(process) {
                let at = self.shared.next_poll(process, self.now);
                self.look_at(process, at);
            }
        }
    }

    pub(super) fn handle_store_change(&mut self) {
        for process in 0..self.shared.processes.len() {
            let next = self.shared.next_poll(process, self.now);
            let search = self.shared.next_reconnect(process, self.now, &mut self.rng);
            let lost = self.shared.processes[process].is_disconnected;
            self.look_at(process, if lost { search } else { next });
        }
    }

    fn look_at(&mut self, process: Index, at: u64) {
        let looks_at = &mut self.shared.processes[process].next_poll_at;
        if looks_at.is_none_or(|planned| at < planned) {
            *looks_at = Some(at);
            self.events.push(at, Event::Poll(process));
        }
    }

    /// A process looks at the gate and sets the timers of those whose turn comes before it looks again.
    pub(super) fn look(&mut self, process: Index) {
        self.shared.processes[process].next_poll_at = None;
        if self.shared.is_store_down(self.now) {
            self.shared.processes[process].is_disconnected = true;
            let held = std::mem::take(&mut self.shared.processes[process].queued);
            held.into_iter()
                .for_each(|(_, agent)| self.continue_without_store(agent));
            return;
        }
        self.join_again(process);
        self.shared.refresh_view(process);
        let next = self.shared.next_poll(process, self.now);
        let mut looks_at = (!self.shared.processes[process].queued.is_empty()).then_some(next);
        let mut due = Vec::new();
        for (_, agent) in &self.shared.processes[process].queued {
            let wake = self.shared.wake_time(&self.agents[*agent].waiter);
            if wake < next {
                due.push((*agent, wake));
            } else if !self.shared.gate.is_closed() {
                // Behind it in line nobody's turn comes earlier.
                looks_at = Some(self.shared.last_poll_before(process, self.now, wake));
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
        if !std::mem::take(&mut self.shared.processes[process].is_disconnected) {
            return;
        }
        for waiter in std::mem::take(&mut self.shared.processes[process].stale_waiters) {
            self.shared.queue.leave(&waiter);
        }
        let ours = (process..self.agents.len()).step_by(self.shared.processes.len());
        for agent in ours {
            if self.agents[agent].activity == Activity::Sleeping {
                if self.agents[agent].is_retrying() {
                    self.shared.record_failure(None, None, self.now);
                }
                self.join(agent);
            }
        }
        self.recorder.rejoined_after = Some(self.now - self.shared.store_outage.end);
        self.schedule_polls();
    }
}
