//! What was said and done, as blocks, and which of it is on the screen.
//!
//! A block is laid out when it is first seen at a width, and again only when it has changed. The place on the screen is a
//! block and a line in it, so that a transcript of any length costs what its visible part costs.
//! Invariants: what is being read does not move while more comes in; nothing of a retracted answer looks like an answer.
//! Not here: what a block looks like (`transcript/block.rs`).

mod block;
#[cfg(test)]
mod tests;

use super::theme::Theme;
use block::{Block, Shown};
pub(crate) use block::{Kind, Tone, ToolState};
use outlast_dialect::{Message, Part, Role};
use outlast_kernel::event::ToolCall;
use ratatui::text::Line;

/// A part of an answer that is longer is settled where a paragraph ends, so that what still comes in costs little.
const LONG_PART: usize = 4 << 10;

#[derive(Default)]
pub(crate) struct Transcript {
    blocks: Vec<Block>,
    /// The first line on the screen; nothing while the end is followed.
    top: Option<Place>,
    /// By how many lines it is to move when it is next drawn.
    pending: isize,
    shows_tools: bool,
    shows_thoughts: bool,
    height: u16,
    /// The blocks on the rows of the screen, as they were drawn last.
    rows: Vec<usize>,
    /// How many blocks were laid out so far.
    laid_out: usize,
}

/// A line of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    block: usize,
    line: usize,
}

const BEGINNING: Place = Place { block: 0, line: 0 };

// --- What is in it ---

