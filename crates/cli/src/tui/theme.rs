//! The styles of the chat, named by their meaning.
//!
//! Invariant: colours are among the sixteen that the user's terminal defines, never white, black or yellow, which are
//! invisible on one background or the other; without colours, bold, dim, reversed and underlined alone express the
//! meaning. Not here: the content and its position.

use ratatui::style::{Color, Modifier, Style};
use std::ffi::OsStr;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Theme {
    pub(crate) text: Style,
    /// Secondary text: addresses, languages, times.
    pub(crate) faint: Style,
    /// The user's messages.
    pub(crate) user: Style,
    pub(crate) heading: Style,
    pub(crate) strong: Style,
    pub(crate) emphasis: Style,
    pub(crate) struck: Style,
    /// Code within a sentence.
    pub(crate) code: Style,
    /// A code block without highlighting.
    pub(crate) code_block: Style,
    pub(crate) link: Style,
    /// The bar beside a quotation.
    pub(crate) quote: Style,
    /// The bullets and numbers of lists.
    pub(crate) marker: Style,
    pub(crate) keyword: Style,
    pub(crate) string: Style,
    pub(crate) number: Style,
    pub(crate) comment: Style,
    pub(crate) added: Style,
    pub(crate) removed: Style,
    pub(crate) success: Style,
    pub(crate) warning: Style,
    pub(crate) error: Style,
    /// The most important text.
    pub(crate) accent: Style,
    pub(crate) selected: Style,
    pub(crate) border: Style,
}

impl Theme {
    /// Returns the plain theme if `NO_COLOR` is set and not empty (<https://no-color.org>).
    pub(crate) fn from_environment(no_color: Option<&OsStr>) -> Self {
        match no_color {
            Some(value) if !value.is_empty() => Self::plain(),
            _ => Self::colour(),
        }
    }

    pub(crate) fn colour() -> Self {
        let plain = Self::plain();
        Self {
            user: bold().fg(Color::Green),
            heading: bold().fg(Color::Cyan),
            emphasis: Style::new().add_modifier(Modifier::ITALIC),
            struck: Style::new().add_modifier(Modifier::CROSSED_OUT),
            code: Style::new().fg(Color::Cyan),
            link: underlined().fg(Color::Blue),
            marker: Style::new().fg(Color::Cyan),
            keyword: Style::new().fg(Color::Magenta),
            string: Style::new().fg(Color::Green),
            number: Style::new().fg(Color::Cyan),
            added: Style::new().fg(Color::Green),
            removed: Style::new().fg(Color::Red),
            success: Style::new().fg(Color::Green),
            warning: bold().fg(Color::Magenta),
            error: bold().fg(Color::Red),
            accent: Style::new().fg(Color::Cyan),
            ..plain
        }
    }

    pub(crate) fn plain() -> Self {
        let normal = Style::new();
        Self {
            text: normal,
            faint: dim(),
            user: bold(),
            heading: bold(),
            strong: bold(),
            emphasis: underlined(),
            struck: dim(),
            code: bold(),
            code_block: normal,
            link: underlined(),
            quote: dim(),
            marker: normal,
            keyword: bold(),
            string: normal,
            number: normal,
            comment: dim(),
            added: bold(),
            removed: dim(),
            success: normal,
            warning: bold(),
            error: bold(),
            accent: bold(),
            selected: Style::new().add_modifier(Modifier::REVERSED),
            border: dim(),
        }
    }

    #[cfg(test)]
    fn styles(&self) -> [(&'static str, Style); 24] {
        [
            ("text", self.text),
            ("faint", self.faint),
            ("user", self.user),
            ("heading", self.heading),
            ("strong", self.strong),
            ("emphasis", self.emphasis),
            ("struck", self.struck),
            ("code", self.code),
            ("code_block", self.code_block),
            ("link", self.link),
            ("quote", self.quote),
            ("marker", self.marker),
            ("keyword", self.keyword),
            ("string", self.string),
            ("number", self.number),
            ("comment", self.comment),
            ("added", self.added),
            ("removed", self.removed),
            ("success", self.success),
            ("warning", self.warning),
            ("error", self.error),
            ("accent", self.accent),
            ("selected", self.selected),
            ("border", self.border),
        ]
    }
}

fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

fn dim() -> Style {
    Style::new().add_modifier(Modifier::DIM)
}

fn underlined() -> Style {
    Style::new().add_modifier(Modifier::UNDERLINED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_color_variable_selects_plain_theme_unless_empty() {
        let table = [
            (None, Theme::colour()),
            (Some(""), Theme::colour()),
            (Some("1"), Theme::plain()),
            (Some("0"), Theme::plain()),
        ];
        for (value, theme) in table {
            let value = value.map(OsStr::new);
            assert_eq!(Theme::from_environment(value), theme, "{value:?}");
        }
    }

    #[test]
    fn plain_theme_has_no_colours_and_only_common_modifiers() {
        let known = Modifier::BOLD | Modifier::DIM | Modifier::REVERSED | Modifier::UNDERLINED;
        for (name, style) in Theme::plain().styles() {
            assert_eq!((style.fg, style.bg), (None, None), "{name}");
            assert!(known.contains(style.add_modifier), "{name}");
        }
    }

    #[test]
    fn colours_can_be_read_on_dark_and_on_light_backgrounds() {
        let readable = [
            Color::Red,
            Color::Green,
            Color::Blue,
            Color::Magenta,
            Color::Cyan,
        ];
        for (name, style) in Theme::colour().styles() {
            assert_eq!(style.bg, None, "{name}");
            assert!(
                style.fg.is_none_or(|colour| readable.contains(&colour)),
                "{name}"
            );
        }
    }
}
