//! The text of one block: words with the styles that are open around them.
//!
//! Invariant: the parser's output is cleaned before it is kept (an entity can stand for an escape).

use outlast_kernel::text::plain;
use pulldown_cmark::LinkType;
use ratatui::style::Style;
use ratatui::text::Span;

use super::super::theme::Theme;

#[derive(Default)]
pub(super) struct Inline {
    spans: Vec<Span<'static>>,
    styles: Vec<Style>,
    links: Vec<OpenLink>,
}

/// A link or an image whose text is being collected.
struct OpenLink {
    target: Target,
    /// The start of its text: the span, and the byte in it.
    begins: (usize, usize),
}

pub(super) enum Target {
    Link(String),
    Image(String),
    /// A reference link. It is shown as written: its definition may not have been streamed yet, and a finished block
    /// must not change once it arrives.
    Named(String),
}

impl Target {
    pub(super) fn link(kind: LinkType, address: &str, name: &str) -> Self {
        match kind {
            LinkType::Reference | LinkType::ReferenceUnknown => Self::Named(format!("][{name}]")),
            LinkType::Collapsed | LinkType::CollapsedUnknown => Self::Named("][]".to_owned()),
            LinkType::Shortcut | LinkType::ShortcutUnknown => Self::Named("]".to_owned()),
            _ => Self::Link(plain(address).into_owned()),
        }
    }

    pub(super) fn image(address: &str) -> Self {
        Self::Image(plain(address).into_owned())
    }
}

impl Inline {
    pub(super) fn is_blank(&self) -> bool {
        self.spans.iter().all(|span| span.content.trim().is_empty())
    }

    pub(super) fn push(&mut self, text: &str) {
        let style = self.styles.last().copied().unwrap_or_default();
        self.push_styled(text, style);
    }

    pub(super) fn push_styled(&mut self, text: &str, style: Style) {
        let text = plain(text);
        match self.spans.last_mut() {
            Some(last) if last.style == style => last.content.to_mut().push_str(&text),
            _ => self.spans.push(Span::styled(text.into_owned(), style)),
        }
    }

    /// Adds text in a style on top of the open ones.
    pub(super) fn push_patched(&mut self, text: &str, style: Style) {
        self.open(style);
        self.push(text);
        self.close();
    }

    pub(super) fn open(&mut self, style: Style) {
        let around = self.styles.last().copied().unwrap_or_default();
        self.styles.push(around.patch(style));
    }

    pub(super) fn close(&mut self) {
        self.styles.pop();
    }

    pub(super) fn open_link(&mut self, target: Target, theme: &Theme) {
        if matches!(target, Target::Named(_)) {
            self.push("[");
        }
        self.open(match target {
            Target::Link(_) => theme.link,
            Target::Image(_) | Target::Named(_) => Style::new(),
        });
        let begins = self.end();
        self.links.push(OpenLink { target, begins });
    }

    pub(super) fn close_link(&mut self, theme: &Theme) {
        self.close();
        let Some(OpenLink { target, begins }) = self.links.pop() else {
            return;
        };
        match target {
            Target::Named(end) => self.push(&end),
            Target::Image(address) if begins == self.end() => self.push(&address),
            Target::Image(_) => {}
            Target::Link(address) if begins == self.end() => {
                self.push_patched(&address, theme.link);
            }
            Target::Link(address) if self.is_text_since(begins, &address) => {}
            Target::Link(address) => self.push_styled(&format!(" ({address})"), theme.faint),
        }
    }

    fn end(&self) -> (usize, usize) {
        let last = self.spans.len().saturating_sub(1);
        (last, self.spans.last().map_or(0, |s| s.content.len()))
    }

    /// Whether the text since that position is the address itself, with or without its scheme.
    fn is_text_since(&self, (span, byte): (usize, usize), address: &str) -> bool {
        let said = || {
            let spans = self.spans.iter().enumerate().skip(span);
            spans.flat_map(move |(at, s)| {
                let from = if at == span { byte } else { 0 };
                s.content.get(from..).unwrap_or_default().chars()
            })
        };
        ["", "mailto:", "https://", "http://"].iter().any(|scheme| {
            let rest = address.strip_prefix(scheme);
            rest.is_some_and(|rest| said().eq(rest.chars()))
        })
    }

    pub(super) fn take(&mut self) -> Vec<Span<'static>> {
        std::mem::take(&mut self.spans)
    }
}
