//! The styles of code, and the invariant that its text is unchanged.

use super::*;
use proptest::prelude::*;

/// Formats each line with a letter below each character: comment, string, number, keyword, or a dot.
fn painted(language: &str, code: &str) -> String {
    let theme = Theme::colour();
    let mut highlighter = Highlighter::new(language, &theme);
    let letter = |style: Style| match style {
        s if s == theme.comment => 'c',
        s if s == theme.string => 's',
        s if s == theme.number => 'n',
        s if s == theme.keyword => 'k',
        s if s == theme.removed => '-',
        _ => '.',
    };
    let mut shown = String::new();
    for line in code.lines() {
        let spans = highlighter.line(line);
        let below = spans.iter().flat_map(|span| {
            let chars = span.content.chars();
            chars.map(|c| if c == ' ' { ' ' } else { letter(span.style) })
        });
        let below: String = below.collect();
        shown.push_str(&format!("{line}\n{}\n", below.trim_end()));
    }
    format!("{language}\n{shown}")
}

#[test]
fn common_languages_are_highlighted() {
    let code = [
        (
            "rust",
            "fn f<'a>(x: &'a str) -> char { 'x' } // done\nlet s = r#\"a \"raw\" one\"#; /* a /* b */\nstill */ let n = 0xff_u8..1.5;\nlet t = \"two\nlines\"; '\\''",
        ),
        (
            "python",
            "def f(x): # comment\n    return f\"{x}\" + 'it\\'s'\n\"\"\"doc\nmore\"\"\" if None else 3.14",
        ),
        (
            "ts",
            "const a: string = `x ${y}\nz`; // c\nexport function f() { return /* why */ null }",
        ),
        ("go", "func main() { s := `raw\n\\`; r := 'x' }"),
        (
            "java",
            "public static void main(String[] args) { char c = '\\n'; long n = 10L; }",
        ),
        (
            "sh",
            "if [ $# -gt 0 ]; then echo \"$1\" 'it'; fi # yes\na#b ${x#y}",
        ),
        ("json", "{\"a\": [1, -2.5e3, true, null], \"b\": \"\\\"\"}"),
        (
            "yaml",
            "key: don't # comment\nother: 'quoted' # yes\non: true",
        ),
        ("toml", "[a]\nb = \"c\" # d\ne = '''f\ng'''"),
        (
            "sql",
            "SELECT * FROM t WHERE a = 'it''s' -- all\nand b is NOT null",
        ),
    ];
    let all: Vec<_> = code.iter().map(|(l, c)| painted(l, c)).collect();
    insta::assert_snapshot!(all.join("\n"));
}

#[test]
fn diff_highlights_added_and_removed_lines() {
    let theme = Theme::colour();
    let mut highlighter = Highlighter::new("diff", &theme);
    let table = [
        ("--- a/x", theme.faint),
        ("+++ b/x", theme.faint),
        ("@@ -1 +1 @@", theme.accent),
        ("-old", theme.removed),
        ("+new", theme.added),
        (" same", theme.code_block),
        ("", theme.code_block),
    ];
    for (line, style) in table {
        assert_eq!(highlighter.line(line), [Span::styled(line, style)]);
    }
}

#[test]
fn unknown_language_is_not_highlighted() {
    let theme = Theme::colour();
    let mut highlighter = Highlighter::new("brainfuck", &theme);
    let line = "if \"this\" // 1";
    assert_eq!(
        highlighter.line(line),
        [Span::styled(line, theme.code_block)]
    );
}

const PARTS: [&str; 24] = [
    "\"", "'", "`", "\"\"\"", "'''", "\\", "//", "/*", "*/", "#", "--", "r#\"", "\"#", "if", "fn",
    " ", "12", ".", "é", "日", "_", "'x'", "\t", "1.5",
];
const NAMES: [&str; 12] = [
    "rust", "python", "ts", "go", "c", "sh", "json", "yaml", "toml", "sql", "diff", "unknown",
];

proptest! {
    #[test]
    fn spans_concatenate_to_source_line(
        name in proptest::sample::select(NAMES.to_vec()),
        lines in proptest::collection::vec(prop_oneof![
            "[^\n]{0,40}",
            proptest::collection::vec(proptest::sample::select(PARTS.to_vec()), 0..30).prop_map(|p| p.concat()),
        ], 0..8),
    ) {
        let theme = Theme::colour();
        let mut highlighter = Highlighter::new(name, &theme);
        for line in lines {
            let spans = highlighter.line(&line);
            let text: String = spans.iter().map(|span| span.content.as_ref()).collect();
            prop_assert_eq!(text, line);
        }
    }
}
