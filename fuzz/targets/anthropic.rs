//! Frames of the Anthropic Messages API: any data is a delta, nothing, or a failure.
#![no_main]

use libfuzzer_sys::fuzz_target;
use outlast_dialect::{anthropic, sse};
use outlast_kernel::Timestamp;

fuzz_target!(|bytes: &[u8]| {
    let mut decoder = sse::Decoder::new(1 << 16);
    let mut stream = anthropic::Stream::new("p");
    decoder.push(bytes);
    while let Ok(Some(event)) = decoder.next_event() {
        if stream.read(&event, Timestamp::default()).is_err() {
            return;
        }
    }
});
