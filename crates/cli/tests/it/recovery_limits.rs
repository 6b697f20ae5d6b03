//! The limits of recovery, and the parts of it that outlive a process, against a mock server that logs its
//! requests.

use crate::mock_server::{MockServer, PLANTED};
use crate::support::{CommandResult, NO_TIMEOUTS, Outlast};
use crate::written::{self, LeftAs, answer, completed, prompt, typed};
use serde_json::Value;

const USER: &str = "home/outlast.toml";
const ID: &str = "01900000-0000-7000-8000-000000000001";

/// Returns the requested models, in order.
fn requested_models(mock: &MockServer) -> Vec<String> {
    let log: Value = serde_json::from_str(&mock.requests()).unwrap();
    let requests = log["requests"].as_array().unwrap().iter();
    let model = |request: &Value| request["body"]["model"].as_str().unwrap().to_owned();
    requests.map(model).collect()
}

/// Returns the error that ended the command; stdout must be empty.
fn only_error(ran: &CommandResult) -> &str {
    assert_eq!((ran.code, ran.stdout.as_str()), (1, ""), "{}", ran.stderr);
    let is_error = |line: &&str| line.starts_with("error:");
    let errors: Vec<&str> = ran.stderr.lines().filter(is_error).collect();
    let [error] = errors[..] else {
        panic!("{}", ran.stderr);
    };
    error
}

#[test]
fn prompt_too_long_to_compact_fails_with_one_error() {
    let long = "The first half of the work is done. ".repeat(400);
    let turn = |text: &str| {
        let options = typed("window:300,of=agent");
        vec![prompt(text, options), answer(&long), completed()]
    };
    let table = [
        ("a new session", 1, vec![]),
        ("a long one", 2, vec![turn("Do the work"), turn("Go on")]),
    ];
    for (what, requests, turns) in table {
        let mock = MockServer::start();
        let mut arguments = vec!["--model", "window:300,of=agent"];
        if !turns.is_empty() {
            written::session(&mock.outlast, ID, &turns, LeftAs::Free);
            arguments.extend(["--session", ID]);
        }
        let ran = mock.ask("anthropic", &arguments);
        let error = only_error(&ran);
        for part in [
            "Context window exceeded",
            "the conversation has about ",
            " tokens and can only be cut to ",
            " in a window of 300",
            "start a new session, choose a model with a larger window, or leave out long files",
        ] {
            assert!(error.contains(part), "{what}: {error}");
        }
        // The second request was for a summary, which does not fit either.
        assert_eq!(requested_models(&mock).len(), requests, "{what}");
    }
}

#[test]
fn cooldown_is_honored_by_next_process() {
    let scripts = [
        "--script",
        "a=overloaded:99",
        "--script",
        "b=ok:text,times=always",
    ];
    let mock = MockServer::start_with(Outlast::new(), &scripts);
    let chain = "provider = \"anthropic\"\nmodel = \"a\"\nfallback.models = [\"b\"]\nfallback.cooldown = \"12h\"\n";
    mock.outlast.write(USER, chain.to_owned() + NO_TIMEOUTS);
    let url = mock.url();
    let reach = [
        ("ANTHROPIC_BASE_URL", url.as_str()),
        ("ANTHROPIC_API_KEY", PLANTED),
    ];
    let first = mock.outlast.run_with(&["-p", "Say hello"], &reach);
    assert_eq!(first.code, 0, "{}", first.stderr);
    let said = "⚠ Server overloaded: b is asked instead of a for ";
    assert!(first.stderr.contains(said), "{}", first.stderr);
    assert_eq!(requested_models(&mock), ["a", "a", "a", "b"]);

    let next = ["-p", "Say hello", "--continue"];
    let second = mock.outlast.run_with(&next, &reach);
    assert_eq!((second.code, &second.stdout), (0, &first.stdout));
    let said = "● b is asked instead of a, until ";
    assert!(second.stderr.starts_with(said), "{}", second.stderr);
    assert_eq!(requested_models(&mock), ["a", "a", "a", "b", "b"]);
}

#[test]
fn fallback_model_also_writes_summary() {
    let outlast = Outlast::new();
    let long = "The first half of the work is done. ".repeat(400);
    let turn = |text: &str| {
        let options = typed("error:401,times=always");
        vec![prompt(text, options), answer(&long), completed()]
    };
    let turns = [turn("Do the work"), turn("Go on"), turn("What is left?")];
    written::session(&outlast, ID, &turns, LeftAs::Free);
    outlast.write(USER, "fallback.models = [\"ok:agent,times=always\"]\n");
    let ran = outlast.run(&["-p", "/compact", "--session", ID]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let shown = outlast.run(&["sessions", "show", ID]).stdout;
    assert!(shown.contains("Summary of "), "{shown}");
}
