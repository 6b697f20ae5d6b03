//! Server-sent events: any bytes, in two chunkings, give the same events.
#![no_main]

use libfuzzer_sys::fuzz_target;
use outlast_dialect::sse::{Decoder, Event};

fn decode<'a>(chunks: impl Iterator<Item = &'a [u8]>) -> Option<Vec<Event>> {
    let mut decoder = Decoder::new(1 << 16);
    let mut events = Vec::new();
    for chunk in chunks {
        decoder.push(chunk);
        while let Some(event) = decoder.next_event().ok()? {
            events.push(event);
        }
    }
    Some(events)
}

fuzz_target!(|data: &[u8]| {
    let Some((size, bytes)) = data.split_first() else { return };
    let whole = decode(std::iter::once(bytes));
    let pieces = decode(bytes.chunks(usize::from(*size).max(1)));
    assert_eq!(whole, pieces);
});
