//! What happened in a session, from its journal: the conversation, its entries as a list and as a tree, and numbers.
//!
//! Invariants: the conversation is what the model would be sent, failed attempts left out; the entries have all of it,
//! failed attempts too; an entry that cannot be read is passed over. Not here: who may ask, and when.

mod conversation;
mod entry;
mod reader;
mod stats;

pub use entry::{Entry, EntryBody};
pub use stats::{ContextUsage, Stats, Tokens};

use super::message::{Block, Message};
use super::models::Models;
use outlast_session::read;
use outlast_store::journal::StoredEntry;
use reader::Reader;
use serde::Serialize;
use serde_json::value::RawValue;
use stats::StatsCounter;

/// What is said of a conversation that was made smaller without a summary.
pub(super) const NO_SUMMARY_TEXT: &str = "Parts of the conversation were left out.";

/// Something that is not in a session's history.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no such entry.
    #[error("Entry not found: {id}")]
    NotFound {
        /// What was asked for.
        id: String,
    },
}

/// A prompt, from which a session can be begun anew.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ForkMessage {
    /// Its entry.
    pub entry_id: String,
    /// What was said.
    pub text: String,
}

/// What happened in a session.
pub struct History {
    entries: Vec<Entry>,
    messages: Vec<Message>,
    counted: StatsCounter,
}

impl History {
    /// What these entries of a journal tell, where the models are known by these.
    pub fn of(stored: &[StoredEntry], models: &Models) -> Self {
        let mut reader = Reader::new(models);
        for stored in stored {
            // Whose entry it is only matters to the error, and that one is passed over.
            if let Ok(entry) = read("", stored) {
                reader.take_in((stored.seq, stored.line.time), entry);
            }
        }
        reader.into_history()
    }

    /// The conversation, as the model would be sent it.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// All entries, or those after one.
    pub fn entries(&self, since: Option<&str>) -> Result<&[Entry], Error> {
        let Some(id) = since else {
            return Ok(&self.entries);
        };
        let index = self.index(id)?;
        Ok(self.entries.get(index + 1..).unwrap_or_default())
    }

    /// The last entry.
    pub fn leaf_id(&self) -> Option<&str> {
        self.entries.last().map(|entry| &*entry.id)
    }

    /// The entries as a tree, in which each is the only child of the one before.
    pub fn tree(&self) -> Box<RawValue> {
        entry::tree(&self.entries)
    }

    /// What was said by prompts.
    pub fn fork_messages(&self) -> Vec<ForkMessage> {
        let prompts = self.entries.iter().filter(|entry| entry.is_prompt);
        let texts = prompts.map(|entry| ForkMessage {
            entry_id: entry.id.clone(),
            text: entry.text(),
        });
        texts.filter(|message| !message.text.is_empty()).collect()
    }

    /// The number in the journal of what an entry tells of.
    pub fn seq_of(&self, id: &str) -> Result<u64, Error> {
        let index = self.index(id)?;
        Ok(self.entries.get(index).map_or(0, |entry| entry.seq))
    }

    /// The first entry that the last compaction has kept.
    pub fn first_kept(&self) -> Option<&str> {
        let mut entries = self.entries.iter().rev();
        entries.find_map(|entry| match &entry.what {
            EntryBody::Compaction {
                first_kept_entry_id,
                ..
            } => Some(&**first_kept_entry_id),
            _ => None,
        })
    }

    /// What the model said last.
    pub fn last_assistant_text(&self) -> Option<String> {
        let mut messages = self.messages.iter().rev();
        let last = messages.find_map(|message| match message {
            Message::Assistant(answer) => Some(Block::text_of(&answer.content)),
            _ => None,
        });
        let text = last?.trim().to_owned();
        (!text.is_empty()).then_some(text)
    }

    /// The session of that id in numbers; it is kept in that file.
    pub fn stats(&self, session_id: &str, session_file: Option<&str>) -> Stats {
        self.counted.stats(session_id, session_file)
    }

    fn index(&self, id: &str) -> Result<usize, Error> {
        let found = self.entries.iter().position(|entry| entry.id == id);
        found.ok_or_else(|| Error::NotFound { id: id.to_owned() })
    }
}

#[cfg(test)]
#[path = "history_tests.rs"]
mod tests;
