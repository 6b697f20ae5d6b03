//! An agent without a mind: the prompt says which tools it calls.
//!
//! Each line `call NAME {arguments}` of the prompt is a step; a line `and NAME {arguments}` right after it is one more
//! call of the same step. Invariant: what it does follows from the request alone; nothing is remembered between two.

mod summary;

use super::{greeting, words};
use crate::conversation::Conversation;
use crate::facts::Facts;
use outlast_dialect::Delta;
use outlast_kernel::event::ToolCall;
use serde_json::{Map, Value};
use std::hash::{DefaultHasher, Hash, Hasher};

/// The most characters of an output that are said back.
const LONGEST_OUTPUT: usize = 200;

/// A tool's name and its arguments, as the prompt has them.
type Call<'a> = (&'a str, &'a str);

/// What it says next: the calls of the next step, or what came of all.
pub(super) fn step(facts: &Facts) -> Vec<Delta> {
    let conversation = &facts.conversation;
    if summary::is_asked_for(&facts.system) {
        return words(&summary::of_transcript(&conversation.prompt));
    }
    let steps = steps(&conversation.prompt);
    if steps.is_empty() && summary::find(&conversation.prompt).is_none() {
        return words(&greeting(facts));
    }
    match steps.get(conversation.answers) {
        Some(calls) => calling(calls, conversation),
        None => words(&done(steps.len(), &conversation.outputs)),
    }
}

fn calling(calls: &[Call<'_>], conversation: &Conversation) -> Vec<Delta> {
    let (turn, step) = (turn(conversation), conversation.answers);
    let mut deltas = words(&format!("Step {}.", step + 1));
    deltas.extend(calls.iter().enumerate().map(|(place, (name, arguments))| {
        Delta::ToolCall(ToolCall {
            // The turn's number makes it unique in the whole conversation.
            id: format!("call_{turn}_{step}_{place}"),
            name: (*name).to_owned(),
            arguments: (*arguments).to_owned(),
        })
    }));
    deltas
}

/// The number of the turn. After a summary it would begin anew, and ids would come twice.
fn turn(conversation: &Conversation) -> String {
    if summary::find(&conversation.prompt).is_none() {
        return conversation.prompts.to_string();
    }
    let mut hasher = DefaultHasher::new();
    conversation.prompt.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

fn done(steps: usize, outputs: &[String]) -> String {
    let outputs = outputs.iter();
    let cut = outputs.map(|output| output.chars().take(LONGEST_OUTPUT).collect::<String>());
    let outputs = cut.collect::<Vec<_>>().join(" | ");
    format!("Done after {steps} steps. {outputs}")
}

/// The steps that a prompt asks for, each with its calls. Of one that holds a summary they are those that it tells.
fn steps(prompt: &str) -> Vec<Vec<Call<'_>>> {
    let mut steps: Vec<Vec<Call<'_>>> = Vec::new();
    let mut in_step = false;
    let lines = summary::find(prompt).unwrap_or_else(|| prompt.lines().collect());
    for line in lines.into_iter().map(str::trim) {
        let first = call(line, "call ");
        let further = call(line, "and ").filter(|_| in_step);
        in_step = first.is_some() || further.is_some();
        match (first, further, steps.last_mut()) {
            (Some(call), ..) => steps.push(vec![call]),
            (None, Some(call), Some(step)) => step.push(call),
            _ => {}
        }
    }
    steps
}

/// The call on a line that begins with that word; arguments that are no object make it a line like any other.
fn call<'a>(line: &'a str, word: &str) -> Option<Call<'a>> {
    let call = line.strip_prefix(word)?.trim_start();
    let (name, arguments) = match call.split_once(char::is_whitespace) {
        Some((name, arguments)) => (name, arguments.trim_start()),
        None => (call, "{}"),
    };
    let is_object = serde_json::from_str::<Map<String, Value>>(arguments).is_ok();
    (!name.is_empty() && is_object).then_some((name, arguments))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_prompt_are_steps() {
        let look = ("look", "{}");
        let table: [(&str, Vec<Vec<Call<'_>>>); 9] = [
            ("Please call me back", vec![]),
            ("call look {}", vec![vec![look]]),
            ("  call look", vec![vec![look]]),
            ("call look {}\ncall look {}", vec![vec![look], vec![look]]),
            ("call look {}\nand look {}", vec![vec![look, look]]),
            ("and look {}\ncall look {}", vec![vec![look]]),
            ("call look {}\nthen\nand look {}", vec![vec![look]]),
            ("call look {\"broken\":", vec![]),
            (
                "Do this:\r\ncall run {\"command\": \"echo a b\"}\r\n",
                vec![vec![("run", "{\"command\": \"echo a b\"}")]],
            ),
        ];
        for (prompt, expected) in table {
            assert_eq!(steps(prompt), expected, "{prompt}");
        }
    }

    #[test]
    fn long_outputs_are_cut_between_characters() {
        let outputs = ["é".repeat(300), "short".to_owned()];
        let expected = format!("Done after 2 steps. {} | short", "é".repeat(200));
        assert_eq!(done(2, &outputs), expected);
    }
}
