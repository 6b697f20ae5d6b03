//! Gates from outside: several processes that share one file, clocks that are set back, and rows that cannot be read.

use super::{File, at, usage_limit};
use outlast_kernel::Timestamp;
use outlast_kernel::gate::{
    Action, Call, Gate, GateFailure, Mode, Pass, ProcessQueue, QueueSummary, Report, RequestId,
    RequestRecord, Sync, SyncReply,
};
use outlast_kernel::verdict::Cause;
use outlast_store::{Error, GateExchange, GateSnapshot, PermitReply, PermitRequest, Store};
use std::collections::BTreeMap;
use std::time::Duration;

pub(crate) const KEY: &str = "p@/a/m";
/// Enough requests and failures to take a gate down of which nothing is known.
const REQUESTS: u64 = 5;
const FAILURES_EACH: u64 = 5;
/// The longest time between two probes, with the lease of one.
const PROBE_PERIOD: u64 = 38;

const OVERLOADED: GateFailure = GateFailure {
    is_refusal: false,
    stated: None,
    binds_account: false,
};

/// A process with requests before one gate.
pub(crate) struct Process {
    name: &'static str,
    store: Store,
    queue: ProcessQueue,
    records: BTreeMap<RequestId, RequestRecord>,
    calls: BTreeMap<RequestId, Call>,
    /// The cause of a failure that the store does not know yet.
    cause: Option<Cause>,
    /// The number of processes that share the gate, as the store counted them last.
    processes: u32,
    fleet_oldest: Option<Timestamp>,
}

impl Process {
    pub(crate) fn new(name: &'static str, store: Store) -> Self {
        Self {
            name,
            store,
            queue: ProcessQueue::new(Gate::default(), true),
            records: BTreeMap::new(),
            calls: BTreeMap::new(),
            cause: None,
            processes: 0,
            fleet_oldest: None,
        }
    }

    /// A process with requests that see this gate, and are queued before it.
    async fn waiting(
        name: &'static str,
        store: &Store,
        requests: impl IntoIterator<Item = u64>,
        now: Timestamp,
    ) -> Self {
        let mut process = Self::new(name, store.clone());
        process.queue.observe(gate(store, now).await, now);
        for request in requests {
            process.arrive(request, now);
        }
        process.settle(now).await;
        process
    }

    fn arrive(&mut self, request: u64, now: Timestamp) {
        let (id, record) = (RequestId(request), RequestRecord::new(now));
        self.records.insert(id, record);
        self.queue.arrive(id, &record, now);
    }

    async fn exchange(&self, sync: Sync, now: Timestamp) -> Reply {
        let exchange = GateExchange {
            key: KEY.to_owned(),
            process: self.name.to_owned(),
            sync,
            cause: self.cause,
            own_gate: None,
        };
        self.store.sync_gate(exchange, now).await
    }

    /// Does everything that is due.
    pub(crate) async fn try_settle(&mut self, now: Timestamp) -> Result<(), Error> {
        loop {
            let mut actions = self.queue.poll(now);
            if actions.is_empty() {
                return Ok(());
            }
            while let Some(action) = actions.pop() {
                match action {
                    Action::Start(request, pass) => {
                        let call = Call {
                            request,
                            began: now,
                            pass,
                        };
                        self.queue.started(&call);
                        self.calls.insert(request, call);
                    }
                    Action::Sync(sync) => {
                        let (reply, processes) = self.exchange(*sync, now).await?;
                        (self.cause, self.processes) = (None, processes);
                        self.fleet_oldest = reply.fleet_oldest;
                        actions.extend(self.queue.synced(reply, now));
                    }
                }
            }
        }
    }

    async fn settle(&mut self, now: Timestamp) {
        self.try_settle(now).await.unwrap();
    }

    /// All running calls fail; the own schedules of their requests have long waits.
    fn fail_all(&mut self, failure: GateFailure, now: Timestamp) {
        for (id, call) in std::mem::take(&mut self.calls) {
            let record = self.records.get_mut(&id).unwrap();
            self.cause = Some(Cause::Overloaded);
            self.queue.failed(&call, record, &failure, now);
            let own_wake = now + Duration::from_secs(3600);
            self.queue.wait(id, record, own_wake, failure.stated, now);
        }
    }

