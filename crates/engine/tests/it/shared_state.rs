//! State that processes share through a real file, on a clock that stands still until a test moves it.

use crate::support::{HANG_TIMEOUT, START, failing_gate, overload, take_down, usage_limit};
use outlast_engine::admission::GateRequest;
use outlast_engine::shared_state::{SharedState, StoreEvent};
use outlast_engine::{BoxFuture, Clock};
use outlast_kernel::Timestamp;
use outlast_kernel::gate::{Gate, Mode};
use outlast_kernel::verdict::Cause;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, watch};

const KEY: &str = "p@/a/m";
/// The interval at which a process looks for changes of others.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
const LEASE: Duration = Duration::from_secs(20);

/// A clock of one process; the time is that of all.
struct ManualClock {
    time: watch::Sender<Timestamp>,
    /// Counts the sleeps of one poll interval.
    polls: watch::Sender<u64>,
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        *self.time.borrow()
    }

    fn sleep_until(&self, at: Timestamp) -> BoxFuture<'static, ()> {
        if at == self.now() + POLL_INTERVAL {
            self.polls.send_modify(|polls| *polls += 1);
        }
        let mut time = self.time.subscribe();
        Box::pin(async move {
            time.wait_for(|now| *now >= at).await.ok();
        })
    }
}

/// A folder with the file, and the time of all processes.
struct Fixture {
    folder: TempDir,
    time: watch::Sender<Timestamp>,
}

impl Fixture {
    fn new() -> Self {
        let fixture = Self {
            folder: TempDir::new().unwrap(),
            time: watch::Sender::new(START),
        };
        std::fs::create_dir(fixture.home()).unwrap();
        fixture
    }

    fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    fn file(&self) -> PathBuf {
        self.home().join("outlast.db")
    }

    fn now(&self) -> Timestamp {
        *self.time.borrow()
    }

    fn advance_to(&self, time: Timestamp) {
        self.time.send_replace(time);
    }

    async fn process(&self) -> Process {
        Process::start(&self.file(), &self.time).await
    }

    async fn processes<const N: usize>(&self) -> [Process; N] {
        let all = futures_util::future::join_all((0..N).map(|_| self.process())).await;
        all.try_into().ok().unwrap()
    }

    /// Lets each process look for changes once.
    async fn poll(&self, processes: &[Process]) {
        let polls: Vec<_> = processes
            .iter()
            .map(|process| process.clock.polls.subscribe())
            .collect();
        self.advance_to(self.now() + POLL_INTERVAL);
        for mut polls in polls {
            until(async { polls.changed().await.unwrap() }).await;
        }
    }

    /// Lets the processes look for changes until the condition holds; returns how often.
    async fn poll_until(
        &self,
        processes: &mut [Process],
        is_so: impl Fn(&mut Process) -> bool,
    ) -> u32 {
        let polling = async {
            let mut polls = 0;
            while !processes.iter_mut().all(&is_so) {
                self.poll(processes).await;
                polls += 1;
            }
            polls
        };
        until(polling).await
    }

    /// Changes the file behind the backs of all processes.
    fn execute(&self, statement: &str) -> rusqlite::Connection {
        let connection = rusqlite::Connection::open(self.file()).unwrap();
        connection.execute_batch(statement).unwrap();
        connection
    }
}

async fn until<T>(condition: impl Future<Output = T>) -> T {
    tokio::time::timeout(HANG_TIMEOUT, condition).await.unwrap()
}

/// A process; its tasks end when it is killed.
struct Process {
    runtime: Option<Runtime>,
    shared_state: SharedState,
    clock: Arc<ManualClock>,
    news: mpsc::UnboundedReceiver<StoreEvent>,
    last_event: Option<StoreEvent>,
}

