//! A block of a transcript: something that was said, a call of a tool, a notice; and what it looks like.
//!
//! Invariant: whatever a block holds, it is laid out in a bounded number of lines.

use crate::terminal::markdown;
use crate::terminal::theme::Theme;
use crate::terminal::wrap::{Indent, truncated, wrapped};
use outlast_kernel::event::ToolCall;
use outlast_kernel::text;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use serde_json::Value;

/// Of what is long, so many lines are shown at first, and at most.
const FIRST_LINES: usize = 5;
const MOST_LINES: usize = 2000;
const FIRST_SAID_LINES: usize = 20;
/// As much of a text is laid out at all.
const MOST_BYTES: usize = 512 << 10;

/// Something that was said or done.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Kind {
    User(String),
    Answer(String),
    Thought(String),
    Tool(ToolUse),
    Notice {
        tone: Tone,
        text: String,
        times: u32,
    },
}

/// How something is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Plain,
    Faint,
    Warning,
    Error,
}

/// A call of a tool, and what came of it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ToolUse {
    id: String,
    name: String,
    /// What it is called with, in a line.
    summary: String,
    /// What it takes away and puts in its place, where it changes a text.
    change: Option<(String, String)>,
    pub(crate) state: ToolState,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ToolState {
    Called,
    Running,
    Ended { output: String, is_error: bool },
}

impl Kind {
    pub(crate) fn tool(call: &ToolCall) -> Self {
        let arguments: Value = serde_json::from_str(&call.arguments).unwrap_or_default();
        let text_of = |name: &str| arguments.get(name)?.as_str();
        let known = ["command", "path", "pattern"].into_iter().find_map(text_of);
        let summary = known.unwrap_or(&call.arguments);
        let change = text_of("old_text").zip(text_of("new_text"));
        let owned = |text: &str| text::bounded(text, MOST_BYTES).into_owned();
        Self::Tool(ToolUse {
            id: call.id.clone(),
            name: text::plain(&call.name).into_owned(),
            summary: owned(summary),
            change: change.map(|(old, new)| (owned(old), owned(new))),
            state: ToolState::Called,
        })
    }
}

impl ToolUse {
    /// The call, in a line.
    pub(crate) fn title(&self) -> String {
        let summary = self.summary.replace('\n', " ⏎ ");
        text::plain(&format!("{} {summary}", self.name)).into_owned()
    }
}

/// How a block is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shown {
    pub(super) width: u16,
    pub(super) is_open: bool,
    pub(super) has_space: bool,
}

#[derive(Debug)]
pub(super) struct Block {
    pub(super) kind: Kind,
    pub(super) is_retracted: bool,
    /// Whether more may come.
    is_growing: bool,
    /// Whether it is shown in another way than those of its kind.
    is_toggled: bool,
    laid: Option<(Shown, Vec<Line<'static>>)>,
}

impl Block {
    pub(super) const fn settled(kind: Kind) -> Self {
        Self {
            kind,
            is_retracted: false,
            is_growing: false,
            is_toggled: false,
            laid: None,
        }
    }

    pub(super) fn open(kind: Kind) -> Self {
        Self {
            is_growing: true,
            ..Self::settled(kind)
        }
    }

    pub(super) const fn is_open(&self) -> bool {
        self.is_growing
    }

    // --- Changing ---

    /// Adds to the text, if it is one of that kind that still grows.
    pub(super) fn extends(&mut self, is_meant: fn(&Kind) -> bool, more: &str) -> bool {
        if !self.is_growing || !is_meant(&self.kind) {
            return false;
        }
        if let Kind::Answer(text) | Kind::Thought(text) = &mut self.kind {
            text.push_str(more);
        }
        self.laid = None;
        true
    }

    /// Settles the part of a long answer that cannot change its look any more; what follows is handed back.
    pub(super) fn split(&mut self, longest: usize) -> Option<String> {
        let Kind::Answer(text) = &mut self.kind else {
            return None;
        };
        // Looked for now and then only: within one long block of code there is no such place.
        if text.len() < longest || text.len() % longest > longest / 8 {
            return None;
        }
        let at = paragraph_end(text)?;
        let rest = text.split_off(at);
        (self.is_growing, self.laid) = (false, None);
        Some(rest)
    }

    pub(super) fn is_call(&self, id: &str) -> bool {
        matches!(&self.kind, Kind::Tool(tool) if tool.id == id)
    }

    pub(super) fn start_tool(&mut self) {
        if let Kind::Tool(tool) = &mut self.kind {
            tool.state = ToolState::Running;
            self.laid = None;
        }
    }

