//! The limits of a prompt, over all of its steps: its sleep, its deadline, its cost.

use crate::support::{
    Call, Fate, Fixture, Listener, START, TestJournal, answers, calls, describe_messages, fails,
    hangs, is_wait, overloaded, run_until, stop, text, tool_call_delta, usage_delta,
};
use outlast_engine::turn::TurnOutcome;
use outlast_kernel::budget::{Cost, Limits, Price};
use outlast_kernel::event::{StopReason, TurnStatus};
use outlast_session::Session;
use outlast_session::{PromptRequest, Setup};
use std::sync::Arc;
use std::time::Duration;

fn ask(limits: Limits) -> PromptRequest {
    PromptRequest {
        limits,
        ..PromptRequest::from("hi")
    }
}

fn deadline(seconds: u64) -> Limits {
    Limits {
        deadline: Some(START + Duration::from_secs(seconds)),
        ..Limits::default()
    }
}

fn sleep(seconds: u64) -> Limits {
    Limits {
        sleep: Some(Duration::from_secs(seconds)),
        ..Limits::default()
    }
}

fn reason(ended: &TurnOutcome) -> String {
    ended.error.as_ref().unwrap().1.to_string()
}

/// Returns two failures before a tool call, two before the final completion.
fn two_steps() -> Vec<Call> {
    let failing = || fails(overloaded());
    vec![
        failing(),
        failing(),
        calls(&[("c1", "read")]),
        failing(),
        failing(),
        answers("done"),
    ]
}

#[tokio::test(start_paused = true)]
async fn sleep_budget_is_shared_by_all_steps() {
    let world = Fixture::new(two_steps());
    let session = world.session();
    let heard = Listener::new(&session);
    let ended = session.prompt(ask(sleep(9))).await.unwrap();
    assert_eq!(
        (ended.seal, reason(&ended)),
        (
            TurnStatus::Error,
            "the prompt may only wait 1s more".to_owned()
        )
    );
    assert_eq!(heard.retries(), [(1, 2_000), (2, 4_000), (1, 2_000)]);
    assert_eq!(ended.budget.sleep_left(), Some(Duration::from_secs(1)));
    // Another prompt has limits of its own.
    let ended = session.prompt(ask(sleep(9))).await.unwrap();
    assert_eq!(ended.seal, TurnStatus::Completed);
}

#[tokio::test(start_paused = true)]
async fn sufficient_sleep_budget_completes_all_steps() {
    let world = Fixture::new(two_steps());
    let ended = world.session().prompt(ask(sleep(12))).await.unwrap();
    assert_eq!(
        (ended.seal, world.elapsed()),
        (TurnStatus::Completed, Duration::from_secs(12))
    );
}

