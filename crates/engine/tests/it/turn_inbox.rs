//! Messages that are queued for the model while a turn runs.

use crate::journaled::{
    Case, ownership_lost, queued_message, retry_then_tools_script, write_failed, write_succeeds,
};
use crate::support::{START, hello};
use outlast_dialect::Message;
use outlast_engine::inbox::QueueKind::{Note, Steering};
use outlast_engine::journal::Entry;
use outlast_kernel::budget::Limits;
use outlast_kernel::event::{Body, TurnStatus};

fn texts(messages: &[Message]) -> Vec<String> {
    let texts = messages.iter().map(Message::text);
    texts.filter(|text| !text.is_empty()).collect()
}

/// Returns a case with messages queued for the second and the third call.
fn case() -> Case {
    Case {
        waiting: vec![
            Vec::new(),
            vec![
                queued_message(Steering, "a"),
                queued_message(Note, "n"),
                queued_message(Steering, "b"),
            ],
            vec![queued_message(Steering, "c")],
        ],
        ..Case::new(retry_then_tools_script(), write_succeeds)
    }
}

#[tokio::test(start_paused = true)]
async fn queued_messages_are_journaled_before_events_and_call() {
    let came = case().run().await;
    assert_eq!(
        (came.ended.seal, came.ended.is_recorded),
        (TurnStatus::Completed, true)
    );
    let taken = came.log.iter().position(|line| line == "take").unwrap();
    let expected = [
        "sleep 2",
        "take",
        "write wait_ended said said",
        "say input",
        "say input",
        "write attempt_started",
        "say attempt_started",
        "call",
    ];
    assert_eq!(came.log[taken - 1..taken + 7], expected);
    assert_eq!(texts(&came.ended.messages), ["n", "a", "b", "c", "Hello"]);
    let said = came.written.iter().filter_map(|entry| match entry {
        Entry::Delivered { ids, note, .. } => Some((ids.join(" "), *note)),
        _ => None,
    });
    let expected = [("n", true), ("a b", false), ("c", false)];
    let expected = expected.map(|(ids, note)| (ids.to_owned(), note));
    assert_eq!(said.collect::<Vec<_>>(), expected);
}

#[tokio::test(start_paused = true)]
async fn queued_messages_are_sent_despite_journal_failure() {
    let case = Case {
        fate: Box::new(|_| write_failed()),
        ..case()
    };
    let came = case.run().await;
    assert_eq!(
        (came.ended.seal, came.ended.is_recorded),
        (TurnStatus::Completed, false)
    );
    assert_eq!(came.count("say input"), 4);
    assert_eq!(texts(&came.ended.messages), ["n", "a", "b", "c", "Hello"]);
}

#[tokio::test(start_paused = true)]
async fn ownership_lost_on_delivery_makes_no_call() {
    let case = Case {
        waiting: vec![vec![queued_message(Steering, "a")]],
        fate: Box::new(|number| if number > 1 { ownership_lost() } else { Ok(()) }),
        ..Case::new([hello()], write_succeeds)
    };
    let came = case.run().await;
    assert_eq!(
        (came.ended.seal, came.count("call")),
        (TurnStatus::Error, 0)
    );
    assert_eq!(
        came.lines(&["write", "lose"])[..2],
        ["write prompt", "lose said"]
    );
}

#[tokio::test(start_paused = true)]
async fn queued_messages_stay_when_no_call_is_made() {
    let case = || Case {
        waiting: vec![vec![queued_message(Steering, "a")]],
        ..Case::new([hello()], write_succeeds)
    };
    let aborted = Case {
        react: |body, handle| {
            if matches!(body, Body::Start { .. }) {
                handle.abort();
            }
        },
        ..case()
    };
    let too_late = Case {
        limits: Limits {
            deadline: Some(START),
            ..Limits::default()
        },
        ..case()
    };
    for case in [aborted, too_late] {
        let came = case.run().await;
        assert_eq!((came.count("take"), came.count("call")), (0, 0));
        assert!(!came.kinds().contains(&"said"));
    }
}
