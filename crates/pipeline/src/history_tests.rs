use super::super::entry::{NextAction, Outcome, Problem, RunParameters};
use super::*;
use outlast_dialect::Message;
use outlast_engine::journal::Spent;
use outlast_kernel::budget::Cost;
use outlast_kernel::event::Usage;
use outlast_kernel::failure::{ClassifiedFailure, Failure};
use outlast_kernel::verdict::Cause;
use outlast_store::journal::{NewSession, RawEntry};
use std::time::Duration;

const START: Timestamp = Timestamp::from_millis(1_800_000_000_000);
const RUN: &str = "run";
const SESSION: &str = "session";

fn at(seconds: u64) -> Timestamp {
    START + Duration::from_secs(seconds)
}

/// Two journals in a folder of their own.
struct TestJournals {
    runs: Journal,
    steps: Journal,
    _folder: tempfile::TempDir,
}

impl TestJournals {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let open = |name| Journal::open(&folder.path().join(name)).unwrap().journal;
        Self {
            runs: open("runs.db"),
            steps: open("steps.db"),
            _folder: folder,
        }
    }
}

async fn write(journal: &Journal, id: &str, lines: Vec<(u64, &str, String)>) {
    let new = NewSession {
        id: id.to_owned(),
        directory: "/".to_owned(),
        title: "a".to_owned(),
        now: START,
    };
    let hold = journal.create(new).await.unwrap();
    let line = |(seconds, kind, body): (u64, &str, String)| RawEntry {
        turn: 1,
        kind: kind.to_owned(),
        time: at(seconds),
        body,
    };
    let lines = lines.into_iter().map(line).collect();
    journal.append(&hold, lines).await.unwrap();
    journal.release(hold).await.unwrap();
}

async fn write_run(home: &TestJournals, entries: &[(u64, Entry)]) {
    let line = |(time, entry): &(u64, Entry)| {
        let body = serde_json::to_string(entry).unwrap();
        (*time, entry.kind(), body)
    };
    write(&home.runs, RUN, entries.iter().map(line).collect()).await;
}

async fn write_session(home: &TestJournals, entries: &[(u64, journal::Entry)]) {
    let line = |(time, entry): &(u64, journal::Entry)| {
        let body = serde_json::to_string(entry).unwrap();
        (*time, entry.kind(), body)
    };
    write(&home.steps, SESSION, entries.iter().map(line).collect()).await;
}

fn started() -> Entry {
    Entry::RunStarted(Box::new(RunParameters {
        name: "a".to_owned(),
        ..RunParameters::default()
    }))
}

fn attempt(number: u32) -> Entry {
    Entry::AttemptStarted {
        step: "plan".to_owned(),
        visit: 1,
        attempt: number,
        instead: None,
        session: Some(SESSION.to_owned()),
    }
}

fn ended(number: u32, problem: Option<Problem>, next: NextAction) -> Entry {
    Entry::AttemptEnded {
        step: "plan".to_owned(),
        visit: 1,
        attempt: number,
        usage: Usage::default(),
        cost: Cost(7),
        problem,
        next,
        warnings: Vec::new(),
    }
}

fn scheduled(since: u64, until: u64) -> journal::Entry {
    journal::Entry::WaitScheduled {
        since: at(since),
        until: at(until),
        cause: Cause::Overloaded,
        spent: Spent::default(),
    }
}

fn wait_ended() -> journal::Entry {
    let spent = Spent::default();
    journal::Entry::WaitEnded { spent }
}

fn attempt_failed(message: &str) -> journal::Entry {
    let failure = Failure::http("mock", 529, message, START);
    journal::Entry::AttemptFailed {
        attempt: 1,
        judged: Some(ClassifiedFailure::clone(&ClassifiedFailure::new(failure))),
        message: Message::user(""),
        usage: Usage::default(),
        kept: false,
        place: None,
    }
}

/// The entries of a run with one step, whose second attempt succeeds.
fn entries() -> Vec<(u64, Entry)> {
    let problem = Problem::new(Cause::RateLimited, "slow down");
    let wait = NextAction::Wait {
        since: at(20),
        until: at(30),
    };
    let step = "plan".to_owned();
    vec![
        (0, started()),
        (
            1,
            Entry::StepStarted {
                step: step.clone(),
                visit: 1,
            },
        ),
        (1, attempt(1)),
        (20, ended(1, Some(problem), wait)),
        (30, Entry::WaitEnded { step: step.clone() }),
        (30, attempt(2)),
        (60, ended(2, None, NextAction::Finish)),
        (
            60,
            Entry::StepEnded {
                step,
                visit: 1,
                outcome: Outcome::Completed,
                artifacts: BTreeMap::new(),
                context: std::collections::BTreeMap::new(),
                fails_run: false,
                reason: None,
            },
        ),
        (
            60,
            Entry::RunEnded {
                outcome: Outcome::Completed,
                reason: None,
            },
        ),
    ]
}

