//! The events of requests and of the gateway itself.
//!
//! Invariants: no event holds a secret or a body; all text from a client or a provider is cleaned of escapes and keys
//! and bounded before it is written; reporting an event never waits for a reader. Not here: numbers (see `metrics`),
//! and the destination of the lines (the app decides).

mod lines;

pub use lines::{LineFormat, LineSink, json};

use outlast_dialect::Dialect;
use outlast_kernel::Timestamp;
use outlast_kernel::text;
use outlast_kernel::verdict::Cause;
use schemars::JsonSchema;
use serde::{Serialize, Serializer};
use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Maximum length of a text from outside, in bytes.
const TEXT_LIMIT: usize = 512;

/// An observer of events. It must return quickly: it is called in the middle of a request.
pub trait Sink: Send + Sync {
    /// Records an event.
    fn emit(&self, event: &Event<'_>);
}

/// Discards all events.
impl Sink for () {
    fn emit(&self, _: &Event<'_>) {}
}

/// Sends each event to all sinks, in order.
impl Sink for Vec<Arc<dyn Sink>> {
    fn emit(&self, event: &Event<'_>) {
        for sink in self {
            sink.emit(event);
        }
    }
}

/// An event.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    /// The time.
    pub at: Timestamp,
    /// The request that the event is about, if it is about one.
    pub request: Option<RequestRef<'a>>,
    /// The kind, with its data.
    pub kind: EventKind<'a>,
}

/// The request that an event is about.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestRef<'a> {
    /// Tells the request from all others of this process; later requests have higher keys.
    pub key: u64,
    /// Its id.
    pub id: &'a str,
    /// The name of its client, from the table of clients.
    pub client: &'static str,
    /// Its dialect, if it is for a model.
    pub dialect: Option<Dialect>,
}

/// The severity of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Normal operation.
    Info,
    /// A failure that is being handled.
    Warn,
    /// A request, or a reload of the settings, has failed.
    Error,
}

/// The reason for a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitReason {
    /// The schedule of the request's own policy.
    Schedule,
    /// The provider has stated the time.
    StatedTime,
    /// Other requests fail, or are before this one.
    Gate,
    /// All permits of the account are taken.
    Permit,
}

/// The kind of an event. The log has no line for those without a level: they are for counts and displays.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum EventKind<'a> {
    /// The gateway accepts requests from now on.
    Listening {
        /// The address.
        address: SocketAddr,
        /// The version of the program.
        version: &'a str,
    },
    /// A request for a provider has arrived.
    #[serde(skip)]
    Received {
        /// The requested model; empty if none.
        model: &'a str,
        /// The path.
        path: &'a str,
        /// Whether its client says that it has sent the request before.
        is_resent: bool,
    },
    /// An attempt begins.
    #[serde(skip)]
    AttemptStarted {
        /// The number of the attempt; 1 is the first.
        attempt: u32,
        /// The size of the request's body, in bytes.
        body_bytes: u64,
    },
    /// The expected end of a wait has moved.
    #[serde(skip)]
    WaitMoved {
        /// The cause.
        cause: Cause,
        /// The attempt that failed; 1 is the first.
        attempt: u32,
        /// The time of the next attempt, as far as it is known.
        wake: Option<Timestamp>,
    },
    /// A keep-alive frame was sent to the client of a request.
    #[serde(skip)]
    Heartbeat,
    /// An interim response was sent to the client of a request as keep-alive.
    #[serde(skip)]
    InterimResponse,
    /// A request is held until its next attempt.
    Waiting {
        /// The cause.
        cause: Cause,
        /// The attempt that failed; 1 is the first.
        attempt: u32,
        /// The reason for the wait.
        reason: WaitReason,
        /// The time of the next attempt, as far as it is known.
        wake: Option<Timestamp>,
    },
    /// An attempt failed before content.
    AttemptFailed {
        /// The cause.
        cause: Cause,
        /// The number of the attempt; 1 is the first.
        attempt: u32,
        /// The status of the response, if there was one.
        #[serde(skip_serializing_if = "Option::is_none")]
        status: Option<u16>,
        /// The account that the attempt used.
        #[serde(
            serialize_with = "clean_option",
            skip_serializing_if = "Option::is_none"
        )]
        account: Option<&'a str>,
        /// The provider's message.
        #[serde(serialize_with = "clean")]
        message: &'a str,
    },
    /// A client that had left sent its request again, which resumes where it was.
    Resumed {
        /// The number of attempts so far.
        attempts: u32,
        /// The number of times that it was sent again.
        resent: u32,
        /// The time of its first failure.
        since: Timestamp,
    },
    /// A request is over.
    Finished(&'a Record<'a>),
    /// A request was refused.
    Refused {
        /// The status of the refusal.
        status: u16,
        /// One word of our own for it.
        kind: &'static str,
        /// The reason.
        #[serde(serialize_with = "clean")]
        message: &'a str,
    },
    /// A gate lets everybody call from now on, or not any more.
    Gate {
        /// The name of the gate: its provider, account and model.
        #[serde(serialize_with = "clean")]
        name: &'a str,
        /// The cause of the last failure, if it is known.
        #[serde(skip_serializing_if = "Option::is_none")]
        cause: Option<Cause>,
        /// The state of the gate in one sentence.
        state: &'a str,
    },
    /// The settings were reloaded.
    Reload {
        /// The problem with them; if there is one, the old settings stay.
        #[serde(
            serialize_with = "clean_option",
            skip_serializing_if = "Option::is_none"
        )]
        problem: Option<&'a str>,
    },
    /// The gateway accepts no more requests; those in progress may end.
    Drain {
        /// The number of requests in progress.
        in_flight: u64,
        /// The number of them that wait.
        held: u64,
    },
    /// Events were dropped, because the reader was too slow.
    EventsDropped {
        /// The number of dropped events.
        events: u64,
    },
}

