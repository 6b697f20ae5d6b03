//! A session that is copied, renamed, given another setup or closed.

use crate::session_compaction::{compacting, compactions, scripted};
use crate::support::{
    Fixture, Listener, TestJournal, answers, calls, describe_messages, fails, hangs,
    on_other_thread, overloaded, run_until, text,
};
use outlast_dialect::Message;
use outlast_kernel::budget::Limits;
use outlast_kernel::event::{Body, CompactionReason, TurnStatus};
use outlast_session::Session;
use outlast_session::{Error, PromptRequest, QueueKind, Queued};
use outlast_store::journal::StoredEntry;
use std::sync::{Arc, Mutex};
use std::time::Duration;

// --- Copies ---

/// Runs two turns, the second of which began with queued messages; a message is queued after it.
async fn two_turns(session: &Arc<Session>) {
    let once = Mutex::new(true);
    let _heard = Listener::with(session, move |session, body| {
        let is_text = matches!(body, Body::TextDelta { .. });
        if is_text && std::mem::take(&mut *once.lock().unwrap()) {
            let message = Message::user("and now");
            on_other_thread(session.enqueue(QueueKind::FollowUp, message)).unwrap();
        }
    });
    session.prompt("hi".into()).await.unwrap();
    session
        .prompt_queued(PromptRequest::default())
        .await
        .unwrap();
    let later = Message::user("later");
    session.enqueue(QueueKind::FollowUp, later).await.unwrap();
}

fn kinds(entries: &[StoredEntry]) -> Vec<(u64, &str)> {
    entries
        .iter()
        .map(|stored| (stored.seq, stored.entry.kind.as_str()))
        .collect()
}

fn world() -> Fixture {
    Fixture::new([
        answers("one"),
        calls(&[("c1", "read")]),
        answers("two"),
        answers("three"),
    ])
}

