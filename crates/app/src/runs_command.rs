//! `outlast runs`: list, show, follow, report on, answer and delete runs of pipelines.
//!
//! Nothing here runs anything: whoever is at work on a run is left to it, and is told what a person wants by letter.

mod delete;
mod find;
mod list;
mod show;
mod step;
mod watch;

use crate::cli::{RunsArguments, RunsCommand};
use crate::exit::Exit;
use crate::{complain, settings};
use find::Home;
use outlast_engine::clock::WallClock;

const NO_RUNS: &str = "No runs yet.";

pub(crate) fn run(arguments: RunsArguments) -> anyhow::Result<Exit> {
    let json = arguments.json;
    let command = arguments.command.unwrap_or(RunsCommand::List { json });
    let clock = settings::clock()?;
    let Some(home) = Home::open()? else {
        return nothing(&command);
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(carry_out(&home, command, &clock))
}

async fn carry_out(home: &Home, command: RunsCommand, clock: &WallClock) -> anyhow::Result<Exit> {
    match command {
        RunsCommand::List { json } => list::list(home, json).await,
        RunsCommand::Show(arguments) => show::show(home, &arguments, clock).await,
        RunsCommand::Delete {
            runs,
            older_than: None,
        } => delete::delete(home, &runs).await,
        RunsCommand::Delete {
            older_than: Some(age),
            ..
        } => delete::delete_older(home, &age).await,
        RunsCommand::Report { .. }
        | RunsCommand::Approve { .. }
        | RunsCommand::RetryNow { .. }
        | RunsCommand::Cancel { .. } => anyhow::bail!("this is not built yet"),
    }
}

/// What is answered where nothing was ever run.
fn nothing(command: &RunsCommand) -> anyhow::Result<Exit> {
    match command {
        RunsCommand::List { json: true } => crate::output::print("[]\n"),
        RunsCommand::List { json: false }
        | RunsCommand::Delete {
            older_than: Some(_),
            ..
        } => {
            complain(NO_RUNS);
            Ok(Exit::Success)
        }
        _ => Err(crate::exit::Usage("there is no run yet".to_owned()).into()),
    }
}
