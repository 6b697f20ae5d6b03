//! The transcript as blocks, and its visible part.
//!
//! A block is laid out when it is first visible at a width, and again only when it changes; of incoming text only the
//! last part is. Positions are a block and a line in it, so the cost depends on the visible part, not on the length.
//! Invariants: visible text does not move while more arrives; a retracted completion never looks valid. Not here: the
//! look of blocks (`render.rs`), splitting long texts (`split.rs`), the visible lines (`viewport.rs`).

mod block;
pub(crate) mod render;
pub(crate) mod split;
#[cfg(test)]
mod tests;
pub(crate) mod viewport;

use block::{Block, Continuation};
pub(crate) use block::{Kind, Tone, ToolState};
use outlast_dialect::{Message, Part, Role};
use outlast_kernel::event::ToolCall;
use outlast_session::compaction::is_summary;
use std::ops::Range;

#[derive(Debug, Default)]
pub(crate) struct Transcript {
    blocks: Vec<Block>,
    /// The first visible line; `None` while the end is followed.
    top: Option<LinePosition>,
    /// Number of lines that the next draw moves the view by.
    pending_scroll: isize,
    shows_tools: bool,
    shows_thoughts: bool,
    height: u16,
    /// The block on each row of the screen, as last drawn.
    rows: Vec<usize>,
    /// Whether the next piece of a completion continues an interrupted one.
    continues_answer: bool,
    /// The first block of the last thought.
    last_thought: usize,
    /// The first block that was split since the last frame.
    first_cut_block: Option<usize>,
    /// The blocks whose lines are cached.
    laid_out_blocks: Vec<usize>,
    #[cfg(test)]
    layout_stats: LayoutStats,
}

/// The layout work so far.
#[cfg(test)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct LayoutStats {
    blocks: usize,
    bytes: usize,
}

/// The position of a line: its block, and its number in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct LinePosition {
    block: usize,
    line: usize,
}

const BEGINNING: LinePosition = LinePosition { block: 0, line: 0 };

impl Transcript {
    /// Creates the transcript of an earlier conversation.
    pub(crate) fn from_messages(messages: &[Message]) -> Self {
        let mut transcript = Self::default();
        for message in messages {
            match is_summary(message) {
                true => transcript.notice(Tone::Faint, &message.text()),
                false => transcript.message(message),
            }
            transcript.settle();
        }
        transcript
    }

    fn message(&mut self, message: &Message) {
        for part in &message.parts {
            self.part(message.role, part);
        }
    }

