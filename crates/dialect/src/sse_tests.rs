//! Tests the decoder against the standard's forms, another decoder, and its own invariants.

use super::*;
use futures_util::{FutureExt, StreamExt, stream};
use proptest::prelude::*;
use std::convert::Infallible;

type Events = Vec<(String, String)>;

/// All output of a decoder for one input.
#[derive(Debug, Default, PartialEq)]
struct Decoded {
    events: Events,
    frames: Vec<(Vec<u8>, Option<Event>)>,
    rest: Vec<u8>,
    stray: String,
    error: Option<TooLong>,
}

impl Decoded {
    fn of<'a>(limit: usize, chunks: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut decoder = Decoder::new(limit);
        let mut decoded = Self::default();
        for chunk in chunks {
            decoder.push(chunk);
            if let Err(error) = decoded.take_frames(&mut decoder) {
                decoded.error = Some(error);
                break;
            }
        }
        decoded.rest = decoder.rest().to_vec();
        decoded.stray = decoder.stray();
        decoded
    }

    fn take_frames(&mut self, decoder: &mut Decoder) -> Result<(), TooLong> {
        while let Some(frame) = decoder.next_frame()? {
            self.frames.push((frame.raw.to_vec(), frame.event.clone()));
            self.events
                .extend(frame.event.map(|event| (event.name, event.data)));
        }
        Ok(())
    }

    fn bytes(&self) -> Vec<u8> {
        let frames = self.frames.iter().map(|(raw, _)| raw.as_slice());
        frames
            .chain([self.rest.as_slice()])
            .collect::<Vec<_>>()
            .concat()
    }
}

fn decode(chunks: &[&[u8]]) -> Events {
    let mut decoder = Decoder::new(1 << 20);
    let mut events = Vec::new();
    for chunk in chunks {
        decoder.push(chunk);
        while let Some(event) = decoder.next_event().unwrap() {
            events.push((event.name, event.data));
        }
    }
    events
}

/// Cuts the bytes into pieces of these sizes, again and again.
fn cut<'a>(mut bytes: &'a [u8], sizes: &[usize]) -> Vec<&'a [u8]> {
    let mut chunks = Vec::new();
    for size in sizes.iter().cycle() {
        let (chunk, rest) = bytes.split_at(bytes.len().min(*size));
        chunks.push(chunk);
        bytes = rest;
        if bytes.is_empty() {
            break;
        }
    }
    chunks
}

fn event(name: &str, data: &str) -> (String, String) {
    (name.to_owned(), data.to_owned())
}

// --- tables ---

#[test]
fn standard_event_forms_are_decoded() {
    let table: [(&[u8], Events); 14] = [
        (b"data: a\n\n", vec![event("", "a")]),
        (b"data:a\r\n\r\n", vec![event("", "a")]),
        (b"event: x\rdata: a\r\r", vec![event("x", "a")]),
        (b"data: a\ndata:\ndata: b\n\n", vec![event("", "a\n\nb")]),
        (b"\xef\xbb\xbfdata: a\n\n", vec![event("", "a")]),
        (b"\n\xef\xbb\xbfdata: a\n\n", vec![]),
        (b": ping\n\ndata: a\n\n", vec![event("", "a")]),
        (b"event: lonely\n\ndata: a\n\n", vec![event("", "a")]),
        (b"event: x\nevent: y\ndata: a\n\n", vec![event("y", "a")]),
        (b"data\n\n", vec![event("", "")]),
        (b"data: a\0b\n\n", vec![event("", "a\0b")]),
        (
            b"data: \xff\xf0\x9f\n\n",
            vec![event("", "\u{fffd}\u{fffd}")],
        ),
        (b"id: 1\nretry: 5\nDATA: a\n data: a\n\n", vec![]),
        (b"data: cut off", vec![]),
    ];
    for (bytes, events) in table {
        assert_eq!(decode(&[bytes]), events, "{}", bytes.escape_ascii());
    }
}

#[test]
fn multibyte_characters_survive_chunk_boundaries() {
    let bytes = "\u{feff}data: é漢🦀\n\n".as_bytes();
    for cut in 0..=bytes.len() {
        assert_eq!(
            decode(&[&bytes[..cut], &bytes[cut..]]),
            [event("", "é漢🦀")]
        );
    }
}

#[test]
fn raw_frames_are_the_unchanged_input_bytes() {
    let table: [(&[u8], &[&[u8]]); 7] = [
        (b"data: a\n\nda", &[b"data: a\n\n"]),
        (
            b"data: a\r\n\r\ndata: b\r\n\r\n",
            &[b"data: a\r\n\r\n", b"data: b\r\n\r\n"],
        ),
        (b"\xef\xbb\xbfid: 1\r\r", &[b"\xef\xbb\xbfid: 1\r\r"]),
        (b": ping\n\n", &[b": ping\n\n"]),
        (b"\n\r\n\r", &[b"\n", b"\r\n", b"\r"]),
        (b"\xef\xbb\xbf\n", &[b"\xef\xbb\xbf\n"]),
        (b"<html>\n\n</html>\n", &[b"<html>\n\n"]),
    ];
    for (bytes, frames) in table {
        let decoded = Decoded::of(100, [bytes]);
        let raw: Vec<&[u8]> = decoded.frames.iter().map(|(raw, _)| &raw[..]).collect();
        assert_eq!(raw, frames);
        assert_eq!(decoded.bytes(), bytes);
    }
}

