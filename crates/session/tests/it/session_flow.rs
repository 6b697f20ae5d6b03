//! Steps, tools and history: the additions of a prompt to the conversation.

use crate::support::{
    Call, Fixture, Listener, TestJournal, answers, calls, describe_messages, fails, hangs, is_wait,
    overloaded, stop, text, tool_call_delta, usage, usage_delta,
};
use outlast_dialect::Role;
use outlast_engine::journal::Entry;
use outlast_kernel::event::{Body, StopReason, TurnStatus};
use outlast_session::Session;
use outlast_session::{Error, Setup};
use std::sync::Arc;
use std::time::Duration;

// --- Steps ---

#[tokio::test(start_paused = true)]
async fn each_step_sends_the_full_conversation() {
    let world = Fixture::new([
        calls(&[("c1", "read"), ("c2", "send")]),
        calls(&[("c3", "write")]),
        answers("done"),
    ]);
    let session = world.session();
    let ended = session.prompt("hi".into()).await.unwrap();
    let conversation = [
        "hi",
        "read(c1)",
        "send(c2)",
        "c1: c1 is done",
        "c2: c2 is done",
        "write(c3)",
        "c3: c3 is done",
        "done",
    ];
    let asked = world.provider.requests();
    assert_eq!(describe_messages(&asked[0].messages), conversation[..1]);
    assert_eq!(describe_messages(&asked[1].messages), conversation[..5]);
    assert_eq!(describe_messages(&asked[2].messages), conversation[..7]);
    assert_eq!(describe_messages(&session.messages()), conversation);
    assert_eq!(describe_messages(&ended.messages), conversation[1..]);
    assert_eq!(ended.stop_reason, Some(StopReason::EndTurn));
    assert_eq!(world.tools.ran(), ["c1", "c2", "c3"]);
    let roles: Vec<Role> = session.messages().iter().map(|said| said.role).collect();
    let (user, model) = (Role::User, Role::Assistant);
    assert_eq!(roles, [user, model, user, model, user, model]);
}

#[tokio::test(start_paused = true)]
async fn next_prompt_includes_the_earlier_conversation() {
    let world = Fixture::new([calls(&[("c1", "read")]), answers("one"), answers("two")]);
    let session = world.session();
    session.prompt("first".into()).await.unwrap();
    session.prompt("second".into()).await.unwrap();
    let last = &world.provider.requests()[2].messages;
    let expected = ["first", "read(c1)", "c1: c1 is done", "one", "second"];
    assert_eq!(describe_messages(last), expected);
}

#[tokio::test(start_paused = true)]
async fn usage_is_added_up_over_steps_and_turns() {
    let answer = |input, output, name: Option<&str>| {
        let wanted = name.map(|name| tool_call_delta("c1", name));
        let reason = name.map_or(StopReason::EndTurn, |_| StopReason::ToolUse);
        let items = [usage_delta(input, output), text("Well.")]
            .into_iter()
            .chain(wanted);
        items.chain([stop(reason)]).collect::<Vec<_>>().into()
    };
    let world = Fixture::new([answer(10, 1, Some("read")), answer(20, 2, None)]);
    let session = world.session();
    let ended = session.prompt("hi".into()).await.unwrap();
    assert_eq!(ended.usage, usage(30, 3));
    assert_eq!(session.snapshot().usage, usage(30, 3));
    let ended = session.prompt("hi".into()).await.unwrap();
    assert_eq!(ended.usage, usage(20, 2));
    assert_eq!(session.snapshot().usage, usage(50, 5));
}

#[tokio::test(start_paused = true)]
async fn retry_schedule_restarts_with_each_step() {
    let failing = || fails(overloaded());
    let world = Fixture::new([
        failing(),
        failing(),
        calls(&[("c1", "read")]),
        failing(),
        answers("done"),
    ]);
    let session = world.session();
    let heard = Listener::new(&session);
    session.prompt("hi".into()).await.unwrap();
    assert_eq!(heard.retries(), [(1, 2_000), (2, 4_000), (1, 2_000)]);
    assert_eq!(heard.ends(), [(true, 2, None), (true, 1, None)]);
    assert_eq!(world.provider.called_at(), [0, 2, 6, 6, 8]);
    // Calls are numbered across steps.
    let attempt = |body: &Body| match body {
        Body::AttemptStarted { attempt } => Some(*attempt),
        _ => None,
    };
    let attempts: Vec<u32> = heard.bodies().iter().filter_map(attempt).collect();
    assert_eq!(attempts, [1, 2, 3, 4, 5]);
}