    pub(super) fn end_tool(&mut self, output: &str, is_error: bool) {
        if let Kind::Tool(tool) = &mut self.kind {
            let output = text::bounded(output, MOST_BYTES).into_owned();
            tool.state = ToolState::Ended { output, is_error };
            (self.is_growing, self.laid) = (false, None);
        }
    }

    /// Whether it says just that, and has counted it.
    pub(super) fn repeats(&mut self, tone: Tone, said: &str) -> bool {
        match &mut self.kind {
            Kind::Notice {
                tone: own,
                text,
                times,
            } if *own == tone && text == said => {
                *times += 1;
                self.laid = None;
                true
            }
            _ => false,
        }
    }

    /// Nothing is added any more. Tools end by themselves.
    pub(super) fn settle(&mut self) {
        self.is_growing &= matches!(self.kind, Kind::Tool(_));
    }

    pub(super) fn retract(&mut self) {
        (self.is_growing, self.laid) = (false, None);
        self.is_retracted = matches!(
            self.kind,
            Kind::Answer(_) | Kind::Thought(_) | Kind::Tool(_)
        );
    }

    pub(super) fn toggle(&mut self) {
        self.is_toggled = !self.is_toggled;
    }

    // --- Showing ---

    pub(super) const fn shows_all(&self, tools: bool, thoughts: bool) -> bool {
        let shows = match self.kind {
            Kind::Thought(_) => thoughts,
            Kind::User(_) | Kind::Answer(_) | Kind::Tool(_) | Kind::Notice { .. } => tools,
        };
        shows != self.is_toggled
    }

    /// Whether no blank line stands between the two.
    pub(super) const fn joins(&self, before: &Self) -> bool {
        matches!(
            (&before.kind, &self.kind),
            (Kind::Tool(_), Kind::Tool(_)) | (Kind::Notice { .. }, Kind::Notice { .. })
        )
    }

    pub(super) fn is_laid(&self, shown: Shown) -> bool {
        matches!(&self.laid, Some((known, _)) if *known == shown)
    }

    pub(super) fn lines(&self) -> &[Line<'static>] {
        self.laid.as_ref().map_or(&[], |(_, lines)| lines)
    }

    pub(super) fn lay(&mut self, shown: Shown, theme: &Theme) {
        let mut lines = Vec::new();
        lines.extend(shown.has_space.then(Line::default));
        let own = match &self.kind {
            Kind::User(text) => said(text, shown, theme),
            Kind::Answer(text) => markdown::lines(bounded(text), shown.width, theme),
            Kind::Thought(text) => thought(text, shown, theme),
            Kind::Tool(tool) => tool_lines(tool, shown, theme),
            Kind::Notice { tone, text, times } => {
                let times = match times {
                    1 => String::new(),
                    times => format!(" (×{times})"),
                };
                let style = tone.style(theme);
                plain_lines(&format!("{text}{times}"), shown.width, ("", style))
            }
        };
        let own = match self.is_retracted {
            true => retracted(own, shown.width, theme),
            false => own,
        };
        lines.extend(own);
        self.laid = Some((shown, lines));
    }
}

impl Tone {
    const fn style(self, theme: &Theme) -> Style {
        match self {
            Self::Plain => theme.text,
            Self::Faint => theme.faint,
            Self::Warning => theme.warning,
            Self::Error => theme.error,
        }
    }
}

/// Where the last paragraph of an answer begins, outside of blocks of code and lists.
fn paragraph_end(text: &str) -> Option<usize> {
    let mut is_code = false;
    let mut found = None;
    let (mut at, mut after_blank) = (0, false);
    for line in text.split_inclusive('\n') {
        let begins_anew = after_blank && line.starts_with(char::is_alphabetic);
        if begins_anew && !is_code && at > 0 {
            found = Some(at);
        }
        let start = line.trim_start();
        is_code ^= start.starts_with("```") || start.starts_with("~~~");
        after_blank = line.trim().is_empty();
        at += line.len();
    }
    found
}

fn bounded(text: &str) -> &str {
    match text.len() {
        ..=MOST_BYTES => text,
        _ => {
            let end = (0..=MOST_BYTES).rev().find(|at| text.is_char_boundary(*at));
            &text[..end.unwrap_or(0)]
        }
    }
}

/// Text without any structure, each line of it after a prefix.
fn plain_lines(text: &str, width: u16, (prefix, style): (&str, Style)) -> Vec<Line<'static>> {
    let indent = Indent::even(vec![Span::styled(prefix.to_owned(), style)]);
    let clean = text::plain(text);
    let lines = clean.trim_end_matches('\n').split('\n');
    lines
        .flat_map(|line| wrapped(&Line::styled(line.to_owned(), style), width, &indent))
        .collect()
}

