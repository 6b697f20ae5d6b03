//! The message editor: several lines, history, and pastes of any size.
//!
//! Invariants: a paste is never sent by itself, whatever line ends it has; a long paste is shown as a placeholder and
//! sent whole; the draft is restored after browsing the history.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use outlast_kernel::text;
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::style::Style;
use ratatui::widgets::{Clear, Widget};
use ratatui_textarea::{CursorMove, DataCursor, TextArea, WrapMode};

/// Limits in bytes and lines beyond which a paste is shown as a placeholder.
const LONG_PASTE_BYTES: usize = 1000;
const LONG_PASTE_LINES: usize = 8;
/// Maximum size of a removed paste that undo can restore.
const MAX_RESTORABLE_PASTE_BYTES: usize = 64 << 10;
/// Maximum size of a message in bytes, as with `-p -`.
pub(crate) const MAX_MESSAGE_BYTES: usize = 16 << 20;
const MAX_ROWS: u16 = 200;
/// Limits of the history, in messages and in bytes.
const MAX_HISTORY_MESSAGES: usize = 500;
const MAX_HISTORY_BYTES: usize = 4 << 20;

/// The draft with its pastes and the history.
pub(crate) struct Editor {
    area: TextArea<'static>,
    /// Long pastes, including removed ones, which undo may restore.
    pastes: Vec<Paste>,
    /// The number of the last paste.
    last_paste_number: usize,
    /// Earlier messages, the newest last.
    history: Vec<String>,
    /// The shown history entry, and the draft from before.
    history_position: Option<(usize, String)>,
}

/// A long paste: its placeholder and its content.
struct Paste {
    placeholder: String,
    content: String,
}

impl Default for Editor {
    fn default() -> Self {
        Self {
            area: area(Vec::new()),
            pastes: Vec::new(),
            last_paste_number: 0,
            history: Vec::new(),
            history_position: None,
        }
    }
}

fn area(lines: Vec<String>) -> TextArea<'static> {
    let mut area = TextArea::new(lines);
    area.set_wrap_mode(WrapMode::WordOrGlyph);
    // The terminal's own cursor is shown, because screen readers and input methods look for it.
    area.set_cursor_style(Style::default());
    area.set_cursor_line_style(Style::default());
    area
}

impl Editor {
    /// Returns the draft as it is shown.
    pub(crate) fn text(&self) -> String {
        self.area.lines().join("\n")
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.area.is_empty()
    }

    /// Replaces the draft.
    pub(crate) fn set(&mut self, text: &str) {
        self.area = area(text.split('\n').map(str::to_owned).collect());
        self.area.move_cursor(CursorMove::Bottom);
        self.area.move_cursor(CursorMove::End);
    }

    /// Clears the draft.
    pub(crate) fn clear(&mut self) {
        self.area = area(Vec::new());
        self.pastes.clear();
        self.last_paste_number = 0;
        self.history_position = None;
    }

    /// Inserts texts before the draft; long ones become placeholders.
    pub(crate) fn prepend(&mut self, texts: &[String]) {
        self.history_position = None;
        let texts = texts.iter().map(|text| match is_long(text) {
            true => self.add_placeholder(text.clone()),
            false => text.clone(),
        });
        let mut all: Vec<String> = texts.collect();
        all.push(self.text());
        all.retain(|text| !text.is_empty());
        self.set(&all.join("\n"));
    }

    /// Takes the draft, with placeholders replaced by their pastes.
    pub(crate) fn take(&mut self) -> String {
        let shown = self.text();
        let text = self.expand_pastes(&shown);
        self.clear();
        self.add_to_history(&text);
        text
    }

    fn expand_pastes(&self, shown: &str) -> String {
        let (mut whole, mut left) = (String::new(), shown);
        let mut pastes: Vec<&Paste> = self.pastes.iter().collect();
        // Only placeholders in the shown text count: a paste may contain the words of another placeholder.
        loop {
            let found = pastes.iter().enumerate();
            let found =
                found.filter_map(|(number, paste)| Some((left.find(&paste.placeholder)?, number)));
            let Some((at, number)) = found.min() else {
                break;
            };
            let paste = pastes.remove(number);
            whole.push_str(&left[..at]);
            whole.push_str(&paste.content);
            left = &left[at + paste.placeholder.len()..];
        }
        whole.push_str(left);
        whole
    }

