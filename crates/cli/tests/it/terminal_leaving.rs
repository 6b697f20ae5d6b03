//! Ending and suspending a chat: the shell gets its terminal back, and the user a hint how to continue.

use crate::support::{Outlast, run_script_before};
use crate::terminal_driver::{DEFAULT_SIZE, Pane, countdown};
use assert_cmd::cargo::cargo_bin;
use std::process::Command;

fn waiting() -> Outlast {
    let outlast = Outlast {
        scale: "1",
        ..Outlast::new()
    };
    let settings = "[retry]\nbase_delay_ms = 200000\n";
    outlast.write("home/outlast.toml", settings);
    outlast
}

/// Lets the shell run the chat and print its exit code.
fn start(pane: &Pane, arguments: &str) {
    let program = cargo_bin("outlast");
    pane.say(&format!(
        "clear; {} {arguments}; echo \"ended with $?\"",
        program.display()
    ));
    pane.wait_for("the chat", |_| pane.tells("#{alternate_on}") == "1");
    assert_eq!(pane.tells(MODES), "1 1 1");
}

/// The terminal modes that a program can set: alternate screen, mouse reports, and their encoding.
const MODES: &str = "#{alternate_on} #{mouse_standard_flag} #{mouse_sgr_flag}";

/// Returns the process that the shell runs.
fn child_of(pane: &Pane) -> String {
    let shell = pane.process();
    let children = std::fs::read_to_string(format!("/proc/{shell}/task/{shell}/children"));
    children.unwrap().trim().to_owned()
}

/// Checks that the terminal is restored for the shell: line editing, echo and a visible cursor.
fn is_given_back(pane: &Pane) {
    assert_eq!(pane.tells(MODES), "0 0 0");
    assert_eq!(pane.tells("#{cursor_flag}"), "1");
    pane.say("clear; stty -a");
    let modes = pane.wait_for("modes", |screen| screen.contains("echoke"));
    let words: Vec<&str> = modes.split([' ', ';', '\n']).collect();
    for mode in ["icanon", "echo", "isig", "icrnl", "opost"] {
        assert!(words.contains(&mode), "{mode}: {modes}");
    }
}

#[test]
fn signal_restores_terminal_and_wait_can_be_resumed() {
    for (signal, code) in [("-TERM", 143), ("-HUP", 129)] {
        let outlast = waiting();
        let pane = Pane::shell(&outlast, &["sh"]);
        start(&pane, "--model overloaded:1");
        pane.is_ready();
        pane.say("Say hello");
        let before = countdown(&pane.sees("Retrying (1/3) in ")).unwrap();
        let sent = Command::new("kill")
            .args([signal, &child_of(&pane)])
            .status();
        assert!(sent.unwrap().success());
        let left = pane.sees(&format!("ended with {code}"));
        assert!(
            left.contains("Left in the middle: `outlast --session "),
            "{left}"
        );
        is_given_back(&pane);

        start(&pane, "--continue");
        let after = pane.sees("Retrying (1/3) in ");
        assert!(countdown(&after).unwrap() <= before, "{after}");
        assert_eq!(after.matches("› Say hello").count(), 1, "{after}");
    }
}

#[test]
fn closed_terminal_ends_chat_and_wait_can_be_resumed() {
    let outlast = waiting();
    let pane = Pane::chat(&outlast, &["--model", "overloaded:1"]);
    pane.is_ready();
    pane.say("Say hello");
    pane.sees("Retrying (1/3) in ");
    close_terminal(pane);
    let pane = Pane::chat(&outlast, &["--continue"]);
    pane.sees("Retrying (1/3) in ");
}

/// An idle chat draws nothing, so that no failed write tells it that the terminal is gone.
#[test]
fn closed_terminal_ends_idle_chat_that_ignores_hang_ups() {
    let outlast = Outlast::new();
    let chat = outlast.command(&["--model", "ok"]);
    let pane = Pane::of(&run_script_before("trap '' HUP", &chat), DEFAULT_SIZE);
    pane.is_ready();
    close_terminal(pane);
}

