//! Real runs of commands and gates, executed in the test; and runs whose entries are written by hand.

use super::*;
use crate::entry::{Entry, RunParameters};
use crate::file;
use crate::host::{Host, RunResources, SessionRequest};
use crate::run_store::mailbox::Mailbox;
use crate::run_store::{ARTIFACTS, Error, MAIL, RUNS, RunStore, SCRATCH, STEPS};
use crate::runner::{RunEvent, Runner};
use outlast_engine::clock::WallClock;
use outlast_engine::{BoxFuture, CancellationToken};
use outlast_kernel::Timestamp;
use outlast_session::Setup;
use outlast_store::journal::{NewSession, RawEntry, SessionLock};
use outlast_store::{Artifacts, Journal};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Limit after which a hanging test fails.
const HANG_TIMEOUT: Duration = Duration::from_secs(120);
const ID: &str = "01900000-0000-7000-8000-000000000001";
const SESSION: &str = "01900000-0000-7000-8000-00000000000a";

/// A host without models: these runs call none.
struct NoModels;

impl Host for NoModels {
    fn setup<'a>(&'a self, _: SessionRequest<'a>) -> BoxFuture<'a, Result<Setup, String>> {
        Box::pin(std::future::ready(Err("there is no model".to_owned())))
    }

    fn hidden_variables(&self) -> &[String] {
        &[]
    }
}

/// A temporary folder for the files of a test.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn runs(&self) -> RunStore {
        RunStore::new(self.path())
    }

    fn journal(&self, name: &str) -> Journal {
        Journal::open(&self.path().join(name)).unwrap().journal
    }

    fn means(&self) -> RunResources {
        RunResources {
            runs: self.journal(RUNS),
            sessions: self.journal(STEPS),
            artifacts: Arc::new(Artifacts::open(&self.path().join(ARTIFACTS)).unwrap()),
            mailbox: Arc::new(Mailbox::new(&self.path().join(MAIL))),
            host: Arc::new(NoModels),
            clock: Arc::new(WallClock::default()),
            scratch: self.path().join(SCRATCH),
        }
    }

    /// Starts a run, which continues in the background of the test.
    async fn begin(&self, source: &str) -> UnderWay {
        let place = self.path().join("build.yaml");
        let pipeline = file::read(source, &place).unwrap();
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let begun = RunParameters {
            name: pipeline.name.clone(),
            file: text(&place),
            folder: text(self.path()),
            source: source.to_owned(),
            ..RunParameters::default()
        };
        let mut runner = Runner::begin(self.means(), pipeline, begun).await.unwrap();
        let (sender, told) = mpsc::unbounded_channel();
        let id = runner.id().to_owned();
        let task = tokio::spawn(async move {
            let mut tell = move |said: RunEvent<'_>| {
                if let RunEvent::Entry { entry, .. } = said {
                    sender.send(entry.clone()).ok();
                }
            };
            let stop = CancellationToken::new();
            runner.run(&stop, &mut tell).await.unwrap();
            runner.close().await.unwrap();
        });
        UnderWay { id, told, task }
    }

    /// Creates a run with hand-written entries.
    async fn write(&self, entries: &[Value]) -> (Journal, SessionLock) {
        let runs = self.journal(RUNS);
        let hold = runs.create(new(ID)).await.unwrap();
        let line = |json: &Value| {
            let entry: Entry = serde_json::from_value(json.clone()).unwrap();
            line(entry.kind(), serde_json::to_string(&entry).unwrap())
        };
        let lines = entries.iter().map(line).collect();
        runs.append(&hold, lines).await.unwrap();
        (runs, hold)
    }
}

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_millis(1_800_000_000_000 + 1000 * seconds)
}

fn new(id: &str) -> NewSession {
    NewSession {
        id: id.to_owned(),
        directory: "/project".to_owned(),
        title: "build".to_owned(),
        now: at(0),
    }
}

fn line(kind: &str, body: String) -> RawEntry {
    RawEntry {
        turn: 1,
        kind: kind.to_owned(),
        time: at(1),
        body,
    }
}

/// A run in the background of the test.
struct UnderWay {
    id: String,
    told: mpsc::UnboundedReceiver<Entry>,
    task: JoinHandle<()>,
}

impl UnderWay {
    /// Waits until a matching entry is recorded.
    async fn until(&mut self, is_it: impl Fn(&Entry) -> bool) {
        let heard = async {
            while let Some(entry) = self.told.recv().await {
                if is_it(&entry) {
                    return;
                }
            }
            panic!("the run has ended");
        };
        let heard = tokio::time::timeout(HANG_TIMEOUT, heard);
        heard.await.unwrap();
    }

