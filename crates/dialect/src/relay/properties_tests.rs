//! Whole responses through the relay, in any pieces and cut anywhere.

use crate::relay::Relay;
use crate::relay::content::is_content;
use crate::relay::fast_path;
use crate::relay::frame_scanner::{FrameFields, FrameScanner};
use crate::relay::progress::StreamProgress;
use crate::test_support::{NOW, call, text};
use crate::{ApiError, Delta, Dialect, StreamActivity, sse};
use bytes::Bytes;
use outlast_kernel::event::{Proof, Reasoning, StopReason, Usage};
use outlast_kernel::failure::{Failure, Phase};
use proptest::prelude::*;
use serde_json::Value;

// --- responses ---

fn thought(pieces: &[String]) -> Vec<Delta> {
    let mut deltas: Vec<Delta> = pieces.iter().cloned().map(Delta::Reasoning).collect();
    deltas.push(Delta::ReasoningDone(Reasoning {
        text: pieces.concat(),
        proof: Some(Proof::Signature {
            signature: "c2ln".to_owned(),
        }),
        ..Reasoning::default()
    }));
    deltas
}

fn words() -> impl Strategy<Value = String> {
    prop_oneof![
        "\\PC{0,12}",
        Just(r#""error": "finish_reason":"stop" {"type":"message_stop"}"#.to_owned()),
        Just("error".to_owned()),
        Just("data: [DONE]\n\nevent: error\r\n\r\n".to_owned()),
        Just("finish_reason\\".to_owned()),
    ]
}

fn part() -> impl Strategy<Value = Vec<Delta>> {
    prop_oneof![
        prop::collection::vec(words(), 1..4)
            .prop_map(|words| words.iter().map(|w| text(w)).collect()),
        prop::collection::vec(words(), 1..3).prop_map(|words| thought(&words)),
        words().prop_map(|words| {
            let arguments = serde_json::json!({ "city": words }).to_string();
            vec![call("id", "weather", &arguments)]
        }),
        Just(vec![call("id2", "nothing", "{}")]),
    ]
}

fn answer() -> impl Strategy<Value = Vec<Delta>> {
    let stop = prop_oneof![
        Just(StopReason::EndTurn),
        Just(StopReason::ToolUse),
        Just(StopReason::Length),
        Just(StopReason::Refusal),
    ];
    let usage = prop::option::of(Just(Delta::Usage(Usage {
        input: 5,
        output: 7,
        ..Usage::default()
    })));
    (prop::collection::vec(part(), 0..4), usage, stop).prop_map(|(parts, usage, stop)| {
        let mut deltas = parts.concat();
        deltas.extend(usage);
        deltas.push(Delta::Stopped(stop));
        deltas
    })
}

/// Returns a frame that may come between two others: each piece of a response has one of these before it.
fn noise(dialect: Dialect, which: u8) -> String {
    match which % 6 {
        0 => dialect.keepalive_frame(),
        1 => ": a comment\n\n".to_owned(),
        2 => dialect.unknown_frame("m"),
        3 => "\n".to_owned(),
        4 => "id: 5\nretry: 100\n\n".to_owned(),
        _ => String::new(),
    }
}

#[derive(Clone)]
struct Stream {
    dialect: Dialect,
    bytes: Vec<u8>,
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = String::from_utf8_lossy(&self.bytes);
        write!(formatter, "{:?}: {text:?}", self.dialect)
    }
}

/// Positions in a stream.
struct Places {
    /// The possible ends of frames.
    ends: Vec<usize>,
    /// The position from which it may be forwarded.
    opening: usize,
    /// The position from which a clean end is a good one.
    may_end: usize,
}

fn stream() -> impl Strategy<Value = Stream> {
    let dialect = prop::sample::select(&Dialect::ALL[..]);
    let line_end = prop::sample::select(&["\n", "\n", "\r\n", "\r"][..]);
    let noise_before = prop::collection::vec(any::<u8>(), 1..8);
    let begin = prop::sample::select(&["", "\u{feff}"][..]);
    (dialect, answer(), noise_before, line_end, begin).prop_map(
        |(dialect, deltas, noises, line_end, begin)| {
            let mut noises = noises.iter().cycle();
            let with_noise = |piece: &String| noise(dialect, *noises.next().unwrap()) + piece;
            let pieces = dialect.encode_stream("m", &deltas);
            let wire: String = pieces.iter().map(with_noise).collect();
            let bytes = format!("{begin}{}", wire.replace('\n', line_end)).into_bytes();
            Stream { dialect, bytes }
        },
    )
}

