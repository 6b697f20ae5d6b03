//! The first frame of a chat before anything is read, and the length of a conversation that it can
//! open.

use crate::recorder::{Call, Counted, Record, Recorder};
use crate::support::Outlast;
use crate::terminal_driver::{Pane, flat};
use crate::written::{self, LeftAs, answer, completed, prompt, typed};
use nix::pty::{Winsize, openpty};
use std::fs::File;
use std::io::Read;
use std::process::Stdio;

/// Records what a chat writes to its terminal and files, in order, until the text is on the screen.
fn recorded_until(outlast: &Outlast, shown: &str) -> Vec<Record> {
    let size = Winsize {
        ws_row: 24,
        ws_col: 80,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    let terminal = openpty(&size, None).unwrap();
    let recorder = Recorder::new(Counted::Everything);
    let mut command = outlast.command(&["--continue"]);
    command.env("TERM", "xterm-256color");
    let side = || Stdio::from(terminal.slave.try_clone().unwrap());
    command.stdin(side()).stdout(side()).stderr(side());
    let mut child = recorder.record(&mut command).spawn().unwrap();
    let mut screen = File::from(terminal.master);
    let (mut seen, mut piece) = (String::new(), [0; 4096]);
    while !seen.contains(shown) {
        let read = screen.read(&mut piece).unwrap();
        seen.push_str(&String::from_utf8_lossy(&piece[..read]));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    recorder.log()
}

/// Opening the session database creates files beside it, which are recorded.
#[test]
fn the_first_frame_is_drawn_before_any_session_is_opened() {
    let outlast = Outlast::new();
    for number in 0..20 {
        let id = format!("01900000-0000-7000-8000-{number:012}");
        let turn = vec![
            prompt("Say hello", typed("ok")),
            answer("Greetings."),
            completed(),
        ];
        written::session(&outlast, &id, &[turn], LeftAs::Free);
    }
    let log = recorded_until(&outlast, "Greetings.");
    let is_frame = |record: &Record| match &record.call {
        Call::Output { data } => String::from_utf8_lossy(data).contains("Starting…"),
        _ => false,
    };
    let is_opened = |record: &Record| record.path.to_string_lossy().starts_with("sessions.db");
    let (frame, opened) = (
        log.iter().position(is_frame),
        log.iter().position(is_opened),
    );
    assert!(frame.is_some() && frame < opened, "{frame:?} {opened:?}");
}

#[test]
fn ten_thousand_messages_are_opened_and_scrolled_through() {
    const ID: &str = "01900000-0000-7000-8000-000000000001";
    const TURNS: usize = 5000;
    let outlast = Outlast::new();
    let turn = |number: usize| {
        vec![
            prompt(&format!("Question {number} of many"), typed("ok")),
            answer(&format!("Answer {number}, in a line or two of words. ").repeat(3)),
            completed(),
        ]
    };
    let turns: Vec<_> = (1..=TURNS).map(turn).collect();
    written::session(&outlast, ID, &turns, LeftAs::Free);
    let pane = Pane::chat(&outlast, &["--continue"]);
    pane.sees(&format!("Answer {TURNS}, in a line"));
    pane.is_ready();
    let last = |screen: &str| {
        let flat = flat(screen);
        let (_, rest) = flat.rsplit_once("Answer ")?;
        rest.split_once(',')?.0.parse::<usize>().ok()
    };
    pane.press(&["PageUp"; 50]);
    let above = pane.wait_for("what was said before", |screen| {
        last(screen).is_some_and(|number| number < TURNS - 100)
    });
    assert!(above.contains("more below: ctrl-end"), "{above}");
    pane.press(&["C-Home"]);
    pane.sees("Question 1 of many");
    // The chat continues normally from there.
    pane.say("And now?");
    pane.is_answered("And now?");
}