    async fn end(self) {
        let ended = tokio::time::timeout(HANG_TIMEOUT, self.task);
        ended.await.unwrap().unwrap();
    }
}

/// Serializes a view, without its times.
fn stable_json(view: &impl serde::Serialize) -> Value {
    let mut value = serde_json::to_value(view).unwrap();
    hide_times(&mut value);
    value
}

fn hide_times(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match name.as_str() {
                    "created" | "changed" | "began" | "ended" | "until" | "wait_until" => {
                        let time: Timestamp = value.as_str().unwrap().parse().unwrap();
                        assert!(time > Timestamp::default());
                        *value = json!("TIME");
                    }
                    _ => hide_times(value),
                }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(hide_times),
        _ => {}
    }
}

#[tokio::test]
async fn missing_runs_file_lists_nothing_and_is_not_created() {
    let folder = Folder::new();
    let runs = folder.runs();
    assert_eq!(runs.list(50).await.unwrap(), []);
    let missing = runs.view(ID).await.unwrap_err();
    assert!(matches!(missing, Error::NotFound { .. }), "{missing:?}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    // A run that starts later is found.
    let begun = folder.begin("steps: [{id: a, command: 'true'}]").await;
    let id = begun.id.clone();
    begun.end().await;
    let rows = runs.list(50).await.unwrap();
    assert_eq!(
        (rows[0].id.as_str(), rows[0].state),
        (id.as_str(), RunStatus::Completed)
    );
    assert_eq!(runs.list(0).await.unwrap(), []);
}

#[tokio::test]
async fn completed_run_shows_steps_and_their_needs() {
    let folder = Folder::new();
    let begun = folder
        .begin(
            "name: build
steps:
  - {id: fetch, command: echo made}
  - {id: fix, rework_only: true, command: 'true'}
  - {id: test, inputs: {made: fetch}, command: 'true', on_failure: rework, rework_step: fix}
  - id: again
    needs: [test]
    loop: {max_iterations: 1, steps: [{id: inner, command: 'true', edges: [{target: last, condition: outcome=failure}]}]}
  - {id: last, command: 'true'}
",
        )
        .await;
    let id = begun.id.clone();
    begun.end().await;
    let view = folder.runs().view(&id[..30]).await.unwrap();
    let shown = stable_json(&view);
    assert_eq!((view.id.as_str(), view.state), (&*id, RunStatus::Completed));
    assert_eq!(view.outcome, Some(RunOutcome::Completed));
    assert!(view.ended.is_some() && view.error.is_none());
    assert!(view.file.ends_with("build.yaml"), "{}", view.file);
    let attempt =
        json!({"number": 1, "visit": 1, "began": "TIME", "ended": "TIME", "outcome": "completed"});
    let expected = json!({"id": "test", "kind": "command", "needs": ["fetch"], "leads_to": ["fix"], "phase": "completed",
        "attempts": [attempt], "earlier_attempts": 0});
    assert_eq!(shown["steps"][2], expected);
    let step = |id: &str| view.steps.iter().find(|step| step.id == id).unwrap();
    assert_eq!(step("fix").phase, RunStepPhase::Idle);
    assert_eq!(step("again").kind, Some(RunStepKind::Loop));
    assert_eq!(step("inner").part_of.as_deref(), Some("again"));
    assert_eq!(step("inner").leads_to, ["last"]);
}

#[tokio::test]
async fn waiting_step_is_shown_and_can_be_retried_now() {
    let folder = Folder::new();
    let mut begun = folder
        .begin(
            "steps:
  - id: limited
    command: \"test $OUTLAST_ATTEMPT = 2 || { printf 'HTTP 429: \\\\033[31mslow down' >&2; exit 1; }\"
    retry: {base_delay: 1h, max_delay: 1h}
",
        )
        .await;
    begun
        .until(|entry| matches!(entry, Entry::AttemptEnded { .. }))
        .await;
    let runs = folder.runs();
    let view = runs.view(&begun.id).await.unwrap();
    assert_eq!((view.state, view.ended), (RunStatus::Running, None));
    let step = &view.steps[0];
    assert_eq!(step.phase, RunStepPhase::Waiting);
    let waiting = step.waiting.clone().unwrap();
    assert_eq!(Some(waiting.until), step.attempts[0].wait_until);
    assert!(waiting.until.since(view.created) > Duration::from_secs(3500));
    let shown = stable_json(step);
    assert_eq!(
        (
            &shown["waiting"]["cause"],
            &shown["waiting"]["attempt"],
            &shown["attempts"][0]["class"]
        ),
        (&json!("rate_limited"), &json!(2), &json!("transient"))
    );
    assert_eq!(step.attempts[0].outcome, Some(RunAttemptOutcome::Failed));
    let message = waiting.message.unwrap();
    assert!(
        message.contains("HTTP 429: slow down") && !message.contains('\u{1b}'),
        "{message:?}"
    );
    let unknown = runs.retry_now(&begun.id, Some("other")).await.unwrap_err();
    assert!(
        matches!(unknown, Error::StepNotActive { .. }),
        "{unknown:?}"
    );
    let heard = runs.retry_now(&begun.id, Some("limited")).await.unwrap();
    assert!(heard.is_at_work);
    let id = begun.id.clone();
    begun.end().await;
    let view = runs.view(&id).await.unwrap();
    assert_eq!(view.state, RunStatus::Completed);
    let step = &view.steps[0];
    assert_eq!((step.attempts.len(), &step.waiting), (2, &None));
    let over = runs.cancel(&id).await.unwrap_err();
    assert!(matches!(over, Error::RunEnded { .. }), "{over:?}");
}

#[tokio::test]
async fn gate_question_is_shown_and_accepts_a_choice() {
    let folder = Folder::new();
    let mut begun = folder
        .begin(
            "steps:
  - id: ship
    gate:
      type: approval
      message: \"Ship it?\\nReally?\"
      choices: [{key: a, label: This way}, {key: b, label: That way, target: that}]
  - {id: that, command: 'exit 3'}
  - {id: cool, gate: {type: timer, timeout: 1h}}
",
        )
        .await;
    for _ in 0..2 {
        begun
            .until(|entry| matches!(entry, Entry::GateOpened { .. }))
            .await;
    }
    let runs = folder.runs();
    let shown = stable_json(&runs.view(&begun.id).await.unwrap());
    let question = json!({"text": "Ship it?\nReally?",
        "choices": [{"key": "a", "label": "This way"}, {"key": "b", "label": "That way"}]});
    let expected = json!({"id": "ship", "kind": "gate", "needs": [], "leads_to": ["that"], "phase": "at_gate", "attempts": [],
        "earlier_attempts": 0, "waiting": {"until": "TIME"}, "question": question});
    assert_eq!(shown["steps"][0], expected);
    assert_eq!(shown["steps"][2]["waiting"], json!({"until": "TIME"}));
    assert_eq!(shown["steps"][2]["question"], Value::Null);
    let (id, step) = (begun.id.clone(), Some("ship"));
    let unknown = runs.answer(&id, step, Some("c")).await.unwrap_err();
    let Error::UnknownChoice { choices, .. } = unknown else {
        panic!("{unknown:?}");
    };
    assert_eq!(choices, ["a: This way", "b: That way"]);
    let nothing = runs.answer(&id, Some("cool"), None).await.unwrap_err();
    assert!(
        matches!(nothing, Error::NoOpenQuestion { .. }),
        "{nothing:?}"
    );
    assert!(runs.answer(&id, step, Some("b")).await.unwrap().is_at_work);
    begun.end().await;
    let view = runs.view(&id).await.unwrap();
    assert_eq!(
        (view.state, view.outcome),
        (RunStatus::Failed, Some(RunOutcome::Failed))
    );
    assert!(view.error.unwrap().starts_with("step `that`"));
    assert_eq!(view.steps[1].phase, RunStepPhase::Failed);
    assert_eq!(view.steps[0].question, None);
}

#[tokio::test]
async fn cancelled_run_is_shown_as_cancelled() {
    let folder = Folder::new();
    let mut begun = folder.begin("steps: [{id: slow, command: sleep 60}]").await;
    begun
        .until(|entry| matches!(entry, Entry::ProcessStarted { .. }))
        .await;
    let (runs, id) = (folder.runs(), begun.id.clone());
    assert_eq!(
        runs.view(&id).await.unwrap().steps[0].phase,
        RunStepPhase::Working
    );
    runs.cancel(&id).await.unwrap();
    begun.end().await;
    let view = runs.view(&id).await.unwrap();
    assert_eq!(
        (view.state, view.steps[0].phase),
        (RunStatus::Cancelled, RunStepPhase::Cancelled)
    );
    let attempt = view.steps[0].attempts[0].outcome;
    assert_eq!(attempt, Some(RunAttemptOutcome::Cancelled));
}

fn started(source: &str) -> Value {
    json!({"type": "run_started", "name": "build", "file": "/project/build.yaml", "folder": "/project", "source": source,
        "inputs": {}})
}

fn working(step: &str) -> [Value; 2] {
    [
        json!({"type": "step_started", "step": step, "visit": 1}),
        json!({"type": "attempt_started", "step": step, "visit": 1, "attempt": 1, "session": SESSION}),
    ]
}

#[tokio::test]
async fn wait_of_a_turn_is_shown_on_its_step() {
    let folder = Folder::new();
    let [visited, begun] = working("ask");
    let source = "steps: [{id: ask, prompt: hi}, {id: then, needs: [ask], command: 'true'}]";
    let (_runs, _hold) = folder.write(&[started(source), visited, begun]).await;
    let steps = folder.journal(STEPS);
    let hold = steps.create(new(SESSION)).await.unwrap();
    let wait = outlast_engine::journal::Entry::WaitScheduled {
        since: at(1),
        until: at(600),
        cause: outlast_kernel::verdict::Cause::Overloaded,
        spent: outlast_engine::journal::Spent::default(),
    };
    let body = serde_json::to_string(&wait).unwrap();
    let written = steps.append(&hold, vec![line(wait.kind(), body)]);
    written.await.unwrap();
    let view = folder.runs().view(ID).await.unwrap();
    let step = &view.steps[0];
    assert_eq!(step.phase, RunStepPhase::Waiting);
    let waiting = step.waiting.as_ref().unwrap();
    assert_eq!((waiting.until, waiting.attempt), (at(600), Some(1)));
    assert_eq!(stable_json(waiting)["cause"], "overloaded");
    assert_eq!(
        (view.steps[1].phase, view.steps[1].needs.as_slice()),
        (RunStepPhase::Idle, &["ask".to_owned()][..])
    );
}

#[tokio::test]
async fn unowned_run_is_unfinished_and_step_interrupted() {
    let folder = Folder::new();
    let [visited, begun] = working("ask");
    let (runs, hold) = folder
        .write(&[started("no pipeline"), visited, begun])
        .await;
    runs.release(hold).await.unwrap();
    let view = folder.runs().view(ID).await.unwrap();
    assert_eq!(view.state, RunStatus::Unfinished);
    assert_eq!(view.ended, None);
    let step = &view.steps[0];
    assert_eq!((step.phase, step.kind), (RunStepPhase::Interrupted, None));
    assert_eq!(step.attempts[0].outcome, None);
    let told = folder.runs().cancel(ID).await.unwrap();
    assert_eq!((told.id.as_str(), told.is_at_work), (ID, false));
}

#[tokio::test]
async fn shown_attempts_and_messages_are_bounded_and_clean() {
    let folder = Folder::new();
    let mut entries = vec![started("no pipeline")];
    entries.push(json!({"type": "step_started", "step": "a", "visit": 1}));
    let message = format!(
        "bearer abcdefghijklmnopqrstuvwxyz0123 \u{1b}[31m{}",
        "x".repeat(5000)
    );
    for attempt in 1..=50 {
        entries
            .push(json!({"type": "attempt_started", "step": "a", "visit": 1, "attempt": attempt}));
        entries.push(json!({"type": "attempt_ended", "step": "a", "visit": 1, "attempt": attempt, "next": {"do": "again"},
            "problem": {"class": "contract_failure", "cause": "schema_mismatch", "message": message}}));
    }
    let (_runs, _hold) = folder.write(&entries).await;
    let view = folder.runs().view(ID).await.unwrap();
    let step = &view.steps[0];
    assert_eq!((step.attempts.len(), step.earlier_attempts), (20, 30));
    assert_eq!(step.attempts[19].number, 50);
    let message = step.attempts[0].message.as_ref().unwrap();
    assert!(
        message.len() <= 400 && message.starts_with("bearer [secret] xxx"),
        "{message}"
    );
}

#[tokio::test]
async fn damaged_runs_or_steps_file_is_an_error() {
    let folder = Folder::new();
    let damage = |name: &str| {
        let rubbish = "no database ".repeat(1000);
        std::fs::write(folder.path().join(name), rubbish).unwrap();
    };
    damage(RUNS);
    let error = folder.runs().list(10).await.unwrap_err();
    assert!(matches!(error, Error::Unreadable { .. }), "{error:?}");
    std::fs::remove_file(folder.path().join(RUNS)).unwrap();
    // The list needs only the intact file, so it still works.
    damage(STEPS);
    let [visited, begun] = working("ask");
    let (_runs, _hold) = folder.write(&[started(""), visited, begun]).await;
    assert_eq!(folder.runs().list(10).await.unwrap().len(), 1);
    let error = folder.runs().view(ID).await.unwrap_err();
    assert!(
        error.to_string().contains("steps.db cannot be read"),
        "{error}"
    );
}

#[cfg(feature = "schema")]
#[test]
fn every_schema_definition_is_described() {
    let schema = serde_json::to_value(schemars::schema_for!(RunView)).unwrap();
    let definitions = schema["$defs"].as_object().unwrap();
    for (name, definition) in definitions {
        assert!(definition["description"].is_string(), "{name}");
    }
    let step = definitions["RunStep"]["required"].as_array().unwrap();
    assert!(step.contains(&json!("phase")) && !step.contains(&json!("question")));
}
