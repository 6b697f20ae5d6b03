//! The request log: each request, the fault that applied, and the outcome.
//!
//! Invariants: no secret is stored; the entries and their bytes are bounded, the oldest are dropped first, and their
//! number is reported.

use crate::reply::Disconnect;
use crate::request_facts::Headers;
use outlast_kernel::{Timestamp, text};
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::collections::VecDeque;
use std::sync::Arc;

const MAX_ENTRIES: usize = 1000;
const MAX_BYTES: usize = 32 << 20;
/// The maximum size of a stored body; a longer one is only counted.
const MAX_BODY_BYTES: usize = 1 << 20;
const MAX_TEXT_BYTES: usize = 1024;
const REDACTED: &str = "(hidden)";
/// The headers whose names contain one of these words are redacted.
const SECRET_HEADER_WORDS: [&str; 6] = ["auth", "cookie", "key", "token", "secret", "password"];

fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRET_HEADER_WORDS.iter().any(|word| name.contains(word))
}

/// A request as it arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoggedRequest<'a> {
    pub(crate) time: Timestamp,
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
    pub(crate) headers: &'a Headers,
    pub(crate) body: &'a Value,
    pub(crate) size: usize,
}

/// A request and its outcome.
#[derive(Clone, Debug, Serialize)]
struct Entry {
    number: u64,
    time: Timestamp,
    method: String,
    path: String,
    /// The model of the request.
    model: Option<String>,
    headers: Map<String, Value>,
    body: Value,
    body_bytes: usize,
    script: Option<String>,
    fault: Option<String>,
    status: Option<u16>,
    ended: Outcome,
    #[serde(skip)]
    size: usize,
}

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    /// The request is still open.
    Open,
    /// Everything was sent.
    Answered,
    /// The server closed the connection.
    Closed,
    /// The server reset the connection.
    Reset,
    /// The client disconnected before everything was sent.
    ClientClosed,
}

impl From<Disconnect> for Outcome {
    fn from(how: Disconnect) -> Self {
        match how {
            Disconnect::Reset => Self::Reset,
            Disconnect::Closed => Self::Closed,
        }
    }
}

#[derive(Debug, Default)]
struct Entries {
    retained: VecDeque<Entry>,
    bytes: usize,
    dropped: u64,
    last_number: u64,
}

/// The log, shared by all connections.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log(Arc<Mutex<Entries>>);

impl Log {
    /// Records a request; the holder of the handle records the outcome.
    pub(crate) fn record_request(&self, asked: &LoggedRequest<'_>) -> EntryHandle {
        let mut entries = self.0.lock();
        entries.last_number += 1;
        let entry = Entry::new(entries.last_number, asked);
        entries.bytes += entry.size;
        entries.retained.push_back(entry);
        while entries.retained.len() > MAX_ENTRIES || entries.bytes > MAX_BYTES {
            let Some(oldest) = entries.retained.pop_front() else {
                break;
            };
            entries.bytes -= oldest.size;
            entries.dropped += 1;
        }
        EntryHandle {
            log: self.clone(),
            number: entries.last_number,
            has_outcome: false,
        }
    }

    /// Returns the whole log as JSON.
    pub(crate) fn to_json(&self) -> Value {
        let entries = self.0.lock();
        json!({ "requests": entries.retained, "dropped": entries.dropped })
    }

    /// Removes all entries; the count stays.
    pub(crate) fn clear(&self) {
        let mut entries = self.0.lock();
        let last_number = entries.last_number;
        *entries = Entries {
            last_number,
            ..Entries::default()
        };
    }

    fn update_entry(&self, number: u64, change: impl FnOnce(&mut Entry)) {
        let mut entries = self.0.lock();
        if let Some(entry) = entries
            .retained
            .iter_mut()
            .find(|entry| entry.number == number)
        {
            change(entry);
        }
    }
}

