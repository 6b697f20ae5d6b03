//! `outlast -p` against the scripted provider over real HTTP, in every dialect: responses, faults, hints, secrets.

use crate::mock_server::{DIALECTS, MockServer, PLANTED};
use crate::support::{CommandResult, NO_TIMEOUTS, Outlast};
use serde_json::Value;
use std::path::Path;

/// Successful responses of every kind, and every fault of a provider or the network.
const SCRIPTS: &[&str] = &[
    // Successful responses.
    "ok",
    "ok:reasoning",
    "ok:tool",
    "ok:tools",
    "ok:refusal",
    "ok:length",
    "ok:empty",
    "ok:escapes",
    "ok:unknown-frames",
    "gzip",
    "drip:2000",
    "hold:200",
    "linger",
    // Error statuses.
    "overloaded:2",
    "overflow",
    "error:400",
    "error:401",
    "error:402",
    "error:403",
    "error:404",
    "error:413",
    "error:500",
    "error:502",
    "page:502,as=status",
    "echo-key",
    "redirect",
    "slow-error:503",
    "endless-error:503",
    // Errors inside a response with a success status.
    "in-band:overloaded",
    "in-band:rate-limited",
    "in-band:usage-limit",
    "in-band:server-error",
    "in-band:overflow",
    "in-band:auth",
    "in-band:billing",
    "in-band:overloaded,as=end",
    "in-band:overloaded,after=0",
    "in-band:overloaded,after=3",
    "json-error:overloaded",
    "json-error:billing",
    "page:429",
    "page:429,as=html",
    "page:403",
    "garbage",
    // Connections and streams that break.
    "reset",
    "close",
    "cut:0",
    "cut:0,clean",
    "cut:40",
    "cut:40,clean",
    "drop-after:0",
    "drop-after:3",
    "drop-after:0,of=tool",
    "no-finish",
    "no-finish:of=empty",
    "malformed",
    "malformed:3",
    "stall",
    "stall:3",
    "pings",
    "hold:4000",
    "bomb",
];

/// Summarises the visible outcome of one prompt.
fn seen(ran: &CommandResult) -> String {
    let mut lines = vec![format!("exit {}", ran.code)];
    lines.extend(ran.stdout.lines().map(|line| format!("out: {line}")));
    lines.extend(ran.stderr.lines().map(|line| format!("err: {line}")));
    lines.join("\n    ")
}

