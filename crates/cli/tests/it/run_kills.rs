//! Kills the process of a pipeline run at random, and the processes that resume it.
//!
//! Every run must end like an undisturbed one: see `proof`. `OUTLAST_RUN_KILLS` is the number of runs
//! (`scripts/run-kills 200` plays 200), `OUTLAST_RUN_KILLS_SEED` the first seed. A failure names the seed that
//! reproduces it, and keeps the folder.

mod proof;
mod scene;

use crate::recorder::Moment;
use proof::Result;
use scene::{Kill, Measured, Scene};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// As many as `cargo test` has time for.
const RUNS: usize = 80;
const MAX_KILLS: usize = 4;
/// Runs wait more than they work, so more than there are processors.
const WORKERS: usize = 4;

fn setting(name: &str) -> Option<usize> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap())
}

#[test]
fn run_survives_kills_at_any_point() {
    let wanted = setting("OUTLAST_RUN_KILLS").unwrap_or(RUNS);
    let first = setting("OUTLAST_RUN_KILLS_SEED").unwrap_or(1);
    let (result, measured) = undisturbed();
    let seeds = Mutex::new(first..first + wanted);
    let kills = AtomicUsize::new(0);
    let failed = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                while let Some(seed) = { seeds.lock().unwrap().next() } {
                    let played = catch_unwind(AssertUnwindSafe(|| play(seed, &result, measured)));
                    match played {
                        Ok(killed) => drop(kills.fetch_add(killed, Ordering::Relaxed)),
                        Err(panic) => failed.lock().unwrap().push((seed, panic)),
                    }
                }
            });
        }
    });
    let mut failed = failed.into_inner().unwrap();
    println!("{} kills in {wanted} runs", kills.load(Ordering::Relaxed));
    let seeds: Vec<usize> = failed.iter().map(|(seed, _)| *seed).collect();
    if let Some((_, panic)) = failed.pop() {
        println!("these seeds failed: {seeds:?}");
        resume_unwind(panic);
    }
}

/// Returns the result and the duration of an undisturbed run.
fn undisturbed() -> (Result, Measured) {
    let mut scene = Scene::new("undisturbed");
    let measured = scene.measure();
    let result = scene.result();
    assert!(result.is_completed(), "{result:#?}");
    result.is_sound(&scene);
    scene.remove();
    (result, measured)
}

/// Plays the run of a seed; returns how often it was killed.
fn play(seed: usize, expected: &Result, measured: Measured) -> usize {
    let mut random = fastrand::Rng::with_seed(seed as u64);
    let kills: Vec<Kill> = (0..random.usize(1..=MAX_KILLS))
        .map(|place| kill(&mut random, measured, place))
        .collect();
    let mut scene = Scene::new(&format!(
        "OUTLAST_RUN_KILLS_SEED={seed} killed at {kills:?}"
    ));
    let killed = kills.iter().filter(|kill| scene.killed(**kill)).count();
    scene.finish();
    let result = scene.result();
    result.is_sound(&scene);
    scene.check(
        result == *expected,
        &format!("it ended as {result:#?}\nand not as {expected:#?}"),
    );
    scene.remove();
    killed
}

/// Chooses a time, or a recorded call. A resumed process has less to do.
fn kill(random: &mut fastrand::Rng, measured: Measured, place: usize) -> Kill {
    let less = |all: u64| (all / (1 + place as u64)).max(2);
    match random.bool() {
        true => Kill::After(random.u64(1..less(measured.milliseconds))),
        false => {
            let moment = match random.bool() {
                true => Moment::Before,
                false => Moment::After,
            };
            Kill::At(random.u64(1..less(measured.calls)), moment)
        }
    }
}
