//! What a step does: a prompt, a command, an agent program, a gate or a loop.

use super::document::{ReadContext, value};
use super::fields::{self, Fields};
use super::names::{self, AGENT, AGENTS, CHOICE, GATE, LOOP};
use super::placeholders;
use super::step::{self, Draft, StepReference, read_target};
use super::tree::{Node, Value};
use super::{Spanned, values};
use crate::definition::{Agent, Approval, Choice, CommandLine, Gate, Loop, Prompt, Work};
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

/// The fields that only some steps have, and which steps have them.
const RESTRICTED_FIELDS: [(&[&str], &[Kind]); 3] = [
    (&["system", "provider", "tools"], &[Kind::Prompt]),
    (&["model", "allow"], &[Kind::Prompt, Kind::Agent]),
    (
        &[
            "inputs",
            "outputs",
            "output_artifacts",
            "contracts",
            "handover",
            "timeout",
            "timeout_minutes",
            "once",
            "retry",
            "env",
            "directory",
        ],
        &[Kind::Prompt, Kind::Command, Kind::Agent],
    ),
];

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
    pub(super) fn reject_inapplicable_fields(self, fields: &Fields<'_>) {
        for (names, kinds) in RESTRICTED_FIELDS {
            if !kinds.contains(&self) {
                for name in names {
                    fields.reject(name, self.describe());
                }
            }
        }
    }
}

/// What kind of step it is; a step that is none, or two, is noted.
pub(super) fn kind(fields: &Fields<'_>) -> Option<Kind> {
    let kinds = [
        ("command", Kind::Command),
        ("agent", Kind::Agent),
        ("gate", Kind::Gate),
        ("loop", Kind::Loop),
        ("prompt", Kind::Prompt),
    ];
    let mut found = kinds.iter().filter(|(name, _)| fields.has(name));
    let Some((name, kind)) = found.next() else {
        // A name that may not be there is probably what was meant, and was noted.
        if !fields.has_unknown {
            let message = "a step needs one of `prompt`, `command`, `agent` (with `prompt`), `gate` or `loop`";
            fields.log.fault(fields.span, message);
        }
        return None;
    };
    let other = found.find(|(_, other)| (*kind, *other) != (Kind::Agent, Kind::Prompt));
    if let Some((other, _)) = other {
        let message = format!("a step does one thing, and this one has `{name}` and `{other}`");
        fields.log.fault(fields.span_of(other), message);
    }
    Some(*kind)
}

/// What stands in for work that could not be read, in a pipeline that nobody will see.
pub(super) fn placeholder() -> Work {
    Work::Command(CommandLine::Program(Vec::new()))
}

/// Reads what a step does. The steps of a loop go to the drafts, after the loop's own, whose index is given.
pub(super) fn read(
    kind: Kind,
    fields: &Fields<'_>,
    scene: &ReadContext<'_>,
    index: usize,
    drafts: &mut Vec<Draft>,
) -> Option<Work> {
    match kind {
        Kind::Prompt => prompt(fields, scene).map(Work::Prompt),
        Kind::Command => command(fields, "command").map(Work::Command),
        Kind::Agent => agent(fields, scene).map(Work::Agent),
        Kind::Gate => {
            let mentions = &mut drafts.get_mut(index)?.references;
            gate(fields, mentions).map(Work::Gate)
        }
        Kind::Loop => {
            let id = drafts.get(index)?.step.id.clone();
            loop_work(fields, &id, scene, drafts).map(Work::Loop)
        }
    }
}

/// Reads a command: a shell's line, or a program and its arguments.
pub(super) fn command(fields: &Fields<'_>, name: &str) -> Option<CommandLine> {
    let node = fields.get(name)?;
    let line = match &node.value {
        Value::List(_) => {
            let words = program(node, fields)?;
            words
                .iter()
                .try_for_each(|word| placeholders::reject_in_command(word, fields.log))?;
            CommandLine::Program(words.into_iter().map(|word| word.value).collect())
        }
        _ => {
            let line = fields.non_empty_text(name)?;
            placeholders::reject_in_command(&line, fields.log)?;
            CommandLine::Shell(line.value)
        }
    };
    Some(line)
}

