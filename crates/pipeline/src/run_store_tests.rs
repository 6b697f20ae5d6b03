use super::super::entry::{Entry, Outcome, RunParameters};
use super::*;
use crate::run_store::mailbox::{Mailbox, RunRequest};
use outlast_kernel::Timestamp;
use outlast_store::journal::{NewSession, RawEntry, SessionLock};
use std::fs;
use std::time::Duration;
use tempfile::TempDir;

const START: Timestamp = Timestamp::from_millis(1_800_000_000_000);
const FIRST: &str = "01900000-0000-7000-8000-000000000001";
const SECOND: &str = "01900000-0000-7000-8000-000000000002";

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// Writes entries of a run into the folder, and holds its lock.
async fn begin(folder: &Path, id: &str, entries: &[Entry]) -> (Journal, SessionLock) {
    let runs = Journal::open(&folder.join(RUNS)).unwrap().journal;
    let new = NewSession {
        id: id.to_owned(),
        directory: "/project".to_owned(),
        title: "implement".to_owned(),
        now: START,
    };
    let hold = runs.create(new).await.unwrap();
    let line = |entry: &Entry| RawEntry {
        turn: 1,
        kind: entry.kind().to_owned(),
        time: START,
        body: serde_json::to_string(entry).unwrap(),
    };
    let lines = entries.iter().map(line).collect();
    runs.append(&hold, lines).await.unwrap();
    (runs, hold)
}

async fn write(folder: &Path, id: &str, entries: &[Entry]) {
    let (runs, hold) = begin(folder, id, entries).await;
    runs.release(hold).await.unwrap();
}

fn started() -> Entry {
    Entry::RunStarted(Box::default())
}

fn gate(step: &str, message: Option<&str>) -> [Entry; 2] {
    let (step, visit) = (step.to_owned(), 1);
    let opened = Entry::GateOpened {
        step: step.clone(),
        visit,
        message: message.map(str::to_owned),
        choices: ["y: Go on", "n: Stop"].map(str::to_owned).to_vec(),
        until: START + Duration::from_secs(60),
    };
    [Entry::StepStarted { step, visit }, opened]
}

fn at_gates() -> Vec<Entry> {
    let gates = [
        gate("ship", Some("Ship it?")),
        gate("name", Some("Name it?")),
        gate("cool", None),
    ];
    std::iter::once(started())
        .chain(gates.into_iter().flatten())
        .collect()
}

fn requests(folder: &Path) -> Vec<RunRequest> {
    let letters = Mailbox::new(&folder.join(MAIL)).take(FIRST).unwrap();
    letters.into_iter().map(Result::unwrap).collect()
}

#[tokio::test]
async fn reading_creates_no_files_and_later_run_is_found() {
    let folder = folder();
    let home = RunStore::new(folder.path());
    assert!(home.all().await.unwrap().is_empty());
    let missing = home.find("0190").await.unwrap_err();
    assert_eq!(missing.to_string(), "there is no run 0190");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    write(folder.path(), FIRST, &[started()]).await;
    let found = home.find("0190").await.unwrap();
    assert_eq!(found.id, FIRST);
    assert_eq!(home.status(&found).await.unwrap(), RunStatus::Unfinished);
}

#[tokio::test]
async fn replaced_database_file_is_read() {
    let folder = folder();
    let home = RunStore::new(folder.path());
    write(folder.path(), FIRST, &[started()]).await;
    assert_eq!(home.all().await.unwrap()[0].id, FIRST);
    for file in [RUNS, "runs.db-wal", "runs.db-shm"] {
        fs::remove_file(folder.path().join(file)).ok();
    }
    assert!(home.all().await.unwrap().is_empty());
    write(folder.path(), SECOND, &[started()]).await;
    assert_eq!(home.all().await.unwrap()[0].id, SECOND);
}

#[tokio::test]
async fn damaged_database_is_named_and_left_unchanged() {
    let folder = folder();
    let (file, rubbish) = (folder.path().join(RUNS), "this is no database ".repeat(500));
    fs::write(&file, &rubbish).unwrap();
    let error = RunStore::new(folder.path()).all().await.unwrap_err();
    assert!(matches!(error, Error::Unreadable { .. }), "{error:?}");
    let said = format!("the runs in {} cannot be read", file.display());
    assert!(error.to_string().starts_with(&said), "{error}");
    assert_eq!(fs::read_to_string(&file).unwrap(), rubbish);
}

