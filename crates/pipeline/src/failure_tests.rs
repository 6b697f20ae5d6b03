use super::*;
use Cause::{
    Auth, Billing, CeilingReached, CommandFailed, ContextOverflow, InvalidRequest, Misconfigured,
    MissingBinary, ModelNotFound, Network, Overloaded, Permission, RateLimited, ServerError,
    TestsFailed, Timeout, TruncatedStream, Unknown, UsageLimit,
};

const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

fn shell(line: &str) -> CommandLine {
    CommandLine::Shell(line.to_owned())
}

fn exit(code: i32, errors: &str) -> ProcessResult {
    ProcessResult {
        code: Some(code),
        errors: errors.to_owned(),
        tail: errors.to_owned(),
        ..ProcessResult::default()
    }
}

fn printed(code: i32, output: &str) -> ProcessResult {
    ProcessResult {
        errors: String::new(),
        ..exit(code, output)
    }
}

fn cause(line: &str, ran: &ProcessResult) -> Cause {
    command_problem(&shell(line), ran, false, NOW).cause
}

#[test]
fn command_message_decides_cause_when_exit_code_is_generic() {
    let table = [
        ("HTTP 401: invalid x-api-key", Auth),
        ("401 invalid x-api-key", Auth),
        ("Error: insufficient_quota", Billing),
        ("error: credit balance is too low", Billing),
        ("write /tmp/x: no space left on device", Misconfigured),
        (
            "Error: ENOSPC: no space left on device, write",
            Misconfigured,
        ),
        (
            "Error: maximum context length is 128000 tokens",
            ContextOverflow,
        ),
        ("ENOSPC", Misconfigured),
        ("model not found", ModelNotFound),
        ("429 Too Many Requests", RateLimited),
        ("API 429", RateLimited),
        ("HTTP 429", RateLimited),
        ("error: HTTP 429", RateLimited),
        (
            "panic: runtime error: invalid memory address or nil pointer dereference",
            Unknown,
        ),
        ("rate limit exceeded while running npm test x", RateLimited),
        ("rate limit: unauthorized burst", RateLimited),
        ("budget exceeded: 5.00 of 5.00 dollars", CeilingReached),
        (
            "fatal: unable to access 'https://x/': Could not resolve host: x",
            Network,
        ),
        ("Error: connect ECONNREFUSED 127.0.0.1:80", Network),
        ("npm ERR! code ECONNRESET", Network),
        ("error: 503 Service Unavailable", Overloaded),
        ("Error: 500 Internal Server Error", ServerError),
        ("fatal: Authentication failed for 'https://x/'", Auth),
        ("git@x: Permission denied (publickey).", Permission),
        ("cat: x: No such file or directory", Misconfigured),
        (
            "exec: \"foo\": executable file not found in $PATH",
            MissingBinary,
        ),
        (
            "bash: -c: line 2: syntax error: unexpected end of file",
            Unknown,
        ),
        ("error: could not parse the file", Unknown),
        ("Error: something must be an object", Unknown),
        ("error: an unexpected error", Unknown),
        ("Error: context canceled", Unknown),
        ("deployment not found", Unknown),
        ("", Unknown),
    ];
    for (said, expected) in table {
        assert_eq!(cause("./deploy", &exit(1, said)), expected, "{said}");
        let both = format!("working\n{said}\n");
        let from_output = cause("./deploy", &printed(1, &both));
        assert_eq!(from_output, expected, "{said}, to its output");
    }
}

#[test]
fn known_exit_code_decides_cause() {
    let said = "429 Too Many Requests";
    let table = [
        ("curl -sS https://x", 6, Network),
        ("curl -sS https://x", 7, Network),
        ("curl -sS https://x", 28, Timeout),
        ("curl -sS https://x", 35, Network),
        ("curl -sS https://x", 52, Network),
        ("curl -sS https://x", 56, Network),
        ("curl -sS https://x", 18, TruncatedStream),
        ("curl -sS https://x", 60, Misconfigured),
        ("curl -sS https://x", 3, InvalidRequest),
        ("curl -fsS https://x", 22, RateLimited),
        ("wget https://x", 4, Network),
        ("timeout 5 ./work", 124, Timeout),
        ("./work", 124, RateLimited),
        ("./work", 75, RateLimited),
        ("./work", 130, Unknown),
        ("./work", 143, Unknown),
        ("go test ./...", 1, TestsFailed),
    ];
    for (line, code, expected) in table {
        assert_eq!(cause(line, &exit(code, said)), expected, "{line}: {code}");
    }
    let quiet = [
        (75, CommandFailed),
        (77, Permission),
        (78, Misconfigured),
        (127, MissingBinary),
        (126, Permission),
        (137, Misconfigured),
        (139, Unknown),
        (1, Unknown),
    ];
    for (code, expected) in quiet {
        assert_eq!(cause("./work", &exit(code, "")), expected, "{code}");
    }
}