impl Transcript {
    /// A conversation that was.
    pub(crate) fn of(messages: &[Message]) -> Self {
        let mut transcript = Self::default();
        for message in messages {
            for part in &message.parts {
                transcript.part(message.role, part);
            }
            transcript.settle();
        }
        transcript
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

    /// The blocks from that one on that nothing is added to any more.
    pub(crate) fn settled_from(&self, from: usize) -> impl Iterator<Item = (usize, &Kind, bool)> {
        let blocks = self.blocks.iter().enumerate().skip(from);
        let settled = blocks.take_while(|(_, block)| !block.is_open());
        settled.map(|(number, block)| (number, &block.kind, block.is_retracted))
    }

    pub(crate) fn user(&mut self, text: &str) {
        self.settle();
        self.push(Kind::User(text.to_owned()));
    }

    /// More of an answer.
    pub(crate) fn answer(&mut self, text: &str) {
        if let Some(last) = self.blocks.last_mut()
            && last.extends(|kind| matches!(kind, Kind::Answer(_)), text)
        {
            if let Some(rest) = last.split(LONG_PART) {
                self.push_open(Kind::Answer(rest));
            }
            return;
        }
        self.settle();
        // Blanks before the first word are not yet an answer.
        if !text.trim().is_empty() {
            self.push_open(Kind::Answer(text.trim_start_matches('\n').to_owned()));
        }
    }

    /// More of what the model thinks.
    pub(crate) fn thought(&mut self, text: &str) {
        if let Some(last) = self.blocks.last_mut()
            && last.extends(|kind| matches!(kind, Kind::Thought(_)), text)
        {
            return;
        }
        if !text.trim().is_empty() {
            self.settle();
            self.push_open(Kind::Thought(text.to_owned()));
        }
    }

    pub(crate) fn call(&mut self, call: &ToolCall) {
        self.settle();
        self.push_open(Kind::tool(call));
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

    /// The newest call of that id: some providers give the same one twice.
    fn tool(&mut self, id: &str) -> Option<&mut Block> {
        let mut newest = self.blocks.iter_mut().rev();
        newest.find(|block| block.is_call(id))
    }

    /// Says something. The same again is counted.
    pub(crate) fn notice(&mut self, tone: Tone, text: &str) {
        if let Some(last) = self.blocks.last_mut()
            && last.repeats(tone, text)
        {
            return;
        }
        self.push(Kind::Notice {
            tone,
            text: text.to_owned(),
            times: 1,
        });
    }

    /// Nothing is added to an answer any more.
    pub(crate) fn settle(&mut self) {
        if let Some(last) = self.blocks.last_mut() {
            last.settle();
        }
    }

    /// What came from that block on does not count.
    pub(crate) fn retract(&mut self, from: usize) {
        for block in self.blocks.iter_mut().skip(from) {
            block.retract();
        }
    }

    fn push(&mut self, kind: Kind) {
        self.blocks.push(Block::settled(kind));
    }

    fn push_open(&mut self, kind: Kind) {
        self.blocks.push(Block::open(kind));
    }
}

// --- What of it is shown ---

impl Transcript {
    pub(crate) fn scroll(&mut self, lines: isize) {
        self.pending = self.pending.saturating_add(lines);
    }

    pub(crate) fn go_to_beginning(&mut self) {
        (self.top, self.pending) = (Some(BEGINNING), 0);
    }

    pub(crate) fn go_to_end(&mut self) {
        (self.top, self.pending) = (None, 0);
    }

    /// Whether the newest line is on the screen, and stays there.
    pub(crate) fn follows_end(&self) -> bool {
        self.top.is_none()
    }

    pub(crate) fn height(&self) -> usize {
        self.height.into()
    }

    pub(crate) fn expand_tools(&mut self) {
        self.shows_tools = !self.shows_tools;
    }

    pub(crate) fn show_thoughts(&mut self) {
        self.shows_thoughts = !self.shows_thoughts;
    }

    /// Shows all of the block on that row, or less of it.
    pub(crate) fn toggle_row(&mut self, row: u16) {
        let block = self.rows.get(usize::from(row)).copied();
        if let Some(block) = block.and_then(|block| self.blocks.get_mut(block)) {
            block.toggle();
        }
    }

    /// The lines that are on a screen of that size.
    pub(crate) fn visible(
        &mut self,
        (width, height): (u16, u16),
        theme: &Theme,
    ) -> Vec<Line<'static>> {
        self.height = height;
        self.rows.clear();
        let look = Look { width, theme };
        let end = self.last_top(height.into(), &look);
        let top = self.top.map_or(end, |top| self.within(top, &look));
        let top = match std::mem::take(&mut self.pending) {
            up @ ..0 => self.above(top, up.unsigned_abs(), &look),
            down => self.below(top, down.unsigned_abs(), &look),
        };
        self.top = (top < end).then_some(top);
        self.lines_from(top.min(end), height.into(), &look)
    }

    fn lines_from(&mut self, top: Place, height: usize, look: &Look<'_>) -> Vec<Line<'static>> {
        let mut lines = Vec::with_capacity(height);
        let mut skipped = top.line;
        for number in top.block..self.blocks.len() {
            for line in self.laid(number, look).iter().skip(skipped) {
                lines.push(line.clone());
            }
            self.rows.resize(lines.len(), number);
            skipped = 0;
            if lines.len() >= height {
                break;
            }
        }
        lines.truncate(height);
        lines
    }

    /// The first line when the last one is at the bottom.
    fn last_top(&mut self, height: usize, look: &Look<'_>) -> Place {
        let mut left = height;
        for block in (0..self.blocks.len()).rev() {
            let lines = self.laid(block, look).len();
            if lines >= left {
                let line = lines - left;
                return Place { block, line };
            }
            left -= lines;
        }
        BEGINNING
    }

    /// The place, in a transcript whose blocks may have become shorter.
    fn within(&mut self, place: Place, look: &Look<'_>) -> Place {
        let Some(block) = self.blocks.len().checked_sub(1) else {
            return BEGINNING;
        };
        let block = place.block.min(block);
        let line = place
            .line
            .min(self.laid(block, look).len().saturating_sub(1));
        Place { block, line }
    }

    fn above(&mut self, mut place: Place, mut lines: usize, look: &Look<'_>) -> Place {
        while lines > place.line {
            lines -= place.line;
            let Some(block) = place.block.checked_sub(1) else {
                return BEGINNING;
            };
            let line = self.laid(block, look).len();
            place = Place { block, line };
        }
        place.line -= lines;
        place
    }

    fn below(&mut self, mut place: Place, mut lines: usize, look: &Look<'_>) -> Place {
        while place.block + 1 < self.blocks.len() {
            let left = self.laid(place.block, look).len() - place.line;
            if lines < left {
                break;
            }
            lines -= left;
            place = Place {
                block: place.block + 1,
                line: 0,
            };
        }
        place.line += lines;
        place
    }

    /// The lines of a block, with the blank one before it.
    fn laid(&mut self, number: usize, look: &Look<'_>) -> &[Line<'static>] {
        let follows = number.checked_sub(1).map(|before| &self.blocks[before]);
        let shown = Shown {
            width: look.width,
            is_open: self.blocks[number].shows_all(self.shows_tools, self.shows_thoughts),
            has_space: follows.is_some_and(|before| !self.blocks[number].joins(before)),
        };
        let block = &mut self.blocks[number];
        if !block.is_laid(shown) {
            self.laid_out += 1;
            block.lay(shown, look.theme);
        }
        block.lines()
    }
}

/// What lines look like.
struct Look<'a> {
    width: u16,
    theme: &'a Theme,
}
