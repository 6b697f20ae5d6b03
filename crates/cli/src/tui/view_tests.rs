//! Frames of the chat, and the cursor position.

use super::*;
use crate::output::progress::time_of_day;
use crate::tui::chat::tests::{
    NOW, asked, compacting, event, held, idle, input, joined, key, later, question, retrying,
    scheduled, sealed, start, text, with, working,
};
use crate::tui::chat::{Change, Input, Joined};
use crate::tui::transcript::Tone;
use crossterm::event::{KeyCode, KeyModifiers};
use outlast_kernel::budget::Cost;
use outlast_kernel::event::{Body, ToolCall, TurnStatus};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Cell;
use ratatui::style::{Color, Modifier};

fn drawn(chat: &mut Chat, (width, height): (u16, u16), theme: &Theme) -> TestBackend {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal
        .draw(|frame| draw(frame, chat, theme, NOW))
        .unwrap();
    terminal.backend().clone()
}

/// Formats each row with a function of its cells.
fn rows(backend: &TestBackend, show: impl Fn(&Cell) -> String) -> String {
    let buffer = backend.buffer();
    let width = usize::from(buffer.area.width.max(1));
    let rows = buffer.content.chunks(width);
    let rows = rows.map(|row| row.iter().map(&show).collect::<String>());
    rows.map(|row| format!("|{}\n", row.trim_end())).collect()
}

fn frame_of(chat: &mut Chat, size: (u16, u16)) -> String {
    let backend = drawn(chat, size, &Theme::colour());
    let mut frame = rows(&backend, |cell| cell.symbol().to_owned());
    // The time zone is that of the machine.
    let time = time_of_day(later(5 * 3600), NOW);
    frame = frame.replace(&time, "TIME");
    let cursor = backend.cursor_position();
    let cursor = match backend.cursor_visible() {
        true => format!("{}, {}", cursor.x, cursor.y),
        false => "none".to_owned(),
    };
    format!("{frame}cursor: {cursor}\n")
}

// --- Scenes ---

