//! The facts of one failed attempt, before any judgement.
//!
//! Invariant: a `Failure` holds no credential. Headers are kept only when their name is on the allow-list, and messages
//! pass [`crate::text::sanitized_message`].

use crate::Timestamp;
use crate::text;
use crate::verdict::Verdict;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The way in which a failure arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// An HTTP response with an error status.
    Http,
    /// An error inside a stream that had begun well, or an error event that a provider emitted.
    Stream,
    /// No response at all: a transport error, raised rather than received.
    Thrown,
    /// A child process failed.
    Process,
}

/// The progress of the response.
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

/// The kind of connection failure that the transport saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IoKind {
    /// The name could not be resolved.
    Dns,
    /// The connection could not be made.
    Connect,
    /// The TLS handshake failed or the TLS connection broke.
    Tls,
    /// Our own settings prevent the connection: an untrusted certificate, a proxy that requires a password.
    Misconfigured,
    /// The peer reset or closed the connection.
    Reset,
    /// No response arrived within the time limit.
    Timeout,
    /// A stream was silent for longer than the idle limit.
    Idle,
    /// A stream ended without its terminal event.
    Truncated,
    /// The response does not follow its protocol.
    Protocol,
    /// Any other failure.
    Other,
}

/// Response headers that may be kept: those that state a retry time, and those that identify the request.
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

/// The facts of one failed attempt.
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
    /// The way in which the failure arrived.
    pub transport: Transport,
    /// The progress of the response.
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
    /// The kind of connection failure.
    pub io: Option<IoKind>,
    /// The explicit retry flag of the provider or the caller; `false` prevents any retry.
    pub retryable: Option<bool>,
    /// The time of the failure.
    pub at: Timestamp,
    /// The local zone's offset in minutes, for times of day that name no zone.
    pub local_offset_minutes: i16,
    /// A ready-made verdict, which is used unchanged.
    pub verdict: Option<Verdict>,
}

impl Failure {
    /// Creates a failure from an HTTP response with an error status.
    pub fn http(provider: &str, status: u16, message: &str, at: Timestamp) -> Self {
        Self {
            status: Some(status),
            ..Self::new(provider, Transport::Http, message, at)
        }
    }

    /// Creates a failure from an error that a provider emitted inside its stream, before any content.
    pub fn emitted(provider: &str, message: &str, at: Timestamp) -> Self {
        Self::new(provider, Transport::Stream, message, at)
    }

    /// Creates a failure from a transport error, raised rather than received.
    pub fn thrown(provider: &str, message: &str, at: Timestamp) -> Self {
        Self::new(provider, Transport::Thrown, message, at)
    }

    /// Creates a failure from the error output of a child process.
    pub fn process(program: &str, message: &str, at: Timestamp) -> Self {
        Self::new(program, Transport::Process, message, at)
    }

    fn new(provider: &str, transport: Transport, message: &str, at: Timestamp) -> Self {
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
            message: text::sanitized_message(message),
            headers: Vec::new(),
            fields: Vec::new(),
            io: None,
            retryable: None,
            at,
            local_offset_minutes: 0,
            verdict: None,
        }
    }

    /// Sets the provider's code or error type.
    #[must_use]
    pub fn with_code(self, code: &str) -> Self {
        Self {
            code: Some(text::bounded(code, 256).into_owned()),
            ..self
        }
    }

    /// Sets the kind of connection failure.
    #[must_use]
    pub fn with_io(self, io: IoKind) -> Self {
        Self {
            io: Some(io),
            ..self
        }
    }

    /// Sets the explicit retry flag.
    #[must_use]
    pub fn with_retryable(self, retryable: bool) -> Self {
        Self {
            retryable: Some(retryable),
            ..self
        }
    }

    /// Sets a verdict that is used unchanged.
    #[must_use]
    pub fn with_verdict(self, verdict: Verdict) -> Self {
        Self {
            verdict: Some(verdict),
            ..self
        }
    }

    /// Sets those of the headers that may be kept.
    #[must_use]
    pub fn with_headers<'a>(
        mut self,
        headers: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Self {
        self.headers = headers
            .into_iter()
            .map(|(name, value)| (name.to_ascii_lowercase(), value))
            .filter(|(name, _)| {
                ALLOWED_HEADERS
                    .iter()
                    .any(|kept| matches_allowed_header(name, kept))
            })
            .map(|(name, value)| (name, text::bounded(value, 1024).into_owned()))
            .collect();
        self
    }

    /// Returns the first header of that lower-case name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }

    /// Returns the first body field of that lower-case name.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }

    /// Returns the provider's machine-readable error words, each with its source, the most specific first.
    pub fn error_codes(&self) -> impl Iterator<Item = (&str, &str)> {
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
        // The word `error` is no news; it says more only as a finish reason without a status.
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

    /// Returns the code to show: the HTTP status when there is one, else the provider's code.
    pub fn public_code(&self) -> Option<String> {
        self.status
            .map(|status| status.to_string())
            .or_else(|| self.code.clone())
    }
}

fn matches_allowed_header(name: &str, kept: &str) -> bool {
    if kept.ends_with('-') {
        name.starts_with(kept)
    } else {
        name == kept
    }
}

/// A failure with its verdict, as it travels from the classifier to the consumer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClassifiedFailure {
    /// The facts.
    pub failure: Failure,
    /// The verdict.
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
    fn only_allowed_headers_are_kept() {
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
    fn secrets_are_removed_from_failure_message() {
        let failure = Failure::thrown(
            "p",
            "bad key sk-test-0123456789abcdef",
            Timestamp::default(),
        );
        assert_eq!(failure.message, "bad key [secret]");
    }
}
