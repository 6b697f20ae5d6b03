//! The cooldown of a model, also in the next process: it gets no request before the cooldown ends, and the first call after
//! it.

use crate::routes::{Routes, back, switch, switches};
use crate::support::{
    Call, Fate, Fixture, Listener, START, TestJournal, answers, calls, fails, is_wait,
    on_other_thread, overloaded, run_until, stop, text,
};
use outlast_engine::journal::Entry;
use outlast_kernel::decision::AfterContent;
use outlast_kernel::event::{Body, StopReason, TurnStatus};
use outlast_kernel::failure::Failure;
use outlast_kernel::fallback::Rules;
use outlast_kernel::verdict::Cause;
use outlast_session::Session;
use outlast_session::{PromptRequest, Setup};
use std::sync::Arc;
use std::time::Duration;

fn refused_key() -> Failure {
    Failure::http("one", 401, "invalid x-api-key", START)
}

/// `one` fails once with that failure and succeeds from then on; `two` succeeds.
fn once(failure: Failure) -> Routes {
    Routes::new([
        ("one", vec![fails(failure), answers("one")]),
        ("two", vec![answers("two")]),
    ])
}

fn chosen() -> PromptRequest {
    PromptRequest {
        model_chosen: true,
        ..PromptRequest::from("hi")
    }
}

fn is_switch(body: &Body) -> bool {
    matches!(body, Body::ModelSwitched { .. })
}

fn is_wait_number(number: u32) -> impl Fn(&Body) -> bool {
    move |body| matches!(body, Body::RetryScheduled { attempt, .. } if *attempt == number)
}

// --- One process ---

#[tokio::test(start_paused = true)]
async fn model_is_called_again_on_first_call_after_cooldown() {
    let routes = once(refused_key());
    let session = routes.session();
    let heard = Listener::new(&session);
    for time in [0, 60, 299, 300, 301] {
        routes.wait_until(time).await;
        session.prompt("hi".into()).await.unwrap();
    }
    let expected = [
        (0, "one"),
        (0, "two"),
        (60, "two"),
        (299, "two"),
        (300, "one"),
        (301, "one"),
    ];
    assert_eq!(routes.request_times(), expected);
    let first = switch("one", "two", Cause::Auth, 300);
    assert_eq!(switches(&heard)[0], first);
}

#[tokio::test(start_paused = true)]
async fn no_return_to_model_too_small_for_conversation() {
    let long = "word ".repeat(8_000);
    for (window, last) in [(10_000, "two"), (20_000, "one")] {
        let routes = Routes::new([
            ("one", vec![fails(refused_key()), answers("one")]),
            ("two", vec![calls(&[("c1", "slow")]), answers("two")]),
        ]);
        let routes = routes.with_windows([Some(window), None]);
        let session = routes.session();
        session.prompt(long.as_str().into()).await.unwrap();
        let expected = [(0, "one"), (0, "two"), (3600, last)];
        assert_eq!(routes.request_times(), expected, "{window}");
    }
}

#[tokio::test(start_paused = true)]
async fn cooldown_is_configurable_and_at_least_one_second() {
    for (cooldown, until) in [(0, 1), (60, 60), (3600, 3600)] {
        let routes = Routes::new([
            ("one", vec![fails(refused_key())]),
            ("two", vec![answers("two")]),
        ]);
        let setup = Setup {
            fallback_rules: Rules {
                cooldown: Duration::from_secs(cooldown),
                ..Rules::default()
            },
            ..routes.setup()
        };
        let session = Arc::new(Session::in_memory(setup));
        let heard = Listener::new(&session);
        session.prompt("hi".into()).await.unwrap();
        assert_eq!(switches(&heard), [switch("one", "two", Cause::Auth, until)]);
        assert_eq!(routes.names(), ["one", "two"]);
    }
}

#[tokio::test(start_paused = true)]
async fn model_returns_after_cooldown_within_a_turn() {
    let routes = Routes::new([
        ("one", vec![fails(refused_key()), answers("done")]),
        (
            "two",
            vec![calls(&[("c1", "read")]), calls(&[("c2", "slow")])],
        ),
    ]);
    let session = routes.session();
    let heard = Listener::new(&session);
    let ended = session.prompt("hi".into()).await.unwrap();
    assert_eq!(ended.message.text(), "done");
    let expected = [(0, "one"), (0, "two"), (0, "two"), (3600, "one")];
    assert_eq!(routes.request_times(), expected);
    let there = switch("one", "two", Cause::Auth, 300);
    assert_eq!(switches(&heard), [there, back("two", "one")]);
}