    /// The waits of the own schedules end.
    fn wake_all(&mut self, now: Timestamp) {
        for id in self.records.keys() {
            self.queue.wake(*id, now);
        }
    }

    /// Makes calls that fail until the gate is down.
    async fn take_down(&mut self, now: Timestamp) {
        for request in 0..REQUESTS {
            self.arrive(request, now);
        }
        for round in 0..FAILURES_EACH {
            let now = now + Duration::from_millis(10 * round);
            self.wake_all(now);
            self.settle(now).await;
            self.fail_all(OVERLOADED, now);
        }
        self.settle(now + Duration::from_millis(10 * FAILURES_EACH))
            .await;
        assert_eq!(self.queue.gate().mode(), Mode::Down);
    }

    fn probe(&self) -> Option<Call> {
        let mut calls = self.calls.values();
        calls
            .find(|call| matches!(call.pass, Pass::Probe { .. }))
            .copied()
    }
}

type Reply = Result<(SyncReply, u32), Error>;

async fn snapshot(store: &Store, now: Timestamp) -> Option<GateSnapshot> {
    let snapshots = store.gate_snapshots(now).await.unwrap();
    let found = snapshots.into_iter().find(|(key, _)| key == KEY);
    found.map(|(_, snapshot)| snapshot)
}

async fn gate(store: &Store, now: Timestamp) -> Gate {
    let known = snapshot(store, now).await;
    known.map(|snapshot| snapshot.gate).unwrap_or_default()
}

fn no_news() -> Sync {
    Sync {
        report: Report::default(),
        queue: QueueSummary::default(),
    }
}

fn execute(file: &File, statement: &str) {
    let connection = rusqlite::Connection::open(&file.path).unwrap();
    connection.execute_batch(statement).unwrap();
}

// --- Several processes ---

#[tokio::test]
async fn outage_is_visible_to_other_processes() {
    let file = File::new();
    let (one, other) = (file.open(), file.open());
    assert!(other.has_external_changes().await.unwrap());
    assert!(!other.has_external_changes().await.unwrap());
    Process::new("one", one).take_down(at(100)).await;
    assert!(other.has_external_changes().await.unwrap());
    assert!(!other.has_external_changes().await.unwrap());
    let seen = snapshot(&other, at(101)).await.unwrap();
    assert_eq!(seen.gate.mode(), Mode::Down);
    assert_eq!(u64::from(seen.waiting), REQUESTS);
    assert_eq!(seen.cause, Some(Cause::Overloaded));
}

#[tokio::test]
async fn single_failure_leaves_gate_open_for_other_processes() {
    let file = File::new();
    let mut process = Process::new("one", file.open());
    process.arrive(0, at(100));
    process.settle(at(100)).await;
    process.fail_all(OVERLOADED, at(101));
    process.settle(at(102)).await;
    let seen = snapshot(&file.open(), at(102)).await.unwrap();
    assert!(seen.gate.is_open(at(102)));
    assert_eq!(seen.cause, Some(Cause::Overloaded));
}

#[tokio::test]
async fn failures_of_several_processes_add_up() {
    let file = File::new();
    let stores = [file.open(), file.open(), file.open()];
    let mut processes: Vec<Process> = ["one", "two", "three"]
        .into_iter()
        .zip(&stores)
        .map(|(name, store)| Process::new(name, store.clone()))
        .collect();
    for process in &mut processes {
        process.arrive(0, at(100));
    }
    // Each process has one request, which contributes at most a third of a streak.
    for round in 0..10 {
        let now = at(101 + 2 * round);
        for process in &mut processes {
            process.wake_all(now);
            process.settle(now).await;
            process.fail_all(OVERLOADED, now);
        }
    }
    assert_eq!(gate(&stores[0], at(121)).await.mode(), Mode::Down);
}

