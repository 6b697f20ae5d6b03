//! Recorded events of turns, and the resulting transcripts.

use super::*;
use crate::output::progress::time_of_day;
use crate::tui::activity::ActivityText;

/// Parses the events of a turn, each with its time.
fn recorded(lines: &str) -> Vec<(Body, Timestamp)> {
    #[derive(serde::Deserialize)]
    struct Recorded {
        time: Timestamp,
        #[serde(flatten)]
        body: Body,
    }
    let lines = lines.lines();
    let read = |line| serde_json::from_str::<Recorded>(line).unwrap();
    lines.map(read).map(|it| (it.body, it.time)).collect()
}

const TURNS: [(&str, &str); 15] = [
    ("overloaded", include_str!("../recorded/overloaded.jsonl")),
    ("exhausted", include_str!("../recorded/exhausted.jsonl")),
    ("retracted", include_str!("../recorded/retracted.jsonl")),
    ("failed", include_str!("../recorded/failed.jsonl")),
    ("continued", include_str!("../recorded/continued.jsonl")),
    ("twice", include_str!("../recorded/twice.jsonl")),
    ("limited", include_str!("../recorded/limited.jsonl")),
    ("fallback", include_str!("../recorded/fallback.jsonl")),
    ("overflow", include_str!("../recorded/overflow.jsonl")),
    ("tools", include_str!("../recorded/tools.jsonl")),
    ("mixed", include_str!("../recorded/mixed.jsonl")),
    ("cancelled", include_str!("../recorded/cancelled.jsonl")),
    ("aborted", include_str!("../recorded/aborted.jsonl")),
    ("interrupted", include_str!("../recorded/interrupted.jsonl")),
    ("steered", include_str!("../recorded/steered.jsonl")),
];

/// Plays a turn; returns its transcript, and the activity lines while it ran.
fn played(lines: &str) -> String {
    let mut chat = idle();
    let (mut above, mut times) = (Vec::new(), Vec::new());
    for (body, now) in recorded(lines) {
        if let Body::ModelSwitched {
            until: Some(until), ..
        } = &body
        {
            times.push(time_of_day(*until, now));
        }
        if let Body::RetryScheduled { retry_at, .. } = &body {
            times.push(time_of_day(*retry_at, now));
        }
        chat.handle(event(body), now);
        if let Some(ActivityText {
            text: words,
            details: more,
            ..
        }) = chat.activity.describe(now)
        {
            above.push(format!("{words}{more}"));
        }
    }
    assert!(chat.is_busy(), "it is over when the driver says so");
    chat.handle(Input::TaskEnded(Outcome::default()), NOW);
    assert!(!chat.is_busy() && chat.activity == Activity::Idle);
    assert_eq!(
        chat.transcript.settled_from(0).count(),
        chat.transcript.len()
    );
    above.dedup();
    let (shown, above) = (chat.shown(), above.join("\n"));
    let mut all = format!("{shown}\n\n=== above the editor\n{above}\n");
    // The time zone is that of the machine.
    for time in times {
        all = all.replace(&time, "TIME");
    }
    all
}

#[test]
fn recorded_turns_match_transcript_snapshot() {
    let mut all = String::new();
    for (name, lines) in TURNS {
        all.push_str(&format!("##### {name}\n{}\n", played(lines)));
    }
    insta::assert_snapshot!(all);
}

#[test]
fn completion_is_shown_once_and_retraction_is_marked() {
    let answer = "Hello from the scripted provider: no network, no key, no cost. You said: hello";
    for (name, lines) in TURNS {
        let shown = played(lines);
        let found = shown.matches(answer).count();
        let is_whole = ["overloaded", "retracted", "limited", "fallback"].contains(&name);
        if is_whole {
            assert_eq!(found, 1, "{name}");
        }
        let broke_off = shown.matches("(broke off, and is asked for again)").count();
        assert_eq!(broke_off, usize::from(name == "retracted"), "{name}");
        assert_eq!(shown.matches("› hello").count(), 1, "{name}");
    }
}
