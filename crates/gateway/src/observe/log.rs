//! What is said of each request, and of the gateway itself.
//!
//! Invariants: no event holds a secret or a body; whatever a client or a provider wrote is cleaned of escapes and keys
//! and bounded before it is written; saying something never waits for whoever reads it.
//! Not here: numbers (see `metrics`), and where the lines go (the app decides).

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

/// The most that is kept of a text from outside, in bytes.
const TEXT_LIMIT: usize = 512;

/// Who is told what happens. Telling must not take long: it happens in the middle of a request.
pub trait Sink: Send + Sync {
    /// Takes note of something.
    fn say(&self, event: &Event<'_>);
}

/// Says nothing.
impl Sink for () {
    fn say(&self, _: &Event<'_>) {}
}

/// Tells them all, in order.
impl Sink for Vec<Arc<dyn Sink>> {
    fn say(&self, event: &Event<'_>) {
        for sink in self {
            sink.say(event);
        }
    }
}

/// Something that happened.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    /// When.
    pub at: Timestamp,
    /// The id of the request that it is about, if it is about one.
    pub request: Option<&'a str>,
    /// What.
    pub what: EventKind<'a>,
}

/// How much an event matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// All is well.
    Info,
    /// Something went wrong, and is being dealt with.
    Warn,
    /// Something is lost.
    Error,
}

/// What happened.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum EventKind<'a> {
    /// Requests are taken from now on.
    Listening {
        /// Where.
        address: SocketAddr,
        /// Which program.
        version: &'a str,
    },
    /// A request is held until then.
    Waiting {
        /// Why.
        cause: Cause,
        /// The attempt that failed; 1 is the first.
        attempt: u32,
        /// When it is tried again, as far as is known.
        wake: Option<Timestamp>,
    },
    /// An attempt failed before content.
    AttemptFailed {
        /// Why.
        cause: Cause,
        /// Which attempt; 1 is the first.
        attempt: u32,
        /// The status of the answer, if there was one.
        #[serde(skip_serializing_if = "Option::is_none")]
        status: Option<u16>,
        /// The account that was asked with.
        #[serde(
            serialize_with = "clean_option",
            skip_serializing_if = "Option::is_none"
        )]
        account: Option<&'a str>,
        /// What the provider said.
        #[serde(serialize_with = "clean")]
        message: &'a str,
    },
    /// A client that had left sent its request again, which goes on where it was.
    TakenUp {
        /// The attempts so far.
        attempts: u32,
        /// How often it was sent again.
        resent: u32,
        /// When its trouble began.
        since: Timestamp,
    },
    /// A request is over.
    Finished(&'a Record<'a>),
    /// A request was not taken.
    Refused {
        /// The status of the refusal.
        status: u16,
        /// One word for it.
        kind: &'a str,
        /// Why.
        #[serde(serialize_with = "clean")]
        message: &'a str,
    },
    /// The settings were read again.
    Reload {
        /// What is wrong with them; the old ones stay.
        #[serde(
            serialize_with = "clean_option",
            skip_serializing_if = "Option::is_none"
        )]
        problem: Option<&'a str>,
    },
    /// No more requests are taken; those that run may end.
    Drain {
        /// How many are being answered.
        in_flight: u64,
        /// How many of them wait.
        held: u64,
    },
    /// Nobody read for so long that this much was not written.
    LeftOut {
        /// How many events.
        events: u64,
    },
}

/// One request, when it is over.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Record<'a> {
    /// Its id.
    #[serde(skip)]
    pub id: &'a str,
    /// When it came.
    #[serde(skip)]
    pub begun: Timestamp,
    /// The name of its client, from the table of clients.
    pub client: &'static str,
    /// The dialect, if its path is that of one.
    #[serde(serialize_with = "dialect_name")]
    pub dialect: Option<Dialect>,
    /// The model that was asked for.
    #[serde(
        serialize_with = "clean_option",
        skip_serializing_if = "Option::is_none"
    )]
    pub model: Option<&'a str>,
    /// The name of the account that was asked with.
    #[serde(
        serialize_with = "clean_option",
        skip_serializing_if = "Option::is_none"
    )]
    pub account: Option<&'a str>,
    /// The method.
    #[serde(serialize_with = "clean")]
    pub method: &'a str,
    /// The path, without a query: keys stand in queries.
    #[serde(serialize_with = "clean_path")]
    pub path: &'a str,
    /// The status that the client got; `None` when it got none.
    pub status: Option<u16>,
    /// How often the provider was asked.
    pub attempts: u32,
    /// How long it waited for attempts after the first.
    #[serde(rename = "waited_ms", serialize_with = "millis")]
    pub waited: Duration,
    /// From its coming to its end.
    #[serde(rename = "duration_ms", serialize_with = "millis")]
    pub duration: Duration,
    /// From its coming to the first byte of the provider's answer that the client got.
    #[serde(
        rename = "first_byte_ms",
        serialize_with = "millis_option",
        skip_serializing_if = "Option::is_none"
    )]
    pub first_byte: Option<Duration>,
    /// The size of the request's body.
    pub bytes_in: u64,
    /// What the client was sent of the answer's body.
    pub bytes_out: u64,
    /// How it ended.
    pub outcome: Outcome,
    /// What was wrong last, if it did not end well.
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
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Answered,
        Self::Failed,
        Self::Broken,
        Self::SentBack,
        Self::Left,
        Self::Cancelled,
    ];

    /// Its name in logs and metrics.
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
    /// How much it matters.
    pub fn level(&self) -> Level {
        match self {
            Self::Listening { .. } | Self::TakenUp { .. } | Self::Drain { .. } => Level::Info,
            Self::Reload { problem: None } => Level::Info,
            Self::Reload { problem: Some(_) } => Level::Error,
            Self::Waiting { .. } | Self::AttemptFailed { .. } => Level::Warn,
            Self::Refused { .. } | Self::LeftOut { .. } => Level::Warn,
            Self::Finished(record) => match record.outcome {
                Outcome::Answered | Outcome::Left | Outcome::Cancelled => Level::Info,
                Outcome::SentBack => Level::Warn,
                Outcome::Failed | Outcome::Broken => Level::Error,
            },
        }
    }
}

/// The name of a dialect in logs and metrics.
pub(crate) fn dialect_label(dialect: Option<Dialect>) -> &'static str {
    dialect.map_or("other", Dialect::name)
}

// --- writing values down ---

/// A text from outside as it may be kept and shown.
pub fn cleaned(text: &str) -> Cow<'_, str> {
    if text.len() <= TEXT_LIMIT && !text.contains(text::is_unwanted) {
        return text::without_secrets(text);
    }
    // The generous cut first, so that an endless text costs little.
    let short = text::bounded(text, 4 * TEXT_LIMIT);
    let plain = text::plain(&short);
    let safe = text::without_secrets(&plain);
    Cow::Owned(text::bounded(&safe, TEXT_LIMIT).into_owned())
}

/// A path without its query, as it may be kept and shown.
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

/// A request for tests to be about.
#[cfg(test)]
#[path = "log_sample.rs"]
pub(crate) mod sample;
#[cfg(test)]
#[path = "log_tests.rs"]
mod tests;
