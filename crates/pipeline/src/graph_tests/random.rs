//! Random pipelines and outcomes.

use super::*;
use proptest::prelude::*;

/// Generates a pipeline of random size with random needs, and an outcome for each attempt.
fn any_pipeline() -> impl Strategy<Value = (String, Vec<u8>, usize)> {
    let needs = proptest::collection::vec(proptest::collection::vec(0usize..100, 0..3), 1..14);
    let fates = proptest::collection::vec(0u8..12, 64);
    (needs, fates, 1usize..5, 0usize..4).prop_map(|(needs, fates, room, mode)| {
        let mode = [
            "",
            ", on_failure: skip",
            ", on_failure: continue",
            ", edges: [{target: s0, condition: outcome=failure}]",
        ][mode];
        let steps: Vec<String> = needs
            .iter()
            .enumerate()
            .map(|(place, needs)| {
                let needs: BTreeSet<String> = needs
                    .iter()
                    .filter(|_| place > 0)
                    .map(|need| format!("s{}", need % place.max(1)))
                    .collect();
                let needs: Vec<String> = needs.into_iter().collect();
                let mode = if place > 0 { mode } else { "" };
                format!(
                    "  - {{id: s{place}, needs: [{}], command: x{mode}}}",
                    needs.join(", ")
                )
            })
            .collect();
        (
            format!(
                "runtime: {{max_concurrency: {room}}}\nsteps:\n{}",
                steps.join("\n")
            ),
            fates,
            room,
        )
    })
}

fn outcomes_from(fates: &[u8]) -> impl Fn(&str, u32, u32) -> Option<Cause> {
    let fates = fates.to_vec();
    move |step: &str, visit: u32, attempt: u32| {
        let place: usize = step[1..].parse().unwrap();
        match fates[(place * 7 + visit as usize * 3 + attempt as usize) % fates.len()] {
            0 => Some(Cause::Auth),
            1 => Some(Cause::TestsFailed),
            2 => Some(Cause::RateLimited),
            _ => None,
        }
    }
}

/// Returns the result of a run, independent of the process that executed it.
fn summarize(played: &SimulatedRun) -> (Outcome, Vec<(String, String, usize)>) {
    let steps = played.run.steps.iter();
    let steps =
        steps.map(|(name, step)| (name.clone(), format!("{:?}", step.phase), step.visits.len()));
    (played.outcome(), steps.collect())
}

proptest! {
    #[test]
    fn every_run_ends_and_no_step_runs_before_its_needs((source, fates, room) in any_pipeline()) {
        let pipeline = pipeline(&source);
        let played = play_from(&pipeline, &outcomes_from(&fates), Vec::new(), usize::MAX);
        prop_assert!(played.run.ended.is_some());
        prop_assert!(played.most_working <= room);
        let mut run = Run::default();
        for entry in &played.entries {
            if let Entry::StepStarted { step, .. } = entry {
                for need in &pipeline.step(step).unwrap().needs {
                    let phase = run.phase(need);
                    prop_assert!(matches!(phase, Phase::Ended(Outcome::Completed | Outcome::Continued)), "{step} before {need}: {phase:?}");
                }
            }
            run.apply(Timestamp::from_millis(0), entry);
        }
        let mut ends = BTreeSet::new();
        for entry in &played.entries {
            if let Entry::StepEnded { step, visit, .. } = entry && *visit > 0 {
                prop_assert!(ends.insert((step.clone(), *visit)), "{step} ended twice");
            }
        }
    }

    #[test]
    fn resumed_run_ends_as_an_uninterrupted_one((source, fates, _) in any_pipeline(), cut in 1usize..60) {
        let pipeline = pipeline(&source);
        let fate = outcomes_from(&fates);
        let whole = play_from(&pipeline, &fate, Vec::new(), usize::MAX);
        let begun = play_from(&pipeline, &fate, Vec::new(), cut);
        let resumed = play_from(&pipeline, &fate, begun.entries, usize::MAX);
        prop_assert_eq!(summarize(&whole), summarize(&resumed), "{}", source);
    }
}
