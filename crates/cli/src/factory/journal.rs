//! The file in our folder in which sessions are written down.

use crate::complain;
use crate::platform::exit::UsageError;
use crate::platform::home;
use anyhow::Context;
use outlast_store::journal::Summary;
use outlast_store::{Error, Journal};
use std::path::{Path, PathBuf};

/// The file in our folder.
pub(crate) const FILE: &str = "sessions.db";

/// What is said to whoever wants something of a session where there is none.
pub(crate) const NO_SESSION: &str = "there is no session yet; `outlast -p \"…\"` begins one";

/// Opens the journal, or makes it. A damaged one is put aside, and that is said.
pub(crate) fn open(home: &Path) -> Result<(Journal, EarlierSessions), Error> {
    let opened = Journal::open(&home.join(FILE))?;
    let Some(aside) = opened.replaced else {
        return Ok((opened.journal, EarlierSessions::Whole));
    };
    complain(&format!(
        "warning: the sessions are damaged; they are kept as {}, and a new file is begun; `sqlite3 FILE .recover` \
         reads what is whole",
        aside.display()
    ));
    Ok((opened.journal, EarlierSessions::Damaged))
}

/// How earlier sessions were found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EarlierSessions {
    Whole,
    Damaged,
}

/// The files that were put aside because they are damaged.
pub(crate) fn damaged(home: &Path) -> Vec<PathBuf> {
    let prefix = format!("{FILE}.damaged-");
    let files = std::fs::read_dir(home).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = files
        .filter(|file| {
            let name = file.file_name();
            let name = name.to_string_lossy();
            name.starts_with(&prefix) && !name.ends_with("-wal") && !name.ends_with("-shm")
        })
        .map(|file| file.path())
        .collect();
    files.sort();
    files
}

/// Opens the journal that is there. A damaged one is an error: what it holds is what was asked for.
pub(crate) fn existing() -> anyhow::Result<Option<Journal>> {
    let file = home::path()?.join(FILE);
    let damaged = || {
        format!(
            "the sessions in {} cannot be read; nothing was changed, and `outlast doctor` says what to do",
            file.display()
        )
    };
    Journal::open_existing(&file).with_context(damaged)
}

/// The session that was named, by its id or the beginning of it.
pub(crate) async fn find(journal: &Journal, name: &str) -> anyhow::Result<Summary> {
    // Every id begins with nothing: a variable that is not set would mean the only session that there is.
    if name.is_empty() {
        return Err(UsageError(
            "the name of a session is empty; `outlast sessions list` shows all".to_owned(),
        )
        .into());
    }
    journal.summary(name).await.map_err(|error| match error {
        Error::NoSuchSession { session } => UsageError(format!(
            "there is no session {session}; `outlast sessions list` shows all"
        ))
        .into(),
        Error::Ambiguous { .. } => UsageError(error.to_string()).into(),
        error => error.into(),
    })
}
