//! The conversation of a request, as far as a scripted agent depends on it.
//!
//! Invariant: it is derived from the request alone, so that it is the same after a restart of either side.

use serde_json::Value;

/// The beginning of the user message that asks the model to continue an interrupted completion.
const CUT_OFF_PREFIX: &str = "Your last answer was cut off";

/// A conversation, seen from its last prompt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Conversation {
    /// The number of user prompts; a message of tool results only is none.
    pub(crate) prompts: usize,
    /// The last prompt.
    pub(crate) prompt: String,
    /// The number of complete completions since the last prompt.
    pub(crate) answers: usize,
    /// The tool outputs since the last prompt, in order.
    pub(crate) outputs: Vec<String>,
    /// The parts of the unfinished completion that the model is to continue.
    pub(crate) partial_answer_texts: Vec<String>,
    /// Whether the last message is the model's own.
    pub(crate) is_prefilled: bool,
}

/// One step of a conversation.
enum Entry {
    Prompt(String),
    /// A completion or a part of one: its text, and whether it calls a tool.
    Answer(String, bool),
    Output(String),
}

impl Conversation {
    /// Reads the messages or items of any dialect; unknown ones are ignored.
    pub(crate) fn parse(messages: &Value) -> Self {
        let mut conversation = Self::default();
        // The current completion: it may consist of several items, and may have been cut off.
        let mut answering = false;
        let mut called = false;
        for said in entries(messages) {
            conversation.is_prefilled = matches!(said, Entry::Answer(..));
            match said {
                // This message is no new prompt; the completion before it goes on.
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
                    conversation.partial_answer_texts.push(text);
                    continue;
                }
                Entry::Output(output) => conversation.outputs.push(output),
            }
            answering = false;
            conversation.partial_answer_texts.clear();
        }
        conversation.settle_last_answer(answering && !called);
        conversation
    }

    /// Marks the last completion as unfinished, or as complete.
    fn settle_last_answer(&mut self, is_unfinished: bool) {
        if is_unfinished {
            self.answers = self.answers.saturating_sub(1);
            self.partial_answer_texts
                .retain(|text| !text.trim().is_empty());
        } else {
            self.partial_answer_texts.clear();
        }
    }
}

/// Returns whether the message only says that a completion was cut off.
pub(crate) fn is_cut_off_notice(prompt: &str) -> bool {
    prompt.starts_with(CUT_OFF_PREFIX)
}

fn entries(messages: &Value) -> Vec<Entry> {
    match messages {
        // A string in place of items is a prompt.
        Value::String(prompt) => vec![Entry::Prompt(prompt.clone())],
        messages => array(messages).iter().flat_map(message_entries).collect(),
    }
}

fn message_entries(message: &Value) -> Vec<Entry> {
    match (message["role"].as_str(), message["type"].as_str()) {
        (Some("user"), _) => user_entries(&message["content"]),
        (Some("assistant"), _) => vec![assistant_entry(message)],
        (None, Some("function_call")) => vec![Entry::Answer(String::new(), true)],
        (None, Some("reasoning")) => vec![Entry::Answer(String::new(), false)],
        (Some("tool"), _) => vec![Entry::Output(text(&message["content"]))],
        (None, Some("function_call_output")) => vec![Entry::Output(text(&message["output"]))],
        _ => Vec::new(),
    }
}

/// Returns the model's text verbatim, as it may end in the middle of a line.
fn assistant_entry(message: &Value) -> Entry {
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

/// Returns tool results first: the text beside them refers to the next step.
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

/// Returns the text of a content: the string itself, or its text parts, each on lines of its own.
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
