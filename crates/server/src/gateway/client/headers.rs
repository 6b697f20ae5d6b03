//! The headers by which a client is told whether and when to come back, and those by which it tells how long it waits.
//!
//! Invariant: a provider's `Retry-After` is never passed on as it is: the same number makes one client wait and another
//! give up.

use super::profile::{Limit, Obeys, Profile};
use http::header::{HeaderValue, RETRY_AFTER};
use http::{HeaderMap, HeaderName};
use std::time::Duration;

const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");
const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// Rewrites the headers of a failure that is passed on to what this client can use.
///
/// `wait` is how long it should stay away, when that is known. A client that `comes_back` is told so, and when; one that
/// is not to come back, because all that could be waited was waited, is told that, and no time.
pub fn rewrite_retry_headers(
    profile: &Profile,
    headers: &mut HeaderMap,
    wait: Option<Duration>,
    comes_back: bool,
) {
    let stated = wait.or_else(|| stated_wait(headers));
    let should_retry = if comes_back { "true" } else { "false" };
    headers.insert(SHOULD_RETRY, HeaderValue::from_static(should_retry));
    if profile.obeys == Obeys::Ignores {
        return;
    }
    headers.remove(RETRY_AFTER_MS);
    if !comes_back {
        headers.remove(RETRY_AFTER);
        return;
    }
    // A date or a word that cannot be read is worth nothing to a client that we know to need a number.
    if stated.is_some() || matches!(profile.obeys, Obeys::Needs(_)) {
        let seconds = profile.return_after(stated).as_secs();
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
    } else {
        headers.remove(RETRY_AFTER);
    }
}

/// The time limit that a client states in its request; `None` when it states none that means something for it.
pub fn stated_timeout(profile: &Profile, headers: &HeaderMap) -> Option<Duration> {
    let name = match profile.limit {
        Limit::Unstated => return None,
        Limit::Silence => "x-stainless-read-timeout",
        Limit::Headers => "x-stainless-timeout",
    };
    seconds(headers.get(name)?).filter(|limit| *limit >= Duration::from_secs(1))
}

/// How long the provider wants to be left alone, when it says so in a number.
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
