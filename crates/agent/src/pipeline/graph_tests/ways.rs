//! Ways of a run on which it must not get lost: loops inside of loops, and steps that several others lead to.

use super::*;

/// A run in which those steps fail with what trying again cannot help.
fn play_failing(source: &str, failing: &[&str]) -> Played {
    play(source, &|step, _, _| {
        failing.contains(&step).then_some(Cause::Auth)
    })
}

#[test]
fn a_loop_inside_of_another_runs_all_of_its_iterations_each_time() {
    let source = "steps: [{id: a, command: x, edges: [{target: l, condition: outcome=failure}]}, {id: l, loop: {max_iterations: 3, steps: [{id: m, loop: {max_iterations: 2, steps: [{id: n, command: x}]}}]}}, {id: z, needs: [l], command: x}]";
    let played = play_failing(source, &["a"]);
    let visits = |step: &str| played.run.visits(step);
    assert_eq!((visits("n"), visits("m"), visits("l")), (6, 3, 1));
    assert_eq!(played.visited().last(), Some(&"z"));
}

#[test]
fn a_step_that_is_at_work_for_an_edge_makes_good_for_another_afterwards() {
    let source = "steps: [{id: a, command: x, edges: [{target: fix}]}, {id: b, command: x, on_failure: rework, rework_step: fix}, {id: fix, command: x}]";
    let played = play_failing(source, &["b"]);
    let visits = &played.run.steps["fix"].visits;
    let ended: Vec<bool> = visits.iter().map(|visit| visit.ended.is_some()).collect();
    assert_eq!(ended, [true, true]);
    assert_eq!(played.phase("b"), Phase::Ended(Outcome::Completed));
}
