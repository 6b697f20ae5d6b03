//! White-box tests: a full disk, the use of indexes by queries, and the number of steps they take.

use super::{Journal, NewSession, Page, RawEntry, SessionLock, read};
use crate::Error;
use crate::worker::OnCallerGone;
use outlast_kernel::Timestamp;
use rusqlite::{Connection, StatementStatus};
use std::sync::mpsc;
use tempfile::TempDir;

const ALL: Page = Page {
    after: 0,
    limit: u32::MAX,
    kinds: None,
};

async fn create_session(folder: &TempDir) -> (Journal, SessionLock) {
    let opened = Journal::open(&folder.path().join("journal.db")).unwrap();
    let session = NewSession {
        title: String::new(),
        id: "s".to_owned(),
        directory: String::new(),
        now: Timestamp::from_millis(1),
    };
    let hold = opened.journal.create(session).await.unwrap();
    (opened.journal, hold)
}

fn entry(turn: u64, kind: &str, length: usize) -> RawEntry {
    RawEntry {
        turn,
        kind: kind.to_owned(),
        time: Timestamp::from_millis(turn),
        body: "x".repeat(length),
    }
}

impl Journal {
    /// Allows the file so many more pages than it has.
    async fn limit(&self, more: i64) {
        let limit = self.worker.run(move |connection, _| {
            let pages: i64 = connection.query_row("PRAGMA page_count", [], |row| row.get(0))?;
            Ok(connection.pragma_update(None, "max_page_count", pages + more)?)
        });
        limit.await.unwrap();
    }
}

#[tokio::test]
async fn append_on_full_disk_is_all_or_nothing() {
    let folder = TempDir::new().unwrap();
    let (journal, hold) = create_session(&folder).await;
    let first = vec![entry(1, "prompt", 10)];
    journal.append(&hold, first).await.unwrap();
    journal.limit(3).await;
    // The first of them fit, the last do not.
    let many = (0..20).map(|_| entry(1, "message", 3000));
    let refused = journal.append(&hold, many.clone().collect()).await;
    let refused = refused.unwrap_err();
    assert!(matches!(&refused, Error::Full(path) if path.ends_with("journal.db")));
    assert!(refused.to_string().contains("make room"), "{refused}");
    assert_eq!(journal.read("s", ALL).await.unwrap().len(), 1);
    assert_eq!(journal.summary("s").await.unwrap().entries, 1);
    // A small entry that still fits is written, and all entries are when there is space again.
    let small = vec![entry(1, "message", 1)];
    journal.append(&hold, small).await.unwrap();
    journal.limit(1000).await;
    journal.append(&hold, many.collect()).await.unwrap();
    let read = journal.read("s", ALL).await.unwrap();
    let numbers: Vec<u64> = read.iter().map(|entry| entry.seq).collect();
    assert_eq!(numbers, (1..=22).collect::<Vec<u64>>());
    journal.check_integrity().await.unwrap();
}

impl Journal {
    /// Keeps the file busy until something is sent, so that changes wait meanwhile.
    fn pause(&self) -> (mpsc::Sender<()>, impl Future<Output = Result<(), Error>>) {
        let (go_on, waits) = mpsc::channel();
        let pause = move |_: &Connection| {
            waits.recv().ok();
            Ok(())
        };
        (go_on, self.worker.change(OnCallerGone::Run, pause, |()| ()))
    }
}

#[tokio::test]
async fn queued_appends_share_a_commit_and_fail_alone() {
    const MANY: u64 = 50;
    let folder = TempDir::new().unwrap();
    let (journal, hold) = create_session(&folder).await;
    let first = vec![entry(1, "prompt", 10)];
    journal.append(&hold, first).await.unwrap();
    let log = folder.path().join("journal.db-wal");
    let before = std::fs::metadata(&log).unwrap().len();

    let (go_on, pause) = journal.pause();
    let appends = (0..MANY).map(|number| {
        // Half of each bad one could be written, if it stood alone.
        let bad = || vec![entry(1, "message", 1), entry(1, "prompt", 1)];
        let good = || vec![entry(1, "message", 1)];
        let lines = if number % 5 == 4 { bad() } else { good() };
        journal.append(&hold, lines)
    });
    let appends: Vec<_> = appends.collect();
    go_on.send(()).unwrap();
    pause.await.unwrap();
    for (number, append) in (0..MANY).zip(appends) {
        match (number % 5, append.await) {
            (4, Err(Error::DuplicateEntry { .. })) | (0..4, Ok(())) => {}
            (_, other) => panic!("{number}: {other:?}"),
        }
    }
    let read = journal.read("s", ALL).await.unwrap();
    let numbers: Vec<u64> = read.iter().map(|entry| entry.seq).collect();
    assert_eq!(numbers, (1..=1 + MANY * 4 / 5).collect::<Vec<u64>>());
    // Each alone would write the pages that it changes.
    let grown = std::fs::metadata(&log).unwrap().len() - before;
    assert!(grown < MANY * 4096, "{grown}");
    journal.check_integrity().await.unwrap();
}

