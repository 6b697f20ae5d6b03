//! What a step does: a prompt, a command, an agent program, a gate or a loop.

use super::fault_log::FaultLog;
use super::raw::{Field, List, RawChoice, RawCommand, RawGate, RawStep, items, place};
use super::raw::{GateType, RawAgent};
use super::scalar::{Name, NonEmpty, Scalar, Shape, Text};
use super::step::{StepDefaults, StepReference, read_target};
use super::words::{self, AGENTS};
use super::{SourceSpan, placeholders, yaml};
use crate::definition::{Agent, Approval, Choice, CommandLine, Gate, Prompt, Source, Work};
use serde_saphyr::Spanned;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How long an answer is waited for when the file does not say.
const DEFAULT_APPROVAL_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

/// What a step does, without how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Prompt,
    Command,
    Agent,
    Gate,
    Loop,
}

impl Kind {
    /// Whether something is done that can fail and be tried again.
    pub(super) const fn is_retryable(self) -> bool {
        matches!(self, Self::Prompt | Self::Command | Self::Agent)
    }

    const fn describe(self) -> &'static str {
        match self {
            Self::Prompt => "this step is a prompt",
            Self::Command => "this step is a command",
            Self::Agent => "this step is an agent program, which has its own",
            Self::Gate => "this step is a gate",
            Self::Loop => "this step is a loop; write it in the steps inside",
        }
    }

    /// Notes the fields that such a step does not have.
    fn reject_inapplicable_fields(self, raw: &RawStep, log: &FaultLog<'_>) {
        let of_prompts = [
            ("system", place(&raw.system)),
            ("provider", place(&raw.provider)),
            ("tools", place(&raw.tools)),
        ];
        let of_models = [("model", place(&raw.model)), ("allow", place(&raw.allow))];
        let of_attempts = [
            ("inputs", place(&raw.inputs)),
            ("outputs", place(&raw.outputs)),
            ("contracts", place(&raw.contracts)),
            ("handover", place(&raw.handover)),
            ("timeout", place(&raw.timeout)),
            ("timeout_minutes", place(&raw.timeout_minutes)),
            ("once", place(&raw.once)),
            ("retry", place(&raw.retry)),
            ("env", place(&raw.env)),
            ("directory", place(&raw.directory)),
        ];
        if self != Self::Prompt {
            log.reject(&of_prompts, self.describe());
        }
        if !matches!(self, Self::Prompt | Self::Agent) {
            log.reject(&of_models, self.describe());
        }
        if !self.is_retryable() {
            log.reject(&of_attempts, self.describe());
        }
    }
}

