//! What an earlier version has written down is read and carried on.
//!
//! `samples/sessions-1.db` was written by the first version that kept sessions, in the folder `/`: one that is finished,
//! with a failed attempt and tools, and one that was killed in a wait. The file is frozen: it is never made again, and
//! when the format changes another one is put beside it. A snapshot that changes here breaks what users have.

use crate::support::{Outlast, Ran};
use serde_json::Value;
use std::fs;
use std::path::Path;

const FINISHED: &str = "01a1dec3-255c";
const UNFINISHED: &str = "01a1dec3-2689";

/// A home that has the sample's sessions.
fn home() -> Outlast {
    let outlast = Outlast::new();
    fs::create_dir(outlast.home()).unwrap();
    outlast.write("home/VERSION", "1\n");
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/samples/sessions-1.db");
    outlast.write("home/sessions.db", fs::read(sample).unwrap());
    outlast
}

fn well(ran: Ran) -> String {
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
fn a_wait_of_an_earlier_version_is_carried_on() {
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
    // The wait that was under way has passed meanwhile, and is paid for; the next call is the second.
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
fn a_session_of_an_earlier_version_goes_on() {
    let outlast = home();
    let ran = outlast.run(&["-p", "And now?", "--session", FINISHED, "--model", "ok"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(
        ran.stdout.ends_with("You said: And now?\n"),
        "{}",
        ran.stdout
    );
}
