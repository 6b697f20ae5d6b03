//! Makes the ids of tool calls in a request unique, in characters that the dialect accepts.
//!
//! Some servers number the calls of each completion anew, generated ids do so, too, and the calls of another provider's
//! model have that provider's ids.
//! Invariants: a conversation with valid ids is sent unchanged; a result has the id of its call; an id depends on
//! nothing that comes after it, or the provider's cache would miss.

use crate::{Part, Request};
use outlast_kernel::event::ToolCall;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet, VecDeque};

/// Returns the request with new ids in place of repeated or invalid ones.
pub(crate) fn with_valid_ids(request: &Request, is_valid: fn(&str) -> bool) -> Cow<'_, Request> {
    let mut seen = HashSet::new();
    let messages = request.messages.iter();
    let mut calls = messages.flat_map(|message| message.tool_calls());
    if calls.all(|call: &ToolCall| is_valid(&call.id) && seen.insert(call.id.as_str())) {
        return Cow::Borrowed(request);
    }
    let mut request = request.clone();
    let mut names = IdAssigner {
        is_valid,
        assigned: HashSet::new(),
        pending_results: HashMap::new(),
    };
    for message in &mut request.messages {
        if message.tool_calls().next().is_some() {
            names.pending_results.clear();
        }
        message.parts.iter_mut().for_each(|part| names.assign(part));
    }
    Cow::Owned(request)
}

struct IdAssigner {
    is_valid: fn(&str) -> bool,
    assigned: HashSet<String>,
    /// The new ids of the calls without results so far, by their old ones.
    pending_results: HashMap<String, VecDeque<String>>,
}

impl IdAssigner {
    fn assign(&mut self, part: &mut Part) {
        match part {
            Part::ToolCall(call) => {
                let new = self.unused_id(&call.id);
                self.assigned.insert(new.clone());
                let old = std::mem::replace(&mut call.id, new.clone());
                self.pending_results.entry(old).or_default().push_back(new);
            }
            Part::ToolResult(result) => {
                let open = self.pending_results.get_mut(&result.id);
                if let Some(new) = open.and_then(VecDeque::pop_front) {
                    result.id = new;
                }
            }
            Part::Text { .. } | Part::Image(_) | Part::Reasoning(_) => {}
        }
    }

    /// Returns the id itself, or a similar one that is unused.
    fn unused_id(&self, id: &str) -> String {
        let is_free = |id: &str| !self.assigned.contains(id);
        if (self.is_valid)(id) && is_free(id) {
            return id.to_owned();
        }
        let plain: String = id.chars().map(sanitize_char).collect();
        let likes = (2_u64..).map(|number| format!("{plain}_{number}"));
        let mut likes = likes.filter(|like| is_free(like));
        likes.next().unwrap_or(plain)
    }
}

fn sanitize_char(letter: char) -> char {
    match is_portable_char(letter) {
        true => letter,
        false => '_',
    }
}

fn is_portable_char(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_' || letter == '-'
}

/// Returns whether an id has only characters that every provider accepts.
pub(crate) fn is_portable_id(id: &str) -> bool {
    !id.is_empty() && id.chars().all(is_portable_char)
}

/// Returns whether there is an id at all.
pub(crate) const fn is_non_empty(id: &str) -> bool {
    !id.is_empty()
}
