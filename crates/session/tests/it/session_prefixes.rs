//! One turn, cut off after each of its entries, and resumed by another process.

use crate::support::{
    Call, Fixture, Listener, TestJournal, answers, calls, describe_messages, effect, fails,
    overloaded, text, tool_call_delta, usage, usage_delta,
};
use outlast_dialect::{Message, Part};
use outlast_engine::clock::TimerClock;
use outlast_engine::journal::Entry;
use outlast_engine::turn::CallProgress;
use outlast_kernel::Timestamp;
use outlast_kernel::event::{Body, StopReason, TurnStatus};
use outlast_session::{self as session, Error, State};
use outlast_store::journal::{Page, StoredEntry};
use std::sync::Arc;
use std::time::Duration;

const INTERRUPTED: &str = "it was interrupted by a restart and may have partly run, or may still be running; it was not run again";

/// Returns two failures, a step of three tools, one more failure, a step of one tool, and the final completion.
fn script() -> Vec<Call> {
    let failing = || vec![usage_delta(1, 0), Err(Box::new(overloaded()))].into();
    let step = |tools: &[(&str, &str)]| {
        let wanted = tools.iter().map(|(id, name)| tool_call_delta(id, name));
        let stopped = Ok(outlast_dialect::Delta::Stopped(StopReason::ToolUse));
        let items = [usage_delta(100, 10), text("Let me see.")]
            .into_iter()
            .chain(wanted);
        items.chain([stopped]).collect::<Vec<_>>().into()
    };
    vec![
        failing(),
        failing(),
        step(&[("c1", "read"), ("c2", "send"), ("c3", "write")]),
        failing(),
        step(&[("c4", "send")]),
        answers("done"),
    ]
}

/// Returns the entries of the whole turn as written, and the resulting conversation.
async fn whole_turn() -> (Vec<StoredEntry>, Vec<Message>) {
    let (kept, world) = (TestJournal::new(), Fixture::new(script()));
    let session = kept.begin(world.setup()).await;
    let ended = session.prompt("hi".into()).await.unwrap();
    assert_eq!(ended.seal, TurnStatus::Completed);
    let page = Page {
        after: 0,
        limit: 1000,
        kinds: None,
    };
    let stored = kept.journal.read(session.id(), page).await.unwrap();
    (stored, session.messages())
}

fn entries(stored: &[StoredEntry]) -> Vec<Entry> {
    stored
        .iter()
        .map(|line| session::parse_entry("s", line).unwrap())
        .collect()
}

/// A completion without calls is settled with its message, in one write: nothing comes between the two.
fn is_last_answer(entry: &Entry) -> bool {
    matches!(entry, Entry::Message { message, .. } if message.tool_calls().next().is_none())
}

/// Returns the ids of the calls that started, and of those that finished.
fn tools(entries: &[Entry]) -> (Vec<&str>, Vec<&str>) {
    let (mut started, mut finished) = (Vec::new(), Vec::new());
    for entry in entries {
        match entry {
            Entry::ToolStarted { id, .. } => started.push(id.as_str()),
            Entry::ToolFinished { id, .. } => finished.push(id.as_str()),
            _ => {}
        }
    }
    (started, finished)
}

fn attempts(entries: &[Entry]) -> Vec<u32> {
    let attempt = |entry: &Entry| match entry {
        Entry::AttemptStarted { attempt } => Some(*attempt),
        _ => None,
    };
    entries.iter().filter_map(attempt).collect()
}

/// Another process, which finds the entries that the first one has written.
struct RestartedProcess {
    kept: TestJournal,
    world: Fixture,
    before: Vec<Entry>,
    restarted: Timestamp,
}

impl RestartedProcess {
    async fn new(prefix: &[StoredEntry]) -> Self {
        let before = entries(prefix);
        let restarted = prefix.last().unwrap().entry.time + Duration::from_millis(500);
        let is_over =
            |entry: &&Entry| matches!(entry, Entry::AttemptFailed { .. } | Entry::Message { .. });
        let answered = before.iter().filter(is_over).count();
        let rest = script()
            .into_iter()
            .skip(answered)
            .chain([fails(overloaded())]);
        let world = Fixture::by(Arc::new(TimerClock::new(restarted)), rest);
        let kept = TestJournal::new();
        kept.write_down("s", prefix).await;
        Self {
            kept,
            world,
            before,
            restarted,
        }
    }

    /// Returns whether the call had begun when the process died and may not begin again.
    fn is_interrupted(&self, id: &str, name: &str) -> bool {
        let (started, finished) = tools(&self.before);
        started.contains(&id) && !finished.contains(&id) && !effect(name).may_repeat()
    }

    /// Returns the conversation of the whole turn, with the calls that could not be repeated.
    fn expected(&self, whole: &[Message]) -> Vec<Message> {
        let mut expected = whole.to_vec();
        for (id, name) in [("c2", "send"), ("c4", "send")] {
            if !self.is_interrupted(id, name) {
                continue;
            }
            for part in expected.iter_mut().flat_map(|message| &mut message.parts) {
                if let Part::ToolResult(result) = part
                    && result.id == id
                {
                    (result.output, result.is_error) = (INTERRUPTED.to_owned(), true);
                }
            }
        }
        expected
    }

