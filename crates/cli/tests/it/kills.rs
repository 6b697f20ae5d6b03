//! Sessions whose process is killed: at every call that changes the journal, and anywhere.
//!
//! Each scene is one prompt against a server of its own, so that what the server has been through outlives the kills.
//! What must hold afterwards is in `proof`, what is asked in `plan`.

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

/// What makes an entry durable.
pub(crate) const SYNCS: Counted = Counted::Syncs("sessions.db-wal,sessions.db");
/// What writes an entry: before the first such call of an entry its event has happened and nobody knows, and between
/// them the entry is half written.
const CHANGES: Counted = Counted::Changes("sessions.db-wal,sessions.db");

/// The boundary at which the prompt becomes durable.
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

/// Kills a process before each call by which it changes the journal, and has the rest done by others. The scenes begin
/// with what comes before that process.
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
        // What waits are for is in the journal; what others have learnt may be lost.
        scene.lose_knowledge();
        scene.resume_all();
        Proof::of(&scene, &format!("{name}, killed before call {at}")).holds();
        ran.code == KILLED
    });
    let kills = killed.iter().filter(|killed| **killed).count();
    println!("{name}: {kills} kills at {calls} calls");
    // The last calls are made while the process ends, and not always the same.
    assert!(kills as u64 > calls - 10, "{kills} kills at {calls} calls");
}

#[test]
fn a_prompt_survives_a_kill_at_every_change_of_the_journal() {
    kill_everywhere("a prompt", |_| {}, |scene| scene.prompt());
}

#[test]
fn a_resume_survives_a_kill_at_every_change_of_the_journal() {
    // The first process dies when its prompt is written down, and leaves everything else to the second one.
    let first = (boundary_of_the_prompt(&Plan::all_kinds()), Moment::After);
    let begin = |scene: &mut Scene<'_>| {
        scene.run(Recorder::new(SYNCS).kill(&mut scene.prompt(), first.0, first.1));
    };
    kill_everywhere("a resume", begin, |scene| scene.resume());
}
