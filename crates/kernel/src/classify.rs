//! From facts to a verdict.
//!
//! Typed facts only: status, code, I/O kind, the explicit flag, and `retry-after` in whole seconds.
//! Invariant: the message decides nothing here, so echoed text can never change a verdict.

use crate::failure::{Failure, IoKind, Transport};
use crate::verdict::{Authority, Cause, Evidence, Hint, Scope, Verdict};
use std::time::Duration;

/// Judges a failure; a verdict that it carries ready-made is taken as it is.
pub fn classify(failure: &Failure) -> Verdict {
    if let Some(verdict) = &failure.verdict {
        return verdict.clone();
    }
    let (cause, evidence) = by_code(failure)
        .or_else(|| by_status(failure))
        .or_else(|| by_io(failure))
        .unwrap_or_else(|| unexplained(failure));
    Verdict {
        cause,
        scope: scope(cause),
        hint: retry_after(failure),
        evidence: vec![evidence],
    }
}

fn by_code(failure: &Failure) -> Option<(Cause, Evidence)> {
    let code = failure.code.as_deref()?;
    let cause = match code {
        "overloaded_error" => Cause::Overloaded,
        "rate_limit_error" if plan_is_used_up(failure) => Cause::UsageLimit,
        "rate_limit_error" => Cause::RateLimited,
        "api_error" => Cause::ServerError,
        "timeout_error" => Cause::Timeout,
        "authentication_error" => Cause::Auth,
        "permission_error" => Cause::Permission,
        "billing_error" => Cause::Billing,
        "not_found_error" => Cause::ModelNotFound,
        "request_too_large" => Cause::PayloadTooLarge,
        "context_length_exceeded" => Cause::ContextOverflow,
        "invalid_request_error" => Cause::InvalidRequest,
        _ => return None,
    };
    Some((cause, seen("code", code)))
}

/// Anthropic marks a plan's window, as opposed to a short throttle, by its unified headers.
fn plan_is_used_up(failure: &Failure) -> bool {
    failure.header("anthropic-ratelimit-unified-status") == Some("rejected")
}

fn by_status(failure: &Failure) -> Option<(Cause, Evidence)> {
    let status = failure.status?;
    let cause = match status {
        401 => Cause::Auth,
        402 => Cause::Billing,
        403 => Cause::Permission,
        404 => Cause::ModelNotFound,
        408 | 504 | 524 => Cause::Timeout,
        413 => Cause::PayloadTooLarge,
        409 | 425 | 500 | 502 | 520..=523 | 525..=528 | 530..=599 => Cause::ServerError,
        429 => Cause::RateLimited,
        503 | 529 => Cause::Overloaded,
        400..=499 => Cause::InvalidRequest,
        501 | 505 => Cause::InvalidRequest,
        506..=519 => Cause::ServerError,
        _ => return None,
    };
    Some((cause, seen("status", &status.to_string())))
}

fn by_io(failure: &Failure) -> Option<(Cause, Evidence)> {
    let (cause, word) = match failure.io? {
        IoKind::Dns => (Cause::Network, "dns"),
        IoKind::Connect => (Cause::Network, "connect"),
        IoKind::Tls => (Cause::Network, "tls"),
        IoKind::Reset => (Cause::Network, "reset"),
        IoKind::Timeout => (Cause::Timeout, "timeout"),
        IoKind::Idle => (Cause::Stalled, "idle"),
        IoKind::Truncated => (Cause::TruncatedStream, "truncated"),
        IoKind::Protocol => (Cause::TruncatedStream, "protocol"),
        IoKind::Other => (Cause::Network, "other"),
    };
    Some((cause, seen("io", word)))
}

/// A raised error without facts is most often the network; an emitted one stays what it is: unknown.
fn unexplained(failure: &Failure) -> (Cause, Evidence) {
    match failure.transport {
        Transport::Thrown => (Cause::Network, seen("transport", "thrown")),
        Transport::Http | Transport::Stream | Transport::Process => {
            (Cause::Unknown, seen("transport", "no facts"))
        }
    }
}

fn scope(cause: Cause) -> Scope {
    match cause {
        Cause::Overloaded | Cause::ModelNotFound => Scope::Model,
        Cause::RateLimited
        | Cause::UsageLimit
        | Cause::Auth
        | Cause::Permission
        | Cause::Billing => Scope::Credential,
        Cause::ServerError | Cause::Network | Cause::Timeout => Scope::Provider,
        Cause::MissingBinary | Cause::Internal => Scope::Process,
        _ => Scope::Request,
    }
}

fn retry_after(failure: &Failure) -> Option<Hint> {
    let seconds = failure.header("retry-after")?.trim().parse::<u32>().ok()?;
    Some(Hint {
        not_before: failure.at + Duration::from_secs(u64::from(seconds)),
        source: "retry-after".to_owned(),
        authority: Authority::Stated,
    })
}

fn seen(source: &str, found: &str) -> Evidence {
    Evidence {
        source: source.to_owned(),
        found: found.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Timestamp;
    use crate::verdict::Class;

    fn http(status: u16) -> Failure {
        Failure::http("p", status, "whatever", Timestamp::default())
    }

    #[test]
    fn statuses_have_their_class() {
        for status in [408, 409, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529] {
            assert_eq!(
                classify(&http(status)).class(),
                Class::Transient,
                "{status}"
            );
        }
        for status in [400, 401, 402, 403, 404, 405, 413, 418, 422, 501, 505] {
            assert_eq!(
                classify(&http(status)).class(),
                Class::Deterministic,
                "{status}"
            );
        }
    }

    #[test]
    fn the_code_says_more_than_the_status() {
        // Seed 001's endpoint sends an overload as 429.
        assert_eq!(
            classify(&http(429).with_code("overloaded_error")).cause,
            Cause::Overloaded
        );
        let window = http(429)
            .with_code("rate_limit_error")
            .with_headers([("anthropic-ratelimit-unified-status", "rejected")]);
        assert_eq!(classify(&window).cause, Cause::UsageLimit);
    }

    #[test]
    fn the_message_decides_nothing() {
        let mut failure = http(400);
        failure.message = "overloaded, rate limit, 529, please retry".to_owned();
        assert_eq!(classify(&failure).cause, Cause::InvalidRequest);
    }

    #[test]
    fn retry_after_is_counted_from_when_it_was_seen() {
        let at = Timestamp::from_millis(1_000_000);
        let failure = Failure { at, ..http(429) }.with_headers([("retry-after", "7")]);
        assert_eq!(
            classify(&failure).hint.unwrap().not_before,
            at + Duration::from_secs(7)
        );
        let absurd = http(429).with_headers([("retry-after", "99999999999999999999")]);
        assert_eq!(classify(&absurd).hint, None);
    }

    #[test]
    fn a_ready_made_verdict_is_taken_as_it_is() {
        let verdict = Verdict::of(Cause::ContextOverflow, Scope::Request);
        assert_eq!(classify(&http(529).with_verdict(verdict.clone())), verdict);
    }

    #[test]
    fn a_raised_error_without_facts_is_transient_and_an_emitted_one_is_not() {
        let now = Timestamp::default();
        assert_eq!(
            classify(&Failure::thrown("p", "?", now)).class(),
            Class::Transient
        );
        assert_eq!(
            classify(&Failure::emitted("p", "?", now)).class(),
            Class::Deterministic
        );
    }
}