#[test]
fn event_is_emitted_with_its_final_byte() {
    for bytes in ["data: a\r\r", "data: a\r\n\r", "data: a\n\n", "data: a\n\r"] {
        let (before, last) = bytes.split_at(bytes.len() - 1);
        let mut decoder = Decoder::new(100);
        decoder.push(before.as_bytes());
        assert_eq!(decoder.next_event(), Ok(None), "{bytes:?}");
        decoder.push(last.as_bytes());
        let frame = decoder.next_frame().unwrap().unwrap();
        assert_eq!(frame.raw, bytes.as_bytes());
        assert_eq!(frame.event.unwrap().data, "a");
        assert_eq!(decoder.rest(), b"");
    }
}

#[test]
fn late_line_feed_is_its_own_frame_and_not_a_blank_line() {
    let decoded = Decoded::of(100, [&b"data: a\r"[..], b"\ndata: b\r\n\r", b"\n", b"\n"]);
    let raw: Vec<&[u8]> = decoded.frames.iter().map(|(raw, _)| &raw[..]).collect();
    assert_eq!(raw, [&b"data: a\r\ndata: b\r\n\r"[..], b"\n", b"\n"]);
    assert_eq!(decoded.events, [event("", "a\nb")]);
}

#[test]
fn lines_without_known_field_are_stray() {
    let page = "<html>\n<p>data: no</p>\n\n</html>";
    let long = format!("{{{}", "🦀".repeat(MAX_STRAY_BYTES));
    let table = [
        (page, "<html>\n<p>data: no</p>\n</html>"),
        ("{\"error\":\"no\"}", "{\"error\":\"no\"}"),
        ("foo: bar\nevents: x\ndata: a\n\n", "foo: bar\nevents: x"),
        ("data: a\nevent: e\nid\nid: 1\nretry: 1\n: c\n\n", ""),
        ("\u{feff}data: a\n\u{feff}data: b\n", "\u{feff}data: b"),
        ("\u{feff}dat", ""),
        ("dat", ""),
        ("dat:", "dat:"),
        ("datum", "datum"),
        (&long, &long[..MAX_STRAY_BYTES - 3]),
    ];
    for (input, stray) in table {
        assert_eq!(Decoded::of(1 << 20, [input.as_bytes()]).stray, stray);
    }
    assert_eq!(Decoded::of(9, [&b"\xef\xbb"[..]]).stray, "");
}

#[test]
fn frame_limit_is_independent_of_chunking() {
    let line = "x".repeat(98);
    for (input, fits) in [
        (format!("{line}\n\n"), true),
        (format!("{line}x\n\n"), false),
        (format!("{line}\r\r\n"), true),
        (format!("{line}\r\n\r\n"), false),
        (format!("{line}xx"), true),
        (format!("{line}xxx"), false),
        ("data: 0123456789\n".repeat(12), false),
        (": 0123456789\n".repeat(12), false),
    ] {
        for size in [1, 7, 1000] {
            let decoded = Decoded::of(100, input.as_bytes().chunks(size));
            assert_eq!(decoded.error.is_none(), fits, "{input:?} by {size}");
        }
    }
}

#[test]
fn oversized_frame_is_a_lasting_error_and_keeps_its_bytes() {
    let mut decoder = Decoder::new(100);
    decoder.push(b"data: a\n\n");
    decoder.push("<html> is long. ".repeat(10).as_bytes());
    assert!(decoder.next_event().unwrap().is_some());
    for _ in 0..3 {
        assert_eq!(decoder.next_event(), Err(TooLong { limit: 100 }));
        assert_eq!(decoder.next_frame(), Err(TooLong { limit: 100 }));
        decoder.push(b"\n\ndata: b\n\n");
    }
    assert_eq!(decoder.rest().len(), 160);
    assert_eq!(decoder.stray().len(), 160);
}

// --- another decoder ---

/// Decodes the same text with the other decoder: the standard decodes UTF-8 before it looks for lines, and inserts
/// replacement characters where the other one stops. It returns frames without data, which the standard does not.
fn decoded_elsewhere(bytes: &[u8], sizes: &[usize]) -> Events {
    let text = String::from_utf8_lossy(bytes);
    let chunks = cut(text.as_bytes(), sizes);
    let chunks = stream::iter(chunks.into_iter().map(Ok::<_, Infallible>));
    let frames = sse_stream::SseByteStream::new(chunks).collect::<Vec<_>>();
    let frames = frames
        .now_or_never()
        .unwrap()
        .into_iter()
        .map(Result::unwrap);
    frames
        .filter_map(|frame| Some((frame.event.unwrap_or_default(), frame.data?)))
        .collect()
}