#[tokio::test]
async fn concurrent_processes_get_only_one_probe() {
    let file = File::new();
    let (one, other) = (file.open(), file.open());
    Process::new("dead", one.clone()).take_down(at(100)).await;
    let now = at(100 + PROBE_PERIOD);
    let (one, other) = tokio::join!(
        Process::waiting("one", &one, 0..3, now),
        Process::waiting("other", &other, 0..3, now)
    );
    let probes = [one.probe(), other.probe()];
    assert_eq!(probes.iter().flatten().count(), 1, "{probes:?}");
}

#[tokio::test]
async fn result_of_expired_lease_is_ignored() {
    let file = File::new();
    let store = file.open();
    Process::new("dead", store.clone()).take_down(at(100)).await;
    let start = 100 + PROBE_PERIOD;
    let mut sleeper = Process::waiting("sleeper", &store, 0..3, at(start)).await;
    assert!(sleeper.probe().is_some());
    // The holder sleeps; its lease ends and another takes over.
    let later = start + PROBE_PERIOD;
    let other = Process::waiting("other", &file.open(), 0..3, at(later)).await;
    assert!(other.probe().is_some());
    let before = gate(&store, at(later + 1)).await;
    sleeper.fail_all(OVERLOADED, at(later + 1));
    sleeper.settle(at(later + 1)).await;
    let after = gate(&store, at(later + 1)).await;
    assert_eq!(after.outage(), before.outage());
    assert_eq!(after.version(), before.version());
    assert!(sleeper.probe().is_none());
}

#[tokio::test]
async fn probe_of_killed_process_is_free_after_20_seconds() {
    let file = File::new();
    let store = file.open();
    Process::new("dead", store.clone()).take_down(at(100)).await;
    let start = 100 + PROBE_PERIOD;
    let killed = Process::waiting("killed", &store, 0..3, at(start)).await;
    assert!(killed.probe().is_some());
    drop(killed);
    let mut other = Process::waiting("other", &file.open(), 7..9, at(start)).await;
    for second in 1..20 {
        other.settle(at(start + second)).await;
        assert!(other.probe().is_none(), "after {second} s");
    }
    other.settle(at(start + 20)).await;
    assert!(other.probe().is_some());
}

#[tokio::test]
async fn abandoned_probe_is_free_at_once() {
    let file = File::new();
    let store = file.open();
    Process::new("dead", store.clone()).take_down(at(100)).await;
    let start = 100 + PROBE_PERIOD;
    let mut one = Process::waiting("one", &store, 0..3, at(start)).await;
    let probe = one.probe().unwrap();
    let mut other = Process::waiting("other", &store, 0..3, at(start)).await;
    other.settle(at(start + 1)).await;
    assert!(other.probe().is_none());
    one.queue.abandoned(&probe, at(start + 1));
    one.queue.leave(probe.request);
    // The exchange itself gives it back: nothing else of the process wants to probe.
    for request in 0..3 {
        one.queue.leave(RequestId(request));
    }
    one.settle(at(start + 1)).await;
    other.settle(at(start + 2)).await;
    assert!(other.probe().is_some());
}

#[tokio::test]
async fn stated_time_of_account_binds_other_processes() {
    let file = File::new();
    let (one, other) = (file.open(), file.open());
    let mut process = Process::new("one", one);
    process.arrive(0, at(100));
    process.settle(at(100)).await;
    let limit = GateFailure {
        is_refusal: true,
        stated: Some(at(5000)),
        binds_account: true,
    };
    process.fail_all(limit, at(101));
    process.settle(at(101)).await;
    let early = Process::waiting("other", &other, 0..3, at(4999)).await;
    assert_eq!(early.queue.gate().not_before(), at(5000));
    assert_eq!(early.calls.len(), 0);
    let late = Process::waiting("other", &other, 0..3, at(5001)).await;
    assert!(late.probe().is_some());
}

// --- Heartbeats ---

