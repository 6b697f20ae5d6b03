//! Server-sent events: any bytes, in two chunkings, give the same events or the same error, and the frames and the rest
//! are the input bytes.

use outlast_dialect::sse::{Decoder, Event, MAX_STRAY_BYTES, TooLong};

/// Returns the events of the input, and the error that ended it.
fn decode(limit: usize, bytes: &[u8], size: usize) -> (Vec<Event>, Option<TooLong>) {
    let mut decoder = Decoder::new(limit);
    let (mut events, mut raw, mut error) = (Vec::new(), Vec::new(), None);
    for chunk in bytes.chunks(size) {
        decoder.push(chunk);
        if let Err(too_long) = read(&mut decoder, &mut events, &mut raw) {
            error = Some(too_long);
            break;
        }
    }
    raw.extend_from_slice(decoder.rest());
    assert!(bytes.starts_with(&raw), "frames and rest are not the input");
    assert!(
        error.is_some() || raw.len() == bytes.len(),
        "bytes were lost"
    );
    assert!(decoder.stray().len() <= MAX_STRAY_BYTES);
    (events, error)
}

fn read(decoder: &mut Decoder, events: &mut Vec<Event>, raw: &mut Vec<u8>) -> Result<(), TooLong> {
    while let Some(frame) = decoder.next_frame()? {
        raw.extend_from_slice(frame.raw);
        events.extend(frame.event);
    }
    Ok(())
}

fn check(limit: usize, bytes: &[u8], size: usize) {
    let whole = decode(limit, bytes, bytes.len().max(1));
    let pieces = decode(limit, bytes, size.max(1));
    assert_eq!(whole, pieces);
}

/// Fragments of generated streams: random bytes seldom become a field or a line end.
const PIECES: [&str; 8] = [
    "data: a", "event: b", ": c", "d", "\n", "\r", "\r\n", "\u{feff}",
];

pub(super) fn run(data: &[u8]) {
    let [size, limit, bytes @ ..] = data else {
        return;
    };
    let (limit, size) = (1 + 16 * usize::from(*limit), usize::from(*size));
    check(limit, bytes, size);
    let pieces: String = bytes
        .iter()
        .map(|byte| PIECES[usize::from(byte % 8)])
        .collect();
    check(limit, pieces.as_bytes(), size);
}
