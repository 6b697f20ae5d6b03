//! A failure as it was seen: facts, not yet a judgement.
//!
//! Invariant: a `Failure` holds no credential. Headers are kept only when their name is on the allow-list, and
//! messages pass [`crate::text::message`].

use crate::Timestamp;
use crate::text;
use crate::verdict::Verdict;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// How the failure reached us.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// An HTTP response with an error status.
    Http,
    /// An error inside a stream that had begun well, or an error event that a provider emitted.
    Stream,
    /// No answer at all: a transport error, raised rather than received.
    Thrown,
    /// A child process failed.
    Process,
}

/// How far the answer had come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// No response yet.
    BeforeHeaders,
    /// A response, but no content.
    BeforeContent,
    /// Content had been handed on.
    AfterContent,
}

/// What the transport saw happen to the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IoKind {
    /// The name could not be resolved.
    Dns,
    /// The connection could not be made.
    Connect,
    /// The secure channel could not be made or broke.
    Tls,
    /// Our own settings stand in the way: a certificate that is not trusted, a proxy that wants a password.
    Misconfigured,
    /// The connection was reset or closed by the peer.
    Reset,
    /// Nothing came within the time allowed for a response.
    Timeout,
    /// A stream fell silent for longer than the idle limit.
    Idle,
    /// A stream ended without its terminal event.
    Truncated,
    /// The answer could not be read as its protocol.
    Protocol,
    /// Anything else.
    Other,
}

/// Response headers that may be kept: those that say when to come back, and those that name the request.
const ALLOWED_HEADERS: [&str; 15] = [
    "retry-after",
    "retry-after-ms",
    "x-ms-retry-after-ms",
    "x-should-retry",
    "x-ratelimit-",
    "ratelimit-",
    "x-rate-limit-",
    "anthropic-ratelimit-",
    "x-codex-",
    "x-amzn-errortype",
    "date",
    "request-id",
    "x-request-id",
    "content-type",
    "server",
];

/// Everything that was seen of one failed attempt.
///
/// ```
/// use outlast_kernel::failure::Failure;
/// use outlast_kernel::{Timestamp, classify::classify, verdict::Class};
///
/// let failure = Failure::http("anthropic", 529, "Overloaded", Timestamp::default());
/// assert_eq!(classify(&failure).class(), Class::Transient);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The provider that failed.
    pub provider: String,
    /// How it reached us.
    pub transport: Transport,
    /// How far the answer had come.
    pub phase: Phase,
    /// The HTTP status.
    pub status: Option<u16>,
    /// The provider's own code or error type.
    pub code: Option<String>,
    /// The message, safe to show.
    pub message: String,
    /// Allow-listed response headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// Machine-readable parts of the body, names in lower case.
    pub fields: Vec<(String, String)>,
    /// What happened to the connection.
    pub io: Option<IoKind>,
    /// The provider's or the caller's explicit word; `false` vetoes any retry.
    pub retryable: Option<bool>,
    /// When it was seen.
    pub at: Timestamp,
    /// The local zone's offset in minutes, for times of day that name no zone.
    pub local_offset_minutes: i16,
    /// A verdict that came ready-made; it is taken as it is.
    pub verdict: Option<Verdict>,
}

impl Failure {
    /// An HTTP response with an error status.
    pub fn http(provider: &str, status: u16, message: &str, at: Timestamp) -> Self {
        Self {
            status: Some(status),
            ..Self::seen(provider, Transport::Http, message, at)
        }
    }

    /// An error that a provider emitted inside its stream, before any content.
    pub fn emitted(provider: &str, message: &str, at: Timestamp) -> Self {
        Self::seen(provider, Transport::Stream, message, at)
    }

    /// A transport error, raised rather than received.
    pub fn thrown(provider: &str, message: &str, at: Timestamp) -> Self {
        Self::seen(provider, Transport::Thrown, message, at)
    }

    /// What a child process said when it failed.
    pub fn process(program: &str, message: &str, at: Timestamp) -> Self {
        Self::seen(program, Transport::Process, message, at)
    }

    fn seen(provider: &str, transport: Transport, message: &str, at: Timestamp) -> Self {
        let phase = match transport {
            Transport::Thrown | Transport::Process => Phase::BeforeHeaders,
            Transport::Http | Transport::Stream => Phase::BeforeContent,
        };
        Self {
            provider: provider.to_owned(),
            transport,
            phase,
            status: None,
            code: None,
            message: text::message(message),
            headers: Vec::new(),
            fields: Vec::new(),
            io: None,
            retryable: None,
            at,
            local_offset_minutes: 0,
            verdict: None,
        }
    }

