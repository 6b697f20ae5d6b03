//! The use of another model: each condition by itself, and the models that are skipped.

use crate::routes::{Routes, Switch, switch, switches};
use crate::support::{Call, Listener, START, TestJournal, answers, calls, fails, overloaded, stop};
use outlast_kernel::event::{StopReason, TurnStatus};
use outlast_kernel::failure::{Failure, IoKind};
use outlast_kernel::fallback::{Condition, Rules};
use outlast_kernel::verdict::Cause;
use outlast_session::Session;
use outlast_session::Setup;
use std::sync::Arc;
use std::time::Duration;

/// `one` fails with that failure on every call, `two` succeeds.
fn against(failure: &Failure) -> Routes {
    let scripts = [
        ("one", vec![fails(failure.clone())]),
        ("two", vec![answers("Hello")]),
    ];
    Routes::new(scripts)
}

fn http(status: u16, message: &str) -> Failure {
    Failure::http("one", status, message, START)
}

fn overflow() -> Failure {
    http(400, "prompt is too long: 210000 tokens > 200000 maximum")
}

fn refuses() -> Call {
    vec![stop(StopReason::Refusal)].into()
}

async fn prompt(routes: &Routes, setup: Setup) -> (TurnStatus, Vec<Switch>) {
    let session = Arc::new(Session::in_memory(setup));
    let heard = Listener::new(&session);
    let ended = session.prompt("hi".into()).await.unwrap();
    if ended.seal == TurnStatus::Completed {
        assert_eq!(
            ended.message.text(),
            "Hello",
            "{:?}",
            routes.request_times()
        );
    }
    (ended.seal, switches(&heard))
}

// --- Overload ---

#[tokio::test(start_paused = true)]
async fn failing_model_gets_two_retries_before_fallback() {
    let lost = |io| Failure::thrown("one", "the connection was lost", START).with_io(io);
    let failures = [
        (overloaded(), Cause::Overloaded),
        (http(500, "Internal server error"), Cause::ServerError),
        (http(429, "Too many requests"), Cause::RateLimited),
        (lost(IoKind::Reset), Cause::Network),
        (lost(IoKind::Idle), Cause::Stalled),
    ];
    for (failure, cause) in failures {
        let routes = against(&failure);
        let (seal, said) = prompt(&routes, routes.setup()).await;
        assert_eq!(seal, TurnStatus::Completed);
        let expected = [(0, "one"), (2, "one"), (6, "one"), (6, "two")];
        assert_eq!(routes.request_times(), expected, "{cause}");
        assert_eq!(said, [switch("one", "two", cause, 306)]);
    }
}

#[tokio::test(start_paused = true)]
async fn retries_before_fallback_are_configurable() {
    for (overload_retries, expected) in [(0, 1), (1, 2), (3, 4), (9, 4)] {
        let routes = against(&overloaded());
        let setup = Setup {
            fallback_rules: Rules {
                overload_retries,
                ..Rules::default()
            },
            ..routes.setup()
        };
        let (seal, _) = prompt(&routes, setup).await;
        let ones = routes.names().iter().filter(|name| **name == "one").count();
        assert_eq!((seal, ones), (TurnStatus::Completed, expected));
    }
}

#[tokio::test(start_paused = true)]
async fn long_retry_after_switches_at_once_and_sets_cooldown() {
    let failure = overloaded().with_headers([("retry-after", "3600")]);
    let routes = against(&failure);
    let (_, said) = prompt(&routes, routes.setup()).await;
    assert_eq!(routes.request_times(), [(0, "one"), (0, "two")]);
    assert_eq!(said, [switch("one", "two", Cause::Overloaded, 3600)]);
}

// --- A plan's window ---

