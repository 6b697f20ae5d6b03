//! A relay and its output, for tests.

use crate::Dialect;
use crate::StreamActivity;
use crate::relay::Relay;
use crate::test_support::{NOW, wire};
use bytes::Bytes;
use outlast_kernel::failure::Failure;

pub(super) fn push(
    relay: &mut Relay,
    text: &str,
) -> (Result<StreamActivity, Box<Failure>>, Vec<Bytes>) {
    let mut out = Vec::new();
    let result = relay.push(Bytes::copy_from_slice(text.as_bytes()), NOW, &mut out);
    (result, out)
}

pub(super) fn end(relay: &mut Relay) -> (Result<(), Box<Failure>>, Vec<Bytes>) {
    let mut out = Vec::new();
    let result = relay.finish(NOW, &mut out);
    (result, out)
}

/// Returns a relay that has seen content.
pub(super) fn started_relay(dialect: Dialect) -> Relay {
    let mut relay = dialect.relay("p");
    let (result, out) = push(&mut relay, &wire(&[CONTENT[index_of(dialect)]]));
    result.unwrap();
    assert!(relay.has_content() && out.len() == 1);
    relay
}

pub(super) fn index_of(dialect: Dialect) -> usize {
    Dialect::ALL.iter().position(|one| *one == dialect).unwrap()
}

pub(super) const CONTENT: [&str; 3] = [
    r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hi"}}"#,
    r#"{"choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":null}]}"#,
    r#"{"type":"response.output_text.delta","delta":"Hi"}"#,
];
pub(super) const LAST: [&str; 3] = [
    r#"{"type":"message_stop"}"#,
    "[DONE]",
    r#"{"type":"response.completed","response":{"status":"completed","output":[]}}"#,
];
