//! Prints the result of a run: the outputs of the steps that no other step used.

use crate::output;
use outlast_kernel::text;
use outlast_pipeline::definition::{OUTPUT, OnFailure, Step, Work};
use outlast_pipeline::entry::Outcome;
use outlast_pipeline::runner::Runner;
use outlast_pipeline::state::Phase;

/// Prints the outputs; if there are several, each under the name of its step.
pub(super) fn print(runner: &Runner) -> anyhow::Result<()> {
    let steps = &runner.pipeline().steps;
    let makes_good = |other: &Step, step: &Step| matches!(&other.on_failure, OnFailure::Rework { step: by } if *by == step.id);
    let is_needed = |step: &Step| {
        let mut others = steps.iter();
        others.any(|other| other.needs.contains(&step.id) || makes_good(other, step))
    };
    let is_last = |step: &&Step| {
        let is_done = runner.state().phase(&step.id) == Phase::Ended(Outcome::Completed);
        is_done && !matches!(step.work, Work::Gate(_)) && !is_needed(step)
    };
    let last: Vec<&Step> = steps.iter().filter(is_last).collect();
    let mut said = String::new();
    for step in &last {
        let state = runner.state().steps.get(&step.id);
        let Some(artifact) = state.and_then(|state| state.artifacts.get(OUTPUT)) else {
            continue;
        };
        let bytes = runner.artifacts().get(&artifact.hash)?;
        let output = text::plain(&String::from_utf8_lossy(&bytes)).into_owned();
        if last.len() > 1 {
            said.push_str(&format!("== {}\n", step.id));
        }
        said.push_str(output.trim_end());
        said.push('\n');
    }
    output::print(&said).map(drop)
}
