//! Telling whoever is at work on a run what a person wants.
//!
//! What cannot mean anything to the run is refused here, where somebody reads why.

use super::find::Home;
use super::show::{asked, one_line};
use crate::complain;
use crate::exit::{Exit, Usage};
use crate::notice::notice;
use crate::run_command::files::MAIL;
use crate::run_view::Asked;
use outlast_agent::pipeline::history::Written;
use outlast_agent::pipeline::mailbox::{Letter, Mailbox};
use outlast_agent::pipeline::state::{Phase, Run};
use outlast_store::journal::{State, Summary};

/// Answers what a run asks.
pub(super) async fn approve(
    home: &Home,
    name: &str,
    (step, choice): (Option<String>, Option<String>),
) -> anyhow::Result<Exit> {
    let (summary, run, entries) = open(home, name).await?;
    let (at, asked) = gate(&run, &entries, step.as_deref())?;
    if let Some(choice) = &choice
        && !asked.choices.iter().any(|known| is_named(known, choice))
    {
        let choices = one_line(&asked.choices.join(", "));
        return Err(Usage(format!(
            "`{choice}` is no answer to {at}; there are: {choices}"
        ))
        .into());
    }
    let step = Some(at);
    post(home, &summary, &Letter::Answer { step, choice })
}

/// Whether a choice, which may be written with what it means, has that key.
fn is_named(choice: &str, key: &str) -> bool {
    let rest = choice.strip_prefix(key);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(": "))
}

/// Has a run try again at once what it waits to try again.
pub(super) async fn retry_now(
    home: &Home,
    name: &str,
    step: Option<String>,
) -> anyhow::Result<Exit> {
    let (summary, run, _) = open(home, name).await?;
    if let Some(step) = step.as_deref().filter(|step| !run.phase(step).is_active()) {
        return Err(Usage(format!(
            "step {step} is not under way; `outlast runs show {}` says what is",
            summary.id
        ))
        .into());
    }
    post(home, &summary, &Letter::RetryNow { step })
}

/// Ends a run.
pub(super) async fn cancel(home: &Home, name: &str) -> anyhow::Result<Exit> {
    let (summary, _, _) = open(home, name).await?;
    post(home, &summary, &Letter::Cancel {})
}

/// A run that is not over.
async fn open(home: &Home, name: &str) -> anyhow::Result<(Summary, Run, Vec<Written>)> {
    let summary = home.find(name).await?;
    let (run, entries) = home.read(&summary.id).await?;
    match run.ended {
        Some(_) => Err(Usage(format!(
            "run {0} is over; `outlast runs show {0}` says how it ended",
            summary.id
        ))
        .into()),
        None => Ok((summary, run, entries)),
    }
}

/// The gate that is meant, and what is asked there.
fn gate(run: &Run, entries: &[Written], step: Option<&str>) -> Result<(String, Asked), Usage> {
    let at_gate = run
        .steps
        .iter()
        .filter(|(_, step)| matches!(step.phase, Phase::AtGate { .. }));
    let mut asking: Vec<(String, Asked)> = at_gate
        .filter_map(|(id, _)| Some((id.clone(), asked(id, entries)?)))
        .collect();
    if let Some(step) = step {
        asking.retain(|(id, _)| id == step);
    }
    match (asking.len(), step) {
        (1, _) => Ok(asking.swap_remove(0)),
        (0, Some(step)) => Err(Usage(format!(
            "step {step} asks nothing; `outlast runs show` says what does"
        ))),
        (0, None) => Err(Usage(
            "the run asks nothing; `outlast runs show` says what it does".to_owned(),
        )),
        _ => {
            let names: Vec<&str> = asking.iter().map(|(id, _)| id.as_str()).collect();
            let names = names.join(", ");
            Err(Usage(format!("several steps ask; name one of: {names}")))
        }
    }
}

fn post(home: &Home, summary: &Summary, letter: &Letter) -> anyhow::Result<Exit> {
    let id = &summary.id;
    Mailbox::new(&home.folder.join(MAIL)).post(id, letter)?;
    match summary.state {
        State::InUse => notice(&format!("Told run {id}.")),
        State::Free | State::Abandoned => complain(&format!(
            "No process is at work on run {id}; `outlast run --resume {id}` carries it on, and is told."
        )),
    }
    Ok(Exit::Success)
}
