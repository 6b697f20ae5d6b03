//! The journal from outside: shared helpers of its tests.

mod damage;
mod entries;
mod forks;
mod ownership;
mod processes;

use super::at;
use outlast_store::journal::{Journal, NewSession, Page, RawEntry, SessionLock, StoredEntry};
use std::path::PathBuf;
use std::pin::Pin;
use std::task::{Context, Waker};
use tempfile::TempDir;

const ALL: Page = Page {
    after: 0,
    limit: u32::MAX,
    kinds: None,
};

struct TestFolder {
    folder: TempDir,
}

impl TestFolder {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        Self { folder }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn path(&self) -> PathBuf {
        self.file("journal.db")
    }

    fn open(&self) -> Journal {
        Journal::open(&self.path()).unwrap().journal
    }

    /// Removes the lock files: their owners are taken for dead from then on.
    fn kill(&self) {
        let owners = self.owners();
        owners
            .iter()
            .for_each(|file| std::fs::remove_file(file).unwrap());
    }

    /// Returns the existing lock files.
    fn owners(&self) -> Vec<PathBuf> {
        match std::fs::read_dir(self.file("journal.db.owners")) {
            Ok(found) => found.map(|entry| entry.unwrap().path()).collect(),
            Err(_) => Vec::new(),
        }
    }
}

fn line(turn: u64, kind: &str) -> RawEntry {
    RawEntry {
        turn,
        kind: kind.to_owned(),
        time: at(100 + turn),
        body: format!(r#"{{"of":{turn}}}"#),
    }
}

async fn begin(journal: &Journal, id: &str) -> SessionLock {
    let session = NewSession {
        title: String::new(),
        id: id.to_owned(),
        directory: "/somewhere".to_owned(),
        now: at(1),
    };
    journal.create(session).await.unwrap()
}

async fn append(journal: &Journal, hold: &SessionLock, lines: &[(u64, &str)]) {
    let lines = lines.iter().map(|(turn, kind)| line(*turn, kind));
    journal.append(hold, lines.collect()).await.unwrap();
}

/// Returns the entries as `seq turn kind`.
fn told(entries: &[StoredEntry]) -> Vec<String> {
    let tell =
        |entry: &StoredEntry| format!("{} {} {}", entry.seq, entry.entry.turn, entry.entry.kind);
    entries.iter().map(tell).collect()
}

/// Polls a future once, and returns whether it is pending.
fn is_pending(future: Pin<&mut impl Future>) -> bool {
    let mut context = Context::from_waker(Waker::noop());
    future.poll(&mut context).is_pending()
}
