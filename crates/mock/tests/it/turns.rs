//! Scripts behind the real adapter and the real turn: transient failures are outlasted, permanent ones are not retried.

use outlast_dialect::{Dialect, Message, Request};
use outlast_engine::clock::TimerClock;
use outlast_engine::provider::Adapter;
use outlast_engine::strategy::PolicyRetry;
use outlast_engine::turn::{Turn, TurnOutcome};
use outlast_engine::{Clock, run_turn};
use outlast_kernel::Timestamp;
use outlast_kernel::decision::GiveUp;
use outlast_kernel::event::{Body, Event, TurnStatus};
use outlast_kernel::policy::Policy;
use outlast_kernel::verdict::Cause;
use outlast_mock::ScriptedTransport;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

pub(crate) struct TurnResult {
    pub(crate) outcome: TurnOutcome,
    causes: Vec<Cause>,
    elapsed: Duration,
}

async fn play(script: &str, policy: &str) -> TurnResult {
    play_in(Dialect::Anthropic, script, policy).await
}

async fn play_in(dialect: Dialect, script: &str, policy: &str) -> TurnResult {
    let request = Request {
        model: script.to_owned(),
        messages: vec![Message::user("Say hello")],
        ..Request::default()
    };
    play_request(dialect, &request, policy).await
}

/// Runs one turn with its own provider, which plays the script that the request's model names.
pub(crate) async fn play_request(dialect: Dialect, request: &Request, policy: &str) -> TurnResult {
    let clock: Arc<dyn Clock> =
        Arc::new(TimerClock::new(Timestamp::from_millis(1_800_000_000_000)));
    let script = request.model.parse().unwrap();
    let transport = Arc::new(ScriptedTransport::new(script, Arc::clone(&clock)));
    let provider = Adapter::new(dialect, transport, Arc::clone(&clock));
    let retry = PolicyRetry::new(Policy::named(policy).unwrap(), Arc::clone(&clock));
    let turn = Turn {
        retry: Some(&retry),
        ..Turn::new(&provider, request.clone(), &*clock)
    };
    let (start, mut causes) = (Instant::now(), Vec::new());
    let outcome = run_turn(turn, &mut |event: Event| {
        if let Body::RetryScheduled { cause, .. } = event.body {
            causes.push(cause);
        }
    })
    .await;
    TurnResult {
        outcome,
        causes,
        elapsed: start.elapsed(),
    }
}

#[tokio::test(start_paused = true)]
async fn transient_faults_are_outlasted_in_every_dialect() {
    use Cause::{Network, Overloaded, RateLimited, ServerError, Stalled, TruncatedStream};
    let table: [(&str, &[Cause], u64); 24] = [
        ("ok", &[], 0),
        ("ok:unknown-frames", &[], 0),
        ("overloaded:3", &[Overloaded; 3], 14),
        ("outage:10", &[Overloaded; 3], 14),
        ("rate-limited:retry-after=2", &[RateLimited], 2),
        ("rate-limited:retry-after=60", &[RateLimited], 60),
        ("rate-limited:retry-after=60,as=text", &[RateLimited], 60),
        ("rate-limited:retry-after=60,as=epoch", &[RateLimited], 60),
        ("stall", &[Stalled], 302),
        ("drop-after:0", &[Network], 2),
        ("reset", &[Network], 2),
        ("close", &[Network], 2),
        ("cut:1", &[TruncatedStream], 2),
        ("error:500,times=2", &[ServerError; 2], 6),
        ("hold:60", &[], 60),
        ("drip:1000", &[], 17),
        ("linger", &[], 0),
        ("slow-error:500", &[ServerError], 7),
        ("endless-error:500", &[ServerError], 2),
        ("in-band:overloaded", &[Overloaded], 2),
        ("in-band:overloaded,after=0,as=end", &[Overloaded], 2),
        ("json-error:overloaded", &[Overloaded], 2),
        ("page:429", &[RateLimited], 2),
        (
            "overloaded+rate-limited:retry-after=9",
            &[Overloaded, RateLimited],
            11,
        ),
    ];
    let mut wrong = Vec::new();
    for dialect in Dialect::ALL {
        for (script, causes, seconds) in table {
            let played = play_in(dialect, script, "session").await;
            let said = played.outcome.message.text();
            let whole = said.ends_with("You said: Say hello");
            let got = (&played.causes[..], played.elapsed.as_secs());
            if played.outcome.seal != TurnStatus::Completed || !whole || got != (causes, seconds) {
                let name = dialect.name();
                wrong.push(format!(
                    "{name} {script}: {got:?} {:?}",
                    played.outcome.error
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test(start_paused = true)]
async fn usage_limit_is_waited_out_by_overnight_not_session() {
    let night = play("usage-limit", "overnight").await;
    assert_eq!(
        (night.outcome.seal, night.elapsed.as_secs()),
        (TurnStatus::Completed, 18_000)
    );
    assert_eq!(night.causes, [Cause::UsageLimit]);

    let session = play("usage-limit", "session").await;
    let (_, why) = session.outcome.error.unwrap();
    assert_eq!(
        why.to_string(),
        "the provider asks to wait 5h, the policy accepts 5m"
    );
    assert_eq!(session.elapsed, Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn an_overflow_is_never_retried() {
    let played = play("overflow", "overnight").await;
    let (judged, why) = played.outcome.error.unwrap();
    assert_eq!(
        (judged.verdict.cause, why, played.elapsed),
        (Cause::ContextOverflow, GiveUp::Overflow, Duration::ZERO)
    );
}

#[tokio::test(start_paused = true)]
async fn a_stream_cut_after_content_ends_the_turn() {
    let played = play("drop-after:5", "overnight").await;
    assert_eq!(played.outcome.seal, TurnStatus::Error);
    assert_eq!(
        played.outcome.message.text(),
        "Hello from the scripted provider: "
    );
    assert_eq!(played.outcome.error.unwrap().1, GiveUp::ContentSent);
}

#[tokio::test(start_paused = true)]
async fn a_flaky_provider_is_outlasted_for_a_hundred_seeds() {
    for seed in 0..100 {
        let played = play(&format!("flaky:0.3,seed={seed}"), "overnight").await;
        assert_eq!(played.outcome.seal, TurnStatus::Completed, "seed {seed}");
    }
}
