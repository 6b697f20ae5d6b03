//! The controls of a session that runs or waits, and its snapshot.

use crate::support::{
    Fixture, Listener, START, answers, calls, describe_messages, fails, hangs, is_wait, overloaded,
    run_until, text,
};
use outlast_engine::CancellationToken;
use outlast_kernel::event::{Body, TurnStatus};
use outlast_kernel::policy::Policy;
use outlast_kernel::verdict::Cause;
use outlast_session::Session;
use outlast_session::{Error, GateHold, RetryStatus, Snapshot};
use std::sync::{Arc, Mutex};
use std::time::Duration;

// --- Cancelling ---

#[tokio::test(start_paused = true)]
async fn turn_aborted_before_resume_makes_no_call() {
    let world = Fixture::new([fails(overloaded()), answers("Hello")]);
    let session = world.session();
    run_until(&session, session.prompt("hi".into()), is_wait).await;
    let abort = CancellationToken::new();
    abort.cancel();
    let ended = session.resume_cancellable(abort).await.unwrap();
    assert_eq!(
        (ended.seal, world.elapsed()),
        (TurnStatus::Aborted, Duration::ZERO)
    );
    assert_eq!(world.provider.called_at(), [0]);
    assert!(session.unfinished_turn().is_none());
}

#[tokio::test(start_paused = true)]
async fn abort_retry_ends_the_wait_with_retry_cancelled() {
    let world = Fixture::new([fails(overloaded())]);
    let session = world.session();
    let heard = Listener::new(&session);
    let later = async {
        tokio::time::sleep(Duration::from_millis(3500)).await;
        session.abort_retry();
    };
    let (ended, ()) = tokio::join!(session.prompt("hi".into()), later);
    assert_eq!(ended.unwrap().seal, TurnStatus::Error);
    assert_eq!(world.elapsed(), Duration::from_millis(3500));
    let end = (false, 2, Some("Retry cancelled".to_owned()));
    assert_eq!(heard.ends(), [end]);
    let kinds = heard.kinds();
    let tail = &kinds[kinds.len() - 3..];
    assert_eq!(tail, ["retry_ended", "error", "sealed"]);
    assert!(!session.is_retrying());
    assert_eq!(world.provider.calls_made(), 2);
}

#[tokio::test(start_paused = true)]
async fn abort_cancels_the_retry_before_the_stream() {
    let world = Fixture::new([fails(overloaded())]);
    let session = world.session();
    let heard = Listener::with(&session, |session, body| {
        if is_wait(body) {
            session.abort();
        }
    });
    let ended = session.prompt("hi".into()).await.unwrap();
    assert_eq!(
        (ended.seal, world.elapsed()),
        (TurnStatus::Aborted, Duration::ZERO)
    );
    let kinds = heard.kinds();
    assert_eq!(kinds[kinds.len() - 2..], ["retry_ended", "sealed"]);
    let end = (false, 1, Some("Retry cancelled".to_owned()));
    assert_eq!((heard.ends(), heard.count("error")), (vec![end], 0));
    assert_eq!(world.provider.calls_made(), 1, "no stream was opened");
}

#[tokio::test(start_paused = true)]
async fn abort_during_retry_stream_cancels_the_chain() {
    let world = Fixture::new([fails(overloaded()), hangs(vec![text("Hel")])]);
    let session = world.session();
    let heard = Listener::with(&session, |session, body| {
        if matches!(body, Body::TextDelta { .. }) {
            session.abort();
        }
    });
    let ended = session.prompt("hi".into()).await.unwrap();
    assert_eq!(
        (ended.seal, ended.message.text().as_str()),
        (TurnStatus::Aborted, "Hel")
    );
    let end = (false, 1, Some("Retry cancelled".to_owned()));
    assert_eq!((heard.ends(), heard.count("error")), (vec![end], 0));
    assert_eq!(describe_messages(&session.messages()), ["hi"]);
}

#[tokio::test(start_paused = true)]
async fn an_abort_ends_an_eight_hour_wait_at_once() {
    let far = fails(overloaded().with_headers([("retry-after", "28800")]));
    let world = Fixture::new([far]);
    let overnight = Policy::named("overnight").unwrap();
    let session = Arc::new(Session::in_memory(world.setup_by(overnight)));
    let later = async {
        tokio::time::sleep(Duration::from_secs(10_000)).await;
        assert!(session.is_retrying());
        session.abort();
    };
    let (ended, ()) = tokio::join!(session.prompt("hi".into()), later);
    assert_eq!(ended.unwrap().seal, TurnStatus::Aborted);
    assert_eq!(world.elapsed(), Duration::from_secs(10_000));
}

