//! `outlast runs show --step`: the sessions and the failures of one step.

use super::find_or_newest;
use crate::commands::sessions;
use crate::output::print;
use crate::platform::exit::{Exit, UsageError};
use outlast_kernel::text;
use outlast_pipeline::definition::OUTPUT;
use outlast_pipeline::run_store::{ARTIFACTS, RunStore};
use outlast_pipeline::state::{Run, StepState};
use outlast_session::transcript::{Format, Header};
use outlast_store::Artifacts;
use std::io::{IsTerminal, Write};

pub(super) async fn show(home: &RunStore, run_id: &str, id: &str) -> anyhow::Result<Exit> {
    let (run, _) = home.read(run_id).await?;
    let Some(step) = run.steps.get(id) else {
        return Err(UsageError(unknown_step_message(&run, id)).into());
    };
    print(&attempts(step))?;
    let sessions = sessions(step);
    if let Some(steps) = &home.steps().await? {
        for session in &sessions {
            // The process may have died before the session began; then it does not exist.
            if let Ok(summary) = steps.summary(session).await {
                let head = Header::from(&summary);
                sessions::write_session(steps, &head, Format::Plain).await?;
            }
        }
    }
    match step.artifacts.get(OUTPUT) {
        Some(artifact) if sessions.is_empty() => {
            let output = Artifacts::open(&home.folder().join(ARTIFACTS))?.get(&artifact.hash)?;
            print(&text::plain(&String::from_utf8_lossy(&output)))
        }
        _ => Ok(Exit::Success),
    }
}

/// Describes the attempts of a step and their failures.
fn attempts(step: &StepState) -> String {
    let mut said = String::new();
    for visit in &step.visits {
        for attempt in &visit.attempts {
            let (number, started) = (attempt.number, attempt.started);
            said += &format!("Visit {}, attempt {number}, at {started}: ", visit.number);
            let Some(problem) = &attempt.problem else {
                said += match attempt.ended {
                    Some(_) => "ended well\n",
                    None => "not over\n",
                };
                continue;
            };
            said += &format!("{} ({})\n", problem.cause.phrase(), problem.cause);
            let details = std::iter::once(&problem.message);
            let details = details
                .chain(&problem.violations)
                .chain(&problem.last_events);
            for line in details.flat_map(|text| text.lines()) {
                said += &format!("  │ {}\n", text::plain(line));
            }
        }
    }
    said
}

/// Prints an output of a step: byte for byte, but with terminal escapes removed if stdout is a terminal.
pub(super) async fn output(
    home: &RunStore,
    run: &str,
    id: &str,
    name: Option<&str>,
) -> anyhow::Result<Exit> {
    let run_id = find_or_newest(home, Some(run)).await?.id;
    let (run, _) = home.read(&run_id).await?;
    let Some(step) = run.steps.get(id) else {
        return Err(UsageError(unknown_step_message(&run, id)).into());
    };
    let name = name.unwrap_or(OUTPUT);
    let Some(artifact) = step.artifacts.get(name) else {
        let names: Vec<&str> = step.artifacts.keys().map(String::as_str).collect();
        let made = match names.is_empty() {
            true => "it has made nothing".to_owned(),
            false => format!("there are: {}", names.join(", ")),
        };
        return Err(UsageError(format!("step {id} has no output `{name}`; {made}")).into());
    };
    let bytes = Artifacts::open(&home.folder().join(ARTIFACTS))?.get(&artifact.hash)?;
    let mut stdout = std::io::stdout();
    if stdout.is_terminal() {
        return print(&text::plain(&String::from_utf8_lossy(&bytes)));
    }
    stdout.write_all(&bytes)?;
    Ok(Exit::Success)
}

/// Returns the sessions of a step, in order.
fn sessions(step: &StepState) -> Vec<&str> {
    let attempts = step.visits.iter().flat_map(|visit| &visit.attempts);
    let mut sessions: Vec<&str> = Vec::new();
    for session in attempts.filter_map(|attempt| attempt.session.as_deref()) {
        if !sessions.contains(&session) {
            sessions.push(session);
        }
    }
    sessions
}

fn unknown_step_message(run: &Run, id: &str) -> String {
    let names: Vec<&str> = run.steps.keys().map(String::as_str).collect();
    format!("no step {id} has begun; there are: {}", names.join(", "))
}
