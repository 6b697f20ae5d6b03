//! The conversation as it would be sent to the model, with the origin of each message.
//!
//! The messages come from the session's own [`State`]; this module only tracks which entry each of them came from.

use crate::pi_rpc::message::{
    Assistant, Block, CompactionSummary, Message, PricedUsage, Stop, ToolResult,
};
use outlast_dialect::{Part, Role};
use outlast_engine::journal::Entry;
use outlast_session::State;
use std::collections::HashMap;

#[derive(Default)]
pub(super) struct Conversation {
    state: State,
    /// The origin of each message.
    origins: Vec<MessageOrigin>,
}

#[derive(Clone)]
struct MessageOrigin {
    /// The entry that the message came from.
    id: String,
    time: u64,
    /// The model's message without its content.
    assistant: Option<Assistant>,
    /// The size of the messages that it replaces, in tokens, if it is a summary.
    summarized_tokens: Option<u64>,
}

/// The id of an entry, and its time.
type Origin = (String, u64);

impl Conversation {
    /// Adds an entry; `answer` has the details of a model's message in it.
    pub(super) fn apply(&mut self, origin: Origin, entry: Entry, answer: Option<Assistant>) {
        self.state.apply(entry);
        let known = MessageOrigin::new(origin);
        for message in self.state.messages.iter().skip(self.origins.len()) {
            let assistant = answer.clone().filter(|_| message.role == Role::Assistant);
            self.origins.push(MessageOrigin {
                assistant,
                ..known.clone()
            });
        }
    }

    /// Applies a compaction: the conversation becomes an optional summary and the newest messages, some of them
    /// shortened. Returns the entry of the first message kept.
    pub(super) fn compact(
        &mut self,
        origin: Origin,
        entry: Entry,
        is_summarised: bool,
        tokens: u64,
    ) -> Option<String> {
        self.state.apply(entry);
        let new = self.state.messages.len();
        let kept = new.saturating_sub(usize::from(is_summarised));
        let from = self.origins.len().saturating_sub(kept);
        let mut known = Vec::with_capacity(new);
        if is_summarised {
            known.push(MessageOrigin {
                summarized_tokens: Some(tokens),
                ..MessageOrigin::new(origin.clone())
            });
        }
        known.extend(self.origins.drain(..).skip(from));
        let first = known.get(usize::from(is_summarised));
        let first = first.map(|known| known.id.clone());
        // Any further messages came with this entry.
        known.resize(new, MessageOrigin::new(origin));
        self.origins = known;
        first
    }

    /// Returns all messages.
    pub(super) fn into_messages(self) -> Vec<Message> {
        let mut tools = HashMap::new();
        let mut all = Vec::with_capacity(self.origins.len());
        for (message, known) in self.state.messages.into_iter().zip(self.origins) {
            for call in message.tool_calls() {
                tools.insert(call.id.clone(), call.name.clone());
            }
            match message.role {
                Role::Assistant => all.push(known.into_assistant_message(&message.parts)),
                Role::User => known.push_user_messages(message, &tools, &mut all),
            }
        }
        all
    }
}

impl MessageOrigin {
    fn new((id, time): Origin) -> Self {
        Self {
            id,
            time,
            assistant: None,
            summarized_tokens: None,
        }
    }

    fn into_assistant_message(self, parts: &[Part]) -> Message {
        let unknown = || Assistant {
            content: Vec::new(),
            api: String::new(),
            provider: String::new(),
            model: String::new(),
            usage: PricedUsage::default(),
            stop_reason: Stop::Stop,
            timestamp: self.time,
            error_message: None,
            outlast: None,
        };
        Message::Assistant(Assistant {
            content: Block::from_parts(parts),
            ..self.assistant.unwrap_or_else(unknown)
        })
    }

    /// Adds a user message: a summary, or each tool result as a message of its own, then the user's input.
    fn push_user_messages(
        self,
        message: outlast_dialect::Message,
        tools: &HashMap<String, String>,
        all: &mut Vec<Message>,
    ) {
        let timestamp = self.time;
        if let Some(tokens_before) = self.summarized_tokens {
            let summary = message.text();
            return all.push(Message::CompactionSummary(CompactionSummary {
                summary,
                tokens_before,
                timestamp,
            }));
        }
        let content = Block::from_parts(&message.parts);
        for part in message.parts {
            if let Part::ToolResult(result) = part {
                let name = tools.get(&result.id).cloned().unwrap_or_default();
                all.push(Message::ToolResult(ToolResult::new(
                    result, name, timestamp,
                )));
            }
        }
        if !content.is_empty() {
            all.push(Message::from_user(content, timestamp));
        }
    }
}
