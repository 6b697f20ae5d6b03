//! Turns the facts of a failure into a verdict.
//!
//! Facts decide: the provider's words, the status, the I/O kind. They either settle the cause or leave a family of
//! causes open; only then does the message choose among those.
//! Invariants: wording never makes a terminal 4xx retryable, and never changes a cause that a provider's own code has
//! settled. The work is linear in the message.

mod codes;
mod phrases;
mod rules;
pub(crate) mod wording;

use crate::failure::{Failure, IoKind, Transport};
use crate::hint;
use crate::verdict::{Cause, Class, Evidence, Hint, Scope, Verdict};
use codes::CodeMeaning;
use std::borrow::Cow;
use std::time::Duration;
use wording::Wording;

/// The longest window of any known rate limit.
const MAX_RATE_WINDOW: Duration = Duration::from_secs(600);

/// The family of causes that the facts leave open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CauseFamily {
    /// A limit: of a rate, a window, a balance, or the provider's capacity.
    Limit,
    /// The provider failed.
    Server,
    /// The request was refused as it is.
    BadRequest,
    /// The credential was refused.
    Unauthorized,
    /// The credential may not do this.
    Forbidden,
    /// Something is missing.
    NotFound,
    /// The cost exceeds the balance.
    PaymentRequired,
    /// Too many bytes.
    TooLarge,
    /// Nothing is known but the message.
    Unclassified,
}

impl CauseFamily {
    /// Returns the cause when the message says nothing.
    fn default_cause(self, failure: &Failure) -> Cause {
        match self {
            Self::Limit => Cause::RateLimited,
            Self::Server => match status(failure) {
                Some(503 | 529) => Cause::Overloaded,
                Some(408 | 504 | 522 | 524) => Cause::Timeout,
                _ => Cause::ServerError,
            },
            Self::BadRequest => Cause::InvalidRequest,
            Self::Unauthorized => Cause::Auth,
            Self::Forbidden => Cause::Permission,
            Self::NotFound => Cause::ModelNotFound,
            Self::PaymentRequired => Cause::Billing,
            Self::TooLarge => Cause::PayloadTooLarge,
            // An unreadable response was most often cut or garbled on its way.
            Self::Unclassified if failure.io == Some(IoKind::Protocol) => Cause::TruncatedStream,
            Self::Unclassified => match failure.transport {
                // A raised error without facts is most often the network; an emitted one stays unknown.
                Transport::Thrown => Cause::Network,
                Transport::Http | Transport::Stream | Transport::Process => Cause::Unknown,
            },
        }
    }

    /// Returns whether waiting cannot help, whatever the message says.
    const fn is_terminal(self) -> bool {
        !matches!(self, Self::Unclassified | Self::Limit | Self::Server)
    }

    /// Returns whether the message may choose this cause.
    fn allows(self, cause: Cause) -> bool {
        use Cause::{
            Auth, Billing, ContentFilter, ContextOverflow, InvalidRequest, Misconfigured,
            ModelNotFound, Network, Overloaded, PayloadTooLarge, Permission, RateLimited,
            ServerError, Stalled, Timeout, TruncatedStream, UsageLimit,
        };
        match self {
            Self::Unclassified => true,
            Self::Limit => {
                matches!(
                    cause,
                    ContextOverflow | Billing | Permission | UsageLimit | Overloaded | RateLimited
                )
            }
            Self::Server => {
                let passing = matches!(
                    cause,
                    Overloaded | RateLimited | UsageLimit | Network | Timeout | Stalled
                );
                passing
                    || matches!(
                        cause,
                        TruncatedStream | ServerError | ContextOverflow | Billing | Misconfigured
                    )
            }
            // A refused credential or permission may still be about money or size, but never about time.
            Self::Unauthorized | Self::Forbidden => {
                matches!(
                    cause,
                    Billing
                        | UsageLimit
                        | Auth
                        | Permission
                        | ContentFilter
                        | ContextOverflow
                        | ModelNotFound
                ) && (self == Self::Forbidden || !matches!(cause, Permission | ModelNotFound))
            }
            Self::BadRequest | Self::NotFound | Self::PaymentRequired | Self::TooLarge => {
                let about_input = matches!(
                    cause,
                    ContextOverflow | PayloadTooLarge | ContentFilter | InvalidRequest
                );
                about_input
                    || matches!(
                        cause,
                        Billing | UsageLimit | Auth | Permission | ModelNotFound | Misconfigured
                    )
            }
        }
    }
}

