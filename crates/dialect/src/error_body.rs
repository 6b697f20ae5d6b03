//! Reads any provider's error as facts, whatever shape its body has.
//!
//! JSON of every dialect, JSON inside JSON, frames of a stream, the repr of a Python dictionary inside a message, a web
//! page. Machine-readable parts become fields or codes; text becomes the message.
//! Invariants: nothing is fatal; depth, size and number of kept parts are bounded; only fields on the list are kept, so
//! an echo of the request is dropped.

use crate::sse;
use keys::{FIELD_KEYS, MESSAGE_KEYS, REQUEST_ECHO_KEYS, STATUS_KEYS};
use outlast_kernel::Timestamp;
use outlast_kernel::failure::{Failure, Transport};
use outlast_kernel::text;
use serde_json::Value;

mod keys;
mod python;

const MAX_BODY_BYTES: usize = 64 << 10;
const MAX_DEPTH: usize = 10;
const MAX_FIELDS: usize = 64;
const MAX_MESSAGES: usize = 4;

/// An error as it arrived.
#[derive(Clone, Copy, Debug)]
pub struct RawError<'a> {
    /// The provider's name.
    pub provider: &'a str,
    /// The way in which it arrived.
    pub transport: Transport,
    /// The HTTP status.
    pub status: Option<u16>,
    /// The response headers.
    pub headers: &'a [(String, String)],
    /// The body, the frames, or the text of a raised error.
    pub body: &'a str,
    /// The time of the error.
    pub at: Timestamp,
}

/// Returns the failure that this error is.
///
/// ```
/// use outlast_dialect::error_body::{RawError, parse};
/// use outlast_kernel::failure::Transport;
/// use outlast_kernel::{Timestamp, classify::classify, verdict::Cause};
///
/// let body = r#"{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":"Quota exceeded",
///   "details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"34s"}]}}"#;
/// let at = Timestamp::default();
/// let seen = RawError { provider: "google", transport: Transport::Http, status: Some(429), headers: &[], body, at };
/// let verdict = classify(&parse(seen));
/// assert_eq!(verdict.hint.unwrap().wait(at).as_secs(), 34);
/// ```
pub fn parse(seen: RawError<'_>) -> Failure {
    let body = text::bounded(seen.body, MAX_BODY_BYTES);
    let is_client_error = seen
        .status
        .is_some_and(|status| (400..500).contains(&status) && status != 429);
    let mut found = ErrorCollector {
        is_client_error,
        ..ErrorCollector::default()
    };
    found.read_text(body.trim(), 0);
    let message = match found.messages.join("; ") {
        said if !said.is_empty() => said,
        // A structure without a message gets none from its echo of the request.
        _ if found.is_structured || body.trim().is_empty() => "no message".to_owned(),
        _ => strip_markup(body.trim()),
    };
    let mut failure = match seen.transport {
        Transport::Http => {
            Failure::http(seen.provider, seen.status.unwrap_or(0), &message, seen.at)
        }
        Transport::Stream => Failure::emitted(seen.provider, &message, seen.at),
        Transport::Thrown | Transport::Process => Failure::thrown(seen.provider, &message, seen.at),
    };
    failure.transport = seen.transport;
    failure.status = found.status(seen.status);
    if seen.transport == Transport::Stream && !found.is_structured {
        failure.status = failure.status.or_else(|| leading_status(&message));
    }
    failure.code = found.code();
    failure.fields = found.fields;
    let headers = seen
        .headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()));
    apply_should_retry_header(failure.with_headers(headers))
}

/// Returns the status at the head of a page that was sent in place of a response: `429 Too Many Requests`.
fn leading_status(page: &str) -> Option<u16> {
    let (number, rest) = page.split_at_checked(3)?;
    let status = number.parse().ok()?;
    ((400..600).contains(&status) && rest.starts_with(' ')).then_some(status)
}

/// Applies `x-should-retry`: a no always counts, a yes only where the status does not settle the matter.
fn apply_should_retry_header(failure: Failure) -> Failure {
    let closed = failure
        .status
        .is_some_and(|status| (400..500).contains(&status));
    match failure.header("x-should-retry").map(str::trim) {
        Some("true") if !closed => failure.with_retryable(true),
        Some("false") => failure.with_retryable(false),
        _ => failure,
    }
}

/// The findings in a body.
#[derive(Default)]
struct ErrorCollector {
    fields: Vec<(String, String)>,
    messages: Vec<String>,
    /// The request was refused as it is: facts come from the body's own structure, not from the content of a message.
    is_client_error: bool,
    /// The text is part of a message.
    is_in_message: bool,
    is_structured: bool,
}

