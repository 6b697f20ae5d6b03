//! A run as it was written down, read by anybody: whoever runs it, or whether anybody does, does not matter.
//!
//! Invariants: entries are read in pages and in order; one that cannot be read is an error that names it, as a run with a
//! hole in it would be another run. What a model's session waited for is told with the attempt that it was part of.
//! Not here: what comes next (see `graph`), and how a run is shown (see `report`).

use super::entry::Entry;
use super::state::{Attempt, Run, WaitPeriod};
use outlast_engine::journal;
use outlast_kernel::Timestamp;
use outlast_session as session;
use outlast_store::Journal;
use outlast_store::journal::{Page, StoredEntry};
use std::collections::{BTreeMap, BTreeSet};

/// How many entries are read at a time.
const PAGE_SIZE: u32 = 500;
/// The kinds of entries of a session that tell of waits.
const WAIT_KINDS: &[&str] = &["wait_scheduled", "wait_ended"];

/// An entry with its number and its time.
pub type RecordedEntry = (u64, Timestamp, Entry);

/// A run that could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The journal refused.
    #[error(transparent)]
    Store(#[from] outlast_store::Error),
    /// An entry cannot be read, perhaps because a later version wrote it.
    #[error("entry {seq} of run {run} cannot be read, perhaps a later version wrote it: {error}")]
    Unreadable {
        /// The run.
        run: String,
        /// The entry.
        seq: u64,
        /// What is wrong with it.
        error: serde_json::Error,
    },
    /// What a step's session waited for cannot be read.
    #[error(transparent)]
    Session(#[from] session::Error),
}

/// A run and its entries; `steps` is where the sessions of its steps are.
pub async fn read(
    runs: &Journal,
    steps: Option<&Journal>,
    id: &str,
) -> Result<(Run, Vec<RecordedEntry>), Error> {
    let entries = read_after(runs, id, 0).await?;
    let mut run = Run::of(entries.iter().map(|(_, time, entry)| (*time, entry)));
    if let Some(steps) = steps {
        add_waits(&mut run, steps).await?;
    }
    Ok((run, entries))
}

/// The entries of a run that come after the one of that number.
pub async fn read_after(runs: &Journal, id: &str, after: u64) -> Result<Vec<RecordedEntry>, Error> {
    let mut entries = Vec::new();
    let mut read = |StoredEntry { seq, line }| {
        let entry = serde_json::from_str(&line.body).map_err(|error| Error::Unreadable {
            run: id.to_owned(),
            seq,
            error,
        })?;
        entries.push((seq, line.time, entry));
        Ok(())
    };
    pages(runs, id, after, None, &mut read).await?;
    Ok(entries)
}

/// What the sessions of a run's steps have waited for, told with their attempts. To be added once.
pub async fn add_waits(run: &mut Run, steps: &Journal) -> Result<(), Error> {
    let mut sessions: BTreeMap<String, Vec<WaitPeriod>> = BTreeMap::new();
    for attempt in attempts(run) {
        let Some(session) = &attempt.session else {
            continue;
        };
        if !sessions.contains_key(session) {
            let waits = waits(steps, session).await?;
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
        // The wait of the step itself comes after all that its session waited for.
        within.append(&mut attempt.waits);
        attempt.waits = within;
    }
    Ok(())
}

/// What a session waits for just now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CurrentWait {
    /// The wait.
    pub span: WaitPeriod,
    /// The number of the retry that follows.
    pub retry: u32,
    /// What the provider said, where that was written down.
    pub message: Option<String>,
}

/// What a session waits for just now, as far as it is written down.
pub async fn waiting(steps: &Journal, session: &str) -> Result<Option<CurrentWait>, Error> {
    let last = async |kind| match steps.last(session, kind).await {
        Err(outlast_store::Error::NoSuchSession { .. }) => Ok(None),
        last => last,
    };
    let Some(begun) = last("wait_scheduled").await? else {
        return Ok(None);
    };
    let ended = last("wait_ended").await?.map_or(0, |ended| ended.seq);
    let settled = last("settled").await?.map_or(0, |settled| settled.seq);
    let journal::Entry::WaitScheduled {
        since,
        until,
        cause,
        spent,
    } = session::read(session, &begun)?
    else {
        return Ok(None);
    };
    if ended.max(settled) > begun.seq {
        return Ok(None);
    }
    let failed = last("attempt_failed").await?;
    let failed = failed.map(|failed| session::read(session, &failed));
    let message = match failed.transpose()? {
        Some(journal::Entry::AttemptFailed { judged, .. }) => {
            judged.map(|judged| judged.failure.message)
        }
        _ => None,
    };
    Ok(Some(CurrentWait {
        span: WaitPeriod {
            since,
            until,
            ended: None,
            cause: Some(cause),
        },
        retry: spent.chain.retries(),
        message,
    }))
}

/// What a session has waited for; nothing when it is gone.
async fn waits(steps: &Journal, session: &str) -> Result<Vec<WaitPeriod>, Error> {
    let mut waits: Vec<WaitPeriod> = Vec::new();
    let mut read = |stored: StoredEntry| {
        match session::read(session, &stored)? {
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
                    // An end is written down no earlier than it comes, but perhaps a good deal later.
                    wait.ended = Some(stored.line.time.min(wait.until));
                }
            }
            _ => {}
        }
        Ok(())
    };
    match pages(steps, session, 0, Some(WAIT_KINDS), &mut read).await {
        Err(Error::Store(outlast_store::Error::NoSuchSession { .. })) => Ok(Vec::new()),
        read => read.map(|()| waits),
    }
}

/// What a run has left elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct References {
    /// The sessions of its steps.
    pub sessions: BTreeSet<String>,
    /// What it has made, by the hashes.
    pub artifacts: BTreeSet<String>,
    /// Whether all of its entries could be read.
    pub is_whole: bool,
}

/// What a run has left elsewhere; as much of it as can be read.
pub async fn mentions(runs: &Journal, id: &str) -> Result<References, Error> {
    let mut mentions = References {
        is_whole: true,
        ..References::default()
    };
    let mut read = |stored: StoredEntry| {
        match serde_json::from_str(&stored.line.body) {
            Ok(Entry::AttemptStarted { session, .. }) => mentions.sessions.extend(session),
            Ok(Entry::StepEnded { artifacts, .. }) => {
                let hashes = artifacts.into_values().map(|artifact| artifact.hash);
                mentions.artifacts.extend(hashes);
            }
            Ok(_) => {}
            Err(_) => mentions.is_whole = false,
        }
        Ok(())
    };
    pages(runs, id, 0, None, &mut read).await?;
    Ok(mentions)
}

fn attempts(run: &mut Run) -> impl Iterator<Item = &mut Attempt> {
    let visits = run.steps.values_mut().flat_map(|step| &mut step.visits);
    visits.flat_map(|visit| &mut visit.attempts)
}

async fn pages(
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
