//! Responses in every dialect, as frames and as a whole: any bytes are deltas, nothing, or a failure. A tool call that
//! is handed on has all of its arguments.

use outlast_dialect::{Delta, Dialect, sse};
use outlast_kernel::Timestamp;
use serde_json::value::RawValue;

pub(super) fn run(bytes: &[u8]) {
    for dialect in Dialect::ALL {
        let whole = String::from_utf8_lossy(bytes);
        if let Ok(deltas) = dialect.decode_response("p", &whole, Timestamp::default()) {
            assert!(matches!(deltas.last(), Some(Delta::Stopped(_))));
            check_calls(&deltas);
        }
        stream(dialect, bytes);
    }
}

fn stream(dialect: Dialect, bytes: &[u8]) {
    let mut events = sse::Decoder::new(1 << 16);
    let mut decoder = dialect.decoder("p");
    let mut deltas = Vec::new();
    events.push(bytes);
    while let Ok(Some(event)) = events.next_event() {
        let read = decoder.decode(&event, Timestamp::default(), &mut deltas);
        check_calls(&deltas);
        deltas.clear();
        if read.is_err() {
            return;
        }
    }
    let end = decoder.finish();
    check_calls(&end);
    assert!(end.is_empty() || matches!(end.last(), Some(Delta::Stopped(_))));
}

fn check_calls(deltas: &[Delta]) {
    for delta in deltas {
        if let Delta::ToolCall(call) = delta {
            let whole: Result<&RawValue, _> = serde_json::from_str(&call.arguments);
            assert!(whole.is_ok(), "{call:?}");
        }
    }
}