    /// The same failure with the provider's code or error type.
    #[must_use]
    pub fn with_code(self, code: &str) -> Self {
        Self {
            code: Some(text::bounded(code, 256).into_owned()),
            ..self
        }
    }

    /// The same failure with what happened to the connection.
    #[must_use]
    pub fn with_io(self, io: IoKind) -> Self {
        Self {
            io: Some(io),
            ..self
        }
    }

    /// The same failure with an explicit word on whether to retry.
    #[must_use]
    pub fn with_retryable(self, retryable: bool) -> Self {
        Self {
            retryable: Some(retryable),
            ..self
        }
    }

    /// The same failure with a verdict that is to be taken as it is.
    #[must_use]
    pub fn with_verdict(self, verdict: Verdict) -> Self {
        Self {
            verdict: Some(verdict),
            ..self
        }
    }

    /// The same failure with those of the headers that may be kept.
    #[must_use]
    pub fn with_headers<'a>(
        mut self,
        headers: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Self {
        self.headers = headers
            .into_iter()
            .map(|(name, value)| (name.to_ascii_lowercase(), value))
            .filter(|(name, _)| ALLOWED_HEADERS.iter().any(|kept| is_kept(name, kept)))
            .map(|(name, value)| (name, text::bounded(value, 1024).into_owned()))
            .collect();
        self
    }

    /// The first header of that lower-case name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }

    /// The first body field of that lower-case name.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }

    /// The provider's machine-readable words about what went wrong, each with its source, the most telling first.
    pub fn words(&self) -> impl Iterator<Item = (&str, &str)> {
        const NAMES: [&str; 14] = [
            "code",
            "type",
            "reason",
            "error_code",
            "status",
            "__type",
            "finish_reason",
            "stop_reason",
            "stopreason",
            "finishreason",
            "blockreason",
            "limit_source",
            "exception",
            ":exception-type",
        ];
        let code = self.code.as_deref().map(|code| ("code", code));
        let header = self
            .header("x-amzn-errortype")
            .map(|value| ("x-amzn-errortype", value));
        // That there is an error is known; only as the reason of an end, and without a status, does the word say more.
        let bare = self.status.is_none();
        let telling =
            move |name: &str, value: &str| value != "error" || (bare && name.starts_with("finish"));
        let fields = self
            .fields
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()));
        let fields =
            fields.filter(move |(name, value)| NAMES.contains(name) && telling(name, value));
        code.into_iter().chain(header).chain(fields)
    }

    /// What a consumer is told as the failure's code: the HTTP status when there is one, else the provider's code.
    pub fn public_code(&self) -> Option<String> {
        self.status
            .map(|status| status.to_string())
            .or_else(|| self.code.clone())
    }
}

fn is_kept(name: &str, kept: &str) -> bool {
    if kept.ends_with('-') {
        name.starts_with(kept)
    } else {
        name == kept
    }
}

/// A failure together with its verdict, as it travels from the classifier to the consumer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassifiedFailure {
    /// What was seen.
    pub failure: Failure,
    /// What it means.
    pub verdict: Verdict,
}

impl ClassifiedFailure {
    /// Classifies the failure, once.
    pub fn new(failure: Failure) -> Arc<Self> {
        let verdict = crate::classify::classify(&failure);
        Arc::new(Self { failure, verdict })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_headers_on_the_list_are_kept() {
        let failure = Failure::http("p", 429, "m", Timestamp::default()).with_headers([
            ("Retry-After", "7"),
            ("X-RateLimit-Reset-Tokens", "6m0s"),
            ("Set-Cookie", "session=1"),
            ("Authorization", "Bearer x"),
        ]);
        let names: Vec<&str> = failure
            .headers
            .iter()
            .map(|(name, _)| name.as_str())
            .collect();
        assert_eq!(names, ["retry-after", "x-ratelimit-reset-tokens"]);
        assert_eq!(failure.header("retry-after"), Some("7"));
    }

    #[test]
    fn a_message_is_cleaned_where_it_enters() {
        let failure = Failure::thrown(
            "p",
            "bad key sk-test-0123456789abcdef",
            Timestamp::default(),
        );
        assert_eq!(failure.message, "bad key [secret]");
    }
}