#[tokio::test(start_paused = true)]
async fn aborted_turn_never_restarts_and_next_prompt_runs() {
    let world = Fixture::new([fails(overloaded()), answers("Hello")]);
    let session = world.session();
    let once = Mutex::new(true);
    let _heard = Listener::with(&session, move |session, body| {
        if is_wait(body) && std::mem::take(&mut *once.lock().unwrap()) {
            session.abort();
        }
    });
    session.prompt("hi".into()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(world.provider.calls_made(), 1);
    let ended = session.prompt("again".into()).await.unwrap();
    assert_eq!(ended.seal, TurnStatus::Completed);
    assert_eq!(
        describe_messages(&session.messages()),
        ["hi", "again", "Hello"]
    );
}

#[tokio::test(start_paused = true)]
async fn controls_of_an_idle_session_have_no_effect() {
    let world = Fixture::new([fails(overloaded()), answers("Hello")]);
    let session = world.session();
    session.abort();
    session.abort_retry();
    session.retry_now();
    let ended = session.prompt("hi".into()).await.unwrap();
    assert_eq!(
        (ended.seal, world.elapsed()),
        (TurnStatus::Completed, Duration::from_secs(2))
    );
}

// --- Retrying now, and switching retries off ---

#[tokio::test(start_paused = true)]
async fn retry_now_ends_one_wait_and_leaves_the_schedule_alone() {
    let failing = || fails(overloaded());
    let world = Fixture::new([failing(), failing(), answers("Hello")]);
    let session = world.session();
    let heard = Listener::with(&session, |session, body| {
        if matches!(body, Body::RetryScheduled { attempt: 1, .. }) {
            session.retry_now();
        }
    });
    session.prompt("hi".into()).await.unwrap();
    assert_eq!(heard.retries(), [(1, 2_000), (2, 4_000)]);
    assert_eq!(world.provider.called_at(), [0, 0, 4]);
    assert_eq!(heard.ends(), [(true, 2, None)]);
}

#[tokio::test(start_paused = true)]
async fn disabling_retries_applies_from_the_next_failure() {
    let world = Fixture::new([fails(overloaded())]);
    let session = world.session();
    let heard = Listener::with(&session, |session, body| {
        if is_wait(body) {
            session.set_auto_retry_enabled(false);
        }
    });
    session.prompt("hi".into()).await.unwrap();
    // The wait that had begun went on; the failure after it was not retried, and the chain is closed.
    assert_eq!(world.provider.called_at(), [0, 2]);
    assert_eq!(heard.retries(), [(1, 2_000)]);
    assert_eq!(heard.ends(), [(false, 1, Some("Overloaded".to_owned()))]);
    assert!(!session.auto_retry_enabled() && !session.snapshot().auto_retry_enabled);
    session.set_auto_retry_enabled(true);
    session.prompt("hi".into()).await.unwrap();
    assert_eq!(heard.retries(), [(1, 2_000), (1, 2_000)]);
}

#[tokio::test(start_paused = true)]
async fn enabling_retries_mid_turn_retries_the_next_failure() {
    let world = Fixture::new([
        calls(&[("c1", "read")]),
        fails(overloaded()),
        answers("done"),
    ]);
    let session = world.session();
    session.set_auto_retry_enabled(false);
    let heard = Listener::with(&session, |session, body| {
        if matches!(body, Body::ToolStarted { .. }) {
            session.set_auto_retry_enabled(true);
        }
    });
    let ended = session.prompt("hi".into()).await.unwrap();
    assert_eq!(
        (ended.seal, heard.retries()),
        (TurnStatus::Completed, vec![(1, 2_000)])
    );
}

// --- One turn at a time ---

#[tokio::test(start_paused = true)]
async fn a_second_prompt_is_refused_while_one_runs_or_waits() {
    let world = Fixture::new([fails(overloaded()), answers("Hello")]);
    let session = world.session();
    let second = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        session.prompt("me too".into()).await
    };
    let (first, second) = tokio::join!(session.prompt("hi".into()), second);
    assert_eq!(first.unwrap().seal, TurnStatus::Completed);
    assert!(matches!(second, Err(Error::Busy)));
    assert_eq!(describe_messages(&session.messages()), ["hi", "Hello"]);
}

