//! What a step's result must be.
//!
//! A schema is read here, once, and what it refers to elsewhere is never fetched.

use super::raw::{ContractFailureWord, ContractType, RawContract, RawStep, items, place};
use super::step::StepDefaults;
use super::words::unknown_name;
use super::{SourceSpan, printable, work, yaml};
use crate::contract::schema::validator;
use crate::definition::{Contract, Judge, OUTPUT, OutputFile, Rule};
use outlast_kernel::text;
use serde_json::Value as Json;
use serde_saphyr::Spanned;
use std::error::Error;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The largest schema that is read, in bytes.
const MAX_SCHEMA_BYTES: u64 = 1024 * 1024;

/// Reads all contracts of a step.
pub(super) fn read_all(
    raw: &mut RawStep,
    outputs: &[OutputFile],
    defaults: &StepDefaults<'_>,
) -> Vec<Contract> {
    let log = defaults.log;
    let mut contracts: Vec<Spanned<RawContract>> = Vec::new();
    if let Some(handover) = raw.handover.take() {
        if raw.contracts.is_some() {
            log.same_meaning("contracts", "handover", yaml::span(&handover));
        }
        let handover = handover.value;
        if let (Some(_), Some(place)) = (&handover.contracts, place(&handover.contract)) {
            log.same_meaning("contracts", "contract", place);
        }
        contracts.extend(handover.contract);
        contracts.extend(items(handover.contracts));
    }
    contracts.extend(items(raw.contracts.take()));
    contracts
        .into_iter()
        .filter_map(|raw| read(raw, outputs, defaults))
        .collect()
}

fn read(
    raw: Spanned<RawContract>,
    outputs: &[OutputFile],
    defaults: &StepDefaults<'_>,
) -> Option<Contract> {
    let log = defaults.log;
    let span = yaml::span(&raw);
    let raw = raw.value;
    reject_inapplicable_fields(&raw, defaults);
    let artifact = raw.artifact.as_ref().filter(|it| it.value.0 != OUTPUT);
    if let Some(artifact) = artifact
        && !outputs.iter().any(|it| it.name == artifact.value.0)
    {
        let known = outputs.iter().map(|output| output.name.as_str());
        let message = unknown_name("output", &artifact.value.0, known);
        log.fault(yaml::span(artifact), format!("{message} of this step"));
    }
    let warns = raw.on_failure.map(|word| word == ContractFailureWord::Warn);
    if let Some(must_pass) = &raw.must_pass
        && warns == Some(must_pass.value)
    {
        let message = "`must_pass` and `on_failure` contradict each other";
        log.fault(yaml::span(must_pass), message);
    }
    let must_pass = raw.must_pass.as_ref().is_none_or(|it| it.value);
    Some(Contract {
        artifact: artifact.map_or_else(|| OUTPUT.to_owned(), |it| it.value.0.clone()),
        is_warning_only: warns == Some(true) || !must_pass,
        rule: rule(raw, span, defaults)?,
    })
}

/// Notes the fields that a contract of its type does not have.
fn reject_inapplicable_fields(raw: &RawContract, defaults: &StepDefaults<'_>) {
    use ContractType::{
        FileExists, JsonSchema, LlmJudge, NonEmpty, NonEmptyFile, Regex, TestSuite,
    };
    let fields: [(_, _, &[ContractType]); 12] = [
        (
            "artifact",
            place(&raw.artifact),
            &[JsonSchema, Regex, NonEmpty, LlmJudge],
        ),
        ("schema", place(&raw.schema), &[JsonSchema]),
        ("schema_path", place(&raw.schema_path), &[JsonSchema]),
        ("command", place(&raw.command), &[TestSuite]),
        ("timeout", place(&raw.timeout), &[TestSuite]),
        ("pattern", place(&raw.pattern), &[Regex]),
        ("negated", place(&raw.negated), &[Regex]),
        ("path", place(&raw.path), &[FileExists, NonEmptyFile]),
        ("criteria", place(&raw.criteria), &[LlmJudge]),
        ("threshold", place(&raw.threshold), &[LlmJudge]),
        ("model", place(&raw.model), &[LlmJudge]),
        ("provider", place(&raw.provider), &[LlmJudge]),
    ];
    for (name, place, types) in fields {
        if !types.contains(&raw.r#type) {
            let why = "this contract has another `type`";
            defaults.log.reject(&[(name, place)], why);
        }
    }
}

