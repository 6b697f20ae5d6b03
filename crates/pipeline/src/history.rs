//! Reads a run from its journal, whether or not a process is executing it.
//!
//! Invariants: entries are read in pages and in order. An unreadable entry is an error that names it, since a run with
//! a gap would be a different run. The waits of a model's session are part of the attempt in which they happened. Not
//! here: the next entries (see `graph`), and the presentation of a run (see `report`).

use super::entry::Entry;
use super::run_view::RunWait;
use super::state::{Attempt, Run, WaitPeriod};
use outlast_engine::journal;
use outlast_kernel::Timestamp;
use outlast_session as session;
use outlast_store::Journal;
use outlast_store::journal::{Page, StoredEntry};
use std::collections::{BTreeMap, BTreeSet};

/// Number of entries to read at a time.
const PAGE_SIZE: u32 = 500;
/// The kinds of session entries that record waits.
const WAIT_KINDS: &[&str] = &["wait_scheduled", "wait_ended"];

/// The sequence number, the time and the content of an entry.
pub type RecordedEntry = (u64, Timestamp, Entry);

/// The error of reading a run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The journal returned an error.
    #[error(transparent)]
    Store(#[from] outlast_store::Error),
    /// An entry cannot be read, perhaps because a later version wrote it.
    #[error("entry {seq} of run {run} cannot be read, perhaps a later version wrote it: {error}")]
    Unreadable {
        /// The run.
        run: String,
        /// The sequence number of the entry.
        seq: u64,
        /// The parse error.
        error: serde_json::Error,
    },
    /// The waits of a step's session cannot be read.
    #[error(transparent)]
    Session(#[from] session::Error),
}

/// Reads a run and its entries; `steps` holds the sessions of its steps.
pub async fn read(
    runs: &Journal,
    steps: Option<&Journal>,
    id: &str,
) -> Result<(Run, Vec<RecordedEntry>), Error> {
    let entries = read_after(runs, id, 0).await?;
    let mut run = Run::from_entries(entries.iter().map(|(_, time, entry)| (*time, entry)));
    if let Some(steps) = steps {
        add_waits(&mut run, steps).await?;
    }
    Ok((run, entries))
}

/// Reads the entries of a run after the given sequence number.
pub async fn read_after(runs: &Journal, id: &str, after: u64) -> Result<Vec<RecordedEntry>, Error> {
    let mut entries = Vec::new();
    let mut read = |StoredEntry { seq, entry: line }| {
        let entry = serde_json::from_str(&line.body).map_err(|error| Error::Unreadable {
            run: id.to_owned(),
            seq,
            error,
        })?;
        entries.push((seq, line.time, entry));
        Ok(())
    };
    read_pages(runs, id, after, None, &mut read).await?;
    Ok(entries)
}

/// Adds the waits of the steps' sessions to their attempts. Call this once per run.
pub async fn add_waits(run: &mut Run, steps: &Journal) -> Result<(), Error> {
    let mut sessions: BTreeMap<String, Vec<WaitPeriod>> = BTreeMap::new();
    for attempt in attempts(run) {
        let Some(session) = &attempt.session else {
            continue;
        };
        if !sessions.contains_key(session) {
            let waits = session_waits(steps, session).await?;
            sessions.insert(session.clone(), waits);
        }
    }
    for attempt in attempts(run) {
        let waits = attempt.session.as_ref().and_then(|name| sessions.get(name));
        let (started, ended) = (attempt.started, attempt.ended);
        let is_within = |wait: &&WaitPeriod| {
            wait.since >= started && ended.is_none_or(|ended| wait.since < ended)
        };
        let mut within: Vec<WaitPeriod> = waits
            .into_iter()
            .flatten()
            .filter(is_within)
            .copied()
            .collect();
        // The wait of the step itself comes after all waits of its session.
        within.append(&mut attempt.waits);
        attempt.waits = within;
    }
    Ok(())
}

/// Returns the current wait of a session, as far as it is recorded.
pub async fn current_wait(steps: &Journal, session: &str) -> Result<Option<RunWait>, Error> {
    let last = async |kind| match steps.last_of_kind(session, kind).await {
        Err(outlast_store::Error::NoSuchSession { .. }) => Ok(None),
        last => last,
    };
    let Some(begun) = last("wait_scheduled").await? else {
        return Ok(None);
    };
    let ended = last("wait_ended").await?.map_or(0, |ended| ended.seq);
    let settled = last("settled").await?.map_or(0, |settled| settled.seq);
    let journal::Entry::WaitScheduled {
        until,
        cause,
        spent,
        ..
    } = session::parse_entry(session, &begun)?
    else {
        return Ok(None);
    };
    if ended.max(settled) > begun.seq {
        return Ok(None);
    }
    let failed = last("attempt_failed").await?;
    let failed = failed.map(|failed| session::parse_entry(session, &failed));
    let message = match failed.transpose()? {
        Some(journal::Entry::AttemptFailed { judged, .. }) => {
            judged.map(|judged| judged.failure.message)
        }
        _ => None,
    };
    Ok(Some(RunWait {
        until,
        cause: Some(cause),
        attempt: Some(spent.chain.retries().saturating_add(1)),
        message,
    }))
}

/// Returns the waits of a session; none if the session no longer exists.
async fn session_waits(steps: &Journal, session: &str) -> Result<Vec<WaitPeriod>, Error> {
    let mut waits: Vec<WaitPeriod> = Vec::new();
    let mut read = |stored: StoredEntry| {
        match session::parse_entry(session, &stored)? {
            journal::Entry::WaitScheduled {
                since,
                until,
                cause,
                ..
            } => waits.push(WaitPeriod {
                since,
                until,
                ended: None,
                cause: Some(cause),
            }),
            journal::Entry::WaitEnded { .. } => {
                if let Some(wait) = waits.last_mut() {
                    // The end of a wait is recorded no earlier than it happens, but possibly much later.
                    wait.ended = Some(stored.entry.time.min(wait.until));
                }
            }
            _ => {}
        }
        Ok(())
    };
    match read_pages(steps, session, 0, Some(WAIT_KINDS), &mut read).await {
        Err(Error::Store(outlast_store::Error::NoSuchSession { .. })) => Ok(Vec::new()),
        read => read.map(|()| waits),
    }
}

/// The sessions and artifacts that a run refers to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct References {
    /// The sessions of its steps.
    pub sessions: BTreeSet<String>,
    /// The hashes of its artifacts.
    pub artifacts: BTreeSet<String>,
    /// Whether all of its entries were readable.
    pub is_complete: bool,
}

