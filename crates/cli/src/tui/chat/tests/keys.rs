//! The meaning of keys in every state, with and without a draft.

use super::*;
use crate::tui::transcript::Kind;

type State = fn() -> Chat;

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

fn just_asked() -> Chat {
    let mut chat = working();
    chat.handle(question(), NOW);
    chat
}

fn choosing() -> Chat {
    let mut chat = idle();
    chat.write("/");
    chat
}

const NONE: KeyModifiers = KeyModifiers::NONE;
const KEYS: [(&str, KeyModifiers, KeyCode); 14] = [
    ("Esc", NONE, KeyCode::Esc),
    ("Ctrl-C", KeyModifiers::CONTROL, KeyCode::Char('c')),
    ("Ctrl-D", KeyModifiers::CONTROL, KeyCode::Char('d')),
    ("Enter", NONE, KeyCode::Enter),
    ("Alt-Enter", KeyModifiers::ALT, KeyCode::Enter),
    ("Tab", NONE, KeyCode::Tab),
    ("Up", NONE, KeyCode::Up),
    ("Down", NONE, KeyCode::Down),
    ("r", NONE, KeyCode::Char('r')),
    ("y", NONE, KeyCode::Char('y')),
    ("n", NONE, KeyCode::Char('n')),
    ("a", NONE, KeyCode::Char('a')),
    ("Alt-Y", KeyModifiers::ALT, KeyCode::Char('y')),
    ("Ctrl-Z", KeyModifiers::CONTROL, KeyCode::Char('z')),
];

/// Returns the actions for a key, and the changes of the state.
fn meaning(mut chat: Chat, modifiers: KeyModifiers, code: KeyCode) -> String {
    let before = (
        chat.editor.text(),
        chat.choices.selected,
        chat.question.is_some(),
    );
    let wants = chat.handle(with(modifiers, code), NOW);
    let mut says: Vec<String> = wants.iter().map(|want| format!("{want:?}")).collect();
    let (written, selected, was_asked) = before;
    if chat.editor.text() != written {
        says.push(format!("writes {:?}", chat.editor.text()));
    }
    if !chat.choices.items.is_empty() {
        says.push(match chat.choices.selected == selected {
            true => format!("{} choices", chat.choices.items.len()),
            false => format!("choice {}", chat.choices.selected),
        });
    }
    if was_asked && chat.question.is_none() {
        says.push("answered".to_owned());
    }
    says.extend(chat.hint.map(|hint| format!("says {hint:?}")));
    match says.is_empty() {
        true => "-".to_owned(),
        false => says.join(", "),
    }
}

#[test]
fn every_key_has_its_action_in_every_state() {
    let states: [(&str, State); 9] = [
        ("starting", Chat::new),
        ("idle", idle),
        ("working", working),
        ("retrying", retrying),
        ("in line", in_line),
        ("compacting", making_smaller),
        ("asked", asked),
        ("just asked", just_asked),
        ("choosing", choosing),
    ];
    let mut table = String::new();
    for (name, state) in states {
        for draft in ["", "words"] {
            let draft = if name == "choosing" {
                draft.get(..0).unwrap()
            } else {
                draft
            };
            table.push_str(&format!(
                "{name}{}\n",
                if draft.is_empty() {
                    ""
                } else {
                    ", with a draft"
                }
            ));
            for (key, modifiers, code) in KEYS {
                let mut chat = state();
                chat.write(draft);
                let meaning = meaning(chat, modifiers, code);
                table.push_str(&format!("  {key:<10} {meaning}\n"));
            }
            if name == "choosing" {
                break;
            }
        }
    }
    insta::assert_snapshot!(table);
}