fn rule(raw: RawContract, span: SourceSpan, defaults: &StepDefaults<'_>) -> Option<Rule> {
    let log = defaults.log;
    let missing = |what: &str| log.fault(span, format!("this contract needs {what}"));
    match raw.r#type {
        ContractType::JsonSchema => {
            schema(raw, span, defaults).map(|schema| Rule::JsonSchema { schema })
        }
        ContractType::TestSuite => {
            let Some(command) = raw.command else {
                missing("`command`");
                return None;
            };
            Some(Rule::TestSuite {
                command: work::command(command, log),
                timeout: raw.timeout.map(|timeout| timeout.value.0),
            })
        }
        ContractType::Regex => {
            let Some(pattern) = raw.pattern else {
                missing("`pattern`");
                return None;
            };
            if let Err(error) = regex::Regex::new(&pattern.value.0) {
                let what = "this is no regular expression";
                log.fault(yaml::span(&pattern), error_sentence(what, &error));
            }
            Some(Rule::Regex {
                pattern: pattern.value.0,
                negated: raw.negated.is_some_and(|negated| negated.value),
            })
        }
        ContractType::FileExists | ContractType::NonEmptyFile => {
            let Some(path) = raw.path else {
                missing("`path`");
                return None;
            };
            Some(Rule::FileExists {
                path: path.value.0,
                non_empty: raw.r#type == ContractType::NonEmptyFile,
            })
        }
        ContractType::NonEmpty => Some(Rule::NonEmpty),
        ContractType::LlmJudge => {
            let criteria: Vec<_> = items(raw.criteria).map(|one| one.value.0).collect();
            if criteria.iter().all(|one| one.trim().is_empty()) {
                missing("`criteria`, something to judge by");
            }
            let (provider, model) = work::provider_and_model(raw.provider, raw.model, defaults);
            Some(Rule::Judge(Judge {
                criteria,
                threshold_percent: raw.threshold.map_or(100, |it| it.value.0),
                provider,
                model,
            }))
        }
    }
}

fn schema(raw: RawContract, span: SourceSpan, defaults: &StepDefaults<'_>) -> Option<Json> {
    let log = defaults.log;
    let (schema, span) = match (raw.schema, raw.schema_path) {
        (None, None) => {
            log.fault(span, "a JSON Schema needs `schema` or `schema_path`");
            return None;
        }
        (Some(_), Some(path)) => {
            log.same_meaning("schema", "schema_path", yaml::span(&path));
            return None;
        }
        (Some(schema), None) => {
            let span = yaml::span(&schema);
            (schema.value, span)
        }
        (None, Some(path)) => {
            let span = yaml::span(&path);
            let path = path.value.0;
            match read_schema_file(&defaults.folder.join(&path), defaults.folder) {
                Ok(schema) => (schema, span),
                Err(message) => {
                    let path = printable(&path.to_string_lossy());
                    log.fault(span, format!("`{path}`: {message}"));
                    return None;
                }
            }
        }
    };
    if let Err(error) = validator(&schema) {
        log.fault(span, format!("this is no JSON Schema: {error}"));
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

fn error_sentence(what: &str, error: &dyn Error) -> String {
    // Some draw a picture first and say it in the last line.
    let words = error.to_string();
    let words = words.lines().last().unwrap_or_default();
    let words = words.trim_start_matches("error: ");
    let words = text::plain(words).replace(['\n', '\t'], " ");
    format!("{what}: {}", text::bounded(&words, 300))
}