/// Returns the stray lines of the whole text at once.
fn stray_lines(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes).replace("\r\n", "\n");
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let is_stray = |line: &&str| {
        let field = line.split(':').next().unwrap();
        !["", "data", "event", "id", "retry"].contains(&field)
    };
    let lines: Vec<&str> = text.split(['\r', '\n']).filter(is_stray).collect();
    lines.join("\n")
}

// --- properties ---

/// Lines with a meaning, their pieces, and bytes without one.
fn input() -> impl Strategy<Value = Vec<u8>> {
    let pieces: Vec<&[u8]> = vec![
        b"data: a",
        b"data:b",
        b"data",
        b"data:  ",
        b"event: e",
        b"event:",
        b"event",
        b":c",
        b"id: 1\0",
        b"id",
        b"retry: 5",
        b"foo: bar",
        b":",
        b" ",
        b"\n",
        b"\n",
        b"\r",
        b"\r\n",
        b"\r\n",
        b"\n\n",
        b"\r\r",
        b"\r\n\r\n",
        b"\0",
        b"\xef\xbb\xbf",
        "é".as_bytes(),
        "🦀".as_bytes(),
        b"\xf0\x9f",
        b"\xff",
        b"{\"a\":1}",
        b"<p>",
    ];
    let piece = prop_oneof![
        9 => prop::sample::select(pieces).prop_map(<[u8]>::to_vec),
        1 => prop::collection::vec(any::<u8>(), 1..4),
    ];
    let mark = prop_oneof![3 => Just(&b""[..]), 1 => Just(BYTE_ORDER_MARK)];
    (mark, prop::collection::vec(piece, 0..40))
        .prop_map(|(mark, pieces)| [mark, &pieces.concat()].concat())
}

fn sizes() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(1_usize..9, 1..6)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn decoder_matches_sse_stream_crate(bytes in input(), sizes in sizes()) {
        let decoded = Decoded::of(1 << 20, cut(&bytes, &sizes));
        prop_assert_eq!(&decoded.events, &decoded_elsewhere(&bytes, &sizes));
        prop_assert_eq!(decoded.events, decode(&cut(&bytes, &sizes)));
    }

    #[test]
    fn chunking_does_not_change_decoded_events(bytes in input(), sizes in sizes(), limit in 1_usize..100) {
        let whole = Decoded::of(limit, [&bytes[..]]);
        let pieces = Decoded::of(limit, cut(&bytes, &sizes));
        prop_assert_eq!(&pieces.events, &whole.events);
        prop_assert_eq!(pieces.error, whole.error);
        if whole.error.is_none() {
            prop_assert_eq!(pieces.stray, whole.stray);
        }
    }

    #[test]
    fn frames_and_rest_are_the_input(bytes in input(), sizes in sizes()) {
        prop_assert_eq!(Decoded::of(1 << 20, cut(&bytes, &sizes)).bytes(), bytes);
    }

    #[test]
    fn frame_decodes_alone_as_within_the_stream(bytes in input(), sizes in sizes()) {
        let decoded = Decoded::of(1 << 20, cut(&bytes, &sizes));
        for (index, (raw, event)) in decoded.frames.into_iter().enumerate() {
            // A byte order mark counts only at the beginning of the stream.
            let before = if index == 0 { &b""[..] } else { b"\n" };
            let alone = Decoded::of(1 << 20, [before, &raw]);
            prop_assert_eq!(alone.frames.last(), Some(&(raw, event)));
            prop_assert_eq!(alone.frames.len(), 1 + before.len());
        }
    }

    #[test]
    fn stray_text_matches_reference_implementation(mut bytes in input(), sizes in sizes()) {
        bytes.push(b'\n');
        let decoded = Decoded::of(1 << 20, cut(&bytes, &sizes));
        prop_assert_eq!(decoded.stray, stray_lines(&bytes));
    }

    #[test]
    fn wire_encoding_round_trips_through_decoder(name in "[^\r\n]{0,9}", data in "[^\r]{0,40}", lines in "[a\r\n]{0,9}") {
        let sent = Event { name: name.clone(), data };
        prop_assert_eq!(decode(&[sent.to_wire().as_bytes()]), [event(&name, &sent.data)]);
        let sent = Event { name: lines.clone(), data: lines.clone() };
        let data = lines.replace("\r\n", "\n").replace('\r', "\n");
        let name = data.split('\n').next().unwrap();
        prop_assert_eq!(decode(&[sent.to_wire().as_bytes()]), [event(name, &data)]);
    }
}
