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
    pub marks: &'static [&'static [HeaderSign]],
    /// The hold plan for a streamed response.
    pub streamed: HoldPlan,
    /// The hold plan for a response in one document.
    pub whole: HoldPlan,
    /// The frames that it accepts as keep-alives.
    pub frames: &'static KeepAliveFrames,
    /// The meaning of a time limit that it states in its request.
    pub limit: StatedLimit,
    /// The status that makes it retry, if no headers were sent yet.
    pub status: u16,
    /// Its handling of `Retry-After`.
    pub obeys: RetryAfterSupport,
}

/// A sign by which a client is recognised.
#[derive(Clone, Copy, Debug)]
pub enum HeaderSign {
    /// The user agent begins with this text.
    AgentBegins(&'static str),
    /// The user agent contains this text.
    AgentHas(&'static str),
    /// The request has this header with this value.
    Says(&'static str, &'static str),
    /// The request has this header.
    Sends(&'static str),
}

/// The plan that keeps a waiting client alive.
#[derive(Clone, Copy, Debug)]
pub struct HoldPlan {
    /// The time at which the headers are sent.
    pub headers: HeaderTiming,
    /// The interval of interim responses before the headers; `None` if they are of no use.
    pub interim: Option<Duration>,
    /// The heartbeat after the headers.
    pub beat: HeartbeatPlan,
    /// The maximum time that one request may be held; `None`: for ever.
    pub at_most: Option<Duration>,
}

/// The time at which the headers of a 200 are sent although there is no response.
#[derive(Clone, Copy, Debug)]
pub enum HeaderTiming {
    /// Not before the response: the status stays open.
    Held,
    /// After a time that counts from the arrival of the request.
    By {
        /// The time if an attempt has failed.
        troubled: Duration,
        /// The time if the first attempt is still in progress.
        latest: Duration,
    },
}

/// A heartbeat that may slow down and may run out.
#[derive(Clone, Copy, Debug)]
pub struct HeartbeatPlan {
    /// The number of quick beats.
    pub quick: u32,
    /// The time before each quick beat.
    pub quickly: Duration,
    /// The time before each of the others.
    pub slowly: Duration,
    /// The number of beats in a row that count; `None`: every one.
    pub budget: Option<u32>,
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
    Silence,
    /// The time until the headers, whatever comes before them; where a hold is limited, the whole response.
    Headers,
}

/// A client's handling of `Retry-After`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryAfterSupport {
    /// It waits for the stated time up to this maximum; a longer time it ignores, or fails.
    AtMost(Duration),
    /// As `AtMost`, and after a 429 without the header it does not retry at all.
    Needs(Duration),
    /// It does not read the header: it waits in its own way, or reads the body.
    Ignores,
}

// --- impl Profile ---

impl Profile {
    /// Returns the hold plan of this client for a response of that form.
    pub fn wait(&self, form: ResponseFormat) -> &HoldPlan {
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
        Duration::from_secs(seconds.max(1)).min(self.obeys.at_most())
    }
}

impl RetryAfterSupport {
    /// Returns the longest time worth stating.
    pub const fn at_most(self) -> Duration {
        match self {
            Self::AtMost(longest) | Self::Needs(longest) => longest,
            Self::Ignores => Duration::from_secs(60),
        }
    }
}

impl KeepAliveFrames {
    /// Returns the frame for a response of that form, or `None` if nothing may be inserted.
    pub fn of(&self, form: ResponseFormat) -> Option<&'static [u8]> {
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
            quick: 0,
            quickly: pace,
            slowly: pace,
            budget: None,
        }
    }

    /// Returns the time before the next beat after `beats` of them.
    pub const fn pause(&self, beats: u32) -> Duration {
        if beats < self.quick {
            self.quickly
        } else {
            self.slowly
        }
    }

    /// Returns whether no further beat counts.
    pub const fn is_spent(&self, beats: u32) -> bool {
        matches!(self.budget, Some(budget) if beats >= budget)
    }
}
