//! One step, and the steps inside of a loop: what a step has beside its work.
//!
//! Names of other steps are not looked up here, but kept with their places (see `resolve`).

use super::document::timeout;
use super::fault_log::FaultLog;
use super::raw::{List, RawEdge, RawOutput, RawStep, items};
use super::scalar::{InputSource, Name, NonEmpty, Text};
use super::words::unknown_name;
use super::work::{self, Kind};
use super::{MAX_STEPS, SourceSpan, contract, retry, scalar, yaml};
use crate::definition::{Condition, Edge, Input, Loop, OutputFile, Source, Step, Target, Work};
use serde_saphyr::Spanned;
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::path::Path;
use std::time::Duration;

/// The parts of the file before `steps` on which the steps depend.
pub(super) struct StepDefaults<'a> {
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

/// A step as it was read: its names of other steps are still to be looked up.
pub(super) struct Draft {
    /// The step; its needs are empty yet.
    pub(super) step: Step,
    /// Where its name stands.
    pub(super) span: SourceSpan,
    /// The steps that it names.
    pub(super) references: Vec<StepReference>,
    /// Whether it runs only as another's rework.
    pub(super) is_rework_only: bool,
}

/// A name of another step.
pub(super) struct StepReference {
    pub(super) name: String,
    pub(super) span: SourceSpan,
    pub(super) kind: ReferenceKind,
}

impl StepReference {
    pub(super) fn new(name: &str, span: SourceSpan, kind: ReferenceKind) -> Self {
        Self {
            name: name.to_owned(),
            span,
            kind,
        }
    }

    /// Whether that step must be done before.
    pub(super) fn is_need(&self) -> bool {
        match self.kind {
            ReferenceKind::Need => true,
            ReferenceKind::Input { optional, .. } => !optional,
            ReferenceKind::Target | ReferenceKind::Rework => false,
        }
    }
}

/// What another step is named for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ReferenceKind {
    /// It must be done before.
    Need,
    /// Something that it made is read.
    Input { artifact: String, optional: bool },
    /// An edge or a choice leads to it.
    Target,
    /// It makes good for this one.
    Rework,
}

/// Reads all steps, those inside of loops right after their loop.
pub(super) fn read_all(list: List<RawStep>, defaults: &StepDefaults<'_>) -> Vec<Draft> {
    let mut drafts = Vec::new();
    read_list(list, None, defaults, &mut drafts);
    drafts
}

/// Reads a list of steps; answers with their names.
fn read_list(
    list: List<RawStep>,
    parent: Option<&str>,
    defaults: &StepDefaults<'_>,
    drafts: &mut Vec<Draft>,
) -> Vec<String> {
    if list.value.is_empty() {
        defaults
            .log
            .fault(yaml::span(&list), "there is no step here");
    }
    let mut names = Vec::new();
    for step in list.value {
        if drafts.len() >= MAX_STEPS {
            let message = format!("a pipeline may have at most {MAX_STEPS} steps");
            defaults.log.fault(yaml::span(&step), message);
            break;
        }
        names.push(step.value.id.value.0.clone());
        read_one(step, parent, defaults, drafts);
    }
    names
}

