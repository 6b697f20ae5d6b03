//! The artifacts of a step: its inputs, its main output and its files, stored by their content.

use super::super::contract::json;
use super::super::definition::{Source, Step};
use super::super::entry::{Artifact, Problem};
use super::super::state::Run;
use outlast_kernel::text;
use outlast_kernel::verdict::Cause;
use outlast_store::artifacts::Artifacts;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Maximum bytes of a file to store.
const MAX_FILE_BYTES: u64 = 64 << 20;
/// Maximum number of output fields that conditions can use, and maximum length of a value in characters.
const MAX_CONTEXT_FIELDS: usize = 64;
const MAX_CONTEXT_VALUE_BYTES: usize = 256;

/// The value of an input.
#[derive(Clone, Debug)]
pub(super) enum InputValue {
    Text(String),
    Artifact(Artifact),
    Missing,
}

/// Returns the inputs of a step in the current state of the run: all inputs of the run, and those that the step
/// declares.
pub(super) fn resolve_inputs(step: &Step, run: &Run) -> BTreeMap<String, InputValue> {
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
pub(super) async fn read_inputs(
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

/// Reads the declared output files of a step.
pub(super) async fn collect(
    step: &Step,
    directory: &Path,
    folder: &Path,
) -> Result<BTreeMap<String, Vec<u8>>, Problem> {
    if step.outputs.is_empty() {
        return Ok(BTreeMap::new());
    }
    let (outputs, directory) = (step.outputs.clone(), directory.to_owned());
    let folder = folder.canonicalize().unwrap_or(folder.to_owned());
    let read = move || {
        let mut found = BTreeMap::new();
        let mut missing = Vec::new();
        for output in outputs {
            match read_file(&directory.join(&output.path), &folder) {
                Ok(bytes) => drop(found.insert(output.name, bytes)),
                Err(why) => {
                    missing.push(format!(
                        "output `{}` at {}: {why}",
                        output.name,
                        output.path.display()
                    ));
                }
            }
        }
        (found, missing)
    };
    let (found, missing) = blocking(read).await?;
    match missing.is_empty() {
        true => Ok(found),
        false => Err(Problem {
            violations: missing,
            ..Problem::new(
                Cause::ContractBroken,
                "files that it should leave behind are not there",
            )
        }),
    }
}

fn read_file(path: &Path, folder: &Path) -> Result<Vec<u8>, String> {
    let said = |error: std::io::Error| error.to_string();
    let path = path.canonicalize().map_err(said)?;
    if !path.starts_with(folder) {
        return Err("it leads out of the folder of the run".to_owned());
    }
    // Checked before opening: opening a pipe without a writer would block forever.
    if !path.metadata().map_err(said)?.is_file() {
        return Err("it is no file".to_owned());
    }
    let file = std::fs::File::open(path).map_err(said)?;
    let mut bytes = Vec::new();
    let read = file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes);
    read.map_err(|error| error.to_string())?;
    match bytes.len() as u64 > MAX_FILE_BYTES {
        true => Err(format!("it has more than {} MiB", MAX_FILE_BYTES >> 20)),
        false => Ok(bytes),
    }
}

/// Stores all outputs, or returns the reason why it cannot.
pub(super) async fn store(
    found: BTreeMap<String, Vec<u8>>,
    artifacts: &Arc<Artifacts>,
) -> Result<BTreeMap<String, Artifact>, String> {
    let artifacts = Arc::clone(artifacts);
    let keep = move || -> Result<_, outlast_store::Error> {
        let mut kept = BTreeMap::new();
        for (name, bytes) in found {
            let (hash, size) = artifacts.put(&bytes)?;
            kept.insert(name, Artifact { hash, size });
        }
        Ok(kept)
    };
    let kept = blocking(keep).await.map_err(|problem| problem.message)?;
    kept.map_err(|error| error.to_string())
}

async fn blocking<R: Send + 'static>(
    work: impl FnOnce() -> R + Send + 'static,
) -> Result<R, Problem> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| Problem::new(Cause::Internal, error.to_string()))
}

/// Returns the fields of a JSON object output for conditions, parsed like contracts parse it.
pub(super) fn context(output: &[u8]) -> BTreeMap<String, String> {
    let read = json::read(&String::from_utf8_lossy(output));
    let Ok(Value::Object(fields)) = read.map(|read| read.value) else {
        return BTreeMap::new();
    };
    let as_text = |(name, value): (String, Value)| match value {
        Value::String(text) => Some((name, text)),
        Value::Bool(_) | Value::Number(_) => Some((name, value.to_string())),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    };
    fields
        .into_iter()
        .filter_map(as_text)
        .take(MAX_CONTEXT_FIELDS)
        .map(|(name, value)| {
            (
                name,
                text::bounded(&value, MAX_CONTEXT_VALUE_BYTES).into_owned(),
            )
        })
        .collect()
}

/// Removes the files of an attempt, or of all attempts of a run; leftovers do no harm.
pub(crate) async fn remove_scratch(scratch: PathBuf) {
    if scratch.exists() {
        blocking(move || std::fs::remove_dir_all(scratch).ok())
            .await
            .ok();
    }
}
