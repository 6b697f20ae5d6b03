//! Approval of tools: the keys that answer a question, and those that do not.

use crate::support::Outlast;
use crate::terminal_driver::{Pane, flat};

const AGENT: &str = "ok:agent,times=always";

fn is_asked(screen: &str) -> bool {
    screen.contains("  run it? ")
}

/// Answers with a letter. A key right after the question may still be meant for a message.
fn answer(pane: &Pane, letter: &str) {
    loop {
        pane.press(&[letter]);
        let written = format!("\n› {letter}\n");
        let after = pane.wait_for("an effect", |screen| {
            !is_asked(screen) || screen.contains(&written)
        });
        if !is_asked(&after) {
            return;
        }
        pane.press(&["BSpace"]);
        pane.wait_for("an empty editor", |screen| screen.contains("\n›\n"));
    }
}

fn make(name: &str) -> String {
    format!(r#"call bash {{"command":"touch {name}"}}"#)
}

#[test]
fn approval_keys_allow_or_refuse_tool() {
    let outlast = Outlast::new();
    let is_made = |name: &str| outlast.folder.path().join(name).exists();
    let pane = Pane::chat(&outlast, &["--model", AGENT]);
    pane.is_ready();
    pane.say(&make("first"));
    let asked = pane.wait_for("a question", is_asked);
    insta::assert_snapshot!("asked", pane.shown(&asked));
    assert!(!is_made("first"));
    answer(&pane, "y");
    let ran = pane.wait_for("an end", |screen| {
        screen.contains("Done after 1 step") && !screen.contains("(esc to ")
    });
    insta::assert_snapshot!("allowed", pane.shown(&ran));
    assert!(is_made("first"));

    pane.say(&make("second"));
    pane.wait_for("a question", is_asked);
    answer(&pane, "n");
    let refused = pane.is_ready();
    insta::assert_snapshot!("refused", pane.shown(&refused));
    assert!(!is_made("second"));

    pane.say(&make("third"));
    pane.wait_for("a question", is_asked);
    answer(&pane, "A");
    pane.is_ready();
    assert!(is_made("third"));
    pane.say(&make("fourth"));
    pane.wait_for("the fourth", |screen| {
        assert!(!is_asked(screen), "{screen}");
        screen.contains("bash touch fourth") && screen.contains("\n›\n")
    });
    pane.is_ready();
    assert!(is_made("fourth"));
}

#[test]
fn esc_refuses_tool_and_turn_continues() {
    let outlast = Outlast::new();
    let pane = Pane::chat(&outlast, &["--model", AGENT]);
    pane.is_ready();
    pane.paste(&format!("{}\nsay I see", make("first")));
    pane.press(&["Enter"]);
    pane.wait_for("a question", is_asked);
    pane.press(&["Escape"]);
    let refused = pane.sees("I see");
    assert!(!refused.contains("Interrupted."), "{refused}");
    assert!(!outlast.folder.path().join("first").exists());
}

#[test]
fn keys_typed_into_draft_do_not_approve_tool() {
    // In real time, so that the tool does not time out.
    let outlast = Outlast {
        scale: "1",
        ..Outlast::new()
    };
    let pane = Pane::chat(&outlast, &["--model", AGENT]);
    pane.is_ready();
    let waits = r#"call bash {"command":"until test -e go; do sleep 0.05; done"}"#;
    pane.paste(&format!("{waits}\n{}", make("second")));
    pane.press(&["Enter"]);
    pane.wait_for("a question", is_asked);
    answer(&pane, "y");
    pane.write("ma");
    pane.sees("› ma");
    outlast.write("go", "");
    pane.wait_for("a second question", is_asked);
    pane.write("yna");
    let written = pane.sees("› mayna");
    assert!(
        flat(&written).contains("run it? alt-y yes · alt-n or esc no"),
        "{written}"
    );
    insta::assert_snapshot!("not_answered", pane.shown(&written));
    assert!(!outlast.folder.path().join("second").exists());
    pane.press(&["M-y"]);
    let ran = pane.wait_for("an end", |screen| screen.contains("Done after 2 steps"));
    assert!(ran.contains("\n› mayna\n"), "{ran}");
    assert!(outlast.folder.path().join("second").exists());
}

#[test]
fn tool_question_fits_on_small_screen() {
    let outlast = Outlast::new();
    let pane = Pane::of(&outlast.command(&["--model", AGENT]), (30, 6));
    pane.is_ready();
    pane.paste(&make("first"));
    pane.press(&["Enter"]);
    let asked = pane.sees("y yes");
    insta::assert_snapshot!("asked_on_a_small_screen", pane.shown(&asked));
    pane.press(&["M-n"]);
    pane.is_ready();
    assert!(!outlast.folder.path().join("first").exists());
}
