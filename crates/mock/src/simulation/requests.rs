//! The clients and their requests: calls, failures, and the kernel's decision about each.

use super::provider::{Fault, FaultContext, FaultKind, Reply, in_millis};
use super::strategy::{Kind, RESTART, Schedule, Strategy};
use super::world::{CallResult, Event, LoggedCall, Success, World};
use fastrand::Rng;
use outlast_kernel::Timestamp;
use outlast_kernel::attempt::{self, Effect, State, step};
use outlast_kernel::budget::Prompt;
use outlast_kernel::decision::Remedies;
use outlast_kernel::gate::{Call, Pass, RequestId, RequestRecord};

/// The cost of a large request, in units.
const LARGE: f64 = 8.0;

/// Clients that make one request after another.
#[derive(Clone, Debug, PartialEq)]
pub struct Clients {
    /// Their number.
    pub count: usize,
    /// The pause between two requests, in seconds: half to one and a half of it.
    pub pause: f64,
    /// The number of all requests; unlimited if there is none.
    pub requests: Option<u64>,
    /// Whether the next request follows the first byte, not the end.
    pub continues_at_first_byte: bool,
    /// The share of requests that cost eight units instead of one.
    pub large_share: f64,
}

impl Clients {
    /// Returns so many clients without a pause.
    pub const fn busy(count: usize) -> Self {
        Self {
            count,
            pause: 0.0,
            requests: None,
            continues_at_first_byte: false,
            large_share: 0.0,
        }
    }

    /// Returns the mean cost of a request, in units.
    pub fn mean_size(&self) -> f64 {
        1.0 + (LARGE - 1.0) * self.large_share
    }

    pub(super) fn size(&self, rng: &mut Rng) -> f64 {
        match self.large_share > 0.0 && rng.f64() < self.large_share {
            true => LARGE,
            false => 1.0,
        }
    }
}

/// One request, over all of its calls.
pub(super) struct Request {
    client: Option<usize>,
    pub(super) process: usize,
    label: u32,
    size: f64,
    record: RequestRecord,
    /// Its recovery, from the first failure on.
    state: Option<Box<State>>,
    /// Retries of an SDK.
    retries: u32,
    calls: u32,
    first_call: u64,
    pub(super) call: Option<Call>,
    /// It succeeded, or its client has gone.
    pub(super) is_over: bool,
}

impl World {
    pub(super) fn next(&mut self, client: usize) {
        if let Some(left) = &mut self.clients.requests {
            if *left == 0 {
                return;
            }
            *left -= 1;
        }
        let size = self.clients.size(&mut self.rng);
        self.arrive(Some(client), 0, size);
    }

    pub(super) fn arrive(&mut self, client: Option<usize>, label: u32, size: f64) {
        let id = self.requests.len();
        let hosts = self.processes.len().max(self.breakers.len()).max(1);
        self.requests.push(Request {
            client,
            process: client.unwrap_or(id) % hosts,
            label,
            size,
            record: RequestRecord::new(self.time()),
            state: None,
            retries: 0,
            calls: 0,
            first_call: 0,
            call: None,
            is_over: false,
        });
        self.enter(id);
    }

    /// A request begins, or begins anew.
    pub(super) fn enter(&mut self, id: usize) {
        let now = self.time();
        let request = &mut self.requests[id];
        (request.state, request.retries) = (None, 0);
        let process = request.process;
        let record = RequestRecord::new(request.record.arrived);
        request.record = record;
        match self.processes.get_mut(process) {
            Some(of) => {
                of.view.queue.arrive(id_of(id), &record, now);
                self.poll(process);
            }
            None => self.retry_alone(id),
        }
    }

    /// Returns the number of requests without a label that arrived before that time and still wait for their answer.
    pub fn unanswered(&self, before: u64) -> usize {
        let arrived = |request: &&Request| request.record.arrived.as_millis() < before;
        let open = self.requests.iter().filter(arrived);
        open.filter(|request| request.label == 0 && !request.is_over)
            .count()
    }

