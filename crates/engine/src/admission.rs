//! Admission: the requests of this process before the gates that they share with other processes.
//!
//! Each gate has one kernel queue (`ProcessQueue`) here, and one task while something is due: it starts requests when their
//! time has come and exchanges news with the store. A waiting request costs an entry in that queue, no timer and no access
//! to the store. Without a store, the gate is this process's own.
//!
//! Invariants: a call is made with a pass, and its result is reported once; a dropped request leaves the queue and counts
//! as given up. Not here: the rules (see the kernel's `gate`), one request (see `request`), the connection to the store (see
//! `shared_state`).

mod request;

pub use request::GateRequest;

use crate::Clock;
use crate::shared_state::{GateLink, GateStatus};
use outlast_kernel::Timestamp;
use outlast_kernel::gate::{Action, Gate, Mode, Pass, ProcessQueue, ProcessView, RequestId, Sync};
use outlast_kernel::verdict::Cause;
use outlast_store::GateSnapshot;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::task::Waker;
use std::time::Duration;
use tokio::sync::{Notify, watch};

/// More gates than this are forgotten as soon as nothing is under way at them.
const MAX_IDLE_GATES: usize = 1024;
/// A gate is shown as failing for this long after the last failure.
const RECENT_FAILURE: Duration = Duration::from_secs(60);
/// The share of failures is shown from this number of calls on.
const MIN_SHOWN_CALLS: f64 = 10.0;
/// While a queue moves, its waiting requests learn of new times this often.
const ANNOUNCE_INTERVAL: Duration = Duration::from_secs(5);

/// The requests of a process before all gates.
pub(crate) struct Admission {
    clock: Arc<dyn Clock>,
    link: GateLink,
    gates: Mutex<HashMap<Arc<str>, Arc<GateHost>>>,
    requests: AtomicU64,
}

/// One gate as this process sees it.
pub(crate) struct GateHost {
    key: Arc<str>,
    clock: Arc<dyn Clock>,
    link: GateLink,
    state: Mutex<HostState>,
    /// Wakes the task when something is due earlier than it knows.
    earlier: Notify,
    /// Counts the changes that move the times of waiting requests.
    changes: watch::Sender<u64>,
}

struct HostState {
    view: ProcessView,
    /// Requests that wait for their pass.
    slots: HashMap<RequestId, PassSlot>,
    exchange: Option<Sync>,
    is_exchanging: bool,
    has_task: bool,
    sleeps_until: Timestamp,
    cause: Option<Cause>,
    /// Whether the store does not know that cause yet.
    is_cause_new: bool,
    recent: RecentCalls,
    /// The last values that were announced to waiting requests, and the time of it.
    told: (StartFactors, Timestamp),
}

/// The values on which the times of waiting requests depend.
#[derive(Clone, Copy, PartialEq, Eq)]
struct StartFactors {
    mode: Mode,
    probe_at: Option<Timestamp>,
    shortened_sleeps: u64,
}

impl StartFactors {
    fn of(queue: &ProcessQueue) -> Self {
        let gate = queue.gate();
        Self {
            mode: gate.mode(),
            probe_at: gate.outage().map(|(_, probe_at)| probe_at),
            shortened_sleeps: queue.shortened_sleeps(),
        }
    }
}

#[derive(Default)]
struct PassSlot {
    pass: Option<Pass>,
    waker: Option<Waker>,
}

/// The recent calls of this process while everybody may call, for people only.
#[derive(Clone, Copy, Default)]
struct RecentCalls {
    calls: f64,
    failed: f64,
    last_failed: Option<Timestamp>,
}

impl RecentCalls {
    /// Counts a call. The older a call is, the less it counts.
    fn count(&mut self, has_failed: bool, now: Timestamp) {
        const KEPT: f64 = 1.0 - 1.0 / 256.0;
        self.calls = self.calls * KEPT + 1.0;
        self.failed = self.failed * KEPT + f64::from(u8::from(has_failed));
        if has_failed {
            self.last_failed = Some(now);
        }
    }

    fn failed_share(&self, now: Timestamp) -> Option<f64> {
        let is_late = |failed: Timestamp| now.since(failed) <= RECENT_FAILURE;
        let is_failing = self.last_failed.is_some_and(is_late) && self.calls >= MIN_SHOWN_CALLS;
        is_failing.then(|| self.failed / self.calls)
    }
}

