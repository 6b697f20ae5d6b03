//! The headers that tell a client whether and when to retry, and those by which a client states its time limit.
//!
//! Invariant: a provider's `Retry-After` is never forwarded as it is: the same number makes one client wait and another
//! give up.

use super::profile::{Profile, RetryAfterSupport, StatedLimit};
use http::header::{HeaderValue, RETRY_AFTER};
use http::{HeaderMap, HeaderName};
use std::time::Duration;

const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");
const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// A stated limit beyond this counts as none.
const MAX_STATED_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

/// Rewrites the headers of a forwarded failure to values that this client can use.
///
/// `wait` is the time that the client should stay away, if it is known. If the client `comes_back`, the headers say so,
/// and when; if it must not come back, because the wait is used up, they say that, and state no time.
pub fn rewrite_retry_headers(
    profile: &Profile,
    headers: &mut HeaderMap,
    wait: Option<Duration>,
    comes_back: bool,
) {
    let stated = wait.or_else(|| stated_wait(headers));
    let should_retry = if comes_back { "true" } else { "false" };
    headers.insert(SHOULD_RETRY, HeaderValue::from_static(should_retry));
    if profile.retry_after == RetryAfterSupport::Ignored {
        return;
    }
    headers.remove(RETRY_AFTER_MS);
    if !comes_back {
        headers.remove(RETRY_AFTER);
        return;
    }
    // A date or an unreadable word is useless to a client that is known to need a number.
    if stated.is_some() || matches!(profile.retry_after, RetryAfterSupport::RequiredUpTo(_)) {
        let seconds = profile.retry_after_for(stated).as_secs();
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
    } else {
        headers.remove(RETRY_AFTER);
    }
}

/// Returns the time limit that a client states in its request, or `None` if it states none that has a meaning for it.
pub fn stated_timeout(profile: &Profile, headers: &HeaderMap) -> Option<Duration> {
    let name = match profile.stated_limit {
        StatedLimit::Unstated => return None,
        StatedLimit::BetweenBytes => "x-stainless-read-timeout",
        StatedLimit::UntilHeaders => "x-stainless-timeout",
    };
    let stated = seconds(headers.get(name)?).filter(|limit| *limit >= Duration::from_secs(1));
    stated.map(|limit| limit.min(MAX_STATED_TIMEOUT))
}

/// Returns the wait that the provider states as a number.
fn stated_wait(headers: &HeaderMap) -> Option<Duration> {
    let millis = headers.get(RETRY_AFTER_MS).and_then(seconds);
    millis
        .map(|millis| millis / 1000)
        .or_else(|| headers.get(RETRY_AFTER).and_then(seconds))
}

