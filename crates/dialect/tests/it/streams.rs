//! The streams of the corpus: one completion in three dialects.

use outlast_dialect::{Delta, Dialect, sse};
use outlast_kernel::Timestamp;
use outlast_kernel::event::{Proof, Reasoning, StopReason, ToolCall, Usage};

const STREAMS: [(Dialect, &str); 3] = [
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

fn read(dialect: Dialect, chunks: &[&[u8]]) -> Vec<Delta> {
    let mut decoder = sse::Decoder::new(1 << 20);
    let mut reader = dialect.decoder("p");
    let mut deltas = Vec::new();
    for chunk in chunks {
        decoder.push(chunk);
        while let Some(event) = decoder.next_event().unwrap() {
            reader
                .decode(&event, Timestamp::default(), &mut deltas)
                .unwrap();
        }
    }
    deltas
}

/// Returns the common deltas; each provider proves its reasoning and names its calls in its own way.
fn expected_deltas(dialect: Dialect) -> Vec<Delta> {
    let signature =
        "EqQBCgIYAhIM1gbcDa9GJwZA2b3hGgxBdjrzLoky3d1pkipgMOYds6RjTNbPzgIu+WZ0mSbZZN0Fb9Xr/4Q==";
    let encrypted =
        "gAAAAABpF2x0mH3Pq-8f7b2cQd9Lr0vTn5YwKzX1eJu6sG4iOaBhWcEyRlVtUpMoNqZxSd7Fg2Hj3Kk9Ll8Aa0==";
    let (proof, ids) = match dialect {
        Dialect::Anthropic => (
            Some(Proof::Signature {
                signature: signature.to_owned(),
            }),
            [
                "toolu_01T1x1fJ34qAmk2tNTrN7Up6",
                "toolu_01A09q90qw90lq917835lq9",
            ],
        ),
        Dialect::OpenaiChat => (
            None,
            [
                "call_DdmO9pD3xa9XTPNJ32zg2hcA",
                "call_p0kq2T6n1cYf0WbXjQm5rLz8",
            ],
        ),
        Dialect::OpenaiResponses => (
            Some(Proof::Encrypted {
                id: "rs_0b5c7a9e8f1d2c3b4a5968778695a4b3".to_owned(),
                content: Some(encrypted.to_owned()),
            }),
            [
                "call_DdmO9pD3xa9XTPNJ32zg2hcA",
                "call_p0kq2T6n1cYf0WbXjQm5rLz8",
            ],
        ),
    };
    let call = |id: &str, arguments: &str| {
        Delta::ToolCall(ToolCall {
            id: id.to_owned(),
            name: "get_weather".to_owned(),
            arguments: arguments.to_owned(),
        })
    };
    vec![
        Delta::Reasoning("Two cities, ".to_owned()),
        Delta::Reasoning("so two calls.".to_owned()),
        Delta::ReasoningDone(Reasoning {
            text: "Two cities, so two calls.".to_owned(),
            proof,
            ..Reasoning::default()
        }),
        Delta::Text("Grüße! ".to_owned()),
        Delta::Text("I’ll look at both 🌦".to_owned()),
        Delta::Text(" at once.".to_owned()),
        call(ids[0], r#"{"city": "München"}"#),
        call(ids[1], r#"{"city": "Oslo"}"#),
        Delta::Stopped(StopReason::ToolUse),
    ]
}

fn without_usage(deltas: Vec<Delta>) -> Vec<Delta> {
    let is_usage = |delta: &Delta| matches!(delta, Delta::Usage(_));
    deltas
        .into_iter()
        .filter(|delta| !is_usage(delta))
        .collect()
}

#[test]
fn every_dialect_decodes_to_same_deltas() {
    for (dialect, stream) in STREAMS {
        let deltas = read(dialect, &[stream.as_bytes()]);
        assert_eq!(
            without_usage(deltas),
            expected_deltas(dialect),
            "{dialect:?}"
        );
    }
}

#[test]
fn token_usage_is_decoded_in_every_dialect() {
    for (dialect, stream) in STREAMS {
        let used = |delta: &Delta| match delta {
            Delta::Usage(usage) => Some(*usage),
            _ => None,
        };
        let deltas = read(dialect, &[stream.as_bytes()]);
        let usage = deltas.iter().filter_map(used).next_back();
        let cache_write = u64::from(dialect == Dialect::Anthropic) * 12;
        let expected = Usage {
            input: 472,
            output: 89,
            cache_read: 2048,
            cache_write,
        };
        assert_eq!(usage, Some(expected), "{dialect:?}");
    }
}

#[test]
fn chunk_size_does_not_change_decoded_deltas() {
    for (dialect, stream) in STREAMS {
        let whole = read(dialect, &[stream.as_bytes()]);
        for size in [1, 2, 3, 7, 64, 1460] {
            let chunks: Vec<&[u8]> = stream.as_bytes().chunks(size).collect();
            assert_eq!(
                read(dialect, &chunks),
                whole,
                "{dialect:?} in chunks of {size}"
            );
        }
    }
}

#[test]
fn line_endings_do_not_change_decoded_deltas() {
    for (dialect, stream) in STREAMS {
        let whole = read(dialect, &[stream.as_bytes()]);
        for end in ["\r", "\r\n"] {
            let other = format!("\u{feff}{}", stream.replace('\n', end));
            assert_eq!(
                read(dialect, &[other.as_bytes()]),
                whole,
                "{dialect:?} {end:?}"
            );
        }
    }
}