#[tokio::test]
async fn silent_processes_wait_no_more() {
    let file = File::new();
    let store = file.open();
    Process::new("dead", store.clone()).take_down(at(100)).await;
    let waiting = async |now| snapshot(&store, now).await.unwrap().waiting;
    assert_eq!(u64::from(waiting(at(109)).await), REQUESTS);
    assert_eq!(waiting(at(111)).await, 0);
    let other = Process::waiting("other", &store, 7..9, at(112)).await;
    assert_eq!((other.processes, waiting(at(112)).await), (1, 2));
}

#[tokio::test]
async fn only_recent_processes_keep_younger_requests_waiting() {
    let file = File::new();
    let store = file.open();
    Process::new("one", store.clone()).take_down(at(100)).await;
    let soon = Process::waiting("other", &store, 7..9, at(102)).await;
    assert_eq!((soon.processes, soon.fleet_oldest), (2, Some(at(100))));
    let later = Process::waiting("other", &store, 7..9, at(105)).await;
    assert_eq!((later.processes, later.fleet_oldest), (2, Some(at(105))));
}

// --- A clock that is set back ---

#[tokio::test]
async fn heartbeats_of_the_future_do_not_count() {
    let file = File::new();
    let store = file.open();
    Process::new("dead", store.clone())
        .take_down(at(9000))
        .await;
    let seen = snapshot(&store, at(100)).await.unwrap();
    assert_eq!(seen.waiting, 0);
    let other = Process::waiting("other", &store, 7..9, at(100)).await;
    assert_eq!((other.processes, other.fleet_oldest), (1, Some(at(100))));
}

#[tokio::test]
async fn process_with_clock_ahead_does_not_keep_others_waiting() {
    let file = File::new();
    let store = file.open();
    Process::new("one", store.clone()).take_down(at(100)).await;
    let ahead = Process::waiting("ahead", &store, 0..3, at(9000)).await;
    assert_eq!((ahead.processes, ahead.fleet_oldest), (1, Some(at(9000))));
    // It goes on beating.
    let mut behind = Process::waiting("behind", &store, 7..9, at(101)).await;
    for second in 0..5 {
        ahead.exchange(no_news(), at(9001 + second)).await.unwrap();
        behind.settle(at(102 + second)).await;
        assert_eq!((behind.processes, behind.fleet_oldest), (1, Some(at(101))));
    }
    let waiting = snapshot(&store, at(107)).await.unwrap().waiting;
    assert_eq!(waiting, 2);
}

#[tokio::test]
async fn gate_of_the_future_is_probed_soon() {
    let file = File::new();
    let store = file.open();
    let mut dead = Process::new("dead", store.clone());
    dead.take_down(at(9000)).await;
    dead.settle(at(9000 + PROBE_PERIOD)).await;
    assert!(dead.probe().is_some());
    let mut other = Process::waiting("other", &store, 7..9, at(100)).await;
    assert!(other.probe().is_none());
    other.settle(at(100 + PROBE_PERIOD)).await;
    assert!(other.probe().is_some());
}

// --- Rows ---

#[tokio::test]
async fn unreadable_row_is_unknown_and_replaced() {
    let file = File::new();
    let store = file.open();
    let default = serde_json::to_value(Gate::default()).unwrap();
    let with = |field: &str, value: f64| {
        let mut gate = default.clone();
        gate[field] = value.into();
        gate.to_string()
    };
    let (too_much, negative) = (with("success_share", 7.0), with("success_share", -1.0));
    for state in [
        "",
        "{",
        "null",
        r#"{"open":{"failures":3}}"#,
        &too_much,
        &negative,
    ] {
        execute(
            &file,
            &format!("REPLACE INTO gates VALUES ('{KEY}', '{state}', 'overloaded', 0)"),
        );
        assert!(snapshot(&store, at(100)).await.is_none(), "{state}");
        // Nothing is due at an open gate, so the exchange is made by hand.
        let process = Process::new("one", store.clone());
        process.exchange(no_news(), at(100)).await.unwrap();
        let seen = snapshot(&store, at(100)).await.unwrap();
        assert_eq!(seen.gate.mode(), Mode::Flowing, "{state}");
    }
}

