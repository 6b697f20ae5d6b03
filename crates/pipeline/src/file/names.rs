//! Every name that a file may have, and what to write instead of those that other systems' files have.

use super::printable;
use outlast_kernel::verdict::Class;

/// What may stand in a mapping.
pub(super) struct FieldNames {
    /// What has them.
    pub(super) owner: &'static str,
    /// Them.
    pub(super) allowed: &'static [&'static str],
}

pub(super) const PIPELINE: FieldNames = FieldNames {
    owner: "a pipeline",
    allowed: &[
        "name",
        "description",
        "inputs",
        "provider",
        "model",
        "max_step_visits",
        "runtime",
        "steps",
    ],
};
pub(super) const INPUT: FieldNames = FieldNames {
    owner: "an input",
    allowed: &["description", "default"],
};
pub(super) const RUNTIME: FieldNames = FieldNames {
    owner: "`runtime`",
    allowed: &[
        "max_concurrency",
        "circuit_breaker",
        "stall_timeout",
        "timeout",
        "default_timeout_minutes",
        "budget",
        "cost",
        "fallbacks",
    ],
};
pub(super) const BREAKER: FieldNames = FieldNames {
    owner: "`circuit_breaker`",
    allowed: &["limit", "tracked_classes"],
};
pub(super) const BUDGET: FieldNames = FieldNames {
    owner: "`budget`",
    allowed: &["time", "cost", "tokens"],
};
pub(super) const COST: FieldNames = FieldNames {
    owner: "`cost`",
    allowed: &["budget_ceiling"],
};
pub(super) const STEP: FieldNames = FieldNames {
    owner: "a step",
    allowed: &[
        "id",
        "needs",
        "dependencies",
        "prompt",
        "command",
        "agent",
        "gate",
        "loop",
        "system",
        "provider",
        "model",
        "tools",
        "allow",
        "env",
        "directory",
        "inputs",
        "outputs",
        "output_artifacts",
        "contracts",
        "handover",
        "timeout",
        "timeout_minutes",
        "optional",
        "once",
        "retry",
        "on_failure",
        "rework_step",
        "rework_only",
        "max_visits",
        "edges",
    ],
};
pub(super) const AGENT: FieldNames = FieldNames {
    owner: "`agent`",
    allowed: &["name", "program"],
};
pub(super) const GATE: FieldNames = FieldNames {
    owner: "`gate`",
    allowed: &["type", "message", "choices", "default", "timeout"],
};
pub(super) const CHOICE: FieldNames = FieldNames {
    owner: "a choice",
    allowed: &["key", "label", "target", "rejects"],
};
pub(super) const LOOP: FieldNames = FieldNames {
    owner: "`loop`",
    allowed: &["max_iterations", "until", "steps"],
};
pub(super) const OUTPUT: FieldNames = FieldNames {
    owner: "an output",
    allowed: &["name", "path"],
};
pub(super) const HANDOVER: FieldNames = FieldNames {
    owner: "`handover`",
    allowed: &["contract", "contracts"],
};
pub(super) const RETRY: FieldNames = FieldNames {
    owner: "`retry`",
    allowed: &[
        "policy",
        "max_attempts",
        "backoff",
        "base_delay",
        "max_delay",
        "on_failure",
        "rework_step",
    ],
};
pub(super) const EDGE: FieldNames = FieldNames {
    owner: "an edge",
    allowed: &["target", "condition"],
};
/// With how many others a word is compared, to find out what was meant.
const MAX_COMPARED_NAMES: usize = 1000;

/// What every contract may have.
pub(super) const CONTRACT: &[&str] = &["type", "on_failure", "must_pass"];
/// The contracts, and what each may have beside.
pub(super) const CONTRACTS: [(&str, &[&str]); 7] = [
    ("json_schema", &["artifact", "schema", "schema_path"]),
    ("test_suite", &["command", "timeout"]),
    ("regex", &["artifact", "pattern", "negated"]),
    ("file_exists", &["path"]),
    ("non_empty_file", &["path"]),
    ("non_empty", &["artifact"]),
    (
        "llm_judge",
        &["artifact", "criteria", "threshold", "model", "provider"],
    ),
];