    pub(super) fn rest(&mut self, id: usize) {
        let Some(client) = self.requests[id].client else {
            return;
        };
        let pause = self.clients.pause * (0.5 + self.rng.f64());
        self.after(in_millis(pause), Event::Next(client));
    }
}

// --- Calls ---

impl World {
    pub(super) fn call(&mut self, id: usize, pass: Pass) {
        let now = self.time();
        let request = &mut self.requests[id];
        let context = FaultContext {
            now: self.now,
            label: request.label,
            earlier_calls: request.calls,
        };
        let call = Call {
            request: id_of(id),
            began: now,
            pass,
        };
        if let Some(state) = &mut request.state {
            step(state, attempt::Event::Woke { now });
        }
        request.call = Some(call);
        request.calls += 1;
        if request.calls == 1 {
            request.first_call = self.now;
        }
        let size = request.size;
        if let Some(of) = self.processes.get_mut(request.process) {
            of.view.queue.started(&call);
        }
        if matches!(pass, Pass::Probe { .. }) && self.dying_probes > 0 {
            self.dying_probes -= 1;
            self.requests[id].is_over = true;
            return;
        }
        let reply = self.provider.call(context, size, &mut self.rng);
        let result = match &reply {
            Reply::Success { .. } => CallResult::Served,
            Reply::Failure(_, fault) if fault.kind == FaultKind::Refusal => CallResult::Refused,
            Reply::Failure(..) => CallResult::Failed,
        };
        let at = self.now;
        self.calls.push(LoggedCall { at, result, size });
        match reply {
            Reply::Success { first_byte, end } => {
                self.after(first_byte, Event::FirstByte(id));
                self.after(end, Event::End(id));
            }
            Reply::Failure(after, fault) => self.after(after, Event::Failed(id, fault)),
        }
    }

    pub(super) fn first_byte(&mut self, id: usize) {
        let now = self.time();
        let request = &mut self.requests[id];
        request.is_over = true;
        request.state = None;
        self.successes.push(Success {
            at: self.now,
            arrived: request.record.arrived.as_millis(),
            first_call: request.first_call,
            label: request.label,
        });
        let process = request.process;
        if let Some(breaker) = self.breakers.get_mut(process) {
            breaker.succeeded();
        }
        if let (Some(call), Some(of)) = (request.call.take(), self.processes.get_mut(process)) {
            of.view.queue.succeeded(&call, now);
            self.poll(process);
        }
        if self.clients.continues_at_first_byte {
            self.rest(id);
        }
    }

    pub(super) fn fail(&mut self, id: usize, fault: Fault) {
        let Some(call) = self.requests[id].call.take() else {
            return;
        };
        let process = self.requests[id].process;
        if let Some(breaker) = self.breakers.get_mut(process) {
            breaker.failed(self.now);
        }
        match &self.strategy {
            Kind::Gate { schedules, .. } => {
                let schedule = schedules[process % schedules.len()].clone();
                self.fail_at_gate(id, &call, fault, &schedule);
                self.poll(process);
            }
            Kind::Policy(schedule) => {
                let schedule = schedule.clone();
                self.fail_alone(id, fault, &schedule);
            }
            Kind::Sdk { retries } => {
                let retries = *retries;
                self.fail_sdk(id, retries, fault.stated);
            }
            Kind::Breaker { .. } => self.fail_sdk(id, Some(2), fault.stated),
        }
    }

    fn give_up(&mut self, id: usize) {
        self.given_up += 1;
        self.after(RESTART, Event::Restart(id));
    }
}

// --- Clients that are alone ---