/// Returns the frames of a stream: the end of each, and its event.
fn frames(stream: &Stream) -> Vec<(usize, Option<sse::Event>)> {
    let mut decoder = sse::Decoder::new(1 << 20);
    decoder.push(&stream.bytes);
    let (mut frames, mut end) = (Vec::new(), 0);
    while let Some(frame) = decoder.next_frame().unwrap() {
        end += frame.raw.len();
        frames.push((end, frame.event));
    }
    frames
}

fn json(event: &sse::Event) -> Value {
    serde_json::from_str(&event.data).unwrap_or_default()
}

impl Stream {
    fn places(&self) -> Places {
        let frames = frames(self);
        // A CR ends a line even before its LF has arrived.
        let without_late = |end: usize| end - usize::from(self.bytes[..end].ends_with(b"\r\n"));
        let first = |is_it: &dyn Fn(&sse::Event) -> bool| {
            let mut found = frames.iter();
            let found = found.find(|(_, event)| event.as_ref().is_some_and(is_it));
            without_late(found.unwrap().0)
        };
        let ends = frames
            .iter()
            .flat_map(|(end, _)| [*end, without_late(*end)]);
        Places {
            ends: std::iter::once(0).chain(ends).collect(),
            opening: first(&|event| {
                is_content(self.dialect, &event.name, &json(event)) || self.is_last(event)
            }),
            may_end: first(&|event| {
                let reason = &json(event)["choices"][0]["finish_reason"];
                self.is_last(event) || reason.is_string()
            }),
        }
    }

    fn is_last(&self, event: &sse::Event) -> bool {
        let kind = json(event)["type"].as_str().unwrap_or_default().to_owned();
        match self.dialect {
            Dialect::Anthropic => kind == "message_stop",
            Dialect::OpenaiChat => event.data == "[DONE]",
            Dialect::OpenaiResponses => {
                ["response.completed", "response.incomplete"].contains(&kind.as_str())
            }
        }
    }

    /// Checks the output and the end of a stream that is cut there.
    fn check_cut(&self, cut: usize, places: &Places, sizes: &[usize]) {
        let came = &self.bytes[..cut];
        let mut sent = Sent::new(self.dialect);
        for piece in pieces(came, sizes) {
            sent.push(piece).unwrap();
        }
        assert!(came.starts_with(&sent.bytes));
        let length = sent.bytes.len();
        assert!(places.ends.contains(&length), "{length} of {cut}");
        let (has_content, may_end) = (cut >= places.opening, cut >= places.may_end);
        match sent.end() {
            Ok(()) => {
                assert!(may_end, "cut at {cut}");
                assert_eq!(sent.bytes, came);
            }
            Err(failure) => {
                assert!(!may_end, "cut at {cut}");
                assert_eq!(failure.phase == Phase::AfterContent, has_content);
                assert_eq!(sent.relay.has_content(), has_content);
            }
        }
    }
}

// --- relays ---

/// A relay and all of its output.
struct Sent {
    relay: Relay,
    bytes: Vec<u8>,
}

impl Sent {
    fn new(dialect: Dialect) -> Self {
        let relay = dialect.relay("p");
        let bytes = Vec::new();
        Self { relay, bytes }
    }

    fn push(&mut self, bytes: &[u8]) -> Result<StreamActivity, Box<Failure>> {
        let mut out = Vec::new();
        let sign = self
            .relay
            .push(Bytes::copy_from_slice(bytes), NOW, &mut out);
        assert!(out.iter().all(|bytes| !bytes.is_empty()));
        self.bytes.extend(out.concat());
        sign
    }

    fn end(&mut self) -> Result<(), Box<Failure>> {
        let mut out = Vec::new();
        let end = self.relay.finish(NOW, &mut out);
        self.bytes.extend(out.concat());
        end
    }
}

