//! Answers in every dialect, in frames and as a whole: any bytes are deltas, nothing, or a failure.
#![no_main]

use libfuzzer_sys::fuzz_target;
use outlast_dialect::{Delta, Dialect, sse};
use outlast_kernel::Timestamp;

fuzz_target!(|bytes: &[u8]| {
    for dialect in Dialect::ALL {
        let whole = String::from_utf8_lossy(bytes);
        if let Ok(deltas) = dialect.read_whole("p", &whole, Timestamp::default()) {
            assert!(matches!(deltas.last(), Some(Delta::Stopped(_))));
        }
        stream(dialect, bytes);
    }
});

fn stream(dialect: Dialect, bytes: &[u8]) {
    let mut decoder = sse::Decoder::new(1 << 16);
    let mut reader = dialect.reader("p");
    let mut deltas = Vec::new();
    decoder.push(bytes);
    while let Ok(Some(event)) = decoder.next_event() {
        if reader.read(&event, Timestamp::default(), &mut deltas).is_err() {
            return;
        }
    }
    let end = reader.end();
    assert!(end.is_empty() || matches!(end.last(), Some(Delta::Stopped(_))));
}
