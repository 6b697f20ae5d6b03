//! Deletes runs for good, with the sessions of their steps and the artifacts that no other run uses.

use super::explain_error;
use crate::commands::sessions::parse_age;
use crate::output::diagnostics::print_status;
use crate::platform::clock;
use crate::platform::exit::{Exit, UsageError};
use outlast_engine::Clock;
use outlast_pipeline::history;
use outlast_pipeline::run_store::mailbox::Mailbox;
use outlast_pipeline::run_store::{ARTIFACTS, MAIL, RunStore, SCRATCH};
use outlast_store::journal::{Availability, Summary};
use outlast_store::{Artifacts, Error};
use std::collections::HashSet;
use std::time::Duration;

/// The age below which an artifact is kept: it may be that of a run that has just begun.
const ARTIFACT_GRACE_PERIOD: Duration = Duration::from_secs(60);

/// Deletes the named runs.
pub(super) async fn delete(home: &RunStore, names: &[String]) -> anyhow::Result<Exit> {
    // Look all of them up before the first one is deleted.
    let mut found = Vec::new();
    for name in names {
        found.push(home.find(name).await.map_err(explain_error)?);
    }
    for run in &found {
        remove(home, run).await?;
        print_status(&format!("Deleted {}.", run.id));
    }
    tidy(home).await?;
    Ok(Exit::Success)
}

/// Deletes all finished runs without changes for the given age.
pub(super) async fn delete_older(home: &RunStore, age: &str) -> anyhow::Result<Exit> {
    let age = parse_age(age)?;
    let now = clock::clock()?.now();
    let is_old = |run: &&Summary| {
        let is_over = run.open_turn.is_none() && run.availability != Availability::InUse;
        is_over && now.since(run.changed) > age
    };
    let runs = home.all().await?;
    let old: Vec<&Summary> = runs.iter().filter(is_old).collect();
    for run in &old {
        remove(home, run).await?;
    }
    tidy(home).await?;
    print_status(&format!("Deleted {}.", old.len()));
    Ok(Exit::Success)
}

/// Removes a run, its sessions first: a run that was not removed to the end can be removed again.
async fn remove(home: &RunStore, run: &Summary) -> anyhow::Result<()> {
    if run.availability == Availability::InUse {
        return Err(in_use_error(&run.id).into());
    }
    let Some(runs) = home.runs().await? else {
        return Ok(());
    };
    let mentions = history::references(&runs, &run.id).await?;
    if let Some(steps) = &home.steps().await? {
        for session in mentions.sessions {
            match steps.delete(&session).await {
                Err(Error::NoSuchSession { .. }) => {}
                deleted => deleted?,
            }
        }
    }
    match runs.delete(&run.id).await {
        Err(Error::InUse(session)) => return Err(in_use_error(&session).into()),
        deleted => deleted.map_err(|error| explain_error(error.into()))?,
    }
    // Nobody reads its remaining run requests and the scratch files of its attempts.
    drop(Mailbox::new(&home.folder().join(MAIL)).take(&run.id));
    std::fs::remove_dir_all(home.folder().join(SCRATCH).join(&run.id)).ok();
    Ok(())
}

fn in_use_error(run: &str) -> UsageError {
    UsageError(format!(
        "run {run} is at work; `outlast runs cancel {run}` ends it"
    ))
}

/// Purges deleted entries from the databases, and removes artifacts that no run uses.
async fn tidy(home: &RunStore) -> anyhow::Result<()> {
    let Some(runs) = home.runs().await? else {
        return Ok(());
    };
    runs.purge_deleted().await?;
    if let Some(steps) = &home.steps().await? {
        steps.purge_deleted().await?;
    }
    let folder = home.folder().join(ARTIFACTS);
    let all = runs.sessions().await?;
    // A running process may have made artifacts that are not in the journal yet.
    if !folder.exists()
        || all
            .iter()
            .any(|run| run.availability == Availability::InUse)
    {
        return Ok(());
    }
    let mut used = HashSet::new();
    for run in &all {
        let mentions = history::references(&runs, &run.id).await?;
        // The artifacts of an unreadable run are unknown; keep all.
        if !mentions.is_complete {
            return Ok(());
        }
        used.extend(mentions.artifacts);
    }
    let remove = move || Artifacts::open(&folder)?.remove_unused(&used, ARTIFACT_GRACE_PERIOD);
    tokio::task::spawn_blocking(remove).await??;
    Ok(())
}