#[test]
fn curl_http_error_maps_to_status_of_server() {
    let table = [
        (
            "curl: (22) The requested URL returned error: 503",
            Overloaded,
        ),
        ("curl: (22) The requested URL returned error: 401", Auth),
        (
            "curl: (22) The requested URL returned error: 429",
            RateLimited,
        ),
    ];
    for (said, expected) in table {
        assert_eq!(
            cause("curl -f https://x", &exit(22, said)),
            expected,
            "{said}"
        );
    }
}

#[test]
fn foreign_signal_decides_cause() {
    let table = [
        (2, Unknown),
        (15, Unknown),
        (9, Misconfigured),
        (11, Unknown),
        (6, Unknown),
        (25, Misconfigured),
        (13, Unknown),
    ];
    for (signal, expected) in table {
        let ran = ProcessResult {
            signal: Some(signal),
            ..ProcessResult::default()
        };
        let problem = command_problem(&shell("go test ./..."), &ran, false, NOW);
        assert_eq!(problem.cause, expected, "{signal}");
        assert!(
            problem
                .message
                .starts_with(&format!("killed by signal {signal}"))
        );
    }
}

#[test]
fn failing_tests_are_recognized_for_every_runner() {
    let table = [
        ("go test ./...", 1),
        ("cargo test", 101),
        ("cargo +nightly test --workspace", 101),
        ("cargo nextest run", 100),
        ("npm test", 1),
        ("npm run test", 1),
        ("npm run test:unit", 3),
        ("pnpm -r test", 1),
        ("yarn test", 1),
        ("bun test", 1),
        ("node --test", 1),
        ("pytest -q", 1),
        ("python -m pytest", 1),
        ("python3 -m unittest", 1),
        ("make -C sub test", 2),
        ("make check", 2),
        ("mvn -q test", 1),
        ("./gradlew test", 1),
        ("npx jest --ci", 1),
        ("vitest run", 1),
        ("ctest --output-on-failure", 8),
        ("dotnet test", 1),
        ("bundle exec rspec", 1),
        ("mix test", 2),
        ("./vendor/bin/phpunit", 2),
        ("tox -e py312", 1),
        ("cd sub && FOO=1 timeout 60 go test ./... 2>&1", 1),
        ("go build ./... && go test ./...", 1),
    ];
    for (line, code) in table {
        assert_eq!(
            cause(line, &exit(code, "something else")),
            TestsFailed,
            "{line}"
        );
        let program = line.split(' ').map(str::to_owned).collect();
        if !line.contains(['&', '=']) {
            let problem =
                command_problem(&CommandLine::Program(program), &exit(code, ""), false, NOW);
            assert_eq!(problem.cause, TestsFailed, "{line}, without a shell");
        }
    }
}

#[test]
fn runner_error_other_than_failing_tests_keeps_its_cause() {
    let table = [
        (
            "pytest --nope",
            4,
            "ERROR: usage: pytest [options]",
            Unknown,
        ),
        ("pytest", 5, "no tests ran in 0.01s", Unknown),
        (
            "pytest",
            2,
            "Interrupted: 1 error during collection",
            TestsFailed,
        ),
        ("npm test", 1, "npm error Missing script: \"test\"", Unknown),
        (
            "make test",
            2,
            "make: *** No rule to make target 'test'.  Stop.",
            Unknown,
        ),
        ("npm test", 127, "sh: 1: jest: not found", MissingBinary),
        (
            "cd nope && go test ./...",
            1,
            "bash: line 1: cd: nope: No such file or directory",
            Misconfigured,
        ),
        (
            "cargo test",
            101,
            "error: failed to download `x`\nCaused by:\n  [6] Could not resolve host: x",
            TestsFailed,
        ),
        (
            "cargo test",
            101,
            "error: failed to download from `https://x`: Could not resolve host: x",
            Network,
        ),
        (
            "go test ./...",
            1,
            "go: x@v1: Get \"https://proxy\": dial tcp: lookup proxy: i/o timeout",
            Network,
        ),
        ("npm ci && npm test", 1, "npm ERR! code ECONNRESET", Network),
        (
            "npm ci && npm test",
            1,
            "Error: connect ECONNREFUSED\nTests: 1 failed, 2 passed",
            TestsFailed,
        ),
    ];
    for (line, code, said, expected) in table {
        assert_eq!(cause(line, &exit(code, said)), expected, "{line}: {said}");
    }
}

#[test]
fn runner_counts_only_if_exit_code_may_be_its_own() {
    let table = [
        ("go test ./... | tee log", 1, "", Unknown),
        ("echo go test", 1, "", Unknown),
        ("go vet ./...", 1, "", Unknown),
        ("./ci", 1, "--- FAIL: TestA (0.03s)", TestsFailed),
    ];
    for (line, code, said, expected) in table {
        assert_eq!(cause(line, &exit(code, said)), expected, "{line}: {said}");
    }
}

#[test]
fn failing_test_problem_has_test_name_and_output_end() {
    let output = "=== RUN TestA\n--- FAIL: TestA (0.03s)\n    a_test.go:3: no\nFAIL\nFAIL\tx\t0.1s";
    let problem = command_problem(&shell("go test ./..."), &printed(1, output), true, NOW);
    assert_eq!(
        problem.message,
        "`go test ./...` failed: --- FAIL: TestA (0.03s)"
    );
    assert_eq!(problem.violations, [output]);
    assert_eq!(problem.class, Class::TestFailure);
}

