//! Examples of wrapped lines, and properties for every text and width.

use super::*;
use proptest::prelude::*;
use ratatui::buffer::CellWidth;
use ratatui::style::{Color, Stylize};

fn rows(text: &str, width: u16) -> Vec<String> {
    shown(&wrapped(&one(text), width, &Indent::default()))
}

/// Creates a line with newlines, which `Line::raw` would drop.
fn one(text: impl Into<String>) -> Line<'static> {
    Line::from(Span::raw(text.into()))
}

fn shown(lines: &[Line<'_>]) -> Vec<String> {
    lines.iter().map(ToString::to_string).collect()
}

fn hanging(first: &'static str, later: &'static str) -> Indent {
    Indent {
        first: vec![Span::raw(first)],
        later: vec![Span::raw(later)],
    }
}

#[test]
fn words_move_to_the_next_line_as_a_whole() {
    let table: [(&str, u16, &[&str]); 9] = [
        ("one two three", 7, &["one two", "three"]),
        ("one two three", 100, &["one two three"]),
        ("one  two   three", 10, &["one  two", "three"]),
        ("", 10, &[""]),
        ("   ", 10, &[""]),
        ("a\n\nb\n", 10, &["a", "", "b"]),
        ("  indented words", 10, &["  indented", "words"]),
        ("trailing   ", 20, &["trailing"]),
        ("no\u{a0}break here", 9, &["no\u{a0}break", "here"]),
    ];
    for (text, width, expected) in table {
        assert_eq!(rows(text, width), expected, "{text:?} at {width}");
    }
}

#[test]
fn too_long_word_breaks_between_graphemes() {
    let table: [(&str, u16, &[&str]); 6] = [
        ("abcdefghij", 4, &["abcd", "efgh", "ij"]),
        ("see abcdefghij", 5, &["see", "abcde", "fghij"]),
        (
            "e\u{301}e\u{301}e\u{301}",
            2,
            &["e\u{301}e\u{301}", "e\u{301}"],
        ),
        ("👩‍👩‍👧👩‍👩‍👧", 3, &["👩‍👩‍👧", "👩‍👩‍👧"]),
        ("🇨🇭🇩🇪", 2, &["🇨🇭", "🇩🇪"]),
        ("    abcdef", 6, &["abcdef"]),
    ];
    for (text, width, expected) in table {
        assert_eq!(rows(text, width), expected, "{text:?} at {width}");
    }
}

#[test]
fn wide_characters_break_anywhere_but_keep_punctuation() {
    assert_eq!(rows("日本語のテキスト", 6), ["日本語", "のテキ", "スト"]);
    assert_eq!(rows("abc日本語def", 6), ["abc日", "本語", "def"]);
    assert_eq!(rows("日本。語", 4), ["日", "本。", "語"]);
    assert_eq!(rows("日「本", 4), ["日", "「本"]);
}

#[test]
fn tabs_reach_to_the_next_multiple_of_four() {
    assert_eq!(rows("\ta\tbc\td", 40), ["    a   bc  d"]);
    assert_eq!(rows("a\t\tb", 40), ["a       b"]);
}

#[test]
fn zero_width_spaces_allow_a_break_and_take_no_room() {
    assert_eq!(rows("abc\u{200b}def", 4), ["abc", "def"]);
    assert_eq!(rows("abc\u{200b}def", 6), ["abc\u{200b}def"]);
}

#[test]
fn hanging_indent_is_dropped_when_too_wide() {
    let indent = hanging("1. ", "   ");
    let line = one("one two three");
    assert_eq!(
        shown(&wrapped(&line, 8, &indent)),
        ["1. one", "   two", "   three"]
    );
    assert_eq!(
        shown(&wrapped(&line, 4, &indent)),
        ["one", "two", "thre", "e"]
    );
    let empty = wrapped(&one(""), 8, &hanging("> ", "> "));
    assert_eq!(shown(&empty), [">"]);
}

#[test]
fn styles_follow_words_and_equal_styles_share_a_span() {
    let line = Line::from(vec!["one ".red(), "two".red(), " three".bold()]).italic();
    let lines = wrapped(&line, 7, &Indent::default());
    assert_eq!(lines[0].spans, ["one two".red()]);
    assert_eq!(lines[1].spans, ["three".bold()]);
    assert_eq!(lines[1].style, Style::new().italic());
}

#[test]
fn wrapping_terminates_at_width_zero_and_one() {
    for text in [
        "one two",
        "日本",
        "👩‍👩‍👧",
        "\t",
        "a\u{300}\u{300}",
        "\u{1100}\u{1100}",
    ] {
        let lines = wrapped(&one(text), 0, &Indent::default());
        assert!(lines.iter().all(|line| drawn(line) == 0), "{text:?}");
        assert!(!rows(text, 1).is_empty());
    }
    assert_eq!(rows("日a", 1), ["…", "a"]);
    assert_eq!(shown(&[truncated(&one("ab"), 0)]), [""]);
    assert_eq!(shown(&[truncated(&one("ab"), 1)]), ["…"]);
}

#[test]
fn truncated_line_ends_in_ellipsis() {
    let table = [
        ("short", 5, "short"),
        ("longer", 5, "long…"),
        ("日本語", 5, "日本…"),
        ("日本語", 6, "日本語"),
        ("a\tb\nc", 9, "a   b c"),
        ("a\u{301}bc", 2, "a\u{301}…"),
    ];
    for (text, width, expected) in table {
        assert_eq!(truncated(&one(text), width).to_string(), expected);
    }
    let styled = Line::from(vec!["ab".red(), "cdef".bold()]);
    assert_eq!(truncated(&styled, 3).spans, ["ab".red(), "…".bold()]);
}

#[test]
fn unbroken_mebibyte_line_wraps_in_one_pass() {
    let long = "x".repeat(1 << 20);
    let lines = wrapped(&one(long), 80, &hanging("- ", "  "));
    assert_eq!(lines.len(), (1_usize << 20).div_ceil(78));
    let marks = format!("a{}", "\u{301}".repeat(1 << 19));
    assert_eq!(rows(&marks, 80), [marks]);
}

// --- properties ---

const NASTY: [&str; 30] = [
    "a",
    "word",
    " ",
    "  ",
    "\t",
    "\n",
    "日",
    "本。",
    "「",
    "👩‍👩‍👧",
    "👍🏽",
    "🇨",
    "🇭",
    "❤\u{fe0f}",
    "❤",
    "\u{fe0f}",
    "\u{200d}",
    "\u{200b}",
    "e\u{301}",
    "\u{301}",
    "\u{1100}",
    "\u{1161}",
    "क\u{94d}क",
    "\u{17d8}",
    "\u{ff9e}",
    "\u{1b}[31m",
    "\u{0}",
    "\u{a0}",
    "“\u{fe01}",
    "لا",
];

fn nasty() -> impl Strategy<Value = String> {
    let part = proptest::sample::select(NASTY.to_vec());
    proptest::collection::vec(part, 0..40).prop_map(|parts| parts.concat())
}

fn spans() -> impl Strategy<Value = Line<'static>> {
    let text = prop_oneof![nasty(), any::<String>()];
    let style = prop_oneof![
        Just(Style::new()),
        Just(Style::new().fg(Color::Red)),
        Just(Style::new().bold()),
    ];
    proptest::collection::vec((text, style), 0..5).prop_map(|parts| {
        let spans = parts.into_iter().map(|(t, s)| Span::styled(t, s));
        Line::from(spans.collect::<Vec<_>>())
    })
}

