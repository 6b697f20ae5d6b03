//! A block of a transcript: a message, a tool call, a notice.
//!
//! Invariant: any content is laid out in a bounded number of lines. Not here: the look (`transcript/render.rs`),
//! splitting long texts (`transcript/split.rs`).

use super::render;
use super::split::{self, Scan, SplitPoint};
use crate::tui::theme::Theme;
use outlast_kernel::event::ToolCall;
use outlast_kernel::text;
use ratatui::text::Line;
use serde_json::Value;

/// Maximum number of bytes of a text that are laid out.
pub(super) const MAX_LAYOUT_BYTES: usize = 512 << 10;

/// The content of a block.
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

/// The tone of a notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Plain,
    Faint,
    Warning,
    Error,
}

/// A tool call, and its result.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ToolUse {
    id: String,
    pub(super) name: String,
    /// The arguments in one line.
    summary: String,
    /// The removed and the inserted text, if the tool edits a file.
    pub(super) change: Option<(String, String)>,
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
        let owned = |text: &str| text::bounded(text, MAX_LAYOUT_BYTES).into_owned();
        Self::Tool(ToolUse {
            id: call.id.clone(),
            // A model may request a tool of any name.
            name: text::plain(&call.name).replace('\n', " "),
            summary: owned(summary),
            change: change.map(|(old, new)| (owned(old), owned(new))),
            state: ToolState::Called,
        })
    }
}

impl ToolUse {
    /// Returns the call in one line.
    pub(crate) fn title(&self) -> String {
        let summary = self.summary.replace('\n', " ⏎ ");
        text::plain(&format!("{} {summary}", self.name)).into_owned()
    }
}

/// The settings that a block was laid out with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) width: u16,
    pub(super) is_open: bool,
    pub(super) has_space: bool,
}

/// The way in which a block continues the previous one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Continuation {
    /// Whether there is no blank line between the two.
    pub(super) is_joined: bool,
    /// The fence line of the code block that it begins in.
    pub(super) opening: Option<String>,
}

#[derive(Debug)]
pub(super) struct Block {
    pub(super) kind: Kind,
    pub(super) is_retracted: bool,
    /// Whether this is the block of a retracted range that shows the notice.
    marks_retraction: bool,
    /// Whether more may be appended.
    is_growing: bool,
    /// Whether the user has expanded or collapsed it individually.
    is_toggled: bool,
    continuation: Continuation,
    scan: Scan,
    /// The number of lines of a thought, including its later parts.
    lines: usize,
    layout: Option<(Layout, Vec<Line<'static>>)>,
}

impl Block {
    pub(super) fn settled(kind: Kind) -> Self {
        Self {
            kind,
            is_retracted: false,
            marks_retraction: false,
            is_growing: false,
            is_toggled: false,
            continuation: Continuation::default(),
            scan: Scan::default(),
            lines: 0,
            layout: None,
        }
    }

    pub(super) fn open(kind: Kind, continuation: Continuation) -> Self {
        Self {
            is_growing: true,
            scan: Scan::within(continuation.opening.as_deref()),
            continuation,
            ..Self::settled(kind)
        }
    }

    pub(super) const fn is_open(&self) -> bool {
        self.is_growing
    }

    // --- Changes ---

    /// Appends to the text if the block is of that kind and still grows; returns whether it did.
    pub(super) fn extend(&mut self, is_meant: fn(&Kind) -> bool, more: &str) -> bool {
        if !self.is_growing || !is_meant(&self.kind) {
            return false;
        }
        if let Kind::Answer(text) | Kind::Thought(text) = &mut self.kind {
            text.push_str(more);
        }
        self.layout = None;
        true
    }

    /// Settles the part of a long text whose look is final; returns the rest.
    pub(super) fn split(&mut self) -> Option<(String, Continuation)> {
        let (text, kind) = match &mut self.kind {
            Kind::Answer(text) => (text, split::Kind::Markdown),
            Kind::Thought(text) => (text, split::Kind::Lines),
            _ => return None,
        };
        let SplitPoint {
            at,
            opening,
            is_gap,
        } = self.scan.cut(text, kind)?;
        let rest = text.split_off(at);
        (self.is_growing, self.layout) = (false, None);
        let is_joined = !is_gap;
        Some((rest, Continuation { is_joined, opening }))
    }

    /// Returns the fence line of a code block that is open at the end.
    pub(super) fn open_code(&self) -> Option<String> {
        match &self.kind {
            Kind::Answer(text) => self.scan.open_code(text),
            _ => None,
        }
    }

    /// Adds lines of later parts to the thought that begins here.
    pub(super) fn count_lines(&mut self, more: usize) {
        self.lines += more;
        self.layout = None;
    }

    /// Whether this is the same call, waiting to be run.
    pub(super) fn is_pending(&self, call: &Kind) -> bool {
        self.is_growing && !self.is_retracted && self.kind == *call
    }

