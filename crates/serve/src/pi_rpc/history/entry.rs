//! The entries of a history as the pi protocol has them, and the tree that they make.

use crate::pi_rpc::message::{Block, Message, PricedUsage};
use crate::pi_rpc::models::ModelRef;
use outlast_kernel::Timestamp;
use serde::Serialize;
use serde_json::value::RawValue;

/// Something that happened.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// Its id.
    pub id: String,
    /// The entry before it.
    pub parent_id: Option<String>,
    /// When it happened.
    pub timestamp: Timestamp,
    /// What.
    #[serde(flatten)]
    pub what: EntryBody,
    #[serde(skip)]
    pub(super) seq: u64,
    /// Whether somebody said it to begin a turn.
    #[serde(skip)]
    pub(super) is_prompt: bool,
}

/// What happened.
#[derive(Clone, Debug, Serialize)]
#[serde(
    tag = "type",
    rename_all = "snake_case",
    rename_all_fields = "camelCase"
)]
pub enum EntryBody {
    /// Something was said.
    Message {
        /// It.
        message: Message,
    },
    /// The conversation was made smaller.
    Compaction {
        /// What stands for what was left out.
        summary: String,
        /// The first entry that is still part of the conversation; this one when none is.
        first_kept_entry_id: String,
        /// How many tokens it had, about.
        tokens_before: u64,
        /// What the summary used.
        usage: PricedUsage,
    },
    /// Another model is asked.
    ModelChange {
        /// With whom.
        provider: String,
        /// Its name.
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
    /// What was said, if it is something that somebody said.
    pub(super) fn text(&self) -> String {
        match &self.what {
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
    /// One more; the answer is its id.
    pub(super) fn push(&mut self, (seq, timestamp): (u64, Timestamp), what: EntryBody) -> String {
        let twins = self.0.iter().rev().take_while(|entry| entry.seq == seq);
        let id = match twins.count() {
            0 => format!("{seq:08x}"),
            twins => format!("{seq:08x}-{twins}"),
        };
        self.0.push(Entry {
            id: id.clone(),
            parent_id: self.0.last().map(|entry| entry.id.clone()),
            timestamp,
            what,
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

    /// The last one is a compaction that keeps what begins there.
    pub(super) fn set_first_kept(&mut self, id: String) {
        if let Some(Entry {
            what:
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

    /// The id of the last one that tells of that number, or the one that it would have.
    pub(super) fn last_id(&self, seq: u64) -> String {
        let last = self.0.last().filter(|entry| entry.seq == seq);
        last.map_or_else(|| format!("{seq:08x}"), |entry| entry.id.clone())
    }

    pub(super) fn into_vec(self) -> Vec<Entry> {
        self.0
    }
}

/// The entries as a tree. It is as deep as they are many, so it is written from the outside in, without recursion.
pub(super) fn tree(entries: &[Entry]) -> Box<RawValue> {
    let mut text = String::from("[");
    for entry in entries {
        // Only maps with other keys than texts cannot be written, and there are none.
        let entry = serde_json::to_string(entry).unwrap_or_default();
        text.push_str("{\"entry\":");
        text.push_str(&entry);
        text.push_str(",\"children\":[");
    }
    text.push_str(&"]}".repeat(entries.len()));
    text.push(']');
    RawValue::from_string(text).unwrap_or_else(|_| RawValue::NULL.to_owned())
}
