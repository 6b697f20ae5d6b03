//! Draws a chat on a screen of any size.
//!
//! Invariants: the editor, the current wait and the open question are visible on the smallest screen; external text
//! reaches a cell only after it was cleaned.

use super::activity::ActivityText;
use super::chat::{Chat, PendingQuestion};
use super::theme::Theme;
use super::wrap::{Indent, truncated, wrapped};
use crate::output::approval::{self, Extent};
use outlast_kernel::{Timestamp, text};
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Widget};
use std::borrow::Cow;

const MAX_CHOICES: usize = 10;
const MAX_QUEUED: usize = 3;
const MAX_ACTIVITY_ROWS: u16 = 3;
const MAX_QUEUED_BYTES: usize = 1000;
const PROMPT: &str = "› ";
/// The prefix of the model's own text in a question.
const BAR: &str = "  │ ";
const MIN_PROMPT_WIDTH: u16 = 6;

pub(crate) fn draw(frame: &mut Frame<'_>, chat: &mut Chat, theme: &Theme, now: Timestamp) {
    let area = frame.area();
    if area.is_empty() {
        return;
    }
    let mut above = Panels::new(chat, area, theme, now);
    let rows = Rows::allocate(chat, &above, area);
    if let (Some(asked), Some(asking)) = (&mut chat.question, &mut above.question) {
        asked.page = asking.visible_lines(rows.question);
        asked.top = asked.top.min(asking.text.len().saturating_sub(asked.page));
        asking.top = asked.top;
    }
    let lines = chat
        .transcript
        .visible((area.width, rows.transcript), theme);
    let mut at = area.y;
    let mut show = |frame: &mut Frame<'_>, lines: &[Line<'static>], height: u16| {
        let area = Rect {
            y: at,
            height,
            ..area
        };
        let shown = lines.iter().take(height.into()).cloned();
        Paragraph::new(shown.collect::<Vec<_>>()).render(area, frame.buffer_mut());
        at += height;
    };
    show(frame, &lines, rows.transcript);
    show(frame, &above.queued, rows.queued);
    let question = above.question.as_ref();
    let question = question.map(|it| it.fit_to_rows(rows.question, area.width, theme));
    show(frame, &question.unwrap_or_default(), rows.question);
    show(frame, &above.activity, rows.activity);
    show(frame, &[rule(chat, area.width, theme)], rows.rule);
    show(
        frame,
        &choices(chat, area.width, rows.choices, theme),
        rows.choices,
    );
    let editor_at = at;
    let status = Line::styled(status(chat, area.width), theme.faint);
    let place = Rect {
        y: editor_at,
        height: rows.editor,
        ..area
    };
    draw_editor(frame, chat, place, theme);
    let place = Rect {
        y: editor_at + rows.editor,
        height: rows.status,
        ..area
    };
    Paragraph::new(truncated(&status, area.width)).render(place, frame.buffer_mut());
}

/// The parts between the transcript and the editor.
struct Panels {
    queued: Vec<Line<'static>>,
    question: Option<QuestionPanel>,
    activity: Vec<Line<'static>>,
}

impl Panels {
    fn new(chat: &Chat, area: Rect, theme: &Theme, now: Timestamp) -> Self {
        let width = area.width;
        let queued = queued(&chat.queued).map(|said| {
            let said = text::plain(&said).replace('\n', " ⏎ ");
            truncated(&Line::styled(format!("» {said}"), theme.faint), width)
        });
        let asked = chat.question.as_ref();
        let question = asked.map(|asked| QuestionPanel::new(chat, asked, width, theme));
        // The question replaces the activity line, because Esc then answers no.
        let activity = match asked {
            Some(_) => Vec::new(),
            None => activity_lines(chat, area, theme, now),
        };
        Self {
            queued: queued.collect(),
            question,
            activity,
        }
    }
}

