//! The store from outside: real files, more than one connection, damage of every kind.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may stop at once")]

mod artifacts;
mod holds;
mod journal;

use outlast_kernel::Timestamp;
use outlast_kernel::account::Block;
use outlast_kernel::gate::{GateReply, Report, Waiter, WaiterId};
use outlast_kernel::verdict::{Authority, Cause};
use outlast_store::{Error, GateSnapshot, PermitReply, PermitRequest, Store};
use std::path::PathBuf;
use std::time::Duration;
use tempfile::TempDir;

/// Fails a test that would hang.
const HANG_TIMEOUT: Duration = Duration::from_secs(120);

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_millis(seconds * 1000)
}

fn waiter(name: &str) -> Waiter {
    Waiter {
        id: WaiterId(name.to_owned()),
        since: at(1),
        own_wake: at(100),
        deadline: None,
        batch: None,
    }
}

struct File {
    _folder: TempDir,
    path: PathBuf,
}

impl File {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("outlast.db");
        Self {
            _folder: folder,
            path,
        }
    }

    fn open(&self) -> Store {
        Store::open(&self.path).unwrap().store
    }
}

const KEY: &str = "p/a/m";

async fn ask(store: &Store, name: &str, now: Timestamp) -> GateReply {
    let asked = store.request_pass(KEY, waiter(name), now);
    asked.await.unwrap().0
}

async fn report(store: &Store, report: Report, now: Timestamp) {
    let reported = store.report(KEY, report, now);
    reported.await.unwrap();
}

/// Two callers fail and wait.
async fn fail(store: &Store) {
    for name in ["a", "b"] {
        if let GateReply::Proceed(pass) = ask(store, name, at(1)).await {
            let waiter = Some(waiter(name));
            let failed = Report::Failed {
                pass,
                cause: Cause::Overloaded,
                stated: None,
                waiter,
            };
            report(store, failed, at(1)).await;
        }
    }
}

#[tokio::test]
async fn failure_is_visible_to_other_connections() {
    let file = File::new();
    let (one, other) = (file.open(), file.open());
    assert!(other.has_external_changes().await.unwrap());
    assert!(!other.has_external_changes().await.unwrap());
    fail(&one).await;
    assert!(other.has_external_changes().await.unwrap());
    assert!(!other.has_external_changes().await.unwrap());
    let scenes = other.gate_snapshots(at(2)).await.unwrap();
    assert_eq!((scenes.len(), scenes[0].0.as_str()), (1, KEY));
    assert!(!scenes[0].1.gate.is_closed());
    assert_eq!(scenes[0].1.queue.len(), 2);
    assert_eq!(scenes[0].1.cause, Some(Cause::Overloaded));
}

#[tokio::test]
async fn concurrent_requests_get_only_one_probe() {
    let file = File::new();
    let (one, other) = (file.open(), file.open());
    fail(&one).await;
    let answers = tokio::join!(ask(&one, "a", at(20)), ask(&other, "b", at(20)));
    let probes = [answers.0, answers.1]
        .iter()
        .filter(|answer| matches!(answer, GateReply::Probe(_)))
        .count();
    assert_eq!(probes, 1, "{answers:?}");
}

#[tokio::test]
async fn report_with_old_fence_is_ignored() {
    let file = File::new();
    let (one, other) = (file.open(), file.open());
    fail(&one).await;
    let GateReply::Probe(old) = ask(&one, "a", at(20)).await else {
        panic!("it was to probe");
    };
    // The holder sleeps; its lease ends and another takes over.
    let GateReply::Probe(_) = ask(&other, "b", at(500)).await else {
        panic!("the lease is over");
    };
    let gate = |scenes: Vec<(String, GateSnapshot)>| scenes[0].1.gate.clone();
    let before = gate(other.gate_snapshots(at(501)).await.unwrap());
    report(&one, Report::Succeeded(old), at(501)).await;
    assert_eq!(gate(other.gate_snapshots(at(501)).await.unwrap()), before);
}

#[tokio::test]
async fn abandoned_probe_is_free_at_once() {
    let file = File::new();
    let store = file.open();
    fail(&store).await;
    let GateReply::Probe(pass) = ask(&store, "a", at(20)).await else {
        panic!("it was to probe");
    };
    for name in ["b", "c"] {
        assert!(matches!(
            ask(&store, name, at(21)).await,
            GateReply::Hold(_)
        ));
    }
    report(&store, Report::Abandoned(pass), at(21)).await;
    assert!(matches!(
        ask(&store, "b", at(21)).await,
        GateReply::Probe(_)
    ));
}

