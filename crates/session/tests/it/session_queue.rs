//! The queue of a session: the time at which messages are sent, the number sent at once, and notes.

use crate::pieces::{assert_well_formed, breaks, continues};
use crate::support::{
    Fixture, Listener, TestJournal, answers, calls, describe_messages, fails, hangs, is_wait,
    on_other_thread, overloaded, stop, text, tool_call_delta,
};
use outlast_dialect::Message;
use outlast_engine::journal::Entry;
use outlast_kernel::event::{Body, StopReason, TurnStatus};
use outlast_kernel::model_info::ContinueBy;
use outlast_session::Session;
use outlast_session::{DrainMode, PromptRequest, QueueKind, Queued};
use std::sync::Arc;

use QueueKind::{FollowUp, Note, Steering};

/// Queues these messages at the first such event.
fn queues(
    session: &Arc<Session>,
    at: fn(&Body) -> bool,
    messages: &'static [(QueueKind, &'static str)],
) -> Listener {
    let mut once = true;
    Listener::with(session, move |session, body| {
        if at(body) && std::mem::take(&mut once) {
            for (place, text) in messages {
                on_other_thread(session.enqueue(*place, Message::user(*text))).unwrap();
            }
        }
    })
}

fn starts_tool(body: &Body) -> bool {
    matches!(body, Body::ToolStarted { .. })
}

fn says_text(body: &Body) -> bool {
    matches!(body, Body::TextDelta { .. })
}

/// Returns the conversation of each call, in words.
fn request_texts(world: &Fixture) -> Vec<Vec<String>> {
    let asked = world.provider.requests();
    asked
        .iter()
        .map(|asked| describe_messages(&asked.messages))
        .collect()
}

fn inputs(heard: &Listener) -> Vec<String> {
    let input = |body: Body| match body {
        Body::Input { text } => Some(text),
        _ => None,
    };
    heard.bodies().into_iter().filter_map(input).collect()
}

/// Returns the announced states of the queue.
fn changes(heard: &Listener) -> Vec<(Vec<String>, Vec<String>)> {
    let change = |body: Body| match body {
        Body::QueueChanged {
            steering,
            follow_up,
        } => Some((steering, follow_up)),
        _ => None,
    };
    heard.bodies().into_iter().filter_map(change).collect()
}

fn texts(messages: &[Message]) -> Vec<String> {
    messages.iter().map(Message::text).collect()
}

fn waiting(session: &Session) -> (Vec<String>, Vec<String>) {
    let Queued {
        steering,
        follow_up,
    } = session.queued_messages();
    (texts(&steering), texts(&follow_up))
}

fn owned(texts: [&[&str]; 2]) -> (Vec<String>, Vec<String>) {
    let [one, two] = texts.map(|texts| texts.iter().map(|text| (*text).to_owned()).collect());
    (one, two)
}

// --- Steering ---

#[tokio::test(start_paused = true)]
async fn steering_is_sent_after_tool_results() {
    let (kept, world) = (
        TestJournal::new(),
        Fixture::new([calls(&[("c1", "read"), ("c2", "read")]), answers("done")]),
    );
    let session = kept.begin(world.setup()).await;
    let heard = queues(&session, starts_tool, &[(Steering, "left")]);
    let ended = session.prompt("hi".into()).await.unwrap();
    let said = [
        "hi",
        "read(c1)",
        "read(c2)",
        "c1: c1 is done",
        "c2: c2 is done",
        "left",
    ];
    assert_eq!(request_texts(&world)[1], said);
    assert_eq!(
        describe_messages(&session.messages()),
        [&said[..], &["done"]].concat()
    );
    assert_eq!(
        describe_messages(&ended.messages),
        [&said[1..], &["done"]].concat()
    );
    assert_well_formed(&session.messages());
    let expected = [owned([&["left"], &[]]), owned([&[], &[]])];
    assert_eq!(changes(&heard), expected);
    let kinds = heard.kinds();
    let last = kinds
        .iter()
        .rposition(|kind| kind == "queue_changed")
        .unwrap();
    assert_eq!(
        kinds[last..last + 3],
        ["queue_changed", "input", "attempt_started"]
    );
    assert_eq!(inputs(&heard), ["hi", "left"]);
    let kinds = kept.kinds(session.id()).await;
    let said = kinds.iter().position(|kind| *kind == "said").unwrap();
    assert_eq!(
        kinds[said - 1..=said + 1],
        ["tool_finished", "said", "attempt_started"]
    );
}