#[tokio::test(start_paused = true)]
async fn failed_step_keeps_earlier_steps() {
    let world = Fixture::new([calls(&[("c1", "send")]), fails(overloaded())]);
    let session = world.session();
    let ended = session.prompt("hi".into()).await.unwrap();
    assert_eq!(
        (ended.seal, world.provider.calls_made()),
        (TurnStatus::Error, 5)
    );
    let conversation = ["hi", "send(c1)", "c1: c1 is done"];
    assert_eq!(describe_messages(&session.messages()), conversation);
    assert_eq!(world.tools.ran(), ["c1"], "no retry runs a tool again");
}

#[tokio::test(start_paused = true)]
async fn retrying_a_failed_step_runs_no_tool_again() {
    let world = Fixture::new([
        calls(&[("c1", "send")]),
        fails(overloaded()),
        answers("done"),
    ]);
    let session = world.session();
    session.set_auto_retry_enabled(false);
    session.prompt("hi".into()).await.unwrap();
    let ended = session.retry_last_turn("unused".into()).await.unwrap();
    assert_eq!(
        (ended.seal, world.tools.ran()),
        (TurnStatus::Completed, vec!["c1".to_owned()])
    );
    let conversation = ["hi", "send(c1)", "c1: c1 is done", "done"];
    assert_eq!(describe_messages(&session.messages()), conversation);
}

// --- Tools ---

#[tokio::test(start_paused = true)]
async fn refused_tool_call_gets_refusal_as_result() {
    let world = Fixture::new([
        calls(&[("c1", "forbidden"), ("c2", "read")]),
        answers("done"),
    ]);
    let kept = TestJournal::new();
    let session = kept.begin(world.setup()).await;
    let heard = Listener::new(&session);
    session.prompt("hi".into()).await.unwrap();
    assert_eq!(world.tools.ran(), ["c2"]);
    assert_eq!(
        (heard.count("tool_started"), heard.count("tool_result")),
        (1, 2)
    );
    let asked = &world.provider.requests()[1].messages;
    let results = ["c1! it is not allowed", "c2: c2 is done"];
    assert_eq!(describe_messages(asked)[3..], results);
    let started = |entry: &Entry| matches!(entry, Entry::ToolStarted { index: 0, .. });
    let entries = kept.entries(session.id()).await;
    assert!(
        !entries.iter().any(started),
        "what is refused has not begun"
    );
}

#[tokio::test(start_paused = true)]
async fn tool_calls_without_toolbox_are_reported_as_not_run() {
    let world = Fixture::new([calls(&[("c1", "read")]), answers("Hello")]);
    let setup = Setup {
        tools: None,
        ..world.setup()
    };
    let session = Arc::new(Session::in_memory(setup));
    let ended = session.prompt("hi".into()).await.unwrap();
    assert_eq!(
        (ended.seal, ended.stop_reason),
        (TurnStatus::Completed, Some(StopReason::ToolUse))
    );
    session.prompt("and?".into()).await.unwrap();
    let asked = &world.provider.requests()[1].messages;
    let not_run = "c1! it was not run: the turn ended before it began";
    assert_eq!(
        describe_messages(asked),
        ["hi", "read(c1)", not_run, "and?"]
    );
}

#[tokio::test(start_paused = true)]
async fn uncorrected_truncated_completion_does_not_run_its_calls() {
    for reason in [StopReason::Length, StopReason::Refusal] {
        let cut = vec![text("Let me"), tool_call_delta("c1", "send"), stop(reason)];
        let world = Fixture::new([cut.into(), answers("Hello")]);
        let setup = Setup {
            max_corrections: 0,
            ..world.setup()
        };
        let session = Arc::new(Session::in_memory(setup));
        let ended = session.prompt("hi".into()).await.unwrap();
        assert_eq!(
            (ended.seal, ended.stop_reason),
            (TurnStatus::Completed, Some(reason))
        );
        assert_eq!(world.tools.ran(), Vec::<String>::new());
        let not_run = "c1! it was not run: the turn ended before it began";
        assert_eq!(
            describe_messages(&session.messages()),
            ["hi", "Let me", "send(c1)", not_run]
        );
    }
}

// --- Aborting ---

#[tokio::test(start_paused = true)]
async fn abort_during_tool_ends_turn_within_250_ms() {
    let results = [
        ("slow", "c1! it was stopped", Duration::ZERO),
        (
            "stubborn",
            "c1! it was interrupted and may have partly run",
            Duration::from_millis(230),
        ),
    ];
    for (name, result, goodbye) in results {
        let world = Fixture::new([calls(&[("c1", name), ("c2", "read")]), answers("unused")]);
        let session = world.session();
        let heard = Listener::new(&session);
        let later = async {
            tokio::time::sleep(Duration::from_secs(60)).await;
            session.abort();
        };
        let (ended, ()) = tokio::join!(session.prompt("hi".into()), later);
        assert_eq!(ended.unwrap().seal, TurnStatus::Aborted);
        assert_eq!(world.elapsed() - Duration::from_secs(60), goodbye);
        assert_eq!((world.provider.calls_made(), heard.count("error")), (1, 0));
        let not_run = "c2! it was not run: the turn was cancelled before it began";
        assert_eq!(
            describe_messages(&session.messages())[3..],
            [result, not_run]
        );
        assert_eq!(world.tools.ran(), ["c1"]);
    }
}

