//! The names of the failed tests, from the output of a test runner.
//!
//! Invariant: the same tests give the same text, in whichever order they ended: the breaker compares failures by it.

use outlast_kernel::text;
use std::collections::BTreeSet;

/// Maximum number of failures to name, and the maximum bytes of each.
const MAX_FAILURES: usize = 6;
const MAX_FAILURE_BYTES: usize = 100;

/// Summarizes the failures: the lines that name a failed test, or else those that mention a failure, or else the last
/// line. The result is sorted, because tests end in any order.
pub(crate) fn summarize_failures(printed: &str) -> String {
    let lines = || {
        printed
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
    };
    let such = |fits: fn(&str) -> bool| -> BTreeSet<&str> {
        lines().filter(|line| fits(&line.to_lowercase())).collect()
    };
    let said = [such(is_named_failure), such(mentions_failure)];
    let said = said.into_iter().find(|said| !said.is_empty());
    let said = said.unwrap_or_else(|| lines().next_back().into_iter().collect());
    let said = said.into_iter().take(MAX_FAILURES);
    let said = said.map(|line| text::bounded(line, MAX_FAILURE_BYTES));
    said.collect::<Vec<_>>().join("; ")
}

/// Returns whether a test runner names a failure by the line, which is in lower case.
fn is_named_failure(line: &str) -> bool {
    const BEGINNINGS: [&str; 12] = [
        "--- fail:",
        "failed ",
        "fail:",
        "not ok ",
        "error:",
        "rspec ./",
        "✕",
        "✗",
        "✖",
        "✘",
        "×",
        "●",
    ];
    let numbered = line.split_once(") ").is_some_and(|(number, _)| {
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    });
    numbered || BEGINNINGS.iter().any(|it| line.starts_with(it)) || line.ends_with("... failed")
}

/// Returns whether the line at least mentions a failure.
fn mentions_failure(line: &str) -> bool {
    const BEGINNINGS: [&str; 4] = ["fail", "error", "panic:", "fatal"];
    BEGINNINGS.iter().any(|it| line.starts_with(it))
        || line.contains("panicked at")
        || line.contains(": error")
}

#[cfg(test)]
mod tests {
    use super::*;
    use outlast_kernel::fingerprint::Fingerprint;
    use outlast_kernel::verdict::Class;

    #[test]
    fn failures_are_named_for_every_test_runner() {
        let table = [
            (
                "running 2 tests\ntest b ... FAILED\ntest a ... ok\n\nfailures:\n",
                "test b ... FAILED",
            ),
            (
                "=== RUN   TestA\n--- FAIL: TestA (0.03s)\n    a_test.go:7: no\nFAIL\n",
                "--- FAIL: TestA (0.03s)",
            ),
            (
                "FAILED tests/test_a.py::test_x - assert 1 == 2\n1 failed in 0.02s",
                "FAILED tests/test_a.py::test_x - assert 1 == 2",
            ),
            ("ok 1 - a\nnot ok 2 - b\n# fail 1", "not ok 2 - b"),
            ("  Suite\n    ✓ a\n    ✕ b (5 ms)\n", "✕ b (5 ms)"),
            ("  1) Cart adds up\n  2 passing", "1) Cart adds up"),
            (
                "src/a.ts(1,2): error TS2304: no name",
                "src/a.ts(1,2): error TS2304: no name",
            ),
            ("checked 3\nsum is wrong\n\n", "sum is wrong"),
            (
                "error[E0425]: cannot find value `x`\n --> src/a.rs:3:5\n",
                "error[E0425]: cannot find value `x`",
            ),
            (
                "ok\tx\t0.1s\nFAIL\ty [build failed]\n",
                "FAIL\ty [build failed]",
            ),
            ("", ""),
        ];
        for (printed, expected) in table {
            assert_eq!(summarize_failures(printed), expected, "{printed:?}");
        }
    }

    #[test]
    fn fingerprint_ignores_test_order_and_time_but_not_names() {
        let of = |printed: &str| {
            Fingerprint::new("test", Class::TestFailure, &summarize_failures(printed))
        };
        let one = of("--- FAIL: TestA (0.03s)\n--- FAIL: TestB (0.00s)\nFAIL");
        assert_eq!(
            one,
            of("--- FAIL: TestB (0.01s)\n--- FAIL: TestA (2.11s)\nFAIL")
        );
        assert_ne!(one, of("--- FAIL: TestA (0.03s)\nFAIL"));
    }
}
