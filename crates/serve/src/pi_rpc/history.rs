//! The history of a session, from its journal: the conversation, its entries as a list and as a tree, and statistics.
//!
//! Invariants: the conversation is what the model would be sent, without failed attempts; the entries include failed
//! attempts; unreadable entries are skipped. Not here: who may read it, and when.

mod conversation;
mod entry;
mod reader;
mod stats;

pub use entry::{Entry, EntryBody};
pub use stats::{ContextUsage, Stats, Tokens};

use super::message::{Block, Message};
use super::models::Models;
use outlast_session::parse_entry;
use outlast_store::journal::StoredEntry;
use reader::Reader;
use serde::Serialize;
use serde_json::value::RawValue;
use stats::StatsCounter;

/// The text in place of a summary, after a compaction without one.
pub(super) const NO_SUMMARY_TEXT: &str = "Parts of the conversation were left out.";

/// The error of an item that is not in a session's history.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no entry with that id.
    #[error("Entry not found: {id}")]
    NotFound {
        /// The requested id.
        id: String,
    },
}

/// A prompt from which a session can be forked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ForkMessage {
    /// The id of its entry.
    pub entry_id: String,
    /// The text of the prompt.
    pub text: String,
}

/// The history of a session.
pub struct History {
    entries: Vec<Entry>,
    messages: Vec<Message>,
    counter: StatsCounter,
}

impl History {
    /// Builds the history from the entries of a journal and the known models.
    pub fn from_entries(stored: &[StoredEntry], models: &Models) -> Self {
        let mut reader = Reader::new(models);
        for stored in stored {
            // The session id matters only to the error, and entries with errors are skipped.
            if let Ok(entry) = parse_entry("", stored) {
                reader.apply((stored.seq, stored.entry.time), entry);
            }
        }
        reader.into_history()
    }

    /// Returns the conversation, as it would be sent to the model.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Returns all entries, or those after the one with the id `since`.
    pub fn entries(&self, since: Option<&str>) -> Result<&[Entry], Error> {
        let Some(id) = since else {
            return Ok(&self.entries);
        };
        let index = self.index(id)?;
        Ok(self.entries.get(index + 1..).unwrap_or_default())
    }

    /// Returns the id of the last entry.
    pub fn leaf_id(&self) -> Option<&str> {
        self.entries.last().map(|entry| &*entry.id)
    }

    /// Returns the entries as a tree, in which each is the only child of the one before.
    pub fn tree(&self) -> Box<RawValue> {
        entry::tree(&self.entries)
    }

    /// Returns the prompts from which the session can be forked.
    pub fn fork_messages(&self) -> Vec<ForkMessage> {
        let prompts = self.entries.iter().filter(|entry| entry.is_prompt);
        let texts = prompts.map(|entry| ForkMessage {
            entry_id: entry.id.clone(),
            text: entry.text(),
        });
        texts.filter(|message| !message.text.is_empty()).collect()
    }

    /// Returns the journal's sequence number of an entry.
    pub fn seq_of(&self, id: &str) -> Result<u64, Error> {
        let index = self.index(id)?;
        Ok(self.entries.get(index).map_or(0, |entry| entry.seq))
    }

    /// Returns the id of the first entry that the last compaction kept.
    pub fn first_kept(&self) -> Option<&str> {
        let mut entries = self.entries.iter().rev();
        entries.find_map(|entry| match &entry.body {
            EntryBody::Compaction {
                first_kept_entry_id,
                ..
            } => Some(&**first_kept_entry_id),
            _ => None,
        })
    }

    /// Returns the text of the model's last message.
    pub fn last_assistant_text(&self) -> Option<String> {
        let mut messages = self.messages.iter().rev();
        let last = messages.find_map(|message| match message {
            Message::Assistant(answer) => Some(Block::text_of(&answer.content)),
            _ => None,
        });
        let text = last?.trim().to_owned();
        (!text.is_empty()).then_some(text)
    }

    /// Returns the statistics of the session.
    pub fn stats(&self, session_id: &str, session_file: Option<&str>) -> Stats {
        self.counter.stats(session_id, session_file)
    }

    fn index(&self, id: &str) -> Result<usize, Error> {
        let found = self.entries.iter().position(|entry| entry.id == id);
        found.ok_or_else(|| Error::NotFound { id: id.to_owned() })
    }
}

#[cfg(test)]
#[path = "history_tests.rs"]
mod tests;
