//! Writes a session as a document, for people or for other programs.
//!
//! Each entry is written as soon as it comes in, so that a long session needs no memory. Invariants: an unreadable entry
//! never ends the document, it is shown as such; text from a model, a tool or a provider cannot imitate the document's own
//! structure. Not here: the source of the entries (see the store's journal), and the destination of the document.

mod blocks;
pub mod escape;
pub mod html;
mod jsonl;
mod markdown;
mod phrases;
mod plain;

use blocks::BlockBuilder;
use outlast_kernel::Timestamp;
use outlast_store::journal::{StoredEntry, Summary};
use serde::Serialize;
use std::io;

/// The data at the beginning of a document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Header {
    /// The session's name.
    pub id: String,
    /// The session's title; may be empty.
    pub title: String,
    /// The session's working folder.
    pub directory: String,
    /// The time at which the session began.
    pub created: Timestamp,
}

impl From<&Summary> for Header {
    fn from(summary: &Summary) -> Self {
        Self {
            id: summary.id.clone(),
            title: summary.title.clone(),
            directory: summary.directory.clone(),
            created: summary.created,
        }
    }
}

impl Header {
    /// Returns the title of the document.
    fn document_title(&self) -> String {
        match self.title.trim() {
            "" => format!("Session {}", self.id),
            title => title.to_owned(),
        }
    }

    /// Returns the facts that precede the first turn.
    fn facts(&self) -> [(&'static str, String); 3] {
        [
            ("Session", self.id.clone()),
            ("Folder", self.directory.clone()),
            ("Begun", self.created.to_string()),
        ]
    }
}

/// The format of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// One JSON object for each entry, with its complete content.
    Jsonl,
    /// Markdown, with all messages and actions.
    Markdown,
    /// One HTML page without scripts, with all messages and actions.
    Html,
    /// Text for a terminal; outputs of tools are cut to a few lines.
    Plain,
}

/// Writes a document piece by piece.
#[derive(Debug)]
pub struct Writer<W> {
    format: Format,
    block_builder: BlockBuilder,
    out: W,
}

impl<W: io::Write> Writer<W> {
    /// Begins a document.
    pub fn new(format: Format, head: &Header, mut out: W) -> io::Result<Self> {
        let beginning = match format {
            Format::Jsonl => jsonl::header(head)?,
            Format::Markdown => markdown::header(head),
            Format::Html => html::header(head),
            Format::Plain => plain::header(head),
        };
        out.write_all(beginning.as_bytes())?;
        let block_builder = BlockBuilder::default();
        Ok(Self {
            format,
            block_builder,
            out,
        })
    }

    /// Writes the next entry of the session.
    pub fn entry(&mut self, stored: &StoredEntry) -> io::Result<()> {
        let text = match self.format {
            Format::Jsonl => jsonl::entry(stored)?,
            _ => {
                let pieces = self.block_builder.add_entry(stored);
                self.render(&pieces)
            }
        };
        self.out.write_all(text.as_bytes())
    }

    /// Ends the document, and returns its writer.
    pub fn finish(mut self) -> io::Result<W> {
        let last = self.block_builder.finish();
        let mut text = self.render(&last);
        if self.format == Format::Html {
            text.push_str(html::PAGE_END);
        }
        self.out.write_all(text.as_bytes())?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn render(&self, pieces: &[blocks::Block]) -> String {
        let render = match self.format {
            // The entries themselves are the lines.
            Format::Jsonl => return String::new(),
            Format::Markdown => markdown::block,
            Format::Html => html::block,
            Format::Plain => plain::block,
        };
        pieces.iter().map(render).collect()
    }
}

#[cfg(test)]
#[path = "transcript_tests.rs"]
mod tests;