#[tokio::test(start_paused = true)]
async fn model_returns_after_cooldown_within_a_retry_chain() {
    let routes = Routes::new([
        ("one", vec![fails(refused_key()), answers("done")]),
        ("two", vec![fails(overloaded())]),
    ]);
    let session = Arc::new(Session::in_memory(routes.setup_by("overnight")));
    let heard = Listener::new(&session);
    let ended = session.prompt("hi".into()).await.unwrap();
    assert_eq!(ended.message.text(), "done");
    let twos = [(0, "two"), (5, "two"), (15, "two"), (45, "two")];
    let all = [&[(0, "one")][..], &twos, &[(105, "two"), (405, "one")]];
    assert_eq!(routes.request_times(), all.concat());
    assert_eq!(heard.ends(), [(true, 5, None)]);
}

// --- Another process ---

#[tokio::test(start_paused = true)]
async fn model_cooldown_and_refusal_survive_restart() {
    let refusal = Failure::http(
        "one",
        400,
        "Output blocked by content filtering policy",
        START,
    );
    for (failure, after) in [(refused_key(), "one"), (refusal, "two")] {
        let (kept, routes) = (TestJournal::new(), once(failure));
        let session = kept.begin(routes.setup()).await;
        session.prompt("hi".into()).await.unwrap();
        let id = session.id().to_owned();
        drop(session);
        for time in [299, 300] {
            routes.wait_until(time).await;
            let session = kept.open(&id, routes.setup()).await;
            session.prompt("again".into()).await.unwrap();
        }
        assert_eq!(routes.names(), ["one", "two", "two", after]);
    }
}