/// The size of a request depends on the name of the folder, which is part of the system prompt.
fn without_sizes(text: &str) -> String {
    let is_size = |word: &str| {
        let digits = word.trim_end_matches(',');
        matches!(digits.len(), 3 | 4) && digits.bytes().all(|b| b.is_ascii_digit())
    };
    let word = |word: &str| {
        if is_size(word) {
            "N".to_owned()
        } else {
            word.to_owned()
        }
    };
    let line = |line: &str| match line.contains(" tokens ") || line.contains(" bytes ") {
        true => line.split(' ').map(word).collect::<Vec<_>>().join(" "),
        false => line.to_owned(),
    };
    text.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

/// Scripts that must reach a time limit, and the limit. The retry after it must not: two or three seconds are enough
/// for that.
const LIMITED: [(&str, &str); 5] = [
    ("linger", "20m"),
    ("stall", "20m"),
    ("stall:3", "20m"),
    // A stream with nothing but keep-alive events gets three times the limit.
    ("pings", "10m"),
    ("hold:4000", "20m"),
];

/// Returns settings in which no other script reaches a limit.
fn limits() -> String {
    let limits = LIMITED.map(|(script, limit)| {
        format!(
            "[models.\"{script}\".timeouts]\nheaders = \"{limit}\"\nfirst_event = \"{limit}\"\nidle = \"{limit}\"\n"
        )
    });
    NO_TIMEOUTS.to_owned() + &limits.concat()
}

/// Returns the outcome of a script in a dialect.
fn outcome(mock: &MockServer, script: &str, dialect: &str, delivery: &[&str]) -> String {
    let ran = mock.ask(dialect, &[&["--model", script], delivery].concat());
    // The address of the server differs between runs.
    let seen = seen(&ran).replace(&mock.url(), "URL");
    // The end of a window, stated in whole seconds, may be a second later.
    let seen = seen.replace("5h1s", "5h");
    let seen = without_store_notices(&without_sizes(&seen));
    assert!(!seen.contains(PLANTED), "{script}: {seen}");
    assert!(!seen.contains('\u{1b}'), "{script}: {seen}");
    format!("{script}\n    {seen}\n")
}

/// Returns the text without the notices of a store that took longer than three seconds: a busy disk is no fault of a provider.
fn without_store_notices(seen: &str) -> String {
    let is_notice = |line: &&str| line.to_lowercase().contains("what other processes learn");
    let kept: Vec<&str> = seen.lines().filter(|line| !is_notice(line)).collect();
    kept.join("\n")
}

fn outcomes(dialect: &str, delivery: &[&str]) -> String {
    let start = || {
        let mock = MockServer::start();
        mock.outlast.write("home/outlast.toml", limits());
        mock
    };
    let is_limited = |script: &str| LIMITED.iter().any(|(limited, _)| *limited == script);
    let mock = start();
    std::thread::scope(|scope| {
        // Scripts that wait for seconds run in parallel with the others and with each other.
        let limited = SCRIPTS.iter().filter(|script| is_limited(script));
        let limited: Vec<_> = limited
            .map(|script| scope.spawn(move || outcome(&start(), script, dialect, delivery)))
            .collect();
        let mut limited = limited.into_iter();
        let outcomes: Vec<_> = SCRIPTS
            .iter()
            .map(|script| match is_limited(script) {
                true => Err(limited.next().unwrap()),
                false => Ok(outcome(&mock, script, dialect, delivery)),
            })
            .collect();
        let all = outcomes.into_iter();
        all.map(|it| it.unwrap_or_else(|thread| thread.join().unwrap()))
            .collect()
    })
}

#[test]
fn every_anthropic_fault_recovers_or_is_reported() {
    insta::assert_snapshot!(outcomes("anthropic", &[]));
}

#[test]
fn every_openai_fault_recovers_or_is_reported() {
    insta::assert_snapshot!(outcomes("openai", &[]));
}

#[test]
fn every_openai_responses_fault_recovers_or_is_reported() {
    insta::assert_snapshot!(outcomes("openai-responses", &[]));
}

#[test]
fn every_non_streamed_fault_recovers_or_is_reported() {
    insta::assert_snapshot!(outcomes("anthropic", &["--no-stream"]));
}

/// Returns the events of one prompt.
fn events(mock: &MockServer, dialect: &str, arguments: &[&str]) -> Vec<Value> {
    lines(&mock.ask(dialect, &[arguments, &["--json"]].concat()))
}

fn lines(ran: &CommandResult) -> Vec<Value> {
    let lines = ran.stdout.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn of_type<'a>(events: &'a [Value], kind: &str) -> Vec<&'a Value> {
    events
        .iter()
        .filter(|event| event["type"] == kind)
        .collect()
}

#[test]
fn retry_after_is_honoured_in_every_form() {
    const FORMS: [&str; 8] = [
        "seconds", "ms", "date", "reset", "epoch", "rfc3339", "body", "text",
    ];
    let is_honoured = |mock: &MockServer, dialect: &str, form: &str| {
        let script = format!("rate-limited:retry-after=200,as={form}");
        let mut command = mock.command(dialect, &["--model", &script, "--json"]);
        // Each command has a home of its own, so that none uses the shared state of another.
        let home = mock.outlast.folder.path().join(form);
        let ran = CommandResult::of(command.env("OUTLAST_HOME", home));
        let events = lines(&ran);
        let retries = of_type(&events, "retry_scheduled");
        assert_eq!(retries.len(), 1, "{dialect} {form}: {events:?}");
        let delay = retries[0]["delay_ms"].as_u64().unwrap();
        // Some forms are times of day, which are closer on a busy machine, and the clocks of two processes differ by as
        // long as one of them was stopped at its start. The schedule alone would be two seconds.
        assert!(
            (20_000..=295_000).contains(&delay),
            "{dialect} {form}: {delay}"
        );
        assert_eq!(of_type(&events, "done").len(), 1, "{dialect} {form}");
    };
    // Each waits for two seconds, and has nearly as long to receive the delay; all wait at the same time.
    let mocks = DIALECTS.map(|dialect| {
        let outlast = Outlast {
            scale: "100",
            ..Outlast::new()
        };
        (dialect, MockServer::start_in(outlast))
    });
    std::thread::scope(|scope| {
        for (dialect, mock) in &mocks {
            for form in FORMS {
                scope.spawn(move || is_honoured(mock, dialect, form));
            }
        }
    });
}

