//! Converts entries to blocks, the format-independent parts of a document.
//!
//! Invariants: every entry that has a block is shown once, in order; a wait is shown when its end is known; failed attempts
//! are separate from the conversation. Texts are unchanged: each format has to make them safe.

use super::phrases::{failed_attempt, response_title, turn_end, unreadable_entry};
use crate::parse_entry;
use outlast_dialect::{Message, Part};
use outlast_engine::journal::{Entry, ModelSwitch};
use outlast_kernel::Timestamp;
use outlast_kernel::event::ToolCall;
use outlast_kernel::fallback::Exclusion;
use outlast_kernel::verdict::Cause;
use outlast_store::journal::StoredEntry;
use std::time::Duration;

const CONTINUED_TURN: &str = "The turn goes on from the one before; nothing new was said.";
const NOTICE_TITLE: &str = "Notice to the model";
const PROMPT: &str = "Prompt";
const NOTE: &str = "Note";
/// The kind of the entry that ends a turn.
const SETTLED: &str = "settled";

/// A part of a document.
#[derive(Debug)]
pub(super) enum Block {
    /// A turn begins.
    Turn(u64),
    /// A message.
    Message {
        title: String,
        time: Timestamp,
        parts: Vec<Part>,
    },
    /// A failed attempt, with the part of its completion that arrived.
    FailedAttempt {
        title: String,
        time: Timestamp,
        message: String,
        parts: Vec<Part>,
    },
    /// The output of a tool.
    ToolOutput { title: String, output: String },
    /// An event described by a sentence.
    Note(String),
    /// The end of a turn.
    TurnEnd {
        title: String,
        time: Timestamp,
        message: String,
        tokens: String,
    },
    /// An entry that cannot be read.
    Unreadable { title: String, body: String },
}

/// Builds blocks; remembers the earlier entries that later ones refer to.
#[derive(Debug, Default)]
pub(super) struct BlockBuilder {
    turn: Option<u64>,
    is_turn_open: bool,
    /// Whether the turn has begun without a prompt, and queued messages may follow in its place.
    awaits_prompt: bool,
    wait: Option<Wait>,
    /// The calls of the last completion.
    calls: Vec<Call>,
}

#[derive(Debug)]
struct Wait {
    since: Timestamp,
    until: Timestamp,
    cause: Cause,
}

#[derive(Debug)]
struct Call {
    name: String,
    is_running: bool,
}

impl BlockBuilder {
    /// Returns the blocks of the next entry.
    pub(super) fn add_entry(&mut self, stored: &StoredEntry) -> Vec<Block> {
        let mut pieces = Vec::new();
        let (turn, time) = (stored.entry.turn, stored.entry.time);
        // The session's name only matters to the error, which is replaced by our own words.
        let entry = parse_entry("", stored);
        // A queued message is shown when it is sent; its entry may stand between any two others.
        if matches!(entry, Ok(Entry::Queued { .. } | Entry::Unqueued { .. })) {
            return pieces;
        }
        if self.turn != Some(turn) {
            pieces.extend(self.finish());
            self.turn = Some(turn);
            // A note before the first turn belongs to no turn.
            self.is_turn_open = turn > 0 || !matches!(entry, Ok(Entry::Delivered { .. }));
            pieces.extend(self.is_turn_open.then_some(Block::Turn(turn)));
        }
        match entry {
            Ok(Entry::WaitEnded { .. }) => {
                pieces.extend(self.wait.take().map(|wait| wait.ended_note(time)));
            }
            Ok(entry) => {
                pieces.extend(self.wait.take().map(Wait::unfinished_note));
                self.push_blocks(entry, time, &mut pieces);
            }
            Err(_) => {
                pieces.extend(self.take_continuation_note());
                pieces.extend(self.wait.take().map(Wait::unfinished_note));
                self.is_turn_open &= stored.entry.kind != SETTLED;
                pieces.push(unreadable_entry(stored));
            }
        }
        pieces
    }

    /// Returns the remaining blocks at the end of the entries.
    pub(super) fn finish(&mut self) -> Vec<Block> {
        let mut pieces: Vec<Block> = self.take_continuation_note().into_iter().collect();
        pieces.extend(self.wait.take().map(Wait::unfinished_note));
        pieces.extend(self.take_unfinished_calls());
        if std::mem::take(&mut self.is_turn_open) {
            let note = "The end of this turn is not written down.";
            pieces.push(Block::Note(note.to_owned()));
        }
        pieces
    }

    /// Returns a note for a turn that has begun without a prompt and without queued messages.
    fn take_continuation_note(&mut self) -> Option<Block> {
        let goes_on = std::mem::take(&mut self.awaits_prompt);
        goes_on.then(|| Block::Note(CONTINUED_TURN.to_owned()))
    }