#[tokio::test(start_paused = true)]
async fn retry_last_turn_sends_no_new_prompt() {
    let world = Fixture::new([fails(overloaded()), answers("Hello")]);
    let session = world.session();
    session.set_auto_retry_enabled(false);
    let nothing = session.retry_last_turn("unused".into()).await;
    assert!(matches!(nothing, Err(Error::NothingToResume { .. })));
    session.prompt("hi".into()).await.unwrap();
    let ended = session.retry_last_turn("unused".into()).await.unwrap();
    assert_eq!(ended.seal, TurnStatus::Completed);
    assert_eq!(
        describe_messages(&world.provider.requests()[1].messages),
        ["hi"]
    );
    assert_eq!(describe_messages(&session.messages()), ["hi", "Hello"]);
    let nothing = session.retry_last_turn("unused".into()).await;
    assert!(matches!(nothing, Err(Error::NothingToResume { .. })));
}

// --- Watching ---

#[tokio::test(start_paused = true)]
async fn snapshot_has_attempt_cause_and_wake_time() {
    let failing = || fails(overloaded());
    let world = Fixture::new([failing(), failing(), hangs(vec![text("Hel")])]);
    let session = world.session();
    let retry = |attempt, seconds: Option<u64>| {
        Some(RetryStatus {
            attempt,
            max_attempts: Some(3),
            cause: Cause::Overloaded,
            message: "Overloaded".to_owned(),
            wake_at: seconds.map(|seconds| START + Duration::from_secs(seconds)),
        })
    };
    let looks = async {
        for (attempt, expected) in [
            (1, retry(1, Some(2))),
            (1, retry(1, Some(2))),
            (2, retry(2, Some(6))),
            (2, retry(2, Some(6))),
        ] {
            tokio::time::sleep(Duration::from_millis(990)).await;
            let snapshot = session.snapshot();
            assert_eq!((snapshot.attempt, snapshot.retry), (attempt, expected));
            assert!(snapshot.turn_id.is_some());
        }
        tokio::time::sleep(Duration::from_secs(3)).await;
        let snapshot = session.snapshot();
        assert_eq!((snapshot.attempt, snapshot.retry), (3, retry(2, None)));
        session.abort();
    };
    let (ended, ()) = tokio::join!(session.prompt("hi".into()), looks);
    assert_eq!(ended.unwrap().seal, TurnStatus::Aborted);
    let Snapshot {
        turn_id,
        retry,
        gate_hold,
        ..
    } = session.snapshot();
    assert_eq!((turn_id, retry, gate_hold), (None, None, None::<GateHold>));
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_counts_the_calls_of_the_running_turn_only() {
    let world = Fixture::new([fails(overloaded()), answers("one"), answers("two")]);
    let session = world.session();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let notes = Arc::clone(&seen);
    let _heard = Listener::with(&session, move |session, body| {
        if matches!(body, Body::Start { .. } | Body::Done { .. }) {
            notes.lock().unwrap().push(session.snapshot().attempt);
        }
    });
    session.prompt("hi".into()).await.unwrap();
    session.prompt("hi".into()).await.unwrap();
    assert_eq!(*seen.lock().unwrap(), [0, 2, 0, 1]);
}

#[tokio::test(start_paused = true)]
async fn snapshot_plus_later_events_miss_nothing() {
    let world = Fixture::new([fails(overloaded()), answers("Hello")]);
    let session = world.session();
    let all = Listener::new(&session);
    let late = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        (session.snapshot().last_seq, Listener::new(&session))
    };
    let (_, (seen, late)) = tokio::join!(session.prompt("hi".into()), late);
    let rest = &all.events()[usize::try_from(seen).unwrap()..];
    assert_eq!(late.events(), rest);
}

#[tokio::test(start_paused = true)]
async fn dropped_subscription_receives_no_more_events() {
    let world = Fixture::new([answers("Hello")]);
    let session = world.session();
    let heard = Arc::new(Mutex::new(0));
    let count = Arc::clone(&heard);
    let subscription = session.subscribe(move |_| *count.lock().unwrap() += 1);
    session.prompt("hi".into()).await.unwrap();
    let before = *heard.lock().unwrap();
    drop(subscription);
    session.prompt("hi".into()).await.unwrap();
    assert!(before > 0);
    assert_eq!(*heard.lock().unwrap(), before);
}

#[tokio::test(start_paused = true)]
async fn a_listener_may_keep_the_subscription_of_another() {
    let world = Fixture::new([answers("Hello")]);
    let session = world.session();
    let inner = session.subscribe(|_| {});
    let outer = session.subscribe(move |_| {
        let _kept = &inner;
    });
    drop(outer);
    let ended = session.prompt("hi".into()).await.unwrap();
    assert_eq!(ended.seal, TurnStatus::Completed);
}
