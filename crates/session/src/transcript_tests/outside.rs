//! Text from a model, a tool or a provider never becomes a part of the document's structure.

use super::{FORMATS, START, Session, call, head_of, picture, spoken, thought};
use crate::transcript::{Format, Header};
use outlast_dialect::Message;
use outlast_engine::journal::{Entry, Spent, TurnError};
use outlast_kernel::event::TurnStatus;
use outlast_kernel::failure::Failure;
use outlast_kernel::text;
use outlast_kernel::verdict::Cause;
use proptest::prelude::*;
use serde_json::{Map, Value};

/// A session that has the text everywhere where a text can be.
fn full_of(text: &str) -> (Session, Header) {
    let mut session = Session::default();
    let mut question = Message::user(text);
    question.parts.push(picture(text, text));
    let failure = Failure::emitted(text, text, START).with_code(text);
    let problem = TurnError {
        cause: Cause::Unknown,
        message: text.to_owned(),
        reason: text.to_owned(),
    };
    let every_part = || vec![spoken(text), thought(text, text), call(text, text)];
    session
        .prompt(Some(question))
        .failed(Some(failure), every_part())
        .add(&Entry::Switched {
            model: None,
            left: Some(text.to_owned()),
            spent: Spent::default(),
        })
        .answer(text, every_part())
        .tool_started()
        .answer(text, every_part())
        .tool(text, true)
        .raw(text, text)
        .settled(TurnStatus::Error, Some(problem));
    let head = Header {
        id: text.to_owned(),
        directory: text.to_owned(),
        ..head_of(text)
    };
    (session, head)
}

fn document_full_of(text: &str, format: Format) -> String {
    let (session, head) = full_of(text);
    session.document(format, &head)
}

/// Returns the tags of a page, in order, with everything in them.
fn tags(page: &str) -> Vec<&str> {
    let after = |rest: &str| rest.find('>').map_or(rest.len(), |end| end + 1);
    page.match_indices('<')
        .map(|(at, _)| &page[at..at + after(&page[at..])])
        .collect()
}

/// Returns the lines of a Markdown document outside of fences and quotations, each up to its first space.
fn skeleton(document: &str) -> Vec<&str> {
    let mut fence: Option<&str> = None;
    let mut lines = Vec::new();
    for line in document.lines() {
        let ticks = &line[..line.len() - line.trim_start_matches('`').len()];
        match fence {
            Some(open) if ticks.len() >= open.len() && ticks == line => fence = None,
            Some(_) => {}
            None if ticks.len() >= 3 => fence = Some(ticks),
            None if line.starts_with('>') => {
                let breaks_out = ["<", "![", "]:"].iter().any(|mark| line.contains(mark));
                assert!(!breaks_out, "{line}");
            }
            None if line.is_empty() => {}
            None => {
                assert!(!has_live_marks(line), "{line}");
                lines.push(line.split(' ').next().unwrap_or_default());
            }
        }
    }
    assert_eq!(fence, None, "a fence is open at the end:\n{document}");
    lines
}

/// Returns whether a line contains effective markup that is not our own.
fn has_live_marks(line: &str) -> bool {
    let line = line.trim_start_matches('#').replace("**", "");
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => {
                chars.next();
            }
            c if "`*_[]<>&~|#!$".contains(c) => return true,
            _ => {}
        }
    }
    false
}

/// Returns the lines of a document for a terminal that are not indented, each up to its first space.
fn margin(document: &str) -> Vec<&str> {
    let lines = document.lines().skip(1);
    let own = lines.filter(|line| !line.is_empty() && !line.starts_with("  "));
    own.map(|line| line.split(' ').next().unwrap_or_default())
        .collect()
}

fn assert_structure_is_kept(text: &str) {
    let shown = format!("x{text}x");
    for format in FORMATS {
        let document = document_full_of(&shown, format);
        let harmless = document_full_of("x", format);
        let unwanted = document.find(text::is_unprintable);
        assert_eq!(unwanted, None, "{format:?} of {text:?}:\n{document}");
        match format {
            Format::Html => assert_eq!(tags(&document), tags(&harmless), "{document}"),
            Format::Markdown => assert_eq!(skeleton(&document), skeleton(&harmless), "{document}"),
            Format::Plain => assert_eq!(margin(&document), margin(&harmless), "{document}"),
            Format::Jsonl => {
                let (session, _) = full_of(&shown);
                assert_nothing_is_lost(&session, &document);
            }
        }
    }
}