#[tokio::test]
async fn failed_exchange_changes_nothing() {
    let file = File::new();
    let store = file.open();
    Process::new("one", store.clone()).take_down(at(100)).await;
    let before = gate(&store, at(101)).await;
    execute(
        &file,
        "CREATE TRIGGER refuse BEFORE UPDATE ON gates BEGIN SELECT raise(abort, 'no'); END",
    );
    let mut other = Process::new("other", store.clone());
    other.queue.observe(before.clone(), at(101));
    other.arrive(7, at(101));
    let refused = other.try_settle(at(101)).await;
    assert!(matches!(refused, Err(Error::Database(_))), "{refused:?}");
    let seen = snapshot(&store, at(101)).await.unwrap();
    assert_eq!(seen.gate, before);
    assert_eq!(u64::from(seen.waiting), REQUESTS);
}

#[tokio::test]
async fn forgotten_gate_is_open_for_processes_that_knew_it() {
    let file = File::new();
    let store = file.open();
    Process::new("one", store.clone()).take_down(at(100)).await;
    // The first probe is not due yet.
    let before_probe = Timestamp::from_millis(100_100);
    let mut other = Process::waiting("other", &store, 7..9, before_probe).await;
    assert_eq!(other.calls.len(), 0);
    let forget = |key: &str| store.forget_gates(vec![key.to_owned()], at(102));
    forget("unknown").await.unwrap();
    assert_eq!(gate(&store, at(102)).await.mode(), Mode::Down);
    assert_eq!(store.gate_snapshots(at(102)).await.unwrap().len(), 1);
    let before = gate(&store, at(102)).await;
    forget(KEY).await.unwrap();
    let after = gate(&store, at(102)).await;
    assert_eq!(after, before.forgotten());
    assert!(after.version() > before.version());
    other.settle(at(103)).await;
    assert_eq!(other.calls.len(), 2);
}

#[tokio::test]
async fn gate_is_forgotten_a_week_after_its_last_change() {
    const WEEK: u64 = 7 * 86_400;
    let file = File::new();
    let store = file.open();
    Process::new("one", store.clone()).take_down(at(100)).await;
    let change_other_gate = async |now| {
        let exchange = GateExchange {
            key: format!("{KEY}{now:?}"),
            process: "one".to_owned(),
            sync: no_news(),
            cause: None,
            own_gate: None,
        };
        store.sync_gate(exchange, now).await.unwrap();
    };
    change_other_gate(at(WEEK)).await;
    assert!(snapshot(&store, at(WEEK)).await.is_some());
    change_other_gate(at(WEEK + 200)).await;
    assert!(snapshot(&store, at(WEEK + 200)).await.is_none());
}

#[tokio::test]
async fn gates_beyond_a_thousand_are_forgotten() {
    let file = File::new();
    let store = file.open();
    let state = serde_json::to_string(&Gate::default()).unwrap();
    execute(
        &file,
        &format!(
            "WITH RECURSIVE number(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < 1500)
             INSERT INTO gates SELECT 'old' || n, '{state}', NULL, 100000 + n FROM number"
        ),
    );
    let process = Process::new("one", store.clone());
    process.exchange(no_news(), at(102)).await.unwrap();
    // A gate that nothing is known of leaves no row.
    let mut process = Process::new("two", store.clone());
    process.take_down(at(102)).await;
    let known = store.gate_snapshots(at(103)).await.unwrap();
    assert_eq!(known.len(), 1000);
    let is_known = |name: &str| known.iter().any(|(key, _)| key == name);
    assert!(is_known(KEY) && is_known("old1500") && !is_known("old1"));
}

#[tokio::test]
async fn queues_too_long_to_count_are_shown_all_the_same() {
    let file = File::new();
    let store = file.open();
    for process in ["one", "two"] {
        let mut sync = no_news();
        sync.queue.waiting = u32::MAX;
        Process::new(process, store.clone())
            .exchange(sync, at(100))
            .await
            .unwrap();
    }
    Process::new("three", store.clone())
        .take_down(at(100))
        .await;
    assert_eq!(snapshot(&store, at(101)).await.unwrap().waiting, u32::MAX);
}

