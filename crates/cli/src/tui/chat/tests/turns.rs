//! Turns as the engine may report them, in the orders that matter.

use super::*;
use outlast_dialect::{Part, Role};
use outlast_kernel::event::{StopReason, ToolCall};
use outlast_kernel::model_info::ContinueBy;

fn call(id: &str) -> Body {
    Body::ToolCall(ToolCall {
        id: id.to_owned(),
        name: "bash".to_owned(),
        arguments: r#"{"command":"make"}"#.to_owned(),
    })
}

fn attempt(attempt: u32) -> Body {
    Body::AttemptStarted { attempt }
}

fn ended() -> Input {
    Input::TaskEnded(Outcome::default())
}

#[test]
fn repeated_failures_share_one_notice_with_count() {
    let mut chat = working();
    for number in 1..=3 {
        chat.events([scheduled(number, 2), attempt(number + 1)]);
    }
    assert!(
        chat.shown()
            .ends_with("⚠ Server overloaded: Overloaded (529) (×3)"),
        "{}",
        chat.shown()
    );
    assert_eq!(chat.status.retries, 3);
    let failed = Body::RetryEnded {
        success: false,
        attempt: 3,
        error: Some("Overloaded".to_owned()),
    };
    chat.events([failed, sealed(TurnStatus::Error)]);
    assert!(
        chat.shown()
            .ends_with("\nRetry failed after 3 attempts: Overloaded")
    );
}

#[test]
fn retraction_covers_continued_completion_from_its_start() {
    let mut chat = working();
    let seam = || Body::Seam {
        by: ContinueBy::Prompt,
    };
    chat.events([
        text("first half"),
        scheduled(1, 2),
        attempt(2),
        seam(),
        text("second half"),
    ]);
    chat.events([
        Body::Retracted { attempt: 1 },
        Body::Retracted { attempt: 2 },
    ]);
    chat.events([
        scheduled(2, 2),
        attempt(3),
        text("all of it"),
        sealed(TurnStatus::Completed),
    ]);
    let worth: Vec<bool> = chat
        .transcript
        .settled_from(0)
        .map(|(_, _, retracted)| retracted)
        .collect();
    assert_eq!(worth, [false, true, false, false, true, false, false]);
    let shown = chat.shown();
    assert_eq!(shown.matches("(broke off").count(), 2, "{shown}");
}

#[test]
fn retraction_takes_only_text_kept_from_earlier_process() {
    let mut chat = working();
    chat.events([text("before"), sealed(TurnStatus::Completed)]);
    chat.events([start(), input("more"), text("kept")]);
    chat.events([Body::Retracted { attempt: 7 }, attempt(8), text("anew")]);
    let expected =
        "› hello\n\nbefore\n\n› more\n\n(broke off, and is asked for again)\nkept\n\nanew";
    assert_eq!(chat.shown(), expected);
}

#[test]
fn resumed_turn_shows_nothing_twice() {
    let said = |role, text: &str| Message {
        role,
        parts: vec![Part::Text {
            text: text.to_owned(),
        }],
    };
    let mut with_call = said(Role::Assistant, "I run it.");
    with_call.parts.push(Part::ToolCall(ToolCall {
        id: "1".to_owned(),
        name: "bash".to_owned(),
        arguments: r#"{"command":"make"}"#.to_owned(),
    }));
    let joined = Joined {
        messages: vec![
            said(Role::User, "make it"),
            said(Role::User, "quickly"),
            with_call,
        ],
        replayed_messages: 2,
        ..joined()
    };
    let mut chat = Chat::new();
    chat.handle(Input::SessionOpened(Box::new(joined)), NOW);
    let before = chat.shown();
    chat.events([start(), input("make it"), input("quickly"), call("1")]);
    assert_eq!(chat.shown(), before);
    let (id, output) = ("1".to_owned(), "done".to_owned());
    chat.events([Body::ToolResult {
        id,
        output,
        is_error: false,
    }]);
    chat.events([input("and now this")]);
    let expected = "› make it\n\n› quickly\n\nI run it.\n\n● bash make\n  │ done\n\n› and now this";
    assert_eq!(chat.shown(), expected);
}

#[test]
fn retried_turn_shows_nothing_twice() {
    let mut chat = idle();
    // There was nothing to retry.
    chat.write("/retry");
    assert_eq!(chat.take_all([key(KeyCode::Enter)]), [Action::Retry]);
    chat.events([start(), input("one"), sealed(TurnStatus::Error)]);
    chat.take_all([ended(), Input::TurnReplayed]);
    chat.events([
        start(),
        input("one"),
        attempt(1),
        text("yes"),
        sealed(TurnStatus::Completed),
    ]);
    chat.handle(ended(), NOW);
    chat.events([start(), input("two")]);
    assert_eq!(chat.shown(), "› one\n\nyes\n\n› two");
}

#[test]
fn aborted_turn_ends_its_running_tools() {
    let mut chat = working();
    chat.events([call("1"), call("2")]);
    let (id, name) = ("1".to_owned(), "bash".to_owned());
    chat.events([Body::ToolStarted { id, name }, sealed(TurnStatus::Aborted)]);
    assert!(
        chat.shown()
            .ends_with("○ bash make\n○ bash make\n\nInterrupted."),
        "{}",
        chat.shown()
    );
    assert_eq!(
        chat.transcript.settled_from(0).count(),
        chat.transcript.len()
    );
}

// --- Waits ---