/// Returns the activity line at the length that fits.
fn activity_lines(chat: &Chat, area: Rect, theme: &Theme, now: Timestamp) -> Vec<Line<'static>> {
    let Some(said) = chat.activity.describe(now) else {
        return Vec::new();
    };
    let ActivityText {
        text,
        mut details,
        key,
        short,
    } = said;
    // While there is a draft, the key types a letter.
    if let Some(key) = key.filter(|_| chat.editor.is_empty()) {
        details.push_str(&format!(" · {key}"));
    }
    let words = Span::styled(text, theme.accent);
    let ways = [
        Line::from(vec![words.clone(), Span::styled(details, theme.faint)]),
        Line::from(words),
    ];
    let rows = usize::from((area.height / 2).clamp(1, MAX_ACTIVITY_ROWS));
    let ways = ways.map(|line| wrapped(&line, area.width, &Indent::default()));
    let fitting = ways.into_iter().find(|lines| lines.len() <= rows);
    fitting.unwrap_or_else(|| vec![truncated(&Line::styled(short, theme.accent), area.width)])
}

/// Returns the queued messages, or how many more there are.
fn queued(all: &[String]) -> impl Iterator<Item = Cow<'_, str>> {
    let shown = match all.len() {
        ..=MAX_QUEUED => MAX_QUEUED,
        _ => MAX_QUEUED - 1,
    };
    let more = all.len().saturating_sub(shown);
    let more = (more > 0).then(|| Cow::Owned(format!("… and {more} more")));
    // Each message gets one line, so its beginning is enough.
    let first = all.iter().take(shown);
    first
        .map(|said| text::bounded(said, MAX_QUEUED_BYTES))
        .chain(more)
}

/// The rows of each part.
struct Rows {
    transcript: u16,
    queued: u16,
    question: u16,
    activity: u16,
    rule: u16,
    choices: u16,
    editor: u16,
    status: u16,
}

impl Rows {
    /// Assigns rows by priority; the transcript gets the rest.
    fn allocate(chat: &Chat, above: &Panels, area: Rect) -> Self {
        let mut left = area.height;
        let mut take = |wanted: usize, most: u16| {
            let rows = u16::try_from(wanted).unwrap_or(u16::MAX);
            let rows = rows.min(most).min(left);
            left -= rows;
            rows
        };
        let height = area.height;
        let room = area.width - prompt_width(area.width);
        let editor = take(chat.editor.rows(room).into(), (height / 3).max(1));
        let activity = take(above.activity.len(), MAX_ACTIVITY_ROWS);
        let question = above.question.as_ref().map_or(0, QuestionPanel::rows);
        let question = take(question, (height / 2).max(3));
        let choices = chat.choices.items.len().min(MAX_CHOICES);
        let choices = take(choices, height / 2);
        let status = take(1, u16::from(height > 3));
        let rule = take(1, u16::from(height > 7));
        let queued = take(above.queued.len(), height / 4);
        Self {
            transcript: left,
            queued,
            question,
            activity,
            rule,
            choices,
            editor,
            status,
        }
    }
}

/// On narrow screens the prompt gives way to the text.
fn prompt_width(width: u16) -> u16 {
    if width < MIN_PROMPT_WIDTH { 0 } else { 2 }
}

fn draw_editor(frame: &mut Frame<'_>, chat: &mut Chat, place: Rect, theme: &Theme) {
    let prompt = Rect {
        width: prompt_width(place.width),
        height: place.height.min(1),
        ..place
    };
    Paragraph::new(Span::styled(PROMPT, theme.accent)).render(prompt, frame.buffer_mut());
    let room = Rect {
        x: place.x + prompt.width,
        width: place.width - prompt.width,
        ..place
    };
    if !room.is_empty() {
        let cursor = chat.editor.draw(room, frame.buffer_mut());
        frame.set_cursor_position(cursor);
    }
}

/// Returns the line between the transcript and the editor.
fn rule(chat: &Chat, width: u16, theme: &Theme) -> Line<'static> {
    let more = match chat.transcript.follows_end() {
        true => "",
        false => " more below: ctrl-end ",
    };
    let left = usize::from(width).saturating_sub(more.len());
    let line = Line::styled(format!("{}{more}", "─".repeat(left)), theme.border);
    truncated(&line, width)
}

fn status(chat: &Chat, width: u16) -> String {
    match chat.hint {
        Some(hint) => hint.to_owned(),
        None => text::plain(&chat.status.line(width.into())).into_owned(),
    }
}