#[tokio::test(start_paused = true)]
async fn shortened_wait_spends_only_time_slept() {
    let world = Fixture::new(two_steps());
    let session = world.session();
    let hurry = async {
        tokio::time::sleep(Duration::from_secs(3)).await;
        session.retry_now();
    };
    let (ended, ()) = tokio::join!(session.prompt(ask(sleep(9))), hurry);
    let ended = ended.unwrap();
    assert_eq!(
        (ended.seal, world.elapsed()),
        (TurnStatus::Completed, Duration::from_secs(9))
    );
    assert_eq!(ended.budget.sleep_left(), Some(Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn no_step_moves_the_deadline() {
    let world = Fixture::new(two_steps());
    let session = world.session();
    let ended = session.prompt(ask(deadline(11))).await.unwrap();
    let said = "no time is left for another try";
    assert_eq!(
        (ended.seal, reason(&ended).as_str()),
        (TurnStatus::Error, said)
    );
    // The wait that would have ended after the deadline was not begun.
    assert_eq!(world.elapsed(), Duration::from_secs(8));
}

#[tokio::test(start_paused = true)]
async fn deadline_during_stream_ends_the_turn() {
    for items in [vec![], vec![text("Hel")]] {
        let world = Fixture::new([hangs(items)]);
        let session = world.session();
        let heard = Listener::new(&session);
        let ended = session.prompt(ask(deadline(30))).await.unwrap();
        assert_eq!(
            (ended.seal, world.elapsed()),
            (TurnStatus::Error, Duration::from_secs(30))
        );
        assert_eq!((heard.retries(), heard.count("error")), (vec![], 1));
        assert_eq!(reason(&ended), "no time is left for another try");
        assert_eq!(describe_messages(&session.messages()), ["hi"]);
    }
}

#[tokio::test(start_paused = true)]
async fn deadline_during_tool_ends_tool_and_turn() {
    let results = [
        ("slow", "c1! it was stopped", 30_000),
        (
            "stubborn",
            "c1! it was interrupted and may have partly run",
            30_230,
        ),
    ];
    for (name, result, millis) in results {
        let world = Fixture::new([calls(&[("c1", name), ("c2", "read")]), answers("unused")]);
        let session = world.session();
        let ended = session.prompt(ask(deadline(30))).await.unwrap();
        assert_eq!(
            (ended.seal, world.elapsed()),
            (TurnStatus::Error, Duration::from_millis(millis))
        );
        assert_eq!(world.provider.calls_made(), 1, "nothing is asked after it");
        let too_late = "c2! it was not run: the time for this prompt was over before it began";
        assert_eq!(
            describe_messages(&session.messages())[3..],
            [result, too_late]
        );
    }
}

#[tokio::test(start_paused = true)]
async fn wait_past_the_deadline_is_not_started() {
    let failing = || fails(overloaded());
    for (seconds, tries) in [(1, 1), (3, 2), (7, 3), (15, 4)] {
        let world = Fixture::new([failing()]);
        let ended = world
            .session()
            .prompt(ask(deadline(seconds)))
            .await
            .unwrap();
        assert_eq!(
            (ended.seal, world.provider.calls_made()),
            (TurnStatus::Error, tries)
        );
        assert!(world.elapsed() <= Duration::from_secs(seconds));
    }
}

// --- Cost ---

/// A dollar for a million tokens of any kind: a millionth for each.
const PRICE: Price = Price {
    input: Cost(1_000_000),
    output: Cost(1_000_000),
    cache_read: Cost(1_000_000),
    cache_write: Cost(1_000_000),
};

fn cost(millionths: u64) -> Limits {
    Limits {
        cost: Some(Cost(millionths)),
        ..Limits::default()
    }
}

/// Returns a failure after 30 tokens, a step of 50, a completion of 20.
fn dear_steps() -> Vec<Call> {
    let failing = Call::from(vec![usage_delta(30, 0), Err(Box::new(overloaded()))]);
    let wanting = vec![
        tool_call_delta("c1", "read"),
        usage_delta(40, 10),
        stop(StopReason::ToolUse),
    ];
    let answering = vec![text("done"), usage_delta(15, 5), stop(StopReason::EndTurn)];
    vec![failing, Call::from(wanting), Call::from(answering)]
}

#[tokio::test(start_paused = true)]
async fn no_call_is_made_once_cost_limit_is_reached() {
    for (ceiling, calls, seal) in [
        (30, 1, TurnStatus::Error),
        (80, 2, TurnStatus::Error),
        (81, 3, TurnStatus::Completed),
    ] {
        let world = Fixture::new(dear_steps());
        let session = Arc::new(Session::in_memory(Setup {
            price: Some(PRICE),
            ..world.setup()
        }));
        let ended = session.prompt(ask(cost(ceiling))).await.unwrap();
        assert_eq!(
            (world.provider.calls_made(), ended.seal),
            (calls, seal),
            "{ceiling}"
        );
        if seal == TurnStatus::Error {
            assert_eq!(reason(&ended), "the cost ceiling is reached");
        } else {
            assert_eq!(ended.budget.cost(), Cost(100));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn cost_before_restart_counts_toward_limit() {
    let world = Fixture::new(dear_steps());
    let kept = TestJournal::new();
    let setup = || Setup {
        price: Some(PRICE),
        ..world.setup()
    };
    let session = kept.begin(setup()).await;
    let id = session.id().to_owned();
    // The first failure has cost 30 when its wait begins.
    let fate = run_until(&session, session.prompt(ask(cost(60))), is_wait).await;
    assert!(matches!(fate, Fate::Died), "it must be cut in its wait");
    drop(session);
    let ended = kept.open(&id, setup()).await.resume().await.unwrap();
    assert_eq!(world.provider.calls_made(), 2);
    assert_eq!(reason(&ended), "the cost ceiling is reached");
}