impl World {
    /// Calls without a gate; an open circuit breaker fails the call.
    pub(super) fn retry_alone(&mut self, id: usize) {
        let process = self.requests[id].process;
        let now = self.now;
        let breaker = self.breakers.get_mut(process);
        match breaker.is_none_or(|breaker| breaker.admits(now)) {
            true => self.call(id, Pass::Open),
            false => self.fail_sdk(id, Some(2), None),
        }
    }

    fn fail_sdk(&mut self, id: usize, most: Option<u32>, stated: Option<u64>) {
        let done = self.requests[id].retries;
        if most.is_some_and(|most| done >= most) {
            return self.give_up(id);
        }
        self.requests[id].retries = done + 1;
        let own = self.now + Strategy::sdk_delay(done, &mut self.rng);
        self.at(own.max(stated.unwrap_or_default()), Event::Retry(id));
    }

    fn fail_alone(&mut self, id: usize, fault: Fault, schedule: &Schedule) {
        let now = self.time();
        let entropy = self.rng.u64(..);
        let failure = fault.classified(now);
        let own = |index| schedule.policy.jittered_delay(index, entropy);
        let state = self.requests[id].state(schedule);
        let effects = state.fail(failure, Remedies::NONE, None, own, now);
        match next_wait(effects) {
            Next::Sleep(at) => self.at(at.as_millis(), Event::Retry(id)),
            Next::Requeue | Next::GiveUp => self.give_up(id),
        }
    }
}

// --- Clients behind a gate ---

impl World {
    /// Does what the attempt driver of the engine does with a failure.
    fn fail_at_gate(&mut self, id: usize, call: &Call, fault: Fault, schedule: &Schedule) {
        let now = self.time();
        let (jitter, entropy) = (self.rng.f64(), self.rng.u64(..));
        let failure = fault.classified(now);
        let hint = failure.verdict.hint.as_ref().map(|hint| hint.not_before);
        let request = &mut self.requests[id];
        let queue = &mut self.processes[request.process].view.queue;
        let mut record = request.record;
        queue.report_failure(call, &mut record, &failure.verdict, now);
        let state = request.state(schedule);
        let remedies = Remedies::NONE;
        let effects = if call.is_probe_for_all() {
            let event = attempt::Event::ProbeFailed {
                failure,
                remedies,
                now,
            };
            step(state, event)
        } else {
            let may = schedule.rules.quick_retries;
            let quick = may.then(|| queue.quick_delay(&mut record, jitter, now));
            let own = |index| schedule.policy.jittered_delay(index, entropy);
            state.fail(failure, remedies, quick.flatten(), own, now)
        };
        request.record = record;
        match next_wait(effects) {
            Next::Sleep(at) => {
                let stated = hint.filter(|stated| *stated >= at);
                queue.wait(call.request, &record, at, stated.map(|_| at), now);
            }
            Next::Requeue => queue.requeue(call.request, &record, now),
            Next::GiveUp => {
                queue.leave(call.request);
                self.give_up(id);
            }
        }
    }
}

impl Request {
    /// Returns its recovery, with a call under way.
    fn state(&mut self, schedule: &Schedule) -> &mut State {
        self.state.get_or_insert_with(|| {
            let mut state = State::new(schedule.rules, Prompt::default());
            step(&mut state, attempt::Event::Started);
            Box::new(state)
        })
    }
}

/// The next action of a request after a failure.
enum Next {
    Sleep(Timestamp),
    /// Its probe failed: it is queued again.
    Requeue,
    GiveUp,
}

fn next_wait(effects: attempt::Effects) -> Next {
    for effect in effects {
        match effect {
            Effect::SleepUntil(at) => return Next::Sleep(at),
            Effect::Call => return Next::Requeue,
            _ => {}
        }
    }
    Next::GiveUp
}

pub(super) fn id_of(index: usize) -> RequestId {
    RequestId(u64::try_from(index).unwrap_or(u64::MAX))
}

pub(super) fn index_of(id: RequestId) -> usize {
    usize::try_from(id.0).unwrap_or(usize::MAX)
}
