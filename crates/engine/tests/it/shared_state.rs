//! State that is shared through a real file, on an accelerated clock.

use crate::support::HANG_TIMEOUT;
use outlast_engine::Clock;
use outlast_engine::clock::WallClock;
use outlast_engine::shared_state::{Report, SharedState, StoreEvent};
use outlast_kernel::gate::{GateReply, Waiter, WaiterId};
use outlast_kernel::verdict::Cause;
use std::io::Write as _;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;

const GATE: &str = "p/a/m";

struct Process {
    shared_state: SharedState,
    clock: Arc<dyn Clock>,
    notices: Arc<Mutex<Vec<StoreEvent>>>,
}

impl Process {
    async fn start(file: &Path) -> Self {
        let clock: Arc<dyn Clock> =
            Arc::new(WallClock::scaled(NonZeroU32::new(50).unwrap()).unwrap());
        let notices: Arc<Mutex<Vec<StoreEvent>>> = Arc::default();
        let told = Arc::clone(&notices);
        let listener = Arc::new(move |notice| told.lock().unwrap().push(notice));
        let shared_state = SharedState::connect(file.to_owned(), clock.clone(), listener).await;
        Self {
            shared_state,
            clock,
            notices,
        }
    }

    fn waiter(&self, name: &str) -> Waiter {
        let now = self.clock.now();
        Waiter {
            id: WaiterId(name.to_owned()),
            since: now,
            own_wake: now + Duration::from_secs(3600),
            deadline: None,
            batch: None,
        }
    }

    /// Records a failed call and returns its waiter.
    async fn fail(&self, name: &str) -> Waiter {
        let waiter = self.waiter(name);
        if let GateReply::Proceed(pass) = self.shared_state.request_pass(GATE, &waiter).await {
            let failed = Report::Failed {
                pass,
                cause: Cause::Overloaded,
                stated: None,
                waiter: Some(waiter.clone()),
            };
            self.shared_state.report(GATE, failed).await;
        }
        waiter
    }

    /// Waits until the condition holds in this process.
    async fn wait_until(&self, is_so: impl Fn(&SharedState) -> bool) {
        let mut changes = self.shared_state.changes();
        let learning = async {
            while !is_so(&self.shared_state) {
                changes.changed().await.unwrap();
            }
        };
        tokio::time::timeout(HANG_TIMEOUT, learning).await.unwrap();
    }