/// Classifies a failure; a ready-made verdict is used unchanged.
///
/// ```
/// use outlast_kernel::classify::classify;
/// use outlast_kernel::failure::Failure;
/// use outlast_kernel::{Timestamp, verdict::Cause};
///
/// let now = Timestamp::default();
/// let limit = Failure::http("openai", 429, "Rate limit reached. Please try again in 6m0s.", now);
/// let verdict = classify(&limit);
/// assert_eq!(verdict.cause, Cause::RateLimited);
/// assert_eq!(verdict.hint.unwrap().wait(now).as_secs(), 360);
/// ```
pub fn classify(failure: &Failure) -> Verdict {
    if let Some(verdict) = &failure.verdict {
        return verdict.clone();
    }
    let wording = Wording::read(&failure.message);
    let stated = hint::read(failure, &wording);
    let (cause, evidence) = judge(failure, &wording, stated.as_ref());
    // A retry time means nothing where a retry cannot help; for an empty balance it is worth knowing.
    let may_return = cause.class() == Class::Transient || cause == Cause::Billing;
    let hint = stated.filter(|hint| may_return && !is_placeholder_hint(failure, hint));
    let mut evidence = vec![evidence];
    if let Some(word) = failure.header("x-should-retry") {
        evidence.push(provider_evidence("x-should-retry", word));
    }
    Verdict {
        cause,
        scope: scope(cause),
        hint,
        evidence,
    }
}

fn judge(failure: &Failure, wording: &Wording, stated: Option<&Hint>) -> (Cause, Evidence) {
    let (family, evidence) = match facts(failure) {
        Facts::Settled(cause, evidence) => return (cause, evidence),
        Facts::Narrowed(family, evidence) => (family, evidence),
    };
    let limit = matches!(family, CauseFamily::Limit | CauseFamily::Unclassified);
    match (
        rules::find_cause(wording, |cause| family.allows(cause)),
        stated,
    ) {
        // Money does not come back at a stated time; a limit does.
        (Some((Cause::Billing, name)), Some(hint)) if limit => (
            limit_cause_by_wait(hint.wait(failure.at)),
            static_evidence("text", name),
        ),
        // Whatever it is called, no rate has a window of hours.
        (Some((Cause::RateLimited, name)), Some(hint)) => (
            limit_cause_by_wait(hint.wait(failure.at)),
            static_evidence("text", name),
        ),
        // A used-up plan under a terminal status is not waited for: another account may help.
        (Some((Cause::UsageLimit, name)), _) if family.is_terminal() => {
            (Cause::Billing, static_evidence("text", name))
        }
        // A certificate that is refused looks like a lost connection to the layers above it.
        (Some((Cause::Network, name)), _) => cause_from_quotation(failure, family)
            .filter(|(quoted, _)| *quoted == Cause::Misconfigured)
            .unwrap_or((Cause::Network, static_evidence("text", name))),
        (Some((cause, name)), _) => (cause, static_evidence("text", name)),
        (None, _) => cause_from_quotation(failure, family)
            .unwrap_or((family.default_cause(failure), evidence)),
    }
}

/// Reads the quotation where nothing else is known: it may be the error itself, passed on by a client.
fn cause_from_quotation(failure: &Failure, family: CauseFamily) -> Option<(Cause, Evidence)> {
    // Errors that are passed on are short; a long text with quotations is something else.
    let short = failure.message.len() <= 1024;
    let quotes = || memchr::memchr3(b'"', b'`', b'\'', failure.message.as_bytes()).is_some();
    if family != CauseFamily::Unclassified || !short || !quotes() {
        return None;
    }
    let wording = Wording::read_with_quotations(&failure.message);
    rules::find_cause(&wording, |_| true)
        .map(|(cause, name)| (cause, static_evidence("quotation", name)))
}

/// Returns the cause of a limit with a stated end: a long wait is a plan's window, a short one a rate.
fn limit_cause_by_wait(wait: Duration) -> Cause {
    if wait > MAX_RATE_WINDOW {
        Cause::UsageLimit
    } else {
        Cause::RateLimited
    }
}

enum Facts {
    Settled(Cause, Evidence),
    Narrowed(CauseFamily, Evidence),
}