#[test]
fn reasoning_tool_calls_and_usage_become_events() {
    for dialect in DIALECTS {
        // With a scaled clock, the wait for events after the end of a completion would be three milliseconds.
        let mock = MockServer::start_in(Outlast::in_real_time());
        let thoughts = events(&mock, dialect, &["--model", "ok:reasoning"]);
        let done = &of_type(&thoughts, "reasoning_done")[0];
        let pieces: String = of_type(&thoughts, "reasoning_delta")
            .iter()
            .map(|event| event["text"].as_str().unwrap())
            .collect();
        assert_eq!(done["text"], pieces.as_str(), "{dialect}");
        let proof = match dialect {
            "anthropic" => &done["proof"]["signature"],
            "openai-responses" => &done["proof"]["content"],
            _ => &Value::Null,
        };
        assert_eq!(proof.is_string(), dialect != "openai", "{done}");
        let usage = of_type(&thoughts, "usage");
        let last = usage.last().unwrap();
        assert!(
            last["input"].as_u64() > Some(0) && last["output"].as_u64() > Some(0),
            "{last}"
        );

        let calls = events(&mock, dialect, &["--model", "ok:tools", "--no-tools"]);
        let calls = of_type(&calls, "tool_call");
        assert_eq!(calls.len(), 2, "{dialect}");
        for call in calls {
            let arguments = call["arguments"].as_str().unwrap();
            assert_eq!(arguments, r#"{"city":"Paris"}"#, "{dialect}");
        }
    }
}

#[test]
fn image_is_sent_with_prompt() {
    let mock = MockServer::start();
    let file = mock.outlast.folder.path().join("dot.jpg");
    std::fs::write(&file, b"\x89PNG\r\n\x1a\nand so on").unwrap();
    let file = file.to_str().unwrap();
    for dialect in DIALECTS {
        let ran = mock.ask(
            dialect,
            &["--model", "ok:image-seen,times=always", "--image", file],
        );
        let expected = "I see 1: image/png of 17 bytes.\n";
        assert_eq!(
            (ran.code, ran.stdout.as_str()),
            (0, expected),
            "{}",
            ran.stderr
        );
    }
    let ran = mock.ask("openai", &["--model", "ok", "--image", "/dev/null"]);
    assert_eq!(ran.code, 2);
    assert!(
        ran.stderr.contains("PNG, JPEG, GIF or WebP"),
        "{}",
        ran.stderr
    );
}

#[test]
fn each_attempt_is_one_request() {
    for dialect in DIALECTS {
        for (script, requests) in [
            ("ok", 1),
            ("overloaded:3", 4),
            ("reset:times=2", 3),
            ("error:400", 1),
        ] {
            let mock = MockServer::start();
            mock.ask(dialect, &["--model", script]);
            let log: Value = serde_json::from_str(&mock.requests()).unwrap();
            let received = log["requests"].as_array().unwrap().len();
            assert_eq!(received, requests, "{dialect} {script}: {log}");
        }
    }
}

#[test]
fn keys_and_headers_reach_only_the_provider() {
    const HEADER: &str = "planted-header-2d8e4f6a";
    let mock = MockServer::start();
    let settings = format!(
        "{NO_TIMEOUTS}[providers.anthropic]\napi_key = \"{PLANTED}\"\nheaders = {{ x-team = \"{HEADER}\" }}\n"
    );
    std::fs::create_dir_all(mock.outlast.home()).unwrap();
    std::fs::write(mock.outlast.home().join("outlast.toml"), settings).unwrap();
    let mut said = Vec::new();
    for script in [
        "echo-key",
        "ok",
        "overloaded:9",
        "reset:times=9",
        "error:401",
    ] {
        for format in [&[][..], &["--json"]] {
            let ran = mock.ask("anthropic", &[&["--model", script], format].concat());
            said.extend([ran.stdout, ran.stderr]);
        }
    }
    for command in [&["doctor"][..], &["config", "show"], &["config", "check"]] {
        let url = mock.url();
        let mut command = mock.outlast.command(command);
        command
            .env("ANTHROPIC_BASE_URL", url)
            .env("OUTLAST_PROVIDER", "anthropic");
        let ran = CommandResult::of(&mut command);
        said.extend([ran.stdout, ran.stderr]);
    }
    for text in &said {
        assert!(!text.contains(HEADER), "{text}");
    }
    // The mock server has received the header, and need not know that it is a secret.
    said.push(mock.requests());
    std::fs::remove_file(mock.outlast.home().join("outlast.toml")).unwrap();
    assert_eq!(files_with(mock.outlast.folder.path(), PLANTED), [""; 0]);
    said.push(mock.stop());
    for text in &said {
        assert!(!text.contains(PLANTED), "{text}");
    }
}

/// Returns the files below a folder that contain a text.
fn files_with(folder: &Path, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files_with(&path, text));
        } else if String::from_utf8_lossy(&std::fs::read(&path).unwrap()).contains(text) {
            found.push(path.display().to_string());
        }
    }
    found
}

