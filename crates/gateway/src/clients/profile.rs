//! The shape of a row: the facts about one client.
//!
//! Invariant: plain data that a `const` can hold, so that a client is added by writing a row. Not here: the rows (see
//! `table`), and their use (see `keepalive`, `headers`, `recognise`).

use super::ResponseFormat;
use outlast_dialect::Dialect;
use std::time::Duration;

/// A client: the signs by which it is recognised, and the limits that it tolerates.
#[derive(Debug)]
pub struct Profile {
    /// The name, as it is configured and shown.
    pub name: &'static str,
    /// The source of the numbers, and the versions for which they hold.
    pub note: &'static str,
    /// The sets of signs: a client matches if all signs of one set are present.
    pub signatures: &'static [&'static [HeaderSign]],
    /// The hold plan for a streamed response.
    pub streamed: HoldPlan,
    /// The hold plan for a response in one document.
    pub whole: HoldPlan,
    /// The frames that it accepts as keep-alives.
    pub frames: &'static KeepAliveFrames,
    /// The meaning of a time limit that it states in its request.
    pub stated_limit: StatedLimit,
    /// The status that makes it retry, if no headers were sent yet.
    pub retry_status: u16,
    /// Its handling of `Retry-After`.
    pub retry_after: RetryAfterSupport,
}

/// A sign by which a client is recognised.
#[derive(Clone, Copy, Debug)]
pub enum HeaderSign {
    /// The user agent begins with this text.
    UserAgentPrefix(&'static str),
    /// The user agent contains this text.
    UserAgentContains(&'static str),
    /// The request has this header with this value.
    HeaderEquals(&'static str, &'static str),
    /// The request has this header.
    HeaderPresent(&'static str),
}

/// The plan that keeps a waiting client alive.
#[derive(Clone, Copy, Debug)]
pub struct HoldPlan {
    /// The time at which the headers are sent.
    pub headers: HeaderTiming,
    /// The interval of interim responses before the headers; `None` if they are of no use.
    pub interim_interval: Option<Duration>,
    /// The heartbeat after the headers.
    pub heartbeat: HeartbeatPlan,
    /// The maximum time that one request may be held; `None`: for ever.
    pub max_hold: Option<Duration>,
}

/// The time at which the headers of a 200 are sent although there is no response.
#[derive(Clone, Copy, Debug)]
pub enum HeaderTiming {
    /// Not before the response: the status stays open.
    WithResponse,
    /// After a time that counts from the arrival of the request.
    After {
        /// The time if an attempt has failed.
        failed_attempt: Duration,
        /// The time if the first attempt is still in progress.
        pending_attempt: Duration,
    },
}

/// A heartbeat that may slow down and may run out.
#[derive(Clone, Copy, Debug)]
pub struct HeartbeatPlan {
    /// The number of quick beats.
    pub fast_count: u32,
    /// The time before each quick beat.
    pub fast_interval: Duration,
    /// The time before each of the others.
    pub slow_interval: Duration,
    /// The number of beats in a row that count; `None`: every one.
    pub max_count: Option<u32>,
}

/// The frames that keep a client alive and mean nothing else.
#[derive(Debug)]
pub struct KeepAliveFrames {
    /// The frame in Messages.
    pub messages: &'static [u8],
    /// The frame in Chat Completions.
    pub chat: &'static [u8],
    /// The frame in Responses.
    pub responses: &'static [u8],
    /// The frame in a stream of Gemini's.
    pub gemini: &'static [u8],
    /// The bytes before a JSON document.
    pub whole: &'static [u8],
}

/// The meaning of a time limit that a client states in a header of its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatedLimit {
    /// The client states none.
    Unstated,
    /// The time without a byte; interim responses are bytes, too.
    BetweenBytes,
    /// The time until the headers, whatever comes before them; where a hold is limited, the whole response.
    UntilHeaders,
}

/// A client's handling of `Retry-After`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryAfterSupport {
    /// It waits for the stated time up to this maximum; a longer time it ignores, or fails.
    UpTo(Duration),
    /// As `UpTo`, and after a 429 without the header it does not retry at all.
    RequiredUpTo(Duration),
    /// It does not read the header: it waits in its own way, or reads the body.
    Ignored,
}

// --- impl Profile ---

impl Profile {
    /// Returns the hold plan of this client for a response of that form.
    pub fn hold_plan(&self, form: ResponseFormat) -> &HoldPlan {
        match form {
            ResponseFormat::Streamed(_) | ResponseFormat::Gemini => &self.streamed,
            ResponseFormat::Whole | ResponseFormat::Opaque => &self.whole,
        }
    }

    /// Returns the time to state so that the client comes back after `wait`: whole seconds, at least one, and at most
    /// the maximum that it obeys.
    pub fn retry_after_for(&self, wait: Option<Duration>) -> Duration {
        /// The gate sends an attempt at least that often on behalf of all waiting requests.
        const USUAL: Duration = Duration::from_secs(15);
        let wait = wait.unwrap_or(USUAL);
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        Duration::from_secs(seconds.max(1)).min(self.retry_after.max_delay())
    }
}

impl RetryAfterSupport {
    /// Returns the longest time worth stating.
    pub const fn max_delay(self) -> Duration {
        match self {
            Self::UpTo(longest) | Self::RequiredUpTo(longest) => longest,
            Self::Ignored => Duration::from_secs(60),
        }
    }
}

impl KeepAliveFrames {
    /// Returns the frame for a response of that form, or `None` if nothing may be inserted.
    pub fn for_format(&self, form: ResponseFormat) -> Option<&'static [u8]> {
        match form {
            ResponseFormat::Streamed(Dialect::Anthropic) => Some(self.messages),
            ResponseFormat::Streamed(Dialect::OpenaiChat) => Some(self.chat),
            ResponseFormat::Streamed(Dialect::OpenaiResponses) => Some(self.responses),
            ResponseFormat::Gemini => Some(self.gemini),
            ResponseFormat::Whole => Some(self.whole),
            ResponseFormat::Opaque => None,
        }
    }
}

impl HeartbeatPlan {
    /// Creates a heartbeat of one pace that never runs out.
    pub const fn every(pace: Duration) -> Self {
        Self {
            fast_count: 0,
            fast_interval: pace,
            slow_interval: pace,
            max_count: None,
        }
    }

    /// Returns the time before the next beat after `beats` of them.
    pub const fn interval_after(&self, beats: u32) -> Duration {
        if beats < self.fast_count {
            self.fast_interval
        } else {
            self.slow_interval
        }
    }

    /// Returns whether no further beat counts.
    pub const fn is_spent(&self, beats: u32) -> bool {
        matches!(self.max_count, Some(budget) if beats >= budget)
    }
}
