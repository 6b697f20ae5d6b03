//! Virtual time: takes the next event and lets it happen.

use super::clients::{Clients, Strategy};
use super::provider::{Fault, FaultContext, FaultKind, Provider, Reply, in_millis};
use super::store::{POLL_INTERVAL, Process, Store};
use fastrand::Rng;
use outlast_kernel::Timestamp;
use outlast_kernel::gate::admission::{
    Call, Gate, GateFailure, Pass, ProcessQueue, RequestId, RequestRecord, Sync, SyncReply,
};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::ops::Range;

/// The schedule of a request while others do not succeed, in seconds.
const SCHEDULE: [u64; 8] = [5, 10, 30, 60, 300, 600, 900, 1800];

/// The result of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallResult {
    /// It was served.
    Served,
    /// It failed.
    Failed,
    /// It was refused.
    Refused,
}

/// A call, as the provider saw it.
#[derive(Clone, Copy, Debug)]
pub struct LoggedCall {
    /// The time at which it began, in milliseconds.
    pub at: u64,
    /// Its result.
    pub result: CallResult,
    /// Its cost in units.
    pub size: f64,
}

/// A request that succeeded.
#[derive(Clone, Copy, Debug)]
pub struct Success {
    /// The time of the first byte, in milliseconds.
    pub at: u64,
    /// The time at which it arrived.
    pub arrived: u64,
    /// The time of its first call.
    pub first_call: u64,
    /// Its calls.
    pub calls: u32,
    /// Its label.
    pub label: u32,
}

struct Request {
    client: Option<usize>,
    process: usize,
    label: u32,
    size: f64,
    record: RequestRecord,
    /// Retries by its own schedule, or of a client that is alone.
    retries: u32,
    calls: u32,
    first_call: u64,
    call: Option<Call>,
    /// It succeeded, or its client has gone.
    is_over: bool,
}

pub(super) enum Event {
    Next(usize),
    Submit(u32),
    Retry(usize),
    FirstByte(usize),
    End(usize),
    Failed(usize, Fault),
    Wake(usize),
    Look(usize),
    Exchange(usize, Box<Sync>),
    Reply(usize, Option<Box<SyncReply>>),
}

struct Scheduled(u64, u64, Event);

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        (self.0, self.1) == (other.0, other.1)
    }
}
impl Eq for Scheduled {}
impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.0, self.1).cmp(&(other.0, other.1))
    }
}

/// A run.
pub struct World {
    pub(super) now: u64,
    heap: BinaryHeap<Reverse<Scheduled>>,
    scheduled: u64,
    rng: Rng,
    /// The provider.
    pub provider: Provider,
    clients: Clients,
    strategy: Strategy,
    pub(super) store: Store,
    pub(super) processes: Vec<Process>,
    requests: Vec<Request>,
    /// Probes whose holder dies.
    pub dying_probes: u32,
    /// All calls, in order.
    pub calls: Vec<LoggedCall>,
    /// All successes, in order.
    pub successes: Vec<Success>,
}

impl World {
    /// Creates a run whose clients begin at random times within `spread` milliseconds.
    pub fn new(
        seed: u64,
        strategy: Strategy,
        provider: Provider,
        clients: Clients,
        spread: u64,
    ) -> Self {
        let (processes, latency) = match strategy {
            Strategy::Gate {
                processes,
                store_latency,
            } => (processes, store_latency),
            Strategy::Alone { .. } => (0, 0),
        };
        let mut world = Self {
            now: 0,
            heap: BinaryHeap::new(),
            scheduled: 0,
            rng: Rng::with_seed(seed),
            provider,
            clients,
            strategy,
            store: Store {
                gate: Gate::default(),
                latency,
                heartbeats: BTreeMap::new(),
                gone: 0..0,
                exchanges: 0,
            },
            processes: Vec::new(),
            requests: Vec::new(),
            dying_probes: 0,
            calls: Vec::new(),
            successes: Vec::new(),
        };
        for process in 0..processes {
            world.processes.push(Process {
                queue: ProcessQueue::new(Gate::default(), latency > 0),
                own_gate: None,
                wake: None,
            });
            if latency > 0 {
                let first = world.rng.u64(0..POLL_INTERVAL);
                world.at(first, Event::Look(process));
            }
        }
        for client in 0..world.clients.count {
            let at = world.rng.u64(0..=spread);
            world.at(at, Event::Next(client));
        }
        world
    }

    /// Submits a request with that label at that time.
    pub fn submit(&mut self, at: u64, label: u32) {
        self.at(at, Event::Submit(label));
    }

    /// Takes the store away for some time.
    pub fn lose_store(&mut self, period: Range<u64>) {
        self.store.gone = period;
    }

    /// Returns the shared gate.
    pub const fn gate(&self) -> &Gate {
        &self.store.gate
    }

    /// Returns the time, in milliseconds.
    pub const fn now(&self) -> u64 {
        self.now
    }

    /// Returns the number of exchanges with the store.
    pub const fn exchanges(&self) -> u64 {
        self.store.exchanges
    }

    /// Removes the requests that wait and arrived first, at most so many; returns their number.
    pub fn leave(&mut self, most: usize) -> usize {
        let mut left = 0;
        for id in 0..self.requests.len() {
            let request = &mut self.requests[id];
            if left < most && request.call.is_none() && !request.is_over {
                request.is_over = true;
                left += 1;
                let process = request.process;
                self.processes[process].queue.leave(id_of(id));
            }
        }
        left
    }

    /// Runs until that time.
    pub fn run(&mut self, until: u64) {
        self.run_while(until, |_| true);
    }

