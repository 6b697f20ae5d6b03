//! What a step's result must be.
//!
//! A schema is read here, once, and what it refers to elsewhere is never fetched.

use super::document::{ReadContext, value};
use super::fields::{self, Fields};
use super::names::{CONTRACT, CONTRACTS, HANDOVER};
use super::tree::Node;
use super::{printable, step, values, work};
use crate::definition::{Contract, Judge, OUTPUT, OutputFile, Rule};
use jsonschema::{Retrieve, Uri};
use outlast_kernel::text;
use serde_json::Value as Json;
use std::error::Error;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The largest schema that is read, in bytes.
const MAX_SCHEMA_BYTES: u64 = 1024 * 1024;

/// Reads all contracts of a step.
pub(super) fn read_all(
    step: &Fields<'_>,
    outputs: &[OutputFile],
    scene: &ReadContext<'_>,
) -> Vec<Contract> {
    let log = step.log;
    let handover = step
        .get("handover")
        .and_then(|node| Fields::new(node, &HANDOVER, log));
    let mut nodes: Vec<&Node> = Vec::new();
    if let Some(list) = step.get("contracts") {
        nodes.extend(fields::items(list, "contracts", log));
    }
    if let Some(handover) = &handover {
        if step.has("contracts") {
            let message = "`contracts` and `handover` mean the same; write one of them";
            log.fault(step.span_of("handover"), message);
        }
        match handover.either("contracts", "contract") {
            Some("contract") => nodes.extend(handover.get("contract")),
            Some(name) => {
                let list = handover.get(name);
                nodes.extend(list.map_or(&[][..], |list| fields::items(list, "contracts", log)));
            }
            None => {}
        }
    }
    let contracts = nodes.into_iter();
    contracts
        .filter_map(|node| read(node, outputs, scene))
        .collect()
}

fn read(node: &Node, outputs: &[OutputFile], scene: &ReadContext<'_>) -> Option<Contract> {
    let log = scene.log;
    let fields = Fields::unchecked(node, "a contract with a `type`", log)?;
    fields.require("type", "a contract");
    let types = CONTRACTS.map(|(name, _)| name);
    // Without its type nothing can be said about its other names.
    let kind = fields.one_of("type", &types)?;
    let own = CONTRACTS.iter().find(|(name, _)| *name == kind.value)?.1;
    let known: Vec<&str> = CONTRACT.iter().chain(own).copied().collect();
    fields.reject_unknown(&known, &format!("a contract of type `{}`", kind.value));
    let artifact = artifact(&fields, outputs);
    let is_warning_only = is_warning_only(&fields);
    let rule = rule(kind.value, &fields, scene);
    Some(Contract {
        artifact,
        rule: rule?,
        is_warning_only,
    })
}

fn artifact(fields: &Fields<'_>, outputs: &[OutputFile]) -> String {
    let Some(artifact) = fields.non_empty_text("artifact") else {
        return OUTPUT.to_owned();
    };
    let mut known = outputs.iter().map(|output| output.name.as_str());
    if artifact.value != OUTPUT && !known.any(|name| name == artifact.value) {
        let known = outputs.iter().map(|output| output.name.as_str());
        let message = step::unknown_name("output", &artifact.value, known);
        fields
            .log
            .fault(artifact.span, format!("{message} of this step"));
    }
    artifact.value
}

fn is_warning_only(fields: &Fields<'_>) -> bool {
    let on_failure = fields.one_of("on_failure", &["fail", "warn"]);
    let must_pass = fields.flag("must_pass");
    if let (Some(on_failure), Some(must_pass)) = (&on_failure, &must_pass)
        && (on_failure.value == "warn") == must_pass.value
    {
        let message = format!(
            "`must_pass: {}` and `on_failure: {}` contradict each other",
            must_pass.value, on_failure.value
        );
        fields.log.fault(must_pass.span, message);
    }
    on_failure.is_some_and(|word| word.value == "warn")
        || must_pass.is_some_and(|must_pass| !must_pass.value)
}

