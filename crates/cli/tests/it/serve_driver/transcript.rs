//! The transcript that a client of the turn stream builds from events, live or replayed.
//!
//! It leaves out retries and how a completion was split into pieces.

use serde_json::{Value, json};

/// The content that a client shows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Transcript {
    /// Each turn by its id, with its events.
    turns: Vec<(String, Vec<Value>)>,
    /// Number of events of the last turn that do not depend on the outcome of the current call.
    stands: usize,
    /// The usage of that call.
    usage: Value,
}

/// Two transcripts are equal if a person would see the same.
impl PartialEq for Transcript {
    fn eq(&self, other: &Self) -> bool {
        self.turns == other.turns
    }
}

impl Transcript {
    pub(crate) fn of<'a>(events: impl IntoIterator<Item = &'a Value>) -> Self {
        let mut transcript = Self::default();
        events.into_iter().for_each(|event| transcript.apply(event));
        transcript
    }

    /// Adds one event.
    pub(crate) fn apply(&mut self, event: &Value) {
        let Some(kind) = event["type"].as_str() else {
            panic!("not an event of a turn: {event}");
        };
        let id = event["turnId"].as_str().unwrap();
        if kind == "start" {
            self.turns.push((id.to_owned(), Vec::new()));
            (self.stands, self.usage) = (0, Value::Null);
            return;
        }
        let Some((turn, said)) = self.turns.last_mut() else {
            panic!("before any turn: {event}");
        };
        assert_eq!(turn, id, "of another turn: {event}");
        let is_over = said.last().is_some_and(|last| last["type"] == "sealed");
        assert!(!is_over, "after the end: {event}");
        match kind {
            "provider-retry" => {}
            "usage" => self.usage = event.clone(),
            "retracted" => {
                let taken_back = said.split_off(self.stands);
                let of_the_user = taken_back.into_iter().filter(|it| it["type"] == "input");
                said.extend(of_the_user);
            }
            _ => {
                put(said, event);
                if kind == "step-complete" {
                    said.push(self.usage.take());
                }
                if matches!(kind, "step-complete" | "tool-result") {
                    self.stands = said.len();
                }
            }
        }
    }

    /// Returns how each turn ended; an empty text for one that is still running.
    pub(crate) fn seals(&self) -> Vec<&str> {
        let last = self.turns.iter().map(|(_, said)| said.last());
        last.map(|last| last.and_then(|it| it["status"].as_str()).unwrap_or(""))
            .collect()
    }

    /// Returns the text of the model in each turn, its completions separated by a bar.
    pub(crate) fn texts(&self) -> Vec<String> {
        self.all("text-delta", "delta")
    }

    /// Returns the user's input in each turn.
    pub(crate) fn inputs(&self) -> Vec<String> {
        self.all("input", "text")
    }

    fn all(&self, kind: &str, field: &str) -> Vec<String> {
        let of = |(_, said): &(String, Vec<Value>)| {
            let said = said.iter().filter(|it| it["type"] == kind);
            let said: Vec<&str> = said.map(|it| it[field].as_str().unwrap()).collect();
            said.join("|")
        };
        self.turns.iter().map(of).collect()
    }
}

/// Appends an event; consecutive pieces of one text are joined.
fn put(said: &mut Vec<Value>, event: &Value) {
    let goes_on = |last: &&mut Value| event["delta"].is_string() && last["type"] == event["type"];
    match said.last_mut().filter(goes_on) {
        Some(last) => {
            let delta = event["delta"].as_str().unwrap();
            let text = last["delta"].as_str().unwrap().to_owned() + delta;
            last["delta"] = json!(text);
        }
        None => said.push(event.clone()),
    }
}