#[tokio::test]
async fn valid_run_requests_are_posted() {
    let folder = folder();
    let home = RunStore::new(folder.path());
    let (_runs, _hold) = begin(folder.path(), FIRST, &at_gates()).await;
    let told = RunRequestReceipt {
        id: FIRST.to_owned(),
        is_at_work: true,
    };
    let answered = home.answer("0190", Some("ship"), Some("n")).await.unwrap();
    assert_eq!(answered, told);
    assert_eq!(home.retry_now(FIRST, Some("cool")).await.unwrap(), told);
    assert_eq!(home.cancel(FIRST).await.unwrap(), told);
    let text = |text: &str| Some(text.to_owned());
    let expected = [
        RunRequest::Answer {
            step: text("ship"),
            choice: text("n"),
        },
        RunRequest::RetryNow { step: text("cool") },
        RunRequest::Cancel {},
    ];
    assert_eq!(requests(folder.path()), expected);
}

#[tokio::test]
async fn invalid_run_requests_are_refused() {
    let folder = folder();
    let home = RunStore::new(folder.path());
    write(folder.path(), FIRST, &at_gates()).await;
    let over = Entry::RunEnded {
        outcome: Outcome::Failed,
        reason: None,
    };
    write(folder.path(), SECOND, &[started(), over]).await;
    let long = "a\u{1b}[31m".repeat(1000);
    let refused = [
        home.answer(FIRST, None, None).await,
        home.answer(FIRST, Some("cool"), None).await,
        home.answer(FIRST, Some("ship"), Some("x")).await,
        home.answer(FIRST, Some("ship"), Some("y: Go on")).await,
        home.retry_now(FIRST, Some("plan")).await,
        home.cancel(SECOND).await,
        home.cancel("0190").await,
        home.cancel("").await,
    ];
    let said: Vec<String> = refused
        .into_iter()
        .map(|told| told.unwrap_err().to_string())
        .collect();
    let expected = [
        "several steps ask; name one of: name, ship",
        "step cool asks nothing",
        "`x` is no answer to ship; there are: y: Go on, n: Stop",
        "`y: Go on` is no answer to ship; there are: y: Go on, n: Stop",
        "step plan is not under way",
        "run 01900000-0000-7000-8000-000000000002 is over",
        "2 runs begin with `0190`; give more of the name",
        "the name of a run is empty",
    ];
    assert_eq!(said, expected);
    let repeated = home.retry_now(FIRST, Some(&long)).await.unwrap_err();
    let repeated = repeated.to_string();
    assert!(
        repeated.len() < 100 && !repeated.contains('\u{1b}'),
        "{repeated:?}"
    );
    assert!(!folder.path().join(MAIL).exists());
    // No process is there to receive the request; the next one does.
    let told = home.answer(FIRST, Some("ship"), None).await.unwrap();
    assert!(!told.is_at_work);
    assert_eq!(requests(folder.path()).len(), 1);
}

#[tokio::test]
async fn steps_without_pipeline_are_in_start_order() {
    let visited = |step: &str| Entry::StepStarted {
        step: step.to_owned(),
        visit: 1,
    };
    let begun = RunParameters {
        source: "no pipeline".to_owned(),
        ..RunParameters::default()
    };
    let mut run = Run::default();
    run.apply(START, &Entry::RunStarted(Box::new(begun)));
    run.apply(START + Duration::from_secs(1), &visited("b"));
    run.apply(START + Duration::from_secs(2), &visited("c"));
    run.apply(START + Duration::from_secs(3), &visited("a"));
    assert!(run_view::parse_pipeline(&run).is_none());
    let steps = run_view::steps_by_start(&run, &[]);
    let ids: Vec<&str> = steps.into_iter().map(|(id, _)| id.as_str()).collect();
    assert_eq!(ids, ["b", "c", "a"]);
}