/// A program and its arguments.
fn program(node: &Node, fields: &Fields<'_>) -> Option<Vec<Spanned<String>>> {
    let list = fields::items(node, "a program and its arguments", fields.log).iter();
    let words: Option<Vec<_>> = list.map(|item| fields::scalar(item, fields.log)).collect();
    let words = words?;
    if words.first().is_none_or(|first| first.value.is_empty()) {
        fields
            .log
            .fault(node.span, "expected a program and its arguments");
        return None;
    }
    Some(words)
}

fn prompt(fields: &Fields<'_>, scene: &ReadContext<'_>) -> Option<Prompt> {
    let text = prompt_text(fields, scene);
    let (provider, model) = provider_and_model(fields, scene);
    let allow = allowed(fields, &names::ALLOWED_TO_PROMPTS);
    let tools = fields.flag("tools");
    if let Some(tools) = &tools
        && !tools.value
        && !allow.is_empty()
    {
        fields
            .log
            .fault(tools.span, "`allow` is about tools, and here are none");
    }
    let fallbacks = model.as_ref().and_then(|model| scene.fallbacks.get(model));
    Some(Prompt {
        text: text?,
        system: value(fields.text("system")),
        fallbacks: fallbacks.cloned().unwrap_or_default(),
        tools: tools.map_or(!allow.is_empty(), |tools| tools.value),
        provider,
        model,
        allow,
    })
}

/// Who is asked: who the step names, else who the pipeline does. A model belongs to its provider.
pub(super) fn provider_and_model(
    fields: &Fields<'_>,
    scene: &ReadContext<'_>,
) -> (Option<String>, Option<String>) {
    let provider = value(fields.non_empty_text("provider"));
    let model = value(fields.non_empty_text("model"));
    let same = provider.is_none() || provider == scene.provider;
    let shared = || scene.model.clone().filter(|_| same);
    (
        provider.or_else(|| scene.provider.clone()),
        model.or_else(shared),
    )
}

/// What is asked, with its names in braces looked up.
fn prompt_text(fields: &Fields<'_>, scene: &ReadContext<'_>) -> Option<String> {
    let text = fields.non_empty_text("prompt")?;
    let own = fields.free_entries("inputs", "a mapping of names to where they come from");
    let own = own.iter().map(|entry| entry.name.as_str());
    let known: Vec<&str> = own.chain(scene.inputs.keys().map(String::as_str)).collect();
    placeholders::check(&text, fields.get("prompt")?.offset, &known, fields.log);
    Some(text.value)
}

fn allowed(fields: &Fields<'_>, known: &[&str]) -> Vec<String> {
    let mut allowed = Vec::new();
    for word in fields.texts("allow", "what it may do") {
        if known.contains(&word.value.as_str()) {
            allowed.push(word.value);
        } else {
            fields
                .log
                .fault(word.span, names::not_one_of(&word.value, known));
        }
    }
    allowed
}

fn agent(fields: &Fields<'_>, scene: &ReadContext<'_>) -> Option<Agent> {
    fields.require("prompt", "an agent");
    let node = fields.get("agent")?;
    let (name, program) = match &node.value {
        Value::Map(_) => {
            let agent = Fields::new(node, &AGENT, fields.log)?;
            let name = agent.required_text("name", "an agent");
            let program = match agent.get("program") {
                Some(node) => Some(program(node, &agent)?),
                None => None,
            };
            (name?, program)
        }
        _ => (fields.non_empty_text("agent")?, None),
    };
    if program.is_none() && !AGENTS.contains(&name.value.as_str()) {
        let mut message = names::not_one_of(&name.value, &AGENTS);
        message += if message.ends_with('?') {
            " Any"
        } else {
            "; any"
        };
        message += " other is written `agent: {name: NAME, program: [PROGRAM, \"{prompt}\"]}`";
        fields.log.fault(name.span, message);
    }
    let fallbacks = scene.fallbacks.get(&name.value).cloned();
    Some(Agent {
        prompt: prompt_text(fields, scene)?,
        model: value(fields.non_empty_text("model")),
        allow: allowed(fields, &names::ALLOWED_TO_AGENTS),
        fallbacks: fallbacks.unwrap_or_default(),
        program: program.map(|words| words.into_iter().map(|word| word.value).collect()),
        name: name.value,
    })
}

