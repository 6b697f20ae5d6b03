//! Simulated runs: the graph decides the due entries, and the test makes up the outcomes.

#[path = "graph_tests/random.rs"]
mod random;
#[path = "graph_tests/ways.rs"]
mod ways;

use super::*;
use crate::entry::Problem;
use crate::file;
use crate::graph::react::{self, AttemptResult, DecisionContext, StepOutput};
use outlast_kernel::budget::Cost;
use outlast_kernel::event::Usage;
use outlast_kernel::verdict::Cause;
use std::path::Path;

/// The outcome of an attempt, by step, visit and attempt: a failure of the given cause, or success.
type AttemptOutcome<'a> = &'a dyn Fn(&str, u32, u32) -> Option<Cause>;

struct SimulatedRun {
    run: Run,
    entries: Vec<Entry>,
    /// The maximum number of attempts that were under way at once.
    most_working: usize,
}

impl SimulatedRun {
    /// Returns the steps in the order of their visits.
    fn visited(&self) -> Vec<&str> {
        let started = |entry: &'_ Entry| matches!(entry, Entry::StepStarted { .. });
        let visits = self.entries.iter().filter(|entry| started(entry));
        visits.filter_map(Entry::step).collect()
    }

    fn outcome(&self) -> Outcome {
        self.run.ended.as_ref().unwrap().outcome
    }

    fn phase(&self, step: &str) -> Phase {
        self.run.phase(step)
    }

    fn reason(&self) -> &str {
        self.run
            .ended
            .as_ref()
            .unwrap()
            .reason
            .as_deref()
            .unwrap_or_default()
    }
}

fn pipeline(source: &str) -> Arc<Pipeline> {
    let read = file::read(source, Path::new("test.yaml"));
    Arc::new(read.unwrap_or_else(|faults| panic!("{faults}")))
}

fn play(source: &str, fate: AttemptOutcome<'_>) -> SimulatedRun {
    play_from(&pipeline(source), fate, Vec::new(), usize::MAX)
}

/// Continues from the given entries, like a process that resumes a run, and stops after a number of entries.
fn play_from(
    pipeline: &Arc<Pipeline>,
    fate: AttemptOutcome<'_>,
    before: Vec<Entry>,
    most: usize,
) -> SimulatedRun {
    let mut now = Timestamp::from_millis(1_000_000);
    let mut run = Run::from_entries(before.iter().map(|entry| (now, entry)));
    let mut graph = Graph::new(Arc::clone(pipeline), &run);
    let (mut entries, mut most_working) = (before, 0);
    if entries.is_empty() {
        let begun = Entry::RunStarted(Box::default());
        graph.apply(&mut run, now, &begun);
        entries.push(begun);
    }
    for _ in 0..100_000 {
        let mut due = graph.due_entries(&run, now);
        most_working = most_working.max(graph.working_count);
        if due.is_empty() {
            if run.ended.is_some() {
                break;
            }
            now = now + Duration::from_secs(1);
            due = next_report(&mut graph, &run, fate, now);
        }
        for entry in due {
            graph.apply(&mut run, now, &entry);
            entries.push(entry);
        }
        if entries.len() >= most {
            break;
        }
    }
    SimulatedRun {
        run,
        entries,
        most_working,
    }
}

/// Returns the entries that follow the next event: the end of the first active operation.
fn next_report(
    graph: &mut Graph,
    run: &Run,
    fate: AttemptOutcome<'_>,
    time: Timestamp,
) -> Vec<Entry> {
    let active = |phase: Phase| {
        matches!(
            phase,
            Phase::Working | Phase::Waiting { .. } | Phase::AtGate { .. }
        )
    };
    let (name, state) = run
        .steps
        .iter()
        .find(|(_, step)| active(step.phase))
        .expect("a run that waits for nothing");
    let now = DecisionContext {
        time,
        deadline: None,
        entropy: 0,
    };
    match state.phase {
        Phase::Waiting { .. } => vec![Entry::WaitEnded { step: name.clone() }],
        Phase::AtGate { .. } => {
            react::handle_gate_answer(graph, run, &graph.step(name).unwrap().clone(), None)
        }
        _ => {
            let visit = state.visit().unwrap();
            let problem = fate(name, visit.number, visit.attempts.last().unwrap().number);
            let done = AttemptResult {
                output: match problem {
                    None => Ok(StepOutput::default()),
                    Some(cause) => Err(Problem::new(
                        cause,
                        format!("{cause} in visit {}", visit.number),
                    )),
                },
                usage: Usage::default(),
                cost: Cost::default(),
                warnings: Vec::new(),
            };
            react::handle_attempt_result(graph, run, name, done, now)
        }
    }
}

const ALWAYS_SUCCEEDS: AttemptOutcome<'static> = &|_, _, _| None;

