//! Messages about unknown words and fields, with the word to write instead.

use super::printable;

/// The agent programs that are known.
pub(super) const AGENTS: [&str; 4] = ["claude", "codex", "opencode", "pi"];
/// Permissions of a prompt beside reading.
pub(super) const ALLOWED_TO_PROMPTS: [&str; 4] = ["write", "bash", "outside", "mcp"];
/// Permissions of an agent beside reading.
pub(super) const ALLOWED_TO_AGENTS: [&str; 2] = ["write", "bash"];

/// Maximum number of words to compare an unknown word with.
const MAX_COMPARED_NAMES: usize = 1000;

/// Returns the replacement for a field that the files of other systems have.
fn advice(foreign: &str) -> Option<&'static str> {
    Some(match foreign {
        "exec" => "write `prompt:` or `command:`",
        "script" | "run" => "write `command:`",
        "pipeline" => "write `command: [outlast, run, FILE]`",
        "adapter" => "write `agent:` or `provider:`",
        "persona" => "write `system:` with what the model is told first, and `model:`",
        "memory" => "write `inputs: {NAME: STEP}`, or `NAME: STEP.ARTIFACT`",
        "aggregate" => "write a step with an input from each of the others",
        "source" => "write `artifact:`, the name of an output of the step",
        "workspace" => "write `directory:`, a folder within the run's own",
        "depends_on" => "write `needs:`",
        "branch" => "write `edges: [{target: STEP, condition: context.KEY=VALUE}]`",
        "iterate" | "strategy" => "write the steps out",
        "validation" => "write `contracts:`",
        "permissions" => "write `allow: [write, bash]`",
        "max_retries" => {
            "write `retry: {max_attempts: …}` in the step, which counts the first attempt"
        }
        "description" => "write a comment, `# …`",
        "metadata" => "write `name:` and `description:` at the top of the file",
        "type" => {
            "leave it out: a step is what it has, `prompt`, `command`, `agent`, `gate` or `loop`"
        }
        "thread" | "fidelity" => {
            "leave it out: the attempts of a step share a session, other steps have their own"
        }
        "compaction" => "leave it out: a conversation that grows too long is shortened by itself",
        "adapt_prompt" => "leave it out: what went wrong is always told in the next prompt",
        "no_escalate" => "leave it out: a retry never changes the model",
        "enabled" => "leave it out: what is written counts",
        "currency" => "leave it out: costs are in dollars",
        "kind" | "version" | "apiVersion" | "warn_at" => "leave it out",
        _ => return None,
    })
}

/// Returns the message about an unknown field.
pub(super) fn unknown_field(name: &str, known: &[&str]) -> String {
    let rest = match (advice(name), nearest(name, known.iter().copied())) {
        (Some(advice), _) => advice.to_owned(),
        (None, Some(near)) => format!("did you mean `{near}`?"),
        (None, None) => format!("there are {}", known.join(", ")),
    };
    format!("unknown field `{}`; {rest}", printable(name))
}

/// Returns the message about a word that is not in the list.
pub(super) fn not_one_of(word: &str, words: &[&str]) -> String {
    format!(
        "expected one of {}, found `{}`{}",
        words.join(", "),
        printable(word),
        did_you_mean(word, words.iter().copied())
    )
}

/// Returns the message about an unknown name.
pub(super) fn unknown_name<'a>(
    what: &str,
    name: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> String {
    let near = did_you_mean(name, known);
    format!("there is no {what} `{}`{near}", printable(name))
}

fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(word, known).map_or_else(String::new, |near| format!("; did you mean `{near}`?"))
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
