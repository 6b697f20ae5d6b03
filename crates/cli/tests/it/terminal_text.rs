//! Text input and output: pastes of any size, escapes that would control the terminal, disabled colours.

use crate::support::Outlast;
use crate::terminal_driver::{DEFAULT_SIZE, Pane, flat};
use serde_json::Value;

const AGENT: &str = "ok:agent,times=always";

/// Returns the prompts in the journal.
fn prompts(outlast: &Outlast) -> Vec<String> {
    let ran = outlast.run(&["sessions", "export", "--format", "jsonl"]);
    let lines = ran.stdout.lines().skip(1);
    let entries = lines.map(|line| serde_json::from_str::<Value>(line).unwrap());
    let prompts = entries.filter(|entry| entry["kind"] == "prompt");
    prompts
        .map(|entry| {
            let text = &entry["message"]["parts"][0]["text"];
            text.as_str()
                .unwrap_or_else(|| panic!("{entry}"))
                .to_owned()
        })
        .collect()
}

#[test]
fn large_paste_is_shown_abbreviated_and_sent_complete() {
    let line = "a line of a file that somebody wants to talk about, 64 bytes\r\n";
    let pasted: String = line
        .replace('\r', "")
        .repeat((1 << 20) / (line.len() - 1) + 1);
    let lines = pasted.lines().count();
    let outlast = Outlast::new();
    let pane = Pane::chat(&outlast, &["--model", "ok"]);
    pane.is_ready();
    pane.write("look: ");
    pane.paste(&pasted);
    let words = format!("› look: [pasted text 1: 1025 KiB, {lines} lines]");
    pane.sees(&words);
    // A paste is not sent before Enter, whatever line ends it has.
    pane.write("thanks");
    let written = pane.sees(&format!("{words}thanks"));
    insta::assert_snapshot!("pasted", pane.shown(&written));
    pane.press(&["Enter"]);
    pane.sees("Hello from");
    pane.is_ready();
    pane.press(&["C-d"]);
    assert_eq!(pane.ended(), "0");
    let prompts = prompts(&outlast);
    assert_eq!(prompts.len(), 1);
    assert!(prompts[0] == format!("look: {pasted}thanks"));
}

#[test]
fn pasted_lines_are_not_sent_before_enter() {
    let outlast = Outlast::new();
    let pane = Pane::chat(&outlast, &["--model", "ok"]);
    pane.is_ready();
    pane.paste("one\ntwo\n/quit\n");
    pane.write("end");
    let written = pane.sees("› one two /quit end");
    insta::assert_snapshot!("lines", pane.shown(&written));
    pane.press(&["Enter"]);
    pane.is_answered("one two /quit end");
    pane.press(&["C-d"]);
    pane.ended();
    assert_eq!(prompts(&outlast), ["one\ntwo\n/quit\nend"]);
}

/// Whether anything on the screen has a colour.
fn has_colours(screen: &str) -> bool {
    let codes = screen.split("\u{1b}[").skip(1);
    let codes = codes.filter_map(|rest| rest.split_once('m'));
    let mut numbers = codes.flat_map(|(codes, _)| codes.split([';', ':']));
    numbers.any(|number| {
        let number: u32 = number.parse().unwrap_or(0);
        matches!(number, 30..=38 | 40..=48 | 90..=107)
    })
}

#[test]
fn no_color_variable_disables_colours() {
    for (setting, expected) in [(None, true), (Some(""), true), (Some("1"), false)] {
        let outlast = Outlast::new();
        let mut command = outlast.command(&["--model", AGENT, "--allow", "bash"]);
        command.envs(setting.map(|value| ("NO_COLOR", value)));
        let pane = Pane::of(&command, DEFAULT_SIZE);
        pane.is_ready();
        // A failing command, an unknown command, headings, code: all of these have a colour.
        pane.paste("call bash {\"command\":\"exit 3\"}\nsay # Heading\nsay `code` and **strong**\nsay - item");
        pane.press(&["Enter"]);
        pane.sees("strong");
        pane.is_ready();
        pane.say("/nonsense");
        pane.sees("there is no command /nonsense");
        let screen = pane.coloured();
        assert_eq!(has_colours(&screen), expected, "{setting:?}: {screen}");
        assert!(screen.contains("\u{1b}["), "{screen}");
    }
}

/// State that only a program in control of the terminal may change.
const STATE: &str = "#{pane_title} #{cursor_flag} #{alternate_on} #{mouse_standard_flag} #{insert_flag} #{origin_flag}";

#[test]
fn escapes_in_completion_do_not_reach_terminal() {
    let outlast = Outlast::new();
    let pane = Pane::chat(&outlast, &["--model", "ok:escapes"]);
    pane.is_ready();
    let before = pane.tells(STATE);
    pane.say("Say hello");
    pane.sees("words.");
    let answered = pane.is_ready();
    insta::assert_snapshot!("escapes_of_a_model", pane.shown(&answered));
    assert_eq!(pane.tells(STATE), before);
    assert!(!flat(&answered).contains("[31m"), "{answered}");
}

#[test]
fn escapes_in_tool_output_do_not_reach_terminal() {
    let outlast = Outlast::new();
    let pane = Pane::chat(&outlast, &["--model", AGENT, "--allow", "bash"]);
    pane.is_ready();
    let before = pane.tells(STATE);
    let output = r"\\033]0;another title\\007\\033[2J\\033[31mred\\033[0m\\033[?25l\\033[?1049l\\033[4h\\r\\b\\b\\tend\\n";
    pane.say(&format!(r#"call bash {{"command":"printf '{output}'"}}"#));
    pane.sees("Done after 1 step");
    let ran = pane.is_ready();
    insta::assert_snapshot!("escapes_of_a_tool", pane.shown(&ran));
    assert_eq!(pane.tells(STATE), before);
}