#[tokio::test(start_paused = true)]
async fn explicit_model_choice_clears_its_exclusion() {
    let refusal: Call = vec![stop(StopReason::Refusal)].into();
    for failing in [fails(refused_key()), refusal] {
        let kept = TestJournal::new();
        let routes = Routes::new([
            ("one", vec![failing, answers("one")]),
            ("two", vec![answers("two")]),
        ]);
        let session = kept.begin(routes.setup()).await;
        session.prompt("hi".into()).await.unwrap();
        session.prompt("hi".into()).await.unwrap();
        session.prompt(chosen()).await.unwrap();
        session.prompt("hi".into()).await.unwrap();
        let id = session.id().to_owned();
        drop(session);
        let session = kept.open(&id, routes.setup()).await;
        session.prompt("hi".into()).await.unwrap();
        let expected = ["one", "two", "two", "one", "one", "one"];
        assert_eq!(routes.names(), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn failed_explicit_choice_starts_a_new_cooldown() {
    let routes = Routes::new([
        ("one", vec![fails(refused_key())]),
        ("two", vec![answers("two")]),
    ]);
    let session = routes.session();
    session.prompt("hi".into()).await.unwrap();
    routes.wait_until(60).await;
    session.prompt(chosen()).await.unwrap();
    session.prompt("hi".into()).await.unwrap();
    let expected = [
        (0, "one"),
        (0, "two"),
        (60, "one"),
        (60, "two"),
        (60, "two"),
    ];
    assert_eq!(routes.request_times(), expected);
}

#[tokio::test(start_paused = true)]
async fn model_switch_is_recorded_before_it_is_announced() {
    let kept = Arc::new(TestJournal::new());
    let mut routes = Routes::new([("one", vec![fails(refused_key()), answers("one")])]);
    let two = Fixture::by(Arc::clone(&routes.world.clock), [answers("two")]).provider;
    routes.push("two", Arc::clone(&two) as _);
    two.hang(true);
    let session = kept.begin(routes.setup()).await;
    let (journal, id) = (Arc::clone(&kept), session.id().to_owned());
    let _reader = Listener::with(&session, move |_, body| {
        if is_switch(body) {
            let entries = on_other_thread(journal.entries(&id));
            let switched = |entry: &Entry| matches!(entry, Entry::Switched { model: Some(_), .. });
            assert!(entries.iter().any(switched), "{entries:?}");
        }
    });
    let fate = run_until(&session, session.prompt("hi".into()), is_switch).await;
    assert_eq!(fate, Fate::Died);
    two.hang(false);
    let id = session.id().to_owned();
    drop(session);
    routes.wait_until(10).await;
    let session = kept.open(&id, routes.setup()).await;
    let ended = session.resume().await.unwrap();
    assert_eq!(ended.message.text(), "two");
    assert_eq!(routes.names()[0], "one");
    assert!(
        !routes.names()[1..].contains(&"one"),
        "{:?}",
        routes.request_times()
    );
}

#[tokio::test(start_paused = true)]
async fn resumed_fallback_wait_keeps_remaining_retries() {
    let kept = TestJournal::new();
    let routes = Routes::new([
        ("one", vec![fails(refused_key())]),
        ("two", vec![fails(overloaded())]),
    ]);
    let mut session = kept.begin(routes.setup()).await;
    let id = session.id().to_owned();
    run_until(&session, session.prompt("hi".into()), is_wait).await;
    // Each process dies in the first wait that is new to it.
    for _ in 0..2 {
        drop(session);
        session = kept.open(&id, routes.setup()).await;
        let first = session
            .unfinished_turn()
            .unwrap()
            .resume_state
            .chain
            .retries();
        run_until(&session, session.resume(), is_wait_number(first + 1)).await;
    }
    drop(session);
    let session = kept.open(&id, routes.setup()).await;
    let heard = Listener::new(&session);
    let ended = session.resume().await.unwrap();
    assert_eq!(ended.seal, TurnStatus::Error);
    assert_eq!(heard.ends(), [(false, 3, Some("Overloaded".to_owned()))]);
    let twos = [(0, "two"), (2, "two"), (6, "two"), (14, "two")];
    assert_eq!(routes.request_times(), [&[(0, "one")][..], &twos].concat());
}

#[tokio::test(start_paused = true)]
async fn restart_adds_no_retries_to_fallback_of_earlier_step() {
    let kept = TestJournal::new();
    let routes = Routes::new([
        ("one", vec![fails(refused_key())]),
        ("two", vec![calls(&[("c1", "read")]), fails(overloaded())]),
    ]);
    let session = kept.begin(routes.setup()).await;
    let id = session.id().to_owned();
    let second = is_wait_number(2);
    run_until(&session, session.prompt("hi".into()), second).await;
    drop(session);
    let session = kept.open(&id, routes.setup()).await;
    session.resume().await.unwrap();
    let times: Vec<u64> = routes
        .request_times()
        .iter()
        .map(|(time, _)| *time)
        .collect();
    assert_eq!(times, [0, 0, 0, 2, 6, 14]);
}

#[tokio::test(start_paused = true)]
async fn restart_gives_fallback_of_earlier_chain_all_retries() {
    let kept = TestJournal::new();
    let routes = Routes::new([
        ("one", vec![fails(refused_key()), fails(overloaded())]),
        ("two", vec![calls(&[("c1", "slow")]), fails(overloaded())]),
    ]);
    let session = kept.begin(routes.setup()).await;
    let id = session.id().to_owned();
    run_until(&session, session.prompt("hi".into()), is_wait_number(1)).await;
    drop(session);
    let session = kept.open(&id, routes.setup()).await;
    let heard = Listener::new(&session);
    session.resume().await.unwrap();
    assert_eq!(heard.ends(), [(false, 5, Some("Overloaded".to_owned()))]);
    let after = |(time, name): &(u64, &'static str)| (time - 3600, *name);
    let last: Vec<_> = routes.request_times()[2..].iter().map(after).collect();
    let ones = [(0, "one"), (2, "one"), (6, "one")];
    let twos = [(6, "two"), (8, "two"), (12, "two"), (20, "two")];
    assert_eq!(last, [&ones[..], &twos].concat());
}

#[tokio::test(start_paused = true)]
async fn partial_completion_is_not_continued_by_abandoned_model() {
    let broken = || vec![text("He"), Err(Box::new(overloaded()))].into();
    let kept = TestJournal::new();
    let routes = Routes::new([
        ("one", vec![broken()]),
        ("two", vec![fails(overloaded()), answers("llo")]),
    ]);
    let setup = || Setup {
        after_content: AfterContent::Continue,
        fallback_rules: Rules {
            overload_retries: 0,
            ..Rules::default()
        },
        ..routes.setup()
    };
    let session = kept.begin(setup()).await;
    let id = session.id().to_owned();
    run_until(&session, session.prompt("hi".into()), is_wait).await;
    drop(session);
    let session = kept.open(&id, setup()).await;
    let ended = session.resume().await.unwrap();
    assert_eq!(ended.message.text(), "Hello");
    assert_eq!(routes.names(), ["one", "two", "two"]);
}
