//! Error messages for invalid input, on stderr: the problem, the value, and the remedy; and the exit codes.

use super::Help;
use super::stage::Stage;
use crate::support::Outlast;
use std::process::{Command, Stdio};

const PIPELINE: &str = "steps:\n  - {id: plan, command: echo hi}\n";

/// Commands in a home without sessions or runs.
const IN_A_NEW_HOME: [&str; 18] = [
    "sessions show",
    "sessions delete 01a1",
    "sessions delete --older-than soon",
    "sessions compact 01a1",
    "runs show",
    "runs delete --older-than soon",
    "runs cancel 01a1",
    "resume 01a1",
    "run --resume 01a1",
    "-p hi --continue",
    "-p hi --session 01a1",
    "rpc --session 01a1",
    "gateway status",
    "gateway retry-now",
    "gateway cancel 3f2a",
    "gateway page",
    "accounts --unblock work",
    "trust --remove --list",
];

/// Commands in a home with a session and a run.
const AFTER_WORK: [&str; 56] = [
    "nonsense",
    "sessions nonsense",
    "-p",
    "-p hi --image missing.png",
    "-p hi --image pipeline.yaml",
    "-p hi --deadline soon",
    "-p hi --allow everything",
    "-p hi --provider nobody",
    "-p hi --provider anthropic",
    "-p hi --model nonsense",
    "-p hi --policy nonsense",
    "-p hi --base-url nowhere --provider openai --model m",
    "-p hi --no-session --continue",
    "-p hi --session zz",
    "-p /compact",
    "sessions show zz",
    "sessions show 0",
    "sessions export --format pdf",
    "runs show zz",
    "runs show --step nonsense",
    "runs output 0 nonsense",
    "runs output 0 plan nonsense",
    "runs approve 0",
    "runs retry-now 0",
    "resume zz",
    "run",
    "run missing.yaml",
    "run broken.yaml",
    "run pipeline.yaml --input topic",
    "run pipeline.yaml --input topic=x",
    "run pipeline.yaml --folder missing",
    "run pipeline.yaml --policy nonsense",
    "run --resume zz",
    "policy show nonsense",
    "policy show overnight --plot missing/x.svg",
    "explain",
    "explain --status 429 --header nonsense",
    "explain --status 429 --now soon",
    "explain --jsonl missing.jsonl",
    "simulate --outage soon",
    "simulate --agents 0",
    "simulate --store-down 5m",
    "simulate --length 5m",
    "config show --provider nobody",
    "mock --listen nowhere",
    "mock --script nonsense",
    "gateway --listen nowhere",
    "gateway --upstream nowhere",
    "gateway --client nobody",
    "gateway env nobody",
    "gateway run -- no-such-program",
    "serve --listen nowhere",
    "serve --policy nonsense",
    "serve --model overloaded:x",
    "serve --allow everything",
    "trust missing",
];

/// Returns the message for each line of invalid input.
fn answers(outlast: &Outlast, lines: &[&str]) -> String {
    let mut said = String::new();
    for line in lines {
        let words: Vec<&str> = line.split(' ').collect();
        let ran = outlast.run(&words);
        assert!(matches!(ran.code, 1 | 2), "{line}: {}", ran.code);
        assert_eq!(ran.stdout, "", "{line}");
        assert!(!ran.stderr.is_empty(), "{line}");
        let answer = outlast.anonymous(&ran.stderr);
        said += &format!("$ outlast {line}\n[{}] {}\n\n", ran.code, answer.trim_end());
    }
    said
}

/// Replaces ids that differ between runs.
fn without_ids(text: &str, ids: &[String]) -> String {
    let mut text = text.to_owned();
    for id in ids {
        text = text.replace(id.as_str(), "ID");
    }
    text
}

#[test]
fn invalid_input_is_an_error_with_hint() {
    let outlast = Outlast::new();
    insta::assert_snapshot!("in_a_new_home", answers(&outlast, &IN_A_NEW_HOME));
    let stage = Stage::new();
    stage.run("outlast -p one --model ok; outlast -p two --model ok");
    let outlast = &stage.outlast;
    outlast.write("pipeline.yaml", PIPELINE);
    outlast.write("broken.yaml", "steps: [\n");
    stage.run("outlast run pipeline.yaml");
    let ids = ["sessions", "runs"].map(|list| stage.newest(list));
    let said = answers(outlast, &AFTER_WORK);
    insta::assert_snapshot!("after_work", without_ids(&said, &ids));
}

