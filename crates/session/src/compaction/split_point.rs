//! Splits a conversation: the part before the split point is summarised, the part after it stays.
//!
//! Invariant: a tool's result is never separated from its call, nor from the other results of the same completion.

use outlast_dialect::{Message, Part};
use outlast_engine::token_estimate;
use std::collections::HashMap;

/// Returns the first split point after which there are at most `keep` tokens. When even the last step has more, returns
/// the split point before it; `0` when the conversation cannot be split.
pub(super) fn split_index(messages: &[Message], keep: u64) -> usize {
    let places = allowed_splits(messages);
    let (mut place, mut after) = (None, 0_u64);
    for index in (1..messages.len()).rev() {
        after = after.saturating_add(token_estimate::message_tokens(&messages[index]));
        if place.is_some() && after > keep {
            break;
        }
        if places[index] {
            place = Some(index);
        }
    }
    place.unwrap_or(0)
}

/// Returns, for each message, whether the conversation may be split before it.
fn allowed_splits(messages: &[Message]) -> Vec<bool> {
    let mut places = vec![true; messages.len()];
    let mut calls: HashMap<&str, usize> = HashMap::new();
    for (index, part) in parts(messages) {
        match part {
            Part::ToolCall(call) => {
                calls.insert(&call.id, index);
            }
            // Ids may be reused: the last call before the result is its call. A result without a call begins nothing.
            Part::ToolResult(result) => {
                let call = calls.get(result.id.as_str()).copied();
                let first = call.map_or(index, |call| call + 1);
                for place in places.iter_mut().take(index + 1).skip(first) {
                    *place = false;
                }
            }
            Part::Text { .. } | Part::Image(_) | Part::Reasoning(_) => {}
        }
    }
    places
}

fn parts(messages: &[Message]) -> impl Iterator<Item = (usize, &Part)> {
    let messages = messages.iter().enumerate();
    messages.flat_map(|(index, message)| message.parts.iter().map(move |part| (index, part)))
}