fn said(text: &str, shown: Shown, theme: &Theme) -> Vec<Line<'static>> {
    let clean = text::plain(bounded(text));
    let most = match shown.is_open {
        true => MOST_LINES,
        false => FIRST_SAID_LINES,
    };
    let mut lines = Vec::new();
    let all = clean.trim_end_matches('\n').split('\n');
    let (first, later) = ("› ", "  ");
    let prefix = |text: &'static str| vec![Span::styled(text, theme.user)];
    for line in all.take(most) {
        let indent = Indent {
            first: prefix(if lines.is_empty() { first } else { later }),
            later: prefix(later),
        };
        let line = Line::styled(line.to_owned(), theme.user);
        lines.extend(wrapped(&line, shown.width, &indent));
        if lines.len() >= most {
            break;
        }
    }
    lines.truncate(most);
    let left = text.lines().count().saturating_sub(lines.len());
    lines.extend(more(left, theme, shown));
    lines
}

fn thought(text: &str, shown: Shown, theme: &Theme) -> Vec<Line<'static>> {
    if shown.is_open {
        return plain_lines(bounded(text), shown.width, ("┊ ", theme.faint));
    }
    let lines = text.lines().count();
    let line = format!("┊ thought, {lines} lines (ctrl-t)");
    vec![truncated(&Line::styled(line, theme.faint), shown.width)]
}

fn tool_lines(tool: &ToolUse, shown: Shown, theme: &Theme) -> Vec<Line<'static>> {
    let (mark, style) = match &tool.state {
        ToolState::Called => ("○", theme.faint),
        ToolState::Running => ("◐", theme.accent),
        ToolState::Ended { is_error: true, .. } => ("✗", theme.error),
        ToolState::Ended { .. } => ("●", theme.success),
    };
    let title = tool.title();
    let title = title.strip_prefix(&tool.name).unwrap_or(&title).to_owned();
    let title = Line::from(vec![
        Span::styled(format!("{mark} "), style),
        Span::styled(tool.name.clone(), theme.strong),
        Span::styled(title, theme.text),
    ]);
    let mut lines = match shown.is_open {
        true => wrapped(&title, shown.width, &Indent::default()),
        false => vec![truncated(&title, shown.width)],
    };
    if let Some((old, new)) = &tool.change {
        lines.extend(part_of(old, ("  - ", theme.removed), shown, theme));
        lines.extend(part_of(new, ("  + ", theme.added), shown, theme));
    }
    if let ToolState::Ended { output, is_error } = &tool.state {
        let style = match is_error {
            true => theme.error,
            false => theme.faint,
        };
        lines.extend(part_of(output, ("  │ ", style), shown, theme));
    }
    lines
}

/// A text, or its beginning and how much more there is.
fn part_of(
    text: &str,
    (prefix, style): (&str, Style),
    shown: Shown,
    theme: &Theme,
) -> Vec<Line<'static>> {
    let clean = text::plain(text);
    let clean = clean.trim_end();
    if clean.is_empty() {
        return Vec::new();
    }
    let most = match shown.is_open {
        true => MOST_LINES,
        false => FIRST_LINES,
    };
    let all = clean.split('\n').count();
    let indent = Indent::even(vec![Span::styled(prefix.to_owned(), style)]);
    let mut lines = Vec::new();
    for line in clean.split('\n').take(most) {
        let line = Line::styled(line.to_owned(), style);
        match shown.is_open {
            true => lines.extend(wrapped(&line, shown.width, &indent)),
            false => {
                let mut whole = indent.first.clone();
                whole.extend(line.spans);
                lines.push(truncated(&Line::from(whole), shown.width));
            }
        }
        if lines.len() >= most {
            break;
        }
    }
    lines.extend(more(all.saturating_sub(most), theme, shown));
    lines
}

fn more(left: usize, theme: &Theme, shown: Shown) -> Option<Line<'static>> {
    let how = match shown.is_open {
        true => "",
        false => " (ctrl-o)",
    };
    let line = Line::styled(format!("  … {left} more lines{how}"), theme.faint);
    (left > 0).then(|| truncated(&line, shown.width))
}

/// What does not count: told so, and faint.
fn retracted(lines: Vec<Line<'static>>, width: u16, theme: &Theme) -> Vec<Line<'static>> {
    let mut all = vec![truncated(
        &Line::styled("(broke off, and is asked for again)", theme.faint),
        width,
    )];
    all.extend(lines.into_iter().map(|line| {
        let text: String = line
            .spans
            .iter()
            .map(|span| span.content.as_ref())
            .collect();
        Line::styled(text, theme.struck)
    }));
    all
}
