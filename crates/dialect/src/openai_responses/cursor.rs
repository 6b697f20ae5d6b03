//! How far an answer that the server keeps has been heard, and where its rest is.
//!
//! In background mode the server goes on when the connection is gone, and numbers the events. Invariant: a place is told
//! right behind what lies before it, so that what is heard up to a place and what is read after it is everything, once.

use crate::{Delta, StreamCursor};
use serde_json::Value;

/// Longer ids are nobody's.
const MAX_ID_BYTES: usize = 512;

/// Where the rest of an answer is. An id that would lead elsewhere leads nowhere.
pub(crate) fn resume_path(place: &StreamCursor) -> Option<String> {
    let StreamCursor { response, after } = place;
    let path = super::PATH;
    is_name(response).then(|| format!("{path}/{response}?stream=true&starting_after={after}"))
}

/// Whether this stays one segment of a path.
fn is_name(id: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-=.:~".contains(&byte);
    (1..=MAX_ID_BYTES).contains(&id.len()) && !id.starts_with('.') && id.bytes().all(is_plain)
}

/// How far an answer was heard.
#[derive(Debug, Default)]
pub(super) struct CursorTracker {
    /// The number of the last event that an earlier stream has brought.
    before: Option<u64>,
    /// The last place that was told.
    place: Option<StreamCursor>,
}

impl CursorTracker {
    /// All up to that place.
    pub(super) fn resumed_at(place: &StreamCursor) -> Self {
        Self {
            before: Some(place.after),
            place: Some(place.clone()),
        }
    }

    /// Whether an earlier stream has brought this event. Not every server begins where it is asked to.
    pub(super) fn has(&self, event: &Value) -> bool {
        let number = event["sequence_number"].as_u64();
        number.is_some_and(|number| self.before.is_some_and(|before| number <= before))
    }

    /// The place behind an event that has said this, if the server keeps the answer: as soon as it is announced, and
    /// then whenever something was said.
    pub(super) fn move_on(&mut self, event: &Value, said: &[Delta]) -> Option<Delta> {
        let after = event["sequence_number"].as_u64()?;
        let is_over = matches!(said.last(), Some(Delta::Stopped(_)));
        match &mut self.place {
            _ if is_over => return None,
            Some(place) if said.is_empty() || after <= place.after => return None,
            Some(place) => place.after = after,
            None => {
                let response = &event["response"];
                let id = response["id"].as_str().filter(|id| is_name(id))?;
                let is_kept = response["background"] == true;
                let response = id.to_owned();
                self.place = is_kept.then_some(StreamCursor { response, after });
            }
        }
        self.place.clone().map(Delta::Place)
    }
}

#[cfg(test)]
#[path = "place_tests.rs"]
mod tests;