/// Returns the meaning of a failure's machine-readable parts, the most specific first.
fn facts(failure: &Failure) -> Facts {
    if let Some(evidence) = exhausted_plan_evidence(failure) {
        return Facts::Settled(Cause::UsageLimit, evidence);
    }
    let words = || {
        failure.error_codes().filter_map(|(source, word)| {
            Some((source, word, codes::meaning(word, &failure.provider)?))
        })
    };
    let settled = status(failure);
    for (source, word, meaning) in words() {
        match meaning {
            // No word reopens a case that a status has closed.
            CodeMeaning::Exact(cause)
                if cause.class() == Class::Transient && settled.is_some_and(is_terminal_status) => {
            }
            CodeMeaning::Exact(cause) => {
                return Facts::Settled(cause, provider_evidence(source, word));
            }
            CodeMeaning::Narrows(_) => {}
        }
    }
    if let Some((cause, word)) = cause_from_io(failure) {
        return Facts::Settled(cause, static_evidence("io", word));
    }
    let by_word = words().find_map(|(source, word, meaning)| match meaning {
        CodeMeaning::Narrows(family) => Some((family, provider_evidence(source, word))),
        CodeMeaning::Exact(_) => None,
    });
    let by_status = settled.and_then(|status| Some((facts_from_status(status)?, status)));
    match (by_word, by_status) {
        (_, Some((Facts::Settled(cause, evidence), _))) => Facts::Settled(cause, evidence),
        // A word that only says "refused" knows less than a status that names the reason, and no word of a limit or a
        // fault reopens a case that a status has closed.
        (Some((family, _)), Some((facts, status)))
            if family == CauseFamily::BadRequest || status_outweighs(status, family) =>
        {
            as_rate_limit_if_retry_after(failure, facts)
        }
        (Some((family, evidence)), _) => Facts::Narrowed(family, evidence),
        (None, Some((facts, _))) => as_rate_limit_if_retry_after(failure, facts),
        (None, None) if failure.io == Some(IoKind::Protocol) => {
            Facts::Narrowed(CauseFamily::Unclassified, static_evidence("io", "protocol"))
        }
        (None, None) => Facts::Narrowed(
            CauseFamily::Unclassified,
            static_evidence("transport", "no facts"),
        ),
    }
}

/// Returns whether no word of a limit or a fault outweighs the status. Some services throttle with 400 or 403; none
/// does with these.
fn is_terminal_status(status: u16) -> bool {
    (400..500).contains(&status)
        && !matches!(status, 400 | 403 | 408 | 409 | 424 | 425 | 429 | 498 | 499)
}

/// Returns whether a status outweighs a word of that family.
fn status_outweighs(status: u16, family: CauseFamily) -> bool {
    match family {
        CauseFamily::Limit => is_terminal_status(status),
        CauseFamily::Server => is_terminal_status(status) || matches!(status, 400 | 403),
        _ => false,
    }
}

/// Treats a bill that comes with a retry time as a rate limit: it is a budget in flight, not an empty balance.
fn as_rate_limit_if_retry_after(failure: &Failure, facts: Facts) -> Facts {
    match facts {
        Facts::Narrowed(CauseFamily::PaymentRequired, evidence)
            if failure.header("retry-after").is_some() =>
        {
            Facts::Settled(Cause::RateLimited, evidence)
        }
        facts => facts,
    }
}

/// Returns the evidence that a plan's window is used up. Anthropic marks it, as opposed to a short throttle, by its
/// unified headers. Usage paid beyond the plan is not the plan.
fn exhausted_plan_evidence(failure: &Failure) -> Option<Evidence> {
    let rejected = |(name, value): &&(String, String)| {
        let window = name
            .strip_prefix("anthropic-ratelimit-unified-")
            .and_then(|rest| rest.strip_suffix("status"));
        value == "rejected" && window.is_some_and(|window| !window.contains("overage"))
    };
    let (name, value) = failure
        .headers
        .iter()
        .find(rejected)
        .filter(|_| failure.status == Some(429))?;
    Some(provider_evidence(name, value))
}

/// Returns the status, or the one that the message itself begins with.
fn status(failure: &Failure) -> Option<u16> {
    failure
        .status
        .filter(|status| *status >= 300)
        .or_else(|| status_in_message(&failure.message))
}

