//! The inputs of a step: texts of the run, and artifacts of other steps.

use super::super::definition::{Source, Step};
use super::super::entry::{Artifact, Problem};
use super::super::state::Run;
use super::outputs::blocking;
use outlast_kernel::verdict::Cause;
use outlast_store::artifacts::Artifacts;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The value of an input.
#[derive(Clone, Debug)]
pub(super) enum InputValue {
    Text(String),
    Artifact(Artifact),
    Missing,
}

/// Returns the inputs of a step in the current state of the run: all inputs of the run, and those that the step
/// declares.
pub(super) fn resolve(step: &Step, run: &Run) -> BTreeMap<String, InputValue> {
    let of_run = run.parameters.inputs.iter();
    let of_run = of_run.map(|(name, text)| (name.clone(), InputValue::Text(text.clone())));
    let own = step
        .inputs
        .iter()
        .map(|(name, source)| (name.clone(), resolve_source(source, run)));
    of_run.chain(own).collect()
}

fn resolve_source(source: &Source, run: &Run) -> InputValue {
    match source {
        Source::Run { name } => {
            let text = run.parameters.inputs.get(name).cloned();
            InputValue::Text(text.unwrap_or_default())
        }
        Source::Step { step, artifact, .. } => {
            let made = run
                .steps
                .get(step)
                .and_then(|state| state.artifacts.get(artifact));
            made.map_or(InputValue::Missing, |made| {
                InputValue::Artifact(made.clone())
            })
        }
    }
}

/// Reads all inputs.
pub(super) async fn read(
    inputs: &BTreeMap<String, InputValue>,
    artifacts: &Arc<Artifacts>,
) -> Result<BTreeMap<String, Vec<u8>>, Problem> {
    let (inputs, artifacts) = (inputs.clone(), Arc::clone(artifacts));
    let has_files = inputs
        .values()
        .any(|given| matches!(given, InputValue::Artifact(_)));
    let read = move || {
        let read = |given: InputValue| match given {
            InputValue::Text(text) => Ok(text.into_bytes()),
            InputValue::Missing => Ok(Vec::new()),
            InputValue::Artifact(artifact) => artifacts.get(&artifact.hash),
        };
        let all = inputs.into_iter();
        all.map(|(name, given)| Ok((name, read(given)?))).collect()
    };
    let read: Result<_, outlast_store::Error> = match has_files {
        false => read(),
        true => blocking(read).await?,
    };
    read.map_err(|error| Problem::new(Cause::Misconfigured, error.to_string()))
}
