//! A file as a whole: its names, the inputs of a run, and then its steps.

use super::fault_log::FaultLog;
use super::fields::{self, Fields};
use super::names::{INPUT, PIPELINE};
use super::tree::{Entry, Node, Value};
use super::{Spanned, resolve, runtime, step, values};
use crate::definition::{Input, Pipeline};
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::Path;
use std::time::Duration;

/// How often a step may be visited when the file does not say.
const DEFAULT_MAX_VISITS: NonZeroU32 = NonZeroU32::MIN.saturating_add(9);

/// What the steps need to know of what stands before them.
pub(super) struct ReadContext<'a> {
    pub(super) log: &'a FaultLog<'a>,
    /// The folder of the file.
    pub(super) folder: &'a Path,
    pub(super) inputs: &'a BTreeMap<String, Input>,
    pub(super) fallbacks: &'a BTreeMap<String, Vec<String>>,
    pub(super) provider: Option<String>,
    pub(super) model: Option<String>,
    pub(super) timeout: Option<Duration>,
    pub(super) max_visits: NonZeroU32,
}

/// Reads a whole file; `None` if it has nothing to read steps from.
pub(super) fn read(node: &Node, file: &Path, log: &FaultLog<'_>) -> Option<Pipeline> {
    let top = Fields::new(node, &PIPELINE, log)?;
    let inputs = run_inputs(&top);
    let shared = runtime::read(&top);
    let folder = file.parent().unwrap_or_else(|| Path::new(""));
    let scene = ReadContext {
        log,
        folder,
        inputs: &inputs,
        fallbacks: &shared.runtime.fallbacks,
        provider: value(top.non_empty_text("provider")),
        model: value(top.non_empty_text("model")),
        timeout: shared.timeout,
        max_visits: value(top.count("max_step_visits")).unwrap_or(DEFAULT_MAX_VISITS),
    };
    let drafts = step::read_all(top.require("steps", "a pipeline")?, &scene);
    let steps = resolve::resolve_steps(drafts, &shared.fallbacks, log);
    let stem = file.file_stem().unwrap_or(file.as_os_str());
    Some(Pipeline {
        name: value(top.non_empty_text("name"))
            .unwrap_or_else(|| stem.to_string_lossy().into_owned()),
        description: value(top.text("description")),
        runtime: shared.runtime,
        inputs,
        steps,
    })
}

pub(super) fn value<T>(placed: Option<Spanned<T>>) -> Option<T> {
    placed.map(|placed| placed.value)
}

fn run_inputs(top: &Fields<'_>) -> BTreeMap<String, Input> {
    let mut inputs = BTreeMap::new();
    for entry in top.free_entries("inputs", "a mapping of names to what they are by default") {
        match values::name(&entry.name) {
            Ok(name) => {
                inputs.insert(name, run_input(entry, top.log));
            }
            Err(message) => top.log.fault(entry.span, message),
        }
    }
    inputs
}

fn run_input(entry: &Entry, log: &FaultLog<'_>) -> Input {
    match &entry.value.value {
        Value::Null => Input::default(),
        Value::Map(_) => {
            Fields::new(&entry.value, &INPUT, log).map_or_else(Input::default, |fields| {
                let default = fields.get("default");
                Input {
                    description: value(fields.text("description")),
                    default: default.and_then(|node| value(fields::scalar(node, log))),
                }
            })
        }
        _ => Input {
            description: None,
            default: value(fields::scalar(&entry.value, log)),
        },
    }
}
