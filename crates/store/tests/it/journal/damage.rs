//! Files that are damaged, torn, moved or not ours to read.

use super::{ALL, TestFolder, append, begin, line, told};
use outlast_store::Error;
use outlast_store::journal::{Availability, Journal};
use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;

const GARBAGE: &str = "this is no database, whatever its name says, and it never was one";

#[tokio::test]
async fn writer_moves_damaged_journal_aside() {
    let place = TestFolder::new();
    fs::write(place.path(), GARBAGE).unwrap();
    let opened = Journal::open(&place.path()).unwrap();
    let aside = place.file("journal.db.damaged-1");
    assert_eq!(opened.replaced.as_deref(), Some(aside.as_path()));
    assert_eq!(fs::read_to_string(aside).unwrap(), GARBAGE);
    let hold = begin(&opened.journal, "s").await;
    append(&opened.journal, &hold, &[(1, "prompt")]).await;
    assert_eq!(Journal::open(&place.path()).unwrap().replaced, None);
}

#[tokio::test]
async fn reader_leaves_damaged_journal_in_place() {
    let place = TestFolder::new();
    assert!(Journal::open_existing(&place.path()).unwrap().is_none());
    assert!(!place.path().exists());
    fs::write(place.path(), GARBAGE).unwrap();
    let error = Journal::open_existing(&place.path()).unwrap_err();
    assert!(matches!(error, Error::Damaged { .. }), "{error}");
    assert!(error.is_corruption());
    assert!(
        error.to_string().contains("journal.db is damaged"),
        "{error}"
    );
    assert_eq!(fs::read_to_string(place.path()).unwrap(), GARBAGE);
    assert!(!place.file("journal.db.damaged-1").exists());
}

#[tokio::test]
async fn reader_sees_entries_and_session_in_use() {
    let place = TestFolder::new();
    let journal = place.open();
    let hold = begin(&journal, "s").await;
    append(&journal, &hold, &[(1, "prompt")]).await;
    let looking = Journal::open_existing(&place.path()).unwrap().unwrap();
    assert_eq!(looking.read("s", ALL).await.unwrap().len(), 1);
    assert_eq!(
        looking.summary("s").await.unwrap().availability,
        Availability::InUse
    );
}

#[tokio::test]
async fn a_journal_of_a_newer_version_is_left_alone() {
    let place = TestFolder::new();
    drop(begin(&place.open(), "s").await);
    let newer = rusqlite::Connection::open(place.path()).unwrap();
    newer.pragma_update(None, "user_version", 4).unwrap();
    let errors = [
        Journal::open(&place.path()).map(drop).unwrap_err(),
        Journal::open_existing(&place.path()).map(drop).unwrap_err(),
    ];
    for error in errors {
        assert!(
            matches!(
                error,
                Error::NewerFormat {
                    found: 4,
                    known: 3,
                    ..
                }
            ),
            "{error}"
        );
    }
}

#[tokio::test]
async fn overwritten_page_fails_integrity_check() {
    let place = TestFolder::new();
    {
        let journal = place.open();
        let hold = begin(&journal, "s").await;
        let lines = (0..200).map(|_| line(1, "message")).collect();
        journal.append(&hold, lines).await.unwrap();
        journal.check_integrity().await.unwrap();
    }
    settle(&place.path());
    overwrite(&place.path(), 4096 * 3, &[0xff; 4096]);
    let journal = place.open();
    let error = journal.check_integrity().await.unwrap_err();
    assert!(matches!(error, Error::Damaged { .. }), "{error}");
}

#[tokio::test]
async fn append_to_moved_journal_is_refused() {
    let place = TestFolder::new();
    let journal = place.open();
    let hold = begin(&journal, "s").await;
    fs::rename(place.path(), place.file("elsewhere")).unwrap();
    let refused = journal.append(&hold, vec![line(1, "prompt")]).await;
    assert!(
        matches!(refused, Err(Error::FileReplaced { .. })),
        "{refused:?}"
    );
    fs::rename(place.file("elsewhere"), place.path()).unwrap();
    append(&journal, &hold, &[(1, "prompt")]).await;
}

