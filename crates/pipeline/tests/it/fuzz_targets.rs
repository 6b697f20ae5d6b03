//! The fuzz targets, run over a fixed set of inputs: every seed, and deterministic mutations of the seeds.
//! `scripts/fuzz` runs the same targets with coverage guidance.

#[path = "../../../../fuzz/targets/mod.rs"]
mod targets;

use fastrand::Rng;
use std::path::Path;
use std::{fs, panic};

const MUTATIONS: usize = 5000;
const MAX_INPUT_LENGTH: usize = 4096;

/// The errors of the corpus, one seed per line, and the example pipelines.
fn seeds() -> Vec<Vec<u8>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let errors = fs::read_to_string(root.join("corpus/errors.jsonl")).unwrap();
    let mut seeds: Vec<Vec<u8>> = errors
        .lines()
        .map(|line| line.as_bytes().to_vec())
        .collect();
    let mut examples: Vec<_> = fs::read_dir(root.join("examples"))
        .unwrap()
        .map(|entry| entry.unwrap().path().join("pipeline.yaml"))
        .collect();
    examples.sort();
    seeds.extend(examples.iter().filter_map(|path| fs::read(path).ok()));
    seeds
}

/// Returns a seed with some bytes changed, inserted, removed, repeated or copied from another seed.
fn mutate(random: &mut Rng, seeds: &[Vec<u8>]) -> Vec<u8> {
    let mut input = random.choice(seeds).cloned().unwrap_or_default();
    for _ in 0..random.usize(1..8) {
        let start = random.usize(0..=input.len());
        let end = random.usize(start..=input.len().min(start + 64));
        match random.u8(0..5) {
            0 => input[start..end]
                .iter_mut()
                .for_each(|byte| *byte = random.u8(..)),
            1 => drop(input.splice(start..start, (0..random.usize(1..9)).map(|_| random.u8(..)))),
            2 => drop(input.drain(start..end)),
            3 => input.extend_from_within(start..end),
            _ => {
                let other = random.choice(seeds).map_or(&[][..], Vec::as_slice);
                let from = random.usize(0..=other.len());
                let piece = &other[from..other.len().min(from + 64)];
                drop(input.splice(start..end, piece.iter().copied()));
            }
        }
    }
    input.truncate(MAX_INPUT_LENGTH);
    input
}

fn run(name: &str) {
    let (_, target) = *targets::TARGETS
        .iter()
        .find(|(known, _)| *known == name)
        .unwrap();
    let (seeds, mut random) = (seeds(), Rng::with_seed(1));
    let mutations = (0..MUTATIONS).map(|_| mutate(&mut random, &seeds));
    for input in seeds.iter().cloned().chain(mutations) {
        let broken = panic::catch_unwind(|| target(&input)).is_err();
        assert!(
            !broken,
            "target {name} fails for the input \"{}\"",
            input.escape_ascii()
        );
    }
}

macro_rules! tests {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                run(stringify!($name));
            }
        )*

        #[test]
        fn every_target_has_a_test() {
            let names = targets::TARGETS.map(|(name, _)| name);
            assert_eq!(names, [$(stringify!($name)),*]);
        }
    };
}

tests! { answers dialects error_body fingerprint headers pipeline relay script sse wording }
