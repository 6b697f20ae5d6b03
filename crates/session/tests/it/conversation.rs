//! The driver of a session: which prompt starts a run, what is queued, what an abort ends, and what readers see.

use crate::support::{
    Call, Fixture, Item, START, TestJournal, answers, calls, fails, hangs, overloaded, text,
};
use outlast_dialect::{Message, Role};
use outlast_engine::compaction::{Compactor, Job, Outcome, Size};
use outlast_engine::{BoxFuture, Clock};
use outlast_kernel::event::CompactionReason;
use outlast_kernel::event::{Body, Event, TurnStatus};
use outlast_kernel::failure::{ClassifiedFailure, Failure};
use outlast_session::event_log::EventLog;
use outlast_session::{
    Accepted, Conversation, Delivery, DrainMode, Error, Options, PromptSettings, QueueKind,
    Rejected, RunOutcome, Session, Started, Update,
};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;

use Delivery::{FollowUp, IfIdle, NextTurn, Steer};

fn options() -> Options {
    Options::new(PromptSettings::default)
}

fn start(session: &Arc<Session>) -> Conversation {
    Conversation::start(Arc::clone(session), options())
}

fn new(calls: impl IntoIterator<Item = Call>) -> (Fixture, Conversation) {
    let world = Fixture::new(calls);
    let conversation = start(&world.session());
    (world, conversation)
}

fn refused() -> Call {
    fails(Failure::http("scripted", 400, "no", START))
}

/// Streams a little, then hangs.
fn stalls() -> Call {
    hangs(vec![text("so far")])
}

fn started(accepted: Result<Accepted, Rejected>) -> Started {
    match accepted.unwrap() {
        Accepted::Started(started) => started,
        Accepted::Queued => panic!("it was queued"),
    }
}

async fn prompt(conversation: &Conversation, text: &str, delivery: Delivery) -> Accepted {
    let accepted = conversation.prompt(Message::user(text), delivery);
    accepted.await.unwrap()
}

fn users(session: &Session) -> Vec<String> {
    let messages = session.messages().into_iter();
    let users = messages.filter(|message| message.role == Role::User);
    users.map(|message| message.text()).collect()
}

fn seal(outcome: &RunOutcome) -> Option<TurnStatus> {
    outcome.turn.as_ref().map(|turn| turn.seal)
}

/// Records what listeners hear, in words: the types of the events, and the ends of runs.
struct Updates(
    Arc<Mutex<Vec<String>>>,
    #[expect(dead_code, reason = "it listens")] outlast_session::Subscription,
);

impl Updates {
    fn of(conversation: &Conversation) -> Self {
        let words: Arc<Mutex<Vec<String>>> = Arc::default();
        let heard = Arc::clone(&words);
        let listening = conversation.session().subscribe_to_updates(move |update| {
            heard.lock().unwrap().push(match update {
                Update::Event(event) => event.body.kind().to_owned(),
                Update::RunEnded(outcome) if outcome.aborted => "run aborted".to_owned(),
                Update::RunEnded(_) => "run ended".to_owned(),
            });
        });
        Self(words, listening)
    }

    fn ends(&self) -> Vec<String> {
        let heard = self.0.lock().unwrap();
        heard
            .iter()
            .filter(|it| it.starts_with("run"))
            .cloned()
            .collect()
    }

    fn last(&self) -> String {
        self.0.lock().unwrap().last().cloned().unwrap()
    }
}

/// Waits until the session has announced such an event.
async fn until(conversation: &Conversation, is_it: impl Fn(&Body) -> bool) -> Event {
    let mut events = conversation.events(Some(0));
    loop {
        let event = events.next().await.unwrap().unwrap();
        if is_it(&event.body) {
            return event;
        }
    }
}

fn is_delta(body: &Body) -> bool {
    matches!(body, Body::TextDelta { .. })
}

fn is_wait(body: &Body) -> bool {
    matches!(body, Body::RetryScheduled { .. })
}

fn is_tool(body: &Body) -> bool {
    matches!(body, Body::ToolStarted { .. })
}

// --- Prompts ---