#[test]
fn step_starts_when_all_its_needs_are_done() {
    let played = play(
        "steps: [{id: c, needs: [a, b], command: x}, {id: a, command: x}, {id: b, needs: [a], command: x}]",
        ALWAYS_SUCCEEDS,
    );
    assert_eq!(played.visited(), ["a", "b", "c"]);
    assert_eq!(played.outcome(), Outcome::Completed);
}

#[test]
fn concurrent_steps_stay_within_limit() {
    let steps: Vec<String> = (0..50)
        .map(|n| format!("{{id: s{n}, command: x}}"))
        .collect();
    let source = format!(
        "runtime: {{max_concurrency: 3}}\nsteps: [{}]",
        steps.join(", ")
    );
    let played = play(&source, ALWAYS_SUCCEEDS);
    assert_eq!(played.most_working, 3);
    assert_eq!(played.visited().len(), 50);
}

#[test]
fn failure_starts_no_new_steps_and_lets_running_ones_end() {
    let source = "runtime: {max_concurrency: 2}\nsteps: [{id: a, command: x}, {id: b, command: x}, {id: c, needs: [b], command: x}, {id: d, command: x}]";
    let played = play(source, &|step, _, _| (step == "a").then_some(Cause::Auth));
    assert_eq!(played.visited(), ["a", "b"]);
    assert_eq!(played.outcome(), Outcome::Failed);
    assert_eq!(played.phase("b"), Phase::Ended(Outcome::Completed));
    assert!(
        played.reason().starts_with("step `a`: Credential refused"),
        "{}",
        played.reason()
    );
}

#[test]
fn on_failure_setting_decides_outcome_of_run() {
    let outcome = |mode: &str| {
        let source = format!(
            "steps: [{{id: a, command: x, {mode}}}, {{id: b, needs: [a], command: x}}, {{id: r, rework_only: true, command: x}}]"
        );
        let source = match mode.contains("rework") {
            true => source,
            false => source.replace(", {id: r, rework_only: true, command: x}", ""),
        };
        let played = play(&source, &|step, _, _| (step == "a").then_some(Cause::Auth));
        (played.phase("a"), played.phase("b"), played.outcome())
    };
    use Outcome::{Completed, Continued, Failed, Skipped};
    let over = Phase::Ended;
    assert_eq!(
        outcome("on_failure: fail"),
        (over(Failed), Phase::Idle, Failed)
    );
    assert_eq!(
        outcome("on_failure: skip"),
        (over(Skipped), over(Skipped), Completed)
    );
    assert_eq!(
        outcome("on_failure: continue"),
        (over(Continued), over(Completed), Completed)
    );
    assert_eq!(
        outcome("optional: true"),
        (over(Continued), over(Completed), Completed)
    );
    let rework = "on_failure: rework, rework_step: r";
    assert_eq!(
        outcome(rework),
        (over(Completed), over(Completed), Completed)
    );
}

#[test]
fn skipped_rework_does_not_repair_its_step() {
    let source = "steps:
  - {id: a, command: x, on_failure: rework, rework_step: r}
  - {id: s, command: x, on_failure: skip}
  - {id: r, rework_only: true, needs: [s], command: x}";
    let played = play(source, &|step, _, _| {
        matches!(step, "a" | "s").then_some(Cause::Auth)
    });
    assert_eq!(played.outcome(), Outcome::Failed);
}

#[test]
fn failed_rework_fails_the_run() {
    let source = "steps: [{id: a, command: x, on_failure: rework, rework_step: r}, {id: r, rework_only: true, command: x}]";
    let played = play(source, &|_, _, _| Some(Cause::Auth));
    assert_eq!(played.visited(), ["a", "r"]);
    assert_eq!(played.outcome(), Outcome::Failed);
}

#[test]
fn back_edge_reruns_dependent_steps() {
    let source = "steps:
  - {id: implement, command: x}
  - {id: test, needs: [implement], command: x, edges: [{target: implement, condition: outcome=failure}]}
  - {id: ship, needs: [test], command: x}";
    let played = play(source, &|step, visit, _| {
        (step == "test" && visit < 3).then_some(Cause::Auth)
    });
    let visited = [
        "implement",
        "test",
        "implement",
        "test",
        "implement",
        "test",
        "ship",
    ];
    assert_eq!(played.visited(), visited);
    assert_eq!(played.outcome(), Outcome::Completed);
}

#[test]
fn step_visits_are_limited() {
    let source = "runtime: {circuit_breaker: {limit: 100}}\nsteps:
  - {id: implement, command: x}
  - {id: test, needs: [implement], command: x, edges: [{target: implement, condition: outcome=failure}]}";
    let fails: AttemptOutcome<'_> = &|step, _, _| (step == "test").then_some(Cause::Auth);
    let played = play(source, fails);
    assert_eq!(played.run.visits("implement"), 10);
    assert_eq!(played.outcome(), Outcome::Failed);
    assert!(
        played.reason().contains("visited 10 times"),
        "{}",
        played.reason()
    );
}

