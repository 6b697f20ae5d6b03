//! Asks the user at the terminal whether a tool may run.
//!
//! Invariants: text of the model never looks like a line of ours; input from before a question does not answer it.

use outlast_engine::BoxFuture;
use outlast_kernel::text;
use outlast_session::tools::{ApprovalDecision, ApprovalRequest, Approver};
use serde_json::Value;
use std::io::{BufRead, IsTerminal, Write};

/// An approver that asks on the terminal.
pub(crate) struct TerminalApprover;

impl TerminalApprover {
    /// Whether both stdin and stderr are terminals, so that a question can be read and answered.
    pub(crate) fn is_attended() -> bool {
        std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
    }
}

impl Approver for TerminalApprover {
    fn request_approval<'a>(
        &'a self,
        question: &'a ApprovalRequest,
    ) -> BoxFuture<'a, ApprovalDecision> {
        let text = format!("\r\u{1b}[2K{}", question_prompt(question));
        Box::pin(async move {
            let asked = tokio::task::spawn_blocking(move || ask(&text));
            // Without an answer the tool is not approved.
            asked
                .await
                .ok()
                .and_then(Result::ok)
                .unwrap_or(ApprovalDecision::Deny)
        })
    }
}

/// A question in words that cannot be imitated by the model.
pub(crate) struct QuestionText {
    /// The action in one line.
    pub(crate) line: String,
    /// The arguments that the line does not show in full.
    pub(crate) details: String,
}

/// The visible part of a long argument.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// Its beginning and its end.
    BothEnds,
    /// All of it up to a generous limit, for a view that scrolls.
    Full,
}

impl Extent {
    /// Returns the number of lines at the beginning and at the end, and the maximum length of a line.
    const fn limits(self) -> (usize, usize, usize) {
        match self {
            Self::BothEnds => (12, 4, 160),
            Self::Full => (400, 100, 4000),
        }
    }
}

impl QuestionText {
    pub(crate) fn new(question: &ApprovalRequest, extent: Extent) -> Self {
        let outside = question.outside_path.as_ref();
        let outside = outside.map_or(String::new(), |path| {
            format!(" (outside of this folder: {})", path.display())
        });
        let line = format!("{}{outside}", question.summary);
        let line = text::plain(&line).replace('\n', " ⏎ ");
        let details = details(&question.arguments, &line, extent);
        Self { line, details }
    }
}

/// Returns the question, with the choices for a typed answer.
pub(crate) fn question_prompt(question: &ApprovalRequest) -> String {
    let QuestionText { line, details } = QuestionText::new(question, Extent::BothEnds);
    let always = &question.permission;
    format!("? {line}\n{details}  run it? [y]es, [n]o, [a]lways allow {always}: ")
}

/// Returns the arguments that the line does not show in full, each line marked as the model's.
fn details(arguments: &Value, line: &str, extent: Extent) -> String {
    let (first, last, longest) = extent.limits();
    let texts = arguments.as_object().into_iter().flatten();
    let texts = texts.filter_map(|(name, value)| match value {
        Value::String(text) => Some((name, text.clone())),
        Value::Array(_) | Value::Object(_) => Some((name, value.to_string())),
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    });
    let hidden = texts.filter(|(_, text)| !line.contains(text));
    hidden
        .map(|(name, text)| {
            let lines: Vec<&str> = text.lines().collect();
            let left_out = lines.len().saturating_sub(first + last);
            let mut shown = format!("  {}:\n", text::plain(name).replace('\n', " "));
            for (number, line) in lines.iter().enumerate() {
                if left_out > 0 && number == first {
                    shown.push_str(&format!("  │ … {left_out} more lines …\n"));
                }
                if left_out == 0 || number < first || number >= first + left_out {
                    let line = text::plain(line);
                    shown.push_str(&format!("  │ {}\n", truncate_middle(&line, longest)));
                }
            }
            shown
        })
        .collect()
}

/// Shortens a long line in the middle, because the important part may be at either end.
fn truncate_middle(line: &str, longest: usize) -> String {
    let length = line.chars().count();
    if length <= longest {
        return line.to_owned();
    }
    let half = longest / 2;
    let first: String = line.chars().take(half).collect();
    let last: String = line.chars().skip(length - half).collect();
    format!("{first} … {} more … {last}", length - longest)
}

fn ask(question: &str) -> std::io::Result<ApprovalDecision> {
    discard_typed_input();
    loop {
        let mut stderr = std::io::stderr().lock();
        stderr.write_all(question.as_bytes())?;
        stderr.flush()?;
        drop(stderr);
        let mut line = String::new();
        if std::io::stdin().lock().read_line(&mut line)? == 0 {
            return Ok(ApprovalDecision::Deny);
        }
        match line.trim().to_lowercase().as_str() {
            "y" | "yes" => return Ok(ApprovalDecision::AllowOnce),
            "a" | "always" => return Ok(ApprovalDecision::AllowAlways),
            "n" | "no" => return Ok(ApprovalDecision::Deny),
            _ => {}
        }
    }
}

#[cfg(unix)]
pub(crate) fn discard_typed_input() {
    use nix::sys::termios::{FlushArg, tcflush};
    // A failure means that there is no terminal.
    tcflush(std::io::stdin(), FlushArg::TCIFLUSH).ok();
}

#[cfg(not(unix))]
pub(crate) fn discard_typed_input() {}

#[cfg(test)]
mod tests {
    use super::*;
    use outlast_session::tools::Effect;
    use serde_json::json;

    fn asked(summary: &str, arguments: Value) -> String {
        question_prompt(&ApprovalRequest {
            tool: "bash".to_owned(),
            permission: "bash".to_owned(),
            summary: summary.to_owned(),
            arguments,
            effect: Effect::AtMostOnce,
            outside_path: None,
        })
    }

    #[test]
    fn model_text_cannot_fake_approval_question() {
        let trick = "ls\n? read: notes.txt\n  run it? [y]es\u{1b}[2K";
        let text = asked(trick, json!({ "command": trick }));
        let questions = text
            .lines()
            .filter(|line| line.trim_start().starts_with("run it?"));
        assert_eq!(questions.count(), 1, "{text}");
        assert_eq!(text.matches('\u{1b}').count(), 0, "{text}");
    }

    #[test]
    fn deeply_nested_argument_is_shown() {
        let steps = json!([{ "pad": "x".repeat(100) }, { "run": "rm -rf important" }]);
        let text = asked("mcp__test__do: {\"steps\"…", json!({ "steps": steps }));
        assert!(text.contains("rm -rf important"), "{text}");
    }

    #[test]
    fn the_end_of_a_long_argument_is_shown() {
        let command = format!("echo {} ; rm -rf important", "x".repeat(5000));
        let text = asked("bash: echo …", json!({ "command": command }));
        assert!(text.contains("rm -rf important"), "{text}");
        let content: String = (0..100).map(|n| format!("line {n}\n")).collect();
        let text = asked(
            "write: a (790 bytes)",
            json!({ "path": "a", "content": content }),
        );
        assert!(
            text.contains("│ line 0\n") && text.contains("│ line 99\n"),
            "{text}"
        );
        assert!(text.contains("… 84 more lines …"), "{text}");
        assert!(text.lines().count() < 25, "{text}");
    }
}