#[tokio::test(start_paused = true)]
async fn session_forks_only_at_prompt_boundaries() {
    let (kept, world) = (TestJournal::new(), world());
    for session in [kept.begin(world.setup()).await, world.session()] {
        let (is_kept, world) = (session.is_persistent(), self::world());
        session.change_setup(world.setup());
        two_turns(&session).await;
        let entries = session.entries().await.unwrap();
        let (before, whole) = (kinds(&entries), session.messages());
        let journal = is_kept.then_some(&kept.journal);
        let copy = async |before| session.fork(journal, before, world.setup()).await;
        let everything = copy(None).await.unwrap();
        assert_eq!(everything.messages(), whole);
        assert_ne!(everything.id(), session.id());
        let mut copied = Vec::new();
        for stored in &entries {
            if let Ok(copy) = copy(Some(stored.seq)).await {
                assert_eq!(copy.is_persistent(), is_kept);
                assert_eq!(copy.queued_messages(), Queued::default());
                let mut same = copy.entries().await.unwrap();
                same.retain(|stored| stored.entry.kind != "unqueued");
                assert!(entries.starts_with(&same));
                copied.push((
                    stored.entry.kind.clone(),
                    describe_messages(&copy.messages()),
                ));
            }
        }
        let one = || vec!["hi".to_owned(), "one".to_owned()];
        let two = || describe_messages(&whole);
        let expected = [
            ("prompt", vec![]),
            ("prompt", one()),
            ("said", one()),
            ("queued", two()),
        ];
        let expected = expected.map(|(kind, words)| (kind.to_owned(), words));
        assert_eq!(copied, expected, "{before:?}");
        assert_eq!(
            kinds(&session.entries().await.unwrap()),
            before,
            "it is as it was"
        );
        let waiting = session.queued_messages();
        assert_eq!(waiting.follow_up.len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn forked_session_runs_independently_and_survives_restart() {
    let (kept, world) = (TestJournal::new(), world());
    let session = kept.begin(world.setup()).await;
    two_turns(&session).await;
    let copy = session
        .fork(Some(&kept.journal), None, world.setup())
        .await
        .unwrap();
    copy.prompt("go on".into()).await.unwrap();
    let conversation = describe_messages(&copy.messages());
    assert_eq!(conversation[conversation.len() - 2..], ["go on", "three"]);
    let id = copy.id().to_owned();
    drop(copy);
    let copy = kept.open(&id, world.setup()).await;
    assert_eq!(describe_messages(&copy.messages()), conversation);
    assert_eq!(copy.title(), "a title");
    let summary = kept.journal.summary(&id).await.unwrap();
    assert_eq!((summary.turns, summary.directory.as_str()), (3, "/"));
    assert_eq!(summary.open_turn, None);
}

#[tokio::test(start_paused = true)]
async fn fork_includes_entries_not_yet_recorded() {
    let (kept, world) = (
        TestJournal::new(),
        Fixture::new([answers("one"), answers("two")]),
    );
    let session = kept.begin(world.setup()).await;
    session.prompt("first".into()).await.unwrap();
    let aside = kept.path().with_extension("aside");
    std::fs::rename(kept.path(), &aside).unwrap();
    session.prompt("second".into()).await.unwrap();
    std::fs::rename(&aside, kept.path()).unwrap();
    let copy = session
        .fork(Some(&kept.journal), None, world.setup())
        .await
        .unwrap();
    let id = copy.id().to_owned();
    drop(copy);
    let copy = kept.open(&id, world.setup()).await;
    let conversation = ["first", "one", "second", "two"];
    assert_eq!(describe_messages(&copy.messages()), conversation);
    assert_eq!(kept.journal.summary(&id).await.unwrap().turns, 2);
    session.close().await.unwrap();
    let session = kept.open(session.id(), world.setup()).await;
    assert_eq!(describe_messages(&session.messages()), conversation);
}

#[tokio::test(start_paused = true)]
async fn unfinished_turn_can_be_forked_only_up_to_its_prompt() {
    let (kept, world) = (
        TestJournal::new(),
        Fixture::new([answers("one"), hangs(vec![text("t")])]),
    );
    let session = kept.begin(world.setup()).await;
    session.prompt("hi".into()).await.unwrap();
    let running = session.prompt("and now".into());
    run_until(&session, running, |body| {
        matches!(body, Body::TextDelta { .. })
    })
    .await;
    let journal = Some(&kept.journal);
    let refused = session.fork(journal, None, world.setup()).await.err();
    let refused = refused.unwrap().to_string();
    assert!(
        refused.contains("its turn is not finished there"),
        "{refused}"
    );
    let entries = session.entries().await.unwrap();
    let last = entries.iter().rfind(|stored| stored.entry.kind == "prompt");
    let before = last.map(|stored| stored.seq);
    let copy = session.fork(journal, before, world.setup()).await.unwrap();
    assert_eq!(describe_messages(&copy.messages()), ["hi", "one"]);
}

#[tokio::test(start_paused = true)]
async fn session_forks_between_memory_and_journal() {
    let (kept, world) = (TestJournal::new(), world());
    let session = world.session();
    two_turns(&session).await;
    let copy = session
        .fork(Some(&kept.journal), None, world.setup())
        .await
        .unwrap();
    assert!(copy.is_persistent());
    let back = copy.fork(None, None, world.setup()).await.unwrap();
    assert!(!back.is_persistent());
    let id = copy.id().to_owned();
    drop(copy);
    let copy = kept.open(&id, world.setup()).await;
    assert_eq!(
        (copy.messages(), back.messages()),
        (session.messages(), session.messages())
    );
}

// --- Titles ---

#[tokio::test(start_paused = true)]
async fn a_session_can_be_renamed() {
    let (kept, world) = (TestJournal::new(), Fixture::new([answers("one")]));
    for session in [kept.begin(world.setup()).await, world.session()] {
        let heard = Listener::new(&session);
        session.rename("Another title").await.unwrap();
        assert_eq!(session.title(), "Another title");
        let title = "Another title".to_owned();
        assert_eq!(heard.bodies(), [Body::Renamed { title }]);
        if session.is_persistent() {
            let summary = kept.journal.summary(session.id()).await.unwrap();
            assert_eq!(summary.title, "Another title");
            std::fs::rename(kept.path(), kept.path().with_extension("aside")).unwrap();
            session.rename("A third one").await.unwrap_err();
            assert_eq!(
                (session.title().as_str(), heard.bodies().len()),
                ("Another title", 1)
            );
        }
    }
}

// --- Setup ---

#[tokio::test(start_paused = true)]
async fn changed_setup_applies_from_the_next_turn() {
    let old = Fixture::new([
        fails(overloaded()),
        calls(&[("c1", "read")]),
        answers("old"),
    ]);
    let new = Fixture::by(Arc::clone(&old.clock), [answers("new")]);
    let session = old.session();
    let setup = || {
        let mut setup = new.setup();
        setup.model = "another".to_owned();
        setup
    };
    let changed = setup();
    let heard = Listener::with(&session, move |session, body| {
        if matches!(body, Body::RetryScheduled { .. }) {
            session.change_setup(changed.clone());
            assert_eq!(session.snapshot().model, "model", "the one that is asked");
        }
    });
    session.prompt("hi".into()).await.unwrap();
    assert_eq!(
        (old.provider.calls_made(), new.provider.calls_made()),
        (3, 0)
    );
    assert_eq!(session.snapshot().model, "another", "the turn is over");
    assert_eq!(session.setup().model, "another");
    session.prompt("and now".into()).await.unwrap();
    let expected = ["hi", "read(c1)", "c1: c1 is done", "old", "and now"];
    assert_eq!(
        describe_messages(&new.provider.requests()[0].messages),
        expected
    );
    let start = |body: Body| match body {
        Body::Start { model, .. } => Some(model),
        _ => None,
    };
    let models: Vec<String> = heard.bodies().into_iter().filter_map(start).collect();
    assert_eq!(models, ["model", "another"]);
    session.change_setup(old.setup());
    assert_eq!(session.snapshot().model, "model", "nothing runs");
}

#[tokio::test(start_paused = true)]
async fn disabling_auto_compaction_leaves_manual_compaction() {
    const WINDOW: u64 = 10_000;
    for enabled in [true, false] {
        let routes = scripted("ok:long+ok:agent,times=always", "ok:agent,times=always");
        let routes = routes.with_windows([Some(WINDOW), Some(WINDOW)]);
        let session = Arc::new(Session::in_memory(compacting(&routes)));
        assert!(session.auto_compaction_enabled());
        session.set_auto_compaction_enabled(enabled);
        assert_eq!(session.auto_compaction_enabled(), enabled);
        let heard = Listener::new(&session);
        session.prompt("Say a lot".into()).await.unwrap();
        session
            .prompt("word ".repeat(4000).as_str().into())
            .await
            .unwrap();
        let reasons = || {
            compactions(&heard)
                .into_iter()
                .map(|said| said.0)
                .collect::<Vec<_>>()
        };
        match enabled {
            true => assert_eq!(reasons(), [CompactionReason::Threshold]),
            false => {
                assert_eq!(reasons(), []);
                session.compact(None, Limits::default()).await.unwrap();
                assert_eq!(reasons(), [CompactionReason::Manual]);
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn overflow_fails_turn_if_compaction_is_disabled_midway() {
    let long = "The first half of the work is done. ".repeat(400);
    for enabled in [true, false] {
        let script = "ok:agent,times=2+window:6000,of=agent";
        let routes = scripted(script, "ok:agent,times=always");
        let session = Arc::new(Session::in_memory(compacting(&routes)));
        for _ in 0..2 {
            session.prompt(long.as_str().into()).await.unwrap();
        }
        let heard = Listener::with(&session, move |session, body| {
            if matches!(body, Body::AttemptStarted { .. }) {
                session.set_auto_compaction_enabled(enabled);
            }
        });
        let ended = session.prompt("What is left?".into()).await.unwrap();
        let seal = if enabled {
            TurnStatus::Completed
        } else {
            TurnStatus::Error
        };
        assert_eq!(
            (ended.seal, compactions(&heard).len()),
            (seal, usize::from(enabled))
        );
    }
}

// --- Closing ---

#[tokio::test(start_paused = true)]
async fn closed_session_rejects_all_operations() {
    let (kept, world) = (TestJournal::new(), Fixture::new([answers("one")]));
    for session in [kept.begin(world.setup()).await, world.session()] {
        session.prompt("hi".into()).await.unwrap();
        session.close().await.unwrap();
        session.close().await.unwrap();
        let message = || Message::user("too late");
        let closed = |error: Option<Error>| assert!(matches!(error, Some(Error::Closed)));
        closed(session.prompt("too late".into()).await.err());
        closed(session.prompt_queued(PromptRequest::default()).await.err());
        closed(session.resume().await.err());
        closed(session.enqueue(QueueKind::Steering, message()).await.err());
        closed(session.add_note(message()).await.err());
        closed(session.compact(None, Limits::default()).await.err());
        closed(session.rename("a").await.err());
        closed(session.fork(None, None, world.setup()).await.err());
        assert_eq!(session.queued_messages(), Queued::default());
        assert_eq!(describe_messages(&session.messages()), ["hi", "one"]);
        if session.is_persistent() {
            let other = kept.open_again();
            Session::open(&other, session.id(), world.setup())
                .await
                .unwrap();
        }
    }
    assert_eq!(world.provider.calls_made(), 2);
}

#[tokio::test(start_paused = true)]
async fn closing_an_empty_session_deletes_it() {
    let (kept, world) = (TestJournal::new(), Fixture::new([answers("one")]));
    let (empty, used) = (
        kept.begin(world.setup()).await,
        kept.begin(world.setup()).await,
    );
    used.enqueue(QueueKind::FollowUp, Message::user("later"))
        .await
        .unwrap();
    empty.close().await.unwrap();
    used.close().await.unwrap();
    let left = kept.journal.sessions().await.unwrap();
    let left: Vec<&str> = left.iter().map(|summary| summary.id.as_str()).collect();
    assert_eq!(left, [used.id()]);
}

#[tokio::test(start_paused = true)]
async fn close_is_refused_while_a_turn_runs() {
    let (kept, world) = (
        TestJournal::new(),
        Fixture::new([fails(overloaded()), answers("one")]),
    );
    let session = kept.begin(world.setup()).await;
    assert!(!session.is_running());
    let close = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        (session.is_running(), session.close().await)
    };
    let (ended, (was_running, refused)) = tokio::join!(session.prompt("hi".into()), close);
    assert!(was_running && matches!(refused, Err(Error::Busy)));
    assert_eq!(ended.unwrap().seal, TurnStatus::Completed);
    session.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn close_can_be_repeated_after_a_write_failure() {
    let (kept, world) = (TestJournal::new(), Fixture::new([answers("one")]));
    let session = kept.begin(world.setup()).await;
    let aside = kept.path().with_extension("aside");
    std::fs::rename(kept.path(), &aside).unwrap();
    session.prompt("hi".into()).await.unwrap();
    session.close().await.unwrap_err();
    std::fs::rename(&aside, kept.path()).unwrap();
    session.close().await.unwrap();
    let session = kept.open(session.id(), world.setup()).await;
    assert_eq!(describe_messages(&session.messages()), ["hi", "one"]);
}
