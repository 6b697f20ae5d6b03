//! A pipeline as it is run: what its file says, with every name resolved and every default filled in.
//!
//! Invariant: whoever holds a [`Pipeline`] need not check it. Names are those of steps that are there, needs have no
//! circle, a policy ends. Not here: reading the file and finding out what is wrong with it (see `file`).

use outlast_kernel::breaker;
use outlast_kernel::budget::Cost;
use outlast_kernel::policy::Policy;
use serde_json::Value;
use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

/// The name of what a step says in the end: the answer of a model, what a command printed.
pub const OUTPUT: &str = "output";

/// A pipeline.
#[derive(Clone, Debug)]
pub struct Pipeline {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub description: Option<String>,
    /// What a run is given.
    pub inputs: BTreeMap<String, Input>,
    /// What counts for all steps.
    pub runtime: Runtime,
    /// The steps, those inside of loops included, in the order of the file.
    pub steps: Vec<Step>,
}

impl Pipeline {
    /// The step of that id.
    pub fn step(&self, id: &str) -> Option<&Step> {
        self.steps.iter().find(|step| step.id == id)
    }
}

/// Something that a run is given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Input {
    /// What it is for.
    pub description: Option<String>,
    /// What it is when nobody says otherwise; without it, it must be given.
    pub default: Option<String>,
}

/// What counts for all steps.
#[derive(Clone, Debug)]
pub struct Runtime {
    /// How many steps work at a time; those that wait do not count.
    pub max_concurrency: NonZeroUsize,
    /// When the same failure again and again ends a step.
    pub circuit_breaker: breaker::Config,
    /// For how long a step may show no activity, or no progress; `None` means for ever.
    pub stall_timeout: Option<Duration>,
    /// What the run may spend.
    pub budget: Budget,
    /// Which agents or models take the place of one that cannot go on, by its name.
    pub fallbacks: BTreeMap<String, Vec<String>>,
}

/// What a run may spend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    /// How long it may take.
    pub time: Option<Duration>,
    /// What it may cost.
    pub cost: Option<Cost>,
    /// How many tokens it may use.
    pub tokens: Option<u64>,
}

/// One unit of a pipeline.
#[derive(Clone, Debug)]
pub struct Step {
    /// Its name, which no other has.
    pub id: String,
    /// The steps that must be done before it.
    pub needs: Vec<String>,
    /// What is done.
    pub work: Work,
    /// What it can read, by the name under which it finds it.
    pub inputs: BTreeMap<String, Source>,
    /// The files that it leaves behind, kept under their names.
    pub outputs: Vec<OutputFile>,
    /// What its result must be.
    pub contracts: Vec<Contract>,
    /// Variables for its commands.
    pub env: BTreeMap<String, String>,
    /// Where it works, relative to the folder of the run.
    pub directory: PathBuf,
    /// How long one attempt may work; waiting for a provider does not count.
    pub timeout: Option<Duration>,
    /// When it is tried again.
    pub retry: Retry,
    /// What becomes of the run when it fails for good.
    pub on_failure: OnFailure,
    /// Whether it is never begun a second time: not by a retry, and not after a crash.
    pub once: bool,
    /// How often it may be visited.
    pub max_visits: NonZeroU32,
    /// Where it leads when it has ended; the first that holds is taken.
    pub edges: Vec<Edge>,
    /// Whether it begins only when something leads to it: an edge of an earlier step, or a step that is reworked.
    pub is_called: bool,
    /// The loop that it is part of.
    pub part_of: Option<String>,
}

/// What a step does.
#[derive(Clone, Debug)]
pub enum Work {
    /// Asks a model, in a session of ours.
    Prompt(Prompt),
    /// Runs a command.
    Command(CommandLine),
    /// Runs an agent program.
    Agent(Agent),
    /// Waits for a person, or for a time.
    Gate(Gate),
    /// Looks at what its steps have made, and has them run again until it is right.
    Loop(Loop),
}

/// What a model is asked.
#[derive(Clone, Debug, Default)]
pub struct Prompt {
    /// What is said, with inputs in double braces.
    pub text: String,
    /// What it is told before.
    pub system: Option<String>,
    /// Who answers; `None` is who the settings name.
    pub provider: Option<String>,
    /// Which model; `None` is the one that the settings name.
    pub model: Option<String>,
    /// The models that are asked when that one cannot be.
    pub fallbacks: Vec<String>,
    /// Whether it is offered tools.
    pub tools: bool,
    /// What it may do beside reading: `write`, `bash`, `outside`, `mcp`.
    pub allow: Vec<String>,
}

/// What is run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandLine {
    /// By a shell.
    Shell(String),
    /// A program and its arguments.
    Program(Vec<String>),
}