impl ErrorCollector {
    /// Reads a text that may be, or contain, something structured.
    fn read_text(&mut self, text: &str, depth: usize) {
        if depth > MAX_DEPTH {
            return;
        }
        if let Ok(value) = serde_json::from_str::<Value>(text) {
            match value {
                Value::String(text) => self.read_message(&text, depth),
                value => self.read_value(&value, depth),
            }
        } else if text.starts_with("data:") || text.starts_with("event:") {
            self.read_frames(text, depth);
        } else if let Some((before, value, after)) = embedded_json(text) {
            self.add_message(before);
            self.within_message(|found| found.read_value(&value, depth + 1));
            self.add_message(after);
        } else if is_truncated_json(text) {
            // It may contain the whole request; without its end, message and echo cannot be told apart.
            self.is_structured = true;
        } else {
            self.add_message(text);
        }
    }

    fn within_message(&mut self, read: impl FnOnce(&mut Self)) {
        let outside = std::mem::replace(&mut self.is_in_message, true);
        read(self);
        self.is_in_message = outside;
    }

    fn read_frames(&mut self, text: &str, depth: usize) {
        let mut decoder = sse::Decoder::new(MAX_BODY_BYTES + 2);
        decoder.push(text.as_bytes());
        decoder.push(b"\n\n");
        while let Ok(Some(event)) = decoder.next_event() {
            if event.data.trim() != "[DONE]" {
                self.read_text(event.data.trim(), depth + 1);
            }
        }
    }

    fn read_value(&mut self, value: &Value, depth: usize) {
        if depth > MAX_DEPTH {
            return;
        }
        match value {
            Value::Object(object) => {
                self.is_structured = true;
                for (key, value) in object {
                    self.read_entry(&key.to_ascii_lowercase(), value, depth);
                }
            }
            Value::Array(values) => values
                .iter()
                .for_each(|value| self.read_value(value, depth + 1)),
            _ => {}
        }
    }

    fn read_entry(&mut self, key: &str, value: &Value, depth: usize) {
        match value {
            _ if REQUEST_ECHO_KEYS.contains(&key) => {}
            Value::Array(values) if key == "errors" || MESSAGE_KEYS.contains(&key) => {
                for value in values {
                    match value {
                        Value::String(text) => self.read_message(text, depth),
                        value => self.read_value(value, depth + 1),
                    }
                }
            }
            Value::Object(_) | Value::Array(_) => self.read_value(value, depth + 1),
            Value::String(text) if MESSAGE_KEYS.contains(&key) => self.read_message(text, depth),
            Value::String(text) => self.add_field(key, text),
            Value::Number(number) => self.add_field(key, &number.to_string()),
            Value::Bool(_) | Value::Null => {}
        }
    }

    fn add_field(&mut self, key: &str, value: &str) {
        let echoed = self.is_client_error && self.is_in_message;
        let kept = !echoed && (FIELD_KEYS.contains(&key) || key.starts_with("x-codex-"));
        if kept && self.fields.len() < MAX_FIELDS {
            self.fields.push((
                key.to_owned(),
                text::sanitized_message(&text::bounded(value, 256)),
            ));
        }
    }

    /// Reads a provider's message, which may itself be structured.
    fn read_message(&mut self, text: &str, depth: usize) {
        if text.contains('{') {
            self.within_message(|found| found.read_text(text.trim(), depth + 1));
        } else {
            self.add_message(text);
        }
    }

    fn add_message(&mut self, text: &str) {
        let text = strip_markup(text.trim());
        let known = self.messages.iter().any(|known| known.contains(&text));
        if !text.is_empty() && !known && self.messages.len() < MAX_MESSAGES {
            self.messages.push(text);
        }
    }

    /// Returns the status of the response, or the one in the body where the response itself went well.
    fn status(&self, response: Option<u16>) -> Option<u16> {
        let number = |(key, value): &(String, String)| {
            let status: u16 = STATUS_KEYS
                .contains(&key.as_str())
                .then(|| value.parse().ok())
                .flatten()?;
            (400..600).contains(&status).then_some(status)
        };
        response
            .filter(|status| *status >= 300)
            .or_else(|| self.fields.iter().find_map(number))
    }

    /// Returns the most specific word: one that is not a number, a code before a type.
    fn code(&self) -> Option<String> {
        let word = |name: &str| {
            let mut named = self
                .fields
                .iter()
                .filter(|(key, _)| key == name)
                .map(|(_, value)| value);
            named
                .find(|value| *value != "error" && value.parse::<f64>().is_err())
                .cloned()
        };
        ["code", "reason", "error_code", "type", "__type", "status"]
            .into_iter()
            .find_map(word)
    }
}

/// Returns whether this is a long structure that cannot be read, most often because its end was cut off.
fn is_truncated_json(text: &str) -> bool {
    const MIN_TRUNCATED_BYTES: usize = 4096;
    text.len() > MIN_TRUNCATED_BYTES && (text.starts_with('{') || text.starts_with("[{"))
}

