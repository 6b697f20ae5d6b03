//! Counts machine instructions: runs each case of a bench under callgrind and checks its limit.
//!
//! A bench includes this file by its path and calls [`run`] from its `main`. Each case runs twice, once with twice as
//! many rounds; the difference, divided by the rounds, is the cost of one round when everything is warm. Counts do not
//! depend on the machine's load, so there is no noise to allow for. They are those of the test profile: optimised, with
//! assertions and overflow checks, some tenth more than in a release.

use std::process::Command;

/// Keeps the C library from making counts jump with the size: by copying with an instruction that counts once for each
/// byte, and by moving its border between memory that it copies and memory that it maps anew.
const STEADY: &str =
    "glibc.cpu.x86_rep_movsb_threshold=0x7fffffffffffffff:glibc.malloc.mmap_threshold=131072";

/// A case to count.
pub(crate) struct Case {
    /// The name of the case on the command line.
    pub(crate) name: &'static str,
    /// The instructions of a round when the case was last checked; lower it after an improvement.
    pub(crate) baseline: u64,
    /// The most instructions that a round may take.
    pub(crate) limit: u64,
    /// Runs the case so many times.
    pub(crate) run: fn(u64),
}

/// Follows the command line's arguments. For `cargo bench`: counts all cases, fails when one passes its limit or its
/// baseline by more than a quarter, and returns the counts. Else runs the cases once each, or the named one, and
/// counts nothing.
pub(crate) fn run(cases: &[Case], rounds: u64) -> Vec<u64> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["run", name, rounds] => {
            let case = cases
                .iter()
                .find(|case| case.name == name)
                .expect("a known case");
            (case.run)(rounds.parse().expect("a number of rounds"));
            Vec::new()
        }
        // `cargo bench` passes this; `cargo test` only checks that the cases run.
        ["--bench"] => check_all(cases, rounds),
        _ => {
            cases.iter().for_each(|case| (case.run)(1));
            Vec::new()
        }
    }
}

fn check_all(cases: &[Case], rounds: u64) -> Vec<u64> {
    let mut counts = Vec::new();
    let mut failed = Vec::new();
    for case in cases {
        let each = (count(case, 2 * rounds) - count(case, rounds)) / rounds;
        let most = case.limit.min(case.baseline + case.baseline / 4);
        println!(
            "{:<30} {each:>8} instructions  (baseline {}, at most {most})",
            case.name, case.baseline
        );
        if each > most {
            failed.push(case.name);
        }
        counts.push(each);
    }
    assert!(
        failed.is_empty(),
        "more instructions than allowed: {}",
        failed.join(", ")
    );
    counts
}

fn count(case: &Case, rounds: u64) -> u64 {
    let mut command = valgrind();
    command
        .arg(std::env::current_exe().expect("the path of this program"))
        .args(["run", case.name, &rounds.to_string()]);
    collected(&mut command)
}

/// Returns a command that counts the instructions of the program in its further arguments.
pub(crate) fn valgrind() -> Command {
    let mut command = Command::new("valgrind");
    command
        .env("GLIBC_TUNABLES", STEADY)
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
    command
}

/// Returns the instructions that a program takes under [`valgrind`]. The program has to succeed.
pub(crate) fn collected(command: &mut Command) -> u64 {
    let output = command
        .output()
        .expect("valgrind runs; scripts/test installs it");
    let report = String::from_utf8_lossy(&output.stderr);
    let counted = report
        .lines()
        .find_map(|line| line.split("Collected : ").nth(1));
    match counted.and_then(|number| number.trim().parse().ok()) {
        Some(number) if output.status.success() => number,
        _ => panic!("{command:?} was not counted: {report}"),
    }
}
