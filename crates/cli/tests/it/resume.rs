//! `outlast resume`: the turns that it resumes, the results that it repeats, and the sessions that
//! it leaves alone.

use crate::mock_server::{MockServer, PLANTED, wait_for};
use crate::support::{CommandResult, Outlast};
use crate::written::{self, LeftAs, answer, completed, failed, prompt, typed};
use outlast_engine::journal::Entry;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

pub(crate) const FIRST: &str = "01900000-0000-7000-8000-000000000001";
pub(crate) const SECOND: &str = "01900000-0000-7000-8000-000000000002";

/// Builds an unfinished turn that the script would complete.
fn begun(text: &str, script: &str) -> Vec<Entry> {
    vec![prompt(text, typed(script))]
}

/// Returns the state of every listed session.
fn session_states(outlast: &Outlast) -> Vec<(String, String)> {
    let listed = outlast.run(&["sessions", "list", "--json"]).stdout;
    let rows: Value = serde_json::from_str(&listed).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let rows = rows.as_array().unwrap().iter();
    rows.map(|row| (text(&row["id"]), text(&row["state"])))
        .collect()
}

/// Returns how many entries of that kind a session has.
fn count(outlast: &Outlast, session: &str, kind: &str) -> usize {
    let ran = outlast.run(&["sessions", "export", session, "--format", "jsonl"]);
    ran.stdout.matches(&format!(r#""kind":"{kind}""#)).count()
}

/// Creates a command in real time, for calls that hang: with a scaled clock they would soon time
/// out.
fn in_real_time() -> Outlast {
    let scale = "1";
    Outlast {
        scale,
        ..Outlast::new()
    }
}

fn start(outlast: &Outlast, arguments: &[&str]) -> Child {
    let mut command = outlast.command(arguments);
    let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    piped.spawn().unwrap()
}

fn signal(child: &Child, signal: &str) {
    let id = child.id().to_string();
    assert!(
        Command::new("kill")
            .args([signal, &id])
            .status()
            .unwrap()
            .success()
    );
}

/// Creates a home with one session whose folder is gone, and returns the name of that folder.
pub(crate) fn after_its_folder_is_gone(turns: &[Vec<Entry>], left: LeftAs) -> (Outlast, String) {
    let (outlast, elsewhere) = (Outlast::new(), Outlast::new());
    written::session(&elsewhere, FIRST, turns, left);
    for name in ["VERSION", "sessions.db", "sessions.db-wal"] {
        let file = elsewhere.home().join(name);
        // A file that is complete in itself has no log beside it.
        if let Ok(bytes) = fs::read(file) {
            outlast.write(&format!("home/{name}"), bytes);
        }
    }
    let folder = elsewhere.folder.path().to_str().unwrap().to_owned();
    (outlast, folder)
}

// --- Resumed turns ---

#[test]
fn resume_completes_each_unfinished_session_under_its_id() {
    let outlast = Outlast::new();
    written::session(&outlast, FIRST, &[begun("one", "ok")], LeftAs::Free);
    written::session(&outlast, SECOND, &[begun("two", "ok")], LeftAs::Abandoned);
    let ran = outlast.run(&["resume"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    for (id, text) in [(FIRST, "one"), (SECOND, "two")] {
        let said = format!(
            "== {id} {text}\nHello from the scripted provider: no network, no key, no cost. You said: {text}\n"
        );
        assert!(ran.stdout.contains(&said), "{}", ran.stdout);
        assert_eq!(count(&outlast, id, "settled"), 1);
    }
    let again = outlast.run(&["resume"]);
    assert_eq!((again.code, again.stdout.as_str()), (0, ""));
    assert_eq!(again.stderr, "Nothing to resume.\n");
}

#[test]
fn resume_reports_missing_folder_and_resumes_the_others() {
    let (outlast, folder) = after_its_folder_is_gone(&[begun("one", "ok")], LeftAs::Free);
    written::session(&outlast, SECOND, &[begun("two", "ok")], LeftAs::Free);
    let ran = outlast.run(&["resume"]);
    let said = format!("error: session {FIRST}: its folder {folder} is gone; make it again, or");
    assert_eq!(ran.code, 1);
    assert!(ran.stderr.starts_with(&said), "{}", ran.stderr);
    assert!(ran.stdout.ends_with("You said: two\n"), "{}", ran.stdout);
    assert_eq!(count(&outlast, FIRST, "settled"), 0);
}

#[test]
fn failed_turn_is_retried_only_when_its_session_is_named() {
    let outlast = Outlast::new();
    let turn = vec![prompt("one", typed("ok")), failed()];
    written::session(&outlast, FIRST, &[turn], LeftAs::Free);
    let ran = outlast.run(&["resume"]);
    assert_eq!(ran.stderr, "Nothing to resume.\n", "nobody asked for it");
    let ran = outlast.run(&["resume", FIRST]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(ran.stdout.ends_with("You said: one\n"), "{}", ran.stdout);
    let ran = outlast.run(&["resume", FIRST]);
    assert_eq!((ran.code, ran.stdout.as_str()), (1, ""));
    assert!(
        ran.stderr.contains("there is no turn to carry on"),
        "{}",
        ran.stderr
    );
}

#[test]
fn concurrent_resumes_run_each_turn_once() {
    let mock = MockServer::start();
    let outlast = &mock.outlast;
    let ids: Vec<String> = (1..=8)
        .map(|number| format!("01900000-0000-7000-8000-00000000001{number}"))
        .collect();
    let url = mock.url();
    for id in &ids {
        let typed =
            serde_json::json!({"settings": {"provider": "openai", "model": "ok"}, "base_url": url});
        let turn = vec![prompt(&format!("I am {id}"), typed)];
        written::session(outlast, id, &[turn], LeftAs::Free);
    }
    let running = [(), ()].map(|()| start(outlast, &["resume"]));
    let ran = running.map(CommandResult::ended);
    for ran in &ran {
        assert_eq!(ran.code, 0, "{}", ran.stderr);
    }
    let said = format!("{}{}", ran[0].stdout, ran[1].stdout);
    for id in &ids {
        assert_eq!(
            said.matches(&format!("You said: I am {id}\n")).count(),
            1,
            "{said}"
        );
        assert_eq!(count(outlast, id, "settled"), 1);
        assert_eq!(count(outlast, id, "attempt_started"), 1);
    }
    let log: Value = serde_json::from_str(&mock.requests()).unwrap();
    assert_eq!(log["requests"].as_array().unwrap().len(), ids.len());
}

// --- Sessions left alone ---

#[test]
fn session_in_use_is_neither_resumed_nor_deleted() {
    let mock = MockServer::start_in(in_real_time());
    let outlast = &mock.outlast;
    let mut living = mock.command("openai", &["--model", "hold:86400"]);
    let living = living.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut living = living.spawn().unwrap();
    mock.wait_for_request("open");
    let [(id, state)] = session_states(outlast).try_into().unwrap();
    assert_eq!(state, "in use");
    let ran = outlast.run(&["resume"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, "Nothing to resume.\n"));
    let in_use = format!(
        "error: session {id} is in use by another process; it can be carried on when that has ended\n"
    );
    for (arguments, code) in [
        (vec!["resume", id.as_str()], 1),
        (vec!["-p", "x", "--session", &id, "--model", "ok"], 2),
        (vec!["-p", "x", "--continue", "--model", "ok"], 2),
    ] {
        let ran = outlast.run(&arguments);
        assert_eq!(
            (ran.code, ran.stdout, ran.stderr),
            (code, String::new(), in_use.clone())
        );
    }
    let ran = outlast.run(&["sessions", "delete", &id]);
    assert!(
        ran.code == 1 && ran.stderr.contains("in use"),
        "{}",
        ran.stderr
    );
    let kept = outlast.run(&["sessions", "delete", "--older-than", "0s"]);
    assert_eq!(kept.stderr, "Deleted 0.\n");
    assert!(living.try_wait().unwrap().is_none(), "nobody has ended it");
    living.kill().unwrap();
    living.wait().unwrap();
    assert_eq!(session_states(outlast), [(id, "unfinished".to_owned())]);
}

// --- Undelivered results ---

#[test]
fn undelivered_completion_is_printed_once_by_resume() {
    let outlast = Outlast::new();
    let turn = vec![
        prompt("one", typed("error:400")),
        answer("Forty-two."),
        completed(),
    ];
    written::session(&outlast, FIRST, &[turn], LeftAs::Abandoned);
    assert_eq!(session_states(&outlast)[0].1, "undelivered");
    let ran = outlast.run(&["resume"]);
    assert_eq!(
        (ran.code, ran.stdout.as_str()),
        (0, "Forty-two.\n"),
        "{}",
        ran.stderr
    );
    assert_eq!(outlast.run(&["resume"]).stderr, "Nothing to resume.\n");
    assert_eq!(session_states(&outlast)[0].1, "finished");
}

#[test]
fn undelivered_completion_needs_neither_folder_nor_key() {
    let typed = serde_json::json!({"settings": {"provider": "anthropic", "model": "m"}});
    let turn = vec![prompt("one", typed), answer("Forty-two."), completed()];
    let (outlast, _) = after_its_folder_is_gone(&[turn], LeftAs::Abandoned);
    let ran = outlast.run(&["resume"]);
    assert_eq!(
        (ran.code, ran.stdout.as_str()),
        (0, "Forty-two.\n"),
        "{}",
        ran.stderr
    );
}

#[test]
fn undelivered_failure_is_reported_as_error() {
    let turn = || vec![prompt("one", typed("ok")), answer("Half a"), failed()];
    let outlast = Outlast::new();
    written::session(&outlast, FIRST, &[turn()], LeftAs::Abandoned);
    let ran = outlast.run(&["resume"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (1, ""));
    let said = "error: Server overloaded: come back tomorrow: 3 retries were used up\n";
    assert!(ran.stderr.ends_with(said), "{}", ran.stderr);

    let outlast = Outlast::new();
    written::session(&outlast, FIRST, &[turn()], LeftAs::Abandoned);
    let ran = outlast.run(&["resume", "--json"]);
    let events = ran
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    let events: Vec<Value> = events.collect();
    let kinds = events.iter().map(|event| event["type"].as_str().unwrap());
    let kinds: Vec<&str> = kinds.collect();
    assert_eq!((ran.code, kinds), (1, vec!["error", "sealed"]));
    assert_eq!(events[1]["status"], "error");
}

#[test]
fn empty_session_is_not_resumed() {
    let outlast = Outlast::new();
    written::session(&outlast, FIRST, &[], LeftAs::Abandoned);
    assert_eq!(session_states(&outlast)[0].1, "empty");
    let ran = outlast.run(&["resume"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, ""));
    assert_eq!(ran.stderr, "Nothing to resume.\n");
}

// --- Signals ---

#[test]
fn signal_during_resume_leaves_turns_unfinished() {
    let mock = MockServer::start_in(in_real_time());
    let (outlast, url) = (&mock.outlast, mock.url());
    for id in [FIRST, SECOND] {
        let typed = serde_json::json!({"settings": {"provider": "openai", "model": "hold:86400,times=2"}, "base_url": url});
        written::session(outlast, id, &[vec![prompt(id, typed)]], LeftAs::Free);
    }
    let child = start(outlast, &["resume"]);
    wait_for("two calls", || {
        mock.requests().matches(r#""ended":"open""#).count() == 2
    });
    signal(&child, "-TERM");
    let ran = CommandResult::ended(child);
    assert_eq!((ran.code, ran.stdout.as_str()), (143, ""));
    let left: BTreeSet<String> = session_states(outlast)
        .into_iter()
        .map(|(_, state)| state)
        .collect();
    assert_eq!(left, BTreeSet::from(["unfinished".to_owned()]));
    for id in [FIRST, SECOND] {
        assert!(
            ran.stderr
                .contains(&format!("`outlast resume {id}` carries it on"))
        );
        assert_eq!(count(outlast, id, "settled"), 0);
    }
}

#[test]
fn resumed_wait_does_not_queue_behind_the_process_that_died_in_it() {
    let mock = MockServer::start_in(in_real_time());
    let outlast = &mock.outlast;
    let mut waiting = mock.command("openai", &["--model", "overloaded:1", "--json"]);
    let mut waiting = waiting.stdout(Stdio::piped()).spawn().unwrap();
    let events = BufReader::new(waiting.stdout.take().unwrap()).lines();
    let mut events = events.map(Result::unwrap);
    assert!(events.any(|event| event.contains("retry_scheduled")));
    waiting.kill().unwrap();
    waiting.wait().unwrap();
    let key = ("OPENAI_API_KEY", PLANTED);
    let ran = outlast.run_with(&["resume", "--json"], &[key]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(!ran.stdout.contains(r#""held""#), "{}", ran.stdout);
}
