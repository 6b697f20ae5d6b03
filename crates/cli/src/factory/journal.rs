//! The file with the journal of sessions in our folder.

use crate::platform::exit::UsageError;
use crate::platform::home;
use crate::print_diagnostic;
use anyhow::Context;
use outlast_store::journal::Summary;
use outlast_store::{Error, Journal};
use std::path::{Path, PathBuf};

/// The name of the file.
pub(crate) const FILE: &str = "sessions.db";

/// The error for a command that needs a session when there is none.
pub(crate) const NO_SESSION: &str = "there is no session yet; `outlast -p \"…\"` begins one";

/// Opens or creates the journal. A damaged file is moved aside with a warning.
pub(crate) fn open(home: &Path) -> Result<(Journal, EarlierSessions), Error> {
    let opened = Journal::open(&home.join(FILE))?;
    let Some(aside) = opened.replaced else {
        return Ok((opened.journal, EarlierSessions::Intact));
    };
    print_diagnostic(&format!(
        "warning: the sessions are damaged; they are kept as {}, and a new file is begun; `sqlite3 FILE .recover` \
         reads what is whole",
        aside.display()
    ));
    Ok((opened.journal, EarlierSessions::Damaged))
}

/// The state of earlier sessions when the journal was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EarlierSessions {
    Intact,
    Damaged,
}

/// Returns the files that were moved aside because they are damaged.
pub(crate) fn damaged_files(home: &Path) -> Vec<PathBuf> {
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

/// Opens the journal if there is one. A damaged file is an error: the caller needs its contents.
pub(crate) fn open_existing() -> anyhow::Result<Option<Journal>> {
    let file = home::path()?.join(FILE);
    let damaged = || {
        format!(
            "the sessions in {} cannot be read; nothing was changed, and `outlast doctor` says what to do",
            file.display()
        )
    };
    Journal::open_existing(&file).with_context(damaged)
}

/// Returns the session with the given id or the given beginning of one.
pub(crate) async fn find(journal: &Journal, name: &str) -> anyhow::Result<Summary> {
    // Every id begins with the empty text: an unset variable would mean the only session that there is.
    if name.is_empty() {
        return Err(UsageError(
            "the name of a session is empty; `outlast sessions list` shows all".to_owned(),
        )
        .into());
    }
    journal.summary(name).await.map_err(|error| match error {
        Error::NoSuchSession(session) => UsageError(format!(
            "there is no session {session}; `outlast sessions list` shows all"
        ))
        .into(),
        Error::Ambiguous { .. } => UsageError(error.to_string()).into(),
        error => error.into(),
    })
}