#[tokio::test(start_paused = true)]
async fn conversation_continues_after_abort_during_tool() {
    let world = Fixture::new([calls(&[("c1", "slow")]), answers("Hello")]);
    let session = world.session();
    let _heard = Listener::with(&session, |session, body| {
        if matches!(body, Body::ToolStarted { .. }) {
            session.abort();
        }
    });
    session.prompt("hi".into()).await.unwrap();
    session.prompt("go on".into()).await.unwrap();
    let asked = &world.provider.requests()[1].messages;
    assert_eq!(
        describe_messages(asked),
        ["hi", "slow(c1)", "c1! it was stopped", "go on"]
    );
}

#[tokio::test(start_paused = true)]
async fn aborted_completion_is_kept_in_the_journal() {
    let world = Fixture::new([hangs(vec![text("Hel")])]);
    let kept = TestJournal::new();
    let session = kept.begin(world.setup()).await;
    let _heard = Listener::with(&session, |session, body| {
        if matches!(body, Body::TextDelta { .. }) {
            session.abort();
        }
    });
    session.prompt("hi".into()).await.unwrap();
    let entries = kept.entries(session.id()).await;
    let [
        ..,
        Entry::AttemptFailed {
            judged, message, ..
        },
        Entry::Settled { seal, .. },
    ] = &entries[..]
    else {
        panic!("{entries:?}");
    };
    assert!(judged.is_none(), "a person's interrupt is no failure");
    assert_eq!(
        (message.text().as_str(), *seal),
        ("Hel", TurnStatus::Aborted)
    );
}

// --- Dropping ---

#[tokio::test(start_paused = true)]
async fn dropped_prompt_is_resumed_by_the_same_session() {
    let world = Fixture::new([fails(overloaded()), answers("Hello")]);
    let session = world.session();
    let impatient = tokio::time::timeout(Duration::from_secs(1), session.prompt("hi".into()));
    assert!(impatient.await.is_err());
    assert!(session.unfinished_turn().is_some());
    let refused = session.prompt("again".into()).await;
    assert!(matches!(refused, Err(Error::Unfinished { .. })));
    let ended = session.resume().await.unwrap();
    assert_eq!(
        (ended.seal, world.elapsed()),
        (TurnStatus::Completed, Duration::from_secs(2))
    );
    assert_eq!(describe_messages(&session.messages()), ["hi", "Hello"]);
    assert!(matches!(
        session.resume().await,
        Err(Error::NothingToResume { .. })
    ));
}

#[tokio::test(start_paused = true)]
async fn empty_completion_is_left_out_of_the_conversation() {
    let nothing = Call::from(vec![stop(StopReason::EndTurn)]);
    let world = Fixture::new([nothing, answers("Hello")]);
    let setup = Setup {
        max_corrections: 0,
        ..world.setup()
    };
    let session = Arc::new(Session::in_memory(setup));
    session.prompt("one".into()).await.unwrap();
    session.prompt("two".into()).await.unwrap();
    assert_eq!(
        describe_messages(&world.provider.requests()[1].messages),
        ["one", "two"]
    );
    assert_eq!(
        describe_messages(&session.messages()),
        ["one", "two", "Hello"]
    );
}

#[tokio::test(start_paused = true)]
async fn session_is_not_retrying_after_prompt_was_dropped() {
    let world = Fixture::new([fails(overloaded())]);
    let session = world.session();
    let waiting = Listener::with(&session, |session, body| {
        if is_wait(body) {
            assert!(session.is_retrying());
        }
    });
    let limit = Duration::from_secs(1);
    let dropped = tokio::time::timeout(limit, session.prompt("hi".into())).await;
    assert!(dropped.is_err());
    assert!(!session.is_retrying() && session.snapshot().turn_id.is_none());
    assert_eq!(waiting.count("retry_scheduled"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_prompt_can_be_spawned_on_any_thread() {
    let world = Fixture::new([answers("Hello")]);
    let session = world.session();
    let prompt = tokio::spawn(async move { session.prompt("hi".into()).await });
    let ended = prompt.await.unwrap().unwrap();
    assert_eq!(ended.seal, TurnStatus::Completed);
}