    /// Adds a message to the history.
    pub(crate) fn add_to_history(&mut self, text: &str) {
        let is_new = self.history.last().is_none_or(|last| last != text);
        if !is_new || text.trim().is_empty() || text.len() > MAX_HISTORY_BYTES {
            return;
        }
        self.history.push(text.to_owned());
        let mut bytes = 0;
        let fits = |said: &&String| {
            bytes += said.len();
            bytes <= MAX_HISTORY_BYTES
        };
        let newest = self.history.iter().rev().take(MAX_HISTORY_MESSAGES);
        let kept = newest.take_while(fits).count();
        self.history.drain(..self.history.len() - kept);
    }

    /// Whether a history entry is shown.
    pub(crate) const fn is_browsing_history(&self) -> bool {
        self.history_position.is_some()
    }

    /// Adds older messages to the history.
    pub(crate) fn prepend_history(&mut self, mut said: Vec<String>) {
        said.append(&mut self.history);
        for text in said {
            self.add_to_history(&text);
        }
    }

    /// Inserts a paste; the error says why it was refused.
    pub(crate) fn paste(&mut self, pasted: &str) -> Result<(), String> {
        let pasted = pasted.replace("\r\n", "\n").replace('\r', "\n");
        let content = text::plain(&pasted).into_owned();
        let shown = self.text();
        self.drop_removed_pastes(&shown);
        let held: usize = self.pastes.iter().map(|paste| paste.content.len()).sum();
        if held + shown.len() + content.len() > MAX_MESSAGE_BYTES {
            let most = MAX_MESSAGE_BYTES >> 20;
            return Err(format!(
                "that is more than the {most} MiB a message may have; put it into a file and name that"
            ));
        }
        self.history_position = None;
        let shown = match is_long(&content) {
            true => self.add_placeholder(content),
            false => content,
        };
        self.area.insert_str(&shown);
        Ok(())
    }

    /// Stores a text and returns its placeholder.
    fn add_placeholder(&mut self, content: String) -> String {
        self.last_paste_number += 1;
        let number = self.last_paste_number;
        let size = match content.len() {
            bytes @ 0..1024 => format!("{bytes} bytes"),
            bytes => format!("{} KiB", bytes.div_ceil(1024)),
        };
        let lines = match content.lines().count() {
            1 => "1 line".to_owned(),
            lines => format!("{lines} lines"),
        };
        let words = format!("[pasted text {number}: {size}, {lines}]");
        self.pastes.push(Paste {
            placeholder: words.clone(),
            content,
        });
        words
    }

    /// Drops removed pastes that are too large to be restored by undo.
    fn drop_removed_pastes(&mut self, shown: &str) {
        let before = self
            .history_position
            .as_ref()
            .map(|(_, before)| before.as_str());
        let is_there = |paste: &Paste| {
            let is_shown = shown.contains(&paste.placeholder);
            is_shown || before.is_some_and(|before| before.contains(&paste.placeholder))
        };
        let is_small = |paste: &Paste| paste.content.len() <= MAX_RESTORABLE_PASTE_BYTES;
        self.pastes
            .retain(|paste| is_small(paste) || is_there(paste));
    }

    pub(crate) fn key(&mut self, key: KeyEvent) {
        let plain = key.modifiers.is_empty();
        match key.code {
            KeyCode::Up if plain && self.area.screen_cursor().row == 0 => self.show_previous(),
            KeyCode::Down if plain && self.is_on_last_row() => self.show_next(),
            KeyCode::Backspace if plain && self.remove_paste() => {}
            KeyCode::Home if plain => self.area.move_cursor(CursorMove::Head),
            KeyCode::End if plain => self.area.move_cursor(CursorMove::End),
            KeyCode::Char('u') if key.modifiers == KeyModifiers::CONTROL => {
                self.area.delete_line_by_head();
            }
            KeyCode::Char('z') if key.modifiers == KeyModifiers::ALT => {
                self.area.undo();
            }
            _ => self.edit(key),
        }
    }

    /// Edits the text. A changed history entry becomes the draft; the previous draft joins the history.
    fn edit(&mut self, key: KeyEvent) {
        let is_changed = self.area.input(key);
        if let Some((_, before)) = self.history_position.take_if(|_| is_changed) {
            let before = self.expand_pastes(&before);
            self.add_to_history(&before);
        }
    }

    pub(crate) fn new_line(&mut self) {
        self.area.insert_newline();
    }

