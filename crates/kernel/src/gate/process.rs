//! The requests of one process that wait for one gate, and the times at which the process and the gate exchange news.
//!
//! The host calls a method for every event, then [`ProcessQueue::poll`], carries out the actions, and polls again at
//! [`ProcessQueue::next_wake`]. Invariants: requests start in order of arrival; at most one exchange is under way; a request
//! that was told a time of its own does not start before it.
//! Long because the requests, the exchange and the time of the one queue stand together.

use super::evidence::{
    Call, Evidence, GateFailure, Pass, Report, RequestId, RequestRecord, Urgency,
};
use super::grant::{Candidate, Grant, QueueSummary};
use super::{Gate, Mode, rules};
use crate::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// A process learns of changes within this time, and reports failures at most this often.
const EXCHANGE_INTERVAL: Duration = Duration::from_secs(1);
/// Successes are reported this often.
const SUMMARY_INTERVAL: Duration = Duration::from_secs(5);
/// Results of paced calls are reported this often.
const PACED_INTERVAL: Duration = Duration::from_millis(250);

const FIRST_QUICK_DELAY: Duration = Duration::from_millis(500);
const MAX_QUICK_DELAY: Duration = Duration::from_secs(8);
/// The time for which a success of another request shows that others succeed.
const RECENT_SUCCESS: Duration = Duration::from_secs(30);

/// Something that the host must do.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Make a call for the request.
    Start(RequestId, Pass),
    /// Exchange news with the shared gate, and pass the reply to [`ProcessQueue::synced`].
    Sync(Box<Sync>),
}

/// The news of a process for the shared gate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sync {
    /// Everything that happened since the last exchange.
    pub report: Report,
    /// The queue of the process; the host fills in that of the fleet.
    pub queue: QueueSummary,
}

/// The reply to a [`Sync`].
#[derive(Clone, Debug, PartialEq)]
pub struct SyncReply {
    /// The gate after the exchange.
    pub gate: Gate,
    /// The permission for the queue.
    pub grant: Option<Grant>,
    /// The time at which the oldest ready request of all processes arrived.
    pub fleet_oldest: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    arrived: Timestamp,
    /// The time of its own schedule.
    own_wake: Timestamp,
    stated: Option<Timestamp>,
    failed_probes: u32,
    /// The time at which its wait began.
    since: Timestamp,
    /// The time since which it is ready; `None` while it sleeps.
    ready_since: Option<Timestamp>,
}

/// The queue of one process for one gate.
#[derive(Clone, Debug)]
pub struct ProcessQueue {
    gate: Gate,
    evidence: Evidence,
    /// Whether other processes share the gate; if not, an exchange costs nothing.
    is_shared: bool,
    waiting: BTreeMap<RequestId, Waiting>,
    ready: BTreeSet<(Timestamp, RequestId)>,
    asleep: BTreeSet<(Timestamp, RequestId)>,
    /// The sleepers since whose failure no call of another request is known to have begun and succeeded, by that time.
    unrefuted: BTreeSet<(Timestamp, RequestId)>,
    /// The number of sleeps that the success of another request has shortened, of each request.
    shortened: BTreeMap<RequestId, u32>,
    /// The number of shortened sleeps of all requests.
    shortened_sleeps: u64,
    slots: VecDeque<(Timestamp, f64)>,
    /// Requests without a result, waiting or under way.
    alive: u32,
    fleet_oldest: Option<Timestamp>,
    sync_due: Option<Timestamp>,
    is_syncing: bool,
    last_sync: Timestamp,
    last_summary: Timestamp,
    /// The number of ready requests that other processes know of.
    reported: u32,
}

impl ProcessQueue {
    /// Creates the queue of a process that sees this gate.
    pub fn new(gate: Gate, is_shared: bool) -> Self {
        Self {
            gate,
            evidence: Evidence::default(),
            is_shared,
            waiting: BTreeMap::new(),
            ready: BTreeSet::new(),
            asleep: BTreeSet::new(),
            unrefuted: BTreeSet::new(),
            shortened: BTreeMap::new(),
            shortened_sleeps: 0,
            slots: VecDeque::new(),
            alive: 0,
            fleet_oldest: None,
            sync_due: None,
            is_syncing: false,
            last_sync: Timestamp::default(),
            last_summary: Timestamp::default(),
            reported: 0,
        }
    }

    /// Returns the gate as this process last saw it.
    pub const fn gate(&self) -> &Gate {
        &self.gate
    }

    /// Returns the number of ready requests.
    pub fn ready_count(&self) -> u32 {
        count(self.ready.len())
    }

