//! Counts the same calls with the same results, again and again.

use crate::event::ToolCall;
use serde_json::Value;
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
        (&call.name, arguments_hash(&call.arguments), output).hash(&mut hasher);
    }
    hasher.finish()
}

/// Returns the hash of JSON by its value: blanks, the order of fields and the spelling of strings and numbers make no
/// difference. Text that is not JSON is hashed as text.
pub(super) fn arguments_hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    match serde_json::from_str(text) {
        Ok(value) => hash_value(&value, &mut hasher),
        Err(_) => text.trim().hash(&mut hasher),
    }
    hasher.finish()
}

fn hash_value(value: &Value, hasher: &mut impl Hasher) {
    std::mem::discriminant(value).hash(hasher);
    match value {
        Value::Null => {}
        Value::Bool(flag) => flag.hash(hasher),
        Value::Number(number) => match number.as_f64() {
            // Integers beyond a float's precision differ, although their floats do not.
            Some(float) if !number.is_f64() && float.abs() >= 1e15 => number.hash(hasher),
            // `0.0` and `-0.0` are equal.
            float => (float.unwrap_or_default() + 0.0).to_bits().hash(hasher),
        },
        Value::String(text) => text.hash(hasher),
        Value::Array(items) => {
            items.len().hash(hasher);
            items.iter().for_each(|item| hash_value(item, hasher));
        }
        Value::Object(fields) => {
            fields.len().hash(hasher);
            // A sum, so that the order of the fields does not count.
            let sum = fields.iter().fold(0_u64, |sum, (name, value)| {
                let mut field = DefaultHasher::new();
                name.hash(&mut field);
                hash_value(value, &mut field);
                sum.wrapping_add(field.finish())
            });
            sum.hash(hasher);
        }
    }
}
