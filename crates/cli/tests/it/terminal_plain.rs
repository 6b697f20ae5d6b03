//! The chat line by line: lines are written once and never changed, and contain no terminal
//! controls.

use crate::support::{CommandResult, Outlast};
use crate::terminal_driver::{Pane, flat};

const AGENT: &str = "ok:agent,times=always";

/// Wide enough that the terminal breaks no line.
const WIDE: (u16, u16) = (200, 24);

fn with_delay(seconds: u64) -> Outlast {
    let outlast = Outlast {
        scale: "1",
        ..Outlast::new()
    };
    let settings = format!("[retry]\nbase_delay_ms = {}\n", seconds * 1000);
    outlast.write("home/outlast.toml", settings);
    outlast
}

/// Starts a plain chat in a terminal, and waits until it is ready.
fn plain(outlast: &Outlast, arguments: &[&str]) -> Pane {
    let command = outlast.command(&[&["--plain"], arguments].concat());
    let pane = Pane::of(&command, WIDE);
    pane.wait_for("a prompt", |screen| screen.contains("\n>"));
    assert_eq!(pane.tells("#{alternate_on}"), "0");
    pane
}

/// Sends lines through a pipe; each must be handled as if the previous one had finished before it
/// came.
fn piped(outlast: &Outlast, arguments: &[&str], lines: &str) -> CommandResult {
    let ran = outlast.run_with_stdin(&[&["--plain"], arguments].concat(), lines);
    let written = format!("{}{}", ran.stdout, ran.stderr);
    assert!(
        written.chars().all(|c| c == '\n' || !c.is_control()),
        "{written:?}"
    );
    ran
}

#[test]
fn piped_lines_are_handled_one_at_a_time() {
    let outlast = with_delay(1);
    let lines = "Say hello\n/policy standard\nAnd again\n/new\n/sessions\n";
    let ran = piped(&outlast, &["--model", "overloaded:1"], lines);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    insta::assert_snapshot!("piped", same_every_time(&ran.stdout));
    // Each retry is printed once.
    assert_eq!(ran.stdout.matches("Retrying (").count(), 2);
}

/// Removes the seconds of countdowns, ids and times.
fn same_every_time(text: &str) -> String {
    let lines = text.lines().map(|line| {
        if let Some((before, rest)) = line.split_once(") in ") {
            let (_, after) = rest.split_once("s…").unwrap();
            return format!("{before}) in Ns…{after}\n");
        }
        let words = line.split(' ').map(|word| match word {
            id if id.len() == 36 && id.matches('-').count() == 4 => "ID",
            folder if folder.starts_with("/") && folder.contains("tmp") => "FOLDER",
            time if time.ends_with('Z') && time.contains('T') => "TIME",
            word => word,
        });
        words.collect::<Vec<_>>().join(" ") + "\n"
    });
    lines.collect()
}

#[test]
fn plain_output_contains_no_escapes() {
    let outlast = Outlast::new();
    let ran = piped(&outlast, &["--model", "ok:escapes"], "Say hello\n");
    assert!(
        ran.stdout.contains("Plain, red, and a turn  of words."),
        "{}",
        ran.stdout
    );
    let command = r#"call bash {"command":"printf '\\033[2J\\033]0;title\\007 red'"}"#;
    let arguments = ["--model", AGENT, "--allow", "bash"];
    let ran = piped(&outlast, &arguments, &format!("{command}\n"));
    assert!(
        ran.stdout.contains("Tool done: bash printf"),
        "{}",
        ran.stdout
    );
}

#[test]
fn typed_line_approves_or_refuses_tool() {
    let outlast = Outlast::new();
    let is_made = |name: &str| outlast.folder.path().join(name).exists();
    let make = |name: &str| format!("call bash {{\"command\":\"touch {name}\"}}\n");
    let lines = format!("{}n\n{}maybe\ny\n", make("first"), make("second"));
    let ran = piped(&outlast, &["--model", AGENT], &lines);
    assert_eq!(
        (is_made("first"), is_made("second")),
        (false, true),
        "{}",
        ran.stdout
    );
    insta::assert_snapshot!("asked_in_lines", ran.stdout);
    let lines = format!("{}always\n{}", make("third"), make("fourth"));
    let ran = piped(&outlast, &["--model", AGENT], &lines);
    assert_eq!(
        (is_made("third"), is_made("fourth")),
        (true, true),
        "{}",
        ran.stdout
    );
    // The end of the input does not approve a tool.
    let ran = piped(&outlast, &["--model", AGENT], &make("fifth"));
    assert!(!is_made("fifth"), "{}", ran.stdout);
}

#[test]
fn r_retries_now_and_esc_cancels_the_retry() {
    let outlast = with_delay(200);
    let pane = plain(&outlast, &["--model", "overloaded:1+overloaded:1"]);
    pane.say("Say hello");
    pane.is_waiting("(1/3)", 150..=200);
    pane.say("r");
    pane.is_waiting("(2/3)", 300..=400);
    pane.press(&["Escape", "Enter"]);
    pane.sees("Retry failed after 2 attempts: Retry cancelled");
    pane.wait_for("a prompt", |screen| screen.trim_end().ends_with("\n>"));
    pane.say("/retry");
    let answered = pane.sees("You said: Say hello");
    // Each retry is printed once, and no line is repeated.
    assert_eq!(answered.matches("Retrying (").count(), 2, "{answered}");
    assert_eq!(answered.matches("You: Say hello").count(), 1, "{answered}");
}

#[test]
fn ctrl_c_interrupts_and_then_leaves() {
    let outlast = Outlast {
        scale: "1",
        ..Outlast::new()
    };
    let pane = plain(&outlast, &["--model", "stall:3"]);
    pane.say("Say hello");
    pane.sees("You: Say hello");
    pane.press(&["C-c"]);
    pane.sees("Interrupted.");
    pane.press(&["C-c"]);
    pane.sees("Ctrl-C once more leaves");
    pane.press(&["C-c"]);
    assert_eq!(pane.ended(), "130");
}

#[test]
fn end_of_input_leaves_chat() {
    let outlast = Outlast::new();
    let pane = plain(&outlast, &["--model", "ok"]);
    pane.say("Say hello");
    pane.sees("You said: Say hello");
    pane.press(&["C-d"]);
    assert_eq!(pane.ended(), "0");
    assert!(flat(&pane.screen()).contains("goes on with this session."));
}

#[test]
fn dumb_terminal_gets_plain_chat() {
    let outlast = Outlast::new();
    let mut command = outlast.command(&["--model", "ok"]);
    command.env("TERM", "dumb");
    let pane = Pane::of(&command, WIDE);
    pane.wait_for("a prompt", |screen| screen.contains("\n>"));
    assert_eq!(pane.tells("#{alternate_on}"), "0");
    pane.say("Say hello");
    let answered = pane.sees("You said: Say hello");
    insta::assert_snapshot!("dumb", pane.shown(&answered));
}

#[test]
fn chat_without_terminal_fails_with_hint() {
    let outlast = Outlast::new();
    let ran = outlast.run(&[]);
    assert_eq!((ran.code, ran.stdout.as_str()), (2, ""));
    insta::assert_snapshot!("no_terminal", ran.stderr);
}