#[tokio::test(start_paused = true)]
async fn steering_is_sent_with_the_next_retry() {
    let world = Fixture::new([fails(overloaded()), answers("done")]);
    let session = world.session();
    let heard = queues(&session, is_wait, &[(Steering, "left")]);
    session.prompt("hi".into()).await.unwrap();
    let expected = [vec!["hi"], vec!["hi", "left"]];
    assert_eq!(request_texts(&world), expected);
    assert_eq!(heard.retries(), [(1, 2_000)], "the schedule is as it was");
}

#[tokio::test(start_paused = true)]
async fn steering_waits_for_pending_continuation() {
    let go_on = vec![
        text("lo"),
        tool_call_delta("c1", "read"),
        stop(StopReason::ToolUse),
    ];
    let world = Fixture::new([breaks(vec![text("Hel")]), go_on.into(), answers("done")]);
    let session = Arc::new(Session::in_memory(continues(&world, ContinueBy::Prefill)));
    let heard = queues(&session, is_wait, &[(Steering, "left")]);
    session.prompt("hi".into()).await.unwrap();
    let asked = request_texts(&world);
    assert_eq!(asked[1], ["hi", "Hel"], "not into the middle of it");
    assert_eq!(
        asked[2],
        ["hi", "Hello", "read(c1)", "c1: c1 is done", "left"]
    );
    assert_eq!(inputs(&heard), ["hi", "left"]);
}

