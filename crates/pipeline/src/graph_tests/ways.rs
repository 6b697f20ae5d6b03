//! Paths on which a run must not get lost: nested loops, and steps with several incoming edges.

use super::*;

/// Plays a run in which the given steps fail with a cause that retries cannot help.
fn play_failing(source: &str, failing: &[&str]) -> SimulatedRun {
    play(source, &|step, _, _| {
        failing.contains(&step).then_some(Cause::Auth)
    })
}

#[test]
fn nested_loop_runs_all_its_iterations_each_time() {
    let source = "steps: [{id: a, command: x, edges: [{target: l, condition: outcome=failure}]}, {id: l, loop: {max_iterations: 3, steps: [{id: m, loop: {max_iterations: 2, steps: [{id: n, command: x}]}}]}}, {id: z, needs: [l], command: x}]";
    let played = play_failing(source, &["a"]);
    let visits = |step: &str| played.run.visits(step);
    assert_eq!((visits("n"), visits("m"), visits("l")), (6, 3, 1));
    assert_eq!(played.visited().last(), Some(&"z"));
}

#[test]
fn step_started_by_edge_reworks_another_step_afterwards() {
    let source = "steps: [{id: a, command: x, edges: [{target: fix}]}, {id: b, command: x, on_failure: rework, rework_step: fix}, {id: fix, command: x}]";
    let played = play_failing(source, &["b"]);
    let visits = &played.run.steps["fix"].visits;
    let ended: Vec<bool> = visits.iter().map(|visit| visit.ended.is_some()).collect();
    assert_eq!(ended, [true, true]);
    assert_eq!(played.phase("b"), Phase::Ended(Outcome::Completed));
}

#[test]
fn rework_step_may_need_the_step_it_repairs() {
    let source = "steps: [{id: a, command: x, on_failure: rework, rework_step: r}, {id: r, rework_only: true, needs: [a], command: x}]";
    let played = play(source, &|step, _, _| (step == "a").then_some(Cause::Auth));
    assert_eq!(played.visited(), ["a", "r"]);
    assert_eq!(played.outcome(), Outcome::Completed);
}

#[test]
fn rework_step_repairs_several_steps_in_turn() {
    let source = "steps:
  - {id: a, command: x, on_failure: rework, rework_step: r}
  - {id: b, command: x, on_failure: rework, rework_step: r}
  - {id: r, rework_only: true, command: x}
  - {id: after, needs: [a, b], command: x}";
    let played = play(source, &|step, _, _| {
        (step < "after" || step == "b").then_some(Cause::Auth)
    });
    assert_eq!(played.run.visits("r"), 2);
    assert_eq!(played.phase("after"), Phase::Ended(Outcome::Completed));
}

#[test]
fn failing_run_does_not_wait_for_impossible_rework() {
    let source = "runtime: {max_concurrency: 1}\nsteps:
  - {id: a, command: x, on_failure: rework, rework_step: r}
  - {id: b, command: x}
  - {id: r, rework_only: true, needs: [b], command: x}";
    let played = play(source, &|step, _, _| {
        matches!(step, "a" | "b").then_some(Cause::Auth)
    });
    assert_eq!(played.outcome(), Outcome::Failed);
    assert_eq!(played.phase("a"), Phase::Ended(Outcome::Failed));
}

#[test]
fn rework_step_can_lead_back_to_repaired_step() {
    let source = "steps:
  - {id: a, command: x, on_failure: rework, rework_step: r}
  - {id: r, rework_only: true, command: x, edges: [{target: a}]}
  - {id: after, needs: [a], command: x}";
    let played = play(source, &|step, visit, _| {
        (step == "a" && visit == 1).then_some(Cause::Auth)
    });
    assert_eq!(played.visited(), ["a", "r", "a", "after"]);
    let fails: AttemptOutcome<'_> = &|step, _, _| matches!(step, "a" | "r").then_some(Cause::Auth);
    let edge_on_failure = source.replace(
        "{target: a}",
        "{target: _complete, condition: outcome=failure}",
    );
    assert_eq!(play(&edge_on_failure, fails).outcome(), Outcome::Failed);
}

#[test]
fn on_demand_loop_runs_each_time_an_edge_leads_to_it() {
    let source = "steps:
  - {id: look, command: x, edges: [{target: again, condition: outcome=failure}]}
  - id: again
    loop: {max_iterations: 2, steps: [{id: inner, command: x}]}
    edges: [{target: look}]";
    assert_eq!(play(source, ALWAYS_SUCCEEDS).visited(), ["look"]);
    let played = play(source, &|step, visit, _| {
        (step == "look" && visit < 3).then(|| [Cause::Auth, Cause::Billing][visit as usize - 1])
    });
    let round = ["look", "inner", "inner", "again"];
    assert_eq!(
        played.visited(),
        [&round[..], &round[..], &["look"]].concat()
    );
}

#[test]
fn restarted_run_repeats_failed_edge_target() {
    let source = "steps:
  - {id: look, command: x, edges: [{target: hard}]}
  - {id: hard, command: x}
  - {id: after, needs: [hard], command: x}";
    let pipeline = pipeline(source);
    let fails: AttemptOutcome<'_> = &|step, _, _| (step == "hard").then_some(Cause::Auth);
    let mut entries = play_from(&pipeline, fails, Vec::new(), usize::MAX).entries;
    entries.push(Entry::RunStarted(Box::default()));
    let again = play_from(&pipeline, ALWAYS_SUCCEEDS, entries, usize::MAX);
    assert_eq!(again.visited(), ["look", "hard", "hard", "after"]);
}

#[test]
fn running_step_is_canceled_and_rerun_when_its_need_reruns() {
    let source = "runtime: {max_concurrency: 3}\nsteps:
  - {id: a, command: x}
  - {id: check, needs: [a], command: x, edges: [{target: a, condition: outcome=failure}]}
  - {id: slow, needs: [a], command: x}";
    // The simulation ends steps in alphabetical order: `check` fails while `slow` works.
    let played = play(source, &|step, visit, _| {
        (step == "check" && visit == 1).then_some(Cause::Auth)
    });
    assert_eq!(
        played.visited(),
        ["a", "check", "slow", "a", "check", "slow"]
    );
    let first = &played.run.steps["slow"].visits[0];
    assert_eq!(first.ended.as_ref().unwrap().outcome, Outcome::Canceled);
    assert_eq!(played.outcome(), Outcome::Completed);
}

#[test]
fn run_fails_when_edge_target_cannot_start() {
    let source = "steps:
  - {id: look, command: x, edges: [{target: hard}]}
  - {id: never, rework_only: true, command: x}
  - {id: other, command: x, on_failure: rework, rework_step: never}
  - {id: hard, needs: [never], command: x}";
    let played = play(source, ALWAYS_SUCCEEDS);
    assert_eq!(played.outcome(), Outcome::Failed);
    assert!(
        played.reason().contains("`hard` was led to"),
        "{}",
        played.reason()
    );
}

#[test]
fn externally_interrupted_step_fails_the_run() {
    let played = play("steps: [{id: a, command: x}]", &|_, _, _| {
        Some(Cause::Interrupted)
    });
    assert_eq!(played.outcome(), Outcome::Failed);
}