/// Returns the sessions and artifacts that a run refers to, as far as its entries can be read.
pub async fn references(runs: &Journal, id: &str) -> Result<References, Error> {
    let mut mentions = References {
        is_complete: true,
        ..References::default()
    };
    let mut read = |stored: StoredEntry| {
        match serde_json::from_str(&stored.entry.body) {
            Ok(Entry::AttemptStarted { session, .. }) => mentions.sessions.extend(session),
            Ok(Entry::StepEnded { artifacts, .. }) => {
                let hashes = artifacts.into_values().map(|artifact| artifact.hash);
                mentions.artifacts.extend(hashes);
            }
            Ok(_) => {}
            Err(_) => mentions.is_complete = false,
        }
        Ok(())
    };
    read_pages(runs, id, 0, None, &mut read).await?;
    Ok(mentions)
}

fn attempts(run: &mut Run) -> impl Iterator<Item = &mut Attempt> {
    let visits = run.steps.values_mut().flat_map(|step| &mut step.visits);
    visits.flat_map(|visit| &mut visit.attempts)
}

async fn read_pages(
    journal: &Journal,
    id: &str,
    mut after: u64,
    kinds: Option<&'static [&'static str]>,
    read: &mut impl FnMut(StoredEntry) -> Result<(), Error>,
) -> Result<(), Error> {
    loop {
        let page = Page {
            after,
            limit: PAGE_SIZE,
            kinds,
        };
        let stored = journal.read(id, page).await?;
        let Some(last) = stored.last() else {
            return Ok(());
        };
        after = last.seq;
        stored.into_iter().try_for_each(&mut *read)?;
    }
}

#[cfg(test)]
#[path = "history_tests.rs"]
mod tests;