#[test]
fn escape_cancels_the_retry_and_only_then_the_turn() {
    let mut chat = retrying();
    assert_eq!(chat.take_all([key(KeyCode::Esc)]), [Action::AbortRetry]);
    // This also holds for a retry that the gate delays.
    chat.handle(event(held(60)), later(3));
    assert_eq!(chat.take_all([key(KeyCode::Esc)]), [Action::AbortRetry]);
    chat.events([Body::AttemptStarted { attempt: 2 }]);
    assert_eq!(chat.take_all([key(KeyCode::Esc)]), [Action::Abort]);
    chat.events([sealed(TurnStatus::Aborted)]);
    chat.handle(Input::TaskEnded(Outcome::default()), NOW);
    assert_eq!(chat.take_all([key(KeyCode::Esc)]), []);
}

#[test]
fn sent_message_can_be_aborted_before_turn_starts() {
    let mut chat = idle();
    chat.write("hello");
    assert_eq!(
        chat.take_all([key(KeyCode::Enter)]),
        [Action::SendMessage("hello".to_owned())]
    );
    assert!(matches!(chat.activity, Activity::Working { .. }));
    assert_eq!(chat.take_all([key(KeyCode::Esc)]), [Action::Abort]);
}

#[test]
fn message_sent_while_session_opens_keeps_chat_busy() {
    for mut chat in [Chat::new(), idle()] {
        chat.write("hello");
        chat.take_all([key(KeyCode::Enter)]);
        chat.handle(Input::SessionOpened(Box::new(joined())), NOW);
        assert!(chat.is_busy() && matches!(chat.activity, Activity::Working { .. }));
        chat.events([start(), input("hello"), sealed(TurnStatus::Completed)]);
        chat.handle(Input::TaskEnded(Outcome::default()), NOW);
        chat.handle(Input::SessionOpened(Box::new(joined())), NOW);
        assert!(!chat.is_busy() && chat.activity == Activity::Idle);
    }
}

#[test]
fn second_ctrl_c_quits_unless_another_key_intervenes() {
    let interrupt = || with(KeyModifiers::CONTROL, KeyCode::Char('c'));
    let mut chat = idle();
    assert_eq!(chat.take_all([interrupt(), interrupt()]), [Action::Quit]);
    let mut chat = idle();
    assert_eq!(
        chat.take_all([interrupt(), key(KeyCode::Left), interrupt()]),
        []
    );
    let mut chat = working();
    assert_eq!(
        chat.take_all([interrupt(), interrupt()]),
        [Action::Abort, Action::Abort]
    );
}

#[test]
fn text_typed_before_question_is_armed_becomes_draft() {
    let mut chat = working();
    assert_eq!(chat.take_all([question()]), [Action::ArmQuestion(1)]);
    assert_eq!(chat.take_all([key(KeyCode::Char('y'))]), []);
    chat.handle(Input::QuestionArmed(1), NOW);
    // The text is a draft by now.
    assert_eq!(chat.take_all([key(KeyCode::Char('y'))]), []);
    assert_eq!(chat.editor.text(), "yy");
    let yes = with(KeyModifiers::ALT, KeyCode::Char('y'));
    assert_eq!(
        chat.take_all([yes]),
        [Action::Answer(ApprovalDecision::AllowOnce)]
    );
}

#[test]
fn question_is_not_armed_by_timer_of_earlier_question() {
    let mut chat = asked();
    chat.handle(Input::QuestionWithdrawn, NOW);
    assert_eq!(chat.take_all([question()]), [Action::ArmQuestion(2)]);
    assert_eq!(
        chat.take_all([Input::QuestionArmed(1), key(KeyCode::Char('y'))]),
        []
    );
    chat.editor.clear();
    let answer = chat.take_all([Input::QuestionArmed(2), key(KeyCode::Char('n'))]);
    assert_eq!(answer, [Action::Answer(ApprovalDecision::Deny)]);
}

