//! `outlast runs show --watch`: follows a run of another process by reading its journal.

use super::show::{document, json_lines};
use crate::output::print;
use crate::output::run_view::{Countdown, Painter, recorded_steps, stdout_size};
use crate::platform::exit::Exit;
use outlast_engine::Clock;
use outlast_pipeline::entry::Outcome;
use outlast_pipeline::run_store::RunStore;
use outlast_pipeline::run_view::{RunSnapshot, RunStatus};
use outlast_pipeline::state::{EndStatus, Phase, Run};
use std::io::{IsTerminal, Stdout};
use std::time::Duration;

/// Polling interval in real time, as it is for the eye.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Follows a run until it ends, or no process executes it any more.
pub(super) async fn watch(
    home: &RunStore,
    mut watched: RunSnapshot,
    json: bool,
    clock: &dyn Clock,
) -> anyhow::Result<Exit> {
    let mut painter = begin(&watched, json, clock)?;
    let mut after = watched.entries.last().map_or(0, |(seq, _, _)| *seq);
    loop {
        let id = watched.summary.id.as_str();
        // Checked before the read: the read then includes all entries that an exiting process wrote.
        let status = home.status(&home.find(id).await?).await?;
        let new = home.read_after(id, after).await?;
        for (seq, time, entry) in &new {
            after = *seq;
            watched.run.apply(*time, entry);
            if let Some(painter) = &mut painter {
                if entry.step().is_some_and(|step| !painter.has_step(step)) {
                    painter.set_steps(recorded_steps(&watched.run));
                }
                painter.entry(*time, entry);
            }
        }
        match &mut painter {
            None => {
                print(&json_lines(id, &new)?)?;
            }
            Some(painter) => {
                painter.set_status(status);
                wait_for_providers(home, &watched.run, painter).await?;
                painter.tick(clock.now());
            }
        }
        if watched.run.ended.is_some() || status != RunStatus::Running {
            return Ok(end(&watched.run, painter));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Prints the state so far, and returns the painter for the rest; `None` with `--json`.
fn begin(
    watched: &RunSnapshot,
    json: bool,
    clock: &dyn Clock,
) -> anyhow::Result<Option<Painter<Stdout>>> {
    let RunSnapshot {
        summary,
        run,
        entries,
        ..
    } = watched;
    if json {
        print(&json_lines(&summary.id, entries)?)?;
        return Ok(None);
    }
    print(&document(watched, clock.now()))?;
    let stdout = std::io::stdout();
    let size = stdout.is_terminal().then_some(stdout_size as fn() -> _);
    let mut painter = Painter::new(stdout, size, &summary.id);
    painter.set_steps(recorded_steps(run));
    for (_, time, entry) in entries {
        painter.apply(*time, entry);
    }
    Ok(Some(painter))
}

async fn wait_for_providers(
    home: &RunStore,
    run: &Run,
    painter: &mut Painter<Stdout>,
) -> anyhow::Result<()> {
    for (id, step) in &run.steps {
        if step.phase == Phase::Working {
            let wait = home.current_wait(step).await?;
            painter.set_wait(id, wait.map(Countdown::from));
        }
    }
    Ok(())
}

fn end(run: &Run, painter: Option<Painter<Stdout>>) -> Exit {
    if let Some(mut painter) = painter {
        painter.clear();
        if run.ended.is_none() {
            painter.print("○ no process is at work on it any more");
        }
    }
    match &run.ended {
        Some(EndStatus {
            outcome: Outcome::Completed,
            ..
        }) => Exit::Success,
        _ => Exit::Failed,
    }
}