    pub(super) fn is_call(&self, id: &str) -> bool {
        matches!(&self.kind, Kind::Tool(tool) if tool.id == id)
    }

    pub(super) fn start_tool(&mut self) {
        if let Kind::Tool(tool) = &mut self.kind {
            tool.state = ToolState::Running;
            self.layout = None;
        }
    }

    pub(super) fn end_tool(&mut self, output: &str, is_error: bool) {
        if let Kind::Tool(tool) = &mut self.kind {
            let output = text::bounded(output, MAX_LAYOUT_BYTES).into_owned();
            tool.state = ToolState::Ended { output, is_error };
            (self.is_growing, self.layout) = (false, None);
        }
    }

    /// Counts the notice if it has this text; returns whether it does.
    pub(super) fn count_repeat(&mut self, tone: Tone, said: &str) -> bool {
        match &mut self.kind {
            Kind::Notice {
                tone: own,
                text,
                times,
            } if *own == tone && text == said => {
                *times += 1;
                self.layout = None;
                true
            }
            _ => false,
        }
    }

    /// Ends the block, except a tool, which ends with its result.
    pub(super) fn settle(&mut self) {
        self.is_growing &= matches!(self.kind, Kind::Tool(_));
    }

    /// Ends a tool without a result, because its turn is over.
    pub(super) fn seal(&mut self) {
        if let Kind::Tool(tool) = &mut self.kind
            && self.is_growing
        {
            tool.state = ToolState::Called;
            self.layout = None;
        }
        self.is_growing = false;
    }

    /// Marks the block as retracted; returns whether its kind can be retracted.
    pub(super) fn retract(&mut self, says_so: bool) -> bool {
        let counted = matches!(
            self.kind,
            Kind::Answer(_) | Kind::Thought(_) | Kind::Tool(_)
        );
        if counted {
            (self.is_retracted, self.marks_retraction) = (true, says_so);
            (self.is_growing, self.layout) = (false, None);
        }
        counted
    }

    pub(super) fn toggle(&mut self) {
        self.is_toggled = !self.is_toggled;
    }

    // --- Display ---

    pub(super) const fn is_expanded(&self, tools: bool, thoughts: bool) -> bool {
        let shows = match self.kind {
            Kind::Thought(_) => thoughts,
            Kind::User(_) | Kind::Answer(_) | Kind::Tool(_) | Kind::Notice { .. } => tools,
        };
        shows != self.is_toggled
    }

    /// Whether there is no blank line between the two.
    pub(super) const fn joins(&self, before: &Self) -> bool {
        self.continuation.is_joined
            || matches!(
                (&before.kind, &self.kind),
                (Kind::Tool(_), Kind::Tool(_)) | (Kind::Notice { .. }, Kind::Notice { .. })
            )
    }

    pub(super) fn has_layout(&self, shown: Layout) -> bool {
        matches!(&self.layout, Some((known, _)) if *known == shown)
    }

    /// Returns the number of bytes to lay out.
    #[cfg(test)]
    pub(super) fn size(&self) -> usize {
        match &self.kind {
            Kind::User(text) | Kind::Answer(text) | Kind::Thought(text) => text.len(),
            Kind::Notice { text, .. } => text.len(),
            Kind::Tool(tool) => match &tool.state {
                ToolState::Ended { output, .. } => tool.summary.len() + output.len(),
                ToolState::Called | ToolState::Running => tool.summary.len(),
            },
        }
    }

    /// Drops its cached lines.
    pub(super) fn drop_layout(&mut self) {
        self.layout = None;
    }

    pub(super) fn lines(&self) -> &[Line<'static>] {
        self.layout.as_ref().map_or(&[], |(_, lines)| lines)
    }

    pub(super) fn lay_out(&mut self, shown: Layout, theme: &Theme) {
        let mut lines = Vec::new();
        lines.extend(shown.has_space.then(Line::default));
        let own = match &self.kind {
            Kind::User(text) => render::user_lines(text, shown, theme),
            Kind::Answer(text) => render::answer_lines(text, &self.continuation, shown, theme),
            Kind::Thought(text) if shown.is_open => {
                render::plain_lines(text, shown.width, "┊ ", theme.faint)
            }
            Kind::Thought(_) if self.continuation.is_joined => Vec::new(),
            Kind::Thought(_) => vec![render::thought_line(self.lines, shown, theme)],
            Kind::Tool(tool) => render::tool_lines(tool, shown, theme),
            Kind::Notice { tone, text, times } => {
                let times = match times {
                    1 => String::new(),
                    times => format!(" (×{times})"),
                };
                let style = tone.style(theme);
                render::plain_lines(&format!("{text}{times}"), shown.width, "", style)
            }
        };
        let own = match self.is_retracted {
            true => render::struck(own, theme),
            false => own,
        };
        lines.extend(
            self.marks_retraction
                .then(|| render::retracted_line(shown.width, theme)),
        );
        lines.extend(own);
        self.layout = Some((shown, lines));
    }
}
