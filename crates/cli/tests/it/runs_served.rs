//! Runs as a server starts and reads them: processes of the real binary, observed through their
//! files.

use crate::mock_server::wait_for;
use crate::run_driver::{FILE, signal};
use crate::support::Outlast;
use outlast_pipeline::run_store::RunStore;
use outlast_pipeline::run_view::{RunStatus, RunStepPhase, RunView};
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};
use tokio::runtime::Runtime;

fn show(outlast: &Outlast, id: &str) -> RunView {
    let runs = RunStore::new(&outlast.home());
    Runtime::new().unwrap().block_on(runs.view(id)).unwrap()
}

/// Starts a run as a server does, and reads its id.
fn begin(outlast: &Outlast, source: &str) -> (Child, String) {
    outlast.write(FILE, source);
    let mut command = outlast.with_path(&["run", "--detached", "--input=name=world", FILE]);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    stdout.read_line(&mut line).unwrap();
    if line.is_empty() {
        let mut stderr = child.stderr.take().unwrap();
        stderr.read_to_string(&mut line).unwrap();
        panic!("{line}");
    }
    // The process that started it goes away.
    drop((stdout, child.stderr.take()));
    (child, line.trim_end().to_owned())
}

const SLOW: &str = "inputs: {name: }
steps:
  - {id: wait, command: 'until test -e go; do sleep 0.05; done; echo waited'}
  - {id: write, needs: [wait], inputs: {name: inputs.name}, command: 'echo $INPUT_NAME > written'}
";

#[test]
fn detached_run_outlives_its_server() {
    let outlast = Outlast::in_real_time();
    let (mut child, id) = begin(&outlast, SLOW);
    // The run is in the journal before its id is printed.
    let view = show(&outlast, &id);
    assert_eq!((view.state, view.steps.len()), (RunStatus::Running, 2));
    #[cfg(target_os = "linux")]
    {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
        let (_, fields) = stat.rsplit_once(") ").unwrap();
        let session = fields.split(' ').nth(3).unwrap();
        assert_eq!(session, child.id().to_string(), "a session of its own");
    }
    outlast.write("go", "");
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(outlast.notes("written"), ["world"]);
    assert_eq!(show(&outlast, &id).state, RunStatus::Completed);
}

#[test]
fn killed_run_is_shown_as_unfinished() {
    let outlast = Outlast::in_real_time();
    let (mut child, id) = begin(&outlast, SLOW);
    wait_for("the first step", || {
        show(&outlast, &id).steps[0].phase == RunStepPhase::Working
    });
    signal("-KILL", &child);
    child.wait().unwrap();
    // A child that is just being started holds the lock until its exec.
    wait_for("the end of the process", || {
        show(&outlast, &id).state != RunStatus::Running
    });
    let view = show(&outlast, &id);
    assert_eq!(
        (view.state, view.ended, view.outcome),
        (RunStatus::Unfinished, None, None)
    );
    let phases: Vec<RunStepPhase> = view.steps.iter().map(|step| step.phase).collect();
    assert_eq!(phases, [RunStepPhase::Interrupted, RunStepPhase::Idle]);
    assert_eq!(view.steps[0].attempts[0].ended, None);
    // The command that was left behind ends with the next process, or by itself.
    outlast.write("go", "");
    assert_eq!(outlast.resume(&[&id]).code, 0);
    assert_eq!(show(&outlast, &id).state, RunStatus::Completed);
}

#[test]
fn step_shows_wait_of_turn_until_retry_now() {
    let outlast = Outlast::in_real_time();
    let source = "inputs: {name: }
steps:
  - {id: ask, prompt: hi, model: 'overloaded:1', retry: {base_delay: 1h, max_delay: 1h}}
";
    let (mut child, id) = begin(&outlast, source);
    wait_for("the wait of its turn", || {
        show(&outlast, &id).steps[0].waiting.is_some()
    });
    let step = show(&outlast, &id).steps.remove(0);
    assert_eq!(step.phase, RunStepPhase::Waiting);
    let waiting = step.waiting.unwrap();
    let cause = waiting.cause.map(|cause| cause.to_string());
    assert_eq!(
        (cause.as_deref(), waiting.attempt),
        (Some("overloaded"), Some(2))
    );
    assert!(waiting.until.since(step.attempts[0].began).as_secs() > 3000);
    assert!(!waiting.message.unwrap().is_empty());
    let (runs, runtime) = (RunStore::new(&outlast.home()), Runtime::new().unwrap());
    // The wait begins a moment after its entry.
    wait_for("end of the run", || {
        runtime.block_on(runs.retry_now(&id, Some("ask"))).ok();
        child.try_wait().unwrap().is_some()
    });
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(show(&outlast, &id).state, RunStatus::Completed);
}

#[test]
fn invalid_detached_run_fails_and_is_not_recorded() {
    let outlast = Outlast::new();
    outlast.write(FILE, "steps: [{id: a, prompt: hi, provider: nobody}]\n");
    let ran = outlast.run(&["run", "--detached", FILE]);
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{}", ran.stderr);
    assert!(
        ran.stderr.starts_with("error: ") && ran.stderr.contains("nobody"),
        "{}",
        ran.stderr
    );
    assert_eq!(outlast.run(&["runs", "--json"]).stdout, "[]\n");
}
