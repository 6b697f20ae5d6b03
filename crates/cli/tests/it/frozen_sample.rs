//! Sessions of earlier versions are read and resumed.
//!
//! `samples/sessions-1.db` was written by the first version that kept sessions, in the folder `/`: a finished session
//! with a failed attempt and tools, and one that was killed in a wait. `sessions-2.db` is from the next version: a
//! session that changed its model and received corrections for invalid completions, and one that was compacted and then
//! killed in a wait, with the beginning of a completion kept. `sessions-3.db` has a session with queued messages that
//! were delivered and removed, and notes, and one that was killed in a wait with messages queued. The files are frozen:
//! never regenerate them; a change of the format adds another one. A snapshot that changes here breaks users' data.

use crate::support::{CommandResult, Outlast};
use serde_json::Value;
use std::fs;
use std::path::Path;

const FINISHED: &str = "01a1dec3-255c";
const UNFINISHED: &str = "01a1dec3-2689";
const SWITCHED: &str = "01a1dfa7-b744";
const COMPACTED: &str = "01a1dfa7-d6a5";
const QUEUED: &str = "01a1dff6-681f";
const WAITING: &str = "01a1dff6-7037";

/// Creates a home with the sessions of the first sample.
fn home() -> Outlast {
    home_of("sessions-1.db")
}

fn home_of(sample: &str) -> Outlast {
    let outlast = Outlast::new();
    fs::create_dir(outlast.home()).unwrap();
    outlast.write("home/VERSION", "1\n");
    let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/samples");
    let sample = samples.join(sample);
    outlast.write("home/sessions.db", fs::read(sample).unwrap());
    outlast
}

fn well(ran: CommandResult) -> String {
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    ran.stdout
}

fn export(outlast: &Outlast, id: &str) -> String {
    well(outlast.run(&["sessions", "export", id, "--format", "jsonl"]))
}

#[test]
fn the_sessions_of_an_earlier_version_are_listed_and_shown() {
    let outlast = home();
    insta::assert_snapshot!(well(outlast.run(&["sessions", "list"])));
    insta::assert_snapshot!(well(outlast.run(&["sessions", "show", FINISHED])));
    insta::assert_snapshot!(well(outlast.run(&["sessions", "show", UNFINISHED])));
}

#[test]
fn the_sessions_of_an_earlier_version_are_exported() {
    let outlast = home();
    insta::assert_snapshot!(export(&outlast, FINISHED));
    insta::assert_snapshot!(export(&outlast, UNFINISHED));
}

#[test]
fn wait_of_earlier_version_is_resumed() {
    let outlast = home();
    let (finished, before) = (export(&outlast, FINISHED), export(&outlast, UNFINISHED));
    let ran = outlast.run(&["resume"]);
    let answer = "Done after 1 steps. three\n";
    assert_eq!(
        (ran.code, ran.stdout.as_str()),
        (0, answer),
        "{}",
        ran.stderr
    );
    let after = export(&outlast, UNFINISHED);
    let added = after.strip_prefix(&before).unwrap();
    let entries = added
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    let entries: Vec<Value> = entries.collect();
    // The wait that was under way has passed meanwhile, and is charged to the budget; the next call is the second.
    let spent = &entries[0]["spent"]["prompt"]["sleep"];
    assert_eq!(entries[0]["kind"], "wait_ended");
    assert_eq!(
        (&spent["slept"]["secs"], &spent["reserved"]["secs"]),
        (&60.into(), &0.into())
    );
    assert_eq!(entries[1]["attempt"], 2);
    assert_eq!(entries.last().unwrap()["seal"], "completed");
    assert_eq!(export(&outlast, FINISHED), finished);
    assert_eq!(outlast.run(&["resume"]).stderr, "Nothing to resume.\n");
}

#[test]
fn session_of_earlier_version_accepts_new_prompt() {
    let outlast = home();
    let ran = outlast.run(&["-p", "And now?", "--session", FINISHED, "--model", "ok"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(
        ran.stdout.ends_with("You said: And now?\n"),
        "{}",
        ran.stdout
    );
}

#[test]
fn model_switches_and_invalid_completions_are_shown() {
    let outlast = home_of("sessions-2.db");
    insta::assert_snapshot!(well(outlast.run(&["sessions", "list"])));
    insta::assert_snapshot!(well(outlast.run(&["sessions", "show", SWITCHED])));
    insta::assert_snapshot!(export(&outlast, SWITCHED));
}

#[test]
fn partial_completion_of_earlier_version_is_resumed() {
    let outlast = home_of("sessions-2.db");
    let ran = outlast.run(&["resume"]);
    let answer =
        "Hello from the scripted provider: no network, no key, no cost. You said: And now?\n";
    assert_eq!(
        (ran.code, ran.stdout.as_str()),
        (0, answer),
        "{}",
        ran.stderr
    );
    let entries = export(&outlast, COMPACTED);
    assert_eq!(entries.matches(r#""kind":"compacted""#).count(), 1);
    let last = entries.lines().last().unwrap();
    assert!(last.contains(r#""seal":"completed""#), "{last}");
}

#[test]
fn queued_messages_and_notes_are_shown() {
    let outlast = home_of("sessions-3.db");
    insta::assert_snapshot!(well(outlast.run(&["sessions", "list"])));
    insta::assert_snapshot!(well(outlast.run(&["sessions", "show", QUEUED])));
    insta::assert_snapshot!(export(&outlast, QUEUED));
}

#[test]
fn queued_messages_of_earlier_version_are_delivered() {
    let outlast = home_of("sessions-3.db");
    let before = export(&outlast, WAITING);
    let ran = outlast.run(&["resume"]);
    let answer = "Hello from the scripted provider: no network, no key, no cost. You said:";
    let answers = format!("{answer} To me\n{answer} And now?\n");
    assert_eq!(
        (ran.code, ran.stdout.as_str()),
        (0, answers.as_str()),
        "{}",
        ran.stderr
    );
    let after = export(&outlast, WAITING);
    let added = after.strip_prefix(&before).unwrap();
    let kinds = added.lines().map(|line| {
        let entry: Value = serde_json::from_str(line).unwrap();
        entry["kind"].as_str().unwrap().to_owned()
    });
    let kinds: Vec<String> = kinds.collect();
    // The note and the steering message, then the follow-up.
    let expected = [
        "wait_ended",
        "said",
        "said",
        "attempt_started",
        "message",
        "settled",
        "prompt",
        "said",
        "attempt_started",
        "message",
        "settled",
    ];
    assert_eq!(kinds, expected);
}
