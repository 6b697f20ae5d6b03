//! Who the client is, and what keeps it alive through a long wait.
//!
//! Pure: no socket, no clock. Headers go in and a row of the table comes out; times go in and acts come out.
//! Invariant: what is known of a client is data, one row for each; nothing here asks for a client by its name.
//! Not here: writing to the client (see `reply`) and deciding about retries (see the kernel).

#[cfg(test)]
mod client_model;
#[cfg(test)]
mod client_model_tests;
mod headers;
mod hold_plans;
mod keepalive;
mod profile;
mod recognise;
mod table;

use outlast_dialect::Dialect;
use std::time::Duration;

pub use headers::{rewrite_retry_headers, stated_timeout};
pub use keepalive::KeepAliveSchedule;
pub use profile::{
    HeaderSign, HeaderTiming, HeartbeatPlan, HoldPlan, KeepAliveFrames, Profile, RetryAfterSupport,
    StatedLimit,
};
pub use recognise::{named, recognise};
pub use table::ALL;

/// In which form the client wants its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseFormat {
    /// Frame by frame, in one of our dialects.
    Streamed(Dialect),
    /// Frame by frame, as Gemini's `streamGenerateContent` does.
    Gemini,
    /// As one JSON document.
    Whole,
    /// Unknown: any path that is only passed on. Nothing may be put into its body.
    Opaque,
}

/// What is to be done for a client that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeepAliveAction {
    /// Write an interim `102 Processing`.
    Interim,
    /// Send the status 200 and its headers now, although there is no answer yet.
    Commit,
    /// Write these bytes, at the end of a frame; only after the headers.
    Beat(&'static [u8]),
    /// This hold has to end now.
    End(HoldEnding),
}

/// How a hold ends so that its client comes back by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HoldEnding {
    /// Close the connection without a clean end.
    Drop,
    /// Before the headers: answer with this status and `Retry-After`.
    Status {
        /// The status of the answer.
        status: u16,
        /// When the client is to come back; what it obeys, in whole seconds.
        retry_after: Duration,
    },
    /// After the headers: write this frame, then end cleanly.
    Frame(String),
}
