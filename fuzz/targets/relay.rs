//! Responses through a relay: any bytes, in two chunkings, are passed on unchanged or give the same failure, and
//! nothing is sent before content. The request facts are read from any bytes.

use bytes::Bytes;
use outlast_dialect::Dialect;
use outlast_kernel::Timestamp;
use outlast_kernel::failure::Failure;

const NOW: Timestamp = Timestamp::from_millis(1);

/// The result of relaying a stream.
#[derive(Debug, PartialEq)]
struct Became {
    sent: Vec<u8>,
    failure: Option<Box<Failure>>,
    ended_with: Option<Failure>,
    has_content: bool,
    is_complete: bool,
}

fn pass_on(dialect: Dialect, bytes: &[u8], size: usize) -> Became {
    let mut relay = dialect.relay("p");
    let mut out = Vec::new();
    let mut failure = None;
    for chunk in bytes.chunks(size) {
        failure = relay
            .push(Bytes::copy_from_slice(chunk), NOW, &mut out)
            .err();
        if failure.is_some() {
            break;
        }
        assert!(out.is_empty() || relay.has_content() || relay.is_complete());
        assert!(relay.is_between_frames() || relay.is_complete());
    }
    let failure = failure.or_else(|| relay.finish(NOW, &mut out).err());
    let sent = out.concat();
    assert!(bytes.starts_with(&sent), "what was sent is not what came");
    Became {
        sent,
        failure,
        ended_with: relay.relayed_error().cloned(),
        has_content: relay.has_content(),
        is_complete: relay.is_complete(),
    }
}

/// Fragments of generated streams.
const PIECES: [&str; 16] = [
    "data: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"a\"}}",
    "data: {\"choices\":[{\"delta\":{\"content\":\"a\"},\"finish_reason\":null}]}",
    "data: {\"type\":\"response.output_text.delta\",\"delta\":\"a\"}",
    "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\"},\"finish_reason\": \"stop\"}]}",
    "data: {\"type\":\"message_start\"}",
    "data: {\"type\":\"message_stop\"}",
    "data: {\"type\":\"response.completed\"}",
    "data: [DONE]",
    "data: {\"error\":{\"type\":\"overloaded_error\"}}",
    "event: error",
    "event: content_block_delta",
    ": c",
    "d",
    "\n",
    "\r",
    "\r\n",
];

pub(super) fn run(data: &[u8]) {
    let [size, bytes @ ..] = data else { return };
    let size = usize::from(*size).max(1);
    let piece = |byte: &u8| {
        PIECES[usize::from(byte % 16)].to_owned() + ["", "\n\n"][usize::from(byte >> 7)]
    };
    let pieces: String = bytes.iter().take(500).map(piece).collect();
    for dialect in Dialect::ALL {
        for bytes in [bytes, pieces.as_bytes()] {
            let whole = pass_on(dialect, bytes, bytes.len().max(1));
            assert_eq!(whole, pass_on(dialect, bytes, size));
        }
    }
    Dialect::peek_request(bytes);
}
