//! The file in our folder in which sessions are written down.

use crate::exit::Usage;
use crate::{complain, home};
use anyhow::Context;
use outlast_store::journal::Summary;
use outlast_store::{Error, Journal};
use std::path::Path;

/// The file in our folder.
pub(crate) const FILE: &str = "sessions.db";

/// Opens the journal, or makes it. A damaged one is put aside, and that is said.
pub(crate) fn open(home: &Path) -> Result<Journal, Error> {
    let opened = Journal::open(&home.join(FILE))?;
    if let Some(aside) = opened.replaced {
        complain(&format!(
            "warning: the sessions are damaged; they are kept as {}, and a new file is begun",
            aside.display()
        ));
    }
    Ok(opened.journal)
}

/// Opens the journal that is there. A damaged one is an error: what it holds is what was asked for.
pub(crate) fn existing() -> anyhow::Result<Option<Journal>> {
    let file = home::path()?.join(FILE);
    let damaged = || {
        format!(
            "the sessions in {} cannot be read; nothing was changed",
            file.display()
        )
    };
    Journal::open_existing(&file).with_context(damaged)
}

/// The session that was named, by its id or the beginning of it.
pub(crate) async fn find(journal: &Journal, name: &str) -> anyhow::Result<Summary> {
    // Every id begins with nothing: a variable that is not set would mean the only session that there is.
    if name.is_empty() {
        return Err(Usage("the name of a session is empty".to_owned()).into());
    }
    journal.summary(name).await.map_err(|error| match error {
        Error::NoSuchSession { .. } | Error::Ambiguous { .. } => Usage(error.to_string()).into(),
        error => error.into(),
    })
}