#[test]
fn timeout_can_be_disabled_for_one_model() {
    let mock = MockServer::start();
    std::fs::create_dir_all(mock.outlast.home()).unwrap();
    let settings = "[timeouts]\nheaders = \"10s\"\n[models.\"hold:60\".timeouts]\nheaders = 0\n";
    std::fs::write(mock.outlast.home().join("outlast.toml"), settings).unwrap();
    let ran = mock.ask("openai", &["--model", "hold:60", "--policy", "none"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let ran = mock.ask("openai", &["--model", "hold:61", "--policy", "none"]);
    assert!(
        ran.stderr.contains("no response came for 10s"),
        "{}",
        ran.stderr
    );
}

#[test]
fn incomplete_provider_options_are_errors_with_hint() {
    let outlast = crate::support::Outlast::new();
    let table = [
        (
            &["--provider", "openai", "--model", "m"][..],
            "set OPENAI_API_KEY in the environment",
        ),
        (
            &[
                "--provider",
                "anthropic",
                "--base-url",
                "http://127.0.0.1:1",
            ],
            "choose one with --model",
        ),
        (
            &["--base-url", "http://127.0.0.1:1"],
            "--base-url needs a provider",
        ),
        (
            &["--provider", "opena", "--model", "m"],
            "did you mean `openai`",
        ),
        (
            &[
                "--provider",
                "openai",
                "--model",
                "m",
                "--base-url",
                "https://me:pw@host",
            ],
            "holds a user name or a password",
        ),
    ];
    for (arguments, part) in table {
        let ran = outlast.run(&[&["-p", "hi"], arguments].concat());
        assert_eq!(ran.code, 2, "{arguments:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(part), "{}", ran.stderr);
        assert!(!ran.stderr.contains("me:pw"), "{}", ran.stderr);
    }
}

#[test]
fn cut_response_prints_full_completion_or_nothing() {
    const STEP: usize = 157;
    let whole =
        "Hello from the scripted provider: no network, no key, no cost. You said: Say hello\n";
    let is_whole_or_nothing = |dialect: &str| {
        let mock = MockServer::start();
        let mut retried = 0;
        for bytes in (0..6000).step_by(STEP) {
            for end in ["", ",clean"] {
                let script = format!("cut:{bytes}{end},of=reasoning");
                let ran = mock.ask(dialect, &["--model", &script]);
                let place = format!("{dialect} {script}: {}", ran.stderr);
                match ran.code {
                    0 => assert_eq!(ran.stdout, whole, "{place}"),
                    1 => {
                        assert_eq!(ran.stdout, "", "{place}");
                        assert!(ran.stderr.contains("Stream cut off"), "{place}");
                    }
                    code => panic!("exit {code}: {place}"),
                }
                retried += usize::from(ran.stderr.contains("retrying"));
            }
        }
        assert!(retried > 0, "{dialect}");
    };
    std::thread::scope(|scope| {
        for dialect in DIALECTS {
            scope.spawn(move || is_whole_or_nothing(dialect));
        }
    });
}

#[test]
fn ten_concurrent_prompts_all_complete() {
    let mock = MockServer::start();
    let arguments = ["--model", "flaky:0.5,seed=3", "--policy", "overnight"];
    let start = |_| {
        let mut command = mock.command("openai-responses", &arguments);
        std::thread::spawn(move || CommandResult::of(&mut command))
    };
    let running: Vec<_> = (0..10).map(start).collect();
    for one in running {
        let ran = one.join().unwrap();
        assert_eq!(ran.code, 0, "{}", ran.stderr);
    }
}

#[test]
fn mock_server_plays_script_of_each_model() {
    let scripts = ["--script", "big=error:400", "--script", "small=ok:escapes"];
    let mock = MockServer::start_with(Outlast::new(), &scripts);
    let big = mock.ask("anthropic", &["--model", "big"]);
    assert_eq!(big.code, 1, "{}", big.stderr);
    let small = mock.ask("anthropic", &["--model", "small"]);
    assert_eq!(
        small.stdout, "Plain, red, and a turn  of words.\n",
        "{}",
        small.stderr
    );
    let log: Value = serde_json::from_str(&mock.requests()).unwrap();
    let models: Vec<&Value> = (0..2)
        .map(|place| &log["requests"][place]["model"])
        .collect();
    assert_eq!(models, ["big", "small"]);
    let bad = mock.outlast.run(&["mock", "--script", "big=overlaoded"]);
    assert_eq!(bad.code, 2, "{}", bad.stderr);
    assert!(
        bad.stderr.contains("there is no such fault"),
        "{}",
        bad.stderr
    );
}
