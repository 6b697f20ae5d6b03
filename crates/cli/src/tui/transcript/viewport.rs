//! The visible lines of a transcript.
//!
//! Invariant: a frame lays out only the visible blocks and those that it moves past.

use crate::tui::theme::Theme;
use crate::tui::transcript::block::Layout;
use crate::tui::transcript::{BEGINNING, LinePosition, Transcript};
use ratatui::text::Line;

/// Maximum number of cached blocks, and the number on each side of the screen that eviction keeps.
pub(in crate::tui::transcript) const MAX_CACHED_BLOCKS: usize = 1000;
const CACHED_MARGIN: usize = 200;

impl Transcript {
    pub(crate) fn scroll(&mut self, lines: isize) {
        self.pending_scroll = self.pending_scroll.saturating_add(lines);
    }

    pub(crate) fn go_to_beginning(&mut self) {
        (self.top, self.pending_scroll) = (Some(BEGINNING), 0);
    }

    pub(crate) fn go_to_end(&mut self) {
        (self.top, self.pending_scroll) = (None, 0);
    }

    /// Whether the view follows the newest line.
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

    /// Expands or collapses the block on that row.
    pub(crate) fn toggle_row(&mut self, row: u16) {
        let block = self.rows.get(usize::from(row)).copied();
        if let Some(block) = block.and_then(|block| self.blocks.get_mut(block)) {
            block.toggle();
        }
    }

    /// Returns the lines on a screen of that size.
    pub(crate) fn visible(
        &mut self,
        (width, height): (u16, u16),
        theme: &Theme,
    ) -> Vec<Line<'static>> {
        self.height = height;
        self.rows.clear();
        let look = RenderContext { width, theme };
        let end = self.top_at_end(height.into(), &look);
        let top = self.top.map_or(end, |top| self.clamp_position(top, &look));
        let top = match std::mem::take(&mut self.pending_scroll) {
            up @ ..0 => self.above(top, up.unsigned_abs(), &look),
            down => self.below(top, down.unsigned_abs(), &look),
        };
        self.top = (top < end).then_some(top);
        self.first_cut_block = None;
        let lines = self.lines_from(top.min(end), height.into(), &look);
        self.evict_layouts(top.min(end), end);
        lines
    }

    /// Drops cached lines far from the screen and from the end.
    fn evict_layouts(&mut self, top: LinePosition, end: LinePosition) {
        if self.laid_out_blocks.len() <= MAX_CACHED_BLOCKS {
            return;
        }
        let bottom = self.rows.last().copied().unwrap_or(top.block);
        let near = top.block.saturating_sub(CACHED_MARGIN)..=bottom.saturating_add(CACHED_MARGIN);
        self.laid_out_blocks.sort_unstable();
        self.laid_out_blocks.dedup();
        let blocks = &mut self.blocks;
        self.laid_out_blocks.retain(|number| {
            let is_kept = near.contains(number) || *number >= end.block;
            if !is_kept && let Some(block) = blocks.get_mut(*number) {
                block.drop_layout();
            }
            is_kept
        });
    }

    fn lines_from(
        &mut self,
        top: LinePosition,
        height: usize,
        look: &RenderContext<'_>,
    ) -> Vec<Line<'static>> {
        let mut lines = Vec::with_capacity(height);
        let mut skipped = top.line;
        for number in top.block..self.blocks.len() {
            for line in self.block_lines(number, look).iter().skip(skipped) {
                lines.push(line.clone());
            }
            self.rows.resize(lines.len(), number);
            skipped = 0;
            if lines.len() >= height {
                break;
            }
        }
        lines.truncate(height);
        self.rows.truncate(height);
        lines
    }

    /// Returns the first visible line when the last one is at the bottom.
    fn top_at_end(&mut self, height: usize, look: &RenderContext<'_>) -> LinePosition {
        let mut left = height;
        for block in (0..self.blocks.len()).rev() {
            let lines = self.block_lines(block, look).len();
            if lines >= left {
                let line = lines - left;
                return LinePosition { block, line };
            }
            left -= lines;
        }
        BEGINNING
    }

    /// Clamps a position, because blocks may have become shorter.
    fn clamp_position(&mut self, place: LinePosition, look: &RenderContext<'_>) -> LinePosition {
        let Some(block) = self.blocks.len().checked_sub(1) else {
            return BEGINNING;
        };
        // The rest of a split block is in the next one.
        if self.first_cut_block == Some(place.block) {
            let block = place.block;
            return self.below(LinePosition { block, line: 0 }, place.line, look);
        }
        let block = place.block.min(block);
        let line = place
            .line
            .min(self.block_lines(block, look).len().saturating_sub(1));
        LinePosition { block, line }
    }

    fn above(
        &mut self,
        mut place: LinePosition,
        mut lines: usize,
        look: &RenderContext<'_>,
    ) -> LinePosition {
        while lines > place.line {
            lines -= place.line;
            let Some(block) = place.block.checked_sub(1) else {
                return BEGINNING;
            };
            let line = self.block_lines(block, look).len();
            place = LinePosition { block, line };
        }
        place.line -= lines;
        place
    }

    fn below(
        &mut self,
        mut place: LinePosition,
        mut lines: usize,
        look: &RenderContext<'_>,
    ) -> LinePosition {
        while place.block + 1 < self.blocks.len() {
            let left = self.block_lines(place.block, look).len() - place.line;
            if lines < left {
                break;
            }
            lines -= left;
            place = LinePosition {
                block: place.block + 1,
                line: 0,
            };
        }
        place.line += lines;
        place
    }

    /// Returns the lines of a block, with the blank one before it.
    pub(in crate::tui::transcript) fn block_lines(
        &mut self,
        number: usize,
        look: &RenderContext<'_>,
    ) -> &[Line<'static>] {
        let follows = number.checked_sub(1).map(|before| &self.blocks[before]);
        let shown = Layout {
            width: look.width,
            is_open: self.blocks[number].is_expanded(self.shows_tools, self.shows_thoughts),
            has_space: follows.is_some_and(|before| !self.blocks[number].joins(before)),
        };
        let block = &mut self.blocks[number];
        if !block.has_layout(shown) {
            #[cfg(test)]
            {
                self.layout_stats.blocks += 1;
                self.layout_stats.bytes += block.size();
            }
            block.lay_out(shown, look.theme);
            if self.laid_out_blocks.last() != Some(&number) {
                self.laid_out_blocks.push(number);
            }
        }
        block.lines()
    }
}

/// The settings of the layout: width, theme and expanded kinds.
pub(in crate::tui::transcript) struct RenderContext<'a> {
    pub(in crate::tui::transcript) width: u16,
    pub(in crate::tui::transcript) theme: &'a Theme,
}