/// Returns the kind of a step. Notes a fault if it has no kind, two kinds, or fields of another kind.
pub(super) fn kind(raw: &RawStep, span: SourceSpan, log: &FaultLog<'_>) -> Option<Kind> {
    let kinds = [
        ("command", Kind::Command, place(&raw.command)),
        ("agent", Kind::Agent, place(&raw.agent)),
        ("gate", Kind::Gate, place(&raw.gate)),
        ("loop", Kind::Loop, place(&raw.r#loop)),
        ("prompt", Kind::Prompt, place(&raw.prompt)),
    ];
    let found = kinds.into_iter();
    let mut found = found.filter_map(|(name, kind, place)| Some((name, kind, place?)));
    let Some((name, kind, _)) = found.next() else {
        let message =
            "a step needs one of `prompt`, `command`, `agent` (with `prompt`), `gate` or `loop`";
        log.fault(span, message);
        return None;
    };
    let other = found.find(|(_, other, _)| (kind, *other) != (Kind::Agent, Kind::Prompt));
    if let Some((other, _, place)) = other {
        let message = format!("a step does one thing, and this one has `{name}` and `{other}`");
        log.fault(place, message);
    }
    kind.reject_inapplicable_fields(raw, log);
    Some(kind)
}

/// Reads what a step does. What a loop does is read with its steps; until then, and for a step that does nothing, an
/// empty command stands in.
pub(super) fn read(
    kind: Option<Kind>,
    raw: RawStep,
    span: SourceSpan,
    inputs: &BTreeMap<String, Source>,
    defaults: &StepDefaults<'_>,
    references: &mut Vec<StepReference>,
) -> Work {
    let work = match kind {
        Some(Kind::Prompt) => prompt(raw, inputs, defaults).map(Work::Prompt),
        Some(Kind::Command) => raw
            .command
            .map(|line| Work::Command(command(line, defaults.log))),
        Some(Kind::Agent) => agent(raw, span, inputs, defaults).map(Work::Agent),
        Some(Kind::Gate) => raw
            .gate
            .and_then(|raw| gate(raw, defaults.log, references))
            .map(Work::Gate),
        Some(Kind::Loop) | None => None,
    };
    work.unwrap_or_else(|| Work::Command(CommandLine::Program(Vec::new())))
}

/// Reads a command: a shell's line, or a program and its arguments.
pub(super) fn command(raw: RawCommand, log: &FaultLog<'_>) -> CommandLine {
    let span = yaml::span(&raw);
    match raw.value {
        Shape::Text(line) => {
            if line.trim().is_empty() {
                log.fault(span, "`command` is empty");
            }
            placeholders::reject_in_command(&line, span, log);
            CommandLine::Shell(line)
        }
        Shape::List(words) => {
            for word in &words {
                placeholders::reject_in_command(&word.value.0, yaml::span(word), log);
            }
            CommandLine::Program(program(words, span, log))
        }
        Shape::Plain | Shape::Map(_) => {
            log.fault(
                span,
                "expected a shell's line, or a list of a program and its arguments",
            );
            CommandLine::Program(Vec::new())
        }
    }
}

/// A program and its arguments.
fn program(words: Vec<Spanned<Scalar>>, span: SourceSpan, log: &FaultLog<'_>) -> Vec<String> {
    if words.first().is_none_or(|first| first.value.0.is_empty()) {
        log.fault(span, "expected a program and its arguments");
    }
    words.into_iter().map(|word| word.value.0).collect()
}

fn prompt(
    raw: RawStep,
    inputs: &BTreeMap<String, Source>,
    defaults: &StepDefaults<'_>,
) -> Option<Prompt> {
    let text = prompt_text(raw.prompt?, inputs, defaults);
    let (provider, model) = provider_and_model(raw.provider, raw.model, defaults);
    let allow = allowed(raw.allow, &words::ALLOWED_TO_PROMPTS, defaults.log);
    if let Some(tools) = &raw.tools
        && !tools.value
        && !allow.is_empty()
    {
        let message = "`allow` is about tools, and here are none";
        defaults.log.fault(yaml::span(tools), message);
    }
    let fallbacks = model
        .as_ref()
        .and_then(|model| defaults.fallbacks.get(model));
    Some(Prompt {
        text,
        system: raw.system.map(|system| system.value.0),
        fallbacks: fallbacks.cloned().unwrap_or_default(),
        tools: raw.tools.map_or(!allow.is_empty(), |tools| tools.value),
        provider,
        model,
        allow,
    })
}

/// Who is asked: who the step names, else who the pipeline does. A model belongs to its provider.
pub(super) fn provider_and_model(
    provider: Field<NonEmpty>,
    model: Field<NonEmpty>,
    defaults: &StepDefaults<'_>,
) -> (Option<String>, Option<String>) {
    let provider = provider.map(|name| name.value.0);
    let model = model.map(|name| name.value.0);
    let same = provider.is_none() || provider == defaults.provider;
    let shared = || defaults.model.clone().filter(|_| same);
    (
        provider.or_else(|| defaults.provider.clone()),
        model.or_else(shared),
    )
}

/// What is asked, with its names in braces looked up.
fn prompt_text(
    text: Spanned<NonEmpty>,
    inputs: &BTreeMap<String, Source>,
    defaults: &StepDefaults<'_>,
) -> String {
    let names = inputs.keys().chain(defaults.inputs.keys());
    let known: Vec<&str> = names.map(String::as_str).collect();
    placeholders::check(&text.value.0, yaml::span(&text), &known, defaults.log);
    text.value.0
}

fn allowed(raw: Option<List<Text>>, known: &[&str], log: &FaultLog<'_>) -> Vec<String> {
    let check = |word: Spanned<Text>| {
        let text = &word.value.0;
        if !known.contains(&text.as_str()) {
            log.fault(yaml::span(&word), words::not_one_of(text, known));
        }
        word.value.0
    };
    items(raw).map(check).collect()
}

fn agent(
    raw: RawStep,
    step: SourceSpan,
    inputs: &BTreeMap<String, Source>,
    defaults: &StepDefaults<'_>,
) -> Option<Agent> {
    let log = defaults.log;
    let named = raw.agent?;
    let mut span = yaml::span(&named);
    let (name, program) = match named.value {
        Shape::Text(name) => (name, None),
        Shape::Map(RawAgent { name, program }) => {
            span = yaml::span(&name);
            let words = program.map(|list| {
                let span = yaml::span(&list);
                self::program(list.value, span, log)
            });
            (name.value.0, words)
        }
        Shape::Plain | Shape::List(_) => {
            log.fault(
                span,
                "expected the name of an agent program, or a mapping with its `name` and `program`",
            );
            return None;
        }
    };
    if program.is_none() && !AGENTS.contains(&name.as_str()) {
        let message = words::not_one_of(&name, &AGENTS);
        let other = "any other is written `agent: {name: NAME, program: [PROGRAM, \"{prompt}\"]}`";
        log.fault(span, format!("{message} ({other})"));
    }
    let Some(text) = raw.prompt else {
        log.fault(step, "an agent needs `prompt`");
        return None;
    };
    Some(Agent {
        prompt: prompt_text(text, inputs, defaults),
        model: raw.model.map(|model| model.value.0),
        allow: allowed(raw.allow, &words::ALLOWED_TO_AGENTS, log),
        fallbacks: defaults.fallbacks.get(&name).cloned().unwrap_or_default(),
        program,
        name,
    })
}

fn gate(
    raw: Spanned<RawGate>,
    log: &FaultLog<'_>,
    references: &mut Vec<StepReference>,
) -> Option<Gate> {
    let span = yaml::span(&raw);
    let raw = raw.value;
    let timeout = raw.timeout.map(|timeout| timeout.0);
    match raw.r#type {
        GateType::Timer => {
            let fields = [
                ("message", place(&raw.message)),
                ("choices", place(&raw.choices)),
                ("default", place(&raw.default)),
            ];
            log.reject(&fields, "a timer asks nobody");
            if timeout.is_none() {
                log.fault(span, "a timer needs `timeout`");
            }
            timeout.map(Gate::Timer)
        }
        GateType::Approval => {
            if let Some(message) = &raw.message {
                placeholders::reject_in_message(&message.value.0, yaml::span(message), log);
            }
            let choices = choices(raw.choices, log, references);
            Some(Gate::Approval(Approval {
                message: raw
                    .message
                    .map_or_else(|| "Go on?".to_owned(), |message| message.value.0),
                timeout: timeout.unwrap_or(DEFAULT_APPROVAL_TIMEOUT),
                default: default_choice(raw.default, &choices, log),
                choices,
            }))
        }
    }
}

fn choices(
    raw: Option<List<RawChoice>>,
    log: &FaultLog<'_>,
    references: &mut Vec<StepReference>,
) -> Vec<Choice> {
    let Some(raw) = raw else {
        // To go on, or not to.
        return [("y", "Go on", false), ("n", "Stop", true)]
            .map(|(key, label, is_rejection)| Choice {
                key: key.to_owned(),
                label: label.to_owned(),
                target: None,
                is_rejection,
            })
            .to_vec();
    };
    if raw.value.is_empty() {
        log.fault(yaml::span(&raw), "there is no choice here");
    }
    let mut keys = BTreeSet::new();
    let mut choices = Vec::new();
    for choice in raw.value {
        let choice = choice.value;
        let key = choice.key.value.0.clone();
        if !keys.insert(key.clone()) {
            log.fault(yaml::span(&choice.key), "there are two choices of that key");
        }
        choices.push(Choice {
            label: choice.label.map_or_else(|| key.clone(), |label| label.0),
            target: choice.target.map(|target| read_target(target, references)),
            is_rejection: choice.rejects,
            key,
        });
    }
    choices
}

fn default_choice(raw: Field<Name>, choices: &[Choice], log: &FaultLog<'_>) -> Option<String> {
    let raw = raw?;
    let default = &raw.value.0;
    let keys: Vec<&str> = choices.iter().map(|choice| choice.key.as_str()).collect();
    if !keys.contains(&default.as_str()) {
        log.fault(yaml::span(&raw), words::not_one_of(default, &keys));
    }
    Some(raw.value.0)
}