    fn push_blocks(&mut self, entry: Entry, time: Timestamp, pieces: &mut Vec<Block>) {
        if let Entry::Delivered { messages, note, .. } = entry {
            return self.push_messages(messages, note, time, pieces);
        }
        pieces.extend(self.take_continuation_note());
        match entry {
            Entry::Prompt { message, .. } => match message {
                Some(message) => pieces.push(message_block(PROMPT.to_owned(), time, message.parts)),
                None => self.awaits_prompt = true,
            },
            Entry::AttemptFailed {
                attempt,
                judged,
                message,
                ..
            } => pieces.push(failed_attempt(attempt, time, judged, message.parts)),
            Entry::WaitScheduled {
                since,
                until,
                cause,
                ..
            } => {
                self.wait = Some(Wait {
                    since,
                    until,
                    cause,
                });
            }
            Entry::Switched { left, model, .. } => pieces.push(Block::Note(switched(left, model))),
            Entry::Noticed { message, .. } => {
                pieces.push(message_block(NOTICE_TITLE.to_owned(), time, message.parts));
            }
            entry @ Entry::Compacted { .. } => pieces.extend(compaction_blocks(entry, time)),
            Entry::Message {
                message,
                stop_reason,
                model,
                ..
            } => {
                pieces.extend(self.start_calls(&message));
                let title = response_title(&model, stop_reason);
                pieces.push(message_block(title, time, message.parts));
            }
            Entry::ToolStarted { index, .. } => self.set_tool_running(index, true),
            Entry::ToolFinished {
                index,
                id,
                output,
                is_error,
            } => {
                let title = self.finish_tool(index, &id, is_error);
                pieces.push(Block::ToolOutput { title, output });
            }
            Entry::Settled { seal, usage, error } => {
                pieces.extend(self.end_turn());
                pieces.push(turn_end(seal, time, usage, error));
            }
            // The result of an attempt shows that it was made.
            Entry::AttemptStarted { .. } => {}
            entry => pieces.push(Block::Note(format!("Also written down: {}.", entry.kind()))),
        }
    }

    /// Remembers the tool calls of a new message, and returns a note for each call before it that did not finish.
    fn start_calls(&mut self, message: &Message) -> Vec<Block> {
        let unfinished = self.take_unfinished_calls();
        self.calls = message.tool_calls().map(Call::new).collect();
        unfinished
    }

    fn push_messages(
        &mut self,
        messages: Vec<Message>,
        note: bool,
        time: Timestamp,
        pieces: &mut Vec<Block>,
    ) {
        self.awaits_prompt &= note;
        let title = if note { NOTE } else { PROMPT };
        let tell = |message: Message| message_block(title.to_owned(), time, message.parts);
        pieces.extend(messages.into_iter().map(tell));
    }

    fn set_tool_running(&mut self, index: usize, is_running: bool) {
        if let Some(call) = self.calls.get_mut(index) {
            call.is_running = is_running;
        }
    }

    /// Ends a tool call and returns the title of its output.
    fn finish_tool(&mut self, index: usize, id: &str, is_error: bool) -> String {
        self.set_tool_running(index, false);
        let name = self.calls.get(index).map_or(id, |call| &call.name);
        match is_error {
            true => format!("Error of {name}"),
            false => format!("Output of {name}"),
        }
    }

    /// Ends the turn and returns notes on the calls of the last completion that began and have no known end.
    fn end_turn(&mut self) -> Vec<Block> {
        self.is_turn_open = false;
        self.take_unfinished_calls()
    }

    fn take_unfinished_calls(&mut self) -> Vec<Block> {
        let left = |call: Call| {
            let note = format!(
                "Tool {} began to run; its end is not written down.",
                call.name
            );
            call.is_running.then_some(Block::Note(note))
        };
        self.calls.drain(..).filter_map(left).collect()
    }
}

impl Wait {
    /// The entry for the end of a wait is not written before that end, but perhaps much later.
    fn ended_note(self, written: Timestamp) -> Block {
        const MIN_REPORTED_CUT: Duration = Duration::from_secs(1);
        let Self {
            since,
            until,
            cause,
        } = self;
        let cause = cause.phrase();
        Block::Note(match until.since(written) >= MIN_REPORTED_CUT {
            true => format!(
                "Waited from {since} until {written}, cut short (it was to last until {until}): {cause}."
            ),
            false => format!("Waited from {since} until {until}: {cause}."),
        })
    }

    fn unfinished_note(self) -> Block {
        let (since, until, cause) = (self.since, self.until, self.cause.phrase());
        Block::Note(format!(
            "A wait from {since} until {until} began, and its end is not written down: {cause}."
        ))
    }
}

impl Call {
    fn new(call: &ToolCall) -> Self {
        Self {
            name: call.name.clone(),
            is_running: false,
        }
    }
}

fn message_block(title: String, time: Timestamp, parts: Vec<Part>) -> Block {
    Block::Message { title, time, parts }
}

fn switched(left: Option<String>, model: Option<ModelSwitch>) -> String {
    match (left, model) {
        (_, Some(ModelSwitch { from, to, left })) => {
            let until = match left {
                Some(Exclusion::Until { until }) => format!(" until {until}"),
                _ => String::new(),
            };
            format!("Model {from} is left{until}; {to} is asked from here on.")
        }
        (Some(left), None) => {
            format!("Account {left} is left; another one is asked from here on.")
        }
        (None, None) => "The key was fetched anew.".to_owned(),
    }
}

fn compaction_blocks(entry: Entry, time: Timestamp) -> Vec<Block> {
    let Entry::Compacted {
        before,
        after,
        model,
        messages,
        ..
    } = entry
    else {
        return Vec::new();
    };
    let note = Block::Note(compacted(before, after, model.as_deref()));
    // The summary is the first of the remaining messages.
    let summary = messages.into_iter().next().filter(|_| model.is_some());
    let summary = summary.map(|message| message_block("Summary".to_owned(), time, message.parts));
    std::iter::once(note).chain(summary).collect()
}

fn compacted(before: u64, after: u64, model: Option<&str>) -> String {
    let how = match model {
        Some(model) => format!("summarised by {model}"),
        None => "parts of it were left out".to_owned(),
    };
    format!(
        "The conversation was made smaller, from about {before} to about {after} tokens: {how}."
    )
}