#[tokio::test(start_paused = true)]
async fn prompt_is_accepted_before_its_input_and_settles() {
    let (_world, conversation) = new([answers("yes")]);
    let heard = Updates::of(&conversation);
    let (log, at_reply) = (Arc::clone(conversation.log()), Arc::new(Mutex::new(None)));
    let said = Arc::clone(&at_reply);
    let reply = Box::new(move |accepted| *said.lock().unwrap() = Some((accepted, log.newest())));
    let command = outlast_session::Command::Prompt(Message::user("hi"), IfIdle, reply);
    conversation.submit(command, conversation.epoch()).await;
    let status = conversation.status().borrow().clone();
    assert_eq!(status.runs_begun, 1);
    let outcome = conversation.settled().await;
    assert_eq!(
        (seal(&outcome), outcome.aborted),
        (Some(TurnStatus::Completed), false)
    );
    let (accepted, newest) = at_reply.lock().unwrap().take().unwrap();
    let started = started(accepted);
    let events = conversation.log().since(0, usize::MAX).unwrap();
    let input = events
        .iter()
        .position(|it| matches!(it.body, Body::Input { .. }))
        .unwrap();
    assert_eq!(newest, events[input].seq - 1);
    assert_eq!(
        (started.after, &started.turn_id),
        (0, &events[input].turn_id)
    );
    assert!(events[input - 1].seq > started.after);
    assert_eq!(heard.last(), "run ended");
}

#[tokio::test(start_paused = true)]
async fn prompt_during_turn_is_delivered_as_asked() {
    let (world, conversation) = new([calls(&[("c1", "slow")]), answers("done")]);
    prompt(&conversation, "one", IfIdle).await;
    until(&conversation, is_tool).await;
    let busy = conversation.prompt(Message::user("no"), IfIdle).await;
    assert!(matches!(busy, Err(Rejected::Busy)), "{busy:?}");
    assert!(matches!(conversation.resume().await, Err(Rejected::Busy)));
    let refused = conversation.compact(None).await;
    assert!(
        matches!(refused, Err(Rejected::Session(Error::Busy))),
        "{refused:?}"
    );
    for (text, delivery) in [("after", FollowUp), ("next", NextTurn), ("with it", Steer)] {
        assert_eq!(
            prompt(&conversation, text, delivery).await,
            Accepted::Queued
        );
    }
    let heard = Updates::of(&conversation);
    conversation.settled().await;
    let texts: Vec<String> = users(conversation.session());
    let texts: Vec<&str> = texts
        .iter()
        .filter(|it| !it.is_empty())
        .map(String::as_str)
        .collect();
    assert_eq!(texts, ["one", "with it", "after", "next"]);
    assert_eq!(heard.ends(), ["run ended"], "all of it is one run");
    assert_eq!(world.provider.calls_made(), 4);
}

#[tokio::test(start_paused = true)]
async fn prompt_during_wait_runs_even_if_the_turn_fails() {
    let (_world, conversation) = new([fails(overloaded()), answers("yes")]);
    let heard = Updates::of(&conversation);
    prompt(&conversation, "one", IfIdle).await;
    until(&conversation, is_wait).await;
    assert_eq!(prompt(&conversation, "two", IfIdle).await, Accepted::Queued);
    assert!(conversation.abort_retry());
    conversation.run_ended().await;
    let outcome = conversation.settled().await;
    assert_eq!(seal(&outcome), Some(TurnStatus::Completed));
    assert_eq!(users(conversation.session()), ["one", "two"]);
    assert_eq!(heard.ends(), ["run ended", "run ended"]);
    assert!(!conversation.abort_retry() && !conversation.retry_now());
}