#[tokio::test(start_paused = true)]
async fn steering_mode_sets_messages_per_step() {
    for (mode, second, third) in [
        (DrainMode::OneAtATime, vec!["a"], vec!["a", "b"]),
        (DrainMode::All, vec!["a", "b", "c"], vec!["a", "b", "c"]),
    ] {
        let step = |id| calls(&[(id, "read")]);
        let world = Fixture::new([step("c1"), step("c2"), answers("done")]);
        let session = world.session();
        assert_eq!(
            session.steering_mode(),
            DrainMode::OneAtATime,
            "unless told otherwise"
        );
        session.set_steering_mode(mode);
        let messages = &[(Steering, "a"), (Steering, "b"), (Steering, "c")];
        let _heard = queues(&session, starts_tool, messages);
        session.prompt("hi".into()).await.unwrap();
        let said = |call: usize| {
            let is_said = |word: &String| ["a", "b", "c"].contains(&word.as_str());
            request_texts(&world)[call]
                .iter()
                .filter(|word| is_said(word))
                .cloned()
                .collect::<Vec<_>>()
        };
        assert_eq!((said(1), said(2)), (owned([&second, &third])), "{mode:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn prompt_precedes_queued_messages() {
    let world = Fixture::new([answers("done")]);
    let session = world.session();
    let heard = Listener::new(&session);
    session
        .enqueue(Steering, Message::user("left"))
        .await
        .unwrap();
    session
        .enqueue(FollowUp, Message::user("later"))
        .await
        .unwrap();
    session.prompt("hi".into()).await.unwrap();
    assert_eq!(request_texts(&world), [["hi", "left"]]);
    assert_eq!(inputs(&heard), ["hi", "left"]);
    assert_eq!(waiting(&session), owned([&[], &["later"]]));
}

// --- Follow-ups ---

#[tokio::test(start_paused = true)]
async fn each_follow_up_runs_as_its_own_turn() {
    let (kept, world) = (
        TestJournal::new(),
        Fixture::new([answers("one"), answers("two"), answers("three")]),
    );
    let session = kept.begin(world.setup()).await;
    let heard = queues(&session, says_text, &[(FollowUp, "a"), (FollowUp, "b")]);
    session.prompt("hi".into()).await.unwrap();
    assert_eq!(waiting(&session), owned([&[], &["a", "b"]]));
    let before = heard.kinds().len();
    let ended = session
        .prompt_queued(PromptRequest::default())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (ended.seal, ended.message.text()),
        (TurnStatus::Completed, "two".to_owned())
    );
    assert_eq!(request_texts(&world)[1], ["hi", "one", "a"]);
    let expected = ["start", "queue_changed", "input", "attempt_started"];
    assert_eq!(heard.kinds()[before..before + 4], expected);
    session
        .prompt_queued(PromptRequest::default())
        .await
        .unwrap()
        .unwrap();
    assert!(
        session
            .prompt_queued(PromptRequest::default())
            .await
            .unwrap()
            .is_none()
    );
    assert_eq!(
        describe_messages(&session.messages()),
        ["hi", "one", "a", "two", "b", "three"]
    );
    assert_eq!(inputs(&heard), ["hi", "a", "b"]);
    let kinds = kept.kinds(session.id()).await;
    let turn = ["prompt", "said", "attempt_started", "message", "settled"];
    assert!(kinds.ends_with(&[turn, turn].concat()), "{kinds:?}");
}

#[tokio::test(start_paused = true)]
async fn follow_up_mode_all_sends_them_in_one_turn() {
    let world = Fixture::new([answers("done")]);
    let session = world.session();
    assert_eq!(session.follow_up_mode(), DrainMode::OneAtATime);
    session.set_follow_up_mode(DrainMode::All);
    let heard = Listener::new(&session);
    for text in ["a", "b"] {
        session
            .enqueue(FollowUp, Message::user(text))
            .await
            .unwrap();
    }
    session
        .prompt_queued(PromptRequest::default())
        .await
        .unwrap();
    assert_eq!(request_texts(&world), [["a", "b"]]);
    assert_eq!(inputs(&heard), ["a", "b"]);
    assert_eq!(changes(&heard).last(), Some(&owned([&[], &[]])));
}

#[tokio::test(start_paused = true)]
async fn queued_turn_begins_with_steering_one_at_a_time() {
    let world = Fixture::new([calls(&[("c1", "read")]), answers("one"), answers("two")]);
    let session = world.session();
    for (place, text) in [(FollowUp, "f"), (Steering, "a"), (Steering, "b")] {
        session.enqueue(place, Message::user(text)).await.unwrap();
    }
    session
        .prompt_queued(PromptRequest::default())
        .await
        .unwrap();
    assert_eq!(request_texts(&world)[0], ["a"], "one at a time");
    assert_eq!(request_texts(&world)[1].last().unwrap(), "b");
    session
        .prompt_queued(PromptRequest::default())
        .await
        .unwrap();
    assert_eq!(request_texts(&world)[2].last().unwrap(), "f");
}

// --- Messages that are not sent ---

#[tokio::test(start_paused = true)]
async fn abort_keeps_queued_messages_until_next_prompt() {
    let world = Fixture::new([hangs(vec![text("Hel")]), answers("done")]);
    let session = world.session();
    let messages = &[(Steering, "left"), (FollowUp, "later")];
    let heard = queues(&session, says_text, messages);
    let aborts = session.subscribe({
        let session = Arc::downgrade(&session);
        move |event| {
            if matches!(event.body, Body::QueueChanged { .. }) {
                session.upgrade().unwrap().abort();
            }
        }
    });
    let ended = session.prompt("hi".into()).await.unwrap();
    drop(aborts);
    assert_eq!(
        (ended.seal, world.provider.calls_made()),
        (TurnStatus::Aborted, 1)
    );
    assert_eq!(waiting(&session), owned([&["left"], &["later"]]));
    assert_eq!(inputs(&heard), ["hi"]);
    session.prompt("again".into()).await.unwrap();
    assert_eq!(request_texts(&world)[1], ["hi", "again", "left"]);
}

#[tokio::test(start_paused = true)]
async fn cleared_messages_are_returned_and_not_sent() {
    let (kept, world) = (TestJournal::new(), Fixture::new([answers("done")]));
    let session = kept.begin(world.setup()).await;
    let heard = Listener::new(&session);
    for (place, text) in [(Steering, "a"), (FollowUp, "b"), (Note, "n")] {
        session.enqueue(place, Message::user(text)).await.unwrap();
    }
    let Queued {
        steering,
        follow_up,
    } = session.clear_queue().await.unwrap();
    assert_eq!(
        (texts(&steering), texts(&follow_up)),
        owned([&["a"], &["b"]])
    );
    assert_eq!(session.clear_queue().await.unwrap(), Queued::default());
    assert_eq!(heard.count("queue_changed"), 3);
    session.prompt("hi".into()).await.unwrap();
    assert_eq!(
        request_texts(&world),
        [["n", "hi"]],
        "a note is a part of the conversation"
    );
    let id = session.id().to_owned();
    drop(session);
    let session = kept.open(&id, world.setup()).await;
    assert_eq!(session.queued_messages(), Queued::default());
}

// --- Notes ---

#[tokio::test(start_paused = true)]
async fn note_joins_conversation_at_once_without_a_call() {
    let (kept, world) = (TestJournal::new(), Fixture::new([answers("done")]));
    let session = kept.begin(world.setup()).await;
    let heard = Listener::new(&session);
    session.add_note(Message::user("ls: a b")).await.unwrap();
    assert_eq!(describe_messages(&session.messages()), ["ls: a b"]);
    assert_eq!((world.provider.calls_made(), heard.kinds().len()), (0, 0));
    session.prompt("hi".into()).await.unwrap();
    assert_eq!(request_texts(&world), [["ls: a b", "hi"]]);
    assert_eq!(inputs(&heard), ["hi"]);
    let id = session.id().to_owned();
    drop(session);
    let session = kept.open(&id, world.setup()).await;
    assert_eq!(
        describe_messages(&session.messages()),
        ["ls: a b", "hi", "done"]
    );
}

/// Adds a note at the first such event.
fn notes(session: &Arc<Session>, at: fn(&Body) -> bool) -> Listener {
    let mut once = true;
    Listener::with(session, move |session, body| {
        if at(body) && std::mem::take(&mut once) {
            on_other_thread(session.add_note(Message::user("ls: a b"))).unwrap();
        }
    })
}

#[tokio::test(start_paused = true)]
async fn note_during_turn_is_sent_with_next_call() {
    let world = Fixture::new([calls(&[("c1", "read")]), answers("done")]);
    let session = world.session();
    let heard = notes(&session, starts_tool);
    session.prompt("hi".into()).await.unwrap();
    let expected = ["hi", "read(c1)", "c1: c1 is done", "ls: a b"];
    assert_eq!(request_texts(&world)[1], expected);
    assert_eq!((inputs(&heard).len(), heard.count("queue_changed")), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn note_during_last_call_follows_its_completion() {
    let world = Fixture::new([answers("done")]);
    let session = world.session();
    let _heard = notes(&session, says_text);
    session.prompt("hi".into()).await.unwrap();
    assert_eq!(
        describe_messages(&session.messages()),
        ["hi", "done", "ls: a b"]
    );
}

#[tokio::test(start_paused = true)]
async fn note_in_unfinished_turn_follows_tool_results() {
    let world = Fixture::new([calls(&[("c1", "read")]), answers("done")]);
    let session = world.session();
    world.tools.hang(true);
    let running = session.prompt("hi".into());
    crate::support::run_until(&session, running, starts_tool).await;
    session.add_note(Message::user("ls: a b")).await.unwrap();
    world.tools.hang(false);
    session.resume().await.unwrap();
    let expected = ["hi", "read(c1)", "c1: c1 is done", "ls: a b", "done"];
    assert_eq!(describe_messages(&session.messages()), expected);
    assert_well_formed(&session.messages());
}

// --- A journal that cannot be written ---

#[tokio::test(start_paused = true)]
async fn unrecordable_message_is_not_queued() {
    let (kept, world) = (TestJournal::new(), Fixture::new([answers("done")]));
    let session = kept.begin(world.setup()).await;
    session.enqueue(Steering, Message::user("a")).await.unwrap();
    let heard = Listener::new(&session);
    let aside = kept.path().with_extension("aside");
    std::fs::rename(kept.path(), &aside).unwrap();
    session
        .enqueue(Steering, Message::user("b"))
        .await
        .unwrap_err();
    session.clear_queue().await.unwrap_err();
    assert_eq!(waiting(&session), owned([&["a"], &[]]));
    assert_eq!(heard.count("queue_changed"), 0);
    std::fs::rename(&aside, kept.path()).unwrap();
    session.prompt("hi".into()).await.unwrap();
    assert_eq!(request_texts(&world), [["hi", "a"]]);
}

#[tokio::test(start_paused = true)]
async fn queued_message_is_sent_once_when_journal_fails() {
    let script = [
        fails(overloaded()),
        calls(&[("c1", "read")]),
        answers("one"),
        answers("two"),
    ];
    let (kept, world) = (TestJournal::new(), Fixture::new(script));
    let session = kept.begin(world.setup()).await;
    let aside = kept.path().with_extension("aside");
    let (path, away) = (kept.path(), aside.clone());
    let heard = Listener::with(&session, move |session, body| {
        if is_wait(body) {
            on_other_thread(session.enqueue(Steering, Message::user("left"))).unwrap();
            std::fs::rename(&path, &away).unwrap();
        }
    });
    let ended = session.prompt("hi".into()).await.unwrap();
    assert_eq!(
        (ended.seal, ended.is_recorded),
        (TurnStatus::Completed, false)
    );
    let expected = ["hi", "left", "read(c1)", "c1: c1 is done", "one"];
    assert_eq!(describe_messages(&session.messages()), expected);
    assert_eq!(
        (inputs(&heard).len(), waiting(&session)),
        (2, owned([&[], &[]]))
    );
    std::fs::rename(&aside, kept.path()).unwrap();
    session.prompt("and now".into()).await.unwrap();
    let id = session.id().to_owned();
    drop((heard, session));
    let session = kept.open(&id, world.setup()).await;
    assert_eq!(
        describe_messages(&session.messages()),
        [&expected[..], &["and now", "two"]].concat()
    );
    assert_eq!(waiting(&session), owned([&[], &[]]));
}

// --- Numbers ---

#[tokio::test(start_paused = true)]
async fn queue_and_rename_events_are_numbered_with_turn_events() {
    let world = Fixture::new([
        fails(overloaded()),
        calls(&[("c1", "read")]),
        answers("done"),
    ]);
    let session = world.session();
    let first = queues(&session, is_wait, &[(Steering, "a"), (FollowUp, "b")]);
    let second = Listener::new(&session);
    session.prompt("hi".into()).await.unwrap();
    session.rename("A title").await.unwrap();
    let numbers: Vec<u64> = second.events().iter().map(|event| event.seq).collect();
    assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>());
    assert_eq!(first.events(), second.events());
    assert_eq!(session.snapshot().last_seq, numbers.len() as u64);
    let turn = &second.events()[0].turn_id;
    let queue = |event: &outlast_kernel::event::Event| {
        let is_queue = matches!(event.body, Body::QueueChanged { .. });
        is_queue.then(|| event.turn_id.clone())
    };
    let turns: Vec<String> = second.events().iter().filter_map(queue).collect();
    assert_eq!(turns, [turn.as_str(); 3]);
}

#[tokio::test(start_paused = true)]
async fn resume_replays_all_inputs_of_the_turn() {
    let (kept, world) = (
        TestJournal::new(),
        Fixture::new([fails(overloaded()), hangs(vec![])]),
    );
    let session = kept.begin(world.setup()).await;
    let heard = queues(&session, is_wait, &[(Steering, "left"), (Note, "ls: a b")]);
    let second = |body: &Body| matches!(body, Body::AttemptStarted { attempt: 2 });
    let running = session.prompt("hi".into());
    crate::support::run_until(&session, running, second).await;
    assert_eq!(inputs(&heard), ["hi", "left"]);
    let id = session.id().to_owned();
    drop((heard, session));
    let world = Fixture::new([answers("done")]);
    let session = kept.open(&id, world.setup()).await;
    let heard = Listener::new(&session);
    session.resume().await.unwrap();
    assert_eq!(inputs(&heard), ["hi", "left"]);
    assert_eq!(request_texts(&world), [["hi", "ls: a b", "left"]]);
    let said = kept.entries(&id).await;
    let said = said
        .iter()
        .filter(|entry| matches!(entry, Entry::Delivered { .. }));
    assert_eq!(said.count(), 2, "the note and what was said");
}
