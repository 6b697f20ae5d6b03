//! Errors that come where an answer was expected: in a frame, or as the body of a response that went well.

use crate::error_body::{self, Seen};
use outlast_kernel::Timestamp;
use outlast_kernel::failure::{Failure, IoKind, Transport};
use serde_json::Value;

/// The error that a provider sent in place of an answer, read like one that comes with an error status.
pub(crate) fn error(provider: &str, body: &str, at: Timestamp) -> Box<Failure> {
    Box::new(error_body::read(Seen {
        provider,
        transport: Transport::Stream,
        status: None,
        headers: &[],
        body,
        at,
    }))
}

/// Text that was to be JSON.
pub(crate) fn json(provider: &str, text: &str, at: Timestamp) -> Result<Value, Box<Failure>> {
    serde_json::from_str(text).map_err(|_| garbled(provider, text, at))
}

/// What came in place of a stream of events.
pub fn no_stream(provider: &str, text: &str, at: Timestamp) -> Box<Failure> {
    match serde_json::from_str::<Value>(text) {
        Ok(_) => error(provider, text, at),
        Err(_) => garbled(provider, text, at),
    }
}

/// Something that is no answer: a page that says why, or what is left of a frame.
pub(crate) fn garbled(provider: &str, text: &str, at: Timestamp) -> Box<Failure> {
    let failure = if text.trim_start().starts_with(['{', '[']) {
        // A broken frame is part of an answer: what the model wrote says nothing about the failure.
        Failure::emitted(provider, "what came is not whole", at)
    } else {
        *error(provider, text, at)
    };
    Box::new(failure.with_io(IoKind::Protocol))
}

/// A stream that ended before its answer did.
pub fn cut_off(provider: &str, at: Timestamp) -> Box<Failure> {
    let message = "the stream ended before its last event";
    Box::new(Failure::emitted(provider, message, at).with_io(IoKind::Truncated))
}
