//! Compaction while something else fails: a killed process, a model that was replaced, an undelivered completion.

use crate::support::Outlast;
use crate::written::{self, LeftAs, answer, completed, prompt, typed};
use std::io::{BufRead, BufReader};
use std::process::Stdio;

const ID: &str = "01900000-0000-7000-8000-000000000001";

#[test]
fn kill_during_compaction_leaves_nothing_to_resume() {
    let outlast = Outlast {
        scale: "1",
        ..Outlast::new()
    };
    written::long_session(&outlast, ID, "hold:3600,of=agent,times=always");
    let mut child = outlast
        .command(&["-p", "/compact", "--session", ID])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = String::new();
    BufReader::new(child.stderr.take().unwrap())
        .read_line(&mut first)
        .unwrap();
    assert!(first.starts_with("● making the conversation"), "{first}");
    child.kill().unwrap();
    child.wait().unwrap();
    let list = outlast.run(&["sessions", "list"]);
    assert!(list.stdout.contains("  finished  "), "{}", list.stdout);
    let resumed = outlast.run(&["resume"]);
    assert_eq!((resumed.code, resumed.stdout.as_str()), (0, ""));
    assert_eq!(resumed.stderr, "Nothing to resume.\n");
}

#[test]
fn compaction_skips_model_in_cooldown() {
    let outlast = Outlast {
        // At a faster clock, minutes would pass between two commands.
        scale: "10",
        ..Outlast::new()
    };
    let settings =
        "fallback.overload_retries = 0\nfallback.cooldown = \"9h\"\ncompaction.keep = 1000\n";
    outlast.write("home/outlast.toml", settings);
    let other = "ok:agent,times=always";
    written::long_session(&outlast, ID, other);
    let chain = ["--model", "overloaded:1", "--fallback", other];
    let left = outlast.run(&[&["-p", "Hm", "--session", ID], &chain[..]].concat());
    let is_left = left.stderr.contains("is asked instead of overloaded:1");
    assert!(left.code == 0 && is_left, "{}", left.stderr);
    let ran = outlast.run(&["-p", "/compact", "--session", ID]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(!ran.stderr.contains("overloaded"), "{}", ran.stderr);
}

#[test]
fn undelivered_completion_is_reported_on_next_use() {
    for arguments in [
        &["-p", "And?", "--continue"][..],
        &["sessions", "compact", ID],
    ] {
        let outlast = Outlast::new();
        let turn = vec![prompt("What?", typed("ok")), answer("That."), completed()];
        written::session(&outlast, ID, &[turn], LeftAs::Abandoned);
        let ran = outlast.run(arguments);
        let expected = format!(
            "● the answer before this was not printed; `outlast sessions show {ID}` has it\n"
        );
        assert!(ran.stderr.starts_with(&expected), "{}", ran.stderr);
        let shown = outlast.run(&["sessions", "show", ID]);
        assert!(shown.stdout.contains("  That.\n"), "{}", shown.stdout);
    }
}