/// Closes the terminal and waits for the end of its process.
fn close_terminal(pane: Pane) {
    let process = pane.process();
    drop(pane);
    crate::mock_server::wait_for("an end", || {
        let state = std::fs::read_to_string(format!("/proc/{process}/stat"));
        state.map_or(true, |state| state.contains(") Z "))
    });
}

#[test]
fn leaving_prints_how_to_continue() {
    let ways: [(&str, &[&[&str]]); 4] = [
        ("ctrl-c", &[&["C-c"], &["C-c"]]),
        ("ctrl-d", &[&["C-d"]]),
        ("quit", &[&["/quit"], &["Enter"]]),
        ("exit", &[&["/exit"], &["Enter"]]),
    ];
    let outlast = waiting();
    let pane = Pane::shell(&outlast, &["sh"]);
    for (way, keys) in ways {
        start(&pane, "--model ok");
        pane.is_ready();
        pane.say(way);
        pane.is_answered(way);
        for (number, keys) in keys.iter().enumerate() {
            if way == "ctrl-c" && number == 1 {
                pane.sees("Ctrl-C once more leaves");
            }
            pane.press(keys);
        }
        let left = pane.sees("ended with 0");
        assert!(left.contains("` goes on with this session."), "{left}");
        assert!(!left.contains("Hello from"), "{left}");
        is_given_back(&pane);
    }
    start(&pane, "--continue");
    pane.sees("You said: exit");
    // A chat without a message has nothing to resume.
    pane.press(&["C-d"]);
    pane.sees("ended with 0");
    start(&pane, "");
    pane.is_ready();
    pane.press(&["C-d"]);
    let left = pane.sees("ended with 0");
    assert!(!left.contains("goes on"), "{left}");
}

#[test]
fn ctrl_c_clears_draft_then_interrupts_then_leaves() {
    let outlast = Outlast {
        scale: "1",
        ..Outlast::new()
    };
    let pane = Pane::chat(&outlast, &["--model", "stall:3"]);
    pane.is_ready();
    pane.say("Say hello");
    pane.sees("Hello from");
    pane.write("a draft");
    pane.sees("› a draft");
    pane.press(&["C-c"]);
    pane.wait_for("an empty editor", |screen| {
        screen.contains("\n›\n") && screen.contains("(esc to interrupt)")
    });
    pane.press(&["C-c"]);
    pane.sees("Interrupted.");
    pane.is_ready();
    pane.press(&["C-c"]);
    pane.sees("Ctrl-C once more leaves");
    // Another key cancels the first press.
    pane.write("x");
    pane.wait_for("no hint", |screen| !screen.contains("once more"));
    pane.press(&["C-c"]);
    pane.is_ready();
    pane.press(&["C-c"]);
    pane.sees("Ctrl-C once more leaves");
    pane.press(&["C-c"]);
    assert_eq!(pane.ended(), "0");
}

#[test]
fn ctrl_z_suspends_chat_and_fg_restores_it() {
    let outlast = waiting();
    let pane = Pane::shell(&outlast, &["bash", "--norc", "-i"]);
    start(&pane, "--model overloaded:1");
    pane.is_ready();
    pane.say("Say hello");
    let before = pane.sees("Retrying (1/3) in ");
    pane.press(&["C-z"]);
    pane.sees("Stopped");
    is_given_back(&pane);
    pane.say("fg");
    let after = pane.wait_for("the chat", |screen| screen.contains("r retries now"));
    assert_eq!(pane.tells(MODES), "1 1 1");
    assert!(countdown(&after) <= countdown(&before), "{after}");
    pane.write("still typed here");
    pane.sees("› still typed here");
    pane.press(&["C-c"]);
    pane.wait_for("an empty editor", |screen| screen.contains("\n›\n"));
    pane.press(&["r"]);
    pane.is_answered("Say hello");
}