fn read_one(
    raw: Spanned<RawStep>,
    parent: Option<&str>,
    defaults: &StepDefaults<'_>,
    drafts: &mut Vec<Draft>,
) {
    let log = defaults.log;
    let place = yaml::span(&raw);
    let mut raw = raw.value;
    let kind = work::kind(&raw, place, log);
    let span = yaml::span(&raw.id);
    let need = |need: Spanned<Text>| {
        StepReference::new(&need.value.0, yaml::span(&need), ReferenceKind::Need)
    };
    let mut references: Vec<_> = items(raw.needs.take()).map(need).collect();
    let raw_inputs = raw.inputs.take().map(|inputs| inputs.value);
    let inputs = inputs(raw_inputs.unwrap_or_default(), defaults, &mut references);
    let outputs = outputs(raw.outputs.take(), log);
    let (retry, on_failure) = retry::read(&mut raw, kind, &mut references, log);
    let edges = edges(raw.edges.take(), &mut references);
    let contracts = contract::read_all(&mut raw, &outputs, defaults);
    let own_timeout = raw.timeout.take().map(|it| it.value);
    let timeout = timeout(own_timeout, &raw.timeout_minutes, "timeout_minutes", log)
        .or(defaults.timeout)
        .filter(|_| kind.is_some_and(Kind::is_retryable));
    let env = raw.env.take().map(|env| env.value).unwrap_or_default();
    let index = drafts.len();
    let id = raw.id.value.0.clone();
    let nested = raw.r#loop.take().map(|nested| nested.value);
    drafts.push(Draft {
        span,
        is_rework_only: raw.rework_only,
        step: Step {
            id: id.clone(),
            needs: Vec::new(),
            env: env.into_iter().map(|(name, it)| (name.0, it.0)).collect(),
            directory: raw
                .directory
                .take()
                .map(|it| it.value.0)
                .unwrap_or_default(),
            timeout,
            max_visits: raw.max_visits.take().map_or(defaults.max_visits, |it| it.0),
            is_on_demand: false,
            parent_loop: parent.map(str::to_owned),
            once: raw.once.as_ref().is_some_and(|once| once.value),
            work: work::read(kind, raw, place, &inputs, defaults, &mut references),
            inputs,
            outputs,
            contracts,
            retry,
            on_failure,
            edges,
        },
        references,
    });
    // After the step itself, so that those inside of a loop come after it.
    if let Some(nested) = nested.filter(|_| kind == Some(Kind::Loop)) {
        drafts[index].step.work = Work::Loop(Loop {
            steps: read_list(nested.steps, Some(&id), defaults, drafts),
            until: nested.until.map(|until| until.0),
            max_iterations: nested.max_iterations.0,
        });
    }
}

fn inputs(
    raw: BTreeMap<Name, Spanned<InputSource>>,
    defaults: &StepDefaults<'_>,
    references: &mut Vec<StepReference>,
) -> BTreeMap<String, Source> {
    let mut inputs = BTreeMap::new();
    let mut variables = BTreeSet::new();
    for (Name(name), source) in raw {
        let span = yaml::span(&source);
        let source = source.value.0;
        if !variables.insert(name.to_uppercase().replace('-', "_")) {
            let message = "two inputs have the same variable; call one of them otherwise";
            defaults.log.fault(span, message);
        }
        match &source {
            Source::Run { name } if !defaults.inputs.contains_key(name) => {
                let known = defaults.inputs.keys().map(String::as_str);
                let message = unknown_name("input of the run", name, known);
                defaults.log.fault(span, message);
            }
            Source::Run { .. } => {}
            Source::Step {
                step,
                artifact,
                optional,
            } => {
                let (artifact, optional) = (artifact.clone(), *optional);
                let kind = ReferenceKind::Input { artifact, optional };
                references.push(StepReference::new(step, span, kind));
            }
        }
        inputs.insert(name, source);
    }
    inputs
}

fn outputs(raw: Option<List<RawOutput>>, log: &FaultLog<'_>) -> Vec<OutputFile> {
    let mut names = BTreeSet::new();
    let mut outputs = Vec::new();
    for output in items(raw) {
        let span = yaml::span(&output.value.name);
        let name = output.value.name.value.0;
        if !names.insert(name.clone()) {
            log.fault(span, "there are two outputs of that name");
        }
        let path = output.value.path.0;
        outputs.push(OutputFile { name, path });
    }
    outputs
}

fn edges(raw: Option<List<RawEdge>>, references: &mut Vec<StepReference>) -> Vec<Edge> {
    let edge = |edge: Spanned<RawEdge>| Edge {
        target: read_target(edge.value.target, references),
        condition: edge
            .value
            .condition
            .map_or(Condition::Always, |condition| condition.0),
    };
    items(raw).map(edge).collect()
}

/// Where something leads; a step is kept to be looked up.
pub(super) fn read_target(raw: Spanned<NonEmpty>, references: &mut Vec<StepReference>) -> Target {
    let target = scalar::target(&raw.value.0);
    if let Target::Step(name) = &target {
        references.push(StepReference::new(
            name,
            yaml::span(&raw),
            ReferenceKind::Target,
        ));
    }
    target
}
