//! Shows a run in progress: its events, questions at gates, signals, and its outcome.

mod gate_input;

use crate::output::approval::TerminalApprover;
use crate::output::diagnostics;
use crate::output::run_view::{Painter, planned_steps, stderr_size};
use crate::output::watcher::TICK_INTERVAL;
use crate::output::{print, safe_json};
use crate::platform::exit::Exit;
use crate::platform::signals::{Signal, Signals};
use crate::print_diagnostic;
use anyhow::Context;
use gate_input::GateInput;
use outlast_engine::{CancellationToken, Clock};
use outlast_kernel::verdict::{Cause, Class};
use outlast_kernel::{Timestamp, text};
use outlast_pipeline::definition::{OUTPUT, OnFailure, Step, Work};
use outlast_pipeline::entry::{Entry, Outcome};
use outlast_pipeline::runner::{RunEvent, Runner};
use outlast_pipeline::state::{EndStatus, Phase};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::io::{IsTerminal, Write};
use std::sync::Arc;

/// The version of the JSON events of a run.
const VERSION: u32 = 1;

/// The output of a run in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OutputMode {
    /// Progress, for a person.
    Human,
    /// All events, as lines of JSON.
    Json,
    /// The id of the run, once it is in the journal. Its reader may be gone at any time.
    Id,
}

/// How watching ended.
enum WatchEnd {
    Ended(EndStatus),
    /// The run stays unfinished; another process can resume it.
    Detached(Exit),
}

/// Runs a pipeline to its end, or until a signal stops it.
pub(super) async fn watch(
    mut runner: Runner,
    telling: OutputMode,
    clock: Arc<dyn Clock>,
    signals: Signals,
) -> anyhow::Result<Exit> {
    let id = runner.id().to_owned();
    let resumes = || format!("`outlast run --resume {id}` carries on where it stopped");
    let view = Arc::new(Mutex::new(RunOutput::new(&runner, telling)));
    let end = drive(&mut runner, &view, clock, signals).await;
    view.lock().painter.clear();
    match end.with_context(resumes)? {
        WatchEnd::Detached(exit) => {
            print_diagnostic(&format!("Stopped: {}.", resumes()));
            Ok(exit)
        }
        WatchEnd::Ended(ended) => {
            let exit = finish(&runner, &ended, telling)?;
            runner.close().await?;
            Ok(exit)
        }
    }
}

async fn drive(
    runner: &mut Runner,
    view: &Arc<Mutex<RunOutput>>,
    clock: Arc<dyn Clock>,
    mut signals: Signals,
) -> anyhow::Result<WatchEnd> {
    let stop = CancellationToken::new();
    let told = Arc::clone(view);
    let mut tell = move |said: RunEvent<'_>| told.lock().handle_event(&said);
    let mut ticks = tokio::time::interval(TICK_INTERVAL);
    let mut run = Box::pin(runner.run(&stop, &mut tell));
    loop {
        tokio::select! {
            ended = &mut run => return Ok(WatchEnd::Ended(ended?)),
            _ = ticks.tick() => {
                let mut view = view.lock();
                view.tick(clock.now());
                // Without a reader of the output, further calls would spend money for nothing.
                if view.lost_stdout.is_some() {
                    return Ok(WatchEnd::Detached(Exit::Failed));
                }
            }
            signal = signals.next() => match signal {
                Signal::Interrupt => stop.cancel(),
                signal => return Ok(WatchEnd::Detached(Exit::Signalled(signal))),
            },
        }
    }
}

/// Prints the outputs of the run and returns its exit code.
fn finish(runner: &Runner, ended: &EndStatus, telling: OutputMode) -> anyhow::Result<Exit> {
    if telling == OutputMode::Human {
        print_outputs(runner)?;
    }
    Ok(match ended.outcome {
        Outcome::Completed | Outcome::Continued | Outcome::Skipped => Exit::Success,
        Outcome::Failed if failed_on_budget(runner) => Exit::BudgetSpent,
        Outcome::Canceled if runner.is_past_deadline(ended.at) => Exit::BudgetSpent,
        Outcome::Failed => Exit::Failed,
        Outcome::Canceled => Exit::Signalled(Signal::Interrupt),
    })
}

/// Reports whether the failure was one that could have passed, but retries, tokens or money were used up.
fn failed_on_budget(runner: &Runner) -> bool {
    let run = runner.state();
    let failed = run
        .failed_step
        .as_ref()
        .and_then(|step| run.steps.get(step));
    let problem = failed.and_then(|step| step.attempt()?.problem.as_ref());
    problem.is_some_and(|problem| {
        problem.class == Class::Transient || problem.cause == Cause::CeilingReached
    })
}