/// The summary of one request that is over.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Record<'a> {
    /// The time of its arrival.
    #[serde(skip)]
    pub received_at: Timestamp,
    /// The name of its client, from the table of clients.
    pub client: &'static str,
    /// The dialect, if its path belongs to one.
    #[serde(serialize_with = "dialect_name")]
    pub dialect: Option<Dialect>,
    /// The requested model.
    #[serde(
        serialize_with = "clean_option",
        skip_serializing_if = "Option::is_none"
    )]
    pub model: Option<&'a str>,
    /// The name of the account that was used.
    #[serde(
        serialize_with = "clean_option",
        skip_serializing_if = "Option::is_none"
    )]
    pub account: Option<&'a str>,
    /// The method.
    #[serde(serialize_with = "clean")]
    pub method: &'a str,
    /// The path, without a query: queries can contain keys.
    #[serde(serialize_with = "clean_path")]
    pub path: &'a str,
    /// The status that the client got; `None` when it got none.
    pub status: Option<u16>,
    /// The number of requests to the provider.
    pub attempts: u32,
    /// The time that it waited for attempts after the first.
    #[serde(rename = "waited_ms", serialize_with = "millis")]
    pub waited: Duration,
    /// The time from its arrival to its end.
    #[serde(rename = "duration_ms", serialize_with = "millis")]
    pub duration: Duration,
    /// The time from its arrival to the first byte of the provider's response that the client got.
    #[serde(
        rename = "first_byte_ms",
        serialize_with = "millis_option",
        skip_serializing_if = "Option::is_none"
    )]
    pub first_byte: Option<Duration>,
    /// The size of the request's body, in bytes.
    pub bytes_in: u64,
    /// The number of response body bytes that the client was sent.
    pub bytes_out: u64,
    /// The outcome.
    pub outcome: Outcome,
    /// The cause of the last failure, if it did not end well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
}

/// How a request ended that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// With the provider's answer.
    Answered,
    /// With the provider's failure, passed on: it is final, or the budget is spent.
    Failed,
    /// With a failure after content, which the client was told in the stream.
    Broken,
    /// The hold had to end; the client was made to come back.
    SentBack,
    /// The client left.
    Left,
    /// A person ended it.
    Cancelled,
}

impl Outcome {
    /// Returns the name in logs and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Failed => "failed",
            Self::Broken => "broken",
            Self::SentBack => "sent_back",
            Self::Left => "left",
            Self::Cancelled => "cancelled",
        }
    }
}

impl EventKind<'_> {
    /// Returns the severity, or `None` if the log has no line for it.
    pub fn level(&self) -> Option<Level> {
        Some(match self {
            Self::Received { .. } | Self::AttemptStarted { .. } | Self::WaitMoved { .. } => {
                return None;
            }
            Self::Heartbeat | Self::InterimResponse => return None,
            Self::Listening { .. } | Self::Resumed { .. } | Self::Drain { .. } => Level::Info,
            Self::Reload { problem: None } => Level::Info,
            Self::Reload { problem: Some(_) } => Level::Error,
            Self::Waiting { .. } | Self::AttemptFailed { .. } | Self::Gate { .. } => Level::Warn,
            Self::Refused { .. } | Self::EventsDropped { .. } => Level::Warn,
            Self::Finished(record) => match record.outcome {
                Outcome::Answered | Outcome::Left | Outcome::Cancelled => Level::Info,
                Outcome::SentBack => Level::Warn,
                Outcome::Failed | Outcome::Broken => Level::Error,
            },
        })
    }
}

/// Returns the name of a dialect in logs and metrics.
pub(crate) fn dialect_label(dialect: Option<Dialect>) -> &'static str {
    dialect.map_or("other", Dialect::name)
}

// --- serialization of values ---

/// Cleans and bounds a text from outside, so that it may be stored and shown.
pub fn cleaned(text: &str) -> Cow<'_, str> {
    if text.len() <= TEXT_LIMIT && !text.contains(text::is_unprintable) {
        return text::without_secrets(text);
    }
    // The generous cut first, so that an endless text costs little.
    let short = text::bounded(text, 4 * TEXT_LIMIT);
    let plain = text::plain(&short);
    let safe = text::without_secrets(&plain);
    Cow::Owned(text::bounded(&safe, TEXT_LIMIT).into_owned())
}

/// Cleans a path without its query, so that it may be stored and shown.
pub fn cleaned_path(path: &str) -> Cow<'_, str> {
    cleaned(path.split('?').next().unwrap_or_default())
}

fn clean<S: Serializer>(text: &str, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&cleaned(text))
}

fn clean_path<S: Serializer>(path: &str, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&cleaned_path(path))
}

fn clean_option<S: Serializer>(text: &Option<&str>, serializer: S) -> Result<S::Ok, S::Error> {
    clean(text.unwrap_or_default(), serializer)
}

fn dialect_name<S: Serializer>(
    dialect: &Option<Dialect>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(dialect_label(*dialect))
}

fn millis<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(outlast_kernel::time::millis(*time))
}

fn millis_option<S: Serializer>(time: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    millis(&time.unwrap_or_default(), serializer)
}

/// A sample request for tests.
#[cfg(test)]
#[path = "log_sample.rs"]
pub(crate) mod sample;
#[cfg(test)]
#[path = "log_tests.rs"]
mod tests;
