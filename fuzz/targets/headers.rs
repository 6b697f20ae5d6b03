//! Stated times: any value of any header gives a time that is not in the past, or none.

use outlast_kernel::Timestamp;
use outlast_kernel::classify::classify;
use outlast_kernel::failure::Failure;

const NAMES: [&str; 7] = [
    "retry-after",
    "retry-after-ms",
    "x-ratelimit-reset-tokens",
    "anthropic-ratelimit-tokens-reset",
    "anthropic-ratelimit-unified-5h-reset",
    "x-codex-primary-reset-at",
    "date",
];

pub(super) fn run(at: u64, one: &str, other: &str) {
    let at = Timestamp::from_millis(at);
    for name in NAMES {
        let headers = [
            (name, one),
            ("date", other),
            ("anthropic-ratelimit-unified-5h-status", "rejected"),
        ];
        let verdict = classify(&Failure::http("p", 429, "", at).with_headers(headers));
        assert!(verdict.hint.is_none_or(|hint| hint.not_before >= at));
    }
}