    /// Returns the number of sleeps that the success of another request has shortened so far.
    pub const fn shortened_sleeps(&self) -> u64 {
        self.shortened_sleeps
    }

    /// Returns whether nothing is under way or due, so that the queue need not be kept.
    pub fn is_idle(&self) -> bool {
        self.alive == 0 && !self.is_syncing && self.sync_due.is_none()
    }

    /// Returns whether other processes share the gate.
    pub const fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// Sets whether other processes share the gate: no while the store is gone.
    pub const fn set_shared(&mut self, is_shared: bool) {
        self.is_shared = is_shared;
    }

    /// The store is there again: exchange news with it at once.
    pub fn rejoin(&mut self, now: Timestamp) {
        self.is_shared = true;
        self.plan_sync(now);
    }
}

// --- Requests ---

impl ProcessQueue {
    /// A request arrives; it is ready at once.
    pub fn arrive(&mut self, id: RequestId, record: &RequestRecord, now: Timestamp) {
        self.alive += 1;
        self.requeue(id, record, now);
    }

    /// A request arrives while everybody may call, and starts at once; returns `None` if it has to queue.
    pub fn arrive_open(&mut self, now: Timestamp) -> Option<Pass> {
        if !self.gate.is_open(now) || !self.ready.is_empty() {
            return None;
        }
        self.alive += 1;
        Some(Pass::Open)
    }

    /// A request arrives that waits already: an earlier process began it.
    pub fn arrive_waiting(
        &mut self,
        id: RequestId,
        record: &RequestRecord,
        own_wake: Timestamp,
        stated: Option<Timestamp>,
        now: Timestamp,
    ) {
        self.alive += 1;
        self.wait(id, record, own_wake, stated, now);
    }

    /// The own wait of a request is over, whatever this queue's clock says.
    pub fn wake(&mut self, id: RequestId, now: Timestamp) {
        let asleep = self.waiting.get(&id).filter(|it| it.ready_since.is_none());
        if asleep.is_some() {
            self.make_ready(id, now);
        }
    }

    /// Returns the time at which a waiting request may be expected to start, as far as that is known: its own time, the
    /// next probe, or its turn in the queue.
    pub fn expected_start(&self, id: RequestId, now: Timestamp) -> Option<Timestamp> {
        let waiting = self.waiting.get(&id)?;
        let own = match waiting.ready_since {
            Some(_) => now,
            None => wake_of(waiting),
        };
        if let Some((_, probe_at)) = self.gate.outage() {
            return Some(own.max(probe_at));
        }
        match (self.gate.rate(), self.ahead_of(waiting.arrived, id)) {
            (Some(rate), ahead) => Some(own + Duration::from_secs_f64(f64::from(ahead) / rate)),
            (None, _) => Some(own.max(self.gate.not_before())),
        }
    }

    /// Returns the number of ready requests that arrived before this one; in a long queue by their times alone.
    fn ahead_of(&self, arrived: Timestamp, id: RequestId) -> u32 {
        const MAX_COUNTED: usize = 256;
        let before = self.ready.range(..(arrived, id)).take(MAX_COUNTED).count();
        let (Some(first), Some(last)) = (self.ready.first(), self.ready.last()) else {
            return 0;
        };
        let span = last.0.since(first.0).as_secs_f64();
        if before < MAX_COUNTED || span <= 0.0 {
            return count(before);
        }
        let part = arrived.since(first.0).as_secs_f64() / span;
        let ahead = Duration::from_secs(u64::from(self.ready_count())).mul_f64(part.min(1.0));
        u32::try_from(ahead.as_secs()).unwrap_or(u32::MAX)
    }

    /// A request waits until the time of its own schedule, or until the stated time if that is later. While the gate is
    /// down, there is no own schedule. A request that waits already waits by the new times.
    pub fn wait(
        &mut self,
        id: RequestId,
        record: &RequestRecord,
        own_wake: Timestamp,
        stated: Option<Timestamp>,
        now: Timestamp,
    ) {
        let waiting = Waiting {
            arrived: record.arrived,
            own_wake,
            stated,
            failed_probes: record.failed_probes,
            since: now,
            ready_since: None,
        };
        self.remove(id);
        self.waiting.insert(id, waiting);
        self.unrefuted.insert((now, id));
        self.asleep.insert((wake_of(&waiting), id));
        if self.gate.mode() == Mode::Down && stated.is_none_or(|stated| stated <= now) {
            self.make_ready(id, now);
        }
    }

