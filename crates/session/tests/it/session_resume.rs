//! The state of a session after its process died, and resuming its turn.

use crate::support::{
    Fate, Fixture, Listener, START, TestJournal, answers, calls, describe_messages, fails, hangs,
    is_wait, overloaded, run_until, stop, text, usage, usage_delta,
};
use outlast_engine::journal::{Entry, Spent};
use outlast_kernel::budget::{Limits, Prompt};
use outlast_kernel::event::{Body, StopReason, TurnStatus};
use outlast_session::Session;
use outlast_session::{Error, PromptRequest, Setup, State};
use outlast_store::journal::RawEntry;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn starts_tool(body: &Body) -> bool {
    matches!(body, Body::ToolStarted { .. })
}

/// Sends a prompt, and dies at the first of these events; returns the session's id.
async fn run_until_death_at(
    kept: &TestJournal,
    world: &Fixture,
    ask: PromptRequest,
    event: impl Fn(&Body) -> bool + Send + 'static,
) -> String {
    let session = kept.begin(world.setup()).await;
    let fate = run_until(&session, session.prompt(ask), event).await;
    assert_eq!(fate, Fate::Died);
    session.id().to_owned()
}

// --- Waits ---

#[tokio::test(start_paused = true)]
async fn wait_resumed_after_restart_keeps_its_end_time() {
    let failing = || fails(overloaded());
    let (kept, world) = (
        TestJournal::new(),
        Fixture::new([failing(), failing(), answers("Hello")]),
    );
    let second = |body: &Body| matches!(body, Body::RetryScheduled { attempt: 2, .. });
    let id = run_until_death_at(&kept, &world, "hi".into(), second).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let session = kept.open(&id, world.setup()).await;
    let heard = Listener::with(&session, |session, body| {
        if is_wait(body) {
            let snapshot = session.snapshot();
            assert_eq!(snapshot.attempt, 2);
            let retry = snapshot.retry.unwrap();
            let six = START + Duration::from_secs(6);
            assert_eq!((retry.attempt, retry.wake_at), (2, Some(six)));
        }
    });
    let ended = session.resume().await.unwrap();
    assert_eq!(ended.seal, TurnStatus::Completed);
    assert_eq!(world.provider.called_at(), [0, 2, 6]);
    assert_eq!(
        heard.retries(),
        [(2, 1_000)],
        "a second of the wait was left"
    );
    assert_eq!(heard.ends(), [(true, 2, None)]);
    assert_eq!(describe_messages(&session.messages()), ["hi", "Hello"]);
}

#[tokio::test(start_paused = true)]
async fn overdue_wait_ends_at_once_on_resume() {
    let (kept, world) = (
        TestJournal::new(),
        Fixture::new([fails(overloaded()), answers("Hello")]),
    );
    let id = run_until_death_at(&kept, &world, "hi".into(), is_wait).await;
    tokio::time::sleep(Duration::from_secs(9 * 3600)).await;
    let session = kept.open(&id, world.setup()).await;
    session.resume().await.unwrap();
    assert_eq!(world.provider.called_at(), [0, 9 * 3600]);
}

#[tokio::test(start_paused = true)]
async fn retry_count_continues_after_restart() {
    let (kept, world) = (TestJournal::new(), Fixture::new([fails(overloaded())]));
    let second = |body: &Body| matches!(body, Body::RetryScheduled { attempt: 2, .. });
    let id = run_until_death_at(&kept, &world, "hi".into(), second).await;
    let session = kept.open(&id, world.setup()).await;
    let heard = Listener::new(&session);
    let ended = session.resume().await.unwrap();
    assert_eq!(
        (ended.seal, world.provider.calls_made()),
        (TurnStatus::Error, 4)
    );
    assert_eq!(heard.retries(), [(2, 4_000), (3, 8_000)]);
    assert_eq!(heard.ends(), [(false, 3, Some("Overloaded".to_owned()))]);
}