    fn part(&mut self, role: Role, part: &Part) {
        match (role, part) {
            (Role::User, Part::Text { text }) => self.user(text),
            (Role::Assistant, Part::Text { text }) => self.answer(text),
            (_, Part::Reasoning(reasoning)) => self.thought(&reasoning.text),
            (_, Part::Image(image)) => self.user(&format!("[picture, {}]", image.media_type)),
            (_, Part::ToolCall(call)) => self.call(call),
            (_, Part::ToolResult(result)) => {
                self.tool_ended(&result.id, &result.output, result.is_error);
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Returns the blocks from `from` on that can no longer grow.
    pub(crate) fn settled_from(&self, from: usize) -> impl Iterator<Item = (usize, &Kind, bool)> {
        let blocks = self.blocks.iter().enumerate().skip(from);
        let settled = blocks.take_while(|(_, block)| !block.is_open());
        settled.map(|(number, block)| (number, &block.kind, block.is_retracted))
    }

    pub(crate) fn user(&mut self, text: &str) {
        self.settle();
        self.push(Kind::User(text.to_owned()));
    }

    /// Adds a piece of a completion.
    pub(crate) fn answer(&mut self, text: &str) {
        for piece in pieces(text) {
            self.answer_piece(piece);
        }
    }

    fn answer_piece(&mut self, text: &str) {
        if self.extend_last(|kind| matches!(kind, Kind::Answer(_)), text) {
            return;
        }
        let part = Continuation {
            opening: self.continues_answer.then(|| self.open_code()).flatten(),
            ..Continuation::default()
        };
        // Leading blanks are not yet a completion, unless they are in a code block.
        let text = match part.opening {
            Some(_) => text,
            None => text.trim_start_matches('\n'),
        };
        if part.opening.is_some() || !text.trim().is_empty() {
            self.settle();
            self.push_open(Kind::Answer(text.to_owned()), part);
        }
    }

    /// Adds a piece of a thought.
    pub(crate) fn thought(&mut self, text: &str) {
        for piece in pieces(text) {
            if !self.extend_last(|kind| matches!(kind, Kind::Thought(_)), piece) {
                if piece.trim().is_empty() {
                    continue;
                }
                self.settle();
                self.last_thought = self.blocks.len();
                self.push_open(Kind::Thought(piece.to_owned()), Continuation::default());
                self.count_thought(1);
            }
            self.count_thought(piece.matches('\n').count());
        }
    }

    fn count_thought(&mut self, lines: usize) {
        if let Some(first) = self.blocks.get_mut(self.last_thought) {
            first.count_lines(lines);
        }
    }

    /// Appends to the last block if it is of that kind and still grows; returns whether it did.
    fn extend_last(&mut self, is_meant: fn(&Kind) -> bool, text: &str) -> bool {
        let number = self.blocks.len().saturating_sub(1);
        let Some(last) = self.blocks.last_mut() else {
            return false;
        };
        if !last.extend(is_meant, text) {
            return false;
        }
        if let Some((rest, part)) = last.split() {
            self.first_cut_block.get_or_insert(number);
            let kind = match last.kind {
                Kind::Thought(_) => Kind::Thought(rest),
                _ => Kind::Answer(rest),
            };
            self.push_open(kind, part);
        }
        true
    }

    /// Makes the next piece continue the interrupted completion.
    pub(crate) fn continue_answer(&mut self) {
        self.continues_answer = true;
    }

    /// Returns the fence line of the code block in which the last completion stopped.
    fn open_code(&self) -> Option<String> {
        let mut newest = self.blocks.iter().rev();
        newest
            .find(|block| matches!(block.kind, Kind::Answer(_)))?
            .open_code()
    }

    /// Adds a tool call. A call that is resumed after a restart is reported again.
    pub(crate) fn call(&mut self, call: &ToolCall) {
        self.settle();
        let kind = Kind::tool(call);
        let known = self.tool(&call.id);
        if !known.is_some_and(|block| block.is_pending(&kind)) {
            self.push_open(kind, Continuation::default());
        }
    }

    pub(crate) fn tool_started(&mut self, id: &str) {
        if let Some(block) = self.tool(id) {
            block.start_tool();
        }
    }

    pub(crate) fn tool_ended(&mut self, id: &str, output: &str, is_error: bool) {
        if let Some(block) = self.tool(id) {
            block.end_tool(output, is_error);
        }
    }

    /// Returns the newest call of that id: some providers repeat ids.
    fn tool(&mut self, id: &str) -> Option<&mut Block> {
        let mut newest = self.blocks.iter_mut().rev();
        newest.find(|block| block.is_call(id))
    }

    /// Removes all blocks, and returns the notices among them.
    pub(crate) fn take_notices(&mut self) -> Vec<(Tone, String)> {
        let blocks = std::mem::take(&mut self.blocks).into_iter();
        let notices = blocks.filter_map(|block| match block.kind {
            Kind::Notice { tone, text, .. } => Some((tone, text)),
            _ => None,
        });
        notices.collect()
    }

    /// Adds a notice, or counts a repeated failure. A completion that is being streamed continues after the notice.
    pub(crate) fn notice(&mut self, tone: Tone, text: &str) {
        let is_failure = matches!(tone, Tone::Warning | Tone::Error);
        if let Some(last) = self.blocks.last_mut().filter(|_| is_failure)
            && last.count_repeat(tone, text)
        {
            return;
        }
        let interrupts = |last: &Block| last.is_open() && matches!(last.kind, Kind::Answer(_));
        let goes_on = self.continues_answer || self.blocks.last().is_some_and(interrupts);
        self.settle();
        self.continues_answer = goes_on;
        self.push(Kind::Notice {
            tone,
            text: text.to_owned(),
            times: 1,
        });
    }

    /// Ends the current completion: nothing is added to it any more.
    pub(crate) fn settle(&mut self) {
        self.continues_answer = false;
        if let Some(last) = self.blocks.last_mut() {
            last.settle();
        }
    }

    /// Ends all blocks: none of them changes any more.
    pub(crate) fn seal(&mut self) {
        self.continues_answer = false;
        for block in &mut self.blocks {
            block.seal();
        }
    }

    /// Marks blocks as retracted.
    pub(crate) fn retract(&mut self, blocks: Range<usize>) {
        let mut says_so = true;
        let count = blocks.len();
        for block in self.blocks.iter_mut().skip(blocks.start).take(count) {
            says_so &= !block.retract(says_so);
        }
    }

    fn push(&mut self, kind: Kind) {
        self.blocks.push(Block::settled(kind));
    }

    fn push_open(&mut self, kind: Kind, part: Continuation) {
        self.blocks.push(Block::open(kind, part));
    }
}

/// Splits a long text into pieces as they would arrive.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut left = text;
    std::iter::from_fn(move || {
        let end = left.floor_char_boundary(split::SOFT_PART_LIMIT);
        let (piece, rest) = left.split_at(end);
        left = rest;
        (!piece.is_empty()).then_some(piece)
    })
}