fn choices(chat: &Chat, width: u16, rows: u16, theme: &Theme) -> Vec<Line<'static>> {
    let rows = usize::from(rows);
    let choices = &chat.choices;
    // Scrolls so that the selected choice is visible.
    let first = (choices.selected + 1).saturating_sub(rows);
    let shown = choices.items.iter().enumerate().skip(first).take(rows);
    shown
        .map(|(number, item)| {
            let style = match number == choices.selected {
                true => theme.selected,
                false => theme.text,
            };
            let name = text::plain(&item.name).into_owned();
            let about = text::plain(&item.description).replace('\n', " ");
            let line = match about.is_empty() {
                true => Line::from(Span::styled(format!("  {name}"), style)),
                false => Line::from(vec![
                    Span::styled(format!("  {name:<22}"), style),
                    Span::styled(format!(" {about}"), theme.faint),
                ]),
            };
            truncated(&line, width)
        })
        .collect()
}

/// A question: the action to approve, and the keys.
struct QuestionPanel {
    text: Vec<Line<'static>>,
    keys: Vec<Line<'static>>,
    /// The keys in a short form.
    short: &'static str,
    /// The first visible line.
    top: usize,
}

impl QuestionPanel {
    fn new(chat: &Chat, asked: &PendingQuestion, width: u16, theme: &Theme) -> Self {
        let shown = approval::QuestionText::new(&asked.question, Extent::Full);
        let heading = Line::styled(format!("? {}", shown.line), theme.warning);
        let mut what = wrapped(&heading, width, &Indent::default());
        for detail in shown.details.lines() {
            // The whole text is shown, however narrow the screen is.
            let (bar, detail) = match detail.strip_prefix(BAR) {
                Some(detail) => (BAR, detail),
                None => ("", detail),
            };
            let indent = Indent::uniform(vec![Span::styled(bar, theme.text)]);
            let line = Line::styled(detail.to_owned(), theme.text);
            what.extend(wrapped(&line, width, &indent));
        }
        let (keys, short) = match chat.editor.is_empty() {
            true => ("y yes · n or esc no · A", "y/n/A?"),
            false => ("alt-y yes · alt-n or esc no · alt-a", "alt-y/n/a?"),
        };
        let always = &asked.question.permission;
        let keys = format!("  run it? {keys} always allow {always}");
        let keys = Line::styled(text::plain(&keys).replace('\n', " "), theme.accent);
        let keys = wrapped(&keys, width, &Indent::default());
        let top = asked.top;
        Self {
            text: what,
            keys,
            short,
            top,
        }
    }

    fn rows(&self) -> usize {
        self.text.len() + self.keys.len()
    }

    /// Returns the number of lines that fit beside a note and the keys when there are too few rows.
    fn visible_lines(&self, rows: u16) -> usize {
        let rows = usize::from(rows);
        let keys = match rows > self.keys.len() + 1 {
            true => self.keys.len(),
            false => 1,
        };
        rows.saturating_sub(keys + 1).max(1)
    }

    /// Returns the visible lines. With too few rows these are its beginning, its end and the keys, because the
    /// important part may be anywhere; or the part that the user scrolled to.
    fn fit_to_rows(&self, rows: u16, width: u16, theme: &Theme) -> Vec<Line<'static>> {
        let rows = usize::from(rows);
        if self.rows() <= rows {
            return self.text.iter().chain(&self.keys).cloned().collect();
        }
        let keys = match rows > self.keys.len() + 1 {
            true => self.keys.clone(),
            false => vec![truncated(&Line::styled(self.short, theme.accent), width)],
        };
        let room = rows.saturating_sub(keys.len()).max(1);
        let note = |text: String| truncated(&Line::styled(text, theme.faint), width);
        let all = self.text.len();
        if all <= room || room == 1 {
            let first = self.text.iter().take(room).cloned();
            return first.chain(keys).take(rows).collect();
        }
        let shown = room - 1;
        let what: Vec<Line<'static>> = match self.top {
            0 => {
                let left = all - shown;
                let between = note(format!("  … {left} more lines: PageDown shows them"));
                let first = self.text.iter().take(shown - shown / 2).cloned();
                let last = self.text.iter().skip(all - shown / 2).cloned();
                first.chain([between]).chain(last).collect()
            }
            top => {
                let end = top + shown;
                let place = note(format!("  lines {} to {end} of {all}", top + 1));
                let part = self.text.iter().skip(top).take(shown).cloned();
                part.chain([place]).collect()
            }
        };
        what.into_iter().chain(keys).take(rows).collect()
    }
}

#[cfg(test)]
#[path = "view_tests.rs"]
mod tests;
