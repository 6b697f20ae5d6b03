//! The definition of a pipeline, with every name resolved and every default filled in.
//!
//! Invariant: a [`Pipeline`] is valid. Every name refers to an existing step, needs have no cycle, and every retry
//! policy ends. Not here: reading the file and reporting its faults (see `file`).

use outlast_kernel::breaker;
use outlast_kernel::budget::Cost;
use outlast_kernel::policy::Policy;
use serde_json::Value;
use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

/// The name of a step's main output: the completion of a model, or the text that a command printed.
pub const OUTPUT: &str = "output";

/// A pipeline.
#[derive(Clone, Debug)]
pub struct Pipeline {
    /// The pipeline's name.
    pub name: String,
    /// The purpose of the pipeline, in words.
    pub description: Option<String>,
    /// The inputs of a run, by name.
    pub inputs: BTreeMap<String, Input>,
    /// The settings that apply to all steps.
    pub runtime: Runtime,
    /// The steps, those inside of loops included, in the order of the file.
    pub steps: Vec<Step>,
}

impl Pipeline {
    /// Returns the step of the given id.
    pub fn step(&self, id: &str) -> Option<&Step> {
        self.steps.iter().find(|step| step.id == id)
    }
}

/// An input of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Input {
    /// The purpose of the input, in words.
    pub description: Option<String>,
    /// The value to use when the caller gives none; without it, the input is required.
    pub default: Option<String>,
}

/// The settings that apply to all steps.
#[derive(Clone, Debug)]
pub struct Runtime {
    /// The maximum number of steps that work at a time; waiting steps do not count.
    pub max_concurrency: NonZeroUsize,
    /// The settings of the circuit breaker, which ends a step after repeated identical failures.
    pub circuit_breaker: breaker::Config,
    /// The maximum time that a step may show no activity, or no progress; `None` means no limit.
    pub stall_timeout: Option<Duration>,
    /// The limits on what the run may spend.
    pub budget: Budget,
    /// The agents or models to fall back to, by the name of the one that they replace.
    pub fallbacks: BTreeMap<String, Vec<String>>,
}

/// The limits on what a run may spend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    /// The maximum duration.
    pub time: Option<Duration>,
    /// The maximum cost.
    pub cost: Option<Cost>,
    /// The maximum number of tokens.
    pub tokens: Option<u64>,
}

/// One unit of a pipeline.
#[derive(Clone, Debug)]
pub struct Step {
    /// The step's id, unique in the pipeline.
    pub id: String,
    /// The steps that must be done before this one.
    pub needs: Vec<String>,
    /// The work of the step.
    pub work: Work,
    /// The inputs that the step can read, by the name under which it finds them.
    pub inputs: BTreeMap<String, Source>,
    /// The files that the step produces, stored under their names.
    pub outputs: Vec<OutputFile>,
    /// The contracts that the result must satisfy.
    pub contracts: Vec<Contract>,
    /// Environment variables for the step's commands.
    pub env: BTreeMap<String, String>,
    /// The working directory, relative to the folder of the run.
    pub directory: PathBuf,
    /// The maximum working time of one attempt; waiting for a provider does not count.
    pub timeout: Option<Duration>,
    /// The retry settings of the step.
    pub retry: Retry,
    /// The consequence for the run when the step fails for good.
    pub on_failure: OnFailure,
    /// Whether the step is never started a second time: neither by a retry nor after a crash.
    pub once: bool,
    /// The maximum number of visits.
    pub max_visits: NonZeroU32,
    /// The edges to follow when the step has ended; the first whose condition holds is taken.
    pub edges: Vec<Edge>,
    /// Whether the step begins only when something leads to it: an edge of an earlier step, or a step that needs
    /// rework.
    pub is_on_demand: bool,
    /// The loop that the step is part of.
    pub parent_loop: Option<String>,
}

/// The work of a step.
#[derive(Clone, Debug)]
pub enum Work {
    /// Asks a model, in a session that the run creates.
    Prompt(Prompt),
    /// Runs a command.
    Command(CommandLine),
    /// Runs an agent program.
    Agent(Agent),
    /// Waits for a person, or for a time.
    Gate(Gate),
    /// Checks the result of its steps and runs them again until the condition holds.
    Loop(Loop),
}

/// A prompt to a model.
#[derive(Clone, Debug, Default)]
pub struct Prompt {
    /// The prompt text, with inputs in double braces.
    pub text: String,
    /// The system prompt.
    pub system: Option<String>,
    /// The provider; `None` means the one in the settings.
    pub provider: Option<String>,
    /// The model; `None` means the one in the settings.
    pub model: Option<String>,
    /// The fallback models.
    pub fallbacks: Vec<String>,
    /// Whether the model is offered tools.
    pub tools: bool,
    /// The permissions beside reading: `write`, `bash`, `outside`, `mcp`.
    pub allow: Vec<String>,
}

/// A command to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandLine {
    /// A command line for a shell.
    Shell(String),
    /// A program and its arguments.
    Program(Vec<String>),
}