#[tokio::test(start_paused = true)]
async fn follow_up_of_a_failed_turn_stays_queued() {
    let (_world, conversation) = new([calls(&[("c1", "slow")]), refused(), answers("yes")]);
    prompt(&conversation, "one", IfIdle).await;
    until(&conversation, is_tool).await;
    prompt(&conversation, "two", FollowUp).await;
    assert_eq!(seal(&conversation.settled().await), Some(TurnStatus::Error));
    let queued = conversation.session().queued_messages();
    assert_eq!(queued.follow_up.len(), 1);
    // What is queued comes before the failed turn.
    started(conversation.resume().await);
    conversation.settled().await;
    assert_eq!(conversation.session().turn_count(), 2);
    assert!(conversation.clear_queue().await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn message_queued_while_idle_waits_for_the_next_prompt() {
    let (_world, conversation) = new([answers("yes")]);
    conversation.session().set_follow_up_mode(DrainMode::All);
    for kind in [QueueKind::Steering, QueueKind::FollowUp] {
        let queued = conversation.enqueue(kind, Message::user("later")).await;
        assert_eq!(queued.unwrap(), Accepted::Queued);
    }
    assert_eq!(conversation.log().newest(), 2, "only the queue has changed");
    started(conversation.prompt(Message::user("now"), FollowUp).await);
    conversation.settled().await;
    assert!(conversation.session().queued_messages().is_empty());
}

/// A client that has seen the end of a turn prompts at once, before the turn has given the session back.
#[tokio::test]
async fn prompt_right_after_the_end_of_a_turn_starts_a_run() {
    let (_world, conversation) = new([answers("yes")]);
    for number in 0..200 {
        let delivery = [IfIdle, NextTurn, Steer][number % 3];
        let mut events = conversation.events(None);
        started(conversation.prompt(Message::user("hi"), delivery).await);
        while !matches!(
            events.next().await.unwrap().unwrap().body,
            Body::Sealed { .. }
        ) {}
    }
    assert_eq!(conversation.session().turn_count(), 200);
}

/// A message is never left in the queue of a session whose run has ended well.
#[tokio::test]
async fn message_queued_at_any_moment_of_a_run_is_sent() {
    let (_world, conversation) = new([answers("yes")]);
    for kind in [QueueKind::Steering, QueueKind::FollowUp] {
        for yields in 0..60 {
            started(conversation.prompt(Message::user("one"), IfIdle).await);
            for _ in 0..yields {
                tokio::task::yield_now().await;
            }
            let was_running = conversation.is_running();
            let queued = conversation.enqueue(kind, Message::user("two")).await;
            assert_eq!(queued.unwrap(), Accepted::Queued);
            conversation.settled().await;
            let left = conversation.clear_queue().await.unwrap();
            assert!(left.is_empty() || !was_running, "{kind:?} after {yields}");
        }
    }
}

// --- Aborts ---

#[tokio::test(start_paused = true)]
async fn abort_ends_what_was_submitted_before_it_and_nothing_after() {
    let (_world, conversation) = new([stalls(), answers("yes")]);
    let heard = Updates::of(&conversation);
    prompt(&conversation, "one", IfIdle).await;
    until(&conversation, is_delta).await;
    prompt(&conversation, "later", FollowUp).await;
    let aborted = conversation.abort();
    let next = conversation.prompt(Message::user("two"), IfIdle);
    let ended = conversation.abort();
    let last = conversation.prompt(Message::user("three"), IfIdle);
    started(next.await);
    started(last.await);
    aborted.await;
    ended.await;
    let outcome = conversation.settled().await;
    assert_eq!(
        (seal(&outcome), outcome.aborted),
        (Some(TurnStatus::Completed), false)
    );
    let texts = users(conversation.session());
    assert_eq!(texts, ["one", "two", "three", "later"]);
    assert_eq!(heard.ends(), ["run aborted", "run aborted", "run ended"]);
}

#[tokio::test(start_paused = true)]
async fn abort_keeps_the_queue_and_ends_a_wait() {
    let (_world, conversation) = new([fails(overloaded()), answers("yes")]);
    prompt(&conversation, "one", IfIdle).await;
    until(&conversation, is_wait).await;
    prompt(&conversation, "two", NextTurn).await;
    conversation.abort().await;
    assert!(!conversation.is_running());
    let outcome = conversation.settled().await;
    assert_eq!(
        (seal(&outcome), outcome.aborted),
        (Some(TurnStatus::Aborted), true)
    );
    let cleared = conversation.clear_queue().await.unwrap();
    assert_eq!(cleared.follow_up.len(), 1);
    conversation.abort().await;
}

#[tokio::test(start_paused = true)]
async fn abort_settles_an_unfinished_turn() {
    let kept = TestJournal::new();
    let session = left_unfinished(&kept).await;
    let conversation = start(&session);
    conversation.abort().await;
    assert!(session.unfinished_turn().is_none());
    assert_eq!(session.last_seal(), Some(TurnStatus::Aborted));
}

// --- Unfinished turns ---

/// Returns a session with a turn that an earlier process left.
async fn left_unfinished(kept: &TestJournal) -> Arc<Session> {
    left_at(kept, stalls(), is_delta).await
}

async fn left_at(kept: &TestJournal, call: Call, at: fn(&Body) -> bool) -> Arc<Session> {
    let world = Fixture::new([call]);
    let session = kept.begin(world.setup()).await;
    let id = session.id().to_owned();
    let conversation = start(&session);
    prompt(&conversation, "left", IfIdle).await;
    until(&conversation, at).await;
    conversation.detach().await;
    assert!(session.unfinished_turn().is_some());
    conversation.close().await.unwrap();
    drop((conversation, session));
    let world = Fixture::new([answers("yes")]);
    kept.open(&id, world.setup()).await
}

#[tokio::test(start_paused = true)]
async fn prompt_after_unfinished_turn_resumes_it_first() {
    for delivery in [IfIdle, Steer, FollowUp, NextTurn] {
        let kept = TestJournal::new();
        let session = left_unfinished(&kept).await;
        let conversation = start(&session);
        assert_eq!(
            prompt(&conversation, "next", delivery).await,
            Accepted::Queued
        );
        conversation.settled().await;
        assert_eq!(users(&session), ["left", "next"], "{delivery:?}");
        assert!(session.queued_messages().is_empty());
    }
}

/// The run has begun, but its turn does not listen yet.
#[tokio::test(start_paused = true)]
async fn retry_now_reaches_a_resumed_turn_that_is_about_to_wait() {
    let kept = TestJournal::new();
    let session = left_at(&kept, fails(overloaded()), is_wait).await;
    let conversation = start(&session);
    let (driven, mut status) = (conversation.clone(), conversation.status());
    let retried = tokio::spawn(async move {
        status.wait_for(|status| status.is_running).await.unwrap();
        assert!(!driven.session().is_running());
        driven.retry_now();
    });
    tokio::task::yield_now().await;
    started(conversation.resume().await);
    retried.await.unwrap();
    conversation.settled().await;
    assert_eq!(session.clock().now(), START, "nothing has waited");
}

#[tokio::test(start_paused = true)]
async fn resume_continues_the_turn_then_retries_a_failed_one() {
    let kept = TestJournal::new();
    let session = left_unfinished(&kept).await;
    let conversation = start(&session);
    started(conversation.resume().await);
    let outcome = conversation.settled().await;
    assert_eq!(seal(&outcome), Some(TurnStatus::Completed));
    let nothing = conversation.resume().await;
    let expected = matches!(
        &nothing,
        Err(Rejected::Session(Error::NothingToResume { .. }))
    );
    assert!(expected, "{nothing:?}");
    assert!(!conversation.is_running());

    let (_world, conversation) = new([refused(), answers("yes")]);
    prompt(&conversation, "one", IfIdle).await;
    assert_eq!(seal(&conversation.settled().await), Some(TurnStatus::Error));
    started(conversation.retry().await);
    assert_eq!(
        seal(&conversation.settled().await),
        Some(TurnStatus::Completed)
    );
    assert_eq!(users(conversation.session()), ["one"]);
}

#[tokio::test(start_paused = true)]
async fn dropping_the_last_handle_leaves_the_turn() {
    let (_world, conversation) = new([stalls()]);
    let session = Arc::clone(conversation.session());
    prompt(&conversation, "one", IfIdle).await;
    let (mut events, mut status) = (conversation.events(Some(0)), conversation.status());
    drop(conversation);
    status.wait_for(|status| status.is_closed).await.unwrap();
    while events.next().await.is_some() {}
    assert!(session.unfinished_turn().is_some() && !session.is_running());
}

#[tokio::test(start_paused = true)]
async fn closed_conversation_rejects_commands() {
    let (_world, conversation) = new([answers("yes")]);
    conversation.close().await.unwrap();
    let refused = conversation.prompt(Message::user("hi"), IfIdle).await;
    assert!(matches!(refused, Err(Rejected::Closed)), "{refused:?}");
    conversation.abort().await;
    conversation.settled().await;
    conversation.run_ended().await;
}

/// A defect of a turn ends its run, but not the conversation.
#[tokio::test(start_paused = true)]
async fn panic_of_a_turn_ends_only_its_run() {
    let (_world, conversation) = new([answers("yes")]);
    let mut once = true;
    let _listening = conversation.session().subscribe(move |event| {
        let is_first =
            matches!(event.body, Body::AttemptStarted { .. }) && std::mem::take(&mut once);
        assert!(!is_first, "a defect");
    });
    let heard = Updates::of(&conversation);
    prompt(&conversation, "one", IfIdle).await;
    let outcome = conversation.settled().await;
    assert!(outcome.turn.is_none() && !outcome.aborted);
    assert_eq!(heard.last(), "run ended");
    assert_eq!(prompt(&conversation, "two", IfIdle).await, Accepted::Queued);
    conversation.settled().await;
    assert_eq!(users(conversation.session()), ["one", "two"]);
}

// --- Compactions ---

/// A compaction that takes an hour and changes nothing.
struct SlowCompactor(Arc<dyn Clock>);

impl Compactor for SlowCompactor {
    fn should_compact(&self, _: Size) -> bool {
        false
    }

    fn reason_for(
        &self,
        _: &ClassifiedFailure,
        _: &outlast_dialect::Request,
        _: Size,
    ) -> Option<CompactionReason> {
        None
    }

    fn compact<'a>(&'a self, job: Job<'a>) -> BoxFuture<'a, Outcome> {
        Box::pin(async move {
            let hour = self.0.now() + Duration::from_secs(3600);
            tokio::select! {
                () = job.cancel.cancelled() => {}
                () = self.0.sleep_until(hour) => {}
            }
            Outcome {
                result: Err("it stays as it is".to_owned()),
                usage: outlast_kernel::event::Usage::default(),
                budget: job.budget,
            }
        })
    }
}

fn compacts_slowly() -> Conversation {
    let world = Fixture::new([answers("yes")]);
    let setup = outlast_session::Setup {
        compaction: Some(Arc::new(SlowCompactor(Arc::clone(&world.clock)))),
        ..world.setup()
    };
    start(&Arc::new(Session::in_memory(setup)))
}

#[tokio::test(start_paused = true)]
async fn prompt_during_compaction_is_queued_and_runs_after_it() {
    for delivery in [IfIdle, Steer, FollowUp, NextTurn] {
        let conversation = compacts_slowly();
        let compacted = conversation.compact(None);
        assert_eq!(
            prompt(&conversation, "one", delivery).await,
            Accepted::Queued
        );
        let status = conversation.status().borrow().clone();
        assert_eq!((status.is_running, status.compactions), (false, 1));
        assert!(matches!(
            compacted.await,
            Err(Rejected::Session(Error::NotCompacted { .. }))
        ));
        conversation.settled().await;
        assert_eq!(users(conversation.session()), ["one"], "{delivery:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn abort_ends_compaction_and_the_prompts_behind_it() {
    let conversation = compacts_slowly();
    let compacted = conversation.compact(None);
    prompt(&conversation, "queued", IfIdle).await;
    let late = conversation.prompt(Message::user("late"), IfIdle);
    conversation.abort().await;
    assert!(compacted.await.is_err());
    // It begins nevertheless, and ends at once, or is queued: it is answered in any case.
    late.await.unwrap();
    let outcome = conversation.settled().await;
    assert_ne!(seal(&outcome), Some(TurnStatus::Completed));
    assert_eq!(
        conversation.session().clock().now(),
        START,
        "nothing has taken any time"
    );
}

#[tokio::test(start_paused = true)]
async fn close_ends_a_compaction() {
    let conversation = compacts_slowly();
    let compacted = conversation.compact(None);
    conversation
        .status()
        .wait_for(|status| status.compactions > 0)
        .await
        .unwrap();
    conversation.close().await.unwrap();
    assert!(matches!(
        compacted.await,
        Err(Rejected::Session(Error::NotCompacted { .. }))
    ));
}

// --- Readers ---

#[tokio::test(start_paused = true)]
async fn held_turn_goes_on_when_its_reader_does_or_at_an_abort() {
    for aborts in [false, true] {
        let world = Fixture::new([answers("yes")]);
        let (hold, held) = watch::channel(true);
        let options = Options {
            hold: Some(held),
            ..options()
        };
        let conversation = Conversation::start(world.session(), options);
        let accepted = conversation.prompt(Message::user("one"), IfIdle);
        tokio::time::sleep(Duration::from_secs(3600)).await;
        assert_eq!(
            (conversation.log().newest(), world.provider.calls_made()),
            (0, 0)
        );
        match aborts {
            true => conversation.abort().await,
            false => drop(hold.send(false)),
        }
        started(accepted.await);
        assert_eq!(conversation.settled().await.aborted, aborts);
    }
}

#[tokio::test(start_paused = true)]
async fn slow_reader_is_told_of_the_gap() {
    let pieces: Vec<Item> = (0..5000).map(|_| text("x")).collect();
    let (_world, conversation) = new([Call::from(pieces)]);
    let mut events = conversation.events(Some(0));
    prompt(&conversation, "one", IfIdle).await;
    conversation.settled().await;
    let gap = events.next().await.unwrap().unwrap_err();
    assert_eq!((gap.after, gap.newest), (0, conversation.log().newest()));
    assert!(gap.oldest > 1);
    conversation.session().rename("new").await.unwrap();
    let next = events.next().await.unwrap().unwrap();
    assert_eq!(next.seq, gap.newest + 1);
}

#[tokio::test(start_paused = true)]
async fn log_numbers_go_on_when_the_session_is_driven_again() {
    let world = Fixture::new([answers("yes")]);
    let (session, log) = (world.session(), Arc::new(EventLog::after(7)));
    for turns in 1..3 {
        let log = Arc::clone(&log);
        let conversation = Conversation::start(Arc::clone(&session), Options { log, ..options() });
        prompt(&conversation, "hi", IfIdle).await;
        conversation.settled().await;
        conversation.detach().await;
        assert_eq!(session.turn_count(), turns);
    }
    let events = log.since(7, usize::MAX).unwrap();
    let numbers: Vec<u64> = events.iter().map(|event| event.seq).collect();
    assert_eq!(numbers, (8..=log.newest()).collect::<Vec<u64>>());
}

#[tokio::test(start_paused = true)]
async fn model_choice_is_part_of_the_next_prompt_only() {
    let kept = TestJournal::new();
    let world = Fixture::new([answers("yes")]);
    let conversation = start(&kept.begin(world.setup()).await);
    conversation.choose_model(world.setup());
    for _ in 0..2 {
        prompt(&conversation, "hi", IfIdle).await;
        conversation.settled().await;
    }
    let entries = kept.entries(conversation.session().id()).await;
    let chosen = entries.iter().filter_map(|entry| match entry {
        outlast_engine::journal::Entry::Prompt { chosen, .. } => Some(*chosen),
        _ => None,
    });
    assert_eq!(chosen.collect::<Vec<bool>>(), [true, false]);
}

// --- Everything at once ---

/// The outcomes of a door's prompts.
#[derive(Default)]
struct Settled {
    started: Vec<(String, Started)>,
    queued: Vec<String>,
    rejected: Vec<String>,
}

/// Does something at random, and at random times, until it has prompted, aborted or resumed that many times.
async fn use_door(door: char, conversation: Conversation, actions: u32) -> (Settled, Vec<String>) {
    let mut random = fastrand::Rng::with_seed(u64::from(door));
    let (mut settled, mut cleared) = (Settled::default(), Vec::new());
    for number in 0..actions {
        if random.u8(0..3) > 0 {
            tokio::time::sleep(Duration::from_millis(random.u64(0..4000))).await;
        }
        match random.u8(0..10) {
            0..5 => {
                let text = format!("{door}{number}");
                let delivery = random.choice([IfIdle, Steer, FollowUp, NextTurn]).unwrap();
                match conversation.prompt(Message::user(&text), delivery).await {
                    Ok(Accepted::Started(started)) => settled.started.push((text, started)),
                    Ok(Accepted::Queued) => settled.queued.push(text),
                    Err(Rejected::Busy) => settled.rejected.push(text),
                    Err(error) => panic!("{error}"),
                }
            }
            5 | 6 => conversation.abort().await,
            7 => drop(conversation.resume().await),
            8 => drop((conversation.abort_retry(), conversation.retry_now())),
            _ if random.bool() => {
                let queued = conversation.clear_queue().await.unwrap();
                let queued = queued.steering.iter().chain(&queued.follow_up);
                cleared.extend(queued.map(Message::text));
            }
            _ => {
                // The turn may hang until another door aborts it.
                let settled = tokio::time::timeout(Duration::from_secs(9), conversation.settled());
                drop(settled.await);
            }
        }
    }
    (settled, cleared)
}

/// Returns random responses: quick, slow, failing, hanging, with and without tools.
fn random_calls() -> Vec<Call> {
    let mut random = fastrand::Rng::with_seed(7);
    let kinds = [
        answers("yes"),
        fails(overloaded()),
        refused(),
        stalls(),
        calls(&[("c", "read")]),
        calls(&[("c", "slow")]),
    ];
    (0..20_000)
        .map(|_| kinds[random.usize(0..kinds.len())].clone())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn random_use_settles_each_prompt_once_and_all_see_the_same() {
    let (_world, conversation) = new(random_calls());
    let heard = Updates::of(&conversation);
    let watchers: Vec<_> = (0..100)
        .map(|_| {
            let mut events = conversation.events(Some(0));
            tokio::spawn(async move {
                let mut seen = Vec::new();
                while let Some(event) = events.next().await {
                    let event = event.unwrap();
                    seen.push((event.seq, event.turn_id, event.body));
                }
                seen
            })
        })
        .collect();
    let doors = ['a', 'b', 'c'].map(|door| tokio::spawn(use_door(door, conversation.clone(), 400)));
    let (mut settled, mut cleared) = (Vec::new(), Vec::new());
    for door in doors {
        let (door, taken_back) = door.await.unwrap();
        settled.push(door);
        cleared.extend(taken_back);
    }
    conversation.abort().await;
    let left = conversation.clear_queue().await.unwrap();
    cleared.extend(
        left.steering
            .iter()
            .chain(&left.follow_up)
            .map(Message::text),
    );
    let session = Arc::clone(conversation.session());
    assert!(!session.is_running() && session.unfinished_turn().is_none());
    conversation.close().await.unwrap();

    // Every accepted message is in the conversation once, unless it was taken back.
    let mut said = users(&session);
    said.retain(|text| !text.is_empty());
    said.extend(cleared);
    said.sort();
    let accepted = |door: &Settled| {
        let started = door.started.iter().map(|(text, _)| text.clone());
        started
            .chain(door.queued.iter().cloned())
            .collect::<Vec<String>>()
    };
    let mut expected: Vec<String> = settled.iter().flat_map(accepted).collect();
    expected.sort();
    assert_eq!(said, expected);
    assert!(
        settled
            .iter()
            .all(|door| door.started.len() > 20 && !door.queued.is_empty())
    );

    // Every turn ends once, and each prompt has its own.
    let mut all = Vec::new();
    for watcher in watchers {
        all.push(watcher.await.unwrap());
    }
    assert!(all.iter().all(|seen| *seen == all[0]), "all see the same");
    let of = |is_it: fn(&Body) -> bool| {
        let turns = all[0].iter().filter(|(_, _, body)| is_it(body));
        turns
            .map(|(_, turn, _)| turn.clone())
            .collect::<Vec<String>>()
    };
    let begun = of(|body| matches!(body, Body::Start { .. }));
    assert_eq!(begun, of(|body| matches!(body, Body::Sealed { .. })));
    for (text, started) in settled.iter().flat_map(|door| &door.started) {
        let is_input = |(seq, turn, body): &&(u64, String, Body)| {
            let is_text = matches!(body, Body::Input { text: input } if input == text);
            is_text && *turn == started.turn_id && *seq > started.after
        };
        assert_eq!(all[0].iter().filter(is_input).count(), 1, "{text}");
    }
    assert!(heard.ends().len() <= begun.len());
}