impl Admission {
    pub(crate) fn new(clock: Arc<dyn Clock>, link: GateLink) -> Self {
        Self {
            clock,
            link,
            gates: Mutex::default(),
            requests: AtomicU64::new(0),
        }
    }

    fn host(&self, key: &str) -> Arc<GateHost> {
        let mut gates = self.gates.lock();
        if let Some(host) = gates.get(key) {
            return Arc::clone(host);
        }
        if gates.len() >= MAX_IDLE_GATES {
            gates.retain(|_, host| Arc::strong_count(host) > 1 || !host.is_idle());
        }
        let key: Arc<str> = key.into();
        let is_shared = self.link.is_connected();
        let gate = self
            .link
            .known(&key)
            .map_or_else(Gate::default, |(gate, _)| gate);
        let host = Arc::new(GateHost::new(Arc::clone(&key), self, gate, is_shared));
        gates.insert(key, Arc::clone(&host));
        host
    }

    fn hosts(&self) -> Vec<Arc<GateHost>> {
        self.gates.lock().values().cloned().collect()
    }

    /// Takes over gates as the store has them.
    pub(crate) fn observe(&self, gates: &HashMap<String, GateSnapshot>) {
        for host in self.hosts() {
            if let Some(known) = gates.get(&*host.key) {
                host.observe(&known.gate);
            }
        }
    }

    /// The store is there again: every gate exchanges news with it.
    pub(crate) fn rejoin(&self) {
        for host in self.hosts() {
            host.update(|state, now| state.view.queue.rejoin(now));
        }
    }

    /// Forgets everything that is known of the gates with these keys, and returns the keys.
    pub(crate) fn forget(&self, is_meant: impl Fn(&str) -> bool) -> Vec<String> {
        let meant = self.hosts().into_iter().filter(|host| is_meant(&host.key));
        let forgotten = meant.map(|host| {
            host.update(|state, now| {
                let forgotten = state.view.queue.gate().forgotten();
                state.view.queue.observe(forgotten, now);
            });
            host.key.to_string()
        });
        forgotten.collect()
    }

    /// Returns the gates of this process, in no order and without their summaries.
    pub(crate) fn views(&self) -> Vec<GateStatus> {
        self.hosts().iter().map(|host| host.view()).collect()
    }
}

// --- One gate ---

impl GateHost {
    fn new(key: Arc<str>, admission: &Admission, gate: Gate, is_shared: bool) -> Self {
        let view = ProcessView::new(gate, is_shared);
        let told = (StartFactors::of(&view.queue), Timestamp::default());
        Self {
            key,
            clock: Arc::clone(&admission.clock),
            link: admission.link.clone(),
            state: Mutex::new(HostState {
                view,
                slots: HashMap::new(),
                exchange: None,
                is_exchanging: false,
                has_task: false,
                sleeps_until: Timestamp::default(),
                cause: None,
                is_cause_new: false,
                recent: RecentCalls::default(),
                told,
            }),
            earlier: Notify::new(),
            changes: watch::Sender::new(0),
        }
    }

    fn is_idle(&self) -> bool {
        let state = self.state.lock();
        state.view.queue.is_idle() && state.view.queue.gate().mode() == Mode::Flowing
    }

    fn view(&self) -> GateStatus {
        let state = self.state.lock();
        GateStatus {
            name: self.key.to_string(),
            gate: state.view.queue.gate().clone(),
            cause: state.cause,
            waiting: state.view.queue.ready_count().into(),
            failed_share: state.recent.failed_share(self.clock.now()),
            summary: String::new(),
        }
    }

    /// Changes the queue in a way that makes nothing due.
    fn change<R>(&self, change: impl FnOnce(&mut HostState, Timestamp) -> R) -> R {
        let mut state = self.state.lock();
        let now = self.clock.now();
        change(&mut state, now)
    }

    /// Changes the queue, and carries out everything that is due.
    fn update<R>(self: &Arc<Self>, change: impl FnOnce(&mut HostState, Timestamp) -> R) -> R {
        let mut state = self.state.lock();
        let now = self.clock.now();
        let result = change(&mut state, now);
        self.carry_out(&mut state, now);
        result
    }

