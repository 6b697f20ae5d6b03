//! A scripted agent: the prompt defines the tool calls and the final text.
//!
//! Each line `call NAME {arguments}` of the prompt is a step; a line `and NAME {arguments}` right after it is another
//! call of the same step; the lines `say TEXT` are the final text. A script in the system prompt replaces the prompt.
//! Invariant: the behaviour depends on the request alone; no state is kept between two requests.

mod instructions;
mod judge;
mod summary;

use super::{greeting, text_deltas};
use crate::conversation::Conversation;
use crate::request_facts::RequestFacts;
use instructions::{Call, Instructions};
use outlast_dialect::Delta;
use outlast_kernel::event::ToolCall;
use std::hash::{DefaultHasher, Hash, Hasher};

/// The maximum number of characters of an output that are echoed.
const MAX_OUTPUT_CHARS: usize = 200;

/// Returns the next completion: the calls of the next step, or the report of the results.
pub(super) fn next_step(facts: &RequestFacts) -> Vec<Delta> {
    let conversation = &facts.conversation;
    if summary::is_requested(&facts.system) {
        return text_deltas(&summary::summarize(&conversation.prompt));
    }
    if let Some(verdict) = judge::verdict(&conversation.prompt) {
        return text_deltas(&verdict);
    }
    let is_summed_up = summary::find_steps(&conversation.prompt).is_some();
    let script = instructions::from_system_text(&facts.system, conversation.prompts)
        .filter(|_| !is_summed_up);
    let part = script.unwrap_or_else(|| requested_instructions(&conversation.prompt));
    if part.is_empty() && !is_summed_up {
        return text_deltas(&greeting(facts));
    }
    match (part.steps.get(conversation.answers), part.final_text) {
        (Some(calls), _) => call_deltas(calls, conversation),
        (None, Some(said)) => text_deltas(&said),
        (None, None) => text_deltas(&final_text(part.steps.len(), &conversation.outputs)),
    }
}

/// Parses the instructions of a prompt. If the prompt contains a summary, they are those of the summary.
fn requested_instructions(prompt: &str) -> Instructions<'_> {
    let lines = summary::find_steps(prompt).unwrap_or_else(|| prompt.lines().collect());
    Instructions::parse(lines.into_iter())
}

fn call_deltas(calls: &[Call<'_>], conversation: &Conversation) -> Vec<Delta> {
    let (turn, step) = (turn_id(conversation), conversation.answers);
    let mut deltas = text_deltas(&format!("Step {}.", step + 1));
    deltas.extend(calls.iter().enumerate().map(|(place, (name, arguments))| {
        Delta::ToolCall(ToolCall {
            // The turn's number makes the id unique in the whole conversation.
            id: format!("call_{turn}_{step}_{place}"),
            name: (*name).to_owned(),
            arguments: (*arguments).to_owned(),
        })
    }));
    deltas
}

/// Returns the id of the turn: its number, or a hash after a summary, as numbers would start again and ids repeat.
fn turn_id(conversation: &Conversation) -> String {
    if summary::find_steps(&conversation.prompt).is_none() {
        return conversation.prompts.to_string();
    }
    let mut hasher = DefaultHasher::new();
    conversation.prompt.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

fn final_text(steps: usize, outputs: &[String]) -> String {
    let outputs = outputs.iter();
    let cut = outputs.map(|output| output.chars().take(MAX_OUTPUT_CHARS).collect::<String>());
    let outputs = cut.collect::<Vec<_>>().join(" | ");
    format!("Done after {steps} steps. {outputs}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_outputs_are_cut_between_characters() {
        let outputs = ["é".repeat(300), "short".to_owned()];
        let expected = format!("Done after 2 steps. {} | short", "é".repeat(200));
        assert_eq!(final_text(2, &outputs), expected);
    }
}
