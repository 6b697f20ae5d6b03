//! Kills at random points: random plans, calls of any kind, up to three kills in a row.
//!
//! `OUTLAST_KILLS` is the number of scenes (`scripts/kills 10000` runs that many), `OUTLAST_KILLS_SEED` the first seed;
//! a failure names the seed that reproduces it.

use super::crew::in_parallel;
use super::plan::Plan;
use super::proof::Proof;
use super::scene::{KILLED, Scene};
use crate::mock_server::MockServer;
use crate::recorder::{Counted, Moment, Recorder};
use std::sync::atomic::{AtomicUsize, Ordering};

const KILLS: usize = 300;
/// Scenes for each plan, which is first played without a kill.
const SCENES: usize = 4;
const MAX_CONSECUTIVE_KILLS: usize = 3;

fn setting(name: &str) -> Option<usize> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap())
}

#[test]
fn prompt_survives_kills_at_random_points() {
    let wanted = setting("OUTLAST_KILLS").unwrap_or(KILLS);
    let first = setting("OUTLAST_KILLS_SEED").unwrap_or(1);
    let kills = AtomicUsize::new(0);
    let enough = || kills.load(Ordering::Relaxed) >= wanted;
    let seeds = (first as u64..).take_while(|_| !enough());
    let scenes = in_parallel(seeds, |mock, seed| {
        let (scenes, killed) = play(mock, seed);
        kills.fetch_add(killed, Ordering::Relaxed);
        scenes
    });
    let plans = scenes.len();
    let scenes: usize = scenes.iter().sum();
    println!(
        "{} kills in {scenes} scenes of {plans} plans",
        kills.load(Ordering::Relaxed)
    );
}

/// Plays the plan of a seed, without a kill and with some; returns the numbers of scenes and kills.
fn play(mock: &MockServer, seed: u64) -> (usize, usize) {
    let mut random = fastrand::Rng::with_seed(seed);
    let plan = Plan::random(&mut random);
    let recorder = Recorder::new(Counted::Everything);
    let mut scene = Scene::new(mock, &plan);
    scene.run(recorder.record(&mut scene.prompt()));
    Proof::of(&scene, &format!("seed {seed}, without a kill")).holds();
    let calls = recorder.counted();
    let kills = (0..SCENES).map(|_| {
        let points: Vec<_> = (0..random.usize(1..=MAX_CONSECUTIVE_KILLS))
            .map(|_| (random.u64(1..=calls), moment(&mut random)))
            .collect();
        let mut scene = Scene::new(mock, &plan);
        let killed = kill_at(&mut scene, &points);
        if random.bool() {
            scene.lose_knowledge();
        }
        scene.resume_all();
        let label = format!("OUTLAST_KILLS_SEED={seed}, killed at {points:?}");
        Proof::of(&scene, &label).holds();
        killed
    });
    (SCENES + 1, kills.sum())
}

fn moment(random: &mut fastrand::Rng) -> Moment {
    match random.bool() {
        true => Moment::Before,
        false => Moment::After,
    }
}

/// Kills the prompt at the first point and the later resumes at the others, if they get that far; returns the number of
/// kills.
fn kill_at(scene: &mut Scene<'_>, points: &[(u64, Moment)]) -> usize {
    let mut killed = 0;
    for (place, (at, moment)) in points.iter().enumerate() {
        let recorder = Recorder::new(Counted::Everything);
        let mut command = match place {
            0 => scene.prompt(),
            _ => scene.resume(),
        };
        let ran = scene.run(recorder.kill(&mut command, *at, *moment));
        if ran.code != KILLED {
            break;
        }
        killed += 1;
    }
    killed
}
