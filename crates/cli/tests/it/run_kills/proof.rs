//! Checks that must hold of a run, no matter which of its processes were killed.

use super::scene::Scene;
use outlast_kernel::verdict::Cause;
use outlast_pipeline::entry::{Entry, Outcome};
use outlast_pipeline::state::{Phase, Run};
use std::collections::{BTreeMap, BTreeSet};

/// A step, a visit and an attempt.
pub(super) type Attempted = (String, u32, u32);

/// The result of a run, which must not depend on kills.
#[derive(Debug, PartialEq)]
pub(super) struct Result {
    outcome: Option<Outcome>,
    steps: BTreeMap<String, StepResult>,
}

#[derive(Debug, PartialEq)]
struct StepResult {
    phase: Phase,
    /// Its artifacts: names and hashes.
    artifacts: BTreeMap<String, String>,
    /// The outcome of each visit, and the cause of each failed attempt.
    visits: Vec<(Option<Outcome>, Vec<Option<Cause>>)>,
}

impl Result {
    pub(super) fn of(run: &Run) -> Self {
        let steps = run.steps.iter().map(|(name, state)| {
            let artifacts = state.artifacts.iter();
            let artifacts = artifacts.map(|(name, it)| (name.clone(), it.hash.clone()));
            let visits = state.visits.iter().map(|visit| {
                let problems = visit.attempts.iter();
                let problems = problems.map(|it| it.problem.as_ref().map(|it| it.cause));
                (
                    visit.ended.as_ref().map(|it| it.outcome),
                    problems.collect(),
                )
            });
            let result = StepResult {
                phase: state.phase,
                artifacts: artifacts.collect(),
                visits: visits.collect(),
            };
            (name.clone(), result)
        });
        Self {
            outcome: run.ended.as_ref().map(|ended| ended.outcome),
            steps: steps.collect(),
        }
    }

    pub(super) fn is_completed(&self) -> bool {
        self.outcome == Some(Outcome::Completed)
    }

    /// Checks the rules for every run, besides its result.
    #[expect(clippy::unused_self, reason = "what is sound is a result")]
    pub(super) fn is_sound(&self, scene: &Scene) {
        let entries: Vec<Entry> = scene.written().1.into_iter().map(|(.., it)| it).collect();
        no_step_is_completed_twice(scene, &entries);
        no_attempt_is_made_again_after_its_end(scene);
        nothing_is_said_twice(scene, &entries);
        let violations = scene.lines("violations");
        scene.check(
            violations.is_empty(),
            &format!("two at once: {violations:?}"),
        );
    }
}

/// Checks that a visit ends once, and nothing begins in it afterwards.
fn no_step_is_completed_twice(scene: &Scene, entries: &[Entry]) {
    let mut over = BTreeSet::new();
    let mut begun = BTreeSet::new();
    for entry in entries {
        match entry {
            Entry::StepEnded { step, visit, .. } => {
                let is_first = over.insert((step, *visit));
                scene.check(is_first, &format!("{step} ended twice in visit {visit}"));
            }
            Entry::StepStarted { step, visit } => {
                let is_new = !over.contains(&(step, *visit));
                scene.check(
                    is_new,
                    &format!("{step} was visited again in visit {visit}"),
                );
            }
            Entry::AttemptStarted {
                step,
                visit,
                attempt,
                ..
            } => {
                let is_open = !over.contains(&(step, *visit));
                let is_first = begun.insert((step, *visit, *attempt));
                scene.check(
                    is_open && is_first,
                    &format!("{step} began attempt {attempt} of visit {visit} late or again"),
                );
            }
            _ => {}
        }
    }
}

/// Checks that a command whose end is in the journal never runs again.
fn no_attempt_is_made_again_after_its_end(scene: &Scene) {
    for (attempt, begun) in scene.settled() {
        let now = scene.begun(attempt);
        scene.check(
            now == *begun,
            &format!("{attempt:?} had begun {begun} times, and now {now}"),
        );
    }
}

/// Checks that every attempt with a model is one turn, and no two turns of a session have the same
/// prompt.
fn nothing_is_said_twice(scene: &Scene, entries: &[Entry]) {
    let mut attempts: BTreeMap<&str, usize> = BTreeMap::new();
    for entry in entries {
        if let Entry::AttemptStarted {
            session: Some(session),
            ..
        } = entry
        {
            *attempts.entry(session).or_default() += 1;
        }
    }
    for (session, attempts) in attempts {
        let said = scene.of_session(session, &["prompt"]);
        let distinct: BTreeSet<String> = said.iter().map(|prompt| words(prompt)).collect();
        scene.check(
            said.len() == attempts && distinct.len() == attempts,
            &format!("{attempts} attempts in {session}, and it was said {said:?}"),
        );
        let settled = scene.of_session(session, &["settled"]).len();
        scene.check(
            settled == attempts,
            &format!("{settled} turns were settled in {session}"),
        );
    }
}

fn words(prompt: &str) -> String {
    let prompt: serde_json::Value = serde_json::from_str(prompt).unwrap();
    prompt["message"].to_string()
}
