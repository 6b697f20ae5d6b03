use super::*;
use proptest::prelude::*;

const NOW: &str = "2026-01-19T22:14:35Z";

fn limited(headers: &[(&str, &str)], message: &str) -> Failure {
    let now = NOW.parse().unwrap();
    Failure::http("p", 429, message, now).with_headers(headers.iter().copied())
}

fn read_it(failure: &Failure) -> Option<Hint> {
    read(failure, &Wording::read(&failure.message))
}

fn wait(headers: &[(&str, &str)], message: &str) -> Option<u128> {
    let failure = limited(headers, message);
    read_it(&failure).map(|hint| hint.wait(failure.at).as_millis())
}

type Headers = &'static [(&'static str, &'static str)];

/// Headers, and the wait in milliseconds that they state.
const STATED: &[(Headers, Option<u128>)] = &[
    (&[("retry-after", "7")], Some(7_000)),
    (&[("retry-after", " 1.5 ")], Some(1_500)),
    (&[("retry-after", "0")], Some(0)),
    (&[("retry-after", "-1")], None),
    (&[("retry-after", "soon")], None),
    (&[("Retry-After-Ms", "250")], Some(250)),
    (
        &[("retry-after", "Mon, 19 Jan 2026 22:15:35 GMT")],
        Some(60_000),
    ),
    (&[("retry-after", "Mon, 19 Jan 2015 22:15:35 GMT")], None),
    (
        &[
            ("retry-after", "Mon, 19 Jan 2026 23:00:00 GMT"),
            ("date", "Mon, 19 Jan 2026 22:59:00 GMT"),
        ],
        Some(60_000),
    ),
    (
        &[
            ("x-ratelimit-reset-tokens", "6m0s"),
            ("x-ratelimit-remaining-tokens", "0"),
        ],
        Some(360_000),
    ),
    (
        &[
            ("x-ratelimit-reset-tokens", "6m0s"),
            ("x-ratelimit-remaining-tokens", "59"),
        ],
        None,
    ),
    (
        &[
            ("x-ratelimit-reset-requests", "1s"),
            ("x-ratelimit-reset-tokens", "2m59.56s"),
        ],
        Some(179_560),
    ),
    (&[("x-ratelimit-reset", "1768860935")], Some(60_000)),
    (&[("x-ratelimit-reset", "1768860935000")], Some(60_000)),
    (
        &[
            ("x-ratelimit-reset-tokens", "0"),
            ("x-ratelimit-remaining-tokens", "-1"),
        ],
        None,
    ),
    (
        &[("anthropic-ratelimit-requests-reset", "2026-01-19T22:15:00Z")],
        Some(25_000),
    ),
    (
        &[
            ("x-codex-primary-used-percent", "100"),
            ("x-codex-primary-reset-after-seconds", "90"),
        ],
        Some(90_000),
    ),
];

#[test]
fn every_rate_limit_header_form_is_parsed() {
    for (headers, expected) in STATED {
        assert_eq!(wait(headers, ""), *expected, "{headers:?}");
    }
}

#[test]
fn reset_of_rejected_window_is_used() {
    let headers = [
        ("anthropic-ratelimit-unified-status", "rejected"),
        ("anthropic-ratelimit-unified-5h-status", "rejected"),
        ("anthropic-ratelimit-unified-5h-reset", "1768861475"),
        ("anthropic-ratelimit-unified-7d-status", "allowed"),
        ("anthropic-ratelimit-unified-7d-reset", "1769000000"),
        ("anthropic-ratelimit-unified-overage-status", "rejected"),
        ("anthropic-ratelimit-unified-overage-reset", "1769900000"),
    ];
    assert_eq!(wait(&headers, ""), Some(600_000));
}

#[test]
fn header_wait_wins_over_text_wait() {
    assert_eq!(
        wait(&[("retry-after", "5")], "Please try again in 30s."),
        Some(5_000)
    );
    assert_eq!(
        wait(&[("retry-after", "60")], "Please try again in 30s."),
        Some(60_000)
    );
}

#[test]
fn date_header_corrects_clock_skew() {
    // The server is an hour ahead of us.
    let date = ("date", "Mon, 19 Jan 2026 23:14:35 GMT");
    let table: [(&[(&str, &str)], &str); 3] = [
        (
            &[
                date,
                ("anthropic-ratelimit-requests-reset", "2026-01-19T23:15:00Z"),
            ],
            "",
        ),
        (
            &[date, ("retry-after", "Mon, 19 Jan 2026 23:15:00 GMT")],
            "",
        ),
        (&[date], "limit resets at 2026-01-19T23:15:00Z"),
    ];
    for (headers, text) in table {
        assert_eq!(wait(headers, text), Some(25_000), "{headers:?} {text}");
    }
}

#[test]
fn duration_wins_over_time_of_day_without_zone() {
    assert_eq!(
        wait(&[], "try again in 5m, that is, resets at 3am"),
        Some(300_000)
    );
    assert_eq!(wait(&[], "resets at 11pm"), Some(2_725_000));
}

#[test]
fn wait_phrases_in_text_are_parsed() {
    let table = [
        ("Please try again in 6m0s.", 360_000),
        ("try again in 1m30s", 90_000),
        ("try again in 1h2m3s", 3_723_000),
        ("retry after 30 seconds", 30_000),
        ("try again in 2 days", 172_800_000),
        ("limit resets at 2026-01-19T22:15:35Z", 60_000),
        ("Please wait 12 seconds before retrying", 12_000),
        ("retry-after-ms=50", 50),
        ("quota will reset after 18h31m10s", 66_670_000),
        ("Retry-After: 9", 9_000),
        ("resets at Mon, 19 Jan 2026 22:15:35 GMT", 60_000),
        ("retry after 2026-01-19T22:15:35Z", 60_000),
    ];
    for (text, millis) in table {
        assert_eq!(wait(&[], text), Some(millis), "{text}");
    }
    for text in [
        "please wait",
        "try again later",
        "in 5 attempts",
        "retry in a while",
        "resets over a rolling window",
    ] {
        assert_eq!(wait(&[], text), None, "{text}");
    }
}

#[test]
fn stated_wait_wins_over_bucket_report() {
    let failure = limited(&[("x-ratelimit-reset-tokens", "9s")], "");
    assert_eq!(read_it(&failure).unwrap().authority, Authority::Reported);
    let failure = limited(
        &[("x-ratelimit-reset-tokens", "9s"), ("retry-after", "2")],
        "",
    );
    assert_eq!(read_it(&failure).unwrap().source, "retry-after");
}

proptest! {
    #[test]
    fn hint_is_never_in_the_past_for_any_input(
        name in prop::sample::select(vec!["retry-after", "retry-after-ms", "x-ratelimit-reset-tokens", "anthropic-ratelimit-unified-5h-reset", "date"]),
        value in prop_oneof![any::<String>(), "[0-9.eE+-]{0,40}", "[0-9]{1,30}(ms|s|m|h|d)?"],
        text in "(try again in|resets at|wait) [0-9a-z:.,/() -]{0,30}",
    ) {
        let failure = limited(&[(name, &value)], &text);
        if let Some(hint) = read_it(&failure) {
            prop_assert!(hint.not_before >= failure.at);
        }
    }
}
