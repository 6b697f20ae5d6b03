//! The auto-retry of a session, statement by statement: each test name is one.

use crate::support::{
    Fixture, Listener, START, TestJournal, answers, calls, describe_messages, fails, overloaded,
    text, tool_call_delta, usage, usage_delta,
};
use futures_util::{StreamExt, stream};
use outlast_dialect::{Delta, Request};
use outlast_engine::accounts::{Account, Accounts, KeySource};
use outlast_engine::credential::Credential;
use outlast_engine::journal::Entry;
use outlast_engine::shared_state::SharedState;
use outlast_engine::{BoxFuture, BoxStream, Provider};
use outlast_kernel::event::{Body, StopReason, TurnStatus};
use outlast_kernel::failure::Failure;
use outlast_kernel::policy::{Overrides, Policy};
use outlast_kernel::verdict::Cause;
use outlast_session::Session;
use outlast_session::Setup;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn retries(count: u32) -> Policy {
    let more = Overrides {
        max_attempts: NonZeroU32::new(count + 1),
        ..Overrides::default()
    };
    Policy::named("session")
        .unwrap()
        .with_overrides(more)
        .unwrap()
}

// --- Numbers and delays ---

#[tokio::test(start_paused = true)]
async fn attempt_number_is_raised_before_limit_check() {
    for limit in [1, 2, 5] {
        let world = Fixture::new([fails(overloaded())]);
        let session = Arc::new(Session::in_memory(world.setup_by(retries(limit))));
        let heard = Listener::new(&session);
        session.prompt("hi".into()).await.unwrap();
        let numbers: Vec<u32> = heard.retries().iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, (1..=limit).collect::<Vec<_>>());
        assert_eq!(world.provider.calls_made(), limit as usize + 1);
    }
}

#[tokio::test(start_paused = true)]
async fn max_exceeded_reports_the_last_attempted_retrys_number() {
    for limit in [1, 3] {
        let world = Fixture::new([fails(overloaded())]);
        let session = Arc::new(Session::in_memory(world.setup_by(retries(limit))));
        let heard = Listener::new(&session);
        let ended = session.prompt("hi".into()).await.unwrap();
        assert_eq!(ended.seal, TurnStatus::Error);
        let end = (false, limit, Some("Overloaded".to_owned()));
        assert_eq!(heard.ends(), [end]);
        let kinds = heard.kinds();
        let tail = &kinds[kinds.len() - 3..];
        assert_eq!(tail, ["retry_ended", "error", "sealed"]);
    }
}

#[tokio::test(start_paused = true)]
async fn the_default_delays_are_two_four_and_eight_seconds() {
    let world = Fixture::new([fails(overloaded())]);
    let session = world.session();
    let heard = Listener::new(&session);
    session.prompt("hi".into()).await.unwrap();
    assert_eq!(heard.retries(), [(1, 2_000), (2, 4_000), (3, 8_000)]);
    assert_eq!(world.provider.called_at(), [0, 2, 6, 14]);
}

#[tokio::test(start_paused = true)]
async fn retry_event_has_attempt_limit_delay_and_error() {
    let world = Fixture::new([fails(overloaded()), answers("Hello")]);
    let session = world.session();
    let heard = Listener::new(&session);
    session.prompt("hi".into()).await.unwrap();
    let expected = Body::RetryScheduled {
        attempt: 1,
        max_attempts: Some(3),
        delay_ms: 2000,
        retry_at: START + Duration::from_secs(2),
        cause: Cause::Overloaded,
        message: "Overloaded".to_owned(),
        code: Some("529".to_owned()),
    };
    assert!(heard.bodies().contains(&expected), "{:?}", heard.bodies());
}

#[tokio::test(start_paused = true)]
async fn success_after_retries_resets_counter_with_event() {
    let failing = || fails(overloaded());
    let world = Fixture::new([
        failing(),
        failing(),
        answers("one"),
        failing(),
        answers("two"),
    ]);
    let session = world.session();
    let heard = Listener::new(&session);
    session.prompt("first".into()).await.unwrap();
    assert_eq!(heard.ends(), [(true, 2, None)]);
    assert!(!session.is_retrying());
    session.prompt("second".into()).await.unwrap();
    assert_eq!(heard.retries(), [(1, 2_000), (2, 4_000), (1, 2_000)]);
    assert_eq!(heard.ends()[1], (true, 1, None));
}