/// Returns a structure inside a text, JSON or Python's repr of a dictionary, and the text before and after it.
fn embedded_json(text: &str) -> Option<(&str, Value, &str)> {
    let (start, end) = (text.find('{')?, text.rfind('}')?);
    let inside = text.get(start..=end)?;
    let value = serde_json::from_str(inside)
        .ok()
        .or_else(|| python::to_json(inside))?;
    Some((
        text[..start].trim_end_matches([' ', '-', ':', '\n']),
        value,
        &text[end + 1..],
    ))
}

/// Returns the visible text of a web page.
fn strip_markup(text: &str) -> String {
    if !text.contains('<') || !text.contains('>') {
        return text.to_owned();
    }
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, tail)) = rest.split_once('<') {
        shown.push_str(before);
        let is_tag = tail.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/' || c == '!');
        match tail.split_once('>').filter(|_| is_tag) {
            Some((_, after)) => {
                shown.push(' ');
                rest = after;
            }
            None => {
                shown.push('<');
                rest = tail;
            }
        }
    }
    shown.push_str(rest);
    shown.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn seen(body: &str) -> Failure {
        let (transport, at) = (Transport::Http, Timestamp::default());
        parse(RawError {
            provider: "p",
            transport,
            status: Some(500),
            headers: &[],
            body,
            at,
        })
    }

    #[test]
    fn every_body_shape_yields_message_and_code() {
        let table = [
            (
                r#"{"error":{"type":"overloaded_error","message":"Busy"}}"#,
                "Busy",
                Some("overloaded_error"),
            ),
            (
                r#"{"error":{"code":"slow_down","type":"x","message":"Busy"}}"#,
                "Busy",
                Some("slow_down"),
            ),
            (
                r#"[{"error":{"code":429,"message":"Busy","status":"EXHAUSTED"}}]"#,
                "Busy",
                Some("EXHAUSTED"),
            ),
            (r#"{"error":"Busy"}"#, "Busy", None),
            (r#""Busy""#, "Busy", None),
            (r#"{"message":"Busy"}"#, "Busy", None),
            (r#"{"detail":"Busy"}"#, "Busy", None),
            (
                r#"{"errors":[{"code":3040,"message":"Busy"}]}"#,
                "Busy",
                None,
            ),
            (
                r#"{"error":{"message":"{\"error\":{\"message\":\"Busy\",\"code\":\"c\"}}"}}"#,
                "Busy",
                Some("c"),
            ),
            ("<html><body><h1>Busy</h1></body></html>", "Busy", None),
            ("data: {\"error\":{\"message\":\"Busy\"}}\n\n", "Busy", None),
            (
                "event: error\ndata: {\"error\":{\"message\":\"Busy\"}}",
                "Busy",
                None,
            ),
            (
                "Error code: 429 - {'error': {'message': 'Busy', 'code': 'c', 'x': None}}",
                "Error code: 429; Busy",
                Some("c"),
            ),
            ("plain text", "plain text", None),
            ("a < b and {broken", "a < b and {broken", None),
        ];
        for (body, message, code) in table {
            let failure = seen(body);
            assert_eq!(
                (failure.message.as_str(), failure.code.as_deref()),
                (message, code),
                "{body}"
            );
        }
    }

    #[test]
    fn truncated_body_does_not_leak_echoed_request() {
        let long = "secret prompt, context length exceeded ".repeat(3000);
        let body =
            format!(r#"{{"detail":[{{"input":{{"messages":"{long}"}},"msg":"Field required"}}]}}"#);
        let failure = seen(&body);
        assert_eq!(
            (failure.message.as_str(), &failure.code),
            ("no message", &None)
        );
    }

    #[test]
    fn body_status_is_used_only_without_http_error_status() {
        let read_as = |status, body| {
            let (transport, at) = (Transport::Stream, Timestamp::default());
            parse(RawError {
                provider: "p",
                transport,
                status,
                headers: &[],
                body,
                at,
            })
            .status
        };
        let body = r#"{"error":{"code":503,"message":"Busy"}}"#;
        assert_eq!(read_as(Some(200), body), Some(503));
        assert_eq!(read_as(None, body), Some(503));
        assert_eq!(read_as(Some(429), body), Some(429));
    }

    #[test]
    fn echoed_request_fields_are_not_kept() {
        let failure = seen(
            r#"{"error":{"message":"Bad","param":"secret prompt"},"input":{"prompt":"secret"}}"#,
        );
        assert!(!format!("{failure:?}").contains("secret"));
    }

    proptest! {
        #[test]
        fn any_body_parses_without_panic(body in "(?s).{0,400}") {
            seen(&body);
        }

        #[test]
        fn json_like_body_parses_without_panic(body in r#"[\[\]{}:,"'a-z0-9 \\]{0,200}"#) {
            seen(&body);
        }
    }
}