fn rule(kind: &str, fields: &Fields<'_>, scene: &ReadContext<'_>) -> Option<Rule> {
    match kind {
        "json_schema" => schema(fields, scene.folder).map(|schema| Rule::JsonSchema { schema }),
        "test_suite" => {
            fields.require("command", "a test suite")?;
            let timeout = value(fields.parsed("timeout", values::positive_duration));
            let command = work::command(fields, "command")?;
            Some(Rule::TestSuite { command, timeout })
        }
        "regex" => {
            let pattern = fields.required_text("pattern", "a regex")?;
            if let Err(error) = regex::Regex::new(&pattern.value) {
                let what = "this is no regular expression";
                fields.log.fault(pattern.span, error_sentence(what, &error));
            }
            Some(Rule::Regex {
                pattern: pattern.value,
                negated: value(fields.flag("negated")).unwrap_or(false),
            })
        }
        "file_exists" | "non_empty_file" => {
            fields.require("path", "a contract about a file");
            Some(Rule::FileExists {
                path: value(fields.parsed_text("path", values::path_within))?,
                non_empty: kind == "non_empty_file",
            })
        }
        "non_empty" => Some(Rule::NonEmpty),
        _ => judge(fields, scene).map(Rule::Judge),
    }
}

fn judge(fields: &Fields<'_>, scene: &ReadContext<'_>) -> Option<Judge> {
    let node = fields.require("criteria", "a judge")?;
    let criteria = fields.texts("criteria", "criteria");
    if criteria.iter().all(|one| one.value.trim().is_empty()) {
        fields
            .log
            .fault(node.span, "a judge needs something to judge by");
    }
    let (provider, model) = work::provider_and_model(fields, scene);
    Some(Judge {
        criteria: criteria.into_iter().map(|one| one.value).collect(),
        threshold_percent: value(fields.parsed("threshold", values::percent)).unwrap_or(100),
        provider,
        model,
    })
}

fn schema(fields: &Fields<'_>, folder: &Path) -> Option<Json> {
    let Some(name) = fields.either("schema", "schema_path") else {
        fields
            .log
            .fault(fields.span, "a JSON Schema needs `schema` or `schema_path`");
        return None;
    };
    let node = fields.get(name)?;
    let schema = if name == "schema" {
        node.json()
    } else {
        let path = fields.parsed_text(name, values::path_within)?;
        match read_schema_file(&folder.join(&path.value), folder) {
            Ok(schema) => schema,
            Err(message) => {
                let path = printable(&path.value.to_string_lossy());
                fields.log.fault(node.span, format!("`{path}`: {message}"));
                return None;
            }
        }
    };
    if let Err(message) = validate_schema(&schema) {
        fields.log.fault(node.span, message);
    }
    Some(schema)
}

/// Reads a schema from a file that is within the folder, also when links are followed.
fn read_schema_file(path: &Path, folder: &Path) -> Result<Json, String> {
    let folder = if folder.as_os_str().is_empty() {
        Path::new(".")
    } else {
        folder
    };
    let unreadable = |error: io::Error| format!("the schema cannot be read: {error}");
    let real = path.canonicalize().map_err(unreadable)?;
    if !real.starts_with(folder.canonicalize().map_err(unreadable)?) {
        return Err("the schema is not within the folder of the pipeline's file".to_owned());
    }
    let about = real.metadata().map_err(unreadable)?;
    if !about.is_file() || about.len() > MAX_SCHEMA_BYTES {
        return Err(format!(
            "a schema is a file of at most {MAX_SCHEMA_BYTES} bytes"
        ));
    }
    let mut bytes = Vec::new();
    let file = File::open(&real).map_err(unreadable)?;
    file.take(MAX_SCHEMA_BYTES)
        .read_to_end(&mut bytes)
        .map_err(unreadable)?;
    serde_json::from_slice(&bytes).map_err(|error| error_sentence("the schema is not JSON", &error))
}

/// Sees whether a schema is one.
fn validate_schema(schema: &Json) -> Result<(), String> {
    let options = jsonschema::options().with_retriever(NoRetriever);
    match options.build(schema) {
        Ok(_) => Ok(()),
        Err(error) => {
            let place = error.instance_path().to_string();
            let words = error_sentence("this is no JSON Schema", &error);
            Err(match place.as_str() {
                "" => words,
                place => format!("{words}, at `{}`", printable(place)),
            })
        }
    }
}

/// Where nothing is fetched from.
struct NoRetriever;

impl Retrieve for NoRetriever {
    fn retrieve(&self, _: &Uri<String>) -> Result<Json, Box<dyn Error + Send + Sync>> {
        Err("a schema elsewhere is never fetched".into())
    }
}

fn error_sentence(what: &str, error: &dyn Error) -> String {
    // Some draw a picture first and say it in the last line.
    let words = error.to_string();
    let words = words.lines().last().unwrap_or_default();
    let words = words.trim_start_matches("error: ");
    let words = text::plain(words).replace(['\n', '\t'], " ");
    format!("{what}: {}", text::bounded(&words, 300))
}