impl Process {
    async fn start(file: &Path, time: &watch::Sender<Timestamp>) -> Self {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).enable_all().build().unwrap();
        let clock = Arc::new(ManualClock {
            time: time.clone(),
            polls: watch::Sender::new(0),
        });
        let (sender, news) = mpsc::unbounded_channel();
        let listener = Arc::new(move |event| sender.send(event).unwrap());
        let connecting = SharedState::connect(file.to_owned(), clock.clone(), listener);
        let mut polls = clock.polls.subscribe();
        let shared_state = runtime.spawn(connecting).await.unwrap();
        until(async { polls.changed().await.unwrap() }).await;
        Self {
            runtime: Some(runtime),
            shared_state,
            clock,
            news,
            last_event: None,
        }
    }

    /// Does something as a task of this process.
    fn within<R>(&self, work: impl FnOnce(&SharedState) -> R) -> R {
        let _guard = self.runtime.as_ref().unwrap().enter();
        work(&self.shared_state)
    }

    /// Returns a request that has entered the queue, and whether its call may begin.
    fn enter(&self) -> (GateRequest, bool) {
        self.within(|shared_state| {
            let mut request = shared_state.request(KEY, self.clock.now());
            let may_begin = request.enter();
            (request, may_begin)
        })
    }

    /// Takes the gate down. The returned requests wait there.
    async fn take_down(&self) -> Vec<GateRequest> {
        let take_down = |shared_state: &_| take_down(shared_state, KEY, &*self.clock);
        let mut requests = self.within(take_down);
        until(async {
            while self.mode() != Mode::Down {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await;
        self.within(|_| {
            // Asleep, so that none of the others is alone.
            let far = self.clock.now() + Duration::from_secs(86_400);
            requests[4].wait_until(far, true);
            for request in &mut requests[..4] {
                assert!(!request.enter());
            }
        });
        requests
    }

    fn limit_account(&self, key: &str, reset: Timestamp) {
        self.within(|shared_state| {
            let mut request = shared_state.request(key, self.clock.now());
            request.bypass();
            request.begin();
            request.failed(&usage_limit(reset));
        });
    }

    fn gate(&self) -> Option<Gate> {
        failing_gate(&self.shared_state, KEY)
    }

    fn mode(&self) -> Mode {
        self.gate().map_or(Mode::Flowing, |gate| gate.mode())
    }

    fn last_event(&mut self) -> Option<&StoreEvent> {
        while let Ok(event) = self.news.try_recv() {
            self.last_event = Some(event);
        }
        self.last_event.as_ref()
    }

    fn is_connected(&mut self) -> bool {
        self.last_event() == Some(&StoreEvent::Connected)
    }

    fn is_disconnected(&mut self) -> bool {
        matches!(self.last_event(), Some(StoreEvent::Disconnected { .. }))
    }

    /// Ends the process without a word to the others.
    fn kill(mut self, requests: Vec<GateRequest>) {
        requests.into_iter().for_each(std::mem::forget);
        self.runtime.take().unwrap().shutdown_background();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

// --- Shared ---

#[tokio::test]
async fn outage_is_shared_with_other_processes() {
    let rig = Fixture::new();
    let mut processes = rig.processes::<2>().await;
    let _waiting = processes[0].take_down().await;
    rig.poll_until(&mut processes, |process| process.mode() == Mode::Down)
        .await;
    let other = &mut processes[1];
    let gates = other.shared_state.failing_gates();
    assert_eq!(gates[0].cause, Some(Cause::Overloaded));
    assert!(!other.enter().1);
    assert_eq!(other.last_event(), None);
}

#[tokio::test]
async fn usage_limit_holds_requests_of_other_processes() {
    let rig = Fixture::new();
    let mut processes = rig.processes::<2>().await;
    let reset = START + Duration::from_secs(3600);
    processes[0].limit_account(KEY, reset);
    rig.poll_until(&mut processes, |process| process.mode() == Mode::Down)
        .await;
    let (mut request, may_begin) = processes[1].enter();
    assert_eq!((may_begin, request.stated_end()), (false, Some(reset)));
    assert_eq!(request.cause(), Some(Cause::UsageLimit));
    rig.advance_to(reset);
    until(request.admitted()).await;
}

#[tokio::test]
async fn killed_holder_of_probe_delays_others_by_20_seconds_at_most() {
    let rig = Fixture::new();
    let mut processes = rig.processes::<2>().await;
    let mut waiting = processes[0].take_down().await;
    rig.poll_until(&mut processes, |process| process.mode() == Mode::Down)
        .await;
    let [one, other] = processes;
    rig.advance_to(rig.now() + Duration::from_secs(2));
    until(waiting[0].admitted()).await;
    one.within(|_| waiting[0].begin());
    let began = rig.now();
    let mut queued = [other.enter().0, other.enter().0];
    assert!(queued.iter().all(|request| !request.is_admitted()));
    // The others know that neither of them is alone.
    rig.advance_to(began + Duration::from_secs(1));
    let file = rig.execute("");
    until(async {
        let count = "SELECT count(*) FROM heartbeats WHERE waiting = 2";
        while file.query_row(count, [], |row| row.get(0)) != Ok(1) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    one.kill(waiting);
    rig.advance_to(began + LEASE);
    until(queued[0].admitted()).await;
    other.within(|_| queued[0].begin());
    assert!(queued[0].is_probe_for_all());
    assert!(!queued[1].is_admitted());
}

#[tokio::test]
async fn open_gate_admits_requests_while_store_is_locked() {
    let rig = Fixture::new();
    let process = rig.process().await;
    let _lock = rig.execute("BEGIN IMMEDIATE");
    for _ in 0..100 {
        let (mut request, may_begin) = process.enter();
        assert!(may_begin);
        process.within(|_| {
            request.begin();
            request.succeeded();
        });
    }
}

#[tokio::test]
async fn unblocked_account_frees_its_gates_for_all_processes() {
    let rig = Fixture::new();
    let mut processes = rig.processes::<2>().await;
    processes[0].limit_account(KEY, START + Duration::from_secs(3600));
    rig.poll_until(&mut processes, |process| process.mode() == Mode::Down)
        .await;
    let (mut held, may_begin) = processes[1].enter();
    assert!(!may_begin);
    until(processes[0].shared_state.unblock("a")).await;
    assert_eq!(processes[0].mode(), Mode::Flowing);
    rig.poll_until(&mut processes, |process| process.mode() == Mode::Flowing)
        .await;
    until(held.admitted()).await;
}

// --- With and without a store ---

/// One outage as the requests of one process see it: every reply, and every gap between two probes.
async fn outage(
    shared_state: &SharedState,
    time: &watch::Sender<Timestamp>,
    clock: &dyn Clock,
) -> Vec<String> {
    let mut seen = Vec::new();
    let mut requests = take_down(shared_state, KEY, clock);
    // None of the others is alone.
    let mut sleeper = requests.pop().unwrap();
    sleeper.wait_until(START + Duration::from_secs(86_400), true);
    let gate = || failing_gate(shared_state, KEY);
    let mode = || gate().map_or(Mode::Flowing, |gate| gate.mode());
    let wait_for_mode = async |wanted| {
        while mode() != wanted {
            tokio::task::yield_now().await;
        }
    };
    until(wait_for_mode(Mode::Down)).await;
    for request in &mut requests {
        seen.push(format!("admitted at once: {}", request.enter()));
    }
    for number in 0..4 {
        time.send_modify(|now| *now = *now + Duration::from_secs(5));
        until(requests[0].admitted()).await;
        requests[0].begin();
        let is_probe = requests[0].is_probe_for_all();
        if number == 3 {
            requests[0].succeeded();
            until(wait_for_mode(Mode::Flowing)).await;
            break;
        }
        let before = gate().unwrap().version();
        requests[0].failed(&overload());
        until(async {
            while gate().unwrap().version() == before {
                tokio::task::yield_now().await;
            }
        })
        .await;
        let gap = gate().unwrap().outage().unwrap().1.since(clock.now());
        seen.push(format!("probe: {is_probe}, next in {gap:?}"));
        requests[0].enter();
    }
    for request in &mut requests[1..] {
        until(request.admitted()).await;
        request.begin();
        seen.push(format!("probe: {}", request.is_probe_for_all()));
    }
    seen
}

#[tokio::test]
async fn outage_without_store_is_the_same_as_with_one() {
    let rig = Fixture::new();
    let process = rig.process().await;
    let time = rig.time.clone();
    let (shared_state, clock) = (process.shared_state.clone(), Arc::clone(&process.clock));
    let runtime = process.runtime.as_ref().unwrap();
    let shared = runtime.spawn(async move { outage(&shared_state, &time, &*clock).await });
    let shared = shared.await.unwrap();

    let time = watch::Sender::new(START);
    let clock = Arc::new(ManualClock {
        time: time.clone(),
        polls: watch::Sender::new(0),
    });
    let local = SharedState::process_local(clock.clone());
    assert_eq!(outage(&local, &time, &*clock).await, shared);
    assert_eq!(shared[4], "probe: true, next in 625ms");
}

// --- The store goes and comes back ---

#[tokio::test]
async fn lost_store_leaves_own_gates_and_is_rejoined_within_10_seconds() {
    let rig = Fixture::new();
    let mut processes = rig.processes::<3>().await;
    let away = rig.folder.path().join("away");
    std::fs::rename(rig.home(), &away).unwrap();
    rig.poll_until(&mut processes, Process::is_disconnected)
        .await;
    // One meets an outage; the others do not learn of it.
    let _waiting = processes[0].take_down().await;
    assert_eq!(processes[0].mode(), Mode::Down);
    rig.poll(&processes).await;
    assert!(processes[1].enter().1);
    std::fs::rename(&away, rig.home()).unwrap();
    let until_connected = rig.poll_until(&mut processes, Process::is_connected).await;
    // The exchange is made at once, at whatever time.
    let file = outlast_store::Store::open(&rig.file()).unwrap().store;
    until(async {
        while file.gate_snapshots(rig.now()).await.unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    let until_known = rig
        .poll_until(&mut processes, |process| process.mode() == Mode::Down)
        .await;
    let taken = POLL_INTERVAL * (until_connected + until_known);
    assert!(taken <= Duration::from_secs(10), "{taken:?}");
    // The others have nothing of their own that ends the outage.
    assert!(!processes[1].enter().1);
}

#[tokio::test]
async fn report_that_the_store_did_not_take_is_not_lost() {
    let rig = Fixture::new();
    let mut processes = rig.processes::<2>().await;
    let refuse =
        "CREATE TRIGGER refuse BEFORE INSERT ON heartbeats BEGIN SELECT raise(abort, 'no'); END";
    drop(rig.execute(refuse));
    let reset = START + Duration::from_secs(3600);
    processes[0].limit_account(KEY, reset);
    until(async {
        // The loss of the store is reported just before the process's own gate takes the news.
        while !processes[0].is_disconnected() || processes[0].mode() != Mode::Down {
            tokio::task::yield_now().await;
        }
    })
    .await;
    // The gate of the process itself holds its requests.
    let (request, may_begin) = processes[0].enter();
    assert_eq!((may_begin, request.stated_end()), (false, Some(reset)));
    // It takes the news along when it joins again.
    drop(rig.execute("DROP TRIGGER refuse"));
    rig.poll_until(&mut processes, |process| process.mode() == Mode::Down)
        .await;
    let gates = processes[1].shared_state.failing_gates();
    assert_eq!(gates[0].gate.not_before(), reset);
    assert_eq!(gates[0].cause, Some(Cause::UsageLimit));
}

#[tokio::test]
async fn locked_store_is_replaced_by_memory_until_it_is_free() {
    let rig = Fixture::new();
    let mut processes = rig.processes::<2>().await;
    let lock = rig.execute("BEGIN IMMEDIATE");
    let _waiting = processes[0].take_down().await;
    until(async {
        while !processes[0].is_disconnected() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    assert_eq!(processes[0].mode(), Mode::Down);
    assert!(processes[1].enter().1);
    lock.execute_batch("COMMIT").unwrap();
    rig.poll_until(&mut processes, |process| process.mode() == Mode::Down)
        .await;
    assert!(processes[0].is_connected());
}

#[tokio::test]
async fn missing_folder_is_joined_once_created() {
    let rig = Fixture::new();
    std::fs::remove_dir(rig.home()).unwrap();
    let mut processes = [rig.process().await];
    assert!(processes[0].is_disconnected());
    let _waiting = processes[0].take_down().await;
    std::fs::create_dir(rig.home()).unwrap();
    rig.poll_until(&mut processes, Process::is_connected).await;
    // The process takes along everything that it has learned alone.
    let mut later = [rig.process().await];
    rig.poll_until(&mut later, |process| process.mode() == Mode::Down)
        .await;
}

#[tokio::test]
async fn deleted_or_damaged_file_is_replaced_for_all_processes() {
    for is_damaged in [false, true] {
        let rig = Fixture::new();
        let mut processes = rig.processes::<4>().await;
        for suffix in ["", "-wal", "-shm"] {
            let part = rig.home().join(format!("outlast.db{suffix}"));
            match is_damaged {
                // In place: a mapped file that shrinks would kill this process.
                true => std::fs::OpenOptions::new()
                    .write(true)
                    .open(part)
                    .unwrap()
                    .write_all(&[0x5a; 100_000])
                    .unwrap(),
                false => std::fs::remove_file(part).unwrap(),
            }
        }
        for process in &processes {
            process.limit_account("q@/b/n", START + Duration::from_secs(60));
        }
        rig.poll_until(&mut processes, Process::is_connected).await;
        // All are on the new file.
        processes[0].limit_account(KEY, START + Duration::from_secs(86_400));
        rig.poll_until(&mut processes, |process| process.mode() == Mode::Down)
            .await;
        let names = std::fs::read_dir(rig.home()).unwrap().map(|entry| {
            let name = entry.unwrap().file_name();
            name.to_string_lossy().into_owned()
        });
        let is_aside = |name: &String| {
            name.contains("damaged") && !name.ends_with("-wal") && !name.ends_with("-shm")
        };
        assert_eq!(names.filter(is_aside).count(), usize::from(is_damaged));
    }
}
