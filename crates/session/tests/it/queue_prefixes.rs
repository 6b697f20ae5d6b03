//! A session with every kind of queued message, cut off after each of its entries: the next process sends every message
//! in the journal exactly once.

use crate::pieces::assert_well_formed;
use crate::support::{
    Call, Fixture, Listener, TestJournal, answers, calls, describe_messages, fails,
    on_other_thread, overloaded,
};
use outlast_dialect::{Message, Part, Role};
use outlast_engine::clock::TimerClock;
use outlast_engine::journal::Entry;
use outlast_kernel::budget::{Limits, Prompt};
use outlast_kernel::event::{Body, TurnStatus, Usage};
use outlast_session::Session;
use outlast_session::{PromptRequest, QueueKind, State};
use outlast_store::journal::StoredEntry;
use std::sync::Arc;
use std::time::Duration;

use QueueKind::{FollowUp, Note, Steering};

/// Returns a failure, two steps with a tool, a final completion, and one for each follow-up.
fn script() -> Vec<Call> {
    vec![
        fails(overloaded()),
        calls(&[("c1", "read")]),
        calls(&[("c2", "send")]),
        answers("one"),
        answers("two"),
        answers("three"),
    ]
}

/// Returns the messages to queue at an event.
fn comes_at(body: &Body) -> &'static [(QueueKind, &'static str)] {
    match body {
        Body::RetryScheduled { .. } => &[(Steering, "s1"), (Steering, "s2"), (FollowUp, "f1")],
        Body::ToolStarted { id, .. } if id == "c1" => &[(Note, "n1"), (FollowUp, "x")],
        Body::ToolStarted { id, .. } if id == "c2" => &[(Steering, "s3")],
        Body::TextDelta { text } if text == "one" => &[(Note, "n2"), (FollowUp, "f2")],
        _ => &[],
    }
}

/// Returns all entries of the session, and the resulting conversation.
async fn whole_session() -> (Vec<StoredEntry>, Vec<Message>) {
    let (kept, world) = (TestJournal::new(), Fixture::new(script()));
    let session = kept.begin(world.setup()).await;
    let _heard = Listener::with(&session, |session, body| {
        for (place, text) in comes_at(body) {
            on_other_thread(session.enqueue(*place, Message::user(*text))).unwrap();
        }
    });
    session.prompt("hi".into()).await.unwrap();
    queue_all(&session).await;
    (session.entries().await.unwrap(), session.messages())
}

/// Resumes the unfinished turn, if there is one, and sends all queued messages.
async fn queue_all(session: &Session) {
    if session.unfinished_turn().is_some() {
        let ended = session.resume().await.unwrap();
        assert_eq!(ended.seal, TurnStatus::Completed, "{:?}", ended.error);
    }
    while let Some(ended) = session
        .prompt_queued(PromptRequest::default())
        .await
        .unwrap()
    {
        assert_eq!(ended.seal, TurnStatus::Completed, "{:?}", ended.error);
    }
    // A queued note is sent with the next prompt.
    session.prompt("bye".into()).await.unwrap();
}

/// Returns the queued texts of these entries, in their order.
fn queued(entries: &[Entry]) -> Vec<String> {
    let text = |entry: &Entry| match entry {
        Entry::Queued { message, .. } => Some(message.text()),
        _ => None,
    };
    entries.iter().filter_map(text).collect()
}

fn is_last_answer(entry: &Entry) -> bool {
    matches!(entry, Entry::Message { message, .. } if message.tool_calls().next().is_none())
}

