//! Sessions whose process is killed: at every boundary of the journal, and anywhere.
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

/// What every entry waits for before it counts.
pub(crate) const JOURNAL: Counted = Counted::Syncs("sessions.db-wal,sessions.db");

/// Every call of a process at which it can be killed, before and after.
fn boundaries(count: u64) -> Vec<(u64, Moment)> {
    let both = |at| [(at, Moment::Before), (at, Moment::After)];
    (1..=count).flat_map(both).collect()
}

/// The boundary at which the prompt becomes durable.
pub(crate) fn boundary_of_the_prompt(plan: &Plan) -> u64 {
    let has_prompt = |at: &u64| {
        Scene::alone(plan, |scene| {
            let recorder = Recorder::new(JOURNAL);
            scene.run(recorder.kill(&mut scene.prompt(), (*at, Moment::After)));
            !scene.entries().is_empty()
        })
    };
    (1..100).find(has_prompt).unwrap()
}

#[test]
fn a_prompt_survives_a_kill_at_every_boundary_of_the_journal() {
    let plan = Plan::all_kinds();
    let reference = Scene::alone(&plan, |scene| {
        let recorder = Recorder::new(JOURNAL);
        scene.run(recorder.record(&mut scene.prompt()));
        Proof::of(scene, "without a kill").holds();
        recorder.counted()
    });
    // One for the session, one for each group of entries, one when it is let go of.
    assert!(reference > 15, "{reference} boundaries");
    let killed = in_parallel(boundaries(reference), |mock, (at, moment)| {
        let mut scene = Scene::new(mock, &plan);
        let recorder = Recorder::new(JOURNAL);
        let ran = scene.run(recorder.kill(&mut scene.prompt(), (at, moment)));
        scene.resume_all();
        Proof::of(&scene, &format!("{moment:?} boundary {at}")).holds();
        ran.code == KILLED
    });
    let kills = killed.iter().filter(|killed| **killed).count();
    println!("{kills} kills at {reference} boundaries of a prompt");
    // The last calls are made while the process ends, and not always the same.
    assert!(kills as u64 > 2 * reference - 5, "{kills} kills");
}

#[test]
fn a_resume_survives_a_kill_at_every_boundary_of_the_journal() {
    let plan = Plan::all_kinds();
    // The first process dies when its prompt is written down, and leaves everything else to the second one.
    let first = (boundary_of_the_prompt(&plan), Moment::After);
    let begin = |scene: &mut Scene<'_>| {
        scene.run(Recorder::new(JOURNAL).kill(&mut scene.prompt(), first));
    };
    let reference = Scene::alone(&plan, |scene| {
        begin(scene);
        let recorder = Recorder::new(JOURNAL);
        scene.run(recorder.record(&mut scene.resume()));
        Proof::of(scene, "one resume").holds();
        recorder.counted()
    });
    assert!(reference > 15, "{reference} boundaries");
    let killed = in_parallel(boundaries(reference), |mock, (at, moment)| {
        let mut scene = Scene::new(mock, &plan);
        begin(&mut scene);
        let recorder = Recorder::new(JOURNAL);
        let ran = scene.run(recorder.kill(&mut scene.resume(), (at, moment)));
        scene.resume_all();
        Proof::of(&scene, &format!("{moment:?} boundary {at} of a resume")).holds();
        ran.code == KILLED
    });
    let kills = killed.iter().filter(|killed| **killed).count();
    println!("{kills} kills at {reference} boundaries of a resume");
    assert!(kills as u64 > 2 * reference - 5, "{kills} kills");
}
