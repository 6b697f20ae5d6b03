//! The shape of a row: what there is to know about a client.
//!
//! Invariant: plain data that a `const` can hold, so that a client is added by writing a row.
//! Not here: the rows (see `table`), and what follows from them (see `keeping`, `headers`, `recognise`).

use super::ResponseFormat;
use outlast_dialect::Dialect;
use std::time::Duration;

/// A client: how it is recognised, and what it bears.
#[derive(Debug)]
pub struct Profile {
    /// Its name, as it is configured and shown.
    pub name: &'static str,
    /// Where the numbers come from, and for which versions they hold.
    pub note: &'static str,
    /// How it is recognised: one of these sets of signs is there as a whole.
    pub marks: &'static [&'static [HeaderSign]],
    /// What keeps it when it wants its answer in frames.
    pub streamed: HoldPlan,
    /// What keeps it when it wants its answer as a whole.
    pub whole: HoldPlan,
    /// The frames that it takes as signs of life.
    pub frames: &'static KeepAliveFrames,
    /// What a time limit means that it states in its request.
    pub limit: StatedLimit,
    /// The status that makes it come back, when there are no headers yet.
    pub status: u16,
    /// What it makes of `Retry-After`.
    pub obeys: RetryAfterSupport,
}

/// A sign by which a client is recognised.
#[derive(Clone, Copy, Debug)]
pub enum HeaderSign {
    /// Its user agent begins like this.
    AgentBegins(&'static str),
    /// Its user agent has this somewhere.
    AgentHas(&'static str),
    /// It sends this header with this value.
    Says(&'static str, &'static str),
    /// It sends this header.
    Sends(&'static str),
}

/// What keeps a client that waits.
#[derive(Clone, Copy, Debug)]
pub struct HoldPlan {
    /// When the headers go out.
    pub headers: HeaderTiming,
    /// How often an interim response is sent before them; `None` where it is of no use.
    pub interim: Option<Duration>,
    /// How often a frame is sent after them.
    pub beat: HeartbeatPlan,
    /// How long one request may be held; `None`: for ever.
    pub at_most: Option<Duration>,
}

/// When the headers of a 200 go out although there is no answer.
#[derive(Clone, Copy, Debug)]
pub enum HeaderTiming {
    /// Not before the answer: the status stays open.
    Held,
    /// So long after the request came.
    By {
        /// When an attempt has failed.
        troubled: Duration,
        /// When the first attempt is still under way.
        latest: Duration,
    },
}

/// A beat that may slow down and may run out.
#[derive(Clone, Copy, Debug)]
pub struct HeartbeatPlan {
    /// How many beats come quickly.
    pub quick: u32,
    /// The time before each of these.
    pub quickly: Duration,
    /// The time before each of the others.
    pub slowly: Duration,
    /// How many beats in a row count at all; `None`: every one.
    pub budget: Option<u32>,
}

/// The frames that are signs of life, and nothing else.
#[derive(Debug)]
pub struct KeepAliveFrames {
    /// In Messages.
    pub messages: &'static [u8],
    /// In Chat Completions.
    pub chat: &'static [u8],
    /// In Responses.
    pub responses: &'static [u8],
    /// In a stream of Gemini's.
    pub gemini: &'static [u8],
    /// Before a JSON document.
    pub whole: &'static [u8],
}

/// What a time limit means that a client states in a header of its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatedLimit {
    /// It states none.
    Unstated,
    /// The time without a byte; interim responses are bytes, too.
    Silence,
    /// The time until the headers, whatever comes before them; where a hold is limited, the whole answer.
    Headers,
}

/// What a client makes of `Retry-After`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryAfterSupport {
    /// It waits as long as is stated, up to this; a longer time it ignores, or fails.
    AtMost(Duration),
    /// As `AtMost`, and without one on a 429 it does not come back at all.
    Needs(Duration),
    /// It does not read the header: it waits in its own way, or reads the body.
    Ignores,
}

// --- impl Profile ---

impl Profile {
    /// What keeps this client, in that form.
    pub fn wait(&self, form: ResponseFormat) -> &HoldPlan {
        match form {
            ResponseFormat::Streamed(_) | ResponseFormat::Gemini => &self.streamed,
            ResponseFormat::Whole | ResponseFormat::Opaque => &self.whole,
        }
    }

    /// The time to state so that the client comes back after `wait`: whole seconds, at least one, and what it obeys.
    pub fn retry_after_for(&self, wait: Option<Duration>) -> Duration {
        /// The gate asks at least so often on behalf of all that wait.
        const USUAL: Duration = Duration::from_secs(15);
        let wait = wait.unwrap_or(USUAL);
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        Duration::from_secs(seconds.max(1)).min(self.obeys.at_most())
    }
}

impl RetryAfterSupport {
    /// The longest time worth stating.
    pub const fn at_most(self) -> Duration {
        match self {
            Self::AtMost(longest) | Self::Needs(longest) => longest,
            Self::Ignores => Duration::from_secs(60),
        }
    }
}

impl KeepAliveFrames {
    /// The frame for an answer in that form; `None` where nothing may be put in.
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
    /// A beat of one pace that never runs out.
    pub const fn every(pace: Duration) -> Self {
        Self {
            quick: 0,
            quickly: pace,
            slowly: pace,
            budget: None,
        }
    }

    /// The time before the beat after `beats` of them.
    pub const fn pause(&self, beats: u32) -> Duration {
        if beats < self.quick {
            self.quickly
        } else {
            self.slowly
        }
    }

    /// Whether no further beat counts.
    pub const fn is_spent(&self, beats: u32) -> bool {
        matches!(self.budget, Some(budget) if beats >= budget)
    }
}