struct RunOutput {
    painter: Painter<std::io::Stderr>,
    gate_input: Option<GateInput>,
    run_id: String,
    mode: OutputMode,
    lost_stdout: Option<std::io::Error>,
}

impl RunOutput {
    fn new(runner: &Runner, mode: OutputMode) -> Self {
        let stderr = std::io::stderr();
        let size = stderr.is_terminal().then_some(stderr_size as fn() -> _);
        let mut painter = Painter::new(stderr, size, runner.id());
        if diagnostics::is_quiet() || mode == OutputMode::Id {
            painter = painter.quiet();
        }
        painter.set_steps(planned_steps(runner.pipeline()));
        painter.set_run(runner.state());
        let is_attended = mode == OutputMode::Human && TerminalApprover::is_attended();
        Self {
            painter,
            gate_input: is_attended.then(|| GateInput::new(runner.request_sender())),
            run_id: runner.id().to_owned(),
            mode,
            lost_stdout: None,
        }
    }

    fn tick(&mut self, now: Timestamp) {
        let said = self.gate_input.as_ref().map(GateInput::take_messages);
        for line in said.unwrap_or_default() {
            self.painter.print(&line);
        }
        self.painter.tick(now);
    }

    fn handle_event(&mut self, said: &RunEvent<'_>) {
        match self.mode {
            OutputMode::Human => {}
            OutputMode::Json => return self.print_json(said),
            OutputMode::Id => return self.print_id(said),
        }
        match said {
            RunEvent::Entry { time, entry, .. } => {
                self.painter.entry(*time, entry);
                if let Some(answers) = &mut self.gate_input {
                    answers.handle_entry(entry);
                }
            }
            RunEvent::SessionEvent { step, time, body } => self.painter.event(step, body, *time),
        }
    }

    /// Prints the id with the first entry of the journal.
    fn print_id(&self, said: &RunEvent<'_>) {
        if matches!(said, RunEvent::Entry { seq: 1, .. }) {
            let mut stdout = std::io::stdout().lock();
            let said = writeln!(stdout, "{}", self.run_id);
            said.and_then(|()| stdout.flush()).ok();
        }
    }

    fn print_json(&mut self, said: &RunEvent<'_>) {
        let mut line = match said {
            RunEvent::Entry {
                seq, time, entry, ..
            } => {
                let mut line = to_object(entry);
                line.insert("seq".to_owned(), json!(seq));
                line.insert("time".to_owned(), json!(time));
                line
            }
            RunEvent::SessionEvent { step, time, body } => {
                let mut line = serde_json::Map::new();
                line.insert("type".to_owned(), json!("session"));
                line.insert("time".to_owned(), json!(time));
                line.insert("step".to_owned(), json!(step));
                line.insert("event".to_owned(), json!(body));
                line
            }
        };
        line.insert("v".to_owned(), json!(VERSION));
        line.insert("run_id".to_owned(), json!(self.run_id));
        let line = Value::Object(line).to_string();
        let mut stdout = std::io::stdout().lock();
        let written = writeln!(stdout, "{}", safe_json(&line)).and_then(|()| stdout.flush());
        if let (Err(error), None) = (written, &self.lost_stdout) {
            self.lost_stdout = Some(error);
        }
    }
}

fn to_object(entry: &Entry) -> serde_json::Map<String, Value> {
    match serde_json::to_value(entry) {
        Ok(Value::Object(object)) => object,
        _ => serde_json::Map::new(),
    }
}

/// Prints the outputs of the steps that no other step used; if there are several, each under the name of its step.
fn print_outputs(runner: &Runner) -> anyhow::Result<()> {
    let steps = &runner.pipeline().steps;
    let makes_good = |other: &Step, step: &Step| matches!(&other.on_failure, OnFailure::Rework { step: by } if *by == step.id);
    let is_needed = |step: &Step| {
        let mut others = steps.iter();
        others.any(|other| other.needs.contains(&step.id) || makes_good(other, step))
    };
    let is_last = |step: &&Step| {
        let is_done = runner.state().phase(&step.id) == Phase::Ended(Outcome::Completed);
        is_done && !matches!(step.work, Work::Gate(_)) && !is_needed(step)
    };
    let last: Vec<&Step> = steps.iter().filter(is_last).collect();
    let mut said = String::new();
    for step in &last {
        let state = runner.state().steps.get(&step.id);
        let Some(artifact) = state.and_then(|state| state.artifacts.get(OUTPUT)) else {
            continue;
        };
        let bytes = runner.artifacts().get(&artifact.hash)?;
        let output = text::plain(&String::from_utf8_lossy(&bytes)).into_owned();
        if last.len() > 1 {
            said.push_str(&format!("== {}\n", step.id));
        }
        said.push_str(output.trim_end());
        said.push('\n');
    }
    print(&said).map(drop)
}
