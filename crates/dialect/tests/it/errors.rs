//! Reading and judging errors is total: a hundred thousand mutated and random ones.

use outlast_dialect::error_body::{RawError, parse};
use outlast_kernel::Timestamp;
use outlast_kernel::classify::classify;
use outlast_kernel::failure::{Failure, Transport};
use outlast_kernel::fingerprint::Fingerprint;
use outlast_kernel::text;
use outlast_kernel::verdict::Class;

const ROUNDS: u64 = 100_000;

/// A small generator, so that the same inputs are used each time.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % limit.max(1) as u64).unwrap()
    }
}

/// The bodies of the corpus, and a few shapes of their own.
fn seeds() -> Vec<String> {
    let corpus = include_str!("../../../../corpus/errors.jsonl");
    let body = |line: &str| {
        serde_json::from_str::<serde_json::Value>(line).unwrap()["body"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let mut seeds: Vec<String> = corpus.lines().map(body).collect();
    seeds.extend(
        [
            "",
            "{",
            "[[[[",
            "\u{1b}[31m",
            "429",
            "data:",
            "😀".repeat(50).as_str(),
        ]
        .map(str::to_owned),
    );
    seeds
}

/// A seed, cut, doubled, spliced or sprinkled with bytes.
fn mutated(seeds: &[String], chance: &mut Chance) -> String {
    let mut bytes = seeds[chance.below(seeds.len())].clone().into_bytes();
    for _ in 0..chance.below(4) {
        let at = chance.below(bytes.len() + 1);
        match chance.below(5) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, u8::try_from(chance.below(256)).unwrap()),
            2 => {
                let other = seeds[chance.below(seeds.len())].as_bytes();
                let from = chance.below(other.len() + 1);
                bytes.splice(at..at, other[from..].iter().copied());
            }
            3 => bytes.rotate_left(at),
            _ => bytes.extend_from_within(at..),
        }
        bytes.truncate(8192);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[test]
fn mutated_error_bodies_are_parsed_and_classified() {
    let (seeds, mut chance) = (seeds(), Chance(0x2545_F491_4F6C_DD1D));
    let kinds = [
        (Transport::Http, Some(400)),
        (Transport::Http, Some(429)),
        (Transport::Stream, Some(200)),
        (Transport::Thrown, None),
    ];
    for _ in 0..ROUNDS {
        let body = mutated(&seeds, &mut chance);
        let (transport, status) = kinds[chance.below(kinds.len())];
        let headers = [
            ("retry-after".to_owned(), mutated(&seeds, &mut chance)),
            ("date".to_owned(), body.clone()),
        ];
        let at = Timestamp::from_millis(chance.0);
        let failure: Failure = parse(RawError {
            provider: "p",
            transport,
            status,
            headers: &headers,
            body: &body,
            at,
        });
        let verdict = classify(&failure);
        assert!(failure.message.len() <= text::MAX_MESSAGE_BYTES);
        assert!(!verdict.evidence.is_empty());
        assert!(verdict.hint.is_none_or(|hint| hint.not_before >= at));
        Fingerprint::new("step", verdict.cause.class(), &failure.message);
    }
}

const TERMINAL: [u16; 9] = [400, 401, 402, 403, 404, 405, 410, 413, 422];
const TEMPTATIONS: [&str; 10] = [
    r#"{"code":"overloaded_error"}"#,
    r#"{"error":{"type":"rate_limit_error","message":"overloaded"}}"#,
    r"{'reason': 'slow_down'}",
    "429 overloaded, rate limit exceeded, please retry in 5s",
    "ECONNRESET connection refused, stream disconnected",
    "503 service unavailable",
    r#""overloaded""#,
    "usage limit reached, resets at 5am",
    "data: {\"error\":{\"code\":429}}",
    "timeout_error",
];

/// Returns the same text as the provider's message, inside of it, and as an echo of the request.
fn bodies(text: &str) -> Vec<String> {
    let quoted = serde_json::Value::from(text).to_string();
    let said = serde_json::Value::from(format!("invalid content: {text}")).to_string();
    let echo = if serde_json::from_str::<serde_json::Value>(text).is_ok() {
        text.to_owned()
    } else {
        quoted.clone()
    };
    vec![
        format!(r#"{{"error":{{"type":"invalid_request_error","message":{said}}}}}"#),
        format!(r#"{{"error":{{"type":"authentication_error","message":{quoted}}}}}"#),
        format!(r#"{{"detail":[{{"msg":"field required","input":{echo}}}]}}"#),
        format!(
            r#"{{"error":{{"message":"no","param":{echo}}},"request":{{"messages":[{echo}]}}}}"#
        ),
        format!(r#"{{"errors":[{quoted}]}}"#),
        format!("Bad request: {text}"),
    ]
}

#[test]
fn no_text_in_a_body_makes_a_terminal_4xx_retryable() {
    let mut chance = Chance(0x9E37_79B9_7F4A_7C15);
    let seeds = seeds();
    for round in 0..400 {
        let temptation = TEMPTATIONS[round % TEMPTATIONS.len()].to_owned();
        let text = if round < TEMPTATIONS.len() {
            temptation
        } else {
            temptation + &mutated(&seeds, &mut chance)
        };
        for body in bodies(&text) {
            for status in TERMINAL {
                let transport = Transport::Http;
                let at = Timestamp::default();
                let seen = RawError {
                    provider: "p",
                    transport,
                    status: Some(status),
                    headers: &[],
                    body: &body,
                    at,
                };
                let verdict = classify(&parse(seen));
                assert_ne!(
                    verdict.class(),
                    Class::Transient,
                    "{status} {body} {verdict:?}"
                );
            }
        }
    }
}