#[tokio::test]
async fn run_is_rebuilt_from_its_entries() {
    let home = TestJournals::new();
    write_run(&home, &entries()).await;
    let (run, read) = read(&home.runs, None, RUN).await.unwrap();
    let expected: Vec<Entry> = entries().into_iter().map(|(_, entry)| entry).collect();
    let numbers: Vec<u64> = read.iter().map(|(seq, _, _)| *seq).collect();
    let read: Vec<Entry> = read.into_iter().map(|(_, _, entry)| entry).collect();
    assert_eq!(read, expected);
    assert_eq!(numbers, (1..=9).collect::<Vec<u64>>());
    assert_eq!(
        (run.started, run.last_changed, run.cost),
        (at(0), at(60), Cost(14))
    );
    let later = read_after(&home.runs, RUN, 8).await.unwrap();
    assert_eq!(later.len(), 1);
}

#[tokio::test]
async fn session_waits_are_assigned_to_their_attempts() {
    let home = TestJournals::new();
    write_run(&home, &entries()).await;
    let session = [
        (2, scheduled(2, 5)),
        (9, wait_ended()),
        // The wait was cut short.
        (10, scheduled(10, 19)),
        (12, wait_ended()),
        // The end of this wait was never recorded.
        (40, scheduled(40, 45)),
        (46, scheduled(46, 50)),
        (51, wait_ended()),
    ];
    write_session(&home, &session).await;
    let (run, _) = read(&home.runs, Some(&home.steps), RUN).await.unwrap();
    let attempts = &run.steps["plan"].visits[0].attempts;
    let waits = |index: usize| -> Vec<(Timestamp, Option<Timestamp>)> {
        let waits = &attempts[index].waits;
        waits.iter().map(|wait| (wait.since, wait.ended)).collect()
    };
    let first = [
        (at(2), Some(at(5))),
        (at(10), Some(at(12))),
        (at(20), Some(at(30))),
    ];
    assert_eq!(waits(0), first);
    assert_eq!(waits(1), [(at(40), None), (at(46), Some(at(50)))]);
    assert_eq!(attempts[1].waits[0].cause, Some(Cause::Overloaded));
}

#[tokio::test]
async fn missing_session_leaves_waits_of_run_intact() {
    let home = TestJournals::new();
    write_run(&home, &entries()).await;
    let (run, _) = read(&home.runs, Some(&home.steps), RUN).await.unwrap();
    assert_eq!(run.steps["plan"].visits[0].attempts[0].waits.len(), 1);
}

#[tokio::test]
async fn many_entries_are_read_page_by_page() {
    let home = TestJournals::new();
    let resumed = |time| (time, Entry::RunResumed {});
    let many: Vec<(u64, Entry)> = std::iter::once((0, started()))
        .chain((1..1200).map(resumed))
        .collect();
    write_run(&home, &many).await;
    let (run, entries) = read(&home.runs, None, RUN).await.unwrap();
    assert_eq!((entries.len(), run.resumed_at.len()), (1200, 1199));
}

#[tokio::test]
async fn entry_of_later_version_is_named_in_error() {
    let home = TestJournals::new();
    let first = serde_json::to_string(&started()).unwrap();
    let later = r#"{"type":"teleported","step":"plan"}"#.to_owned();
    write(
        &home.runs,
        RUN,
        vec![(0, "prompt", first), (1, "happened", later)],
    )
    .await;
    let error = read(&home.runs, None, RUN).await.unwrap_err().to_string();
    let expected = "entry 2 of run run cannot be read, perhaps a later version wrote it: unknown variant `teleported`";
    assert!(error.starts_with(expected), "{error}");
}

#[tokio::test]
async fn current_wait_is_the_unfinished_wait() {
    let home = TestJournals::new();
    let found = current_wait(&home.steps, SESSION).await.unwrap();
    assert!(found.is_none());
    let session = [
        (2, scheduled(2, 5)),
        (5, wait_ended()),
        (6, attempt_failed("come back later")),
        (6, scheduled(6, 9)),
    ];
    write_session(&home, &session).await;
    let found = current_wait(&home.steps, SESSION).await.unwrap().unwrap();
    assert_eq!(found.until, at(9));
    assert_eq!(found.message.as_deref(), Some("come back later"));
}

#[tokio::test]
async fn current_wait_ignores_finished_wait() {
    let home = TestJournals::new();
    write_session(&home, &[(2, scheduled(2, 5)), (5, wait_ended())]).await;
    let found = current_wait(&home.steps, SESSION).await.unwrap();
    assert!(found.is_none(), "{found:?}");
}