    fn carry_out(self: &Arc<Self>, state: &mut HostState, now: Timestamp) {
        let actions = state.view.poll(now);
        state.perform(actions);
        self.tell_waiting(state, now);
        // Without a runtime nobody waits any more.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        if let Some(sync) = state.exchange.take() {
            state.is_exchanging = true;
            runtime.spawn(Arc::clone(self).exchange(sync));
        }
        let Some(next) = state.view.queue.next_wake() else {
            return;
        };
        if !state.has_task {
            (state.has_task, state.sleeps_until) = (true, next);
            runtime.spawn(Arc::clone(self).run());
        } else if next < state.sleeps_until {
            state.sleeps_until = next;
            self.earlier.notify_one();
        }
    }

    /// Tells waiting requests that their times have moved.
    fn tell_waiting(&self, state: &mut HostState, now: Timestamp) {
        let news = StartFactors::of(&state.view.queue);
        let (told, told_at) = state.told;
        let moves = news.mode == Mode::Paced && now.since(told_at) >= ANNOUNCE_INTERVAL;
        if told != news || moves {
            state.told = (news, now);
            self.changes
                .send_modify(|count| *count = count.wrapping_add(1));
        }
    }

    /// Takes over the gate as the store has it, unless this process has seen a newer one.
    fn observe(self: &Arc<Self>, gate: &Gate) {
        self.update(|state, now| {
            let is_known = gate.version() < state.view.queue.gate().version();
            if state.view.queue.is_shared() && !state.is_exchanging && !is_known {
                state.view.queue.observe(gate.clone(), now);
            }
        });
    }

    /// Sleeps until something is due, again and again, until nothing is left to do.
    async fn run(self: Arc<Self>) {
        loop {
            let wake = {
                let mut state = self.state.lock();
                let now = self.clock.now();
                self.carry_out(&mut state, now);
                let Some(wake) = state.view.queue.next_wake() else {
                    state.has_task = false;
                    return;
                };
                state.sleeps_until = wake;
                wake
            };
            tokio::select! {
                () = self.clock.sleep_until(wake) => {}
                () = self.earlier.notified() => {}
            }
        }
    }

    /// Exchanges news with the store; without it, the process goes on with a gate of its own.
    async fn exchange(self: Arc<Self>, sync: Sync) {
        let (cause, own_gate) = {
            let mut state = self.state.lock();
            let is_new = std::mem::take(&mut state.is_cause_new);
            (state.cause.filter(|_| is_new), state.view.own_gate())
        };
        let news = sync.clone();
        let exchanged = self.link.exchange(&self.key, news, cause, own_gate).await;
        self.update(|state, now| {
            state.is_exchanging = false;
            // The process brings it along when the store is there again.
            state.is_cause_new |= exchanged.is_none() && cause.is_some();
            let actions = state.view.exchanged(&sync, exchanged, now);
            state.perform(actions);
        });
    }
}

impl HostState {
    fn count_recent(&mut self, has_failed: bool, now: Timestamp) {
        if self.view.queue.gate().mode() == Mode::Flowing {
            self.recent.count(has_failed, now);
        }
    }

    fn perform(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Start(id, pass) => {
                    let slot = self.slots.entry(id).or_default();
                    slot.pass = Some(pass);
                    if let Some(waker) = slot.waker.take() {
                        waker.wake();
                    }
                }
                Action::Sync(sync) => self.exchange = Some(*sync),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::TimerClock;
    use crate::shared_state::SharedState;
    use outlast_kernel::verdict::{Scope, Verdict};

    #[tokio::test(start_paused = true)]
    async fn gate_with_some_failures_is_shown_for_a_minute() {
        let clock = Arc::new(TimerClock::new(Timestamp::from_millis(1_000_000)));
        let shared_state = SharedState::process_local(clock.clone());
        for number in 0..100 {
            let mut request = shared_state.request("p@/a/m", clock.now());
            assert!(request.enter());
            request.begin();
            match number % 10 {
                5 => request.failed(&Verdict::new(Cause::Overloaded, Scope::Provider)),
                _ => request.succeeded(),
            }
        }
        let shown = shared_state.failing_gates();
        let summaries: Vec<&str> = shown.iter().map(|gate| gate.summary.as_str()).collect();
        assert_eq!(summaries, ["10 % of calls fail; not waiting for others"]);
        clock.sleep_until(clock.now() + RECENT_FAILURE * 2).await;
        assert!(shared_state.failing_gates().is_empty());
    }
}