#[test]
fn choice_list_is_navigated_and_selected_by_keys() {
    let mut chat = choosing();
    chat.write("model");
    assert_eq!(chat.take_all([key(KeyCode::Enter)]), []);
    assert_eq!(
        (chat.editor.text().as_str(), chat.choices.items.len()),
        ("/model ", 12)
    );
    let wants = chat.take_all([key(KeyCode::Up), key(KeyCode::Enter)]);
    assert_eq!(wants, [Action::Model("mock:model-12".to_owned())]);
    assert!(chat.editor.is_empty() && chat.choices.items.is_empty());
    chat.write("/sess");
    assert_eq!(chat.take_all([key(KeyCode::Tab)]), [Action::ListSessions]);
    chat.handle(Input::SessionsListed(vec![session("0123", "A talk")]), NOW);
    let wants = chat.take_all([key(KeyCode::Enter)]);
    assert_eq!(wants, [Action::Session("0123".to_owned())]);
}

#[test]
fn alt_or_backslash_enter_inserts_newline() {
    let mut chat = choosing();
    chat.write("help");
    assert_eq!(chat.take_all([with(KeyModifiers::ALT, KeyCode::Enter)]), []);
    assert_eq!(chat.editor.text(), "/help\n");
    assert!(chat.choices.items.is_empty());
    let mut chat = idle();
    chat.write("one\\");
    chat.take_all([key(KeyCode::Enter)]);
    chat.write("two");
    let said = Action::SendMessage("one\ntwo".to_owned());
    assert_eq!(chat.take_all([key(KeyCode::Enter)]), [said]);
}

#[test]
fn line_input_acts_like_typed_keys() {
    let line = |text: &str| Input::Line(text.to_owned());
    let table: [(State, &str, Option<Action>); 9] = [
        (idle, "hello", Some(Action::SendMessage("hello".to_owned()))),
        (idle, "r", Some(Action::SendMessage("r".to_owned()))),
        (idle, "  ", None),
        (retrying, "r", Some(Action::RetryNow)),
        (retrying, "\u{1b}", Some(Action::AbortRetry)),
        (working, "\u{1b}\u{1b}", Some(Action::Abort)),
        (
            asked,
            "Yes",
            Some(Action::Answer(ApprovalDecision::AllowOnce)),
        ),
        (asked, "maybe", None),
        (idle, "/retry off", Some(Action::SwitchRetry(false))),
    ];
    for (state, typed, expected) in table {
        let wants = state().handle(line(typed), NOW);
        assert_eq!(wants, Vec::from_iter(expected), "{typed:?}");
    }
}

#[test]
fn typed_model_is_used_unless_list_was_navigated() {
    let chat = || {
        let mut chat = idle();
        let mut there = joined();
        there.models = vec!["mock:ok-mini".to_owned()];
        chat.handle(Input::SessionOpened(Box::new(there)), NOW);
        chat.write("/model ok");
        chat
    };
    let enter = || key(KeyCode::Enter);
    assert_eq!(chat().take_all([enter()]), [Action::Model("ok".to_owned())]);
    let chosen = chat().take_all([key(KeyCode::Down), enter()]);
    assert_eq!(chosen, [Action::Model("mock:ok-mini".to_owned())]);
}

#[test]
fn warning_before_session_opens_is_kept() {
    let mut chat = Chat::new();
    let warning = "warning: it cannot be written down".to_owned();
    chat.handle(Input::Notice(Tone::Warning, warning.clone()), NOW);
    chat.handle(Input::SessionOpened(Box::new(joined())), NOW);
    let is_it = |kind: &Kind| matches!(kind, Kind::Notice { text, .. } if *text == warning);
    let notices = chat.transcript.settled_from(0);
    assert_eq!(notices.filter(|(_, kind, _)| is_it(kind)).count(), 1);
}

#[test]
fn compaction_summary_is_not_shown_as_user_message() {
    let mark = "[Summary of the conversation so far, in place of its messages]\nThe parser.";
    let mut there = joined();
    there.messages = vec![Message::user(mark)];
    let mut chat = Chat::new();
    chat.handle(Input::SessionOpened(Box::new(there)), NOW);
    let mut blocks = chat.transcript.settled_from(0);
    assert!(blocks.all(|(_, kind, _)| !matches!(kind, Kind::User(_))));
    drop(blocks);
    chat.take_all([key(KeyCode::Up)]);
    assert!(chat.editor.is_empty());
}
