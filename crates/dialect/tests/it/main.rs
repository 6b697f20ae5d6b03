//! Reading and judging errors is total: a hundred thousand mutated and random ones.
#![allow(clippy::unwrap_used, reason = "a test may stop at once")]

use outlast_dialect::error_body::{Seen, read};
use outlast_kernel::Timestamp;
use outlast_kernel::classify::classify;
use outlast_kernel::failure::{Failure, Transport};
use outlast_kernel::fingerprint::Fingerprint;
use outlast_kernel::text;

const ROUNDS: u64 = 100_000;

/// A small generator, so that the same inputs are tried each time.
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
fn a_hundred_thousand_errors_are_read_and_judged() {
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
        let failure: Failure = read(Seen {
            provider: "p",
            transport,
            status,
            headers: &headers,
            body: &body,
            at,
        });
        let verdict = classify(&failure);
        assert!(failure.message.len() <= text::MESSAGE_LIMIT);
        assert!(!verdict.evidence.is_empty());
        assert!(verdict.hint.is_none_or(|hint| hint.not_before >= at));
        Fingerprint::new("step", verdict.cause.class(), &failure.message);
    }
}
