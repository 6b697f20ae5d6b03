//! A session that is there, and what it is asked with next.

use crate::commands::resume;
use crate::config;
use crate::factory::journal;
use crate::factory::options::Options;
use crate::factory::session::SessionParts;
use crate::platform::exit::UsageError;
use crate::print_diagnostic;
use anyhow::Context;
use outlast_engine::Clock;
use outlast_store::Journal;
use outlast_store::journal::{Availability, Summary};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A session that is there, free and finished. It stays in the folder where it began.
pub(crate) struct ExistingSession {
    pub(crate) journal: Journal,
    pub(crate) summary: Summary,
    pub(crate) options: Options,
    pub(crate) parts: SessionParts,
    pub(crate) folder: PathBuf,
}

impl ExistingSession {
    /// The session of that name, or the last one of this folder, with what was typed now and before.
    pub(crate) async fn find(
        name: Option<&str>,
        typed: Options,
        clock: &Arc<dyn Clock>,
    ) -> anyhow::Result<Self> {
        let journal = journal::open_existing()?;
        let journal = journal.ok_or_else(|| UsageError(journal::NO_SESSION.to_owned()))?;
        let summary = find_summary(&journal, name).await?;
        let earlier = resume::last_options(&journal, &summary.id).await?;
        let mut options = typed.or_earlier(earlier);
        let folder = PathBuf::from(&summary.directory);
        let settings = config::load_in(Some(&folder), &options.overrides())?;
        let parts = SessionParts::new(settings, &options, clock.clone())?;
        options.pin_model(&parts.settings, parts.model());
        Ok(Self {
            journal,
            summary,
            options,
            parts,
            folder,
        })
    }
}

/// The session that is meant.
async fn find_summary(journal: &Journal, name: Option<&str>) -> anyhow::Result<Summary> {
    let summary = match name {
        Some(name) => journal::find(journal, name).await?,
        None => last_session_in(journal, &current_folder()?).await?,
    };
    match (summary.open_turn, summary.availability) {
        (_, Availability::InUse) => Err(UsageError(format!(
            "session {} is in use by another process; it can be carried on when that has ended",
            summary.id
        ))
        .into()),
        (Some(_), _) => Err(UsageError(format!(
            "the last turn of session {0} is not finished; `outlast resume {0}` carries it on",
            summary.id
        ))
        .into()),
        (None, Availability::Abandoned) if summary.turns > 0 => {
            print_diagnostic(&format!(
                "● the answer before this was not printed; `outlast sessions show {}` has it",
                summary.id
            ));
            Ok(summary)
        }
        (None, _) => Ok(summary),
    }
}

/// The session of that folder in which something happened last.
pub(crate) async fn last_session_in(journal: &Journal, folder: &Path) -> anyhow::Result<Summary> {
    let here = folder.to_string_lossy();
    let mut sessions = journal.sessions().await?.into_iter();
    let last = sessions.find(|session| session.directory == here);
    Ok(last.ok_or_else(|| {
        UsageError(format!(
            "there is no session that began in {here}; `outlast sessions list` shows all"
        ))
    })?)
}

pub(crate) fn current_folder() -> anyhow::Result<PathBuf> {
    std::env::current_dir().context("cannot tell the current folder")
}
