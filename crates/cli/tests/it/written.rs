//! Sessions for tests: writes their entries straight into the journal of a home.

use crate::support::Outlast;
use outlast_dialect::{Message, Part, Role};
use outlast_engine::journal::{Entry, TurnError};
use outlast_kernel::Timestamp;
use outlast_kernel::budget::Prompt;
use outlast_kernel::event::{StopReason, TurnStatus, Usage};
use outlast_kernel::verdict::Cause;
use outlast_store::Journal;
use outlast_store::journal::{NewSession, RawEntry};
use serde_json::{Value, json};
use std::fs;
use tokio::runtime::Runtime;

/// The state in which a process left its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeftAs {
    /// The process released it.
    Free,
    /// The process died before it could release it.
    Abandoned,
}

/// Writes a session of the command's folder, turn by turn.
pub(crate) fn session(outlast: &Outlast, id: &str, turns: &[Vec<Entry>], left: LeftAs) {
    let (home, runtime) = (outlast.home(), Runtime::new().unwrap());
    fs::create_dir_all(&home).unwrap();
    fs::write(home.join("VERSION"), "1\n").unwrap();
    let journal = Journal::open(&home.join("sessions.db")).unwrap().journal;
    let new = NewSession {
        id: id.to_owned(),
        directory: outlast.folder.path().to_str().unwrap().to_owned(),
        title: title(turns),
        now: second(0),
    };
    let hold = runtime.block_on(journal.create(new)).unwrap();
    let turns = turns.iter().zip(1..);
    let lines = turns.flat_map(|(entries, turn)| entries.iter().map(move |it| line(turn, it)));
    let written = runtime.block_on(journal.append(&hold, lines.collect()));
    written.unwrap();
    match left {
        LeftAs::Free => runtime.block_on(journal.release(hold)).unwrap(),
        LeftAs::Abandoned => {
            // An owner without its lock file counts as dead, and a forgotten lock is never
            // released.
            std::mem::forget(hold);
            fs::remove_dir_all(home.join("sessions.db.owners")).unwrap();
        }
    }
}

/// Returns the first line of the first message as the title.
fn title(turns: &[Vec<Entry>]) -> String {
    match turns.first().and_then(|turn| turn.first()) {
        Some(Entry::Prompt { message, .. }) => {
            let text = message.as_ref().map(Message::text).unwrap_or_default();
            text.lines().next().unwrap_or_default().to_owned()
        }
        _ => String::new(),
    }
}

fn second(number: u64) -> Timestamp {
    Timestamp::from_millis(1_700_000_000_000 + 1000 * number)
}

fn line(turn: u64, entry: &Entry) -> RawEntry {
    RawEntry {
        turn,
        kind: entry.kind().to_owned(),
        time: second(turn),
        body: serde_json::to_string(entry).unwrap(),
    }
}

// --- Entries ---

/// Returns the typed settings of a prompt: a script of the built-in provider.
pub(crate) fn typed(model: &str) -> Value {
    json!({"settings": {"model": model}})
}

pub(crate) fn prompt(text: &str, options: Value) -> Entry {
    Entry::Prompt {
        chosen: false,
        turn_id: format!("turn of {text}"),
        message: Some(Message::user(text)),
        budget: Prompt::default(),
        options,
    }
}

pub(crate) fn answer(text: &str) -> Entry {
    let text = text.to_owned();
    Entry::Message {
        message: Message {
            role: Role::Assistant,
            parts: vec![Part::Text { text }],
        },
        stop_reason: StopReason::EndTurn,
        usage: Usage::default(),
        model: "ok".to_owned(),
    }
}

pub(crate) fn completed() -> Entry {
    settled(TurnStatus::Completed, None)
}

pub(crate) fn failed() -> Entry {
    let error = TurnError {
        cause: Cause::Overloaded,
        message: "come back tomorrow".to_owned(),
        reason: "3 retries were used up".to_owned(),
    };
    settled(TurnStatus::Error, Some(error))
}

fn settled(seal: TurnStatus, error: Option<TurnError>) -> Entry {
    let usage = Usage::default();
    Entry::Settled { seal, usage, error }
}

/// Writes a finished session with a conversation long enough for a summary.
pub(crate) fn long_session(outlast: &Outlast, id: &str, model: &str) {
    let long = "The first half of the work is done. ".repeat(400);
    let turn = |text: &str| vec![prompt(text, typed(model)), answer(&long), completed()];
    let turns = [turn("Do the work"), turn("Go on"), turn("What is left?")];
    session(outlast, id, &turns, LeftAs::Free);
}
