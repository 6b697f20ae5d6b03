//! White-box tests: the number of transactions for a batch, and a disk that takes nothing.

use super::file::HoldsFile;
use super::write_buffer::{GROUP_DELAY, MAX_PENDING_CHANGES, WriteBuffer};
use super::{Holds, HoldsEvent, RowContent};
use crate::Error;
use outlast_kernel::Timestamp;
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;
use tempfile::TempDir;
use tokio::time::Instant;

const UNTIL: Timestamp = Timestamp::from_millis(1_000_000);
const ROW_COUNT: usize = 10_000;
/// Fails a test that would hang.
const HANG_TIMEOUT: Duration = Duration::from_secs(120);

fn row_content(length: usize) -> Option<RowContent> {
    let value = "x".repeat(length);
    Some(RowContent {
        value,
        until: UNTIL,
    })
}

fn rows(path: &Path) -> Vec<(String, u32)> {
    let reader = rusqlite::Connection::open(path).unwrap();
    let mut statement = reader
        .prepare("SELECT key, length(value) FROM holds ORDER BY key")
        .unwrap();
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)));
    rows.unwrap().map(Result::unwrap).collect()
}

/// Serves a write buffer whose file may be changed before each group.
fn serve(
    desk: &WriteBuffer,
    file: &mut HoldsFile,
    mut before: impl FnMut(&rusqlite::Connection),
) -> Vec<String> {
    let (tell, told) = mpsc::channel();
    desk.run(
        |group| {
            assert!(group.changes.len() <= MAX_PENDING_CHANGES);
            before(&file.connection);
            file.write(group)
        },
        &|news| tell.send(format!("{news:?}")).unwrap(),
    );
    drop(tell);
    told.iter().collect()
}

#[test]
fn many_writes_are_grouped_in_few_transactions() {
    for pause in [Duration::ZERO, Duration::from_micros(20)] {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("gateway.db");
        let (mut file, ..) = HoldsFile::open(&path).unwrap();
        let desk = WriteBuffer::default();
        let (mut groups, start) = (0_u32, Instant::now());
        thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0..ROW_COUNT {
                    desk.push(&format!("{number:05}"), row_content(600));
                    thread::park_timeout(pause);
                }
                desk.close();
            });
            serve(&desk, &mut file, |_| groups += 1);
        });
        let took = start.elapsed();
        assert_eq!(rows(&path).len(), ROW_COUNT);
        // Each but the last has waited for others.
        let most = took.as_millis() / GROUP_DELAY.as_millis() + 2;
        assert!(u128::from(groups) <= most, "{groups} groups in {took:?}");
    }
}

#[test]
fn writes_queued_before_writer_runs_share_transaction() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("gateway.db");
    let (mut file, ..) = HoldsFile::open(&path).unwrap();
    let desk = WriteBuffer::default();
    for number in 0..ROW_COUNT {
        desk.push(&format!("{number:05}"), row_content(600));
    }
    desk.close();
    let mut groups = 0;
    serve(&desk, &mut file, |_| groups += 1);
    assert_eq!((groups, rows(&path).len()), (1, ROW_COUNT));
}

#[test]
fn full_disk_is_reported_once_and_write_retried() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("gateway.db");
    let (mut file, ..) = HoldsFile::open(&path).unwrap();
    let pages: i64 = (file.connection)
        .query_row("PRAGMA page_count", [], |row| row.get(0))
        .unwrap();
    let desk = WriteBuffer::default();
    desk.push("a", row_content(30_000));
    desk.push("b", row_content(1));
    let mut tries = 0;
    let told = serve(&desk, &mut file, |connection| {
        tries += 1;
        let limit = if tries <= 2 { pages + 2 } else { pages + 1000 };
        connection
            .pragma_update(None, "max_page_count", limit)
            .unwrap();
        match tries {
            // Newer than the change that is refused now.
            1 => desk.push("b", row_content(2)),
            2 => desk.push("c", None),
            _ => desk.close(),
        }
        drop(desk.flush());
    });
    assert!(told[0].starts_with("WriteFailed(Full"), "{told:?}");
    assert_eq!(told[1..], ["WriteRecovered"]);
    assert_eq!(tries, 3);
    let expected = [("a".to_owned(), 30_000), ("b".to_owned(), 2)];
    assert_eq!(rows(&path), expected);
}

#[test]
fn unwritable_disk_blocks_no_caller_and_bounds_memory() {
    let folder = TempDir::new().unwrap();
    let (mut file, ..) = HoldsFile::open(&folder.path().join("gateway.db")).unwrap();
    file.connection
        .pragma_update(None, "query_only", true)
        .unwrap();
    let desk = WriteBuffer::default();
    desk.push("a", row_content(1));
    let mut tries = 0;
    let told = serve(&desk, &mut file, |_| {
        tries += 1;
        for number in 0..=MAX_PENDING_CHANGES {
            desk.push(&format!("{tries} {number}"), None);
        }
        match tries {
            1 | 2 => drop(desk.flush()),
            _ => desk.close(),
        }
    });
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("readonly"), "{told:?}");
    assert!(tries > 2);
}

#[tokio::test]
async fn flush_returns_whether_rows_are_written() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("gateway.db");
    let (tell, told) = mpsc::channel();
    let listener = Box::new(move |news: HoldsEvent| tell.send(news).unwrap());
    let holds = Holds::open(&path, listener).unwrap().holds;
    holds.put("a", "x".to_owned(), UNTIL);
    assert!(holds.flush().await);
    assert_eq!(rows(&path), [("a".to_owned(), 1)]);
    let reader = rusqlite::Connection::open(&path).unwrap();
    reader.execute_batch("BEGIN IMMEDIATE").unwrap();
    holds.remove("a");
    assert!(!holds.flush().await);
    let said = told.recv_timeout(HANG_TIMEOUT).unwrap();
    assert!(matches!(said, HoldsEvent::WriteFailed(Error::Database(_))));
    reader.execute_batch("COMMIT").unwrap();
    assert!(holds.flush().await);
    let said = told.recv_timeout(HANG_TIMEOUT).unwrap();
    assert!(matches!(said, HoldsEvent::WriteRecovered));
    assert_eq!(rows(&path), []);
}