fn words(chat: &Chat, now: Timestamp) -> String {
    chat.activity.describe(now).unwrap().text
}

#[test]
fn gate_hold_moves_retry_countdown() {
    let mut chat = retrying();
    chat.events([scheduled(2, 600)]);
    // Before its scheduled time the gate can only move it forward.
    chat.handle(event(held(20)), NOW);
    assert_eq!(words(&chat, NOW), "Retrying (2/3) in 20s… (esc to cancel)");
    chat.handle(event(held(900)), later(1));
    assert_eq!(
        words(&chat, later(1)),
        "Retrying (2/3) in 599s… (esc to cancel)"
    );
    // From its scheduled time on the gate decides.
    chat.handle(event(held(700)), later(600));
    assert_eq!(
        words(&chat, later(600)),
        "Retrying (2/3) in 100s… (esc to cancel)"
    );
    chat.handle(event(held(650)), later(610));
    assert_eq!(
        words(&chat, later(610)),
        "Retrying (2/3) in 40s… (esc to cancel)"
    );
}

#[test]
fn expired_gate_hold_restores_retry_time() {
    let mut chat = working();
    chat.events([scheduled(1, 600), held(20)]);
    assert_eq!(
        words(&chat, later(20)),
        "Retrying (1/3) in 0s… (esc to cancel)"
    );
    assert_eq!(
        words(&chat, later(21)),
        "Retrying (1/3) in 579s… (esc to cancel)"
    );
}

#[test]
fn retry_now_still_waits_for_held_gate() {
    let mut chat = working();
    chat.events([scheduled(1, 600)]);
    assert_eq!(
        chat.handle(key(KeyCode::Char('r')), later(1)),
        [Action::RetryNow]
    );
    chat.handle(event(held(900)), later(1));
    assert_eq!(
        words(&chat, later(1)),
        "Retrying (1/3) in 899s… (esc to cancel)"
    );
}

#[test]
fn gate_hold_before_first_failure_shows_queued() {
    let mut chat = idle();
    chat.events([start(), input("hello"), held(30)]);
    assert_eq!(
        words(&chat, NOW),
        "Rate limited, waiting in line, 30s… (esc to interrupt)"
    );
    chat.handle(event(held(10)), NOW);
    assert_eq!(
        words(&chat, NOW),
        "Rate limited, waiting in line, 10s… (esc to interrupt)"
    );
    assert_eq!(chat.take_all([key(KeyCode::Char('r'))]), [Action::RetryNow]);
    chat.events([attempt(1)]);
    assert!(matches!(chat.activity, Activity::Working { .. }));
}

#[test]
fn activity_is_restored_after_compaction() {
    let ended = || Body::AutoCompactionEnded {
        reason: CompactionReason::Threshold,
        before: 150_000,
        after: 20_000,
        will_retry: false,
        summary: None,
        error: None,
    };
    let mut chat = working();
    chat.events([compacting()]);
    assert!(matches!(chat.activity, Activity::Compacting { .. }) && chat.is_busy());
    chat.events([ended()]);
    assert!(matches!(chat.activity, Activity::Working { .. }));
    assert_eq!(chat.status.context, 20_000);
    let mut chat = idle();
    chat.events([compacting(), ended()]);
    assert_eq!(chat.activity, Activity::Idle);
    assert!(!chat.is_busy());
}

// --- Queued messages ---

#[test]
fn queued_messages_return_to_editor_when_turn_ends() {
    let mut chat = working();
    let queue = |steering: &[&str]| Body::QueueChanged {
        steering: steering.iter().map(|&text| text.to_owned()).collect(),
        follow_up: Vec::new(),
    };
    chat.events([queue(&["first", "second"])]);
    chat.write("draft");
    chat.events([sealed(TurnStatus::Aborted)]);
    assert_eq!(chat.take_all([ended()]), [Action::TakeBackQueue]);
    let back = vec!["first".to_owned(), "second".to_owned()];
    chat.handle(Input::QueueTakenBack(back), NOW);
    assert_eq!(chat.editor.text(), "first\nsecond\ndraft");
    assert!(chat.queued.is_empty());
    // A message that was delivered with the model's next step leaves the queue.
    let mut chat = working();
    chat.events([queue(&["now"]), queue(&[]), input("now")]);
    assert_eq!(chat.take_all([ended()]), []);
}

#[test]
fn long_returned_message_collapses_to_paste() {
    let mut chat = idle();
    let long = "a line\n".repeat(100_000);
    chat.handle(
        Input::QueueTakenBack(vec![long.clone(), "short".to_owned()]),
        NOW,
    );
    assert_eq!(
        chat.editor.text(),
        "[pasted text 1: 684 KiB, 100000 lines]\nshort"
    );
    let wants = chat.take_all([key(KeyCode::Enter)]);
    assert!(wants == [Action::SendMessage(format!("{long}\nshort"))]);
}

#[test]
fn problem_and_hint_are_shown_when_turn_ends() {
    let mut chat = working();
    let done = Body::Done {
        stop_reason: StopReason::EndTurn,
    };
    chat.events([done, sealed(TurnStatus::Completed)]);
    chat.handle(
        Input::TaskEnded(Outcome {
            problem: Some("the answer is empty".to_owned()),
            hint: Some("ask again".to_owned()),
            ..Outcome::default()
        }),
        NOW,
    );
    assert!(
        chat.shown()
            .ends_with("the answer is empty\nhint: ask again")
    );
}