/// Returns the visible characters, with their styles.
fn visible(line: &Line<'_>) -> Vec<(char, Style)> {
    let hidden = |c: char| {
        c.is_whitespace() || c.is_control() || c == '\u{200b}' || is_variation_selector(c)
    };
    let chars = line.spans.iter().flat_map(|span| {
        let style = span.style;
        span.content.chars().map(move |c| (c, style))
    });
    chars.filter(|(c, _)| !hidden(*c)).collect()
}

/// Returns the width as a ratatui buffer counts it when it draws.
fn drawn(line: &Line<'_>) -> usize {
    let graphemes = line.styled_graphemes(Style::new());
    graphemes.map(|g| usize::from(g.symbol.cell_width())).sum()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn no_line_is_ever_wider_than_the_width(line in spans(), width in 0_u16..60, prefix in "[ >│]{0,6}") {
        let prefix = vec![Span::raw(prefix)];
        let indent = Indent { first: prefix.clone(), later: prefix };
        for row in wrapped(&line, width, &indent) {
            prop_assert!(drawn(&row) <= width.into(), "{row:?} is wider than {width}");
            prop_assert!(columns(&row.spans) <= width.into());
            prop_assert!(!row.to_string().contains(char::is_control));
        }
        let cut = truncated(&line, width);
        prop_assert!(drawn(&cut) <= width.into(), "{cut:?} is wider than {width}");
        prop_assert!(!cut.to_string().contains(char::is_control));
    }

    #[test]
    fn wrapping_keeps_visible_text_and_styles(line in spans(), width in 3_u16..60) {
        let rows = wrapped(&line, width, &Indent::default());
        let kept: Vec<_> = rows.iter().flat_map(visible).collect();
        prop_assert_eq!(kept, visible(&line));
    }

    #[test]
    fn line_that_fits_is_not_truncated(line in spans()) {
        let enough = u16::try_from(columns(&line.spans) + NASTY.len() * 10).unwrap();
        prop_assert_eq!(visible(&truncated(&line, enough)), visible(&line));
    }
}