impl Entry {
    fn new(number: u64, asked: &LoggedRequest<'_>) -> Self {
        let bounded = |text: &str| text::bounded(text, MAX_TEXT_BYTES).into_owned();
        let headers: Map<String, Value> = asked
            .headers
            .iter()
            .map(|(name, value)| match is_secret(name) {
                true => (name.clone(), json!(REDACTED)),
                false => (name.clone(), json!(text::without_secrets(&bounded(value)))),
            })
            .collect();
        let kept = asked.size <= MAX_BODY_BYTES;
        let body = if kept {
            asked.body.clone()
        } else {
            Value::Null
        };
        let header_bytes: usize = asked
            .headers
            .iter()
            .map(|(name, value)| name.len() + value.len())
            .sum();
        Self {
            number,
            time: asked.time,
            method: asked.method.to_owned(),
            path: bounded(asked.path),
            model: asked.body["model"].as_str().map(bounded),
            headers,
            body,
            body_bytes: asked.size,
            script: None,
            fault: None,
            status: None,
            ended: Outcome::Open,
            size: if kept { asked.size } else { 0 } + header_bytes + 2 * MAX_TEXT_BYTES,
        }
    }
}

/// The log entry of one request. If it is dropped without an outcome, the client disconnected.
#[derive(Debug)]
pub(crate) struct EntryHandle {
    log: Log,
    pub(crate) number: u64,
    has_outcome: bool,
}

impl EntryHandle {
    /// Records the script and the fault that apply.
    pub(crate) fn record_fault(&self, script: &str, fault: &str) {
        self.log.update_entry(self.number, |entry| {
            entry.script = Some(text::bounded(script, MAX_TEXT_BYTES).into_owned());
            entry.fault = Some(text::bounded(fault, MAX_TEXT_BYTES).into_owned());
        });
    }

    /// Records the status of the response.
    pub(crate) fn record_status(&self, status: u16) {
        self.log
            .update_entry(self.number, |entry| entry.status = Some(status));
    }

    pub(crate) fn record_outcome(&mut self, ended: Outcome) {
        if !std::mem::replace(&mut self.has_outcome, true) {
            self.log
                .update_entry(self.number, |entry| entry.ended = ended);
        }
    }
}

impl Drop for EntryHandle {
    fn drop(&mut self) {
        self.record_outcome(Outcome::ClientClosed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(log: &Log, headers: &[(&str, &str)], size: usize) -> EntryHandle {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let headers: Vec<(String, String)> = headers.iter().map(owned).collect();
        log.record_request(&LoggedRequest {
            time: Timestamp::default(),
            method: "POST",
            path: "/v1/messages",
            headers: &headers,
            body: &json!({ "model": "m" }),
            size,
        })
    }

    #[test]
    fn secrets_are_hidden_and_the_rest_is_kept() {
        let log = Log::default();
        let headers = [
            "authorization",
            "proxy-authorization",
            "cookie",
            "x-api-key",
            "helicone-auth",
            "x-amz-security-token",
        ]
        .map(|name| (name, "a-very-secret-value"));
        note(&log, &headers, 10);
        note(&log, &[("user-agent", "test")], 10);
        let shown = log.to_json().to_string();
        assert!(!shown.contains("secret-value"), "{shown}");
        assert!(shown.contains(r#""user-agent":"test""#), "{shown}");
        assert!(shown.contains(r#""authorization":"(hidden)""#), "{shown}");
    }

    #[test]
    fn log_entry_records_its_outcome_once() {
        let log = Log::default();
        let ended = |log: &Log| log.to_json()["requests"][0]["ended"].clone();
        let mut kept = note(&log, &[], 0);
        assert_eq!(ended(&log), "open");
        kept.record_outcome(Outcome::Answered);
        drop(kept);
        assert_eq!(ended(&log), "answered");
        log.clear();
        drop(note(&log, &[], 0));
        assert_eq!(ended(&log), "client_closed");
        assert_eq!(log.to_json()["requests"][0]["number"], 2);
    }

    #[test]
    fn the_log_is_bounded_in_entries_and_in_bytes() {
        let log = Log::default();
        for _ in 0..MAX_ENTRIES + 5 {
            note(&log, &[], 0);
        }
        assert_eq!(log.to_json()["dropped"], 5);
        log.clear();
        for _ in 0..40 {
            note(&log, &[], MAX_BODY_BYTES);
        }
        let shown = log.to_json();
        let kept = shown["requests"].as_array().unwrap();
        assert!(kept.len() < 32, "{}", kept.len());
        assert_eq!(kept[0]["body"]["model"], "m");
        note(&log, &[], MAX_BODY_BYTES + 1);
        let shown = log.to_json();
        let last = shown["requests"].as_array().unwrap().last().unwrap();
        assert_eq!(
            (&last["body"], &last["body_bytes"], &last["model"]),
            (&Value::Null, &json!(MAX_BODY_BYTES + 1), &json!("m"))
        );
    }
}
