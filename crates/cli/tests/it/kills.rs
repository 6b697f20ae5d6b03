//! Kills the process of a session at every call that changes the journal, and at random times.
//!
//! Each scene is one prompt against a mock server of its own, whose state survives the kills. `plan` has the prompts,
//! `proof` the checks afterwards.

pub(crate) mod crew;
pub(crate) mod plan;
pub(crate) mod proof;
mod random;
pub(crate) mod scene;
mod undelivered;

use crate::recorder::{Counted, Moment, Recorder};
use crew::in_parallel;
use plan::Plan;
use proof::Proof;
use scene::{KILLED, Scene};
use std::process::Command;

/// Calls that make an entry durable.
pub(crate) const SYNCS: Counted = Counted::Syncs("sessions.db-wal,sessions.db");
/// Calls that write an entry: before the first of them its event has happened and is not recorded, and between them
/// the entry is half written.
const CHANGES: Counted = Counted::Changes("sessions.db-wal,sessions.db");

/// Returns the call that makes the prompt durable.
pub(crate) fn boundary_of_the_prompt(plan: &Plan) -> u64 {
    let has_prompt = |at: &u64| {
        Scene::alone(plan, |scene| {
            let recorder = Recorder::new(SYNCS);
            scene.run(recorder.kill(&mut scene.prompt(), *at, Moment::After));
            !scene.entries().is_empty()
        })
    };
    (1..100).find(has_prompt).unwrap()
}

/// Kills a process before each call that changes the journal, and lets later processes finish. Each scene is first
/// brought to the state in which that process starts.
fn kill_everywhere(
    name: &str,
    begin: impl Fn(&mut Scene<'_>) + Sync,
    command: impl Fn(&Scene<'_>) -> Command + Sync,
) {
    let plan = Plan::all_kinds();
    let calls = Scene::alone(&plan, |scene| {
        begin(scene);
        let recorder = Recorder::new(CHANGES);
        scene.run(recorder.record(&mut command(scene)));
        Proof::of(scene, name).holds();
        recorder.counted()
    });
    assert!(calls > 100, "{calls} calls");
    let killed = in_parallel(1..=calls, |mock, at| {
        let mut scene = Scene::new(mock, &plan);
        begin(&mut scene);
        let recorder = Recorder::new(CHANGES);
        let ran = scene.run(recorder.kill(&mut command(&scene), at, Moment::Before));
        // The reasons for waits are in the journal; shared state may be lost.
        scene.lose_knowledge();
        scene.resume_all();
        Proof::of(&scene, &format!("{name}, killed before call {at}")).holds();
        ran.code == KILLED
    });
    let kills = killed.iter().filter(|killed| **killed).count();
    println!("{name}: {kills} kills at {calls} calls");
    // The last calls are made while the process ends, and differ between runs.
    assert!(kills as u64 > calls - 10, "{kills} kills at {calls} calls");
}

#[test]
fn prompt_survives_kill_at_every_journal_write() {
    kill_everywhere("a prompt", |_| {}, |scene| scene.prompt());
}

#[test]
fn resume_survives_kill_at_every_journal_write() {
    // The first process dies when its prompt is in the journal, and leaves everything else to the second one.
    let first = (boundary_of_the_prompt(&Plan::all_kinds()), Moment::After);
    let begin = |scene: &mut Scene<'_>| {
        scene.run(Recorder::new(SYNCS).kill(&mut scene.prompt(), first.0, first.1));
    };
    kill_everywhere("a resume", begin, |scene| scene.resume());
}
