//! What was said and done in a step.

use super::find::Home;
use crate::exit::{Exit, Usage};
use crate::output::print;
use crate::run_command::files::ARTIFACTS;
use crate::sessions_command;
use outlast_agent::pipeline::definition::OUTPUT;
use outlast_agent::pipeline::state::{Run, StepState};
use outlast_agent::transcript::{Format, Head};
use outlast_kernel::text;
use outlast_store::Artifacts;

pub(super) async fn show(home: &Home, run_id: &str, id: &str) -> anyhow::Result<Exit> {
    let (run, _) = home.read(run_id).await?;
    let Some(step) = run.steps.get(id) else {
        return Err(Usage(unknown(&run, id)).into());
    };
    let sessions = sessions(step);
    let Some(steps) = home.steps.as_ref().filter(|_| !sessions.is_empty()) else {
        return output(home, id, step);
    };
    for session in sessions {
        let summary = steps.summary(session).await?;
        sessions_command::write_session(steps, &Head::from(&summary), Format::Plain).await?;
    }
    Ok(Exit::Success)
}

/// What a step has said that has asked no model.
fn output(home: &Home, id: &str, step: &StepState) -> anyhow::Result<Exit> {
    let Some(artifact) = step.artifacts.get(OUTPUT) else {
        let problem = format!("step {id} has asked no model, and has said nothing yet");
        return Err(Usage(problem).into());
    };
    let artifacts = Artifacts::open(&home.folder.join(ARTIFACTS))?;
    let output = artifacts.get(&artifact.hash)?;
    print(&text::plain(&String::from_utf8_lossy(&output)))
}

/// The sessions of a step, in order.
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

fn unknown(run: &Run, id: &str) -> String {
    let names: Vec<&str> = run.steps.keys().map(String::as_str).collect();
    format!("no step {id} has begun; there are: {}", names.join(", "))
}