/// The classes of failures.
pub(super) const CLASSES: [(&str, Class); 6] = [
    ("transient", Class::Transient),
    ("deterministic", Class::Deterministic),
    ("budget_exhausted", Class::BudgetExhausted),
    ("contract_failure", Class::ContractFailure),
    ("test_failure", Class::TestFailure),
    ("canceled", Class::Canceled),
];
/// The agent programs that are known.
pub(super) const AGENTS: [&str; 4] = ["claude", "codex", "opencode", "pi"];
/// What a prompt may be allowed beside reading.
pub(super) const ALLOWED_TO_PROMPTS: [&str; 4] = ["write", "bash", "outside", "mcp"];
/// What an agent may be allowed beside reading.
pub(super) const ALLOWED_TO_AGENTS: [&str; 2] = ["write", "bash"];

/// Names of other systems' files, and what to write instead.
const FOREIGN_FIELDS: [(&str, &str); 31] = [
    (
        "persona",
        "write `system:` with what the model is told first, and `model:`",
    ),
    (
        "memory",
        "write `inputs: {NAME: STEP}`, or `NAME: STEP.ARTIFACT`",
    ),
    (
        "workspace",
        "write `directory:`, a folder within the run's own",
    ),
    ("exec", "write `prompt:` or `command:`"),
    ("script", "write `command:`"),
    ("run", "write `command:`"),
    (
        "type",
        "leave it out: a step is what it has, `prompt`, `command`, `agent`, `gate` or `loop`",
    ),
    ("depends_on", "write `needs:`"),
    ("description", "write a comment, `# …`"),
    ("kind", "leave it out"),
    ("version", "leave it out"),
    ("apiVersion", "leave it out"),
    (
        "metadata",
        "write `name:` and `description:` at the top of the file",
    ),
    (
        "thread",
        "leave it out: the attempts of a step share a session, other steps have their own",
    ),
    (
        "fidelity",
        "leave it out: the attempts of a step share a session, other steps have their own",
    ),
    ("iterate", "write the steps out"),
    ("strategy", "write the steps out"),
    (
        "branch",
        "write `edges: [{target: STEP, condition: context.KEY=VALUE}]`",
    ),
    (
        "aggregate",
        "write a step with an input from each of the others",
    ),
    ("pipeline", "write `command: [outlast, run, FILE]`"),
    ("validation", "write `contracts:`"),
    ("adapter", "write `agent:` or `provider:`"),
    (
        "compaction",
        "leave it out: a conversation that grows too long is shortened by itself",
    ),
    (
        "adapt_prompt",
        "leave it out: what went wrong is always told in the next prompt",
    ),
    (
        "no_escalate",
        "leave it out: a retry never changes the model",
    ),
    (
        "max_retries",
        "write `retry: {max_attempts: …}` in the step, which counts the first attempt",
    ),
    ("permissions", "write `allow: [write, bash]`"),
    ("enabled", "leave it out: what is written counts"),
    ("warn_at", "leave it out"),
    ("currency", "leave it out: costs are in dollars"),
    (
        "source",
        "write `artifact:`, the name of an output of the step",
    ),
];

/// What to say of a name that may not stand there.
pub(super) fn unknown_field(name: &str, whose: &str, known: &[&str]) -> String {
    let advice = FOREIGN_FIELDS.iter().find(|(other, _)| *other == name);
    let rest = match (advice, nearest(name, known.iter().copied())) {
        (Some((_, advice)), _) => format!("; {advice}"),
        (None, Some(near)) => format!("; did you mean `{near}`?"),
        (None, None) => format!("; there are {}", known.join(", ")),
    };
    format!("{whose} has no `{}`{rest}", printable(name))
}

/// What to say of a word that is none of a list.
pub(super) fn not_one_of(word: &str, words: &[&str]) -> String {
    let near = nearest(word, words.iter().copied());
    let near = near.map_or(String::new(), |near| format!("; did you mean `{near}`?"));
    format!(
        "expected one of {}, found `{}`{near}",
        words.join(", "),
        printable(word)
    )
}

/// The word of a list that another one is a misspelling of.
pub(super) fn nearest<'a>(word: &str, words: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if word.len() > super::MAX_SHOWN_BYTES {
        return None;
    }
    let word = word.to_lowercase();
    let most = |other: &str| (other.len() / 3).max(1);
    words
        .into_iter()
        .take(MAX_COMPARED_NAMES)
        // Any letter is a misspelling of any other.
        .filter(|other| word.len() > 2 || other.len() > 2)
        .filter(|other| other.len().abs_diff(word.len()) <= most(other))
        .map(|other| (strsim::damerau_levenshtein(&word, other), other))
        .filter(|(distance, other)| *distance <= most(other))
        .min()
        .map(|(_, other)| other)
}
