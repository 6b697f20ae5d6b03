//! `outlast demo`: plays an outage in four scenes, and checks that it was handled.
//!
//! Invariants: every number that is shown was measured; nothing is written but in a temporary folder, which is gone at the
//! end, as is every process, however it ends.

mod picture;
mod player;
mod processes;
mod record;
mod scenes;
mod view;

use crate::args::DemoArguments;
use crate::output::is_broken_pipe;
use crate::platform::exit::Exit;
use crate::platform::runtime;
use crate::platform::signals;
use anyhow::bail;
use player::Player;
use processes::Processes;
use scenes::{HINTS, INTRODUCTION, Pace, SCENES};
use tokio::time::Instant;
use view::View;

pub(crate) fn run(arguments: &DemoArguments) -> anyhow::Result<Exit> {
    let pace = match arguments.fast {
        true => Pace::Fast,
        false => Pace::Reading,
    };
    runtime::run(async {
        // From here on, a signal cleans up.
        let mut signals = signals::signals();
        let mut processes = Processes::new()?;
        let played = tokio::select! {
            biased;
            signal = signals.next() => Ok(Exit::Signalled(signal)),
            played = play(&mut processes, pace) => played,
        };
        processes.shut_down().await?;
        match played {
            Err(error) if is_broken_pipe(&error) => Ok(Exit::Success),
            Ok(Exit::Signalled(signal)) => {
                crate::print_diagnostic("\nStopped; nothing is left of it.");
                Ok(Exit::Signalled(signal))
            }
            played => played,
        }
    })
}

async fn play(processes: &mut Processes, pace: Pace) -> anyhow::Result<Exit> {
    let start = Instant::now();
    let mut view = View::stdout();
    view.paragraph(INTRODUCTION)?;
    pace.pause_for_reading(INTRODUCTION).await;
    let mut records = Vec::new();
    let mut problems = Vec::new();
    for (number, scene) in (1..).zip(&SCENES) {
        let (all, title) = (SCENES.len(), scene.title);
        view.heading(&format!("Scene {number} of {all}: {title}"))?;
        let record = Player::new(processes, &mut view, pace).play(scene).await?;
        for finding in record.findings() {
            view.finding(finding.has_passed, &finding.message)?;
            if !finding.has_passed {
                let message = finding.message.trim_end_matches('.');
                problems.push(format!("{}: {message}", scene.name));
            }
        }
        records.push(record);
        pace.pause_for_result().await;
    }
    view.heading("What happened")?;
    view.block(&picture::picture(&records, start.elapsed(), view.columns()))?;
    view.heading("What to type next")?;
    view.block(HINTS)?;
    if !problems.is_empty() {
        bail!("this was not outlasted: {}", problems.join("; "));
    }
    Ok(Exit::Success)
}