/// Cuts the bytes into pieces of these sizes, again and again.
fn pieces<'a>(mut bytes: &'a [u8], sizes: &[usize]) -> Vec<&'a [u8]> {
    let mut pieces = Vec::new();
    for size in sizes.iter().cycle() {
        let (piece, rest) = bytes.split_at(bytes.len().min(*size));
        pieces.push(piece);
        bytes = rest;
        if bytes.is_empty() {
            break;
        }
    }
    pieces
}

fn sizes() -> impl Strategy<Value = Vec<usize>> {
    let size = prop_oneof![1_usize..6, 1_usize..80, 200_usize..3000];
    prop::collection::vec(size, 1..8)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_byte_is_sent_in_order_and_none_before_content(stream in stream(), sizes in sizes()) {
        let opening = stream.places().opening;
        let mut sent = Sent::new(stream.dialect);
        let mut came = 0;
        for piece in pieces(&stream.bytes, &sizes) {
            sent.push(piece).unwrap();
            came += piece.len();
            prop_assert!(stream.bytes[..came].starts_with(&sent.bytes));
            prop_assert_eq!(sent.bytes.is_empty(), came < opening, "{} of {}", came, opening);
            prop_assert!(sent.bytes.is_empty() || sent.bytes.len() >= opening);
            prop_assert!(sent.relay.is_between_frames());
        }
        prop_assert!(sent.relay.is_complete() && sent.relay.is_content_complete());
        prop_assert_eq!(&sent.bytes, &stream.bytes);
        prop_assert!(sent.end().is_ok() && sent.relay.relayed_error().is_none());
        prop_assert_eq!(&sent.bytes, &stream.bytes);
    }

    #[test]
    fn stream_cut_anywhere_relays_only_complete_frames(
        stream in stream(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 20),
        sizes in sizes(),
    ) {
        let places = stream.places();
        let near_end = places.ends.iter().flat_map(|end| [end.saturating_sub(1), *end, end + 1]);
        let anywhere = cuts.iter().map(|cut| cut.index(stream.bytes.len()));
        for cut in anywhere.chain(near_end).take(60) {
            stream.check_cut(cut.min(stream.bytes.len()), &places, &sizes);
        }
    }

    #[test]
    fn error_fails_before_content_and_is_relayed_after_it(stream in stream(), at in any::<prop::sample::Index>(), sizes in sizes()) {
        let ends: Vec<usize> = frames(&stream).iter().map(|(end, _)| *end).collect();
        let before = ends[at.index(ends.len())];
        let problem = ApiError::new("overloaded_error", "Overloaded");
        let error = stream.dialect.encode_error_frame(&problem, &crate::Interruption::default());
        let Places { opening, may_end, .. } = stream.places();
        prop_assume!(before < may_end);
        let bytes = [&stream.bytes[..before], error.as_bytes()].concat();
        let mut sent = Sent::new(stream.dialect);
        let failed = pieces(&bytes, &sizes).into_iter().find_map(|piece| sent.push(piece).err());
        if before < opening {
            let told = read(stream.dialect, &bytes);
            prop_assert_eq!(failed.as_deref(), told.as_ref());
            prop_assert!(failed.is_some() && sent.bytes.is_empty());
        } else {
            prop_assert!(failed.is_none());
            prop_assert_eq!(&sent.bytes, &bytes);
            let mut told = read(stream.dialect, error.as_bytes()).unwrap();
            told.phase = Phase::AfterContent;
            prop_assert_eq!(sent.relay.relayed_error(), Some(&told));
            prop_assert!(sent.end().is_ok());
        }
    }

    #[test]
    fn fast_path_activity_matches_decoder(stream in stream()) {
        let mut begin = 0;
        for (end, event) in frames(&stream) {
            let frame = &stream.bytes[begin..end];
            begin = end;
            let frame = frame.strip_prefix(b"\xef\xbb\xbf").unwrap_or(frame);
            let Some(sign) = fast_path::activity(stream.dialect, &FrameFields::parse(frame)) else { continue };
            let mut reader = stream.dialect.decoder("p");
            let mut deltas = Vec::new();
            let read = event.map_or(StreamActivity::KeepAlive, |event| reader.decode(&event, NOW, &mut deltas).unwrap());
            prop_assert_eq!(sign, read, "{}", String::from_utf8_lossy(frame));
            prop_assert!(!deltas.iter().any(|delta| matches!(delta, Delta::Stopped(_))));
            prop_assert!(!reader.is_complete());
        }
    }

    #[test]
    fn frame_scanner_finds_same_ends_as_decoder(
        text in "([a\r\n]|\r\n|data: b|: c){0,40}",
        sizes in sizes(),
    ) {
        let (mut ends, mut decoder) = (FrameScanner::default(), sse::Decoder::new(1 << 20));
        for piece in pieces(text.as_bytes(), &sizes) {
            decoder.push(piece);
            let mut rest = piece;
            let mut count = 0;
            while let Some(length) = ends.next_end(rest, &mut FrameFields::default()) {
                rest = &rest[length..];
                count += 1;
            }
            let mut decoded = 0;
            while decoder.next_frame().unwrap().is_some() {
                decoded += 1;
            }
            prop_assert_eq!(count, decoded);
            prop_assert_eq!(ends.is_within_frame(), !decoder.rest().is_empty());
        }
    }

    #[test]
    fn any_bytes_are_relayed_unchanged_or_fail(
        bytes in prop::collection::vec(any::<u8>(), 0..400),
        which in prop::sample::select(&Dialect::ALL[..]),
        sizes in sizes(),
    ) {
        let mut sent = Sent::new(which);
        for piece in pieces(&bytes, &sizes) {
            if sent.push(piece).is_err() {
                return Ok(());
            }
        }
        let end = sent.end();
        prop_assert!(bytes.starts_with(&sent.bytes));
        prop_assert!(end.is_err() || sent.bytes == bytes);
    }
}