#[tokio::test(start_paused = true)]
async fn queued_messages_are_delivered_once_after_any_cut() {
    let (stored, whole) = whole_session().await;
    let read = |line| outlast_session::parse_entry("s", line).unwrap();
    let all: Vec<Entry> = stored.iter().map(read).collect();
    let every = ["s1", "s2", "f1", "n1", "x", "s3", "n2", "f2"];
    assert_eq!(queued(&all), every);
    let expected = [
        "hi",
        "s1",
        "read(c1)",
        "c1: c1 is done",
        "n1",
        "s2",
        "send(c2)",
        "c2: c2 is done",
        "s3",
        "one",
        "n2",
        "f1",
        "two",
        "x",
        "three",
        "f2",
        "three",
        "bye",
        "three",
    ];
    assert_eq!(describe_messages(&whole), expected);
    for length in 1..=stored.len() {
        // The last completion is settled in one write.
        if is_last_answer(&all[length - 1]) {
            continue;
        }
        let at = format!("cut off after {length}: {}", all[length - 1].kind());
        let kept = TestJournal::new();
        kept.write_down("s", &stored[..length]).await;
        let restarted = stored[length - 1].entry.time + Duration::from_millis(500);
        let clock = Arc::new(TimerClock::new(restarted));
        let world = Fixture::by(clock, [answers("so be it")]);
        let session = kept.open("s", world.setup()).await;
        queue_all(&session).await;
        let conversation = describe_messages(&session.messages());
        for text in every {
            let said = conversation.iter().filter(|word| *word == text).count();
            let wanted = usize::from(queued(&all[..length]).iter().any(|queued| queued == text));
            assert_eq!(said, wanted, "{text}, {at}: {conversation:?}");
        }
        assert_well_formed(&session.messages());
        let requests = world.provider.requests();
        let last = requests.last().unwrap();
        assert_eq!(
            describe_messages(&last.messages),
            conversation[..conversation.len() - 1],
            "{at}"
        );
        drop(session);
        let session = kept.open("s", world.setup()).await;
        assert_eq!(describe_messages(&session.messages()), conversation, "{at}");
    }
}

#[tokio::test(start_paused = true)]
async fn cleared_messages_do_not_return_after_any_cut() {
    let (kept, world) = (TestJournal::new(), Fixture::new([answers("one")]));
    let session = kept.begin(world.setup()).await;
    session.enqueue(Steering, Message::user("a")).await.unwrap();
    session.enqueue(FollowUp, Message::user("b")).await.unwrap();
    session.clear_queue().await.unwrap();
    session.enqueue(Steering, Message::user("c")).await.unwrap();
    let stored = session.entries().await.unwrap();
    assert_eq!(stored.len(), 4);
    for (length, expected) in [(1, "a"), (2, "a b"), (3, ""), (4, "c")] {
        let kept = TestJournal::new();
        kept.write_down("s", &stored[..length]).await;
        let session = kept.open("s", world.setup()).await;
        let waiting = session.queued_messages();
        let messages = waiting.steering.iter().chain(&waiting.follow_up);
        let texts: Vec<String> = messages.map(Message::text).collect();
        assert_eq!(texts.join(" "), expected, "after {length}");
    }
}

#[test]
fn delivered_message_ends_pending_continuation() {
    let prompt = Entry::Prompt {
        turn_id: "t".to_owned(),
        message: Some(Message::user("hi")),
        budget: Prompt::new(Limits::default()),
        chosen: false,
        options: serde_json::Value::Null,
    };
    let failed = Entry::AttemptFailed {
        attempt: 1,
        judged: None,
        message: Message {
            role: Role::Assistant,
            parts: vec![Part::Text {
                text: "Hel".to_owned(),
            }],
        },
        usage: Usage::default(),
        kept: true,
        place: None,
    };
    let said = Entry::Delivered {
        ids: Vec::new(),
        messages: vec![Message::user("left")],
        note: false,
    };
    let kept = |entries: Vec<Entry>| {
        let unfinished = State::from_entries(entries).unfinished.unwrap();
        unfinished.resume_state.continuation.is_some()
    };
    assert!(kept(vec![prompt.clone(), failed.clone()]));
    assert!(
        !kept(vec![prompt, failed, said]),
        "the model has not read on"
    );
}
