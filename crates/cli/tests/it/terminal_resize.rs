//! The chat on screens of all sizes, and during changes of the size.

use crate::support::Outlast;
use crate::terminal_driver::{DEFAULT_SIZE, Pane, countdown, flat};

fn waiting(seconds: u64) -> Outlast {
    let outlast = Outlast {
        scale: "1",
        ..Outlast::new()
    };
    let settings = format!("[retry]\nbase_delay_ms = {}\n", seconds * 1000);
    outlast.write("home/outlast.toml", settings);
    outlast
}

/// Waits until the countdown has changed and its line is complete.
fn moves_on(pane: &Pane, than: u64) -> (String, u64) {
    let screen = pane.wait_for("a countdown that moves", |screen| {
        countdown(screen).is_some_and(|left| left < than)
    });
    let left = countdown(&screen).unwrap();
    (screen, left)
}

/// Checks that a redraw of the whole screen changes nothing.
fn is_not_garbled(pane: &Pane) {
    let before = pane.is_ready();
    pane.press(&["C-l"]);
    // Keys are handled one after the other.
    pane.write("x");
    pane.sees("› x");
    pane.press(&["BSpace"]);
    assert_eq!(pane.is_ready(), before);
}

#[test]
fn countdown_continues_during_resize() {
    let outlast = waiting(59);
    let pane = Pane::chat(&outlast, &["--model", "overloaded:1"]);
    pane.is_ready();
    pane.say("Say hello");
    let (at_first, left) = moves_on(&pane, 59);
    pane.resize((40, 12));
    let (narrow, left) = moves_on(&pane, left);
    insta::assert_snapshot!("narrow", pane.shown(&narrow));
    pane.resize((20, 5));
    let (tiny, left) = moves_on(&pane, left);
    insta::assert_snapshot!("tiny", pane.shown(&tiny));
    pane.resize(DEFAULT_SIZE);
    let whole = "· r retries now";
    let back = pane.wait_for("the whole line", |screen| {
        countdown(screen).is_some_and(|now| now <= left) && screen.contains(whole)
    });
    assert_eq!(pane.shown(&back), pane.shown(&at_first));
    pane.press(&["r"]);
    pane.is_answered("Say hello");
    is_not_garbled(&pane);
}

/// Returns the numbers in the scripted provider's long completion.
fn numbers(screen: &str) -> Vec<u64> {
    let (answer, _) = screen.split_once("Working…").unwrap_or((screen, ""));
    let words = flat(answer);
    words
        .split(' ')
        .filter_map(|word| word.strip_suffix(',')?.parse().ok())
        .collect()
}

fn is_in_order(screen: &str) -> bool {
    let numbers = numbers(screen);
    !numbers.is_empty() && numbers.windows(2).all(|pair| pair[1] == pair[0] + 1)
}

#[test]
fn completion_keeps_streaming_during_resize() {
    let outlast = Outlast {
        scale: "1",
        ..Outlast::new()
    };
    let pane = Pane::chat(&outlast, &["--model", "drip:20,of=long"]);
    pane.is_ready();
    pane.say("Say hello");
    let mut last = 0;
    for size in [
        DEFAULT_SIZE,
        (40, 12),
        (20, 5),
        (200, 60),
        (10, 3),
        DEFAULT_SIZE,
    ] {
        pane.resize(size);
        let more = |screen: &str| {
            let widest = screen.lines().map(|line| line.chars().count()).max();
            // Drawn in this size, not in the one before.
            let width = usize::from(size.0);
            let fits = widest.is_some_and(|widest| (width / 2..=width).contains(&widest));
            // The smallest screen shows the activity and the editor.
            let is_smallest = size.1 == 3 && screen.contains("Working…");
            let is_newer = numbers(screen).last().is_some_and(|number| *number > last);
            fits && (is_smallest || is_newer && is_in_order(screen))
        };
        let screen = pane.moving("more of the answer", more);
        last = numbers(&screen).last().copied().unwrap_or(last);
    }
    pane.press(&["Escape"]);
    let end = pane.sees("Interrupted.");
    assert!(is_in_order(&end), "{end}");
    is_not_garbled(&pane);
    // Also from the beginning of the transcript.
    pane.press(&["C-Home"]);
    let beginning = pane.sees("› Say hello");
    assert!(is_in_order(&beginning), "{beginning}");
}

#[test]
fn chat_starts_on_smallest_screen() {
    let outlast = waiting(59);
    let command = outlast.command(&["--model", "overloaded:1"]);
    let pane = Pane::of(&command, (10, 3));
    insta::assert_snapshot!("smallest", pane.shown(&pane.is_ready()));
    pane.say("Hi");
    let waits = pane.sees("s… 1/3");
    // The screen is too narrow for the words that the other tests search for.
    let shown = pane.shown(&waits);
    let waits = shown.lines().map(|line| {
        let is_countdown = line.ends_with("s… 1/3");
        if is_countdown { "Ns… 1/3" } else { line }.to_owned() + "\n"
    });
    insta::assert_snapshot!("smallest_waits", waits.collect::<String>());
    pane.press(&["r"]);
    pane.resize(DEFAULT_SIZE);
    pane.is_answered("Hi");
    // tmux has the new size before the chat has drawn it.
    pane.sees("· 1 retry ·");
    is_not_garbled(&pane);
}

#[test]
fn chat_fills_largest_screen() {
    let outlast = waiting(59);
    let command = outlast.command(&["--model", "overloaded:1"]);
    let pane = Pane::of(&command, (200, 60));
    pane.is_ready();
    pane.say("Say hello");
    let waits = pane.sees("Retrying (1/3) in");
    insta::assert_snapshot!("largest", pane.shown(&waits));
    assert_eq!(waits.lines().count(), 60);
    pane.press(&["r"]);
    pane.is_answered("Say hello");
}