#[tokio::test]
async fn full_disk_keeps_only_acknowledged_grouped_appends() {
    let folder = TempDir::new().unwrap();
    let (journal, hold) = create_session(&folder).await;
    journal.limit(3).await;
    let (go_on, pause) = journal.pause();
    let appends: Vec<_> = (0..20)
        .map(|_| journal.append(&hold, vec![entry(1, "message", 3000)]))
        .collect();
    go_on.send(()).unwrap();
    // The pause is one of the changes.
    drop(pause.await);
    let mut written = 0;
    for append in appends {
        match append.await {
            Ok(()) => written += 1,
            Err(Error::Full { .. }) => {}
            Err(other) => panic!("{other:?}"),
        }
    }
    // Every acknowledged entry is found, and no more than these.
    assert!(written < 20);
    assert_eq!(journal.read("s", ALL).await.unwrap().len(), written);
    journal.limit(1000).await;
    journal
        .append(&hold, vec![entry(1, "message", 3000)])
        .await
        .unwrap();
    assert_eq!(journal.read("s", ALL).await.unwrap().len(), written + 1);
    journal.check_integrity().await.unwrap();
}

#[tokio::test]
async fn journal_uses_synchronous_full_and_fullfsync() {
    let folder = TempDir::new().unwrap();
    let (journal, _hold) = create_session(&folder).await;
    let asked = journal.worker.run(|connection, _| {
        let ask = |pragma: &str| connection.query_row(pragma, [], |row| row.get::<_, i64>(0));
        Ok((ask("PRAGMA synchronous")?, ask("PRAGMA fullfsync")?))
    });
    const FULL: i64 = 2;
    assert_eq!(asked.await.unwrap(), (FULL, 1));
}

#[tokio::test]
async fn queries_use_indexes_and_never_sort() {
    let folder = TempDir::new().unwrap();
    let (journal, _hold) = create_session(&folder).await;
    let of_session = "SEARCH entries USING INDEX sqlite_autoindex_entries_1 (session=?";
    let questions = [
        (
            read::SESSIONS,
            read::UNFINISHED,
            "SCAN sessions USING INDEX unfinished_sessions",
        ),
        (
            read::SESSIONS,
            read::NAMED,
            "SEARCH sessions USING PRIMARY KEY (id>? AND id<?)",
        ),
        (
            read::ENTRIES,
            read::PAGE,
            &format!("{of_session} AND seq>?)"),
        ),
        (read::ENTRIES, read::LAST, &format!("{of_session})")),
        (
            read::ENTRIES,
            read::CONTEXT,
            &format!("{of_session} AND seq>?)"),
        ),
    ];
    for (select, filter, way) in questions {
        let question = format!("EXPLAIN QUERY PLAN {select} {filter}");
        let asked = journal.worker.run(move |connection, _| {
            let mut statement = connection.prepare(&question)?;
            // No values are needed to explain a query.
            let steps = statement.raw_query().mapped(|row| row.get::<_, String>(3));
            Ok(steps.collect::<Result<Vec<_>, _>>()?)
        });
        let steps = asked.await.unwrap();
        assert_eq!(steps[0], way);
        assert!(
            !steps.iter().any(|step| step.contains("TEMP B-TREE")),
            "{steps:?}"
        );
    }
}

#[tokio::test]
async fn context_query_cost_is_linear_in_turns() {
    const TURNS: u64 = 200;
    let folder = TempDir::new().unwrap();
    let (journal, hold) = create_session(&folder).await;
    let kinds = ["prompt", "retry", "tool_finished", "message", "settled"];
    let mut steps = Vec::new();
    for turns in [1..=TURNS, TURNS + 1..=10 * TURNS] {
        let last = *turns.end();
        let of_turn = |turn: u64| kinds.map(|kind| entry(turn, kind, 200));
        let lines = turns.flat_map(of_turn).collect();
        journal.append(&hold, lines).await.unwrap();
        let context = journal.context("s", 0, u32::MAX).await.unwrap();
        // Of the omitted entries, the last turn has one.
        assert_eq!(context.len() as u64, 4 * last + 1);
        steps.push(journal.take_context_steps().await);
    }
    // Reading every entry for each would take a hundred times the steps.
    assert!(steps[0] > 0 && steps[1] < 11 * steps[0], "{steps:?}");
}

impl Journal {
    /// Returns the number of instructions that the database has carried out to read contexts since the last call.
    async fn take_context_steps(&self) -> i32 {
        let question = format!("{} {}", read::ENTRIES, read::CONTEXT);
        let steps = self.worker.run(move |connection, _| {
            let statement = connection.prepare_cached(&question)?;
            Ok(statement.reset_status(StatementStatus::VmStep))
        });
        steps.await.unwrap()
    }
}
