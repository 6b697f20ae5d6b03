//! The entries of a history in the format of the pi protocol, as a list and as a tree.

use crate::pi_rpc::message::{Block, Message, PricedUsage};
use crate::pi_rpc::models::ModelRef;
use outlast_kernel::Timestamp;
use serde::Serialize;
use serde_json::value::RawValue;

/// An entry of the history.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// The id of the entry.
    pub id: String,
    /// The id of the entry before it.
    pub parent_id: Option<String>,
    /// The time of the entry.
    pub timestamp: Timestamp,
    /// The content of the entry.
    #[serde(flatten)]
    pub body: EntryBody,
    #[serde(skip)]
    pub(super) seq: u64,
    /// Whether this message began a turn.
    #[serde(skip)]
    pub(super) is_prompt: bool,
}

/// The content of an entry.
#[derive(Clone, Debug, Serialize)]
#[serde(
    tag = "type",
    rename_all = "snake_case",
    rename_all_fields = "camelCase"
)]
pub enum EntryBody {
    /// A message.
    Message {
        /// The message.
        message: Message,
    },
    /// A compaction of the conversation.
    Compaction {
        /// The summary of the messages that were left out.
        summary: String,
        /// The first entry that is still part of the conversation; this entry if there is none.
        first_kept_entry_id: String,
        /// Approximate size of the conversation before, in tokens.
        tokens_before: u64,
        /// The tokens that the summary used.
        usage: PricedUsage,
    },
    /// A switch to another model.
    ModelChange {
        /// The provider.
        provider: String,
        /// The name of the model.
        model_id: String,
    },
}

impl EntryBody {
    pub(super) fn model_change(asked: &ModelRef) -> Self {
        Self::ModelChange {
            provider: asked.provider.clone(),
            model_id: asked.model.clone(),
        }
    }
}

impl Entry {
    /// Returns the text of a user's message; empty for other entries.
    pub(super) fn text(&self) -> String {
        match &self.body {
            EntryBody::Message {
                message: Message::User(user),
            } => Block::text_of(&user.content),
            _ => String::new(),
        }
    }
}

/// Entries, each with the one before as its parent.
#[derive(Default)]
pub(super) struct Entries(Vec<Entry>);

impl Entries {
    /// Appends an entry and returns its id.
    pub(super) fn push(&mut self, (seq, timestamp): (u64, Timestamp), body: EntryBody) -> String {
        let twins = self.0.iter().rev().take_while(|entry| entry.seq == seq);
        let id = match twins.count() {
            0 => format!("{seq:08x}"),
            twins => format!("{seq:08x}-{twins}"),
        };
        self.0.push(Entry {
            id: id.clone(),
            parent_id: self.0.last().map(|entry| entry.id.clone()),
            timestamp,
            body,
            seq,
            is_prompt: false,
        });
        id
    }

    pub(super) fn mark_prompt(&mut self, is_prompt: bool) {
        if let Some(last) = self.0.last_mut() {
            last.is_prompt = is_prompt;
        }
    }

    /// Completes the compaction at the end of the list with the first entry that it keeps.
    pub(super) fn set_first_kept(&mut self, id: String) {
        if let Some(Entry {
            body:
                EntryBody::Compaction {
                    first_kept_entry_id,
                    ..
                },
            ..
        }) = self.0.last_mut()
        {
            *first_kept_entry_id = id;
        }
    }

    /// Returns the id of the last entry for a journal number, or the id that it would have.
    pub(super) fn last_id_for(&self, seq: u64) -> String {
        let last = self.0.last().filter(|entry| entry.seq == seq);
        last.map_or_else(|| format!("{seq:08x}"), |entry| entry.id.clone())
    }

    pub(super) fn into_vec(self) -> Vec<Entry> {
        self.0
    }
}

/// Writes the entries as a tree. The tree is as deep as the list is long, so it is written without recursion.
pub(super) fn tree(entries: &[Entry]) -> Box<RawValue> {
    let mut text = String::from("[");
    for entry in entries {
        // Only maps with keys other than strings cannot be serialized, and there are none.
        let entry = serde_json::to_string(entry).unwrap_or_default();
        text.push_str("{\"entry\":");
        text.push_str(&entry);
        text.push_str(",\"children\":[");
    }
    text.push_str(&"]}".repeat(entries.len()));
    text.push(']');
    RawValue::from_string(text).unwrap_or_else(|_| RawValue::NULL.to_owned())
}