/// An agent program.
#[derive(Clone, Debug, Default)]
pub struct Agent {
    /// The agent's name: a known one (`claude`, `codex`, `opencode`, `pi`), or any name if `program` is set.
    pub name: String,
    /// The program to start and its arguments, with the placeholders `{prompt}`, `{prompt_file}` and `{model}`.
    pub program: Option<Vec<String>>,
    /// The prompt, with inputs in double braces.
    pub prompt: String,
    /// The model.
    pub model: Option<String>,
    /// The permissions beside reading, for agents that support them: `write`, `bash`.
    pub allow: Vec<String>,
    /// The agents to fall back to when this one cannot continue.
    pub fallbacks: Vec<String>,
}

/// A wait for a person or a time.
#[derive(Clone, Debug)]
pub enum Gate {
    /// Waits for a person.
    Approval(Approval),
    /// Waits for a time.
    Timer(Duration),
}

/// A question to a person.
#[derive(Clone, Debug)]
pub struct Approval {
    /// The question.
    pub message: String,
    /// The possible answers; the first one means to continue.
    pub choices: Vec<Choice>,
    /// The maximum time to wait for an answer.
    pub timeout: Duration,
    /// The answer to use after the timeout; `None` fails the step.
    pub default: Option<String>,
}

/// A possible answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The key that a person types.
    pub key: String,
    /// The meaning of the choice, in words.
    pub label: String,
    /// The step that the choice leads to; without it the run continues as usual.
    pub target: Option<Target>,
    /// Whether the choice ends the step as failed.
    pub is_rejection: bool,
}

/// Steps that run until a condition holds.
#[derive(Clone, Debug)]
pub struct Loop {
    /// The ids of the steps, in order; the steps themselves are in the pipeline's list.
    pub steps: Vec<String>,
    /// The condition on the last of the steps; `None` runs them as often as allowed.
    pub until: Option<Condition>,
    /// The maximum number of iterations.
    pub max_iterations: NonZeroU32,
}

/// The source of an input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// An input of the run.
    Run {
        /// The name of the input.
        name: String,
    },
    /// An artifact of a step.
    Step {
        /// The step.
        step: String,
        /// The name of the artifact.
        artifact: String,
        /// Whether the artifact may be missing; the input is empty then.
        optional: bool,
    },
}

/// A file that a step produces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputFile {
    /// The name under which the file is stored.
    pub name: String,
    /// The path of the file, relative to the step's working directory.
    pub path: PathBuf,
}

/// A condition that the result of a step must satisfy.
#[derive(Clone, Debug)]
pub struct Contract {
    /// The name of the artifact to check: by default, the output of the step.
    pub artifact: String,
    /// The rule to check.
    pub rule: Rule,
    /// Whether a violation only causes a warning.
    pub is_warning_only: bool,
}

/// The rule of a contract.
#[derive(Clone, Debug)]
pub enum Rule {
    /// The artifact is JSON that matches a schema.
    JsonSchema {
        /// The schema, read together with the pipeline.
        schema: Value,
    },
    /// A command succeeds.
    TestSuite {
        /// The command.
        command: CommandLine,
        /// The maximum duration of the command.
        timeout: Option<Duration>,
    },
    /// The artifact matches a regular expression.
    Regex {
        /// The expression.
        pattern: String,
        /// Whether the expression must not match.
        negated: bool,
    },
    /// A file exists.
    FileExists {
        /// The path, relative to the step's working directory.
        path: PathBuf,
        /// Whether the file must not be empty.
        non_empty: bool,
    },
    /// The artifact is not empty.
    NonEmpty,
    /// A model judges the artifact as good enough.
    Judge(Judge),
}

/// The settings of a judging model.
#[derive(Clone, Debug)]
pub struct Judge {
    /// The criteria, judged one by one.
    pub criteria: Vec<String>,
    /// The share of the criteria that must be met, in percent.
    pub threshold_percent: u8,
    /// The provider; `None` means the one in the settings.
    pub provider: Option<String>,
    /// The model; `None` means the one in the settings.
    pub model: Option<String>,
}

/// The retry settings of a step.
#[derive(Clone, Debug)]
pub struct Retry {
    /// The retry policy.
    pub policy: Policy,
    /// Whether the step itself configures retries; otherwise a failure of unknown cause is not retried.
    pub is_explicit: bool,
}

/// The consequence for the run when a step fails for good.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum OnFailure {
    /// No further step starts, and the run has failed.
    #[default]
    Fail,
    /// The step and its dependents are skipped.
    Skip,
    /// The run continues as if the step had succeeded.
    Continue,
    /// Another step repairs the failure.
    Rework {
        /// The step that repairs the failure.
        step: String,
    },
}

/// An edge from a step to a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edge {
    /// The target of the edge.
    pub target: Target,
    /// The condition under which the edge is taken.
    pub condition: Condition,
}

/// The target of an edge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A step, which is visited, again if necessary.
    Step(String),
    /// The end of the run.
    Complete,
}

/// A condition on a step that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Always holds.
    Always,
    /// The step succeeded.
    Success,
    /// The step failed.
    Failure,
    /// A field of the step's output, which is a JSON object, has the given value.
    Context {
        /// The field.
        key: String,
        /// The value, as text.
        value: String,
        /// Whether the field must have a different value.
        negated: bool,
    },
}