    async fn wait_for_events(&self, count: usize) -> Vec<StoreEvent> {
        let telling = async {
            while self.notices.lock().unwrap().len() < count {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(HANG_TIMEOUT, telling).await.unwrap();
        self.notices.lock().unwrap().clone()
    }
}

/// Returns whether the gate is not open. On a slow machine, the next probe may be due already.
fn is_not_free(answer: &GateReply) -> bool {
    matches!(answer, GateReply::Hold(_) | GateReply::Probe(_))
}

#[tokio::test(flavor = "multi_thread")]
async fn failure_is_shared_with_other_processes() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("outlast.db");
    let (one, other) = (Process::start(&file).await, Process::start(&file).await);
    one.fail("a").await;
    other
        .wait_until(|knowledge| knowledge.last_cause(GATE) == Some(Cause::Overloaded))
        .await;
    let answer = other
        .shared_state
        .request_pass(GATE, &other.waiter("b"))
        .await;
    assert!(is_not_free(&answer), "{answer:?}");
    assert_eq!(*one.notices.lock().unwrap(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn locked_file_falls_back_to_memory_then_reconnects() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("outlast.db");
    let (one, other) = (Process::start(&file).await, Process::start(&file).await);
    let holder = rusqlite::Connection::open(&file).unwrap();
    holder.execute_batch("BEGIN IMMEDIATE").unwrap();
    one.fail("a").await;
    // In memory, the same rules hold: a probe is due by now, but the gate is not open.
    let answer = one.shared_state.request_pass(GATE, &one.waiter("b")).await;
    assert!(is_not_free(&answer), "{answer:?}");
    let told = one.wait_for_events(1).await;
    assert!(
        matches!(&told[..], [StoreEvent::Disconnected { .. }]),
        "{told:?}"
    );
    holder.execute_batch("COMMIT").unwrap();
    assert_eq!(one.wait_for_events(2).await[1], StoreEvent::Connected);
    // Facts that were learnt alone are now known to all processes.
    other
        .wait_until(|knowledge| knowledge.wake_time(GATE, &other.waiter("c")).is_none())
        .await;
    let answer = other
        .shared_state
        .request_pass(GATE, &other.waiter("c"))
        .await;
    assert!(!matches!(answer, GateReply::DeadlineExceeded), "{answer:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_folder_is_joined_once_created() {
    let folder = TempDir::new().unwrap();
    let home = folder.path().join("later");
    let one = Process::start(&home.join("outlast.db")).await;
    let told = one.wait_for_events(1).await;
    assert!(
        matches!(&told[..], [StoreEvent::Disconnected { .. }]),
        "{told:?}"
    );
    one.fail("a").await;
    std::fs::create_dir(&home).unwrap();
    assert_eq!(one.wait_for_events(2).await[1], StoreEvent::Connected);
    let other = Process::start(&home.join("outlast.db")).await;
    // Facts that were learnt alone are carried over when the file is joined.
    other
        .wait_until(|knowledge| knowledge.stated_end(GATE).is_some())
        .await;
    let answer = other
        .shared_state
        .request_pass(GATE, &other.waiter("b"))
        .await;
    assert!(is_not_free(&answer), "{answer:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn store_is_not_queried_while_no_failure_is_known() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("outlast.db");
    let one = Process::start(&file).await;
    let holder = rusqlite::Connection::open(&file).unwrap();
    holder.execute_batch("BEGIN IMMEDIATE").unwrap();
    // The store is busy for seconds, but no caller waits for it.
    for _ in 0..100 {
        let waiter = one.waiter("a");
        let GateReply::Proceed(pass) = one.shared_state.request_pass(GATE, &waiter).await else {
            panic!("nothing is wrong");
        };
        one.shared_state.report(GATE, Report::Succeeded(pass)).await;
    }
    assert_eq!(*one.notices.lock().unwrap(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_or_damaged_file_is_replaced_for_all_processes() {
    for damage in [false, true] {
        let folder = TempDir::new().unwrap();
        let file = folder.path().join("outlast.db");
        let mut processes = Vec::new();
        for _ in 0..4 {
            processes.push(Process::start(&file).await);
        }
        for suffix in ["", "-wal", "-shm"] {
            let part = folder.path().join(format!("outlast.db{suffix}"));
            match damage {
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
            process.fail("a").await;
            let joined = async {
                while process.notices.lock().unwrap().last() != Some(&StoreEvent::Connected) {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            tokio::time::timeout(HANG_TIMEOUT, joined).await.unwrap();
        }
        // All are on the new file: a failure that one meets is known to the others.
        let again =
            |knowledge: &SharedState| knowledge.last_cause("q/b/n") == Some(Cause::RateLimited);
        let waiter = processes[0].waiter("z");
        let GateReply::Proceed(pass) = processes[0]
            .shared_state
            .request_pass("q/b/n", &waiter)
            .await
        else {
            panic!("nothing is wrong there");
        };
        let failed = Report::Failed {
            pass,
            cause: Cause::RateLimited,
            stated: None,
            waiter: None,
        };
        processes[0].shared_state.report("q/b/n", failed).await;
        for process in &processes[1..] {
            process.wait_until(again).await;
        }
        let aside = std::fs::read_dir(folder.path()).unwrap();
        let damaged = aside.filter(|entry| {
            let name = entry.as_ref().unwrap().file_name();
            let name = name.to_string_lossy().into_owned();
            name.contains("damaged") && !name.ends_with("-wal") && !name.ends_with("-shm")
        });
        assert_eq!(damaged.count(), usize::from(damage));
    }
}