    /// A request that waits is to start at once, whatever the gate says.
    pub fn release(&mut self, id: RequestId) -> bool {
        self.remove(id).is_some()
    }

    /// A request ends before its success.
    pub fn leave(&mut self, id: RequestId) {
        self.remove(id);
        self.shortened.remove(&id);
        self.alive = self.alive.saturating_sub(1);
        self.look_again();
    }

    /// A call began.
    pub fn started(&mut self, call: &Call) {
        self.evidence.started(call);
    }

    /// A call succeeded: the first byte of a good response arrived. Its request waits no more.
    pub fn succeeded(&mut self, call: &Call, now: Timestamp) {
        self.alive = self.alive.saturating_sub(1);
        self.shortened.remove(&call.request);
        self.shorten_sleeps(call.began, now);
        let urgency = self.evidence.succeeded(call, &self.gate, now);
        self.plan_report(urgency, matches!(call.pass, Pass::Paced(_)), now);
    }

    /// A call failed. Its request then waits by its schedule, or leaves; after a probe for all, it is queued again.
    pub fn failed(
        &mut self,
        call: &Call,
        record: &mut RequestRecord,
        failure: &GateFailure,
        now: Timestamp,
    ) {
        let urgency = self.evidence.failed(call, record, failure, &self.gate, now);
        if failure.binds_account {
            // Nobody of this process calls until the others know.
            self.gate.bind(failure.stated.unwrap_or_default());
        }
        self.plan_report(urgency, matches!(call.pass, Pass::Paced(_)), now);
    }

    /// Puts a request whose probe for all failed back into its place.
    pub fn requeue(&mut self, id: RequestId, record: &RequestRecord, now: Timestamp) {
        self.wait(id, record, now, None, now);
        self.make_ready(id, now);
    }

    /// A call was given up, or its result says nothing about the provider.
    pub fn abandoned(&mut self, call: &Call, now: Timestamp) {
        let urgency = self.evidence.abandoned(call);
        self.plan_report(urgency, false, now);
    }

    /// Returns the delay before a quick retry, and counts it; `None` if the request has to follow its own schedule, or the
    /// gate is down.
    /// `jitter` is between 0 and 1.
    pub fn quick_delay(
        &self,
        record: &mut RequestRecord,
        jitter: f64,
        now: Timestamp,
    ) -> Option<Duration> {
        if self.gate.mode() == Mode::Down {
            return None;
        }
        let last = self.evidence.last_success()?;
        let is_recent = self.alive > 1 && now.since(last) < RECENT_SUCCESS;
        let limit = rules::streak_limit(self.gate.success_share());
        if f64::from(record.quick_retries) >= limit || !(last >= record.arrived || is_recent) {
            return None;
        }
        let doubled = FIRST_QUICK_DELAY * (1 << record.quick_retries.min(4));
        record.quick_retries += 1;
        Some(doubled.min(MAX_QUICK_DELAY).mul_f64(1.0 - jitter / 4.0))
    }

    /// A call that began at that time has succeeded: a request that has failed before need not sleep for minutes. One that
    /// fails again and again all the same keeps its own schedule.
    fn shorten_sleeps(&mut self, success_began: Timestamp, now: Timestamp) {
        while let Some((since, id)) = self.unrefuted.first().copied()
            && since < success_began
        {
            self.unrefuted.pop_first();
            let Some(waiting) = self.waiting.get_mut(&id) else {
                continue;
            };
            let wake = (since + rules::MAX_SLEEP_WHILE_OTHERS_SUCCEED).max(now);
            let shortened = self.shortened.entry(id).or_default();
            let is_earlier = wake.max(waiting.stated.unwrap_or_default()) < wake_of(waiting);
            if !is_earlier || *shortened >= rules::MAX_SHORTENED_SLEEPS {
                continue;
            }
            *shortened += 1;
            self.shortened_sleeps += 1;
            self.asleep.remove(&(wake_of(waiting), id));
            waiting.own_wake = wake;
            self.asleep.insert((wake_of(waiting), id));
        }
    }

    fn make_ready(&mut self, id: RequestId, now: Timestamp) {
        let Some(waiting) = self.waiting.get_mut(&id) else {
            return;
        };
        self.asleep.remove(&(wake_of(waiting), id));
        self.unrefuted.remove(&(waiting.since, id));
        waiting.ready_since = Some(now);
        self.ready.insert((waiting.arrived, id));
        if !self.gate.is_open(now) && self.slots.is_empty() {
            let earliest = match self.is_shared && self.sync_due.is_some() {
                true => self.last_sync + EXCHANGE_INTERVAL,
                false => now,
            };
            self.plan_sync(earliest.max(now));
        }
    }

