//! Errors that come in place of a completion: in a frame, or as the body of a response that went well.

use crate::error_body::{self, RawError};
use crate::lenient_json::LenientParser;
use crate::sse;
use outlast_kernel::Timestamp;
use outlast_kernel::failure::{Failure, IoKind, Transport};
use outlast_kernel::verdict::{Cause, Scope, Verdict};
use serde_json::Value;

/// Reads an error that a provider sent in place of a completion, like one that comes with an error status.
pub(crate) fn from_body(provider: &str, body: &str, at: Timestamp) -> Box<Failure> {
    Box::new(error_body::parse(RawError {
        provider,
        transport: Transport::Stream,
        status: None,
        headers: &[],
        body,
        at,
    }))
}

/// Returns whether an unknown part of a response reports an error; `name` is that of its event.
///
/// A code or a status below 400, or one that states success, is no error.
pub(crate) fn is_error(frame: &Value, name: &str) -> bool {
    let word = |field: &str| frame[field].as_str().unwrap_or_default();
    let is_named =
        |name: &str| name == "error" || name.ends_with("_error") || name.ends_with(".error");
    if is_named(name) || is_named(word("type")) || is_named(word("object")) {
        return true;
    }
    let (code, status) = (&frame["code"], &frame["status"]);
    let (message, is_typed) = (is_set(&frame["message"]), !word("type").is_empty());
    is_set(&frame["error"])
        || is_set(&frame["errors"])
        || [code, status]
            .into_iter()
            .any(|code| code_number(code) >= Some(400))
        || message && is_error_word(code)
        || message && !is_typed && (is_error_word(status) || (code.is_null() && status.is_null()))
        || !is_typed && is_set(&frame["detail"])
}

/// Returns whether a field for errors contains one.
pub(crate) fn is_set(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(value) => *value,
        Value::Number(number) => number.as_u64() != Some(0),
        Value::String(text) => !text.is_empty(),
        Value::Array(values) => !values.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
    }
}

fn code_number(code: &Value) -> Option<u64> {
    code.as_u64().or_else(|| code.as_str()?.trim().parse().ok())
}

fn is_error_word(code: &Value) -> bool {
    let is_good = |word: &str| ["", "ok", "success", "succeeded"].contains(&word);
    let word = code.as_str().map(str::to_ascii_lowercase);
    code_number(code).is_none() && word.is_some_and(|word| !is_good(&word))
}

/// Parses text that should be JSON.
pub(crate) fn parse_json(provider: &str, text: &str, at: Timestamp) -> Result<Value, Box<Failure>> {
    let value = LenientParser::default().parse(text);
    value.ok_or_else(|| malformed_body(provider, text, at))
}

/// Returns the failure for a body that came in place of a stream of events.
pub fn not_an_event_stream(provider: &str, text: &str, at: Timestamp) -> Box<Failure> {
    match serde_json::from_str::<Value>(text) {
        Ok(_) => from_body(provider, text, at),
        Err(_) => malformed_body(provider, text, at),
    }
}

/// Returns the failure for an event whose data cannot be read. An event that is named an error is one, whatever its
/// data.
pub(crate) fn unreadable_event(provider: &str, event: &sse::Event, at: Timestamp) -> Box<Failure> {
    match event.name.as_str() {
        "error" => from_body(provider, &event.data, at),
        _ => malformed_body(provider, &event.data, at),
    }
}

/// Returns the failure for an unusable response: a page with an explanation, or the rest of a frame.
fn malformed_body(provider: &str, text: &str, at: Timestamp) -> Box<Failure> {
    let failure = if text.trim_start().starts_with(['{', '[']) {
        // A broken frame is part of a completion: the model's text says nothing about the failure.
        Failure::emitted(provider, "what came is not whole", at)
    } else {
        *from_body(provider, text, at)
    };
    Box::new(failure.with_io(IoKind::Protocol))
}

/// Returns the failure for a completion with absurdly many items.
pub(crate) fn too_many_parts(provider: &str, what: &str, at: Timestamp) -> Box<Failure> {
    let message = format!("the answer has too many {what}");
    Box::new(Failure::emitted(provider, &message, at).with_io(IoKind::Protocol))
}

/// Returns the failure for a call whose arguments are endless blanks.
pub(crate) fn blank_arguments(provider: &str, tool: &str, at: Timestamp) -> Box<Failure> {
    let message = match tool {
        "" => "the arguments of a tool call are only blanks".to_owned(),
        tool => format!("the arguments of a call of {tool} are only blanks"),
    };
    let verdict = Verdict::new(Cause::MalformedOutput, Scope::Request);
    let failure = Failure::emitted(provider, &message, at).with_code("blank_arguments");
    Box::new(failure.with_verdict(verdict))
}

/// Returns the failure for a stream that ended before its completion did.
pub fn truncated_stream(provider: &str, at: Timestamp) -> Box<Failure> {
    let message = "the stream ended before its last event";
    Box::new(Failure::emitted(provider, message, at).with_io(IoKind::Truncated))
}