/// Returns a status that a message states near its beginning: first of all, after a word that announces one, or in
/// brackets.
fn status_in_message(message: &str) -> Option<u16> {
    const ANNOUNCED_BY: [&[u8]; 5] = [b"status", b"code", b"http", b"error", b"returned"];
    let head = message.trim_start().as_bytes();
    let head = &head[..head.len().min(120)];
    let announced = |at: usize| {
        let before = head[..at].trim_ascii_end();
        let bracketed = before.ends_with(b"(") && head.get(at + 3) == Some(&b')');
        let before = match before {
            [before @ .., b':' | b'=' | b'\'' | b'"' | b'`'] => before.trim_ascii_end(),
            before => before,
        };
        let word = before
            .rsplit(|byte| byte.is_ascii_whitespace())
            .next()
            .unwrap_or(before)
            .to_ascii_lowercase();
        let named =
            ANNOUNCED_BY.iter().any(|name| word.ends_with(name)) || word.starts_with(b"http/");
        bracketed || named || (at == 0 && !starts_with_counted_unit(&head[3..]))
    };
    let stands_alone = |at: usize| {
        let free = |byte: Option<&u8>| byte.is_none_or(|byte| !byte.is_ascii_alphanumeric());
        free(at.checked_sub(1).and_then(|before| head.get(before))) && free(head.get(at + 3))
    };
    let status = |at: usize| match head[at..] {
        [
            hundreds @ b'4'..=b'5',
            tens @ b'0'..=b'9',
            ones @ b'0'..=b'9',
            ..,
        ] => {
            let digit = |byte: u8| u16::from(byte - b'0');
            Some(digit(hundreds) * 100 + digit(tens) * 10 + digit(ones))
        }
        _ => None,
    };
    (0..head.len()).find_map(|at| status(at).filter(|_| stands_alone(at) && announced(at)))
}

/// Returns whether a counted unit follows a number.
fn starts_with_counted_unit(rest: &[u8]) -> bool {
    const COUNTED: [&[u8]; 6] = [b"token", b"char", b"byte", b"request", b"message", b"word"];
    let rest = rest.trim_ascii_start();
    COUNTED
        .iter()
        .any(|word| rest.len() >= word.len() && rest[..word.len()].eq_ignore_ascii_case(word))
}

fn facts_from_status(status: u16) -> Option<Facts> {
    let evidence = Evidence {
        source: Cow::Borrowed("status"),
        found: Cow::Owned(status.to_string()),
    };
    let family = match status {
        401 => CauseFamily::Unauthorized,
        402 => CauseFamily::PaymentRequired,
        403 => CauseFamily::Forbidden,
        404 => CauseFamily::NotFound,
        300..=399 | 407 => return Some(Facts::Settled(Cause::Misconfigured, evidence)),
        413 => CauseFamily::TooLarge,
        429 => CauseFamily::Limit,
        498 => return Some(Facts::Settled(Cause::Overloaded, evidence)),
        499 => return Some(Facts::Settled(Cause::Interrupted, evidence)),
        501 | 505 => return Some(Facts::Settled(Cause::InvalidRequest, evidence)),
        408 | 409 | 424 | 425 | 500..=599 => CauseFamily::Server,
        400..=499 => CauseFamily::BadRequest,
        _ => return None,
    };
    Some(Facts::Narrowed(family, evidence))
}

/// Returns the cause that the connection failure settles, unless an unusable response came: it may say why.
fn cause_from_io(failure: &Failure) -> Option<(Cause, &'static str)> {
    let received = failure.transport == Transport::Stream;
    Some(match failure.io? {
        IoKind::Dns => (Cause::Network, "dns"),
        IoKind::Connect => (Cause::Network, "connect"),
        IoKind::Tls => (Cause::Network, "tls"),
        IoKind::Misconfigured => (Cause::Misconfigured, "misconfigured"),
        IoKind::Reset => (Cause::Network, "reset"),
        IoKind::Timeout => (Cause::Timeout, "timeout"),
        IoKind::Idle => (Cause::Stalled, "idle"),
        IoKind::Truncated => (Cause::TruncatedStream, "truncated"),
        IoKind::Protocol if received => return None,
        IoKind::Protocol => (Cause::TruncatedStream, "protocol"),
        IoKind::Other => (Cause::Network, "other"),
    })
}

/// Returns whether a stated time is a placeholder: a few seconds on a quota of a day is a forgotten default, not a
/// promise.
fn is_placeholder_hint(failure: &Failure, hint: &Hint) -> bool {
    let per_day = |(name, value): &(String, String)| {
        name == "quotaid" && value.to_ascii_lowercase().contains("perday")
    };
    hint.wait(failure.at).as_secs() <= 60 && failure.fields.iter().any(per_day)
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
        Cause::MissingBinary | Cause::Internal | Cause::Misconfigured | Cause::CommandFailed => {
            Scope::Process
        }
        _ => Scope::Request,
    }
}

fn static_evidence(source: &'static str, found: &'static str) -> Evidence {
    Evidence {
        source: Cow::Borrowed(source),
        found: Cow::Borrowed(found),
    }
}

/// Returns evidence in the provider's own words.
fn provider_evidence(source: &str, found: &str) -> Evidence {
    let found = Cow::Owned(crate::text::bounded(found, 120).into_owned());
    Evidence {
        source: Cow::Owned(source.to_owned()),
        found,
    }
}

#[cfg(test)]
#[path = "classify_tests.rs"]
mod tests;