    fn remove(&mut self, id: RequestId) -> Option<Waiting> {
        let waiting = self.waiting.remove(&id)?;
        self.asleep.remove(&(wake_of(&waiting), id));
        self.unrefuted.remove(&(waiting.since, id));
        self.ready.remove(&(waiting.arrived, id));
        Some(waiting)
    }
}

// --- Exchange with the shared gate ---

impl ProcessQueue {
    fn plan_sync(&mut self, at: Timestamp) {
        self.sync_due = Some(self.sync_due.map_or(at, |due| due.min(at)));
    }

    /// The reason for a planned exchange may be gone, or a new one come.
    fn look_again(&mut self) {
        let has_left = self.is_shared && self.ready.is_empty() && self.reported > 0;
        if has_left || (!self.ready.is_empty() && self.slots.is_empty()) {
            self.plan_sync(self.last_sync + EXCHANGE_INTERVAL);
        }
    }

    fn plan_report(&mut self, urgency: Urgency, is_paced: bool, now: Timestamp) {
        let at = match urgency {
            Urgency::Now => now,
            Urgency::Soon if is_paced && !self.is_shared => now,
            Urgency::Soon if is_paced => self.last_sync + PACED_INTERVAL,
            Urgency::Soon => self.last_sync + EXCHANGE_INTERVAL,
            Urgency::Low => self.last_summary + SUMMARY_INTERVAL,
        };
        self.plan_sync(at.max(now));
    }

    fn sync(&mut self, now: Timestamp) -> Sync {
        (self.is_syncing, self.sync_due, self.last_sync) = (true, None, now);
        if self.evidence.has_successes() {
            self.last_summary = now;
        }
        let mut report = self.evidence.take_report(now);
        let oldest = self.ready.first().and_then(|(_, id)| self.waiting.get(id));
        let ready_since = oldest.and_then(|waiting| waiting.ready_since);
        report.waited = ready_since.map_or(0.0, |since| now.since(since).as_secs_f64());
        let is_lone = self.waiting.len() == 1;
        self.reported = self.ready_count();
        let queue = QueueSummary {
            waiting: self.ready_count(),
            wanted: self.wanted(),
            oldest: oldest.map(|waiting| waiting.arrived),
            lone_wake: oldest.filter(|_| is_lone).map(|waiting| waiting.own_wake),
            fleet_waiting: self.ready_count(),
            fleet_oldest: oldest.map(|waiting| waiting.arrived),
        };
        Sync { report, queue }
    }

    /// Requests that are much younger than the oldest of all wait for it.
    fn wanted(&self) -> u32 {
        if !self.slots.is_empty() || self.ready.is_empty() {
            return 0;
        }
        match self.fleet_oldest.filter(|_| self.is_shared) {
            Some(oldest) => {
                let latest = oldest + rules::MAX_OVERTAKING;
                count(self.ready.range(..=(latest, RequestId(u64::MAX))).count()).max(1)
            }
            None => self.ready_count(),
        }
    }

    /// Learns the gate's state from somewhere else than an exchange.
    pub fn observe(&mut self, gate: Gate, now: Timestamp) {
        let was = self.gate.mode();
        self.gate = gate;
        let mode = self.gate.mode();
        self.evidence
            .observe(&self.gate, was == Mode::Down && mode != Mode::Down);
        if mode == Mode::Down && was != Mode::Down {
            self.slots.clear();
            self.wake_sleepers(now);
        }
        if let Some(began) = self.gate.last_success_began() {
            self.shorten_sleeps(began, now);
        }
        if mode != Mode::Paced {
            self.slots.clear();
        }
        if mode != was && !self.ready.is_empty() {
            self.plan_sync(now);
        }
    }

    /// The own schedules end when the gate goes down; only stated times of a request keep it from the queue.
    fn wake_sleepers(&mut self, now: Timestamp) {
        let ids: Vec<RequestId> = self.asleep.iter().map(|(_, id)| *id).collect();
        for id in ids {
            let stated = self.waiting.get(&id).and_then(|waiting| waiting.stated);
            if stated.is_none_or(|stated| stated <= now) {
                self.make_ready(id, now);
            }
        }
    }

