//! The known test runners: their command lines, and the exit codes that mean failed tests.
//!
//! Data: a new runner is a row. A build failure counts as failing tests: it is repaired in the same way.

use super::command_line::SimpleCommand;

/// The exit codes that mean failed tests.
#[derive(Clone, Copy, Debug)]
enum FailureCodes {
    /// The given codes.
    OneOf(&'static [i32]),
    /// Any code by which a program ends itself: the runner passes on the code of a program that it started.
    Any,
}

use FailureCodes::{Any, OneOf};

const EXIT_ONE: FailureCodes = OneOf(&[1]);

/// The programs of a runner; the words of which one must be among its first arguments, if there are any; and its codes.
const RUNNERS: &[(&str, &str, FailureCodes)] = &[
    ("go", "test", EXIT_ONE),
    ("gotestsum ginkgo", "", EXIT_ONE),
    ("cargo", "test t", OneOf(&[101])),
    ("cargo", "nextest", OneOf(&[100, 101])),
    ("cargo-nextest", "", OneOf(&[100, 101])),
    ("npm pnpm yarn bun", "test t tst test:", Any),
    ("node", "--test", EXIT_ONE),
    ("deno swift dart flutter dotnet", "test", EXIT_ONE),
    ("jest vitest ava karma", "", EXIT_ONE),
    ("mocha", "", Any),
    ("playwright", "test", EXIT_ONE),
    ("cypress", "run", Any),
    ("pytest py.test nose2 behave trial", "", EXIT_ONE),
    ("python python3", "pytest unittest nose2", EXIT_ONE),
    ("tox nox", "", Any),
    ("make gmake", "test tests check test-", OneOf(&[2])),
    ("just task invoke composer", "test tests", Any),
    ("mvn mvnw", "test verify install package", EXIT_ONE),
    ("gradle gradlew", "test check build", EXIT_ONE),
    ("sbt lein stack cabal rails rake", "test spec", EXIT_ONE),
    ("ctest", "", OneOf(&[8])),
    ("meson ninja", "test", Any),
    ("bazel bazelisk", "test", OneOf(&[1, 3])),
    ("rspec bats busted", "", EXIT_ONE),
    ("mix", "test", OneOf(&[1, 2])),
    ("phpunit pest", "", OneOf(&[1, 2])),
    ("prove", "", Any),
    ("xcodebuild", "test", OneOf(&[65])),
    ("zig", "test", EXIT_ONE),
];

/// Messages that mean that the tests are not at fault: the test target is missing, or the runner was called in a wrong
/// way.
const NOT_TEST_FAILURES: &[&str] = &[
    "missing script",
    "no test specified",
    "no rule to make target",
    "no makefile found",
    "no targets specified",
    "could not find `cargo.toml`",
    "could not find cargo.toml",
    "go.mod file not found",
    "there is no pom in this directory",
    "does not contain a gradle build",
    "command not found",
    ": not found",
    "no tests found",
    "no tests ran",
];

/// Prefixes of lines in which runners report downloads, before any test.
const DOWNLOAD_PREFIXES: &[&str] = &[
    "go: ",
    "error: failed to download",
    "error: failed to get",
    "error: failed to fetch",
    "warning: spurious network error",
    "npm err! network",
    "npm error network",
    "npm err! code e",
    "npm error code e",
    "[error] failed to execute goal on project",
    "> could not resolve",
    "could not resolve all",
];

/// Markers that prove that tests ran and failed, whatever else was run.
const FAILURE_MARKERS: &[&str] = &[
    "--- fail",
    "fail\t",
    "test result: failed",
    "failures:",
    "=== failures",
    "failed (",
    " failing",
    " failed, ",
    "tests failed",
    "test failed",
    "not ok ",
    "assertionerror",
    "short test summary",
    "during collection",
    "[build failed]",
    "[setup failed]",
];

/// Returns whether the program is a test runner and the code means that its tests failed.
pub(super) fn is_test_failure(code: i32, program: &SimpleCommand, printed: &str) -> bool {
    let is_it = |(programs, words, _): &&(&str, &str, _)| is_runner(program, programs, words);
    let Some((.., codes)) = RUNNERS.iter().find(is_it) else {
        return false;
    };
    let printed = printed.to_lowercase();
    let fits = match codes {
        OneOf(codes) => codes.contains(&code),
        Any => (1..126).contains(&code),
    };
    // Two runners exit differently when they cannot read their tests.
    let unreadable = code == 2 && contains_any(&printed, &["during collection", "[build failed]"]);
    let python = ["pytest", "py.test", "python", "python3", "go"].contains(&program.program());
    (fits || (python && unreadable)) && !contains_any(&printed, NOT_TEST_FAILURES)
}

/// Returns whether the output proves that tests ran and failed.
pub(super) fn has_failure_markers(printed: &str) -> bool {
    contains_any(&printed.to_lowercase(), FAILURE_MARKERS)
}

/// Returns whether the line reports a download of a test runner.
pub(super) fn is_download_line(line: &str) -> bool {
    let line = line.trim().to_lowercase();
    DOWNLOAD_PREFIXES
        .iter()
        .any(|start| line.starts_with(start))
}

fn contains_any(text: &str, phrases: &[&str]) -> bool {
    phrases.iter().any(|phrase| text.contains(phrase))
}

fn is_runner(simple: &SimpleCommand, programs: &str, words: &str) -> bool {
    let fits = |argument: &String| {
        words
            .split(' ')
            .any(|word| match word.ends_with([':', '-']) {
                true => argument.starts_with(word),
                false => argument == word,
            })
    };
    programs
        .split(' ')
        .any(|program| program == simple.program())
        && (words.is_empty() || simple.arguments().iter().take(6).any(fits))
}