#[tokio::test(start_paused = true)]
async fn success_without_retry_emits_no_retry_event() {
    let world = Fixture::new([answers("Hello")]);
    let session = world.session();
    let heard = Listener::new(&session);
    session.prompt("hi".into()).await.unwrap();
    assert_eq!(
        (heard.count("retry_scheduled"), heard.count("retry_ended")),
        (0, 0)
    );
}

#[tokio::test(start_paused = true)]
async fn a_new_chain_can_start_after_the_counter_was_reset() {
    let world = Fixture::new([fails(overloaded())]);
    let session = world.session();
    let heard = Listener::new(&session);
    for _ in 0..2 {
        session.prompt("hi".into()).await.unwrap();
    }
    let chain = [(1, 2_000), (2, 4_000), (3, 8_000)];
    assert_eq!(heard.retries(), [chain, chain].concat());
    assert_eq!(heard.ends().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn chain_after_cancelled_one_counts_from_one() {
    let world = Fixture::new([fails(overloaded())]);
    let session = world.session();
    let heard = Listener::with(&session, |session, body| {
        if matches!(body, Body::RetryScheduled { attempt: 2, .. }) {
            session.abort_retry();
        }
    });
    session.prompt("hi".into()).await.unwrap();
    session.prompt("hi".into()).await.unwrap();
    let chain = [(1, 2_000), (2, 4_000)];
    assert_eq!(heard.retries(), [chain, chain].concat());
}

// --- The boundary of a prompt ---

#[tokio::test(start_paused = true)]
async fn prompt_does_not_return_before_the_chain_has_ended() {
    let failing = || fails(overloaded());
    let ends = [
        (vec![failing(), failing(), answers("Hello")], 6),
        (vec![failing()], 14),
    ];
    for (script, seconds) in ends {
        let world = Fixture::new(script);
        let session = world.session();
        let heard = Listener::new(&session);
        session.prompt("hi".into()).await.unwrap();
        assert_eq!(world.elapsed(), Duration::from_secs(seconds));
        assert_eq!(heard.ends().len(), 1);
        assert!(!session.is_retrying());
    }
}

#[tokio::test(start_paused = true)]
async fn prompt_waits_for_tools_of_a_recovered_completion() {
    let world = Fixture::new([
        fails(overloaded()),
        calls(&[("c1", "read")]),
        fails(overloaded()),
        answers("done"),
    ]);
    let session = world.session();
    let ended = session.prompt("hi".into()).await.unwrap();
    assert_eq!(
        (ended.seal, world.tools.ran()),
        (TurnStatus::Completed, vec!["c1".to_owned()])
    );
    assert_eq!(world.elapsed(), Duration::from_secs(4));
}

#[tokio::test(start_paused = true)]
async fn is_retrying_is_true_from_first_wait_to_chain_end() {
    let world = Fixture::new([fails(overloaded()), answers("Hello")]);
    let session = world.session();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let notes = Arc::clone(&seen);
    let heard = Listener::with(&session, move |session, _| {
        notes.lock().unwrap().push(session.is_retrying());
    });
    session.prompt("hi".into()).await.unwrap();
    let kinds = heard.kinds();
    let at = |kind: &str| kinds.iter().position(|other| other == kind).unwrap();
    let open = at("retry_scheduled")..at("retry_ended");
    for (place, is_retrying) in seen.lock().unwrap().iter().enumerate() {
        assert_eq!(*is_retrying, open.contains(&place), "{}", kinds[place]);
    }
}

// --- Failures that are retried ---

#[tokio::test(start_paused = true)]
async fn overflow_is_never_retried() {
    let message = "prompt is too long: 210000 tokens > 200000 maximum";
    let world = Fixture::new([fails(Failure::http("scripted", 400, message, START))]);
    let session = world.session();
    let heard = Listener::new(&session);
    let ended = session.prompt("hi".into()).await.unwrap();
    let (judged, _) = ended.error.unwrap();
    assert_eq!(judged.verdict.cause, Cause::ContextOverflow);
    assert_eq!(
        (ended.seal, world.provider.calls_made()),
        (TurnStatus::Error, 1)
    );
    assert_eq!((heard.retries(), heard.ends()), (vec![], vec![]));
}

#[tokio::test(start_paused = true)]
async fn permanent_error_is_not_retried() {
    let world = Fixture::new([fails(Failure::http("scripted", 401, "invalid key", START))]);
    let session = world.session();
    let heard = Listener::new(&session);
    session.prompt("hi".into()).await.unwrap();
    let expected = ["start", "input", "attempt_started", "error", "sealed"];
    assert_eq!(heard.kinds(), expected);
}

#[tokio::test(start_paused = true)]
async fn disabled_means_no_retry_and_no_event() {
    let world = Fixture::new([fails(overloaded())]);
    let setup = Setup {
        retry_enabled: false,
        ..world.setup()
    };
    let session = Arc::new(Session::in_memory(setup));
    let heard = Listener::new(&session);
    let ended = session.prompt("hi".into()).await.unwrap();
    assert!(!session.auto_retry_enabled());
    assert_eq!(
        (ended.seal, world.provider.calls_made()),
        (TurnStatus::Error, 1)
    );
    assert_eq!((heard.retries(), heard.ends()), (vec![], vec![]));
    assert_eq!(heard.count("error"), 1);
}

#[tokio::test(start_paused = true)]
async fn retry_after_beyond_policy_limit_fails_at_once() {
    let limited = |seconds| fails(overloaded().with_headers([("retry-after", seconds)]));
    let world = Fixture::new([limited("299"), limited("301")]);
    let session = world.session();
    let ended = session.prompt("hi".into()).await.unwrap();
    assert_eq!(world.provider.called_at(), [0, 299]);
    assert_eq!(world.elapsed(), Duration::from_secs(299));
    let (_, why) = ended.error.unwrap();
    let said = "the provider asks to wait 5m1s, the policy accepts 5m";
    assert_eq!(why.to_string(), said);
}

#[tokio::test(start_paused = true)]
async fn failure_after_complete_tool_call_is_not_retried() {
    let broken = vec![tool_call_delta("c1", "send"), Err(Box::new(overloaded()))];
    let world = Fixture::new([broken.into(), answers("Hello")]);
    let session = world.session();
    let ended = session.prompt("hi".into()).await.unwrap();
    assert_eq!(
        (ended.seal, world.provider.calls_made()),
        (TurnStatus::Error, 1)
    );
    assert_eq!(world.tools.ran(), Vec::<String>::new());
    assert_eq!(describe_messages(&session.messages()), ["hi"]);
}

// --- History ---

#[tokio::test(start_paused = true)]
async fn the_failed_message_stays_in_history_and_out_of_context() {
    let broken = vec![text("Hel"), Err(Box::new(overloaded()))];
    let world = Fixture::new([fails(overloaded()), broken.into(), answers("Hello")]);
    let kept = TestJournal::new();
    let session = kept.begin(world.setup()).await;
    session.prompt("hi".into()).await.unwrap();
    let failed = |entries: Vec<Entry>| -> Vec<String> {
        let message = |entry: Entry| match entry {
            Entry::AttemptFailed { message, .. } => Some(message.text()),
            _ => None,
        };
        entries.into_iter().filter_map(message).collect()
    };
    let id = session.id().to_owned();
    assert_eq!(failed(kept.entries(&id).await), ["", "Hel"]);
    assert_eq!(describe_messages(&session.messages()), ["hi"]);
    session.prompt("again".into()).await.unwrap();
    let asked = world.provider.requests();
    assert_eq!(describe_messages(&asked[2].messages), ["hi", "again"]);
    drop(session);
    // Also after a restart.
    let session = kept.open(&id, world.setup()).await;
    assert_eq!(failed(kept.entries(&id).await), ["", "Hel"]);
    assert_eq!(
        describe_messages(&session.messages()),
        ["hi", "again", "Hello"]
    );
}

#[tokio::test(start_paused = true)]
async fn usage_of_failed_attempts_is_counted() {
    let failing = vec![usage_delta(10, 0), Err(Box::new(overloaded()))];
    let answer = vec![
        usage_delta(10, 0),
        text("Hello"),
        usage_delta(10, 5),
        Ok(Delta::Stopped(StopReason::EndTurn)),
    ];
    let world = Fixture::new([failing.into(), answer.into()]);
    let kept = TestJournal::new();
    let session = kept.begin(world.setup()).await;
    let ended = session.prompt("hi".into()).await.unwrap();
    assert_eq!(ended.usage, usage(20, 5));
    assert_eq!(session.snapshot().usage, usage(20, 5));
    session.prompt("again".into()).await.unwrap();
    assert_eq!(session.snapshot().usage, usage(30, 10));
    let id = session.id().to_owned();
    drop(session);
    let session = kept.open(&id, world.setup()).await;
    assert_eq!(session.snapshot().usage, usage(30, 10));
}

// --- Accounts ---

struct Key(&'static str);

impl KeySource for Key {
    fn fetch(&self) -> BoxFuture<'_, Result<Credential, String>> {
        Box::pin(async { Ok(Credential::new(self.0.to_owned())) })
    }
}

/// A provider at which the key `full` has reached its limit.
struct LimitedKeyProvider {
    asked: Mutex<Vec<&'static str>>,
}

impl Provider for LimitedKeyProvider {
    fn name(&self) -> &str {
        "limited"
    }

    fn stream(
        &self,
        _: &Request,
        credential: Option<&Credential>,
    ) -> BoxStream<'static, Result<Delta, Box<Failure>>> {
        let full = Credential::new("full".to_owned());
        let is_full = credential.is_some_and(|credential| credential.is_same(&full));
        let key = if is_full { "full" } else { "free" };
        self.asked.lock().unwrap().push(key);
        let message = "You have hit your usage limit. Try again in 2 hours.";
        let items = if is_full {
            vec![Err(Box::new(Failure::http("limited", 429, message, START)))]
        } else {
            vec![text("Hello"), Ok(Delta::Stopped(StopReason::EndTurn))]
        };
        stream::iter(items).boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn a_usage_limit_switches_the_account_without_a_wait() {
    let world = Fixture::new([answers("unused")]);
    let provider = Arc::new(LimitedKeyProvider {
        asked: Mutex::default(),
    });
    let knowledge = SharedState::process_local(Arc::clone(&world.clock));
    let account = |(name, key): (&str, &'static str)| Account {
        name: name.to_owned(),
        source: Arc::new(Key(key)),
        max_in_flight: None,
    };
    let list = [("first", "full"), ("second", "free")].map(account);
    let accounts = Accounts::new(list.into(), knowledge.clone(), Arc::clone(&world.clock));
    let setup = Setup {
        provider: Arc::clone(&provider) as Arc<dyn Provider>,
        accounts: Some(Arc::new(accounts)),
        shared_state: Some(knowledge),
        ..world.setup()
    };
    let kept = TestJournal::new();
    let session = kept.begin(setup).await;
    let heard = Listener::new(&session);
    let ended = session.prompt("hi".into()).await.unwrap();
    assert_eq!(
        (ended.seal, world.elapsed()),
        (TurnStatus::Completed, Duration::ZERO)
    );
    assert_eq!(
        (heard.retries(), heard.ends()),
        (vec![(1, 0)], vec![(true, 1, None)])
    );
    assert_eq!(*provider.asked.lock().unwrap(), ["full", "free"]);
    let entries = kept.entries(session.id()).await;
    let left = |entry: &Entry| matches!(entry, Entry::Switched { left: Some(left), .. } if left == "first");
    assert_eq!(entries.iter().filter(|entry| left(entry)).count(), 1);
}

// --- The order of events ---

#[tokio::test(start_paused = true)]
async fn the_events_of_a_prompt_come_in_order() {
    let world = Fixture::new([fails(overloaded()), answers("Hello")]);
    let session = world.session();
    let heard = Listener::new(&session);
    session.prompt("hi".into()).await.unwrap();
    let expected = [
        "start",
        "input",
        "attempt_started",
        "retry_scheduled",
        "attempt_started",
        "text_delta",
        "step_complete",
        "retry_ended",
        "done",
        "sealed",
    ];
    assert_eq!(heard.kinds(), expected);
}

#[tokio::test(start_paused = true)]
async fn the_events_of_a_prompt_with_a_tool_call_come_in_order() {
    let world = Fixture::new([
        calls(&[("c1", "read")]),
        fails(overloaded()),
        answers("done"),
    ]);
    let session = world.session();
    let heard = Listener::new(&session);
    session.prompt("hi".into()).await.unwrap();
    let expected = [
        "start",
        "input",
        "attempt_started",
        "tool_call",
        "step_complete",
        "tool_started",
        "tool_result",
        "attempt_started",
        "retry_scheduled",
        "attempt_started",
        "text_delta",
        "step_complete",
        "retry_ended",
        "done",
        "sealed",
    ];
    assert_eq!(heard.kinds(), expected);
}

#[tokio::test(start_paused = true)]
async fn the_events_of_several_prompts_are_numbered_without_gaps() {
    let world = Fixture::new([fails(overloaded()), answers("one"), answers("two")]);
    let session = world.session();
    let heard = Listener::new(&session);
    session.prompt("hi".into()).await.unwrap();
    session.prompt("hi".into()).await.unwrap();
    let events = heard.events();
    let numbers: Vec<u64> = events.iter().map(|event| event.seq).collect();
    assert_eq!(numbers, (1..=events.len() as u64).collect::<Vec<_>>());
    assert_eq!(session.snapshot().last_seq, events.len() as u64);
    assert!(events.iter().all(|event| event.session_id == session.id()));
}
