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
    standing: State,
    /// The origin of each message.
    known: Vec<MessageOrigin>,
}

#[derive(Clone)]
struct MessageOrigin {
    /// The entry that the message came from.
    id: String,
    time: u64,
    /// The model's message without its content.
    answer: Option<Assistant>,
    /// The size of the messages that it replaces, in tokens, if it is a summary.
    summary_of: Option<u64>,
}

/// The id of an entry, and its time.
type Origin = (String, u64);

impl Conversation {
    /// Adds an entry; `answer` has the details of a model's message in it.
    pub(super) fn take_in(&mut self, origin: Origin, entry: Entry, answer: Option<Assistant>) {
        self.standing.take_in(entry);
        let known = MessageOrigin::of(origin);
        for message in self.standing.messages.iter().skip(self.known.len()) {
            let answer = answer.clone().filter(|_| message.role == Role::Assistant);
            self.known.push(MessageOrigin {
                answer,
                ..known.clone()
            });
        }
    }

    /// Applies a compaction: the conversation becomes an optional summary and the newest messages, some of them
    /// shortened. Returns the entry of the first message kept.
    pub(super) fn become_smaller(
        &mut self,
        origin: Origin,
        entry: Entry,
        is_summarised: bool,
        tokens: u64,
    ) -> Option<String> {
        self.standing.take_in(entry);
        let new = self.standing.messages.len();
        let kept = new.saturating_sub(usize::from(is_summarised));
        let from = self.known.len().saturating_sub(kept);
        let mut known = Vec::with_capacity(new);
        if is_summarised {
            known.push(MessageOrigin {
                summary_of: Some(tokens),
                ..MessageOrigin::of(origin.clone())
            });
        }
        known.extend(self.known.drain(..).skip(from));
        let first = known.get(usize::from(is_summarised));
        let first = first.map(|known| known.id.clone());
        // Any further messages came with this entry.
        known.resize(new, MessageOrigin::of(origin));
        self.known = known;
        first
    }

    /// Returns all messages.
    pub(super) fn into_messages(self) -> Vec<Message> {
        let mut tools = HashMap::new();
        let mut all = Vec::with_capacity(self.known.len());
        for (message, known) in self.standing.messages.into_iter().zip(self.known) {
            for call in message.tool_calls() {
                tools.insert(call.id.clone(), call.name.clone());
            }
            match message.role {
                Role::Assistant => all.push(known.answer(&message.parts)),
                Role::User => known.input(message, &tools, &mut all),
            }
        }
        all
    }
}

impl MessageOrigin {
    fn of((id, time): Origin) -> Self {
        Self {
            id,
            time,
            answer: None,
            summary_of: None,
        }
    }

    fn answer(self, parts: &[Part]) -> Message {
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
            content: Block::all(parts),
            ..self.answer.unwrap_or_else(unknown)
        })
    }

    /// Adds a user message: a summary, or each tool result as a message of its own, then the user's input.
    fn input(
        self,
        message: outlast_dialect::Message,
        tools: &HashMap<String, String>,
        all: &mut Vec<Message>,
    ) {
        let timestamp = self.time;
        if let Some(tokens_before) = self.summary_of {
            let summary = message.text();
            return all.push(Message::CompactionSummary(CompactionSummary {
                summary,
                tokens_before,
                timestamp,
            }));
        }
        let content = Block::all(&message.parts);
        for part in message.parts {
            if let Part::ToolResult(result) = part {
                let name = tools.get(&result.id).cloned().unwrap_or_default();
                all.push(Message::ToolResult(ToolResult::new(
                    result, name, timestamp,
                )));
            }
        }
        if !content.is_empty() {
            all.push(Message::of_user(content, timestamp));
        }
    }
}
