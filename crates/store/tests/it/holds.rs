//! The holds of a gateway from outside: recovery, and files that are damaged, gone or taken.

use super::{HANG_TIMEOUT, at};
use outlast_store::Error;
use outlast_store::holds::{Holds, HoldsEvent, OpenedHolds, Row};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::time::Instant;

struct TestFolder(TempDir);

impl TestFolder {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("gateway.db")
    }

    fn open(&self) -> OpenedHolds {
        open(&self.path()).unwrap()
    }
}

fn open(path: &Path) -> Result<OpenedHolds, Error> {
    Holds::open(path, Box::new(|news| panic!("{news:?}")))
}

fn row(key: &str, value: &str, until: u64) -> Row {
    Row {
        key: key.to_owned(),
        value: value.to_owned(),
        until: at(until),
    }
}

fn put(holds: &Holds, row: &Row) {
    holds.put(&row.key, row.value.clone(), row.until);
}

#[tokio::test]
async fn holds_of_earlier_version_are_kept() {
    let place = TestFolder::new();
    let earlier = rusqlite::Connection::open(place.path()).unwrap();
    let schema = include_str!("../../src/schema/holds-1.sql");
    earlier.execute_batch(schema).unwrap();
    let rows = r#"PRAGMA user_version = 1; INSERT INTO holds VALUES ('a', '{"x":1}', 30000)"#;
    earlier.execute_batch(rows).unwrap();
    drop(earlier);
    assert_eq!(place.open().rows, [row("a", r#"{"x":1}"#, 30)]);
}

#[tokio::test]
async fn holds_are_read_back_after_reopen() {
    let place = TestFolder::new();
    let opened = place.open();
    assert_eq!(opened.rows, []);
    let holds = opened.holds;
    for (key, until) in [("a", 30), ("b", 10), ("c", 20), ("d", 40)] {
        put(&holds, &row(key, "{}", until));
    }
    put(&holds, &row("a", r#"{"newer":true}"#, 5));
    holds.remove("b");
    holds.close().await;
    let opened = place.open();
    let expected = [
        row("a", r#"{"newer":true}"#, 5),
        row("c", "{}", 20),
        row("d", "{}", 40),
    ];
    assert_eq!(opened.rows, expected);
    assert_eq!(opened.replaced, None);
    opened.holds.prune(at(20));
    opened.holds.remove("d");
    opened.holds.remove("never there");
    opened.holds.close().await;
    assert_eq!(place.open().rows, [row("c", "{}", 20)]);
}

#[tokio::test]
async fn put_reaches_disk_soon_without_flush() {
    let place = TestFolder::new();
    let holds = place.open().holds;
    let reader = rusqlite::Connection::open(place.path()).unwrap();
    let mut there = reader
        .prepare("SELECT 1 FROM holds WHERE key = ?1")
        .unwrap();
    let (mut hurried, mut waits) = (Vec::new(), Vec::new());
    for number in 0..10 {
        let start = Instant::now();
        put(&holds, &row(&format!("hurried {number}"), "{}", 1));
        assert!(holds.flush().await);
        hurried.push(start.elapsed());
        let start = Instant::now();
        put(&holds, &row(&number.to_string(), "{}", 1));
        while !there.exists([number.to_string()]).unwrap() {
            assert!(start.elapsed() < HANG_TIMEOUT, "it is never written");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        waits.push(start.elapsed());
    }
    // A slow machine is as slow with a write that a caller waits for.
    let [hurried, wait] = [hurried, waits].map(|times| times.into_iter().min().unwrap());
    let most = Duration::from_millis(250) + 50 * hurried;
    assert!(wait < most, "{wait:?}, and hurried {hurried:?}");
}

#[tokio::test]
async fn a_damaged_file_is_kept_and_replaced() {
    let place = TestFolder::new();
    std::fs::write(place.path(), "this is no database, whatever its name says").unwrap();
    let opened = place.open();
    let aside = place.path().with_file_name("gateway.db.damaged-1");
    assert_eq!(opened.replaced, Some(aside.clone()));
    assert!(std::fs::read_to_string(&aside).unwrap().starts_with("this"));
    put(&opened.holds, &row("a", "{}", 1));
    opened.holds.close().await;
    // A file whose head is whole and whose rows are not.
    let opened = place.open();
    assert_eq!(opened.rows.len(), 1);
    for number in 0..1000 {
        put(&opened.holds, &row(&number.to_string(), "{}", 1));
    }
    opened.holds.close().await;
    spoil(&place.path());
    let opened = place.open();
    let second = place.path().with_file_name("gateway.db.damaged-2");
    assert_eq!((opened.rows.len(), opened.replaced), (0, Some(second)));
}

/// Overwrites everything after the first page.
fn spoil(path: &Path) {
    let mut bytes = std::fs::read(path).unwrap();
    assert!(bytes.len() > 8192);
    bytes[4096..].fill(0x5a);
    std::fs::write(path, bytes).unwrap();
}

#[tokio::test]
async fn deleted_or_damaged_file_is_recreated_and_reported() {
    for damage in [
        |path: &Path| std::fs::remove_file(path).unwrap(),
        |path: &Path| {
            let holder = rusqlite::Connection::open(path).unwrap();
            holder
                .query_row("PRAGMA wal_checkpoint(truncate)", [], |_| Ok(()))
                .unwrap();
            spoil(path);
        },
    ] {
        let place = TestFolder::new();
        let (tell, told) = mpsc::channel();
        let listener = Box::new(move |news: HoldsEvent| tell.send(news).unwrap());
        let holds = Holds::open(&place.path(), listener).unwrap().holds;
        for number in 0..1000 {
            put(&holds, &row(&number.to_string(), "{}", 1));
        }
        assert!(holds.flush().await);
        damage(&place.path());
        for number in 0..1000 {
            put(&holds, &row(&number.to_string(), "{}", 2));
        }
        assert!(holds.flush().await);
        let said = told.recv_timeout(HANG_TIMEOUT).unwrap();
        assert!(matches!(said, HoldsEvent::Replaced(_)));
        holds.close().await;
        assert_eq!(place.open().rows.len(), 1000);
    }
}

#[test]
fn unopenable_file_is_an_error() {
    let place = TestFolder::new();
    std::fs::create_dir(place.path()).unwrap();
    assert!(matches!(open(&place.path()), Err(Error::File { .. })));
    #[cfg(target_os = "linux")]
    {
        // No user can create a file there.
        let nowhere = Path::new("/proc/self/gateway.db");
        assert!(matches!(open(nowhere), Err(Error::File { .. })));
    }
}

#[cfg(unix)]
#[test]
fn the_files_are_private() {
    use std::os::unix::fs::PermissionsExt;
    let place = TestFolder::new();
    let _opened = place.open();
    for file in std::fs::read_dir(place.0.path()).unwrap() {
        let file = file.unwrap();
        let mode = file.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file:?}");
    }
}

// --- More than one process ---

const PLACE: &str = "OUTLAST_TEST_HOLDS";

/// Runs alone, in a process that is killed: it adds rows and reports each that is written.
#[tokio::test]
#[allow(
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "its parent tells it where to work, and hears of it"
)]
async fn child_process_writing_holds() {
    // In the run of all tests there is nothing to do.
    let Some(path) = std::env::var_os(PLACE) else {
        return;
    };
    let holds = open(Path::new(&path)).unwrap().holds;
    for number in 0.. {
        put(&holds, &row(&number.to_string(), "{}", 1));
        assert!(holds.flush().await);
        eprintln!("{number}");
    }
}

#[tokio::test]
async fn file_has_one_owner_and_flushed_rows_survive_kill() {
    let place = TestFolder::new();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "holds::child_process_writing_holds"])
        .args(["--nocapture", "--test-threads=1"])
        .env(PLACE, place.path())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut told = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while line.trim() != "20" {
        line.clear();
        assert_ne!(told.read_line(&mut line).unwrap(), 0, "it ended");
    }
    let refused = open(&place.path()).unwrap_err();
    assert!(matches!(refused, Error::FileInUse { .. }), "{refused}");
    child.kill().unwrap();
    child.wait().unwrap();
    let mut rest = String::new();
    told.read_to_string(&mut rest).unwrap();
    let last = rest.lines().last().unwrap_or("20");
    let opened = place.open();
    assert_eq!(opened.replaced, None);
    assert!(
        opened.rows.iter().any(|row| row.key == last),
        "{last} is lost"
    );
}
