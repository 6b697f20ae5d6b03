//! The chat survives any inputs in any order, and can be drawn at any size.

use super::*;
use crate::tui::view;
use outlast_kernel::event::{ToolCall, Usage};
use outlast_kernel::model_info::ContinueBy;
use proptest::prelude::{BoxedStrategy, Just, ProptestConfig, Strategy, any};
use proptest::{collection, option, prop_oneof, proptest, sample};
use ratatui::Terminal;
use ratatui::backend::TestBackend;

/// An input with a debug format, so that a failing sequence can be reproduced.
#[derive(Clone, Debug)]
enum Happens {
    Key(KeyCode, KeyModifiers),
    Pasted(String),
    Line(String),
    Scrolled(isize),
    Clicked(u16),
    Event(Body),
    Joined(usize),
    Asked,
    Armed(u64),
    Unasked,
    Ended(Option<String>),
    TakenBack(Vec<String>),
    Sessions,
    SaidAgain,
    Interrupted,
    Notice(String),
    Drawn(u16, u16),
}

impl Happens {
    fn input(self) -> Input {
        match self {
            Self::Key(code, modifiers) => with(modifiers, code),
            Self::Pasted(text) => Input::Pasted(text),
            Self::Line(text) => Input::Line(text),
            Self::Scrolled(lines) => Input::Scrolled(lines),
            Self::Clicked(row) => Input::Clicked(row),
            Self::Event(body) => event(body),
            Self::Joined(replayed_messages) => Input::SessionOpened(Box::new(Joined {
                replayed_messages,
                ..joined()
            })),
            Self::Asked => question(),
            Self::Armed(number) => Input::QuestionArmed(number),
            Self::Unasked => Input::QuestionWithdrawn,
            Self::Ended(problem) => Input::TaskEnded(Outcome {
                problem,
                ..Outcome::default()
            }),
            Self::TakenBack(texts) => Input::QueueTakenBack(texts),
            Self::Sessions => Input::SessionsListed(vec![session("01", "a\nb")]),
            Self::SaidAgain => Input::TurnReplayed,
            Self::Interrupted => Input::Interrupted,
            Self::Notice(text) => Input::Notice(Tone::Warning, text),
            Self::Drawn(..) => Input::Scrolled(0),
        }
    }
}

fn words() -> impl Strategy<Value = String> {
    let word = sample::select(vec![
        "word ",
        "/",
        "/model",
        "\n",
        "\n\n",
        "```rust\n",
        "- x\n",
        "| a | b |\n|-|-|\n",
        "日本",
        "👩‍👩‍👧",
        "e\u{301}",
        "\t",
        "\u{1b}[31m",
        "\u{202e}",
        "\r\n",
        "x",
        "> ",
        "[a](b)",
        "**",
    ]);
    let words = (collection::vec(word, 0..12), 1..40usize);
    words.prop_map(|(words, times)| words.concat().repeat(times))
}

fn keys() -> impl Strategy<Value = Happens> {
    let codes = sample::select(vec![
        KeyCode::Esc,
        KeyCode::Enter,
        KeyCode::Tab,
        KeyCode::Up,
        KeyCode::Down,
        KeyCode::Left,
        KeyCode::Right,
        KeyCode::Home,
        KeyCode::End,
        KeyCode::PageUp,
        KeyCode::PageDown,
        KeyCode::Backspace,
        KeyCode::Delete,
        KeyCode::Char('a'),
        KeyCode::Char('y'),
        KeyCode::Char('r'),
        KeyCode::Char('c'),
        KeyCode::Char('o'),
        KeyCode::Char('t'),
        KeyCode::Char('j'),
        KeyCode::Char('u'),
        KeyCode::Char('w'),
        KeyCode::Char('z'),
        KeyCode::Char('/'),
        KeyCode::Char('\\'),
        KeyCode::Char('日'),
        KeyCode::Char(' '),
    ]);
    let modifiers = prop_oneof![
        4 => Just(KeyModifiers::NONE),
        1 => Just(KeyModifiers::CONTROL),
        1 => Just(KeyModifiers::ALT),
        1 => Just(KeyModifiers::SHIFT),
    ];
    (codes, modifiers).prop_map(|(code, modifiers)| Happens::Key(code, modifiers))
}

