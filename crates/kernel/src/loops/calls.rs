//! Counts the same calls with the same results, again and again.

use super::json;
use crate::event::ToolCall;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Counts consecutive completions that made the same calls with the same results. Only a hash of the calls is kept.
///
/// ```
/// use outlast_kernel::event::ToolCall;
/// use outlast_kernel::loops::RepeatedCallCounter;
///
/// let call = |arguments: &str| ToolCall {
///     id: "any".to_owned(),
///     name: "read".to_owned(),
///     arguments: arguments.to_owned(),
/// };
/// let mut calls = RepeatedCallCounter::default();
/// assert_eq!(calls.record(&[(&call(r#"{"a":1,"b":2}"#), "done")]), 1);
/// assert_eq!(calls.record(&[(&call(r#"{"b": 2, "a": 1}"#), "done")]), 2);
/// assert_eq!(calls.record(&[(&call(r#"{"a":1,"b":2}"#), "other")]), 1);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RepeatedCallCounter {
    last: Option<u64>,
    count: u32,
}

impl RepeatedCallCounter {
    /// Records the calls of one completion, each with its result, and returns how many times in a row they have
    /// occurred. A completion without calls ends the row.
    pub fn record(&mut self, calls: &[(&ToolCall, &str)]) -> u32 {
        let batch = (!calls.is_empty()).then(|| batch(calls));
        self.count = match batch {
            None => 0,
            Some(_) if batch == self.last => self.count.saturating_add(1),
            Some(_) => 1,
        };
        self.last = batch;
        self.count
    }
}

fn batch(calls: &[(&ToolCall, &str)]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for (call, output) in calls {
        (&call.name, json::hash(&call.arguments), output).hash(&mut hasher);
    }
    hasher.finish()
}
