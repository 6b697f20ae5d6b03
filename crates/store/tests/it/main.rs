//! The store from outside: real files, more than one connection, damage of every kind.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may stop at once")]

mod artifacts;
mod gates;
mod holds;
mod journal;

use outlast_kernel::Timestamp;
use outlast_kernel::account::Block;
use outlast_kernel::verdict::{Authority, Cause};
use outlast_store::{Error, PermitReply, PermitRequest, Store};
use std::path::PathBuf;
use std::time::Duration;
use tempfile::TempDir;

/// Fails a test that would hang.
const HANG_TIMEOUT: Duration = Duration::from_secs(120);

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_millis(seconds * 1000)
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

/// The block of an account that has reached its usage limit.
fn usage_limit(account: &str, since: Timestamp, until: Timestamp) -> Block {
    Block {
        account: account.to_owned(),
        model: None,
        cause: Cause::UsageLimit,
        since,
        until,
        authority: Authority::Stated,
    }
}

#[tokio::test]
async fn account_blocks_are_shared_and_expire() {
    let file = File::new();
    let (one, other) = (file.open(), file.open());
    let block = usage_limit("a", at(1), at(100));
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
    drop(file.open());
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
    let refused = store.change_blocks(at(1), |_| {}).await;
    assert!(matches!(refused, Err(Error::Database(_))), "{refused:?}");
    holder.execute_batch("COMMIT").unwrap();
    store.change_blocks(at(1), |_| {}).await.unwrap();
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