fn seconds(value: &HeaderValue) -> Option<Duration> {
    let seconds: f64 = value.to_str().ok()?.trim().parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

#[cfg(test)]
mod tests {
    use super::super::by_name;
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| {
                (
                    HeaderName::from_static(name),
                    HeaderValue::from_static(value),
                )
            })
            .collect()
    }

    /// Returns the `Retry-After` that the named client sees when it is to come back.
    fn rewritten(name: &str, given: &[(&'static str, &'static str)], wait: Option<u64>) -> String {
        let mut headers = headers(given);
        let wait = wait.map(Duration::from_secs);
        rewrite_retry_headers(by_name(name).unwrap(), &mut headers, wait, true);
        assert_eq!(headers["x-should-retry"], "true", "{name}");
        let value = headers.get(RETRY_AFTER);
        value.map_or("-".into(), |value| value.to_str().unwrap().into())
    }

    #[test]
    fn retry_after_is_within_each_clients_limit() {
        for (name, short, long, longest) in [
            ("claude-code", "12", "60", "60"),
            ("anthropic-sdk-python", "12", "60", "60"),
            ("anthropic-sdk-ts", "12", "90", "18000"),
            ("openai-sdk-python", "12", "90", "120"),
            ("openai-sdk-node", "12", "60", "60"),
            ("codex", "12", "90", "120"),
            ("opencode", "12", "90", "18000"),
            ("ai-sdk", "12", "59", "59"),
            ("pi", "12", "60", "60"),
            ("aider", "12", "60", "60"),
            ("unknown", "12", "60", "60"),
        ] {
            let provider = [("retry-after", "90")];
            assert_eq!(rewritten(name, &provider, Some(12)), short, "{name}");
            assert_eq!(rewritten(name, &provider, None), long, "{name}");
            assert_eq!(rewritten(name, &provider, Some(18_000)), longest, "{name}");
        }
    }

    #[test]
    fn retry_after_is_capped_at_24_days() {
        let month = Some(30 * 86_400);
        assert_eq!(rewritten("opencode", &[], month), "2073600");
        assert_eq!(rewritten("anthropic-sdk-ts", &[], month), "2073600");
    }

    #[test]
    fn codex_gets_default_retry_after_when_unknown() {
        assert_eq!(rewritten("codex", &[], None), "15");
        assert_eq!(rewritten("claude-code", &[], None), "-");
    }

    #[test]
    fn retry_after_is_rounded_up_to_at_least_one_second() {
        let mut headers = HeaderMap::new();
        let codex = by_name("codex").unwrap();
        for (millis, stated) in [(0, "1"), (400, "1"), (1_000, "1"), (1_001, "2")] {
            let wait = Some(Duration::from_millis(millis));
            rewrite_retry_headers(codex, &mut headers, wait, true);
            assert_eq!(headers[RETRY_AFTER], stated, "{millis} ms");
        }
    }

    #[test]
    fn provider_retry_headers_are_read_and_replaced() {
        let millis = [("retry-after-ms", "250000"), ("retry-after", "1")];
        assert_eq!(rewritten("codex", &millis, None), "120");
        let mut rest = headers(&millis);
        rewrite_retry_headers(by_name("claude-code").unwrap(), &mut rest, None, true);
        assert!(!rest.contains_key(RETRY_AFTER_MS));
        let date = [("retry-after", "Sun, 15 Nov 2026 22:00:00 GMT")];
        assert_eq!(rewritten("claude-code", &date, None), "-");
        for strange in ["-5", "NaN", "inf", "1e300", "soon", ""] {
            assert_eq!(
                rewritten("claude-code", &[("retry-after", strange)], None),
                "-"
            );
        }
    }

    #[test]
    fn gemini_cli_keeps_provider_retry_headers() {
        let given = [("retry-after", "300"), ("retry-after-ms", "300000")];
        assert_eq!(rewritten("gemini-cli", &given, Some(5)), "300");
    }

    #[test]
    fn final_failure_sets_only_x_should_retry_false() {
        for name in ["claude-code", "codex", "opencode", "openai-sdk-python"] {
            let mut headers = headers(&[
                ("retry-after", "30"),
                ("retry-after-ms", "30000"),
                ("x-should-retry", "true"),
            ]);
            let wait = Some(Duration::from_secs(30));
            rewrite_retry_headers(by_name(name).unwrap(), &mut headers, wait, false);
            assert_eq!(headers["x-should-retry"], "false", "{name}");
            assert_eq!(headers.len(), 1, "{name}: {headers:?}");
        }
    }

    #[test]
    fn client_timeout_is_read_from_its_own_header() {
        let stated = |name: &str, header: &'static str, value: &'static str| {
            stated_timeout(by_name(name).unwrap(), &headers(&[(header, value)]))
        };
        let read = "x-stainless-read-timeout";
        let until_headers = "x-stainless-timeout";
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(stated("openai-sdk-python", read, "45"), seconds(45));
        assert_eq!(stated("openai-sdk-python", read, "600.0"), seconds(600));
        assert_eq!(
            stated("anthropic-sdk-ts", until_headers, "600"),
            seconds(600)
        );
        for (name, header, value) in [
            ("anthropic-sdk-python", until_headers, "600"),
            ("anthropic-sdk-python", read, "NOT_GIVEN"),
            ("anthropic-sdk-python", read, "0"),
            ("anthropic-sdk-python", read, "-1"),
            ("claude-code", until_headers, "600"),
        ] {
            assert_eq!(stated(name, header, value), None, "{name} {header} {value}");
        }
    }
}
