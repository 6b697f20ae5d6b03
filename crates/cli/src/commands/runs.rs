//! `outlast runs`: list, show, follow, report on, answer and delete runs of pipelines.
//!
//! This module runs nothing: a run stays with the process that executes it, and commands reach it as run requests.

mod delete;
pub(crate) mod find;
mod list;
pub(crate) mod run_requests;
mod show;
mod step;
mod watch;

use crate::args::{ReportFormat, RunsArguments, RunsCommand};
use crate::commands::sessions::parse_age;
use crate::output::diagnostics::print_status;
use crate::output::print;
use crate::output::spinner::Spinner;
use crate::platform::clock;
use crate::platform::exit::{Exit, UsageError};
use crate::platform::home;
use find::find_or_newest;
use outlast_engine::Clock;
use outlast_engine::clock::WallClock;
use outlast_pipeline::report;
use outlast_pipeline::run_store::RunStore;

const NO_RUNS: &str = "No runs yet.";
/// The error for a command that needs a run when there is none.
const NO_RUN: &str = "there is no run yet; `outlast run FILE` begins one";

pub(crate) fn run(arguments: RunsArguments) -> anyhow::Result<Exit> {
    let json = arguments.json;
    let command = arguments.command.unwrap_or(RunsCommand::List { json });
    // The argument is checked even if there is nothing to delete.
    if let RunsCommand::Delete {
        older_than: Some(age),
        ..
    } = &command
    {
        parse_age(age)?;
    }
    let clock = clock::clock()?;
    let home = RunStore::new(&home::path()?);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        if home.runs().await?.is_none() {
            return report_no_runs(&command);
        }
        let _working = spinner(&command);
        execute(&home, command, &clock).await
    })
}

/// Shows a spinner for slow commands; `show --watch` has its own display.
fn spinner(command: &RunsCommand) -> Option<Spinner> {
    match command {
        RunsCommand::Show(arguments) if arguments.watch => None,
        RunsCommand::Show(_) | RunsCommand::Report { .. } | RunsCommand::Output { .. } => {
            Spinner::start_for_stream("reading the run")
        }
        RunsCommand::Delete { .. } => {
            Some(Spinner::start("deleting, and making the files smaller"))
        }
        RunsCommand::List { .. }
        | RunsCommand::Approve { .. }
        | RunsCommand::RetryNow { .. }
        | RunsCommand::Cancel { .. } => Some(Spinner::start("reading the runs")),
    }
}

async fn execute(home: &RunStore, command: RunsCommand, clock: &WallClock) -> anyhow::Result<Exit> {
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
        RunsCommand::Report { run, format } => report(home, run.as_deref(), format, clock).await,
        RunsCommand::Output { run, step, name } => {
            step::output(home, &run, &step, name.as_deref()).await
        }
        RunsCommand::Approve { run, step, choice } => {
            let told = home.answer(&run, step.as_deref(), choice.as_deref());
            run_requests::report_sent(told.await)
        }
        RunsCommand::RetryNow { run, step } => {
            run_requests::report_sent(home.retry_now(&run, step.as_deref()).await)
        }
        RunsCommand::Cancel { run } => run_requests::report_sent(home.cancel(&run).await),
    }
}

async fn report(
    home: &RunStore,
    name: Option<&str>,
    format: ReportFormat,
    clock: &WallClock,
) -> anyhow::Result<Exit> {
    let id = find_or_newest(home, name).await?.id;
    let (run, _) = home.read(&id).await?;
    let document = match format {
        ReportFormat::Markdown => report::markdown,
        ReportFormat::Html => report::html,
    };
    print(&document(&run, &id, clock.now()))
}

/// Responds to a command when there are no runs at all.
fn report_no_runs(command: &RunsCommand) -> anyhow::Result<Exit> {
    match command {
        RunsCommand::List { json: true } => print("[]\n"),
        RunsCommand::List { json: false }
        | RunsCommand::Delete {
            older_than: Some(_),
            ..
        } => {
            print_status(NO_RUNS);
            Ok(Exit::Success)
        }
        _ => Err(UsageError(NO_RUN.to_owned()).into()),
    }
}