#[tokio::test(start_paused = true)]
async fn short_usage_limit_is_waited_for_and_long_one_switches() {
    let limit = |rest: &str| http(429, &format!("You have hit your usage limit. {rest}"));
    let in_two_hours = limit("Try again in 2 hours.");
    let routes = against(&in_two_hours);
    let (seal, said) = prompt(&routes, routes.setup()).await;
    assert_eq!(seal, TurnStatus::Completed);
    assert_eq!(routes.request_times(), [(0, "one"), (0, "two")]);
    assert_eq!(said, [switch("one", "two", Cause::UsageLimit, 7200)]);

    let soon = fails(limit("Try again in 4 minutes."));
    let routes = Routes::new([
        ("one", vec![soon, answers("Hello")]),
        ("two", vec![answers("no")]),
    ]);
    let (seal, said) = prompt(&routes, routes.setup()).await;
    assert_eq!((seal, said), (TurnStatus::Completed, vec![]));
    assert_eq!(routes.request_times(), [(0, "one"), (240, "one")]);
}

#[tokio::test(start_paused = true)]
async fn usage_limit_beyond_max_wait_or_unknown_switches_model() {
    let failures = [
        ("You have hit your usage limit.", 300),
        (
            "You have hit your usage limit. Try again in 4 minutes.",
            300,
        ),
    ];
    for (message, until) in failures {
        let routes = against(&http(429, message));
        let setup = Setup {
            fallback_rules: Rules {
                max_usage_wait: Duration::from_secs(60),
                ..Rules::default()
            },
            ..routes.setup()
        };
        let (_, said) = prompt(&routes, setup).await;
        assert_eq!(
            routes.request_times(),
            [(0, "one"), (0, "two")],
            "{message}"
        );
        assert_eq!(said, [switch("one", "two", Cause::UsageLimit, until)]);
    }
}

// --- Hard errors ---

#[tokio::test(start_paused = true)]
async fn hard_error_switches_model_at_once_without_retry_event() {
    let failures = [
        (http(401, "invalid x-api-key"), Cause::Auth, Some(300)),
        (http(403, "not allowed"), Cause::Permission, Some(300)),
        (http(402, "Insufficient credits"), Cause::Billing, Some(300)),
        (http(404, "model: one"), Cause::ModelNotFound, Some(300)),
        (http(400, "unknown field `x`"), Cause::InvalidRequest, None),
    ];
    for (failure, cause, until) in failures {
        let routes = against(&failure.with_code(code_of(cause)));
        let session = routes.session();
        let heard = Listener::new(&session);
        let ended = session.prompt("hi".into()).await.unwrap();
        assert_eq!(ended.seal, TurnStatus::Completed, "{cause}");
        assert_eq!(routes.request_times(), [(0, "one"), (0, "two")], "{cause}");
        assert_eq!(switches(&heard), [switch("one", "two", cause, until)]);
        assert_eq!((heard.retries(), heard.ends()), (vec![], vec![]));
        assert_eq!(heard.count("error"), 0);
    }
}

fn code_of(cause: Cause) -> &'static str {
    match cause {
        Cause::ModelNotFound => "model_not_found",
        Cause::Auth => "authentication_error",
        Cause::Permission => "permission_error",
        Cause::Billing => "billing_error",
        _ => "invalid_request_error",
    }
}

#[tokio::test(start_paused = true)]
async fn model_that_rejects_request_is_skipped_for_the_turn() {
    let routes = Routes::new([
        (
            "one",
            vec![fails(http(400, "unknown field `x`")), answers("one")],
        ),
        ("two", vec![calls(&[("c1", "read")]), answers("two")]),
    ]);
    let session = routes.session();
    session.prompt("hi".into()).await.unwrap();
    assert_eq!(routes.names(), ["one", "two", "two"]);
    session.prompt("another request".into()).await.unwrap();
    assert_eq!(routes.names()[3..], ["one"]);
}

// --- Refusals ---

