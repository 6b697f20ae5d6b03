//! One step, and the steps inside of a loop: what a step has beside its work.
//!
//! Names of other steps are not looked up here, but kept with their places (see `resolve`).

use super::document::{ReadContext, value};
use super::fields::{self, Fields};
use super::names::{EDGE, OUTPUT, RETRY, STEP};
use super::retry;
use super::runtime;
use super::tree::{Node, Value};
use super::work::{self, Kind};
use super::{MAX_STEPS, SourceSpan, Spanned, contract, values};
use crate::definition::{Condition, Edge, OutputFile, Source, Step, Target};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

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
pub(super) fn read_all(node: &Node, scene: &ReadContext<'_>) -> Vec<Draft> {
    let mut drafts = Vec::new();
    read_list(node, None, scene, &mut drafts);
    drafts
}

/// Reads a list of steps; answers with their names.
pub(super) fn read_list(
    node: &Node,
    part_of: Option<&str>,
    scene: &ReadContext<'_>,
    drafts: &mut Vec<Draft>,
) -> Vec<String> {
    let list = fields::items(node, "steps", scene.log);
    if matches!(&node.value, Value::List(list) if list.is_empty()) {
        scene.log.fault(node.span, "there is no step here");
    }
    let mut names = Vec::new();
    for item in list {
        if drafts.len() >= MAX_STEPS {
            let message = format!("a pipeline may have at most {MAX_STEPS} steps");
            scene.log.fault(item.span, message);
            break;
        }
        names.extend(read_one(item, part_of, scene, drafts));
    }
    names
}

fn read_one(
    node: &Node,
    part_of: Option<&str>,
    scene: &ReadContext<'_>,
    drafts: &mut Vec<Draft>,
) -> Option<String> {
    let fields = Fields::new(node, &STEP, scene.log)?;
    fields.require("id", "a step");
    let id = fields.parsed_text("id", values::step_name);
    let span = id.as_ref().map_or(fields.span, |id| id.span);
    let id = value(id).unwrap_or_default();
    let kind = work::kind(&fields);
    if let Some(kind) = kind {
        kind.reject_inapplicable_fields(&fields);
    }
    let mut references = needs(&fields);
    let inputs = inputs(&fields, scene, &mut references);
    let outputs = outputs(&fields);
    let again = fields
        .get("retry")
        .and_then(|node| Fields::new(node, &RETRY, scene.log));
    let (retry, once) = retry::read(&fields, again.as_ref(), kind);
    let on_failure = retry::on_failure(&fields, again.as_ref(), &mut references);
    let edges = edges(&fields, &mut references);
    let contracts = contract::read_all(&fields, &outputs, scene);
    let index = drafts.len();
    drafts.push(Draft {
        step: Step {
            needs: Vec::new(),
            work: work::placeholder(),
            env: env(&fields),
            directory: value(fields.parsed_text("directory", values::path_within))
                .unwrap_or_default(),
            timeout: timeout(&fields, kind, scene),
            max_visits: value(fields.count("max_visits")).unwrap_or(scene.max_visits),
            is_on_demand: false,
            parent_loop: part_of.map(str::to_owned),
            id: id.clone(),
            inputs,
            outputs,
            contracts,
            retry,
            on_failure,
            once,
            edges,
        },
        span,
        references,
        is_rework_only: value(fields.flag("rework_only")).unwrap_or(false),
    });
    // After the step itself, so that those inside of a loop come after it.
    let work = kind.and_then(|kind| work::read(kind, &fields, scene, index, drafts));
    if let (Some(work), Some(draft)) = (work, drafts.get_mut(index)) {
        draft.step.work = work;
    }
    (!id.is_empty()).then_some(id)
}

fn needs(fields: &Fields<'_>) -> Vec<StepReference> {
    let Some(name) = fields.either("needs", "dependencies") else {
        return Vec::new();
    };
    let needs = fields.texts(name, "steps").into_iter();
    needs
        .map(|need| need.mentioned(ReferenceKind::Need))
        .collect()
}

impl Spanned<String> {
    /// The name of a step, kept to be looked up.
    pub(super) fn mentioned(self, kind: ReferenceKind) -> StepReference {
        StepReference {
            name: self.value,
            span: self.span,
            kind,
        }
    }
}

