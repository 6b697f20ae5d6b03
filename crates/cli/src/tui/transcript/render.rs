//! Renders blocks.
//!
//! Invariants: external text is cleaned; for a shortened text the hidden amount is shown.

use crate::tui::markdown;
use crate::tui::theme::Theme;
use crate::tui::transcript::block::{
    Continuation, Layout, MAX_LAYOUT_BYTES, Tone, ToolState, ToolUse,
};
use crate::tui::wrap::{Indent, truncated, wrapped};
use outlast_kernel::text;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

/// Number of lines that a long text shows when collapsed, and its maximum when expanded.
const PREVIEW_LINES: usize = 5;
const MAX_LINES: usize = 2000;
const PREVIEW_MESSAGE_LINES: usize = 20;

impl Tone {
    pub(in crate::tui::transcript) const fn style(self, theme: &Theme) -> Style {
        match self {
            Self::Plain => theme.text,
            Self::Faint => theme.faint,
            Self::Warning => theme.warning,
            Self::Error => theme.error,
        }
    }
}

fn bounded(text: &str) -> &str {
    match text.len() {
        ..=MAX_LAYOUT_BYTES => text,
        _ => {
            let end = (0..=MAX_LAYOUT_BYTES)
                .rev()
                .find(|at| text.is_char_boundary(*at));
            &text[..end.unwrap_or(0)]
        }
    }
}

/// Renders text without markup, each line with a prefix.
pub(in crate::tui::transcript) fn plain_lines(
    text: &str,
    width: u16,
    prefix: &str,
    style: Style,
) -> Vec<Line<'static>> {
    let indent = Indent::uniform(vec![Span::styled(prefix.to_owned(), style)]);
    let clean = text::plain(text);
    let lines = clean.trim_end_matches('\n').split('\n');
    lines
        .flat_map(|line| wrapped(&Line::styled(line.to_owned(), style), width, &indent))
        .collect()
}

/// Renders a completion, or a part of one.
pub(in crate::tui::transcript) fn answer_lines(
    text: &str,
    part: &Continuation,
    shown: Layout,
    theme: &Theme,
) -> Vec<Line<'static>> {
    let Some(opening) = &part.opening else {
        return markdown::lines(text, shown.width, theme);
    };
    // The code continues, and the fence line with its language is in the previous part.
    let opening = format!("{opening}\n");
    let before = markdown::lines(&opening, shown.width, theme).len();
    let mut lines = markdown::lines(&format!("{opening}{text}"), shown.width, theme);
    lines.drain(..before.min(lines.len()));
    lines
}

pub(in crate::tui::transcript) fn user_lines(
    text: &str,
    shown: Layout,
    theme: &Theme,
) -> Vec<Line<'static>> {
    let clean = text::plain(bounded(text));
    let most = match shown.is_open {
        true => MAX_LINES,
        false => PREVIEW_MESSAGE_LINES,
    };
    let (mut lines, mut whole) = (Vec::new(), 0);
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
        whole += usize::from(lines.len() <= most);
        if lines.len() >= most {
            break;
        }
    }
    lines.truncate(most);
    let all = text.trim_end_matches('\n').split('\n').count();
    lines.extend(more_line(all.saturating_sub(whole), theme, shown));
    lines
}

pub(in crate::tui::transcript) fn thought_line(
    lines: usize,
    shown: Layout,
    theme: &Theme,
) -> Line<'static> {
    let lines = match lines {
        1 => "1 line".to_owned(),
        lines => format!("{lines} lines"),
    };
    let line = format!("┊ thought, {lines} (ctrl-t)");
    truncated(&Line::styled(line, theme.faint), shown.width)
}

pub(in crate::tui::transcript) fn tool_lines(
    tool: &ToolUse,
    shown: Layout,
    theme: &Theme,
) -> Vec<Line<'static>> {
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
        lines.extend(preview_lines(old, "  - ", theme.removed, shown, theme));
        lines.extend(preview_lines(new, "  + ", theme.added, shown, theme));
    }
    if let ToolState::Ended { output, is_error } = &tool.state {
        let style = match is_error {
            true => theme.error,
            false => theme.faint,
        };
        lines.extend(preview_lines(output, "  │ ", style, shown, theme));
    }
    lines
}

/// Renders a text, or its beginning and the number of hidden lines.
fn preview_lines(
    text: &str,
    prefix: &str,
    style: Style,
    shown: Layout,
    theme: &Theme,
) -> Vec<Line<'static>> {
    let clean = text::plain(text);
    let clean = clean.trim_end();
    if clean.is_empty() {
        return Vec::new();
    }
    let most = match shown.is_open {
        true => MAX_LINES,
        false => PREVIEW_LINES,
    };
    let all = clean.split('\n').count();
    let indent = Indent::uniform(vec![Span::styled(prefix.to_owned(), style)]);
    let (mut lines, mut whole) = (Vec::new(), 0);
    for line in clean.split('\n').take(most) {
        whole += 1;
        let line = Line::from(Span::styled(line.to_owned(), style));
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
    lines.extend(more_line(all.saturating_sub(whole), theme, shown));
    lines
}

fn more_line(left: usize, theme: &Theme, shown: Layout) -> Option<Line<'static>> {
    let how = match shown.is_open {
        true => "",
        false => " (ctrl-o)",
    };
    let lines = if left == 1 { "line" } else { "lines" };
    let line = Line::styled(format!("  … {left} more {lines}{how}"), theme.faint);
    (left > 0).then(|| truncated(&line, shown.width))
}

/// Renders the notice before retracted content.
pub(in crate::tui::transcript) fn retracted_line(width: u16, theme: &Theme) -> Line<'static> {
    let says = "(broke off, and is asked for again)";
    truncated(&Line::styled(says, theme.faint), width)
}

pub(in crate::tui::transcript) fn struck(
    lines: Vec<Line<'static>>,
    theme: &Theme,
) -> Vec<Line<'static>> {
    let lines = lines.into_iter().map(|line| {
        let spans = line.spans.iter().map(|span| span.content.as_ref());
        Line::styled(spans.collect::<String>(), theme.struck)
    });
    lines.collect()
}