#[tokio::test(start_paused = true)]
async fn interrupted_retry_is_repeated_and_announced_again() {
    let (kept, world) = (
        TestJournal::new(),
        Fixture::new([fails(overloaded()), hangs(vec![]), answers("Hello")]),
    );
    let second = |body: &Body| matches!(body, Body::AttemptStarted { attempt: 2 });
    let id = run_until_death_at(&kept, &world, "hi".into(), second).await;
    let session = kept.open(&id, world.setup()).await;
    let heard = Listener::with(&session, |session, body| {
        if matches!(body, Body::AttemptStarted { .. }) {
            assert!(session.is_retrying());
        }
    });
    session.resume().await.unwrap();
    assert_eq!(heard.retries(), [(1, 0)]);
    assert_eq!(heard.ends(), [(true, 1, None)]);
}

#[tokio::test(start_paused = true)]
async fn resumed_wait_completes_without_retry_policy() {
    let (kept, world) = (
        TestJournal::new(),
        Fixture::new([fails(overloaded()), answers("Hello")]),
    );
    let id = run_until_death_at(&kept, &world, "hi".into(), is_wait).await;
    let setup = Setup {
        retry: None,
        ..world.setup()
    };
    let ended = kept.open(&id, setup).await.resume().await.unwrap();
    assert_eq!(ended.seal, TurnStatus::Completed);
    assert_eq!(world.provider.called_at(), [0, 2]);
}