fn inputs(
    fields: &Fields<'_>,
    scene: &ReadContext<'_>,
    mentions: &mut Vec<StepReference>,
) -> BTreeMap<String, Source> {
    let mut inputs = BTreeMap::new();
    let mut variables = BTreeSet::new();
    for entry in fields.free_entries("inputs", "a mapping of names to where they come from") {
        let log = fields.log;
        let name = values::name(&entry.name);
        let source = fields::text(&entry.value, log)
            .and_then(|_| fields::parsed(&entry.value, log, values::source));
        let (Ok(name), Some(source)) = (&name, source) else {
            if let Err(message) = name {
                log.fault(entry.span, message);
            }
            continue;
        };
        if !variables.insert(name.to_uppercase().replace('-', "_")) {
            let message = "two inputs have the same variable; call one of them otherwise";
            log.fault(entry.span, message);
        }
        match &source.value {
            Source::Run { name } if !scene.inputs.contains_key(name) => {
                let known = scene.inputs.keys().map(String::as_str);
                let message = unknown_name("input of the run", name, known);
                log.fault(source.span, message);
            }
            Source::Run { .. } => {}
            Source::Step {
                step,
                artifact,
                optional,
            } => mentions.push(StepReference {
                name: step.clone(),
                span: source.span,
                kind: ReferenceKind::Input {
                    artifact: artifact.clone(),
                    optional: *optional,
                },
            }),
        }
        inputs.insert(name.clone(), source.value);
    }
    inputs
}

/// What to say of a name that is none of some.
pub(super) fn unknown_name<'a>(
    what: &str,
    name: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> String {
    let near = super::names::nearest(name, known);
    let near = near.map_or(String::new(), |near| format!("; did you mean `{near}`?"));
    format!("there is no {what} `{}`{near}", super::printable(name))
}

fn outputs(fields: &Fields<'_>) -> Vec<OutputFile> {
    let log = fields.log;
    let Some(node) = fields
        .either("outputs", "output_artifacts")
        .and_then(|name| fields.get(name))
    else {
        return Vec::new();
    };
    let mut outputs = Vec::<OutputFile>::new();
    for item in fields::items(node, "outputs", log) {
        let Some(output) = Fields::new(item, &OUTPUT, log) else {
            continue;
        };
        output.require("name", "an output");
        output.require("path", "an output");
        let name = output.parsed_text("name", values::artifact_name);
        let path: Option<Spanned<PathBuf>> = output.parsed_text("path", values::path_within);
        let (Some(name), Some(path)) = (name, path) else {
            continue;
        };
        if outputs.iter().any(|other| other.name == name.value) {
            log.fault(name.span, "there are two outputs of that name");
        }
        outputs.push(OutputFile {
            name: name.value,
            path: path.value,
        });
    }
    outputs
}

fn env(fields: &Fields<'_>) -> BTreeMap<String, String> {
    let mut env = BTreeMap::new();
    for entry in fields.free_entries("env", "a mapping of variables to values") {
        match values::variable(&entry.name) {
            Ok(name) => {
                env.extend(fields::scalar(&entry.value, fields.log).map(|it| (name, it.value)));
            }
            Err(message) => fields.log.fault(entry.span, message),
        }
    }
    env
}

fn timeout(
    fields: &Fields<'_>,
    kind: Option<Kind>,
    scene: &ReadContext<'_>,
) -> Option<std::time::Duration> {
    let own = runtime::timeout(fields, "timeout_minutes");
    if kind.is_some_and(Kind::is_retryable) {
        own.or(scene.timeout)
    } else {
        None
    }
}

fn edges(fields: &Fields<'_>, mentions: &mut Vec<StepReference>) -> Vec<Edge> {
    let Some(node) = fields.get("edges") else {
        return Vec::new();
    };
    let mut edges = Vec::new();
    for item in fields::items(node, "edges", fields.log) {
        let Some(edge) = Fields::new(item, &EDGE, fields.log) else {
            continue;
        };
        let condition = match edge.get("condition") {
            Some(_) => value(edge.parsed_text("condition", values::condition)),
            None => Some(Condition::Always),
        };
        let Some(target) = edge.required_text("target", "an edge") else {
            continue;
        };
        let target = read_target(target, mentions);
        edges.extend(condition.map(|condition| Edge { target, condition }));
    }
    edges
}

/// Where something leads; a step is kept to be looked up.
pub(super) fn read_target(target: Spanned<String>, mentions: &mut Vec<StepReference>) -> Target {
    let found = values::target(&target.value);
    if matches!(found, Target::Step(_)) {
        mentions.push(target.mentioned(ReferenceKind::Target));
    }
    found
}