    /// Removes a backslash before Enter, which inserts a line in terminals without another key for that.
    pub(crate) fn take_backslash(&mut self) -> bool {
        let DataCursor(row, column) = self.area.cursor();
        let before = self.area.lines()[row].chars().nth(column.wrapping_sub(1));
        let is_one = column > 0 && before == Some('\\');
        if is_one {
            self.area.delete_char();
        }
        is_one
    }

    fn is_on_last_row(&self) -> bool {
        let row = self.area.screen_cursor().row;
        // The widget reports the last row for a row beyond the end.
        let begins = |row: usize| self.area.screen_to_data(row, 0);
        begins(row) == begins(row + 1)
    }

    /// Removes a placeholder as a whole.
    fn remove_paste(&mut self) -> bool {
        let DataCursor(row, column) = self.area.cursor();
        let line = self.area.lines()[row].clone();
        let before: String = line.chars().take(column).collect();
        let Some(at) = self
            .pastes
            .iter()
            .position(|paste| before.ends_with(&paste.placeholder))
        else {
            return false;
        };
        for _ in self.pastes[at].placeholder.chars() {
            self.area.delete_char();
        }
        true
    }

    fn show_previous(&mut self) {
        let at = match &self.history_position {
            Some((at, _)) => *at,
            None => self.history.len(),
        };
        let Some(earlier) = at.checked_sub(1) else {
            self.area.move_cursor(CursorMove::Head);
            return;
        };
        let before = match self.history_position.take() {
            Some((_, before)) => before,
            None => self.text(),
        };
        self.history_position = Some((earlier, before));
        self.show_history_entry(earlier);
    }

    fn show_next(&mut self) {
        let Some((at, before)) = self.history_position.take() else {
            self.area.move_cursor(CursorMove::End);
            return;
        };
        if at + 1 < self.history.len() {
            self.history_position = Some((at + 1, before));
            self.show_history_entry(at + 1);
        } else {
            self.set(&before);
        }
    }

    /// Shows a history entry; a long one becomes a placeholder.
    fn show_history_entry(&mut self, at: usize) {
        let said = self.history[at].clone();
        self.drop_removed_pastes("");
        let shown = match is_long(&said) {
            true => self.add_placeholder(said),
            false => said,
        };
        self.set(&shown);
    }

    /// Returns the rows that the text needs at that width.
    pub(crate) fn rows(&self, width: u16) -> u16 {
        // More rows than a screen has need not be counted.
        let lines = self.area.lines().iter().take(MAX_ROWS.into());
        let probe = area(lines.cloned().collect());
        let place = Rect::new(0, 0, text_columns(width), 1);
        (&probe).render(place, &mut Buffer::empty(place));
        // The widget reports the last row for a row beyond the end.
        let begins = |row: u16| probe.screen_to_data(row.into(), 0);
        let is_last = |row: &u16| begins(*row) == begins(row + 1);
        (0..MAX_ROWS).find(is_last).map_or(MAX_ROWS, |row| row + 1)
    }

    /// Draws the text, and returns the position of the cursor.
    pub(crate) fn draw(&mut self, area: Rect, buffer: &mut Buffer) -> Position {
        let place = Rect {
            width: text_columns(area.width),
            ..area
        };
        (&self.area).render(place, buffer);
        // A screen that has grown has room for rows that were scrolled away.
        let (top, rows) = (self.area.scroll_offset().0, self.rows(area.width));
        let empty = (top + area.height).saturating_sub(rows).min(top);
        if let (1.., Ok(empty)) = (empty, i16::try_from(empty))
            && rows < MAX_ROWS
        {
            self.area.scroll((-empty, 0));
            Clear.render(place, buffer);
            (&self.area).render(place, buffer);
        }
        let at = self.area.screen_cursor();
        let (top, left) = self.area.scroll_offset();
        let place = |at: usize, offset: u16, (start, length): (u16, u16)| {
            let at = u16::try_from(at).unwrap_or(u16::MAX).saturating_sub(offset);
            start.saturating_add(at.min(length.saturating_sub(1)))
        };
        Position {
            x: place(at.col, left, (area.x, area.width)),
            y: place(at.row, top, (area.y, area.height)),
        }
    }
}

/// Returns the columns for text: the last one is for a cursor after it.
fn text_columns(width: u16) -> u16 {
    width.saturating_sub(1).max(1)
}

fn is_long(text: &str) -> bool {
    text.len() > LONG_PASTE_BYTES || text.lines().count() > LONG_PASTE_LINES
}

#[cfg(test)]
#[path = "editor_tests.rs"]
mod tests;
