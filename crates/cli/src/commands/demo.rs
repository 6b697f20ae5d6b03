//! `outlast demo`: an outage, outlasted before the eyes of somebody who has just installed this.
//!
//! Invariants: every number that is shown was measured; nothing is written but in a temporary folder (and to the file that
//! was asked for), which is gone at the end, as is every process, however it ends.

mod drawing;
mod folder;
mod judge;
mod picture;
pub(crate) mod player;
pub(crate) mod processes;
mod record;
mod scenes;
mod view;

use crate::args::DemoArguments;
use crate::platform::exit::{Exit, UsageError};
use crate::platform::runtime;
use crate::platform::signals;
use anyhow::{Context, bail};
use folder::Folder;
use picture::Totals;
use player::Player;
use processes::Processes;
use scenes::{HINTS, INTRODUCTION, Pace, SCENES, Scene};
use std::path::Path;
use tokio::time::Instant;
use view::{StdoutClosed, View};

pub(crate) fn run(arguments: &DemoArguments) -> anyhow::Result<Exit> {
    if let Some(file) = &arguments.svg {
        check_output_path(file)?;
    }
    let pace = match arguments.fast {
        true => Pace::Fast,
        false => Pace::Reading,
    };
    runtime::run(async {
        // From here on: what a signal interrupts is cleared away.
        let mut signals = signals::signals();
        let mut stage = Processes::new(Folder::make()?)?;
        let played = tokio::select! {
            biased;
            signal = signals.next() => Ok(Exit::Signalled(signal)),
            played = play(&mut stage, pace, arguments.svg.as_deref()) => played,
        };
        stage.shut_down().await?;
        match played {
            Err(error) if error.is::<StdoutClosed>() => Ok(Exit::Success),
            Ok(Exit::Signalled(signal)) => {
                crate::print_diagnostic("\nStopped; nothing is left of it.");
                Ok(Exit::Signalled(signal))
            }
            played => played,
        }
    })
}

/// That the picture has no place is said at the beginning, not after ninety seconds.
fn check_output_path(file: &Path) -> Result<(), UsageError> {
    let folder = file.parent().filter(|folder| folder != &Path::new(""));
    let is_folder = folder.is_none_or(Path::is_dir);
    if is_folder && !file.is_dir() {
        return Ok(());
    }
    let file = file.display();
    Err(UsageError(format!(
        "cannot write {file}; --svg takes a file in a folder that is there"
    )))
}

async fn play(stage: &mut Processes, pace: Pace, svg: Option<&Path>) -> anyhow::Result<Exit> {
    let start = Instant::now();
    let mut view = View::stdout();
    view.paragraph(INTRODUCTION)?;
    pace.pause_for_reading(INTRODUCTION).await;
    let mut records = Vec::new();
    let mut problems = Vec::new();
    for (number, scene) in (1..).zip(&SCENES) {
        view.heading(&format!(
            "Scene {number} of {}: {}",
            SCENES.len(),
            scene.title
        ))?;
        let mut player = Player::new(stage, &mut view, pace);
        let record = player.play(scene).await?;
        let findings = judge::findings(scene, &record);
        for finding in &findings {
            view.finding(finding.has_passed, &finding.message)?;
        }
        let wrong = findings.into_iter().filter(|finding| !finding.has_passed);
        problems.extend(wrong.map(|finding| finding_line(scene, &finding.message)));
        records.push(record);
        pace.pause_for_result().await;
    }
    view.heading("What happened")?;
    let totals = Totals::from_records(&records, start.elapsed());
    view.block(&picture::text(&records, &totals, view.columns()))?;
    if let Some(file) = svg {
        let drawn = drawing::svg(&records, &totals).context("cannot draw what happened")?;
        std::fs::write(file, drawn).with_context(|| format!("cannot write {}", file.display()))?;
        view.paragraph(&format!("The same as a picture: {}", file.display()))?;
    }
    view.heading("What to type next")?;
    view.block(HINTS)?;
    if !problems.is_empty() {
        bail!("this was not outlasted: {}", problems.join("; "));
    }
    Ok(Exit::Success)
}

fn finding_line(scene: &Scene, says: &str) -> String {
    format!("{}: {}", scene.name, says.trim_end_matches('.'))
}
