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

struct Runner {
    programs: &'static [&'static str],
    /// The words of which one must be among the first non-option arguments; if empty, none is required.
    words: &'static [&'static str],
    codes: FailureCodes,
}

const fn runner(
    programs: &'static [&'static str],
    words: &'static [&'static str],
    codes: FailureCodes,
) -> Runner {
    Runner {
        programs,
        words,
        codes,
    }
}

const EXIT_ONE: FailureCodes = FailureCodes::OneOf(&[1]);

const RUNNERS: &[Runner] = &[
    runner(&["go"], &["test"], EXIT_ONE),
    runner(&["gotestsum", "ginkgo"], &[], EXIT_ONE),
    runner(&["cargo"], &["test", "t"], FailureCodes::OneOf(&[101])),
    runner(&["cargo"], &["nextest"], FailureCodes::OneOf(&[100, 101])),
    runner(&["cargo-nextest"], &[], FailureCodes::OneOf(&[100, 101])),
    runner(
        &["npm", "pnpm", "yarn", "bun"],
        &["test", "t", "tst"],
        FailureCodes::Any,
    ),
    runner(
        &["npm", "pnpm", "yarn", "bun"],
        &["test:"],
        FailureCodes::Any,
    ),
    runner(&["node"], &["--test"], EXIT_ONE),
    runner(
        &["deno", "swift", "dart", "flutter", "dotnet"],
        &["test"],
        EXIT_ONE,
    ),
    runner(&["jest", "vitest", "ava", "karma"], &[], EXIT_ONE),
    runner(&["mocha"], &[], FailureCodes::Any),
    runner(&["playwright"], &["test"], EXIT_ONE),
    runner(&["cypress"], &["run"], FailureCodes::Any),
    runner(
        &["pytest", "py.test", "nose2", "behave", "trial"],
        &[],
        EXIT_ONE,
    ),
    runner(
        &["python", "python3"],
        &["pytest", "unittest", "nose2"],
        EXIT_ONE,
    ),
    runner(&["tox", "nox"], &[], FailureCodes::Any),
    runner(
        &["make", "gmake"],
        &["test", "tests", "check", "test-"],
        FailureCodes::OneOf(&[2]),
    ),
    runner(
        &["just", "task", "invoke", "composer"],
        &["test", "tests"],
        FailureCodes::Any,
    ),
    runner(
        &["mvn", "mvnw"],
        &["test", "verify", "install", "package"],
        EXIT_ONE,
    ),
    runner(
        &["gradle", "gradlew"],
        &["test", "check", "build"],
        EXIT_ONE,
    ),
    runner(
        &["sbt", "lein", "stack", "cabal", "rails", "rake"],
        &["test", "spec"],
        EXIT_ONE,
    ),
    runner(&["ctest"], &[], FailureCodes::OneOf(&[8])),
    runner(&["meson", "ninja"], &["test"], FailureCodes::Any),
    runner(
        &["bazel", "bazelisk"],
        &["test"],
        FailureCodes::OneOf(&[1, 3]),
    ),
    runner(&["rspec", "bats", "busted"], &[], EXIT_ONE),
    runner(&["mix"], &["test"], FailureCodes::OneOf(&[1, 2])),
    runner(&["phpunit", "pest"], &[], FailureCodes::OneOf(&[1, 2])),
    runner(&["prove"], &[], FailureCodes::Any),
    runner(&["xcodebuild"], &["test"], FailureCodes::OneOf(&[65])),
    runner(&["zig"], &["test"], EXIT_ONE),
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

/// Returns whether one of the programs is a test runner and the code means that its tests failed.
pub(super) fn is_test_failure(code: i32, programs: &[SimpleCommand], printed: &str) -> bool {
    let runner = |simple: &SimpleCommand| RUNNERS.iter().find(|runner| runner.matches(simple));
    let Some((simple, runner)) = programs
        .iter()
        .find_map(|simple| Some((simple, runner(simple)?)))
    else {
        return false;
    };
    let printed = printed.to_lowercase();
    let fits = match runner.codes {
        FailureCodes::OneOf(codes) => codes.contains(&code),
        FailureCodes::Any => (1..126).contains(&code),
    };
    // Two runners exit differently when they cannot read their tests.
    let unreadable = code == 2 && contains_any(&printed, &["during collection", "[build failed]"]);
    let python = ["pytest", "py.test", "python", "python3", "go"].contains(&simple.program());
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

impl Runner {
    fn matches(&self, simple: &SimpleCommand) -> bool {
        let fits = |argument: &&String| {
            let argument = argument.as_str();
            self.words
                .iter()
                .any(|word| match word.strip_suffix([':', '-']) {
                    Some(_) => argument.starts_with(word),
                    None => argument == *word,
                })
        };
        self.programs.contains(&simple.program())
            && (self.words.is_empty() || simple.arguments().iter().take(6).any(|word| fits(&word)))
    }
}