#[tokio::test(start_paused = true)]
async fn resumed_wait_can_be_steered() {
    for (steer, seal) in [
        (Session::abort as fn(&Session), TurnStatus::Aborted),
        (Session::abort_retry, TurnStatus::Error),
        (Session::retry_now, TurnStatus::Completed),
    ] {
        let (kept, world) = (
            TestJournal::new(),
            Fixture::new([fails(overloaded()), answers("Hello")]),
        );
        let id = run_until_death_at(&kept, &world, "hi".into(), is_wait).await;
        let session = kept.open(&id, world.setup()).await;
        let _heard = Listener::with(&session, move |session, body| {
            if is_wait(body) {
                steer(session);
            }
        });
        let ended = session.resume().await.unwrap();
        assert_eq!((ended.seal, world.elapsed()), (seal, Duration::ZERO));
        assert!(session.unfinished_turn().is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn resumed_wait_completes_with_retries_disabled() {
    let (kept, world) = (TestJournal::new(), Fixture::new([fails(overloaded())]));
    let id = run_until_death_at(&kept, &world, "hi".into(), is_wait).await;
    let setup = Setup {
        retry_enabled: false,
        ..world.setup()
    };
    let session = kept.open(&id, setup).await;
    let ended = session.resume().await.unwrap();
    assert_eq!(ended.seal, TurnStatus::Error);
    assert_eq!(world.provider.called_at(), [0, 2]);
}

#[tokio::test(start_paused = true)]
async fn prompt_budget_survives_restart() {
    let (kept, world) = (TestJournal::new(), Fixture::new([fails(overloaded())]));
    let limits = Limits {
        sleep: Some(Duration::from_secs(5)),
        ..Limits::default()
    };
    let ask = PromptRequest {
        limits,
        ..PromptRequest::from("hi")
    };
    let id = run_until_death_at(&kept, &world, ask, is_wait).await;
    let session = kept.open(&id, world.setup()).await;
    let ended = session.resume().await.unwrap();
    let said = "the prompt may only wait 3s more";
    assert_eq!(ended.error.unwrap().1.to_string(), said);
}

#[tokio::test(start_paused = true)]
async fn shortened_wait_before_restart_spends_only_time_slept() {
    let (kept, world) = (
        TestJournal::new(),
        Fixture::new([fails(overloaded()), hangs(vec![])]),
    );
    let limits = Limits {
        sleep: Some(Duration::from_secs(60)),
        ..Limits::default()
    };
    let ask = PromptRequest {
        limits,
        ..PromptRequest::from("hi")
    };
    let session = kept.begin(world.setup()).await;
    let _hurry = Listener::with(&session, |session, body| {
        if is_wait(body) {
            session.retry_now();
        }
    });
    let second = |body: &Body| matches!(body, Body::AttemptStarted { attempt: 2 });
    run_until(&session, session.prompt(ask), second).await;
    let unfinished = State::from_entries(kept.entries(session.id()).await).unfinished;
    let unfinished = unfinished.unwrap();
    assert_eq!(unfinished.budget.sleep_left(), limits.sleep);
    assert_eq!(unfinished.resume_state.chain.retries(), 1);
}

#[tokio::test(start_paused = true)]
async fn resumed_turn_past_its_deadline_makes_no_call() {
    let (kept, world) = (
        TestJournal::new(),
        Fixture::new([fails(overloaded()), answers("Hello")]),
    );
    let limits = Limits {
        deadline: Some(START + Duration::from_secs(60)),
        ..Limits::default()
    };
    let ask = PromptRequest {
        limits,
        ..PromptRequest::from("hi")
    };
    let id = run_until_death_at(&kept, &world, ask, is_wait).await;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let session = kept.open(&id, world.setup()).await;
    let ended = session.resume().await.unwrap();
    assert_eq!(
        (ended.seal, world.provider.calls_made()),
        (TurnStatus::Error, 1)
    );
}

// --- Calls and tools ---

#[tokio::test(start_paused = true)]
async fn interrupted_attempt_is_repeated_with_next_number() {
    let broken = hangs(vec![usage_delta(10, 0), text("Hel")]);
    let (kept, world) = (TestJournal::new(), Fixture::new([broken, answers("Hello")]));
    let partly = |body: &Body| matches!(body, Body::TextDelta { .. });
    let id = run_until_death_at(&kept, &world, "hi".into(), partly).await;
    let session = kept.open(&id, world.setup()).await;
    let heard = Listener::new(&session);
    session.resume().await.unwrap();
    assert!(
        heard
            .bodies()
            .contains(&Body::AttemptStarted { attempt: 2 })
    );
    assert_eq!(describe_messages(&session.messages()), ["hi", "Hello"]);
}

#[tokio::test(start_paused = true)]
async fn interrupted_tool_reruns_only_if_repeatable() {
    let interrupted = "c1! it was interrupted by a restart and may have partly run, or may still be running; it was not run again";
    let done = "c1: c1 is done";
    for (name, ran, result) in [
        ("send", vec!["c1", "c2"], interrupted),
        ("write", vec!["c1", "c1", "c2"], done),
        ("read", vec!["c1", "c1", "c2"], done),
    ] {
        let script = [calls(&[("c1", name), ("c2", "read")]), answers("done")];
        let (kept, world) = (TestJournal::new(), Fixture::new(script));
        world.tools.hang(true);
        let id = run_until_death_at(&kept, &world, "hi".into(), starts_tool).await;
        world.tools.hang(false);
        let session = kept.open(&id, world.setup()).await;
        let ended = session.resume().await.unwrap();
        assert_eq!(
            (ended.seal, world.tools.ran()),
            (
                TurnStatus::Completed,
                ran.iter().map(ToString::to_string).collect()
            )
        );
        assert_eq!(describe_messages(&session.messages())[3], result, "{name}");
        assert_eq!(world.provider.calls_made(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn interrupted_tool_past_deadline_reports_partial_run() {
    let script = [calls(&[("c1", "write")]), answers("done")];
    let (kept, world) = (TestJournal::new(), Fixture::new(script));
    world.tools.hang(true);
    let limits = Limits {
        deadline: Some(START + Duration::from_secs(60)),
        ..Limits::default()
    };
    let ask = PromptRequest {
        limits,
        ..PromptRequest::from("hi")
    };
    let id = run_until_death_at(&kept, &world, ask, starts_tool).await;
    tokio::time::sleep(Duration::from_secs(90)).await;
    let session = kept.open(&id, world.setup()).await;
    session.resume().await.unwrap();
    assert_eq!(world.tools.ran(), ["c1"], "its time was over");
    let result = &describe_messages(&session.messages())[2];
    assert!(result.contains("may have partly run"), "{result}");
}

#[tokio::test(start_paused = true)]
async fn outstanding_tool_calls_are_announced_on_resume() {
    let script = [calls(&[("c1", "read"), ("c2", "read")]), answers("done")];
    let (kept, world) = (TestJournal::new(), Fixture::new(script));
    let tools = Arc::clone(&world.tools);
    let first_is_over = move |body: &Body| {
        let is_over = matches!(body, Body::ToolResult { .. });
        if is_over {
            tools.hang(true);
        }
        is_over
    };
    let id = run_until_death_at(&kept, &world, "hi".into(), first_is_over).await;
    world.tools.hang(false);
    let session = kept.open(&id, world.setup()).await;
    let heard = Listener::new(&session);
    session.resume().await.unwrap();
    let said = heard.bodies().into_iter().filter_map(|body| match body {
        Body::ToolCall(call) => Some(call.id),
        _ => None,
    });
    assert_eq!(said.collect::<Vec<_>>(), ["c2"]);
}

#[tokio::test(start_paused = true)]
async fn finished_tool_never_runs_again() {
    let script = [calls(&[("c1", "read"), ("c2", "slow")]), answers("done")];
    let (kept, world) = (TestJournal::new(), Fixture::new(script));
    let second = |body: &Body| matches!(body, Body::ToolStarted { id, .. } if id == "c2");
    let id = run_until_death_at(&kept, &world, "hi".into(), second).await;
    let session = kept.open(&id, world.setup()).await;
    session.resume().await.unwrap();
    assert_eq!(world.tools.ran(), ["c1", "c2"]);
    assert_eq!(describe_messages(&session.messages())[3], "c1: c1 is done");
}

#[tokio::test(start_paused = true)]
async fn repeatedly_killed_turn_completes_as_if_undisturbed() {
    let failing = || fails(overloaded());
    let (kept, world) = (
        TestJournal::new(),
        Fixture::new([
            failing(),
            failing(),
            calls(&[("c1", "read"), ("c2", "write")]),
            failing(),
            answers("done"),
        ]),
    );
    let session = kept.begin(world.setup()).await;
    let id = session.id().to_owned();
    let seen: Arc<Mutex<BTreeSet<String>>> = Arc::default();
    let is_new = {
        let (provider, tools) = (Arc::clone(&world.provider), Arc::clone(&world.tools));
        let seen = Arc::clone(&seen);
        move |body: &Body| {
            let word = match body {
                Body::RetryScheduled { .. }
                | Body::ToolStarted { .. }
                | Body::ToolResult { .. } => {
                    let mut word = serde_json::to_value(body).unwrap();
                    word["delay_ms"].take();
                    word.to_string()
                }
                _ => return false,
            };
            // An event that a process still emits after that is not new.
            let is_new = !provider.is_hanging() && seen.lock().unwrap().insert(word);
            if is_new {
                provider.hang(true);
                tools.hang(true);
            }
            is_new
        }
    };
    let mut deaths = 0;
    let mut fate = run_until(&session, session.prompt("hi".into()), is_new.clone()).await;
    drop(session);
    while fate == Fate::Died {
        deaths += 1;
        world.provider.hang(false);
        world.tools.hang(false);
        let session = kept.open(&id, world.setup()).await;
        fate = run_until(&session, session.resume(), is_new.clone()).await;
    }
    assert_eq!(deaths, 7);
    let session = kept.open(&id, world.setup()).await;
    assert_eq!(world.elapsed(), Duration::from_secs(8));
    let conversation = [
        "hi",
        "read(c1)",
        "write(c2)",
        "c1: c1 is done",
        "c2: c2 is done",
        "done",
    ];
    assert_eq!(describe_messages(&session.messages()), conversation);
    assert_eq!(world.provider.calls_made(), 5, "no call was made twice");
    let kinds = kept.kinds(&id).await;
    let count = |kind| kinds.iter().filter(|other| **other == kind).count();
    assert_eq!((count("prompt"), count("settled")), (1, 1));
}

// --- State after opening ---

#[tokio::test(start_paused = true)]
async fn opened_session_restores_its_state() {
    let answer = vec![usage_delta(10, 5), text("Hello"), stop(StopReason::EndTurn)];
    let (kept, world) = (
        TestJournal::new(),
        Fixture::new([calls(&[("c1", "send")]), answer.into()]),
    );
    let session = kept.begin(world.setup()).await;
    session.prompt("hi".into()).await.unwrap();
    session.prompt("again".into()).await.unwrap();
    let (id, messages) = (session.id().to_owned(), session.messages());
    Arc::into_inner(session).unwrap().close().await.unwrap();
    let session = kept.open(&id, world.setup()).await;
    assert_eq!(session.messages(), messages);
    assert_eq!(session.snapshot().usage, usage(20, 10));
    assert!(session.unfinished_turn().is_none());
    assert!(matches!(
        session.resume().await,
        Err(Error::NothingToResume { .. })
    ));
    session.prompt("third".into()).await.unwrap();
    assert_eq!(kept.journal.summary(&id).await.unwrap().turns, 3);
}

#[tokio::test(start_paused = true)]
async fn unfinished_turn_must_be_resumed_before_next_prompt() {
    let (kept, world) = (
        TestJournal::new(),
        Fixture::new([fails(overloaded()), answers("Hello")]),
    );
    let id = run_until_death_at(&kept, &world, "hi".into(), is_wait).await;
    let open: Vec<String> = kept
        .journal
        .unfinished()
        .await
        .unwrap()
        .into_iter()
        .map(|found| found.id)
        .collect();
    assert_eq!(open, [id.as_str()]);
    let session = kept.open(&id, world.setup()).await;
    let refused = session.prompt("again".into()).await;
    assert!(matches!(refused, Err(Error::Unfinished { session }) if session == id));
    session.resume().await.unwrap();
    assert!(kept.journal.unfinished().await.unwrap().is_empty());
    session.prompt("again".into()).await.unwrap();
    assert_eq!(
        describe_messages(&session.messages()),
        ["hi", "Hello", "again", "Hello"]
    );
}

#[tokio::test(start_paused = true)]
async fn turn_options_and_wait_survive_restart() {
    let (kept, world) = (
        TestJournal::new(),
        Fixture::new([fails(overloaded()), answers("Hello")]),
    );
    let options = serde_json::json!({ "print": true });
    let ask = PromptRequest {
        options: options.clone(),
        ..PromptRequest::from("hi")
    };
    let id = run_until_death_at(&kept, &world, ask, is_wait).await;
    let session = kept.open(&id, world.setup()).await;
    let unfinished = session.unfinished_turn().unwrap();
    assert_eq!(unfinished.options, options);
    let resume_state = unfinished.resume_state;
    assert_eq!(
        (resume_state.attempts, resume_state.chain.retries()),
        (1, 1)
    );
    let wait = resume_state.wait.unwrap();
    assert_eq!(
        (wait.since, wait.until),
        (START, START + Duration::from_secs(2))
    );
}

#[test]
fn abandoned_accounts_are_known_after_restart() {
    let prompt = |turn: &str| Entry::Prompt {
        chosen: false,
        turn_id: turn.to_owned(),
        message: None,
        budget: Prompt::default(),
        options: serde_json::Value::Null,
    };
    let switched = |name: &str| Entry::Switched {
        model: None,
        left: Some(name.to_owned()),
        spent: Spent::default(),
    };
    let left = |entries: Vec<Entry>| {
        State::from_entries(entries)
            .unfinished
            .unwrap()
            .resume_state
            .abandoned_accounts
    };
    let entries = vec![prompt("t"), switched("first"), switched("second")];
    assert_eq!(left(entries.clone()), ["first", "second"]);
    let next = [entries, vec![prompt("u")]].concat();
    assert_eq!(left(next), Vec::<String>::new(), "another turn asks all");
}

#[tokio::test(start_paused = true)]
async fn unreadable_entry_is_named_and_session_stays_unlocked() {
    let (kept, world) = (TestJournal::new(), Fixture::new([answers("Hello")]));
    let session = kept.begin(world.setup()).await;
    session.prompt("hi".into()).await.unwrap();
    let id = session.id().to_owned();
    drop(session);
    let count = kept.entries(&id).await.len() as u64;
    let hold = kept.journal.claim(&id).await.unwrap();
    let line = RawEntry {
        turn: 1,
        kind: "message".to_owned(),
        time: START,
        body: "{}".to_owned(),
    };
    kept.journal.append(&hold, vec![line]).await.unwrap();
    kept.journal.release(hold).await.unwrap();
    for _ in 0..2 {
        let refused = Session::open(&kept.journal, &id, world.setup()).await;
        let Err(Error::Unreadable { seq, .. }) = refused else {
            panic!("it was opened");
        };
        assert_eq!(seq, count + 1);
    }
}