#[tokio::test(start_paused = true)]
async fn refusing_model_is_skipped_for_rest_of_session() {
    let refusals = [
        refuses(),
        fails(http(400, "Output blocked by content filtering policy")),
    ];
    for refusal in refusals {
        let scripts = [("one", vec![refusal]), ("two", vec![answers("Hello")])];
        let routes = Routes::new(scripts);
        let session = routes.session();
        let heard = Listener::new(&session);
        for time in [0, 3600, 7 * 24 * 3600] {
            routes.wait_until(time).await;
            let ended = session.prompt("hi".into()).await.unwrap();
            assert_eq!(ended.seal, TurnStatus::Completed);
        }
        assert_eq!(routes.names(), ["one", "two", "two", "two"]);
        let why = switch("one", "two", Cause::ContentFilter, None);
        assert_eq!(switches(&heard)[0], why);
        assert_eq!(heard.retries(), []);
    }
}

#[tokio::test(start_paused = true)]
async fn refusal_by_all_models_ends_with_one_error() {
    let scripts = [("one", vec![refuses()]), ("two", vec![refuses()])];
    let routes = Routes::new(scripts);
    let session = routes.session();
    let heard = Listener::new(&session);
    let ended = session.prompt("hi".into()).await.unwrap();
    assert_eq!((ended.seal, heard.count("error")), (TurnStatus::Error, 1));
    assert_eq!(ended.error.unwrap().0.verdict.cause, Cause::ContentFilter);
    assert_eq!(routes.names(), ["one", "two"]);
}

// --- Overflow ---

#[tokio::test(start_paused = true)]
async fn overflow_switches_only_to_a_larger_known_window() {
    let table = [
        (Some(200_000), Some(1_000_000), true),
        (None, Some(1_000_000), true),
        (Some(200_000), Some(200_000), false),
        (Some(200_000), Some(128_000), false),
        (Some(200_000), None, false),
        (None, None, false),
    ];
    for (here, there, goes) in table {
        let routes = against(&overflow()).with_windows([here, there]);
        let (seal, said) = prompt(&routes, routes.setup()).await;
        let expected = match goes {
            true => (TurnStatus::Completed, vec!["one", "two"]),
            false => (TurnStatus::Error, vec!["one"]),
        };
        assert_eq!((seal, routes.names()), expected, "{here:?} {there:?}");
        let why = switch("one", "two", Cause::ContextOverflow, None);
        assert_eq!(said, vec![why; usize::from(goes)]);
    }
}

