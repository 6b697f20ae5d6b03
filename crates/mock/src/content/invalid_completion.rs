//! Completions that arrive intact, but that an agent cannot use.

use super::{proof, reasoning_deltas, tool_call_deltas};
use crate::request_facts::RequestFacts;
use outlast_dialect::{Delta, Dialect};
use outlast_kernel::event::ToolCall;

/// The billed output tokens of a completion without visible content.
pub(super) const BILLED_OUTPUT_TOKENS: u64 = 50;
/// A tool call as some models write it where their template expects none.
pub(super) const CALL_AS_TEXT: &str =
    r#"<tool_call>{"name": "read", "arguments": {"path": "README.md"}}</tool_call>"#;
const CUT_ARGUMENTS: &str = r#"{"path": "src/ma"#;
const BLANK_ARGUMENT_BYTES: usize = 100_000;
const REPEATED_PARAGRAPH: &str = "Wait, let me look at this again from the start.\n\n";
const REPETITIONS: usize = 400;

/// Returns reasoning that repeats the same paragraph.
pub(super) fn reasoning_loop(dialect: Dialect) -> Vec<Delta> {
    reasoning_deltas(&REPEATED_PARAGRAPH.repeat(REPETITIONS), proof(dialect))
}

/// Returns a complete call, and one whose arguments are cut off.
pub(super) fn truncated_call(facts: &RequestFacts) -> Vec<Delta> {
    with_last_arguments(tool_call_deltas(facts, 2), CUT_ARGUMENTS)
}

/// Returns a call whose arguments never begin.
pub(super) fn blank_arguments_call(facts: &RequestFacts) -> Vec<Delta> {
    with_last_arguments(
        tool_call_deltas(facts, 1),
        &" ".repeat(BLANK_ARGUMENT_BYTES),
    )
}

/// Returns a call without a name.
pub(super) fn nameless_call() -> Vec<Delta> {
    vec![Delta::ToolCall(ToolCall {
        id: String::new(),
        name: String::new(),
        arguments: "{}".to_owned(),
    })]
}

fn with_last_arguments(mut deltas: Vec<Delta>, arguments: &str) -> Vec<Delta> {
    if let Some(Delta::ToolCall(call)) = deltas.last_mut() {
        arguments.clone_into(&mut call.arguments);
    }
    deltas
}
