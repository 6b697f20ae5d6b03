//! A retry in the chat: its countdown, cancelling, retrying now, and its end.

use crate::support::Outlast;
use crate::terminal_driver::{Pane, countdown};

/// Creates a command in real time, so that a wait lasts long enough to be seen.
fn in_real_time() -> Outlast {
    Outlast {
        scale: "1",
        ..Outlast::new()
    }
}

/// The same with waits of the given length.
fn with_delay(seconds: u64) -> Outlast {
    let outlast = in_real_time();
    let settings = format!("[retry]\nbase_delay_ms = {}\n", seconds * 1000);
    outlast.write("home/outlast.toml", settings);
    outlast
}

#[test]
fn the_loader_counts_down_and_attempts_are_numbered() {
    let outlast = with_delay(29);
    let pane = Pane::chat(&outlast, &["--model", "overloaded:9"]);
    insta::assert_snapshot!("ready", pane.shown(&pane.is_ready()));
    pane.say("Say hello");
    let first = pane.sees("Retrying (1/3) in ");
    let left = countdown(&first).unwrap();
    let words = format!("\nRetrying (1/3) in {left}s… (esc to cancel) · r retries now\n");
    assert!(left <= 29 && first.contains(&words), "{first}");
    insta::assert_snapshot!("first_retry", pane.shown(&first));
    // No test waits for the end of a wait.
    pane.press(&["r"]);
    let second = pane.sees("Retrying (2/3) in ");
    insta::assert_snapshot!("second_retry", pane.shown(&second));
    let left = countdown(&second).unwrap();
    pane.wait_for("a countdown that moves", |screen| {
        screen.contains("(2/3)") && countdown(screen).is_some_and(|later| later < left)
    });
    pane.press(&["r"]);
    pane.sees("Retrying (3/3) in ");
}

#[test]
fn esc_cancels_the_retry_and_nothing_else() {
    let outlast = with_delay(200);
    let pane = Pane::chat(&outlast, &["--model", "overloaded:1+stall:3+ok"]);
    pane.is_ready();
    pane.say("Say hello");
    pane.sees("Retrying (1/3) in ");
    pane.write("a draft");
    pane.sees("› a draft");
    pane.press(&["Escape"]);
    let cancelled = pane.wait_for("an end of the retry", |screen| {
        screen.contains("\nRetry failed after 1 attempts: Retry cancelled\n")
            && !screen.contains("(esc to ")
    });
    insta::assert_snapshot!("cancelled", pane.shown(&cancelled));

    // The draft can be sent, and Esc has its usual meaning again.
    pane.press(&["Enter"]);
    pane.wait_for("the beginning of an answer", |screen| {
        screen.contains("Hello from") && screen.contains("(esc to interrupt)")
    });
    pane.press(&["Escape"]);
    let interrupted = pane.sees("Interrupted.");
    assert!(!interrupted.contains("(esc to "), "{interrupted}");
    insta::assert_snapshot!("interrupted", pane.shown(&interrupted));

    // With nothing to interrupt, it scrolls to the end.
    pane.resize((80, 12));
    pane.write("third");
    pane.press(&["PageUp"]);
    pane.sees("more below");
    pane.press(&["Escape"]);
    pane.wait_for("the end", |screen| !screen.contains("more below"));
    pane.press(&["Enter"]);
    pane.is_answered("third");
}