#[tokio::test]
async fn dead_waiters_leave_queue() {
    let file = File::new();
    let store = file.open();
    fail(&store).await;
    assert_eq!(
        store.gate_snapshots(at(20)).await.unwrap()[0].1.queue.len(),
        2
    );
    store.renew_waiter(KEY, waiter("b"), at(20)).await.unwrap();
    assert_eq!(
        store.gate_snapshots(at(35)).await.unwrap()[0].1.queue.len(),
        1
    );
    store.leave_queue(KEY, waiter("b")).await.unwrap();
    assert_eq!(
        store.gate_snapshots(at(35)).await.unwrap()[0].1.queue.len(),
        0
    );
    // A caller that renews itself just when it is admitted does not queue again.
    store.renew_waiter(KEY, waiter("b"), at(35)).await.unwrap();
    assert_eq!(
        store.gate_snapshots(at(35)).await.unwrap()[0].1.queue.len(),
        0
    );
}

#[tokio::test]
async fn account_blocks_are_shared_and_expire() {
    let file = File::new();
    let (one, other) = (file.open(), file.open());
    let block = Block {
        account: "a".to_owned(),
        model: None,
        cause: Cause::UsageLimit,
        since: at(1),
        until: at(100),
        authority: Authority::Stated,
    };
    let same = block.clone();
    one.change_blocks(at(1), move |blocks| blocks.add(block))
        .await
        .unwrap();
    let seen = other.blocks(at(2)).await.unwrap();
    assert_eq!(seen.active_block("a", "m", at(2)), Some(&same));
    assert_eq!(other.blocks(at(100)).await.unwrap().iter().count(), 0);
    other
        .change_blocks(at(3), |blocks| {
            assert!(blocks.clear_after_success("a", "m", at(3)))
        })
        .await
        .unwrap();
    assert_eq!(one.blocks(at(3)).await.unwrap().iter().count(), 0);
}

#[tokio::test]
async fn permits_are_counted_across_processes_and_expire() {
    let file = File::new();
    let (one, other) = (file.open(), file.open());
    let taken = |store: &Store, holder: &'static str, now| {
        let store = store.clone();
        let claim = PermitRequest {
            account: "a".to_owned(),
            holder: holder.to_owned(),
            limit: 2,
        };
        async move {
            store
                .acquire_permit(claim, at(now), at(now + 60))
                .await
                .unwrap()
        }
    };
    assert_eq!(taken(&one, "x", 0).await, PermitReply::Granted);
    assert_eq!(taken(&other, "y", 5).await, PermitReply::Granted);
    assert_eq!(
        taken(&other, "z", 6).await,
        PermitReply::Full { until: at(60) }
    );
    assert_eq!(taken(&one, "x", 30).await, PermitReply::Granted);
    // `y` has died: its permit is free when its time is up.
    assert_eq!(taken(&other, "z", 65).await, PermitReply::Granted);
    one.release_permit("x").await.unwrap();
    assert_eq!(taken(&one, "w", 66).await, PermitReply::Granted);
}

#[tokio::test]
async fn a_damaged_file_is_kept_and_replaced() {
    for number in 1..=2 {
        let file = File::new();
        let aside = |number| {
            file.path
                .with_file_name(format!("outlast.db.damaged-{number}"))
        };
        std::fs::write(&file.path, "this is no database, whatever its name says").unwrap();
        for taken in 1..number {
            std::fs::write(aside(taken), "from before").unwrap();
        }
        let opened = Store::open(&file.path).unwrap();
        assert_eq!(opened.replaced, Some(aside(number)));
        let kept = std::fs::read_to_string(aside(number)).unwrap();
        assert!(kept.starts_with("this is no database"));
        assert_eq!(opened.store.gate_snapshots(at(1)).await.unwrap().len(), 0);
    }
}

#[tokio::test]
async fn directory_or_newer_format_is_an_error() {
    let file = File::new();
    std::fs::create_dir(&file.path).unwrap();
    assert!(matches!(Store::open(&file.path), Err(Error::File { .. })));

    let file = File::new();
    fail(&file.open()).await;
    let newer = rusqlite::Connection::open(&file.path).unwrap();
    newer.pragma_update(None, "user_version", 99).unwrap();
    let error = Store::open(&file.path).unwrap_err();
    assert!(
        matches!(error, Error::NewerFormat { found: 99, .. }),
        "{error}"
    );
}

#[tokio::test]
async fn locked_file_is_an_error_after_timeout() {
    let file = File::new();
    let store = file.open();
    let holder = rusqlite::Connection::open(&file.path).unwrap();
    holder.execute_batch("BEGIN IMMEDIATE").unwrap();
    let refused = store.request_pass(KEY, waiter("a"), at(1)).await;
    assert!(matches!(refused, Err(Error::Database(_))), "{refused:?}");
    holder.execute_batch("COMMIT").unwrap();
    fail(&store).await;
}

#[cfg(unix)]
#[test]
fn the_file_is_private() {
    use std::os::unix::fs::PermissionsExt;
    let file = File::new();
    let _store = file.open();
    let mode = std::fs::metadata(&file.path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}