// --- Without the store for a while ---

/// Exchanges nothing but the gate of a process that had to do without the store.
async fn rejoin(store: &Store, own_gate: &Gate, now: Timestamp) -> Gate {
    let exchange = GateExchange {
        key: KEY.to_owned(),
        process: "own".to_owned(),
        sync: no_news(),
        cause: Some(Cause::Network),
        own_gate: Some(own_gate.clone()),
    };
    let (reply, _) = store.sync_gate(exchange, now).await.unwrap();
    assert_eq!(reply.gate, gate(store, now).await);
    reply.gate
}

/// The gate of a process that was taken down without the store, at 100 s.
async fn own_outage() -> Gate {
    let file = File::new();
    let mut process = Process::new("own", file.open());
    process.take_down(at(100)).await;
    process.queue.gate().clone()
}

#[tokio::test]
async fn outage_seen_without_store_is_shared_at_rejoin() {
    let file = File::new();
    let store = file.open();
    let own = own_outage().await;
    let shared = rejoin(&store, &own, at(101)).await;
    assert_eq!(shared.outage(), own.outage());
    assert!(shared.version() > own.version());
    let seen = snapshot(&file.open(), at(101)).await.unwrap();
    assert_eq!(seen.cause, Some(Cause::Network));
}

#[tokio::test]
async fn outage_seen_without_store_yields_to_later_success() {
    let file = File::new();
    let store = file.open();
    let mut process = Process::new("other", store.clone());
    process.arrive(0, at(200));
    process.settle(at(200)).await;
    let call = process.calls[&RequestId(0)];
    process.queue.succeeded(&call, at(201));
    process.settle(at(210)).await;
    let shared = rejoin(&store, &own_outage().await, at(210)).await;
    assert_eq!(shared.mode(), Mode::Flowing);
}

#[tokio::test]
async fn healthy_own_gate_does_not_end_shared_outage() {
    let file = File::new();
    let store = file.open();
    Process::new("one", store.clone()).take_down(at(100)).await;
    let shared = rejoin(&store, &Gate::default(), at(101)).await;
    assert_eq!(shared.mode(), Mode::Down);
}

// --- A file of 0.1 ---

#[tokio::test]
async fn file_of_earlier_version_keeps_blocks_and_permits_but_no_gates() {
    let file = File::new();
    for schema in [
        include_str!("../../src/schema/1.sql"),
        include_str!("../../src/schema/2.sql"),
    ] {
        execute(&file, schema);
    }
    let block = serde_json::to_string(&usage_limit("a", at(100), at(900))).unwrap();
    execute(
        &file,
        &format!(
            r#"PRAGMA user_version = 2;
            INSERT INTO gates VALUES ('{KEY}', '{{"state":"closed"}}', 'overloaded', 100000);
            INSERT INTO waiters VALUES ('{KEY}', 100000, 'w', 200000, NULL, 900000, NULL);
            INSERT INTO blocks VALUES ('a', '', '{block}', 900000);
            INSERT INTO seats VALUES ('holder', 'a', 900000);"#
        ),
    );
    let store = file.open();
    let connection = rusqlite::Connection::open(&file.path).unwrap();
    let count = |query| connection.query_row(query, [], |row| row.get::<_, u32>(0));
    assert_eq!(count("SELECT count(*) FROM gates").unwrap(), 0);
    let waiters = "SELECT count(*) FROM sqlite_schema WHERE name = 'waiters'";
    assert_eq!(count(waiters).unwrap(), 0);
    let blocks = store.blocks(at(101)).await.unwrap();
    assert!(blocks.active_block("a", "m", at(101)).is_some());
    let claim = PermitRequest {
        account: "a".to_owned(),
        holder: "other".to_owned(),
        limit: 1,
    };
    let reply = store.acquire_permit(claim, at(101), at(160)).await.unwrap();
    let full = PermitReply::Full { until: at(900) };
    assert_eq!(reply, full);
    Process::new("one", store).take_down(at(101)).await;
}
