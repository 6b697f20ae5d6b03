//! Slash commands, and the completion list.

use crate::support::Outlast;
use crate::terminal_driver::{Pane, flat};
use crate::written;

#[test]
fn slash_lists_commands_and_keys_select_one() {
    let outlast = Outlast::new();
    let pane = Pane::chat(&outlast, &["--model", "ok"]);
    pane.is_ready();
    pane.write("/");
    let listed = pane.sees("go on with another session");
    insta::assert_snapshot!("listed", pane.shown(&listed));
    // Nothing is selected any more, and the typed text is still there.
    pane.press(&["Escape"]);
    pane.wait_for("no list", |screen| {
        !screen.contains("another session") && screen.contains("\n› /\n")
    });
    pane.write("po");
    pane.sees("/policy NAME");
    pane.press(&["Tab"]);
    let policies = pane.sees("gateway");
    assert!(policies.contains("\n› /policy"), "{policies}");
    insta::assert_snapshot!("policies", pane.shown(&policies));
    // Up from the first choice selects the last one.
    pane.press(&["Up", "Up", "Down"]);
    pane.press(&["Enter"]);
    pane.sees("From the next message on it is retried by `gateway`.");
    let ready = pane.is_ready();
    assert!(ready.contains("0 retries · gateway"), "{ready}");
}

#[test]
fn unknown_command_suggests_nearest_and_stays_editable() {
    let outlast = Outlast::new();
    let pane = Pane::chat(&outlast, &["--model", "ok"]);
    pane.is_ready();
    pane.say("/polcy standard");
    let unknown = pane.sees("there is no command /polcy; did you mean /policy? (/help)");
    assert!(unknown.contains("\n› /polcy standard\n"), "{unknown}");
    pane.press(&["C-u"]);
    pane.is_ready();
    pane.say("/policy nonsense");
    let unknown = pane.sees("nonsense`");
    insta::assert_snapshot!("unknown_policy", pane.shown(&unknown));
    // A path is a message.
    pane.press(&["C-u"]);
    pane.is_ready();
    pane.say("/usr/bin is a folder");
    pane.is_answered("/usr/bin is a folder");
}

#[test]
fn help_tells_commands_and_keys() {
    let outlast = Outlast::new();
    let pane = Pane::of(&outlast.command(&["--model", "ok"]), (80, 40));
    pane.is_ready();
    pane.say("/help");
    let help = pane.sees("Ctrl-Z suspends");
    insta::assert_snapshot!("help", pane.shown(&help));
}

#[test]
fn model_command_applies_from_next_message() {
    let outlast = Outlast::new();
    let pane = Pane::chat(&outlast, &["--model", "ok"]);
    pane.is_ready();
    pane.say("/model ok:refusal");
    pane.sees("mock:ok:refusal is asked from here on.");
    pane.say("Say hello");
    pane.sees("I can't help with that.");
    let refused = pane.sees("refused to answer");
    assert!(refused.contains("\nok:refusal · "), "{refused}");
    pane.is_ready();
    pane.say("/model nowhere:m");
    let unknown = pane.sees("nowhere");
    assert!(unknown.contains("\nok:refusal · "), "{unknown}");
}

#[test]
fn sessions_can_be_created_switched_and_continued() {
    let outlast = Outlast::new();
    let pane = Pane::chat(&outlast, &["--model", "ok"]);
    pane.is_ready();
    pane.say("/sessions ");
    pane.sees("There is no other session.");
    pane.press(&["C-u"]);
    pane.is_ready();
    pane.say("The first one");
    pane.is_answered("The first one");
    pane.say("/new");
    pane.wait_for("an empty transcript", |screen| {
        screen.contains("/help lists commands") && !screen.contains("The first one")
    });
    pane.is_ready();
    pane.say("The second one");
    pane.is_answered("The second one");
    pane.write("/ses");
    pane.sees("/sessions ID");
    pane.press(&["Enter"]);
    pane.sees("The first one finished");
    pane.write("first");
    pane.sees("› /sessions first");
    pane.press(&["Enter"]);
    let first = pane.wait_for("the first session", |screen| {
        flat(screen).contains("You said: The first one") && !screen.contains("second")
    });
    insta::assert_snapshot!("another_session", pane.shown(&first));
    // This session is continued.
    pane.say("Again");
    pane.is_answered("Again");
    pane.say("/sessions nonsense");
    let unknown = pane.sees("nonsense");
    assert!(unknown.contains("You said: Again"), "{unknown}");
}

#[test]
fn new_and_compact_are_refused_while_turn_runs() {
    let outlast = Outlast {
        scale: "1",
        ..Outlast::new()
    };
    let pane = Pane::chat(&outlast, &["--model", "stall:3"]);
    pane.is_ready();
    pane.say("Say hello");
    pane.sees("Hello from");
    for command in ["/new", "/compact"] {
        pane.say(command);
        pane.sees("The model works: Esc interrupts it first.");
    }
    pane.press(&["Escape"]);
    pane.sees("Interrupted.");
    pane.is_ready();
    pane.say("/new");
    pane.wait_for("a new session", |screen| !screen.contains("Interrupted."));
}

#[test]
fn compact_command_shrinks_conversation() {
    const ID: &str = "01900000-0000-7000-8000-000000000001";
    let outlast = Outlast::new();
    written::long_session(&outlast, ID, "ok");
    outlast.write("home/outlast.toml", "[compaction]\nkeep = 1000\n");
    let pane = Pane::chat(&outlast, &["--continue"]);
    pane.sees("half of the work");
    pane.is_ready();
    pane.say("/compact");
    pane.sees("The conversation was made smaller, from about ");
    pane.is_ready();
    pane.say("And now?");
    pane.is_answered("And now?");
}

#[test]
fn accounts_command_shows_accounts() {
    let outlast = Outlast::new();
    let pane = Pane::chat(&outlast, &["--model", "ok"]);
    pane.is_ready();
    pane.say("/accounts");
    let told = pane.wait_for("accounts", |screen| screen.contains("ccount"));
    insta::assert_snapshot!("accounts", pane.shown(&told));
}

#[test]
fn up_and_down_browse_earlier_messages() {
    let outlast = Outlast::new();
    let pane = Pane::chat(&outlast, &["--model", "ok"]);
    pane.is_ready();
    for said in ["first thing", "second thing"] {
        pane.say(said);
        pane.is_answered(said);
    }
    pane.write("a draft");
    pane.press(&["Up"]);
    pane.wait_for("the second", |screen| {
        screen.contains("\n› second thing\nok")
    });
    pane.press(&["Up"]);
    pane.wait_for("the first", |screen| screen.contains("\n› first thing\nok"));
    pane.press(&["Down"]);
    pane.wait_for("the second", |screen| {
        screen.contains("\n› second thing\nok")
    });
    pane.press(&["Down"]);
    pane.wait_for("the draft", |screen| screen.contains("\n› a draft\nok"));
}
