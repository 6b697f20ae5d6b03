//! The ownership of a session, and the behaviour when its journal cannot be written.

use crate::support::{
    Fixture, Listener, TestJournal, answers, calls, describe_messages, fails, is_wait,
    on_other_thread, overloaded, run_until,
};
use futures_util::FutureExt;
use outlast_engine::journal::Entry;
use outlast_kernel::event::{Body, TurnStatus};
use outlast_session::Error;
use outlast_session::Session;
use outlast_store::journal::SessionLock;
use std::sync::{Arc, Mutex};

fn starts_tool(body: &Body) -> bool {
    matches!(body, Body::ToolStarted { .. })
}

// --- Owners ---

#[tokio::test(start_paused = true)]
async fn session_in_use_cannot_be_opened() {
    let (kept, world) = (TestJournal::new(), Fixture::new([answers("Hello")]));
    let session = kept.begin(world.setup()).await;
    let other = kept.open_again();
    let open = || Session::open(&other, session.id(), world.setup());
    let in_use = |opened| {
        matches!(
            opened,
            Err(Error::Store(outlast_store::Error::InUse { .. }))
        )
    };
    assert!(in_use(open().await));
    session.prompt("hi".into()).await.unwrap();
    assert!(in_use(open().await));
    let id = session.id().to_owned();
    drop(session);
    // All earlier requests to the store are done first.
    kept.journal.sessions().await.unwrap();
    let session = Session::open(&other, &id, world.setup()).await.unwrap();
    assert_eq!(describe_messages(&session.messages()), ["hi", "Hello"]);
}

/// Has another process take the session over at that event, believing its owner dead.
async fn lose_ownership_at(event: fn(&Body) -> bool) -> (TestJournal, Fixture, String) {
    let script = [
        fails(overloaded()),
        calls(&[("c1", "send"), ("c2", "read")]),
        answers("done"),
    ];
    let (kept, world) = (Arc::new(TestJournal::new()), Fixture::new(script));
    let session = kept.begin(world.setup()).await;
    let id = session.id().to_owned();
    let taken: Arc<Mutex<Option<(usize, SessionLock)>>> = Arc::default();
    let (take, provider) = (Arc::clone(&taken), Arc::clone(&world.provider));
    let other = Arc::clone(&kept);
    let heard = Listener::with(&session, move |session, body| {
        if event(body) {
            other.remove_locks();
            let hold = on_other_thread(other.open_again().claim(session.id())).unwrap();
            *take.lock().unwrap() = Some((provider.calls_made(), hold));
        }
    });
    let ended = session.prompt("hi".into()).await.unwrap();
    assert_eq!((ended.seal, ended.is_recorded), (TurnStatus::Error, false));
    let (calls_then, hold) = taken.lock().unwrap().take().unwrap();
    assert_eq!(world.provider.calls_made(), calls_then, "no call after it");
    let kinds = kept.kinds(&id).await;
    assert!(!kinds.contains(&"settled"), "{kinds:?}");
    drop((heard, session));
    kept.open_again().release(hold).await.unwrap();
    (Arc::into_inner(kept).unwrap(), world, id)
}

#[tokio::test(start_paused = true)]
async fn session_lost_during_wait_makes_no_further_call() {
    let (kept, world, id) = lose_ownership_at(is_wait).await;
    assert_eq!(world.provider.calls_made(), 1);
    let session = kept.open(&id, world.setup()).await;
    let ended = session.resume().await.unwrap();
    assert_eq!(
        (ended.seal, ended.is_recorded),
        (TurnStatus::Completed, true)
    );
    assert_eq!(world.provider.calls_made(), 3);
}

#[tokio::test(start_paused = true)]
async fn session_lost_during_tool_runs_no_further_tool() {
    let (kept, world, id) = lose_ownership_at(starts_tool).await;
    assert_eq!(world.tools.ran(), ["c1"], "the other was not run");
    let session = kept.open(&id, world.setup()).await;
    session.resume().await.unwrap();
    assert_eq!(world.tools.ran(), ["c1", "c2"]);
    let entries = kept.entries(&id).await;
    let interrupted = |entry: &Entry| matches!(entry, Entry::ToolFinished { id, is_error: true, .. } if id == "c1");
    assert_eq!(entries.iter().filter(|entry| interrupted(entry)).count(), 1);
}

// --- A journal that cannot be written ---

#[tokio::test(start_paused = true)]
async fn unrecorded_turn_is_written_with_the_next_one() {
    let script = [answers("one"), answers("two"), answers("three")];
    let (kept, world) = (TestJournal::new(), Fixture::new(script));
    let session = kept.begin(world.setup()).await;
    let heard = Listener::new(&session);
    let aside = kept.path().with_extension("aside");
    session.prompt("first".into()).await.unwrap();
    std::fs::rename(kept.path(), &aside).unwrap();
    let ended = session.prompt("second".into()).await.unwrap();
    assert_eq!(
        (ended.seal, ended.is_recorded),
        (TurnStatus::Completed, false)
    );
    assert_eq!(heard.count("unrecorded"), 1);
    assert_eq!(
        describe_messages(&session.messages()),
        ["first", "one", "second", "two"]
    );
    std::fs::rename(&aside, kept.path()).unwrap();
    let ended = session.prompt("third".into()).await.unwrap();
    assert_eq!(
        (ended.seal, ended.is_recorded),
        (TurnStatus::Completed, true)
    );
    let conversation = ["first", "one", "second", "two", "third", "three"];
    assert_eq!(describe_messages(&session.messages()), conversation);
    let id = session.id().to_owned();
    drop(session);
    let session = kept.open(&id, world.setup()).await;
    assert_eq!(describe_messages(&session.messages()), conversation);
    assert_eq!(kept.journal.summary(&id).await.unwrap().turns, 3);
}

/// Uses up the task's budget: until it is polled again, no resource that it awaits is ready, however fast it is.
fn spend_budget() {
    let mut units = (0..1000).map(|_| tokio::task::coop::consume_budget().now_or_never());
    assert!(units.any(|unit| unit.is_none()));
}

#[tokio::test(start_paused = true)]
async fn prompt_dropped_while_being_recorded_is_resumed() {
    let (kept, world) = (TestJournal::new(), Fixture::new([answers("Hello")]));
    world.provider.hang(true);
    let session = kept.begin(world.setup()).await;
    let reader = Listener::with(&session, |_, body| {
        if matches!(body, Body::Start { .. }) {
            spend_budget();
        }
    });
    let prompt = session.prompt("hi".into());
    // The future hands the prompt to the store and is dropped before the result arrives.
    assert!(prompt.now_or_never().is_none());
    drop(reader);
    let called = |body: &Body| matches!(body, Body::AttemptStarted { .. });
    run_until(&session, session.resume(), called).await;
    world.provider.hang(false);
    let resume_state = session.unfinished_turn().unwrap().resume_state;
    assert_eq!(
        resume_state.attempts, 1,
        "what follows is folded from its beginning"
    );
    let ended = session.resume().await.unwrap();
    assert_eq!(
        (ended.seal, ended.is_recorded),
        (TurnStatus::Completed, true)
    );
    assert_eq!(describe_messages(&session.messages()), ["hi", "Hello"]);
    let attempt = "attempt_started";
    let expected = ["prompt", attempt, attempt, "message", "settled"];
    assert_eq!(kept.kinds(session.id()).await, expected);
}