fn bodies() -> BoxedStrategy<Body> {
    let id = || sample::select(vec!["1", "2", "3"]).prop_map(str::to_owned);
    let tools = prop_oneof![
        (id(), words()).prop_map(|(id, name)| Body::ToolCall(ToolCall {
            id,
            name,
            arguments: r#"{"path":"a\nb","old_text":"x\ny","new_text":"z"}"#.to_owned(),
        })),
        id().prop_map(|id| Body::ToolStarted {
            id,
            name: "bash".to_owned()
        }),
        (id(), words(), any::<bool>()).prop_map(|(id, output, is_error)| Body::ToolResult {
            id,
            output,
            is_error
        }),
    ];
    let texts = prop_oneof![
        4 => words().prop_map(|text| Body::TextDelta { text }),
        2 => words().prop_map(|text| Body::ReasoningDelta { text }),
        1 => words().prop_map(|text| Body::Input { text }),
        1 => words().prop_map(|message| Body::Warning { message }),
        1 => collection::vec(words(), 0..5)
            .prop_map(|steering| Body::QueueChanged { steering, follow_up: Vec::new() }),
    ];
    let turns = prop_oneof![
        Just(start()),
        (1..5u32).prop_map(|attempt| Body::AttemptStarted { attempt }),
        (0..6u32).prop_map(|attempt| Body::Retracted { attempt }),
        (1..5u32, 0..100_000u64).prop_map(|(attempt, seconds)| scheduled(attempt, seconds)),
        (0..100_000u64).prop_map(held),
        Just(Body::Seam {
            by: ContinueBy::Prompt
        }),
        (any::<bool>(), option::of(words())).prop_map(|(success, error)| Body::RetryEnded {
            success,
            attempt: 2,
            error,
        }),
        Just(compacting()),
        any::<u64>().prop_map(|input| Body::Usage(Usage {
            input,
            ..Usage::default()
        })),
        Just(sealed(TurnStatus::Aborted)),
        Just(sealed(TurnStatus::Completed)),
    ];
    prop_oneof![2 => texts, 1 => tools, 2 => turns].boxed()
}

fn anything() -> impl Strategy<Value = Happens> {
    prop_oneof![
        8 => keys(),
        8 => bodies().prop_map(Happens::Event),
        4 => (0..=120u16, 0..=40u16).prop_map(|(width, height)| Happens::Drawn(width, height)),
        2 => (-60..60isize).prop_map(Happens::Scrolled),
        1 => (0..60u16).prop_map(Happens::Clicked),
        1 => words().prop_map(Happens::Pasted),
        1 => words().prop_map(Happens::Line),
        1 => words().prop_map(Happens::Notice),
        1 => (0..3usize).prop_map(Happens::Joined),
        1 => collection::vec(words(), 0..3).prop_map(Happens::TakenBack),
        1 => option::of(words()).prop_map(Happens::Ended),
        1 => (0..3u64).prop_map(Happens::Armed),
        2 => sample::select(vec![
            Happens::Asked,
            Happens::Unasked,
            Happens::Sessions,
            Happens::SaidAgain,
            Happens::Interrupted,
        ]),
    ]
}

fn draw(chat: &mut Chat, (width, height): (u16, u16), now: Timestamp) {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let theme = Theme::colour();
    let drawn = terminal.draw(|frame| view::draw(frame, chat, &theme, now));
    let buffer = drawn.unwrap().buffer;
    let is_clean = |symbol: &str| !symbol.chars().any(outlast_kernel::text::is_unprintable);
    assert!(buffer.content.iter().all(|cell| is_clean(cell.symbol())));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn random_inputs_neither_panic_nor_leak_control_characters(
        all in collection::vec(anything(), 1..60),
    ) {
        let mut chat = Chat::new();
        for (second, happens) in (0..).zip(all) {
            if let Happens::Drawn(width, height) = happens {
                draw(&mut chat, (width, height), later(second));
            }
            chat.handle(happens.input(), later(second));
        }
        draw(&mut chat, (80, 24), NOW);
        let settled = chat.transcript.settled_from(0).count();
        assert!(settled <= chat.transcript.len());
    }
}

#[test]
fn chat_draws_in_any_state_at_any_size() {
    let states: [fn() -> Chat; 5] = [Chat::new, idle, working, retrying, asked];
    for state in states {
        let mut chat = state();
        chat.events([text("An answer.\n\n```\ncode\n```\n")]);
        chat.write("/");
        for width in (0..=24).chain([40, 80, 120]) {
            for height in (0..=10).chain([24, 40]) {
                draw(&mut chat, (width, height), NOW);
            }
        }
    }
}