    /// Takes the reply of an exchange.
    pub fn synced(&mut self, reply: SyncReply, now: Timestamp) -> Vec<Action> {
        self.is_syncing = false;
        self.fleet_oldest = reply.fleet_oldest;
        self.observe(reply.gate, now);
        let mut actions = Vec::new();
        match reply.grant {
            None | Some(Grant::Open) => {}
            Some(Grant::Probe(lease, candidate)) => {
                match self.candidate(candidate) {
                    Some(id) => {
                        self.remove(id);
                        let is_lone = candidate == Candidate::Lone;
                        actions.push(Action::Start(id, Pass::Probe { lease, is_lone }));
                    }
                    None => {
                        self.evidence.probe_abandoned(lease);
                        self.plan_sync(now);
                    }
                }
                self.ask_again(now + rules::PROBE_LEASE, now);
            }
            Some(Grant::Slots(slots)) => {
                self.slots
                    .extend(slots.times().map(|time| (time, slots.rate)));
            }
            Some(Grant::Hold(until)) => self.ask_again(until, now),
        }
        if self.is_shared && self.evidence.has_paced_results() {
            self.plan_sync(now + PACED_INTERVAL);
        }
        actions
    }

    fn ask_again(&mut self, at: Timestamp, now: Timestamp) {
        let may_change_early = self.is_shared || self.gate.mode() == Mode::Paced;
        let soon = now + EXCHANGE_INTERVAL;
        let at = if may_change_early { at.min(soon) } else { at };
        if !self.ready.is_empty() {
            self.plan_sync(at.max(now));
        }
    }

    fn candidate(&self, candidate: Candidate) -> Option<RequestId> {
        let oldest = self.ready.first().map(|(_, id)| *id);
        match candidate {
            Candidate::Oldest | Candidate::Lone => oldest,
            Candidate::LeastProbed => {
                let probes = |id: &RequestId| self.waiting.get(id).map(|it| it.failed_probes);
                let ids = self.ready.iter().map(|(_, id)| *id);
                ids.min_by_key(probes)
            }
        }
    }
}

// --- Time ---

impl ProcessQueue {
    /// Returns the next time at which something is due.
    pub fn next_wake(&self) -> Option<Timestamp> {
        let asleep = self.asleep.first().map(|(wake, _)| *wake);
        let slot = self.slots.front().map(|(time, _)| *time);
        let sync = self.sync_due.filter(|_| !self.is_syncing);
        [asleep, slot, sync].into_iter().flatten().min()
    }

    /// Does everything that is due, and returns the actions for the host.
    pub fn poll(&mut self, now: Timestamp) -> Vec<Action> {
        // A little less is the time of another thread.
        if now + EXCHANGE_INTERVAL < self.last_sync {
            self.follow_clock_back(now);
        }
        while let Some((wake, id)) = self.asleep.first().copied()
            && wake <= now
        {
            self.make_ready(id, now);
        }
        let mut actions = self.use_slots(now);
        if self.gate.is_open(now) {
            while let Some((_, id)) = self.ready.pop_first() {
                self.waiting.remove(&id);
                actions.push(Action::Start(id, Pass::Open));
            }
        }
        if !self.is_syncing && self.sync_due.is_some_and(|due| due <= now) {
            actions.push(Action::Sync(Box::new(self.sync(now))));
        }
        actions
    }

    /// The clock was set back: nothing is due later than it would have been.
    fn follow_clock_back(&mut self, now: Timestamp) {
        self.last_sync = now;
        self.last_summary = self.last_summary.min(now);
        self.sync_due = self.sync_due.map(|_| now);
        self.slots.clear();
        self.gate = std::mem::take(&mut self.gate).with_times_clamped(now);
        self.look_again();
    }

    fn use_slots(&mut self, now: Timestamp) -> Vec<Action> {
        let mut actions = Vec::new();
        while let Some((time, rate)) = self.slots.front().copied()
            && time <= now
        {
            self.slots.pop_front();
            if let Some((_, id)) = self.ready.pop_first() {
                self.waiting.remove(&id);
                actions.push(Action::Start(id, Pass::Paced(rate)));
            }
            if self.slots.is_empty() {
                self.plan_sync(now);
            }
        }
        actions
    }
}

/// Returns whether the expected time of an attempt has moved so far that listeners should learn of it: by more than a second,
/// and by more than a tenth of the wait.
pub fn has_moved(known: Timestamp, expected: Timestamp, now: Timestamp) -> bool {
    let moved = known.since(expected).max(expected.since(known));
    let left = known.since(now).max(expected.since(now));
    moved > Duration::from_secs(1) && moved > left / 10
}

fn wake_of(waiting: &Waiting) -> Timestamp {
    waiting.own_wake.max(waiting.stated.unwrap_or_default())
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