    /// Returns the calls that are still to be run, in order.
    fn to_run(&self) -> Vec<&'static str> {
        let (_, finished) = tools(&self.before);
        let all = [
            ("c1", "read"),
            ("c2", "send"),
            ("c3", "write"),
            ("c4", "send"),
        ];
        let runs = |(id, name): &(&'static str, &str)| {
            !finished.contains(id) && !self.is_interrupted(id, name)
        };
        all.into_iter().filter(runs).map(|(id, _)| id).collect()
    }

    /// Resumes the turn, and compares the result.
    async fn check(&self, whole: &[Message]) {
        let session = self.kept.open("s", self.world.setup()).await;
        let heard = Listener::new(&session);
        let ended = session.resume().await.unwrap();
        assert_eq!(
            (ended.seal, ended.is_recorded),
            (TurnStatus::Completed, true)
        );
        assert_eq!(ended.usage, usage(203, 20), "what was used before counts");
        let expected = self.expected(whole);
        assert_eq!(
            describe_messages(&session.messages()),
            describe_messages(&expected)
        );
        assert_eq!(session.messages(), expected);
        assert_eq!(self.world.tools.ran(), self.to_run());
        self.check_wait(&heard);

        let all = self.kept.entries("s").await;
        let (before, after) = all.split_at(self.before.len());
        assert_eq!(before, self.before, "nothing that was written is changed");
        let settled = |entry: &&Entry| matches!(entry, Entry::Settled { .. });
        assert_eq!(after.iter().filter(settled).count(), 1);
        assert!(matches!(all.last(), Some(Entry::Settled { .. })));
        let attempts = attempts(&all);
        assert!(
            attempts.is_sorted_by(|one, next| one < next),
            "{attempts:?}"
        );
        drop(session);
        let session = self.kept.open("s", self.world.setup()).await;
        assert_eq!(session.messages(), expected, "it is folded as it was left");
    }

    /// Checks that an interrupted wait ends at its original time, and is announced with the remaining duration.
    fn check_wait(&self, heard: &Listener) {
        let Some(Entry::WaitScheduled { until, spent, .. }) = self.before.last() else {
            return;
        };
        let first = heard.bodies().into_iter().find_map(|body| match body {
            Body::RetryScheduled {
                attempt,
                delay_ms,
                retry_at,
                ..
            } => Some((attempt, delay_ms, retry_at)),
            _ => None,
        });
        let rest = u64::try_from(until.since(self.restarted).as_millis()).unwrap();
        assert_eq!(first, Some((spent.chain.retries(), rest, *until)));
        let called = self.world.provider.requests()[0].after;
        assert_eq!(crate::support::START + called, *until);
    }
}

#[tokio::test(start_paused = true)]
async fn turn_cut_after_any_entry_yields_same_conversation() {
    let (stored, whole) = whole_turn().await;
    assert!(stored.len() > 25, "{}", stored.len());
    let mut cuts = 0;
    for length in 1..stored.len() {
        let after = RestartedProcess::new(&stored[..length]).await;
        if is_last_answer(after.before.last().unwrap()) {
            continue;
        }
        after.check(&whole).await;
        cuts += 1;
    }
    assert_eq!(cuts, stored.len() - 2);
}

#[tokio::test(start_paused = true)]
async fn settled_turn_is_not_resumed() {
    let (stored, whole) = whole_turn().await;
    let after = RestartedProcess::new(&stored).await;
    let session = after.kept.open("s", after.world.setup()).await;
    assert!(matches!(
        session.resume().await,
        Err(Error::NothingToResume { .. })
    ));
    assert_eq!(session.messages(), whole);
    assert_eq!(after.world.provider.calls_made(), 0);
}

#[tokio::test(start_paused = true)]
async fn last_completion_is_written_with_the_settlement() {
    let (stored, _) = whole_turn().await;
    let all = entries(&stored);
    let [
        ..,
        answer,
        Entry::Settled {
            seal, usage: used, ..
        },
    ] = &all[..]
    else {
        panic!("{all:?}");
    };
    assert!(is_last_answer(answer));
    assert_eq!((*seal, *used), (TurnStatus::Completed, usage(203, 20)));
}

#[tokio::test(start_paused = true)]
async fn usage_and_progress_are_known_after_every_entry() {
    let (stored, _) = whole_turn().await;
    let all = entries(&stored);
    let mut used = 0;
    for length in 1..all.len() {
        let standing = State::from_entries(all[..length].to_vec());
        let Some(unfinished) = standing.unfinished else {
            panic!("settled after {length} entries");
        };
        let resume_state = unfinished.resume_state;
        let (started, finished) = tools(&all[..length]);
        for call in &resume_state.outstanding_calls {
            let id = call.call.id.as_str();
            let expected = match &call.progress {
                CallProgress::NotStarted => (false, false),
                CallProgress::Started(_) => (true, false),
                CallProgress::Finished(_) => (true, true),
            };
            assert_eq!((started.contains(&id), finished.contains(&id)), expected);
        }
        assert!(resume_state.usage.input >= used);
        used = resume_state.usage.input;
        assert_eq!(
            resume_state.attempts,
            attempts(&all[..length]).last().copied().unwrap_or(0)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn turn_with_tool_writes_expected_entries() {
    let (kept, world) = (
        TestJournal::new(),
        Fixture::new([calls(&[("c1", "read")]), answers("done")]),
    );
    let session = kept.begin(world.setup()).await;
    session.prompt("hi".into()).await.unwrap();
    let all = kept.entries(session.id()).await;
    let kinds: Vec<&str> = all.iter().map(Entry::kind).collect();
    let expected = [
        "prompt",
        "attempt_started",
        "message",
        "tool_started",
        "tool_finished",
        "attempt_started",
        "message",
        "settled",
    ];
    assert_eq!(kinds, expected);
    assert_eq!(State::from_entries(all).messages, session.messages());
}
