//! Classifies an agent's tools: half an hour of reading is activity, but no progress.

use crate::failure::command_line::{SimpleCommand, programs};
use serde_json::Value;

/// The effect of a tool use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ToolEffect {
    /// It only reads.
    ReadOnly,
    /// It may change something.
    MayChange,
}

/// Tools of all agents that only read, in lower case.
const READ_ONLY_TOOLS: [&str; 25] = [
    "read",
    "glob",
    "grep",
    "ls",
    "list",
    "find",
    "search",
    "codesearch",
    "notebookread",
    "webfetch",
    "websearch",
    "web_search",
    "toolsearch",
    "todoread",
    "tasklist",
    "taskget",
    "taskoutput",
    "bashoutput",
    "listagents",
    "listmcpresourcestool",
    "readmcpresourcetool",
    "view_image",
    "lsp",
    "diagnostics",
    "exitplanmode",
];
/// Tools that run commands.
const COMMAND_TOOLS: [&str; 5] = [
    "bash",
    "shell",
    "exec_command",
    "command_execution",
    "powershell",
];
/// Programs that only read.
const READ_ONLY_PROGRAMS: [&str; 31] = [
    "cat", "head", "tail", "less", "more", "nl", "wc", "ls", "tree", "pwd", "stat", "file", "du",
    "grep", "egrep", "fgrep", "rg", "ag", "ack", "awk", "sort", "uniq", "cut", "diff", "which",
    "jq", "cd", "echo", "printf", "true", "test",
];
const READ_ONLY_GIT_COMMANDS: [&str; 9] = [
    "log",
    "show",
    "diff",
    "status",
    "blame",
    "grep",
    "ls-files",
    "rev-parse",
    "shortlog",
];

/// Returns the effect of a tool use.
pub(super) fn tool_effect(tool: &str, input: &Value) -> ToolEffect {
    let tool = tool.to_lowercase();
    let reads = match COMMAND_TOOLS.contains(&tool.as_str()) {
        true => command(input).is_some_and(|line| is_read_only_line(&line, 2)),
        false => READ_ONLY_TOOLS.contains(&tool.as_str()),
    };
    if reads {
        ToolEffect::ReadOnly
    } else {
        ToolEffect::MayChange
    }
}

/// Describes a tool use: the tool and its target.
pub(super) fn summary(tool: &str, input: &Value) -> String {
    const TELLING: [&str; 8] = [
        "file_path",
        "filePath",
        "path",
        "pattern",
        "query",
        "url",
        "description",
        "prompt",
    ];
    let named = || TELLING.iter().find_map(|name| input[*name].as_str());
    let what = command(input).or_else(|| named().map(str::to_owned));
    format!("{tool} {}", what.unwrap_or_default())
}

fn command(input: &Value) -> Option<String> {
    let line = ["command", "cmd"]
        .iter()
        .find_map(|name| match &input[*name] {
            Value::Array(words) => {
                let words: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
                // A shell's command line is the last of the words.
                words
                    .last()
                    .map(|last| match words.len() > 2 && words[1].starts_with('-') {
                        true => (*last).to_owned(),
                        false => words.join(" "),
                    })
            }
            line => line.as_str().map(str::to_owned),
        });
    line.or_else(|| input.as_str().map(str::to_owned))
}

/// Returns whether a command line only reads; nested shells are checked up to the given depth.
fn is_read_only_line(line: &str, depth: usize) -> bool {
    let programs = programs(line);
    !programs.is_empty()
        && programs
            .iter()
            .all(|simple| is_read_only_command(simple, depth))
}

fn is_read_only_command(simple: &SimpleCommand, depth: usize) -> bool {
    const HARMLESS: [&str; 4] = ["2>&1", "2>/dev/null", ">/dev/null", "1>&2"];
    let arguments = simple.arguments();
    let is_in_place = |argument: &String| argument.starts_with("-i") || argument == "--in-place";
    let writes =
        |argument: &String| argument.contains('>') && !HARMLESS.contains(&argument.as_str());
    if arguments.iter().any(writes) {
        return false;
    }
    match simple.program() {
        "bash" | "sh" | "zsh" => {
            let line = arguments.last().filter(|_| arguments.len() > 1);
            depth > 0 && line.is_some_and(|line| is_read_only_line(line, depth - 1))
        }
        "sed" => !arguments.iter().any(is_in_place),
        "find" | "fd" => !arguments
            .iter()
            .any(|word| word.starts_with("-exec") || word == "-delete"),
        "git" => arguments
            .iter()
            .any(|word| READ_ONLY_GIT_COMMANDS.contains(&word.as_str())),
        program => READ_ONLY_PROGRAMS.contains(&program),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn read_only_tool_use_is_recognized_for_any_tool() {
        let table = [
            ("Read", json!({"file_path": "a"})),
            ("glob", json!({})),
            ("WebSearch", json!({})),
            ("Bash", json!({"command": "cat a | head -n 3"})),
            (
                "bash",
                json!({"command": "cd x && rg foo 2>/dev/null; sed -n 1,5p b"}),
            ),
            (
                "command_execution",
                json!("/bin/bash -lc 'git log --oneline'"),
            ),
            ("shell", json!({"command": ["bash", "-lc", "ls -la"]})),
            ("exec_command", json!({"cmd": "find . -name '*.rs'"})),
        ];
        for (tool, input) in table {
            assert_eq!(
                tool_effect(tool, &input),
                ToolEffect::ReadOnly,
                "{tool} {input}"
            );
        }
    }

    #[test]
    fn tool_use_that_may_change_something_is_not_read_only() {
        let table = [
            ("Write", json!({"file_path": "a"})),
            ("mcp__x__y", json!({})),
            ("Bash", json!({"command": "cat a > b"})),
            ("Bash", json!({"command": "cargo test"})),
            ("Bash", json!({"command": "sed -i s/a/b/ c"})),
            ("bash", json!({"command": "git commit -m x"})),
            ("command_execution", json!("/bin/bash -lc 'cat a; rm b'")),
            ("shell", json!({"command": ["rm", "a"]})),
            ("Bash", json!({})),
        ];
        for (tool, input) in table {
            assert_eq!(
                tool_effect(tool, &input),
                ToolEffect::MayChange,
                "{tool} {input}"
            );
        }
    }

    #[test]
    fn tool_summary_includes_its_target() {
        assert_eq!(summary("Read", &json!({"file_path": "a.rs"})), "Read a.rs");
        assert_eq!(
            summary("shell", &json!({"command": ["ls", "a"]})),
            "shell ls a"
        );
        assert_eq!(summary("x", &json!(null)), "x ");
    }
}
