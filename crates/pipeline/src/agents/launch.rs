//! The command lines of the known agents: data, one row for each.
//!
//! Each agent runs once and without a terminal, reads its prompt from stdin, prints lines of JSON, and never asks for
//! permission: actions that the step does not allow are refused.

use super::Format;
use crate::definition::Agent;

/// Tools that only read, in every agent that uses these names.
const CLAUDE_READ_TOOLS: [&str; 3] = ["Read", "Glob", "Grep"];
const CLAUDE_WRITE_TOOLS: [&str; 3] = ["Edit", "Write", "NotebookEdit"];

/// Returns the output format, the program with its arguments, and the environment variables.
pub(super) fn launch_command(agent: &Agent) -> (Format, Vec<String>, Vec<(String, String)>) {
    let may = |what: &str| agent.allow.iter().any(|allowed| allowed == what);
    let (write, bash) = (may("write"), may("bash"));
    let no_variables = Vec::new();
    let (format, mut arguments, env) = match agent.name.as_str() {
        "claude" => (Format::Claude, claude(write, bash), no_variables),
        "codex" => (Format::Codex, codex(write, bash), no_variables),
        "opencode" => (
            Format::Opencode,
            words(&["run", "--format", "json"]),
            opencode(write, bash),
        ),
        "pi" => (Format::Pi, pi(write, bash), no_variables),
        _ => (Format::Plain, Vec::new(), no_variables),
    };
    if let Some(model) = &agent.model {
        arguments.extend(["--model".to_owned(), model.clone()]);
    }
    arguments.insert(0, agent.name.clone());
    (format, arguments, env)
}

/// Denied tools are not even offered, whatever the agent's own settings allow.
fn claude(write: bool, bash: bool) -> Vec<String> {
    let shell = ["Bash"];
    let (mut allowed, mut denied) = (CLAUDE_READ_TOOLS.to_vec(), Vec::new());
    if write { &mut allowed } else { &mut denied }.extend(CLAUDE_WRITE_TOOLS);
    if bash { &mut allowed } else { &mut denied }.extend(shell);
    let mut arguments = words(&["-p", "--output-format", "stream-json", "--verbose"]);
    arguments.extend(words(&["--permission-mode", "dontAsk"]));
    arguments.extend(["--allowedTools".to_owned(), allowed.join(",")]);
    if !denied.is_empty() {
        arguments.extend(["--disallowedTools".to_owned(), denied.join(",")]);
    }
    arguments
}

/// Codex also reads by commands, so commands always run: the sandbox limits their writes and their network.
fn codex(write: bool, bash: bool) -> Vec<String> {
    let mut arguments = words(&[
        "exec",
        "--json",
        "--color",
        "never",
        "--skip-git-repo-check",
    ]);
    let sandbox = match write || bash {
        true => "workspace-write",
        false => "read-only",
    };
    arguments.extend(words(&["--sandbox", sandbox]));
    if bash {
        arguments.extend(words(&[
            "-c",
            "sandbox_workspace_write.network_access=true",
        ]));
    }
    arguments
}

fn opencode(write: bool, bash: bool) -> Vec<(String, String)> {
    let word = |may: bool| if may { "allow" } else { "deny" };
    let permission = serde_json::json!({
        "*": "deny", "read": "allow", "grep": "allow", "glob": "allow", "list": "allow",
        "edit": word(write), "bash": word(bash),
    });
    vec![("OPENCODE_PERMISSION".to_owned(), permission.to_string())]
}

fn pi(write: bool, bash: bool) -> Vec<String> {
    let mut tools = vec!["read", "grep", "find", "ls"];
    if write {
        tools.extend(["edit", "write"]);
    }
    if bash {
        tools.push("bash");
    }
    let mut arguments = words(&["-p", "--mode", "json", "--no-session"]);
    arguments.extend(["--tools".to_owned(), tools.join(",")]);
    arguments
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}
