//! Counts the machine instructions for decoding and for relaying a stream, with valgrind.
//!
//! `cargo bench -p outlast-dialect` fails when a case passes its limit or its baseline by more than a quarter, and when
//! a byte of a long line costs more than one of a short line: the decoder is linear, however long the line.
//! Not here: the counting (see the kernel's `benches/support/callgrind.rs`).
#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a bench is a program of its own: it reads arguments, runs valgrind and may stop at once"
)]

#[path = "../../kernel/benches/support/callgrind.rs"]
mod callgrind;

use bytes::Bytes;
use callgrind::Case;
use outlast_dialect::sse::{Decoder, Event};
use outlast_dialect::{Delta, Dialect};
use outlast_kernel::Timestamp;
use std::hint::black_box;

// The first two are compared with each other.
const CASES: [Case; 9] = [
    Case {
        name: "line_1_mib",
        baseline: 1_172_000,
        limit: 1_500_000,
        run: short_line,
    },
    Case {
        name: "line_10_mib",
        baseline: 11_770_000,
        limit: 15_000_000,
        run: long_line,
    },
    Case {
        name: "events_5000",
        baseline: 7_220_000,
        limit: 9_000_000,
        run: events,
    },
    Case {
        name: "frames_5000",
        baseline: 7_300_000,
        limit: 9_000_000,
        run: frames,
    },
    // Two come in for each that is taken out.
    Case {
        name: "behind_5000",
        baseline: 4_430_000,
        limit: 5_500_000,
        run: behind,
    },
    // A completion of two hundred frames, each a chunk, as a server sends them.
    Case {
        name: "relay_anthropic",
        baseline: 250_000,
        limit: 300_000,
        run: |rounds| relay(Dialect::Anthropic, rounds),
    },
    Case {
        name: "relay_chat",
        baseline: 529_000,
        limit: 650_000,
        run: |rounds| relay(Dialect::OpenaiChat, rounds),
    },
    Case {
        name: "relay_responses",
        baseline: 393_000,
        limit: 500_000,
        run: |rounds| relay(Dialect::OpenaiResponses, rounds),
    },
    // Cut elsewhere: every frame is put together from two.
    Case {
        name: "relay_cut",
        baseline: 555_000,
        limit: 680_000,
        run: relay_cut,
    },
];

const ROUNDS: u64 = 2;
const MIB: usize = 1 << 20;
const MAX_FRAME_BYTES: usize = 16 * MIB;
/// The payload of a packet in a usual network.
const CHUNK: usize = 1460;

fn main() {
    if let [short, long, ..] = callgrind::run(&CASES, ROUNDS)[..] {
        let percent = long * 100 / (short * 10);
        println!("a byte of a line ten times as long costs {percent} % of one of the short line");
        assert!(percent <= 110, "the decoder is not linear");
    }
}

// --- cases ---

fn events_of(wire: &[u8], rounds: u64) {
    for _ in 0..rounds {
        let mut decoder = Decoder::new(MAX_FRAME_BYTES);
        for chunk in black_box(wire).chunks(CHUNK) {
            decoder.push(chunk);
            while let Some(event) = decoder.next_event().expect("short enough") {
                black_box(event);
            }
        }
    }
}

fn line(bytes: usize) -> Vec<u8> {
    let event = Event {
        name: String::new(),
        data: "x".repeat(bytes),
    };
    event.to_wire().into_bytes()
}

fn short_line(rounds: u64) {
    events_of(&line(MIB), rounds);
}

fn long_line(rounds: u64) {
    events_of(&line(10 * MIB), rounds);
}

/// Five thousand pieces of a completion, as one provider sends them.
fn deltas() -> Vec<u8> {
    let delta = |index: usize| Event {
        name: "content_block_delta".to_owned(),
        data: format!(
            r#"{{"type":"content_block_delta","index":0,"delta":{{"type":"text_delta","text":" word {index}"}}}}"#
        ),
    };
    let wire: String = (0..5000).map(|index| delta(index).to_wire()).collect();
    wire.into_bytes()
}

fn events(rounds: u64) {
    events_of(&deltas(), rounds);
}

fn frames(rounds: u64) {
    let wire = deltas();
    for _ in 0..rounds {
        let mut decoder = Decoder::new(MAX_FRAME_BYTES);
        for chunk in black_box(&wire).chunks(CHUNK) {
            decoder.push(chunk);
            while let Some(frame) = decoder.next_frame().expect("short enough") {
                black_box(frame);
            }
        }
    }
}

fn behind(rounds: u64) {
    for _ in 0..rounds {
        let mut decoder = Decoder::new(MAX_FRAME_BYTES);
        for _ in 0..5000 {
            decoder.push(black_box(b"data: a\n\ndata: b\n\n"));
            black_box(decoder.next_event().expect("short enough"));
        }
    }
}

/// A completion with two hundred pieces of text, each as it comes from its server.
fn answer(dialect: Dialect) -> Vec<Bytes> {
    let words = (0..200).map(|index| Delta::Text(format!(" word {index}")));
    let frames = dialect.encode_stream("model-2026-01-01", &words.collect::<Vec<_>>());
    frames.into_iter().map(Bytes::from).collect()
}

fn relay(dialect: Dialect, rounds: u64) {
    pass_on(dialect, &answer(dialect), rounds);
}

fn relay_cut(rounds: u64) {
    let whole = Bytes::from(answer(Dialect::Anthropic).concat());
    let chunks: Vec<Bytes> = (0..whole.len())
        .step_by(150)
        .map(|begin| whole.slice(begin..whole.len().min(begin + 150)))
        .collect();
    pass_on(Dialect::Anthropic, &chunks, rounds);
}

fn pass_on(dialect: Dialect, chunks: &[Bytes], rounds: u64) {
    let mut out = Vec::new();
    for _ in 0..rounds {
        let mut relay = dialect.relay("p");
        for chunk in black_box(chunks) {
            let pushed = relay.push(chunk.clone(), Timestamp::default(), &mut out);
            black_box(pushed.expect("no error"));
            black_box(&out);
            out.clear();
        }
    }
}
