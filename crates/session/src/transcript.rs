//! A session as a document: what a person reads, or another program.
//!
//! Entries come in one by one and are written at once, so that a long session needs no memory. Invariants: an entry that
//! cannot be read never ends the document, it is shown as what it is; nothing that a model, a tool or a provider said
//! can pass for a part of the document's own structure.
//! Not here: where the entries come from (see the store's journal), and where the document goes.

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

/// What stands at the beginning of a document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Header {
    /// The session's name.
    pub id: String,
    /// What it is about; may be empty.
    pub title: String,
    /// Where it works.
    pub directory: String,
    /// When it began.
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
    /// What the document is called.
    fn name(&self) -> String {
        match self.title.trim() {
            "" => format!("Session {}", self.id),
            title => title.to_owned(),
        }
    }

    /// What is said of the session before its first turn.
    fn facts(&self) -> [(&'static str, String); 3] {
        [
            ("Session", self.id.clone()),
            ("Folder", self.directory.clone()),
            ("Begun", self.created.to_string()),
        ]
    }
}

/// What a document looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// One JSON object for each entry, with all that was written down.
    Jsonl,
    /// Markdown, with everything that was said and done.
    Markdown,
    /// One page for a browser, without scripts, with everything that was said and done.
    Html,
    /// Text for a terminal; what tools said is cut to a few lines.
    Plain,
}

/// Writes a document piece by piece.
#[derive(Debug)]
pub struct Writer<W> {
    format: Format,
    story: BlockBuilder,
    out: W,
}

impl<W: io::Write> Writer<W> {
    /// Begins a document.
    pub fn new(format: Format, head: &Header, mut out: W) -> io::Result<Self> {
        let beginning = match format {
            Format::Jsonl => jsonl::head(head)?,
            Format::Markdown => markdown::head(head),
            Format::Html => html::head(head),
            Format::Plain => plain::head(head),
        };
        out.write_all(beginning.as_bytes())?;
        let story = BlockBuilder::default();
        Ok(Self { format, story, out })
    }

    /// Writes the next entry of the session.
    pub fn entry(&mut self, stored: &StoredEntry) -> io::Result<()> {
        let text = match self.format {
            Format::Jsonl => jsonl::entry(stored)?,
            _ => {
                let pieces = self.story.entry(stored);
                self.render(&pieces)
            }
        };
        self.out.write_all(text.as_bytes())
    }

    /// Ends the document, and hands back what it was written to.
    pub fn finish(mut self) -> io::Result<W> {
        let last = self.story.end();
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
            // Its lines are the entries themselves.
            Format::Jsonl => return String::new(),
            Format::Markdown => markdown::piece,
            Format::Html => html::piece,
            Format::Plain => plain::piece,
        };
        pieces.iter().map(render).collect()
    }
}

#[cfg(test)]
#[path = "transcript_tests.rs"]
mod tests;