/// Returns the failure that the dialect's decoder finds in a stream.
fn read(dialect: Dialect, bytes: &[u8]) -> Option<Failure> {
    crate::test_support::read_all(dialect, std::str::from_utf8(bytes).unwrap()).1
}

const CORPUS: [(Dialect, &str); 3] = [
    (
        Dialect::Anthropic,
        include_str!("../../../../corpus/streams/anthropic.sse"),
    ),
    (
        Dialect::OpenaiChat,
        include_str!("../../../../corpus/streams/openai_chat.sse"),
    ),
    (
        Dialect::OpenaiResponses,
        include_str!("../../../../corpus/streams/openai_responses.sse"),
    ),
];

#[test]
fn recorded_stream_cut_at_any_byte_relays_full_frames() {
    for (dialect, wire) in CORPUS {
        let bytes = wire.as_bytes().to_vec();
        let stream = Stream { dialect, bytes };
        let places = stream.places();
        for cut in 0..=stream.bytes.len() {
            stream.check_cut(cut, &places, &[1460]);
        }
    }
}

#[test]
fn fast_path_covers_most_recorded_deltas() {
    for (dialect, wire) in CORPUS {
        let is_delta = |frame: &&str| frame.contains("delta\"") && !frame.contains("\"role\"");
        let deltas: Vec<&str> = wire.split_inclusive("\n\n").filter(is_delta).collect();
        let known = |frame: &&&str| {
            fast_path::activity(dialect, &FrameFields::parse(frame.as_bytes())).is_some()
        };
        let count = deltas.iter().filter(known).count();
        // The last delta of a chat ends it and is parsed.
        assert!(
            count + 1 >= deltas.len() && count > 3,
            "{dialect:?}: {count} of {}",
            deltas.len()
        );
    }
}

#[test]
fn frame_after_stream_end_is_ignored() {
    let mut course = StreamProgress::new(Dialect::Anthropic, "p");
    course.is_complete = true;
    let error = b"event: error\ndata: {\"type\":\"error\"}\n\n";
    assert_eq!(
        course.observe_frame(error, &FrameFields::parse(error), NOW),
        StreamActivity::KeepAlive
    );
    assert_eq!(course.relayed_error, None);
}