type Scene = (&'static str, fn() -> Chat);

fn greeted() -> Chat {
    let greeting = "Outlast. Say what you want done; /help lists commands and keys.";
    let mut chat = Chat::new();
    let joined = Joined {
        greeting: Some(greeting.to_owned()),
        ..joined()
    };
    chat.handle(Input::SessionOpened(Box::new(joined)), NOW);
    chat
}

const ANSWER: &str =
    "Sure. The **parser** reads `x`:\n\n```rust\nfn main() {}\n```\n\n- one\n- two\n";

fn answered() -> Chat {
    let mut chat = working();
    chat.events([text(ANSWER), sealed(TurnStatus::Completed)]);
    chat.handle(Input::TaskEnded(crate::tui::chat::Outcome::default()), NOW);
    chat
}

fn streaming() -> Chat {
    let mut chat = working();
    chat.events([text("It begins with **bo"), text("ld** and ```")]);
    chat
}

fn thought() -> Chat {
    let mut chat = working();
    let text = "First this.\nThen that.".to_owned();
    chat.events([Body::ReasoningDelta { text }, super::tests::text("So.")]);
    chat
}

fn thought_open() -> Chat {
    let mut chat = thought();
    chat.handle(with(KeyModifiers::CONTROL, KeyCode::Char('t')), NOW);
    chat
}

fn call(id: &str, name: &str, arguments: &str) -> Body {
    Body::ToolCall(ToolCall {
        id: id.to_owned(),
        name: name.to_owned(),
        arguments: arguments.to_owned(),
    })
}

fn result(id: &str, output: &str, is_error: bool) -> Body {
    Body::ToolResult {
        id: id.to_owned(),
        output: output.to_owned(),
        is_error,
    }
}

fn tools() -> Chat {
    let mut chat = working();
    let edit = r#"{"path":"src/a.rs","old_text":"let a = 1;\nlet b = 2;","new_text":"let a = 3;"}"#;
    chat.events([
        call(
            "1",
            "bash",
            r#"{"command":"cargo test --locked\necho done"}"#,
        ),
        call("2", "edit", edit),
        call("3", "read", r#"{"path":"missing.txt"}"#),
        call("4", "grep", r#"{"pattern":"fn main"}"#),
        call("5", "unknown", r#"{"what":"ever"}"#),
        result(
            "1",
            &(1..=8).map(|n| format!("line {n}\n")).collect::<String>(),
            false,
        ),
        result("2", "edited", false),
        result("3", "missing.txt: no such file", true),
    ]);
    let (id, name) = ("4".to_owned(), "grep".to_owned());
    chat.events([Body::ToolStarted { id, name }]);
    chat
}

fn tools_open() -> Chat {
    let mut chat = tools();
    chat.handle(with(KeyModifiers::CONTROL, KeyCode::Char('o')), NOW);
    chat
}

fn retrying_long() -> Chat {
    let mut chat = working();
    chat.events([scheduled(2, 5 * 3600)]);
    chat
}

fn in_line() -> Chat {
    let mut chat = idle();
    chat.events([start(), input("hello"), held(30)]);
    chat
}

fn making_smaller() -> Chat {
    let mut chat = working();
    chat.events([compacting()]);
    chat
}

fn retry_failed() -> Chat {
    let mut chat = retrying();
    let error = Some("Overloaded".to_owned());
    let ended = Body::RetryEnded {
        success: false,
        attempt: 3,
        error,
    };
    chat.events([ended, sealed(TurnStatus::Error)]);
    chat
}

fn retry_cancelled() -> Chat {
    let mut chat = retrying();
    let error = Some("Retry cancelled".to_owned());
    let ended = Body::RetryEnded {
        success: false,
        attempt: 1,
        error,
    };
    chat.events([ended, sealed(TurnStatus::Aborted)]);
    chat
}

fn retracted() -> Chat {
    let mut chat = working();
    chat.events([
        text("Half of **an"),
        Body::Retracted { attempt: 1 },
        scheduled(1, 2),
    ]);
    chat.events([Body::AttemptStarted { attempt: 2 }, text("All of **it**.")]);
    chat
}

fn queued() -> Chat {
    let mut chat = working();
    chat.events([Body::QueueChanged {
        steering: vec!["also this\nand that".to_owned(), "second".to_owned()],
        follow_up: vec!["third".to_owned(), "fourth".to_owned()],
    }]);
    chat
}

fn asked_with_a_draft() -> Chat {
    let mut chat = working();
    chat.handle(question(), NOW);
    chat.write("and then");
    chat.handle(Input::QuestionArmed(1), NOW);
    chat
}

fn asked_about_much() -> Chat {
    let mut chat = working();
    let Input::QuestionAsked(mut asked) = question() else {
        return chat;
    };
    asked.arguments = serde_json::json!({ "text": "a line\n".repeat(14) });
    chat.handle(Input::QuestionAsked(asked), NOW);
    chat
}

fn commands() -> Chat {
    let mut chat = idle();
    chat.write("/");
    chat
}

fn models() -> Chat {
    let mut chat = idle();
    chat.write("/model ");
    chat.take_all((0..9).map(|_| key(KeyCode::Down)));
    chat
}

fn full_status() -> Chat {
    let mut chat = idle();
    chat.events([Body::Account {
        name: "work".to_owned(),
    }]);
    chat.handle(Input::Changed(Change::Cost(Cost(123_456))), NOW);
    chat.status.context = 24_100;
    chat.status.is_unrecorded = true;
    chat
}

fn hint() -> Chat {
    let mut chat = idle();
    chat.handle(with(KeyModifiers::CONTROL, KeyCode::Char('c')), NOW);
    chat
}

fn scrolled_up() -> Chat {
    let mut chat = idle();
    for number in 0..40 {
        let text = format!("notice {number}");
        chat.handle(Input::Notice(Tone::Plain, text), NOW);
    }
    frame_of(&mut chat, (60, 14));
    chat.handle(key(KeyCode::PageUp), NOW);
    chat
}

fn written() -> Chat {
    let mut chat = idle();
    chat.write("A first line that is too long for its row, so that it is broken");
    chat.handle(with(KeyModifiers::ALT, KeyCode::Enter), NOW);
    chat.write("日本語");
    chat
}

const SCENES: [Scene; 25] = [
    ("greeting", greeted),
    ("starting", Chat::new),
    ("an answer in Markdown", answered),
    ("an answer that comes in", streaming),
    ("a thought", thought),
    ("a thought, expanded", thought_open),
    ("tools", tools),
    ("tools, expanded", tools_open),
    ("a retry", retrying),
    ("a retry that is far off", retrying_long),
    ("in line", in_line),
    ("compacting", making_smaller),
    ("a retry that failed", retry_failed),
    ("a retry that was cancelled", retry_cancelled),
    ("an answer that was retracted", retracted),
    ("what waits to be said", queued),
    ("a question", asked),
    ("a question with a draft", asked_with_a_draft),
    ("a question with too few rows", asked_about_much),
    ("commands", commands),
    ("models", models),
    ("status", full_status),
    ("a hint", hint),
    ("scrolled up", scrolled_up),
    ("a draft of several rows", written),
];

// --- Frames ---

#[test]
fn every_scene_matches_its_snapshot() {
    for (name, scene) in SCENES {
        let height = if name.starts_with("tools") { 24 } else { 14 };
        let frame = frame_of(&mut scene(), (60, height));
        let file = name.replace(", ", "_").replace(' ', "_").to_lowercase();
        insta::assert_snapshot!(file, frame);
    }
}

#[test]
fn every_size_shows_what_matters_most() {
    let sizes = [
        (200, 60),
        (80, 24),
        (40, 12),
        (20, 5),
        (10, 3),
        (3, 2),
        (1, 1),
    ];
    let scenes: [Scene; 4] = [
        ("an answer", answered),
        ("a retry that is far off", retrying_long),
        ("a question", asked),
        ("models", models),
    ];
    let mut all = String::new();
    for (name, scene) in scenes {
        for size in sizes {
            let frame = frame_of(&mut scene(), size);
            // Empty rows are omitted.
            let frame = frame.replace("|\n", "");
            all.push_str(&format!("=== {name}, {} by {}\n{frame}", size.0, size.1));
        }
    }
    insta::assert_snapshot!(all);
}

#[test]
fn plain_theme_draws_modifiers_instead_of_colours() {
    for (name, scene) in SCENES {
        for size in [(80, 24), (20, 5)] {
            let backend = drawn(&mut scene(), size, &Theme::plain());
            for cell in &backend.buffer().content {
                let colours = (cell.fg, cell.bg);
                assert_eq!(colours, (Color::Reset, Color::Reset), "{name}");
            }
        }
    }
    let mark = |cell: &Cell| {
        let modifiers = cell.modifier;
        let marks = [
            (Modifier::REVERSED, "r"),
            (Modifier::UNDERLINED, "u"),
            (Modifier::BOLD, "b"),
            (Modifier::DIM, "d"),
        ];
        let found = marks.iter().find(|(mark, _)| modifiers.contains(*mark));
        found.map_or(" ", |(_, letter)| letter).to_owned()
    };
    let mut all = String::new();
    for (name, scene) in [
        ("an answer", answered as fn() -> Chat),
        ("tools", tools),
        ("models", models),
    ] {
        let backend = drawn(&mut scene(), (60, 16), &Theme::plain());
        let shown = rows(&backend, |cell| cell.symbol().to_owned());
        let marks = rows(&backend, mark);
        let both = shown
            .lines()
            .zip(marks.lines())
            .filter(|(shown, _)| shown.len() > 1);
        let both = both.map(|(shown, marks)| format!("{shown}\n{marks}\n"));
        all.push_str(&format!("=== {name}\n{}", both.collect::<String>()));
    }
    insta::assert_snapshot!(all);
}

#[test]
fn cursor_follows_text_even_at_row_end() {
    // Twelve columns: two of the prompt, nine of text, one for the cursor.
    let table = [
        ("", (2, 9)),
        ("abc", (5, 9)),
        ("abcdefghi", (11, 9)),
        ("abcdefghij", (3, 9)),
        ("日本語字", (10, 9)),
        ("日本語字五", (4, 9)),
    ];
    for (text, (x, y)) in table {
        let mut chat = idle();
        chat.write(text);
        let backend = drawn(&mut chat, (12, 11), &Theme::plain());
        let cursor = backend.cursor_position();
        assert_eq!(
            (cursor.x, cursor.y),
            (x, y),
            "{text:?}\n{}",
            frame_of(&mut chat, (12, 11))
        );
    }
}

#[test]
fn question_is_fully_readable_on_narrow_screen() {
    let mut chat = working();
    let Input::QuestionAsked(mut asked) = question() else {
        return;
    };
    let script = "echo one two three four five six && rm everything";
    asked.arguments = serde_json::json!({ "script": script });
    chat.handle(Input::QuestionAsked(asked), NOW);
    let frame = frame_of(&mut chat, (24, 30));
    let words: Vec<&str> = frame.split([' ', '\n', '|', '│']).collect();
    let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
    assert!(words.join(" ").contains(script), "{frame}");
}

#[test]
fn question_that_does_not_fit_can_be_scrolled() {
    let Input::QuestionAsked(mut asked) = question() else {
        panic!("it is a question");
    };
    let content: Vec<String> = (1..=60).map(|number| format!("row {number}.")).collect();
    asked.arguments = serde_json::json!({ "content": content.join("\n") });
    let mut chat = idle();
    chat.handle(Input::QuestionAsked(asked), NOW);
    let mut seen = frame_of(&mut chat, (60, 14));
    assert!(seen.contains("row 60.") && !seen.contains("row 30."));
    for _ in 0..40 {
        chat.handle(key(KeyCode::PageDown), NOW);
        seen.push_str(&frame_of(&mut chat, (60, 14)));
    }
    for row in &content {
        assert!(seen.contains(row), "{row}");
    }
    // However far the user has scrolled, the way back is at most as long as the question.
    for _ in 0..20 {
        chat.handle(key(KeyCode::PageUp), NOW);
        seen = frame_of(&mut chat, (60, 14));
    }
    assert!(seen.contains("row 1.") && seen.contains("run it?"));
}

#[test]
fn countdown_is_drawn_from_current_time() {
    let mut chat = retrying();
    chat.handle(event(held(1)), NOW);
    let mut terminal = Terminal::new(TestBackend::new(60, 8)).unwrap();
    for (at, seconds) in [(NOW, "1s"), (later(2), "0s")] {
        let theme = Theme::plain();
        terminal
            .draw(|frame| draw(frame, &mut chat, &theme, at))
            .unwrap();
        let shown = rows(terminal.backend(), |cell| cell.symbol().to_owned());
        assert!(
            shown.contains(&format!("Retrying (1/3) in {seconds}…")),
            "{shown}"
        );
    }
}