#[test]
fn breaker_trips_on_repeated_but_not_on_varied_failures() {
    let source = "steps:
  - {id: implement, command: x}
  - {id: test, needs: [implement], command: x, edges: [{target: implement, condition: outcome=failure}]}";
    // Numbers are accidental: the messages of all visits stand for the same failure.
    let played = play(source, &|step, _, _| {
        (step == "test").then_some(Cause::Auth)
    });
    assert_eq!(played.run.visits("test"), 3);
    assert!(
        played.reason().contains("circuit breaker"),
        "{}",
        played.reason()
    );
    let causes = [
        Cause::Auth,
        Cause::Billing,
        Cause::Permission,
        Cause::InvalidRequest,
    ];
    let varied: AttemptOutcome<'_> =
        &|step, visit, _| (step == "test" && visit <= 4).then(|| causes[visit as usize - 1]);
    assert_eq!(play(source, varied).outcome(), Outcome::Completed);
}

#[test]
fn branch_without_taken_edge_is_not_run() {
    let source = "steps:
  - {id: look, command: x, edges: [{target: hard, condition: context.size=big}, {target: easy}]}
  - {id: easy, command: x}
  - {id: hard, command: x}
  - {id: after, needs: [hard], command: x}";
    let played = play(source, ALWAYS_SUCCEEDS);
    assert_eq!(played.visited(), ["look", "easy"]);
    assert_eq!(played.outcome(), Outcome::Completed);
}

#[test]
fn edge_to_complete_ends_the_run() {
    let source = "steps:
  - {id: look, command: x, edges: [{target: _complete}]}
  - {id: after, needs: [look], command: x}";
    let played = play(source, ALWAYS_SUCCEEDS);
    assert_eq!(played.visited(), ["look"]);
    assert_eq!(played.outcome(), Outcome::Completed);
}

const LOOP: &str = "steps:
  - id: again
    loop:
      max_iterations: 4
      until: outcome=success
      steps: [{id: make, command: x}, {id: check, needs: [make], command: x}]
  - {id: after, needs: [again], command: x}";

#[test]
fn loop_ends_when_its_condition_holds() {
    let played = play(LOOP, &|step, visit, _| {
        (step == "check" && visit < 3).then_some(Cause::InvalidRequest)
    });
    assert_eq!(played.run.visits("check"), 3);
    assert_eq!(played.outcome(), Outcome::Completed);
    assert_eq!(played.phase("after"), Phase::Ended(Outcome::Completed));
}

#[test]
fn loop_fails_when_condition_never_holds() {
    let causes = [
        Cause::Auth,
        Cause::Billing,
        Cause::Permission,
        Cause::InvalidRequest,
    ];
    let played = play(LOOP, &|step, visit, _| {
        (step == "check").then(|| causes[visit as usize - 1])
    });
    assert_eq!(played.run.visits("check"), 4);
    assert_eq!(played.outcome(), Outcome::Failed);
    assert_eq!(played.phase("after"), Phase::Idle);
}

#[test]
fn loop_iterates_despite_steps_that_cannot_run() {
    let played = play(LOOP, &|step, visit, _| {
        (step == "make" && visit < 2).then_some(Cause::Auth)
    });
    assert_eq!(played.run.visits("make"), 2);
    assert_eq!(played.outcome(), Outcome::Completed);
}

#[test]
fn restarted_run_keeps_completed_steps() {
    let source = "steps: [{id: a, command: x}, {id: b, needs: [a], command: x}]";
    let pipeline = pipeline(source);
    let fails: AttemptOutcome<'_> = &|step, _, _| (step == "b").then_some(Cause::Auth);
    let first = play_from(&pipeline, fails, Vec::new(), usize::MAX);
    let mut entries = first.entries;
    entries.push(Entry::RunStarted(Box::default()));
    let second = play_from(&pipeline, ALWAYS_SUCCEEDS, entries, usize::MAX);
    assert_eq!(second.visited(), ["a", "b", "b"]);
    assert_eq!(second.outcome(), Outcome::Completed);
}

#[test]
fn expired_gate_takes_its_default_or_fails() {
    let ends = |gate: &str| {
        play(
            &format!("steps: [{{id: g, gate: {gate}}}]"),
            ALWAYS_SUCCEEDS,
        )
        .outcome()
    };
    assert_eq!(
        ends("{type: approval, message: Go?, default: y}"),
        Outcome::Completed
    );
    assert_eq!(
        ends("{type: approval, message: Go?, default: n}"),
        Outcome::Failed
    );
    assert_eq!(ends("{type: approval, message: Go?}"), Outcome::Failed);
    assert_eq!(ends("{type: timer, timeout: 10m}"), Outcome::Completed);
}