#[test]
fn esc_interrupts_a_tool() {
    let outlast = in_real_time();
    let arguments = ["--model", "ok:agent,times=always", "--allow", "bash"];
    let pane = Pane::chat(&outlast, &arguments);
    pane.is_ready();
    pane.say(r#"call bash {"command":"touch started; sleep 1000"}"#);
    pane.wait_for("the tool", |_| {
        outlast.folder.path().join("started").exists()
    });
    pane.press(&["Escape"]);
    pane.sees("Interrupted.");
    pane.is_ready();
    pane.say("say still here");
    pane.wait_for("an answer", |screen| screen.contains("\nstill here\n"));
}

#[test]
fn r_retries_now_unless_text_is_being_typed() {
    let outlast = with_delay(200);
    let pane = Pane::chat(&outlast, &["--model", "overloaded:1"]);
    pane.is_ready();
    pane.say("Say hello");
    pane.is_waiting("(1/3)", 150..=200);
    pane.write("wor");
    let written = pane.sees("› wor");
    assert_eq!(countdown(&written).map(|left| left > 100), Some(true));
    pane.press(&["BSpace", "BSpace", "BSpace"]);
    pane.wait_for("an empty editor", |screen| screen.contains("\n›\n"));
    pane.press(&["r"]);
    let answered = pane.is_answered("Say hello");
    insta::assert_snapshot!("retried_now", pane.shown(&answered));
}

#[test]
fn retry_command_ends_wait_and_repeats_failed_turn() {
    let outlast = with_delay(200);
    let pane = Pane::chat(&outlast, &["--model", "overloaded:2"]);
    pane.is_ready();
    pane.say("Say hello");
    pane.is_waiting("(1/3)", 150..=200);
    pane.say("/retry");
    pane.is_waiting("(2/3)", 300..=400);
    pane.press(&["Escape"]);
    pane.sees("Retry cancelled");
    pane.say("/retry");
    let answered = pane.is_answered("Say hello");
    assert_eq!(answered.matches("› Say hello").count(), 1, "{answered}");
    insta::assert_snapshot!("tried_again", pane.shown(&answered));
    pane.say("/retry");
    pane.sees("There is nothing to try again.");
}

#[test]
fn exhausted_retries_show_last_error() {
    let outlast = Outlast::new();
    let pane = Pane::chat(&outlast, &["--model", "overloaded:9"]);
    pane.is_ready();
    pane.say("Say hello");
    let failed = pane.sees("/policy overnight, then /retry");
    assert!(failed.contains("\nRetry failed after 3 attempts: Overloaded\n"));
    insta::assert_snapshot!("exhausted", pane.shown(&failed));
    // The chat works as before.
    pane.say("/model ok");
    pane.sees("is asked from here on");
    pane.say("Once more");
    pane.is_answered("Once more");
}

#[test]
fn retries_can_be_switched_off_and_on() {
    let outlast = with_delay(200);
    let pane = Pane::chat(&outlast, &["--model", "overloaded:2"]);
    pane.is_ready();
    pane.say("/retry off");
    pane.sees("Failures are not retried any more");
    pane.say("Say hello");
    let failed = pane.sees("⚠ Server overloaded");
    assert!(failed.contains("retries off"), "{failed}");
    assert_eq!(countdown(&failed), None);
    pane.is_ready();
    pane.say("/retry on");
    pane.sees("Failures are retried.");
    pane.say("Say it again");
    pane.sees("Retrying (1/3) in ");
}

#[test]
fn message_queued_during_wait_returns_when_cancelled() {
    let outlast = with_delay(200);
    let pane = Pane::chat(&outlast, &["--model", "overloaded:2"]);
    pane.is_ready();
    pane.say("Say hello");
    pane.sees("Retrying (1/3) in ");
    pane.say("and goodbye");
    let queued = pane.sees("» and goodbye");
    insta::assert_snapshot!("queued", without_clock(&pane.shown(&queued)));
    pane.press(&["Escape"]);
    pane.sees("Retry cancelled");
    let back = pane.wait_for("what was said", |screen| {
        screen.contains("\n› and goodbye\n") && !screen.contains('»')
    });
    assert!(!back.contains("(esc to "), "{back}");
    pane.press(&["Enter"]);
    pane.sees("Retrying (1/3) in ");
    pane.say("and again");
    pane.sees("» and again");
    pane.press(&["r"]);
    let answered = pane.is_answered("and again");
    assert_eq!(answered.matches("› and again").count(), 1, "{answered}");
}

/// Removes the times of a long wait from a screen.
fn without_clock(screen: &str) -> String {
    let (before, rest) = screen.split_once("(esc to cancel)").unwrap();
    let (_, after) = rest.split_once(" · r ").unwrap();
    format!("{before}(esc to cancel) · TIME · r {after}")
}
