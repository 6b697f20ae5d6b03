//! Answers that nothing is wrong with on the way, and that an agent still cannot go on with.

use super::{calls, proof, thought};
use crate::request_facts::RequestFacts;
use outlast_dialect::{Delta, Dialect};
use outlast_kernel::event::ToolCall;

/// What an answer costs in which nothing can be seen.
pub(super) const BILLED_OUTPUT_TOKENS: u64 = 50;
/// A call that some models write where their template expects none.
pub(super) const CALL_AS_TEXT: &str =
    r#"<tool_call>{"name": "read", "arguments": {"path": "README.md"}}</tool_call>"#;
const CUT_ARGUMENTS: &str = r#"{"path": "src/ma"#;
const BLANK_ARGUMENT_BYTES: usize = 100_000;
const REPEATED_PARAGRAPH: &str = "Wait, let me look at this again from the start.\n\n";
const REPETITIONS: usize = 400;

/// The same thought again and again.
pub(super) fn reasoning_loop(dialect: Dialect) -> Vec<Delta> {
    thought(&REPEATED_PARAGRAPH.repeat(REPETITIONS), proof(dialect))
}

/// A whole call, and one whose arguments break off.
pub(super) fn cut_call(facts: &RequestFacts) -> Vec<Delta> {
    with_last_arguments(calls(facts, 2), CUT_ARGUMENTS)
}

/// A call whose arguments never begin.
pub(super) fn blank_arguments_call(facts: &RequestFacts) -> Vec<Delta> {
    with_last_arguments(calls(facts, 1), &" ".repeat(BLANK_ARGUMENT_BYTES))
}

/// A call of nothing.
pub(super) fn nameless() -> Vec<Delta> {
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
