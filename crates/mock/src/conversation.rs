//! What was said before a request, as far as a scripted agent goes by it.
//!
//! Invariant: it follows from the request alone, so that it is the same after a restart of either side.

use serde_json::Value;

/// So begins what a user says to have an answer that broke off gone on with.
const CUT_OFF_PREFIX: &str = "Your last answer was cut off";

/// A conversation, seen from its last prompt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Conversation {
    /// How often the user said something; results of tools alone are nothing said.
    pub(crate) prompts: usize,
    /// What the user said last.
    pub(crate) prompt: String,
    /// How often the model has answered since, in full.
    pub(crate) answers: usize,
    /// What tools have said since, in order.
    pub(crate) outputs: Vec<String>,
    /// What the model has already said of the answer that it is to go on with, in the parts in which it was sent.
    pub(crate) begun: Vec<String>,
    /// Whether the last words are the model's own.
    pub(crate) is_prefilled: bool,
}

/// One step of a conversation.
enum Entry {
    Prompt(String),
    /// An answer or a part of one: its text, and whether it calls a tool.
    Answer(String, bool),
    Output(String),
}

impl Conversation {
    /// Reads the messages or items of any dialect; what is strange among them is left out.
    pub(crate) fn read(messages: &Value) -> Self {
        let mut conversation = Self::default();
        // An answer that may go on: it may be several items, and it may have been cut off.
        let mut answering = false;
        let mut called = false;
        for said in everything_said(messages) {
            conversation.is_prefilled = matches!(said, Entry::Answer(..));
            match said {
                // It asks for nothing new; the answer before it goes on.
                Entry::Prompt(prompt) if is_cut_off_notice(&prompt) && conversation.prompts > 0 => {
                    continue;
                }
                Entry::Prompt(prompt) => {
                    conversation = Self {
                        prompts: conversation.prompts + 1,
                        prompt,
                        ..Self::default()
                    }
                }
                Entry::Answer(text, calls) => {
                    if !std::mem::replace(&mut answering, true) {
                        conversation.answers += 1;
                        called = false;
                    }
                    called |= calls;
                    conversation.begun.push(text);
                    continue;
                }
                Entry::Output(output) => conversation.outputs.push(output),
            }
            answering = false;
            conversation.begun.clear();
        }
        conversation.go_on(answering && !called);
        conversation
    }

    /// The last answer is not over, or it is one like any other.
    fn go_on(&mut self, is_unfinished: bool) {
        if is_unfinished {
            self.answers = self.answers.saturating_sub(1);
            self.begun.retain(|text| !text.trim().is_empty());
        } else {
            self.begun.clear();
        }
    }
}

/// Whether a user says only that an answer was cut off.
pub(crate) fn is_cut_off_notice(prompt: &str) -> bool {
    prompt.starts_with(CUT_OFF_PREFIX)
}

fn everything_said(messages: &Value) -> Vec<Entry> {
    match messages {
        // A text in place of items is a prompt.
        Value::String(prompt) => vec![Entry::Prompt(prompt.clone())],
        messages => array(messages).iter().flat_map(said).collect(),
    }
}

fn said(message: &Value) -> Vec<Entry> {
    match (message["role"].as_str(), message["type"].as_str()) {
        (Some("user"), _) => user_entries(&message["content"]),
        (Some("assistant"), _) => vec![answer(message)],
        (None, Some("function_call")) => vec![Entry::Answer(String::new(), true)],
        (None, Some("reasoning")) => vec![Entry::Answer(String::new(), false)],
        (Some("tool"), _) => vec![Entry::Output(text(&message["content"]))],
        (None, Some("function_call_output")) => vec![Entry::Output(text(&message["output"]))],
        _ => Vec::new(),
    }
}

/// What the model said, to the letter: it may be in the middle of a line.
fn answer(message: &Value) -> Entry {
    let content = &message["content"];
    let is_call = |part: &Value| part["type"] == "tool_use";
    let calls = !array(&message["tool_calls"]).is_empty() || array(content).iter().any(is_call);
    let parts = array(content).iter();
    let text = match content {
        Value::String(text) => text.clone(),
        _ => parts.filter_map(|part| part["text"].as_str()).collect(),
    };
    Entry::Answer(text, calls)
}

/// Results first: what stands beside them is about what follows.
fn user_entries(content: &Value) -> Vec<Entry> {
    let results = array(content)
        .iter()
        .filter(|part| part["type"] == "tool_result");
    let mut said: Vec<Entry> = results
        .map(|part| Entry::Output(text(&part["content"])))
        .collect();
    let prompt = text(content);
    if !prompt.is_empty() {
        said.push(Entry::Prompt(prompt));
    }
    said
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// The text of a content: itself, or its parts that are text, each on lines of its own.
pub(crate) fn text(content: &Value) -> String {
    if let Value::String(text) = content {
        return text.clone();
    }
    let parts = array(content).iter();
    let texts = parts.filter_map(|part| part["text"].as_str());
    let texts: Vec<&str> = texts.filter(|text| !text.is_empty()).collect();
    texts.join("\n")
}

#[cfg(test)]
#[path = "conversation_tests.rs"]
mod tests;
