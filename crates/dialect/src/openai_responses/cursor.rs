//! Tracks the cursor of a completion that the server keeps, and the path of its rest.
//!
//! In background mode the server continues when the connection is gone, and numbers the events.
//! Invariant: a cursor is emitted right after the content before it, so that the deltas up to a cursor and those read
//! after it are everything, once.

use crate::{Delta, StreamCursor};
use serde_json::Value;

/// The maximum length of an id, in bytes.
const MAX_ID_BYTES: usize = 512;

/// Returns the path of the rest of a completion. An id that would change the path has none.
pub(crate) fn resume_path(place: &StreamCursor) -> Option<String> {
    let StreamCursor { response, after } = place;
    let path = super::PATH;
    is_path_segment(response)
        .then(|| format!("{path}/{response}?stream=true&starting_after={after}"))
}

/// Returns whether an id stays one segment of a path.
fn is_path_segment(id: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-=.:~".contains(&byte);
    (1..=MAX_ID_BYTES).contains(&id.len()) && !id.starts_with('.') && id.bytes().all(is_plain)
}

/// The position up to which a completion was received.
#[derive(Debug, Default)]
pub(super) struct CursorTracker {
    /// The number of the last event that an earlier stream delivered.
    resumed_after: Option<u64>,
    /// The last cursor that was emitted.
    cursor: Option<StreamCursor>,
}

impl CursorTracker {
    /// Creates the position after everything up to that cursor.
    pub(super) fn resumed_at(place: &StreamCursor) -> Self {
        Self {
            resumed_after: Some(place.after),
            cursor: Some(place.clone()),
        }
    }

    /// Returns whether an earlier stream has brought this event. Some servers do not begin at the requested event.
    pub(super) fn is_replayed(&self, event: &Value) -> bool {
        let number = event["sequence_number"].as_u64();
        number.is_some_and(|number| self.resumed_after.is_some_and(|before| number <= before))
    }

    /// Returns the cursor after an event with these deltas, if the server keeps the completion: as soon as it is
    /// announced, and then after every delta.
    pub(super) fn advance(&mut self, event: &Value, said: &[Delta]) -> Option<Delta> {
        let after = event["sequence_number"].as_u64()?;
        let is_over = matches!(said.last(), Some(Delta::Stopped(_)));
        match &mut self.cursor {
            _ if is_over => return None,
            Some(place) if said.is_empty() || after <= place.after => return None,
            Some(place) => place.after = after,
            None => {
                let response = &event["response"];
                let id = response["id"].as_str().filter(|id| is_path_segment(id))?;
                let is_kept = response["background"] == true;
                let response = id.to_owned();
                self.cursor = is_kept.then_some(StreamCursor { response, after });
            }
        }
        self.cursor.clone().map(Delta::Cursor)
    }
}

#[cfg(test)]
#[path = "place_tests.rs"]
mod tests;
