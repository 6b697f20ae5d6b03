//! How soon a chat is there, and how long a conversation it opens.

use crate::support::Outlast;
use crate::terminal_driver::{Pane, flat};
use crate::written::{self, Left, answer, completed, prompt, typed};
use nix::pty::{Winsize, openpty};
use std::fs::File;
use std::io::Read;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// For an unoptimised build as well.
const SOON: Duration = Duration::from_millis(50);
/// What else the machine is busy with is not counted: one of them is undisturbed.
const TRIES: usize = 100;

/// How long it takes from the start of the process to the first frame.
fn first_frame(outlast: &Outlast) -> Duration {
    let size = Winsize {
        ws_row: 24,
        ws_col: 80,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    let terminal = openpty(&size, None).unwrap();
    let mut command = outlast.command(&["--model", "ok"]);
    command.env("TERM", "xterm-256color");
    let side = || Stdio::from(terminal.slave.try_clone().unwrap());
    command.stdin(side()).stdout(side()).stderr(side());
    let start = Instant::now();
    let mut child = command.spawn().unwrap();
    let mut screen = File::from(terminal.master);
    let (mut seen, mut piece) = (String::new(), [0; 4096]);
    while !seen.contains("Starting…") {
        let read = screen.read(&mut piece).unwrap();
        seen.push_str(&String::from_utf8_lossy(&piece[..read]));
    }
    let took = start.elapsed();
    child.kill().unwrap();
    child.wait().unwrap();
    took
}

#[test]
fn the_first_frame_is_there_at_once_however_much_is_written_down() {
    let outlast = Outlast::new();
    for number in 0..200 {
        let id = format!("01900000-0000-7000-8000-{number:012}");
        let turn = vec![
            prompt("Say hello", typed("ok")),
            answer("Hello."),
            completed(),
        ];
        written::session(&outlast, &id, (&[turn], Left::Free));
    }
    let mut took = (0..TRIES).map(|_| first_frame(&outlast));
    let soon = took.find(|took| *took < SOON);
    println!("the first frame came after {soon:?}");
    assert!(soon.is_some(), "not once in {TRIES} tries");
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
    written::session(&outlast, ID, (&turns, Left::Free));
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
    // It goes on from there as from anywhere.
    pane.say("And now?");
    pane.is_answered("And now?");
}
