//! Examples of rendered documents, and the properties in the header of `markdown`.

use super::super::wrap::columns;
use super::*;
use outlast_kernel::text::is_unprintable;
use proptest::prelude::*;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::Modifier;
use ratatui::widgets::Paragraph;

const DOCUMENT: &str = include_str!("markdown_tests/document.md");

fn text(source: &str, width: u16) -> Vec<String> {
    let lines = lines(source, width, &Theme::plain());
    lines.iter().map(ToString::to_string).collect()
}

// --- appearance ---

/// Formats each styled piece as `‹style|text›`.
fn marked(lines: &[Line<'_>]) -> String {
    let mut shown = String::new();
    for line in lines {
        for span in &line.spans {
            match name(span.style).as_str() {
                "" => shown.push_str(&span.content),
                name => shown.push_str(&format!("‹{name}|{}›", span.content)),
            }
        }
        shown.push('\n');
    }
    shown
}

fn name(style: Style) -> String {
    let modifiers = [
        (Modifier::BOLD, "bold"),
        (Modifier::DIM, "dim"),
        (Modifier::ITALIC, "italic"),
        (Modifier::UNDERLINED, "underlined"),
        (Modifier::CROSSED_OUT, "struck"),
    ];
    let modifiers = modifiers
        .iter()
        .filter(|(modifier, _)| style.add_modifier.contains(*modifier))
        .map(|(_, name)| (*name).to_owned());
    let colour = style.fg.map(|colour| colour.to_string().to_lowercase());
    colour
        .into_iter()
        .chain(modifiers)
        .collect::<Vec<_>>()
        .join(" ")
}

/// Returns the text as a terminal shows it.
fn drawn(source: &str, width: u16) -> String {
    let lines = lines(source, width, &Theme::plain());
    let height = u16::try_from(lines.len()).unwrap();
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let page = Paragraph::new(lines);
    terminal
        .draw(|frame| frame.render_widget(page, frame.area()))
        .unwrap();
    terminal.backend().to_string()
}

#[test]
fn document_renders_in_colour() {
    for width in [80, 40, 20] {
        let lines = lines(DOCUMENT, width, &Theme::colour());
        insta::assert_snapshot!(format!("colour_{width}"), marked(&lines));
    }
}

#[test]
fn document_renders_without_colours() {
    let lines = lines(DOCUMENT, 80, &Theme::plain());
    insta::assert_snapshot!("plain_marked", marked(&lines));
    for width in [80, 40, 20] {
        insta::assert_snapshot!(format!("plain_{width}"), drawn(DOCUMENT, width));
    }
}

#[test]
fn link_url_is_shown_unless_it_equals_its_text() {
    let table = [
        ("[a](https://b.org)", "a (https://b.org)"),
        ("<https://b.org>", "https://b.org"),
        ("[b.org](https://b.org)", "b.org"),
        ("[`https`*://b.org*](https://b.org)", "https://b.org"),
        ("<me@b.org>", "me@b.org"),
        ("[](https://b.org)", "https://b.org"),
        ("see [a](x)", "see a (x)"),
        ("![](cat.png)", "cat.png"),
        ("[![cat](cat.png)](x)", "cat (x)"),
    ];
    for (source, expected) in table {
        assert_eq!(text(source, 80), [expected], "{source}");
    }
}

#[test]
fn table_too_wide_for_screen_becomes_list_per_row() {
    let table = "| name | meaning |\n|---|---|\n| a | first one |\n| b | |\n";
    assert_eq!(
        text(table, 40),
        [
            "name │ meaning",
            "─────┼──────────",
            "a    │ first one",
            "b    │"
        ]
    );
    assert_eq!(
        text(table, 12),
        ["name: a", "meaning:", "  first one", "", "name: b"]
    );
}

#[test]
fn list_keeps_blank_lines_as_written() {
    let source = "Text:\n1. a\n2. b\n\n3. c\n   - d\n\nEnd";
    let expected = ["Text:", "1. a", "2. b", "", "3. c", "   • d", "", "End"];
    assert_eq!(text(source, 40), expected);
}

#[test]
fn escapes_are_stripped_before_markup_is_parsed() {
    assert_eq!(text("\u{1b}]0;*ti* tle\u{7}text", 80), ["text"]);
}

#[test]
fn an_entity_cannot_smuggle_an_escape() {
    let source = "a&#27;[31mb &#x9b;1m &#x202e;c [x](y&#27;]0;z) `&#27;`\n\n```a&#27;b\n&#27;\n```";
    for line in text(source, 80) {
        assert!(!line.contains(is_unprintable), "{line:?}");
    }
}

// --- streamed text ---

#[test]
fn unfinished_text_looks_sensible() {
    let table: [(&str, &[&str]); 8] = [
        ("```rust\nfn main", &["  rust", "  fn main"]),
        ("```\ncode\n``", &["  code"]),
        ("Text:\n-", &["Text:", "-"]),
        ("Text:\n- a", &["Text:", "• a"]),
        ("> a\n> --", &["│ a", "│ --"]),
        ("Title\n---", &["## Title"]),
        ("some **bold", &["some **bold"]),
        ("a\n\n1", &["a", "", "1"]),
    ];
    for (source, expected) in table {
        assert_eq!(text(source, 40), expected, "{source:?}");
    }
}

#[test]
fn every_document_prefix_renders() {
    for width in [80, 20, 3] {
        for (at, _) in DOCUMENT.char_indices() {
            lines(&DOCUMENT[..at], width, &Theme::colour());
        }
    }
}

const BLOCKS: [&str; 18] = [
    "A paragraph, with a [name] and a [link][name] and a note[^n].",
    "Two\nlines",
    "# Heading",
    "Heading\n=======",
    "- a\n- b",
    "- a\n\n- b\n  - c",
    "1. one\n2. two",
    "* [ ] open",
    "> quoted\n> twice",
    "> - listed\n> - twice",
    "```rust\nfn f() {}\n\nlet x = \"\n\";\n```",
    "~~~\ntext\n~~~",
    "    indented",
    "| a | b |\n|---|---|\n| 1 | 2 |",
    "---",
    "<div>\nhtml\n</div>",
    "[name]: https://example.org",
    "[^n]: The note.",
];

// --- hostile text ---

#[test]
fn deep_nesting_shows_text_without_stack_overflow() {
    for levels in [1_000, 50_000] {
        for opening in [
            "> ", "- ", "1. ", "> - ", "*a ", "[", "![a", "`", "<b>", "**a~~",
        ] {
            let source = opening.repeat(levels) + "text";
            let shown = text(&source, 40);
            assert!(
                shown.concat().contains("text"),
                "{levels} times {opening:?}"
            );
        }
    }
}

#[test]
fn nesting_takes_half_of_the_width_at_most() {
    let quotes = text(&("> ".repeat(1_000) + "text"), 20);
    assert_eq!(quotes, ["│ ".repeat(5) + "text"]);
    let items = text(&("- ".repeat(8) + "text that goes on"), 20);
    let bullets = "• ".repeat(8);
    let blanks = " ".repeat(10);
    assert_eq!(
        items,
        [
            bullets + "text",
            format!("{blanks}that goes"),
            format!("{blanks}on")
        ]
    );
}

#[test]
fn long_table_header_is_not_repeated_in_full_per_row() {
    let long = "long ".repeat(1_000);
    let header = format!("| {long} | {long} | c |\n|---|---|---|\n");
    let source = header + &"| x\n".repeat(2_000);
    let narrow: usize = text(&source, 20).iter().map(String::len).sum();
    assert!(text(&source, 20).concat().contains(": x"));
    assert!(narrow < 10 * source.len(), "{narrow} bytes");
}

fn fragments() -> impl Strategy<Value = String> {
    let parts = vec![
        "# ",
        "- ",
        "1. ",
        "> ",
        "```",
        "~~~",
        "\n",
        "\n\n",
        "    ",
        "\t",
        "*",
        "**",
        "_",
        "`",
        "~~",
        "[",
        "]",
        "(",
        ")",
        "![",
        "](x)",
        "]: y",
        "[^",
        "|",
        "|-|",
        "|:-:|",
        "\n|a|b|\n|-|-|\n",
        "---",
        "===",
        "<",
        ">",
        "<br>",
        "<!--",
        "-->",
        "&#27;",
        "&#9;",
        "&#10;",
        "&lt;",
        "\\",
        "[x] ",
        "word",
        "日本",
        "👩‍👩‍👧",
        "e\u{301}",
        "\u{1b}[31m",
        "\u{1b}]0;t\u{7}",
        "\u{202e}",
        "\u{9b}",
        "\u{0}",
        "\r\n",
        "https://a.b",
    ];
    proptest::collection::vec(proptest::sample::select(parts), 0..60).prop_map(|p| p.concat())
}

fn holds(source: &str, width: u16) -> Result<(), TestCaseError> {
    for theme in [Theme::colour(), Theme::plain()] {
        for line in lines(source, width, &theme) {
            prop_assert!(columns(&line.spans) <= width.into(), "{line:?} at {width}");
            let clean = |c: char| !is_unprintable(c) && !c.is_control();
            prop_assert!(line.to_string().chars().all(clean), "{line:?}");
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_text_fits_any_width_without_control_characters(source in any::<String>(), width in 0_u16..200) {
        holds(&source, width)?;
    }

    #[test]
    fn any_markup_fits_any_width_without_control_characters(source in fragments(), width in 0_u16..200) {
        holds(&source, width)?;
    }

    #[test]
    fn text_full_of_escapes_renders_without_them(source in "([\u{1b}\u{9b}\u{202e}\u{2066}\u{7}\u{8}\r\\[\\]0-9;mHJ a*`>|-]|&#27;){0,80}") {
        holds(&source, 60)?;
    }

    #[test]
    fn finished_blocks_do_not_change_when_more_arrives(
        blocks in proptest::collection::vec(proptest::sample::select(BLOCKS.to_vec()), 2..6),
        width in 10_u16..60,
    ) {
        let finished = blocks[..blocks.len() - 1].join("\n\n");
        let whole = blocks.join("\n\n");
        let before = lines(&finished, width, &Theme::colour());
        for (at, _) in whole.char_indices().skip_while(|(at, _)| *at < finished.len()) {
            let after = lines(&whole[..at], width, &Theme::colour());
            prop_assert_eq!(&after[..before.len().min(after.len())], &before[..], "{:?}", &whole[..at]);
        }
    }

    #[test]
    fn no_word_of_a_document_is_lost(
        lines in proptest::collection::vec(("(> |- |1\\. |# |    |\\| )?", "[a-z]{1,9}( [a-z]{1,9}){0,5}", "\n{1,2}"), 0..12),
        width in 4_u16..80,
    ) {
        let source: String = lines.iter().map(|(mark, words, end)| format!("{mark}{words}{end}")).collect();
        let letters = |text: &str| text.chars().filter(char::is_ascii_lowercase).collect::<String>();
        prop_assert_eq!(letters(&text(&source, width).concat()), letters(&source));
    }
}

/// Measures the processor time of this thread, which other threads do not affect.
#[cfg(target_os = "linux")]
#[test]
fn rendering_time_is_linear_in_text_length() {
    use nix::sys::resource::{UsageWho, getrusage};
    use nix::sys::time::TimeValLike;

    let spent = || {
        let usage = getrusage(UsageWho::RUSAGE_THREAD).unwrap();
        (usage.user_time() + usage.system_time()).num_microseconds()
    };
    let cost = |source: &str, times: usize| {
        let before = spent();
        for _ in 0..times {
            lines(source, 80, &Theme::colour());
        }
        spent() - before
    };
    // The time is counted in ticks.
    let resolution = 8_000;
    let shapes = [
        DOCUMENT,
        "word ",
        "x",
        "- a\n",
        "> a\n",
        "[a](b) ",
        "*a* ",
        "[",
        "&#27;",
        "| a ",
        "日本",
        "\t",
        "`",
        "\n",
        "e\u{301}",
        "[a]: b\n",
        "<a>",
        "\u{1b}]",
        "```rust\n\"\n",
        "a\n  - b\n",
    ];
    for shape in shapes {
        let small = shape.repeat((10 << 10) / shape.len());
        let large = shape.repeat((100 << 10) / shape.len());
        // A processor that other work has throttled is slower for a while, but not three times in a
        // row.
        let linear = (0..3).any(|_| {
            let (ten_small, one_large) = (cost(&small, 10), cost(&large, 1));
            one_large * 10 <= 25 * ten_small + 10 * resolution
        });
        assert!(linear, "of {shape:?} the time grows faster than the text");
    }
}