    /// Runs until that time, while the condition holds.
    pub fn run_while(&mut self, until: u64, goes_on: impl Fn(&Self) -> bool) {
        while goes_on(self)
            && let Some(Reverse(Scheduled(at, _, _))) = self.heap.peek()
            && *at <= until
        {
            if let Some(Reverse(Scheduled(at, _, event))) = self.heap.pop() {
                self.now = at;
                self.handle(event);
            }
        }
        if goes_on(self) {
            self.now = until;
        }
    }

    pub(super) fn at(&mut self, at: u64, event: Event) {
        self.scheduled += 1;
        let at = at.max(self.now);
        self.heap
            .push(Reverse(Scheduled(at, self.scheduled, event)));
    }

    pub(super) fn after(&mut self, delay: u64, event: Event) {
        self.at(self.now + delay, event);
    }

    pub(super) const fn time(&self) -> Timestamp {
        Timestamp::from_millis(self.now)
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Next(client) => self.next(client),
            Event::Submit(label) => self.arrive(None, label, 1.0),
            Event::Retry(id) => self.call(id, Pass::Open),
            Event::FirstByte(id) => self.first_byte(id),
            Event::End(id) => {
                if !self.clients.continues_at_first_byte {
                    self.rest(id);
                }
            }
            Event::Failed(id, fault) => self.fail(id, fault),
            Event::Wake(process) => {
                if self.processes[process].wake == Some(self.now) {
                    self.processes[process].wake = None;
                }
                self.poll(process);
            }
            Event::Look(process) => self.look(process),
            Event::Exchange(process, sync) => self.exchange(process, *sync),
            Event::Reply(process, reply) => self.reply(process, reply),
        }
    }
}

// --- Requests ---

impl World {
    fn next(&mut self, client: usize) {
        if let Some(left) = &mut self.clients.requests {
            if *left == 0 {
                return;
            }
            *left -= 1;
        }
        let size = self.clients.size(&mut self.rng);
        self.arrive(Some(client), 0, size);
    }

    fn arrive(&mut self, client: Option<usize>, label: u32, size: f64) {
        let id = self.requests.len();
        let process = client.unwrap_or(id) % self.processes.len().max(1);
        let record = RequestRecord::new(self.time());
        self.requests.push(Request {
            client,
            process,
            label,
            size,
            record,
            retries: 0,
            calls: 0,
            first_call: 0,
            call: None,
            is_over: false,
        });
        match self.strategy {
            Strategy::Alone { .. } => self.call(id, Pass::Open),
            Strategy::Gate { .. } => {
                let now = self.time();
                self.processes[process]
                    .queue
                    .arrive(id_of(id), &record, now);
                self.poll(process);
            }
        }
    }

    fn rest(&mut self, id: usize) {
        let Some(client) = self.requests[id].client else {
            return;
        };
        let pause = self.clients.pause * (0.5 + self.rng.f64());
        self.after(in_millis(pause), Event::Next(client));
    }

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
        request.call = Some(call);
        request.calls += 1;
        if request.calls == 1 {
            request.first_call = self.now;
        }
        let size = request.size;
        if let Some(process) = self.processes.get_mut(request.process) {
            process.queue.started(&call);
        }
        if matches!(pass, Pass::Probe { .. }) && self.dying_probes > 0 {
            self.dying_probes -= 1;
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

    fn first_byte(&mut self, id: usize) {
        let now = self.time();
        let request = &mut self.requests[id];
        request.is_over = true;
        self.successes.push(Success {
            at: self.now,
            arrived: request.record.arrived.as_millis(),
            first_call: request.first_call,
            calls: request.calls,
            label: request.label,
        });
        let process = request.process;
        if let (Some(call), Some(of)) = (request.call.take(), self.processes.get_mut(process)) {
            of.queue.succeeded(&call, now);
            self.poll(process);
        }
        if self.clients.continues_at_first_byte {
            self.rest(id);
        }
    }

    fn fail(&mut self, id: usize, fault: Fault) {
        let now = self.time();
        let stated = fault.stated.map(Timestamp::from_millis);
        let request = &mut self.requests[id];
        let Some(call) = request.call.take() else {
            return;
        };
        if let Strategy::Alone { retries } = self.strategy {
            let (delay, next) = Strategy::delay_alone(retries, request.retries, &mut self.rng);
            request.retries = next;
            let at = (self.now + delay).max(fault.stated.unwrap_or_default());
            return self.at(at, Event::Retry(id));
        }
        let process = request.process;
        let queue = &mut self.processes[process].queue;
        let failure = GateFailure {
            is_refusal: fault.kind == FaultKind::Refusal,
            stated,
            binds_account: fault.binds_account,
        };
        queue.failed(&call, &mut request.record, &failure, now);
        if let Pass::Probe { is_lone: false, .. } = call.pass {
            queue.requeue(call.request, &request.record, now);
        } else {
            let jitter = self.rng.f64();
            let quick = queue.quick_delay(&mut request.record, jitter, now);
            let delay = quick.unwrap_or_else(|| {
                let step = usize::try_from(request.retries).unwrap_or(usize::MAX);
                request.retries += 1;
                std::time::Duration::from_secs(SCHEDULE[step.min(SCHEDULE.len() - 1)])
            });
            queue.wait(call.request, &request.record, now + delay, stated, now);
        }
        self.poll(process);
    }
}

fn id_of(index: usize) -> RequestId {
    RequestId(u64::try_from(index).unwrap_or(u64::MAX))
}

pub(super) fn index_of(id: RequestId) -> usize {
    usize::try_from(id.0).unwrap_or(usize::MAX)
}