fn assert_nothing_is_lost(session: &Session, document: &str) {
    let lines: Vec<&str> = document.split_terminator('\n').skip(1).collect();
    assert_eq!(lines.len(), session.stored.len(), "{document}");
    for (line, stored) in lines.iter().zip(&session.stored) {
        let mut line: Map<String, Value> = serde_json::from_str(line).unwrap();
        let own = ["seq", "turn", "time"].map(|name| line.remove(name));
        assert_eq!(own[0], Some(stored.seq.into()));
        match serde_json::from_str::<Map<String, Value>>(&stored.entry.body) {
            Ok(body) => assert_eq!(line, body),
            Err(_) => assert_eq!(line["unreadable"], stored.entry.body),
        }
    }
}

const HOSTILE: [&str; 20] = [
    "<script>alert(1)</script>",
    "</title></style></head><script>alert(1)</script>",
    "</pre></details></div></main><img src=x onerror=alert(1)>",
    "\" onmouseover=\"alert(1)",
    "' onfocus='alert(1)' autofocus='",
    "&lt;script&gt;&#60;script&#x3e;",
    "<!-- ",
    "]]><![CDATA[",
    "\u{1b}[2J\u{1b}]0;title\u{7}gone",
    "\u{9b}31mred\u{0}\u{8}\u{7f}",
    "safe\u{202e}desrever\u{2066}",
    "```\n# Heading\n```",
    "\n````````\n## Turn 9\n~~~\n",
    "`\n\n# Heading\n\n***\n---\n",
    "\r# Heading\r\n## Heading\u{2028}# Heading\u{2029}# Heading",
    "![picture](http://example.com/x.png) [link]: http://example.com",
    "**bold** _it_ [a](b) | c | \\ $x$ \\* \\",
    "\n=== Turn 9 ===\n\n! Attempt 9 failed\n",
    "{\"seq\":1,\"kind\":\"prompt\"}\n{\"seq\":2}",
    "\n> quoted\n\nnot quoted\n    indented\n- list\n1. list\n",
];

#[test]
fn hostile_text_never_becomes_structure() {
    for text in HOSTILE {
        assert_structure_is_kept(text);
    }
}

#[test]
fn html_page_has_no_scripts_and_no_external_resources() {
    let policy = "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">";
    for text in HOSTILE {
        let page = document_full_of(text, Format::Html);
        let body = page.split_once("</style>").unwrap().1.to_lowercase();
        assert!(page.contains(policy));
        for forbidden in ["<script", "<img", "<!--", "url(", "@import", "<link"] {
            assert!(
                !page.to_lowercase().contains(forbidden),
                "{forbidden} in {page}"
            );
        }
        // Our own tags have no other attributes, and quotes only there.
        let ours = body.replace(" class=\"", "").replace(" dir=\"auto\"", "");
        let ours = ours
            .replace("note\">", "")
            .replace("failed\">", "")
            .replace("speech\">", "");
        assert!(!ours.contains(['"', '\'']), "{ours}");
    }
}

#[test]
fn code_fence_is_longer_than_any_inside_it() {
    let mut session = Session::default();
    session.prompt(None).tool("a ```` b\n```\nc", false);
    let document = session.document(Format::Markdown, &head_of(""));
    let fenced = "\n`````text\na ```` b\n```\nc\n`````\n";
    assert!(document.contains(fenced), "{document}");
}

#[test]
fn markdown_is_quoted_unless_it_could_break_out() {
    let quoted = [
        ("# A\n\n- b `c`", "\n> # A\n>\n> - b `c`\n\n"),
        ("[a](b)", "\n> [a](b)\n\n"),
    ];
    let fenced = ["a <b> c", "![a](b)", "[a]: b"]
        .map(|text| (text, format!("\n```markdown\n{text}\n```\n\n")));
    let quoted = quoted.map(|(text, shown)| (text, shown.to_owned()));
    for (text, shown) in quoted.into_iter().chain(fenced) {
        let mut session = Session::default();
        session.prompt(Some(Message::user(text)));
        let document = session.document(Format::Markdown, &head_of(""));
        assert!(document.contains(&shown), "{document}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn arbitrary_text_never_becomes_structure(text in any::<String>()) {
        assert_structure_is_kept(&text);
    }

    #[test]
    fn markup_characters_never_become_structure(text in "[<>&\"'`~#>*!:= \n\r\t\\[\\]\\\\\u{1b}\u{2028}-]{0,40}") {
        assert_structure_is_kept(&text);
    }
}