#[tokio::test(start_paused = true)]
async fn overflow_skips_fallback_without_larger_window() {
    for between in [None, Some(200_000), Some(8_192)] {
        let routes = Routes::new([
            ("one", vec![fails(overflow())]),
            ("between", vec![answers("no")]),
            ("two", vec![answers("Hello")]),
        ]);
        let windows = [Some(200_000), between, Some(1_000_000)];
        let routes = routes.with_windows(windows);
        let (seal, _) = prompt(&routes, routes.setup()).await;
        assert_eq!(seal, TurnStatus::Completed, "{between:?}");
        assert_eq!(routes.names(), ["one", "two"], "{between:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn overflowed_model_is_not_called_again_at_any_max_tokens() {
    for (here, there) in [
        (None, None),
        (Some(64_000), Some(100)),
        (Some(100), Some(64_000)),
    ] {
        let mut routes = against(&overflow()).with_windows([Some(200_000), Some(1_000_000)]);
        routes.list[0].max_tokens = here;
        routes.list[1].max_tokens = there;
        let session = routes.session();
        for _ in 0..2 {
            let ended = session.prompt("hi".into()).await.unwrap();
            assert_eq!(ended.seal, TurnStatus::Completed);
        }
        assert_eq!(routes.names(), ["one", "two", "two"]);
        let limits = routes.log();
        assert_eq!(limits[1].request.max_tokens, there);
    }
}

// --- Conditions and models that are ruled out ---

#[tokio::test(start_paused = true)]
async fn unlisted_condition_does_not_switch_model() {
    let table = [
        (overloaded(), Condition::Overload, 4),
        (http(401, "invalid x-api-key"), Condition::HardError, 1),
        (http(400, "unknown field `x`"), Condition::HardError, 1),
        (overflow(), Condition::Overflow, 1),
        (
            http(429, "You have hit your usage limit. Try again in 2 hours."),
            Condition::UsageLimit,
            1,
        ),
        (
            http(400, "Output blocked by content filtering policy"),
            Condition::Refusal,
            1,
        ),
    ];
    for (failure, condition, expected) in table {
        let routes = against(&failure).with_windows([Some(200_000), Some(1_000_000)]);
        let others = Condition::ALL.into_iter().filter(|on| *on != condition);
        let setup = Setup {
            fallback_rules: Rules {
                conditions: others.collect(),
                ..Rules::default()
            },
            ..routes.setup()
        };
        let (seal, said) = prompt(&routes, setup).await;
        assert_eq!((seal, said), (TurnStatus::Error, vec![]), "{condition:?}");
        assert_eq!(routes.names(), vec!["one"; expected], "{condition:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn policy_without_fallback_retries_the_same_model() {
    for (policy, expected) in [("none", 1), ("conservative", 2)] {
        let routes = against(&overloaded());
        let (seal, said) = prompt(&routes, routes.setup_by(policy)).await;
        assert_eq!((seal, said), (TurnStatus::Error, vec![]));
        assert_eq!(routes.names(), vec!["one"; expected], "{policy}");
    }
    let routes = against(&http(401, "invalid x-api-key"));
    let setup = Setup {
        retry_enabled: false,
        ..routes.setup()
    };
    assert_eq!(prompt(&routes, setup).await, (TurnStatus::Error, vec![]));
    assert_eq!(routes.names(), ["one"]);
}

#[tokio::test(start_paused = true)]
async fn fallback_identical_to_current_model_is_ignored() {
    let routes = against(&overloaded());
    let same = routes.list[0].clone();
    let mut alone = routes.setup();
    alone.fallbacks = vec![same.clone(), same.clone()];
    assert_eq!(prompt(&routes, alone).await, (TurnStatus::Error, vec![]));
    assert_eq!(routes.names(), ["one"; 4]);

    let routes = against(&overloaded());
    let mut setup = routes.setup();
    setup.fallbacks.insert(0, routes.list[0].clone());
    let (seal, said) = prompt(&routes, setup).await;
    assert_eq!(seal, TurnStatus::Completed);
    assert_eq!(said, [switch("one", "two", Cause::Overloaded, 306)]);
}

#[tokio::test(start_paused = true)]
async fn same_model_at_another_provider_is_a_fallback() {
    let mut routes = against(&http(401, "invalid x-api-key"));
    routes.list[1].model = "one".to_owned();
    let kept = TestJournal::new();
    let session = kept.begin(routes.setup()).await;
    let ended = session.prompt("hi".into()).await.unwrap();
    assert_eq!(ended.seal, TurnStatus::Completed);
    assert_eq!(routes.names(), ["one", "two"]);
    assert_eq!(routes.log()[1].request.model, "one");
}

#[tokio::test(start_paused = true)]
async fn fallback_with_too_small_window_is_skipped() {
    let long = "word ".repeat(8_000);
    for (window, expected) in [(8_192, "two"), (12_000, "two"), (32_000, "small")] {
        let routes = Routes::new([
            ("one", vec![fails(http(401, "invalid x-api-key"))]),
            ("small", vec![answers("Hello")]),
            ("two", vec![answers("Hello")]),
        ]);
        let routes = routes.with_windows([None, Some(window), None]);
        let session = routes.session();
        let ended = session.prompt(long.as_str().into()).await.unwrap();
        assert_eq!(ended.seal, TurnStatus::Completed);
        assert_eq!(routes.names(), ["one", expected], "{window}");
    }
}

#[tokio::test(start_paused = true)]
async fn each_model_gets_its_own_name_and_max_tokens() {
    let mut routes = against(&http(401, "invalid x-api-key"));
    routes.list[0].max_tokens = Some(100);
    routes.list[1].max_tokens = Some(77);
    prompt(&routes, routes.setup()).await;
    let log = routes.log();
    let asked = log.iter().map(|one| &one.request);
    let asked: Vec<_> = asked
        .map(|request| (request.model.as_str(), request.max_tokens))
        .collect();
    assert_eq!(asked, [("one", Some(100)), ("two", Some(77))]);
}