#[tokio::test]
async fn foreign_owner_name_is_not_used_as_path() {
    let place = TestFolder::new();
    let journal = place.open();
    journal.release(begin(&journal, "s").await).await.unwrap();
    let precious = place.file("precious");
    fs::write(&precious, "").unwrap();
    let file = rusqlite::Connection::open(place.path()).unwrap();
    file.execute("UPDATE sessions SET owner = '../precious'", [])
        .unwrap();
    let hold = journal.claim("s").await.unwrap();
    append(&journal, &hold, &[(1, "prompt")]).await;
    assert!(precious.exists());
}

#[tokio::test]
async fn torn_write_loses_no_earlier_entries() {
    let place = TestFolder::new();
    let journal = place.open();
    let hold = begin(&journal, "s").await;
    append(&journal, &hold, &[(1, "prompt"), (1, "message")]).await;
    let wal = place.file("journal.db-wal");
    let acknowledged = fs::metadata(&wal).unwrap().len();
    append(&journal, &hold, &[(1, "settled")]).await;
    let (database, written) = (fs::read(place.path()).unwrap(), fs::read(&wal).unwrap());
    let before = usize::try_from(acknowledged).unwrap();
    assert!(written.len() > before, "the second write is not in the log");

    let flipped = |position: usize| {
        let mut torn = written.clone();
        torn[position] ^= 0x01;
        torn
    };
    let mut tails: Vec<Vec<u8>> = vec![
        written[..before].to_vec(),
        written[..before + 1].to_vec(),
        written[..before + 24].to_vec(),
        written[..written.len() - 1].to_vec(),
        flipped(before),
        flipped(before + 9),
        flipped(before + 2000),
        flipped(written.len() - 1),
    ];
    let mut holes = written.clone();
    holes[before + 24..].fill(0);
    tails.push(holes);
    for (number, tail) in tails.iter().enumerate() {
        let copy = TestFolder::new();
        fs::write(copy.path(), &database).unwrap();
        fs::write(copy.file("journal.db-wal"), tail).unwrap();
        let opened = Journal::open(&copy.path()).unwrap();
        assert_eq!(opened.replaced, None);
        let read = told(&opened.journal.read("s", ALL).await.unwrap());
        assert_eq!(read, ["1 1 prompt", "2 1 message"], "tail {number}");
        opened.journal.check_integrity().await.unwrap();
        let hold = opened.journal.claim("s").await.unwrap();
        append(&opened.journal, &hold, &[(1, "settled")]).await;
    }
}

#[cfg(unix)]
#[tokio::test]
async fn journal_files_are_private() {
    use std::os::unix::fs::PermissionsExt;
    let place = TestFolder::new();
    let journal = place.open();
    let hold = begin(&journal, "s").await;
    append(&journal, &hold, &[(1, "prompt")]).await;
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    for name in ["journal.db", "journal.db-wal", "journal.db-shm"] {
        assert_eq!(mode(&place.file(name)), 0o600, "{name}");
    }
    assert_eq!(mode(&place.file("journal.db.owners")), 0o700);
    assert_eq!(place.owners().len(), 1);
    assert_eq!(mode(&place.owners()[0]), 0o600);
}

/// Moves all of the write-ahead log into the file.
fn settle(path: &Path) {
    let connection = rusqlite::Connection::open(path).unwrap();
    connection
        .query_row("PRAGMA wal_checkpoint(truncate)", [], |_| Ok(()))
        .unwrap();
}

fn overwrite(path: &Path, position: u64, bytes: &[u8]) {
    let mut file = fs::OpenOptions::new().write(true).open(path).unwrap();
    file.seek(SeekFrom::Start(position)).unwrap();
    file.write_all(bytes).unwrap();
}