#[test]
fn unusable_home_is_reported_with_hint() {
    let outlast = Outlast::new();
    outlast.write("file", "");
    let place = outlast.folder.path().join("file");
    let place = place.to_str().unwrap();
    let mut said = String::new();
    for (line, home) in [
        ("accounts", place),
        ("run pipeline.yaml", place),
        ("trust .", place),
        ("gateway", place),
        ("serve --listen 0.0.0.0:0", place),
        ("sessions list", "relative"),
        ("runs", "relative"),
    ] {
        outlast.write("pipeline.yaml", PIPELINE);
        let words: Vec<&str> = line.split(' ').collect();
        let ran = outlast.run_with(&words, &[("OUTLAST_HOME", home)]);
        assert_eq!(ran.stdout, "", "{line}");
        let answer = outlast.anonymous(&ran.stderr);
        said += &format!("$ outlast {line}\n[{}] {answer}", ran.code);
    }
    insta::assert_snapshot!("homes", said);
}

#[test]
fn address_in_use_error_is_printed_once() {
    let outlast = Outlast::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for command in ["mock", "gateway", "serve"] {
        let ran = outlast.run(&[command, "--listen", &address]);
        assert_eq!(ran.code, 1);
        assert_eq!(ran.stderr.matches("os error").count(), 1, "{}", ran.stderr);
        assert!(ran.stderr.contains("choose another"), "{}", ran.stderr);
    }
}

// --- exit codes ---

/// A scenario in which a prompt ends with a given exit code.
enum ExitScenario {
    Model(&'static str),
    Argument(&'static str),
    /// A home that cannot be written.
    Unwritable,
    /// A signal during a wait.
    Signal(&'static str),
}

const WAYS: [(i32, ExitScenario); 9] = [
    (0, ExitScenario::Model("ok")),
    (1, ExitScenario::Model("ok:refusal")),
    (1, ExitScenario::Model("error:401,times=always")),
    (2, ExitScenario::Argument("--nonsense")),
    (3, ExitScenario::Model("overloaded:9")),
    (4, ExitScenario::Unwritable),
    (129, ExitScenario::Signal("-HUP")),
    (130, ExitScenario::Signal("-INT")),
    (143, ExitScenario::Signal("-TERM")),
];

impl ExitScenario {
    fn code(&self) -> i32 {
        let outlast = Outlast::new();
        let ask = |model| outlast.command(&["-p", "hi", "--model", model]);
        match self {
            Self::Model(model) => ask(model).output().unwrap().status.code().unwrap(),
            Self::Argument(argument) => outlast.run(&["-p", "hi", argument]).code,
            Self::Unwritable => {
                outlast.write("home/thesis.txt", "mine");
                outlast.run(&["-p", "hi", "--model", "ok"]).code
            }
            Self::Signal(name) => {
                // In real time: it waits for hours.
                let mut command = ask("rate-limited:retry-after=9000");
                command.args(["--policy", "overnight"]);
                let waiting = command
                    .env("OUTLAST_TIME_SCALE", "1")
                    .stderr(Stdio::piped());
                let mut child = waiting.spawn().unwrap();
                let stderr = child.stderr.take().unwrap();
                super::stage::wait_for_line(stderr, "retrying in");
                let id = child.id().to_string();
                assert!(
                    Command::new("kill")
                        .args([*name, &id])
                        .status()
                        .unwrap()
                        .success()
                );
                child.wait().unwrap().code().unwrap()
            }
        }
    }
}

#[test]
fn exit_codes_match_the_help() {
    for (code, way) in &WAYS {
        assert_eq!(way.code(), *code);
    }
    let help = Help::of(&[]);
    let said = help.section("Exit codes").join("\n");
    let numbers = said.split(|c: char| !c.is_ascii_digit());
    let mut said: Vec<i32> = numbers.filter_map(|number| number.parse().ok()).collect();
    let mut held: Vec<i32> = WAYS.iter().map(|(code, _)| *code).collect();
    said.sort_unstable();
    held.dedup();
    assert_eq!(said, held);
}