/// An agent program.
#[derive(Clone, Debug, Default)]
pub struct Agent {
    /// Its name: one that is known (`claude`, `codex`, `opencode`, `pi`), or any when `program` is there.
    pub name: String,
    /// How it is started: a program and its arguments, with `{prompt}`, `{prompt_file}` and `{model}` in them.
    pub program: Option<Vec<String>>,
    /// What it is asked, with inputs in double braces.
    pub prompt: String,
    /// Its model.
    pub model: Option<String>,
    /// What it may do beside reading, where it can be told: `write`, `bash`.
    pub allow: Vec<String>,
    /// The agents that take its place when it cannot go on.
    pub fallbacks: Vec<String>,
}

/// A wait for somebody or something.
#[derive(Clone, Debug)]
pub enum Gate {
    /// For a person.
    Approval(Approval),
    /// For a time.
    Timer(Duration),
}

/// What a person is asked.
#[derive(Clone, Debug)]
pub struct Approval {
    /// The question.
    pub message: String,
    /// What can be answered; the first is to go on.
    pub choices: Vec<Choice>,
    /// How long an answer is waited for.
    pub timeout: Duration,
    /// What is taken when none came; `None` fails the step.
    pub default: Option<String>,
}

/// A possible answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// What is typed.
    pub key: String,
    /// What it means.
    pub label: String,
    /// The step that it leads to; without it the run goes on as usual.
    pub target: Option<Target>,
    /// Whether it ends the step as failed.
    pub rejects: bool,
}

/// Steps that run until something holds.
#[derive(Clone, Debug)]
pub struct Loop {
    /// The steps, in order; they are among the pipeline's own.
    pub steps: Vec<String>,
    /// What must hold of the last of them; `None` runs them as often as allowed.
    pub until: Option<Condition>,
    /// How often they may run.
    pub max_iterations: NonZeroU32,
}

/// Where an input comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// What the run was given.
    Run {
        /// Its name.
        name: String,
    },
    /// What a step has made.
    Step {
        /// The step.
        step: String,
        /// The name of what it made.
        artifact: String,
        /// Whether it may be missing, and is empty then.
        optional: bool,
    },
}

/// A file that a step leaves behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputFile {
    /// The name under which it is kept.
    pub name: String,
    /// Where it is, relative to where the step works.
    pub path: PathBuf,
}

/// What must be so after a step.
#[derive(Clone, Debug)]
pub struct Contract {
    /// What is looked at: the name of an artifact of the step, its output by default.
    pub artifact: String,
    /// What must be so.
    pub rule: Rule,
    /// Whether it only warns.
    pub warns: bool,
}

/// What must be so.
#[derive(Clone, Debug)]
pub enum Rule {
    /// It is JSON that matches a schema.
    JsonSchema {
        /// The schema, read when the pipeline was.
        schema: Value,
    },
    /// A command ends well.
    TestSuite {
        /// The command.
        command: CommandLine,
        /// How long it may take.
        timeout: Option<Duration>,
    },
    /// A regular expression is found in it.
    Regex {
        /// The expression.
        pattern: String,
        /// Whether it must not be found.
        negated: bool,
    },
    /// A file is there.
    FileExists {
        /// Relative to where the step works.
        path: PathBuf,
        /// Whether it must have something in it.
        non_empty: bool,
    },
    /// It is not empty.
    NonEmpty,
    /// A model says that it is good enough.
    Judge(Judge),
}

/// What a model judges by.
#[derive(Clone, Debug)]
pub struct Judge {
    /// What must be so, one by one.
    pub criteria: Vec<String>,
    /// The share of the criteria that must hold, in hundredths.
    pub threshold_percent: u8,
    /// Who judges; `None` is who the settings name.
    pub provider: Option<String>,
    /// Which model.
    pub model: Option<String>,
}

/// When a step is tried again.
#[derive(Clone, Debug)]
pub struct Retry {
    /// How often, and how fast.
    pub policy: Policy,
    /// Whether the step says so itself; else a failure that says nothing about itself is not tried again.
    pub is_explicit: bool,
}

/// What becomes of the run when a step fails for good.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum OnFailure {
    /// Nothing more is begun, and the run has failed.
    #[default]
    Fail,
    /// The step and those that need it are left out.
    Skip,
    /// It goes on as though the step had ended well.
    Continue,
    /// Another step makes good for it.
    Rework {
        /// That step.
        step: String,
    },
}

/// Where a step leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edge {
    /// Where.
    pub target: Target,
    /// When.
    pub condition: Condition,
}

/// What an edge leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A step, which is visited, once more if need be.
    Step(String),
    /// The end of the run.
    Complete,
}

/// What must hold of a step that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Nothing.
    Always,
    /// It ended well.
    Success,
    /// It failed.
    Failure,
    /// A field of its output, which is a JSON object, has that value.
    Context {
        /// The field.
        key: String,
        /// The value, as text.
        value: String,
        /// Whether it must have another one.
        negated: bool,
    },
}
