//! `outlast runs`: list, show, follow, report on, answer and delete runs of pipelines.
//!
//! This module runs nothing: a run stays with the process that executes it, and commands reach it as run requests.

mod delete;
mod show;
mod step;
mod watch;

use crate::args::{ReportFormat, RunsArguments, RunsCommand};
use crate::commands::sessions::parse_age;
use crate::output::diagnostics::print_status;
use crate::output::spinner::Spinner;
use crate::output::{print, print_json};
use crate::platform::clock;
use crate::platform::exit::{Exit, UsageError};
use crate::platform::home;
use crate::platform::runtime;
use crate::print_diagnostic;
use outlast_engine::Clock;
use outlast_engine::clock::WallClock;
use outlast_kernel::text;
use outlast_pipeline::report;
use outlast_pipeline::run_store::{Error, RunRequestReceipt, RunStore};
use outlast_store::journal::Summary;
use serde_json::{Value, json};

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
    runtime::run_on_this_thread(async {
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
        RunsCommand::List { json } => list(home, json).await,
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
            report_sent(told.await)
        }
        RunsCommand::RetryNow { run, step } => {
            report_sent(home.retry_now(&run, step.as_deref()).await)
        }
        RunsCommand::Cancel { run } => report_sent(home.cancel(&run).await),
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

/// Lists all runs, one line each.
async fn list(home: &RunStore, json: bool) -> anyhow::Result<Exit> {
    let mut runs = Vec::new();
    for run in home.all().await? {
        let standing = home.status(&run).await?.as_str();
        runs.push((run, standing));
    }
    if json {
        let rows: Value = runs.iter().map(row).collect();
        return print_json(&rows);
    }
    if runs.is_empty() {
        print_status(NO_RUNS);
        return Ok(Exit::Success);
    }
    let lines: String = runs.iter().map(line).collect();
    print(&text::plain(&lines))
}

fn row((run, standing): &(Summary, &'static str)) -> Value {
    json!({
        "id": run.id, "state": standing, "pipeline": run.title, "created": run.created,
        "changed": run.changed, "directory": run.directory, "entries": run.entries,
    })
}

fn line((run, standing): &(Summary, &'static str)) -> String {
    let Summary {
        id, changed, title, ..
    } = run;
    let title: Vec<&str> = title.split_whitespace().collect();
    format!("{id}  {changed}  {standing:<10}  {}\n", title.join(" "))
}

/// Returns the run with the given name or the given beginning of a name, or the newest run if none is given.
async fn find_or_newest(home: &RunStore, name: Option<&str>) -> anyhow::Result<Summary> {
    if let Some(name) = name {
        return home.find(name).await.map_err(explain_error);
    }
    let newest = home.all().await?.into_iter().next();
    Ok(newest.ok_or_else(|| UsageError(NO_RUN.to_owned()))?)
}

/// Converts an error of the run store to a usage error with the command that helps.
pub(crate) fn explain_error(error: Error) -> anyhow::Error {
    let remedy = match &error {
        Error::EmptyName | Error::NotFound { .. } => "; `outlast runs` lists them".to_owned(),
        Error::RunEnded { run } => format!("; `outlast runs show {run}` says how it ended"),
        Error::StepNotActive { run, .. } => format!("; `outlast runs show {run}` says what is"),
        Error::NoOpenQuestion { step: Some(_) } => {
            "; `outlast runs show` says what does".to_owned()
        }
        Error::NoOpenQuestion { step: None } => {
            "; `outlast runs show` says what it does".to_owned()
        }
        Error::Ambiguous { .. } | Error::AmbiguousQuestion { .. } | Error::UnknownChoice { .. } => {
            String::new()
        }
        _ => return error.into(),
    };
    UsageError(format!("{error}{remedy}")).into()
}

/// Prints whether the run received the request.
fn report_sent(told: Result<RunRequestReceipt, Error>) -> anyhow::Result<Exit> {
    let RunRequestReceipt { id, is_at_work } = told.map_err(explain_error)?;
    match is_at_work {
        true => print_status(&format!("Told run {id}.")),
        false => print_diagnostic(&format!(
            "No process is at work on run {id}; `outlast run --resume {id}` carries it on, and is told."
        )),
    }
    Ok(Exit::Success)
}