#[test]
fn error_mentioned_in_passing_does_not_decide_cause() {
    let table = [
        "INFO: got 429, retrying in 3 s\nError: assertion mismatch",
        "level=warn msg=\"rate limit exceeded\"\nError: assertion mismatch",
        "request failed with 429, retrying\npanic: no",
        "[debug] error 503\nnothing more was said",
    ];
    for said in table {
        assert_eq!(cause("./work", &exit(1, said)), Unknown, "{said}");
    }
}

#[test]
fn error_is_found_around_stack_trace() {
    let node = "Error: connect ECONNREFUSED 127.0.0.1:80\n    at a (b.js:1)\n    at c (d.js:2) {\n  errno: -111,\n  \
                code: 'ECONNREFUSED',\n  address: '127.0.0.1'\n}\n\nNode.js v22.0.0";
    assert_eq!(cause("./work", &exit(1, node)), Network);
    let python = "Traceback (most recent call last):\n  File \"x.py\", line 1, in <module>\n    get()\n\
                  requests.exceptions.ConnectionError: Connection refused";
    assert_eq!(cause("./work", &exit(1, python)), Network);
}

#[test]
fn stderr_is_read_before_later_output() {
    let ran = ProcessResult {
        errors: "error: HTTP 429".to_owned(),
        tail: "error: HTTP 429\nall 3 failed".to_owned(),
        ..exit(1, "")
    };
    let problem = command_problem(&shell("./work"), &ran, false, NOW);
    assert_eq!(problem.cause, RateLimited);
    assert_eq!(problem.message, "exit status 1: error: HTTP 429");
}

#[test]
fn stated_retry_time_is_kept_only_for_transient_cause() {
    let ran = exit(1, "Error: 429 rate limit exceeded, try again in 30 seconds");
    let problem = command_problem(&shell("./work"), &ran, false, NOW);
    assert_eq!(
        problem.not_before,
        Some(Timestamp::from_millis(1_800_000_030_000))
    );
    let refused = exit(1, "Error: 401 unauthorized, try again in 30 seconds");
    let problem = super::command_problem(&shell("./work"), &refused, false, NOW);
    assert_eq!((problem.cause, problem.not_before), (Auth, None));
}

#[test]
fn unknown_failure_is_retryable_only_with_explicit_policy() {
    let table = [
        (exit(1, ""), Unknown, CommandFailed),
        (exit(3, "it did not work"), Unknown, CommandFailed),
        (
            exit(1, "panic: nil pointer dereference"),
            Unknown,
            CommandFailed,
        ),
        (exit(137, ""), Misconfigured, CommandFailed),
        (exit(139, ""), Unknown, CommandFailed),
        (exit(1, "HTTP 401: invalid x-api-key"), Auth, Auth),
        (
            exit(1, "no space left on device"),
            Misconfigured,
            Misconfigured,
        ),
        (exit(127, ""), MissingBinary, MissingBinary),
        (exit(130, ""), Unknown, CommandFailed),
    ];
    for (ran, silent, explicit) in table {
        let causes = [false, true]
            .map(|is_explicit| command_problem(&shell("./work"), &ran, is_explicit, NOW).cause);
        assert_eq!(causes, [silent, explicit], "{ran:?}");
    }
}

#[test]
fn agent_error_decides_cause_regardless_of_exit_code() {
    let table = [
        ("error_max_turns", CeilingReached),
        ("Prompt is too long", ContextOverflow),
        ("Claude AI usage limit reached|1800003600", UsageLimit),
        ("You've hit your limit · resets 3pm (UTC)", UsageLimit),
        (
            "API Error: 529 {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}",
            Overloaded,
        ),
        (
            "API Error: 401 {\"error\":{\"message\":\"invalid x-api-key\"}}",
            Auth,
        ),
        (
            "unexpected status 401 Unauthorized: Incorrect API key provided",
            Auth,
        ),
        (
            "stream disconnected before completion: error sending request",
            TruncatedStream,
        ),
        (
            "exceeded retry limit, last status: 429 Too Many Requests",
            RateLimited,
        ),
        (
            "Your input exceeds the context window of this model.",
            ContextOverflow,
        ),
        ("Model not found: x/y", Cause::ModelNotFound),
        ("Credit balance is too low", Billing),
        ("it is not so", Unknown),
    ];
    for (error, expected) in table {
        for code in [0, 1] {
            let problem = agent_problem(Some(error), &exit(code, ""), false, NOW);
            assert_eq!(problem.cause, expected, "{error}");
            assert_eq!(problem.message, error);
        }
    }
    let silent = agent_problem(None, &exit(1, "Error: invalid model x"), false, NOW);
    assert_eq!(silent.cause, Cause::ModelNotFound);
    let killed = ProcessResult {
        signal: Some(15),
        ..ProcessResult::default()
    };
    assert_eq!(agent_problem(None, &killed, true, NOW).cause, CommandFailed);
}