fn gate(step: &Fields<'_>, mentions: &mut Vec<StepReference>) -> Option<Gate> {
    let fields = Fields::new(step.get("gate")?, &GATE, step.log)?;
    fields.require("type", "a gate");
    let timeout = fields.parsed("timeout", values::positive_duration);
    match fields.one_of("type", &["approval", "timer"])?.value {
        "timer" => {
            for name in ["message", "choices", "default"] {
                fields.reject(name, "a timer asks nobody");
            }
            fields.require("timeout", "a timer");
            timeout.map(|timeout| Gate::Timer(timeout.value))
        }
        _ => {
            let choices = choices(&fields, mentions);
            Some(Gate::Approval(Approval {
                message: message(&fields).unwrap_or_else(|| "Go on?".to_owned()),
                timeout: value(timeout).unwrap_or(DEFAULT_APPROVAL_TIMEOUT),
                default: default_choice(&fields, &choices),
                choices,
            }))
        }
    }
}

fn message(fields: &Fields<'_>) -> Option<String> {
    let message = fields.non_empty_text("message")?;
    placeholders::reject_in_message(&message, fields.log);
    Some(message.value)
}

fn choices(fields: &Fields<'_>, mentions: &mut Vec<StepReference>) -> Vec<Choice> {
    let Some(node) = fields.get("choices") else {
        return builtin_choices();
    };
    let mut choices = Vec::<Choice>::new();
    for item in fields::items(node, "choices", fields.log) {
        let Some(choice) = Fields::new(item, &CHOICE, fields.log) else {
            continue;
        };
        choice.require("key", "a choice");
        let Some(key) = choice.parsed("key", values::name) else {
            continue;
        };
        if choices.iter().any(|other| other.key == key.value) {
            fields
                .log
                .fault(key.span, "there are two choices of that key");
        }
        choices.push(Choice {
            label: value(choice.non_empty_text("label")).unwrap_or_else(|| key.value.clone()),
            target: choice
                .non_empty_text("target")
                .map(|target| read_target(target, mentions)),
            is_rejection: value(choice.flag("rejects")).unwrap_or(false),
            key: key.value,
        });
    }
    if matches!(&node.value, Value::List(list) if list.is_empty()) {
        fields.log.fault(node.span, "there is no choice here");
    }
    choices
}

/// To go on, or not to.
fn builtin_choices() -> Vec<Choice> {
    [("y", "Go on", false), ("n", "Stop", true)]
        .map(|(key, label, is_rejection)| Choice {
            key: key.to_owned(),
            label: label.to_owned(),
            target: None,
            is_rejection,
        })
        .to_vec()
}

fn default_choice(fields: &Fields<'_>, choices: &[Choice]) -> Option<String> {
    let default = fields.parsed("default", values::name)?;
    let keys: Vec<&str> = choices.iter().map(|choice| choice.key.as_str()).collect();
    if !keys.contains(&default.value.as_str()) {
        let message = names::not_one_of(&default.value, &keys);
        fields.log.fault(default.span, message);
    }
    Some(default.value)
}

fn loop_work(
    step: &Fields<'_>,
    id: &str,
    scene: &ReadContext<'_>,
    drafts: &mut Vec<Draft>,
) -> Option<Loop> {
    let fields = Fields::new(step.get("loop")?, &LOOP, step.log)?;
    fields.require("max_iterations", "a loop");
    let most = value(fields.count("max_iterations"));
    let until = value(fields.parsed_text("until", values::condition));
    let steps = step::read_list(fields.require("steps", "a loop")?, Some(id), scene, drafts);
    Some(Loop {
        steps,
        until,
        max_iterations: most?,
    })
}
