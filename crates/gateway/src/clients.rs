//! Client recognition, and the keep-alive of clients during a long wait.
//!
//! Pure: no socket, no clock. Headers go in and a row of the table comes out; times go in and keep-alive actions come
//! out. Invariant: the knowledge of a client is data, one row each; no code here looks for a client by its name. Not
//! here: writing to the client (see `server::response_writer`), and retry decisions (see the kernel).

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
pub use recognise::{by_name, recognise};
pub use table::ALL;

/// The form in which the client wants its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseFormat {
    /// A stream of frames in one of the supported dialects.
    Streamed(Dialect),
    /// A stream of frames, as Gemini's `streamGenerateContent` sends it.
    Gemini,
    /// One JSON document.
    Whole,
    /// Unknown: any path that is only forwarded. Nothing may be put into its body.
    Opaque,
}

/// An action for a client that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeepAliveAction {
    /// Write an interim `102 Processing`.
    SendInterim,
    /// Send the status 200 and its headers now, although there is no response yet.
    SendHeaders,
    /// Write these bytes, at the end of a frame; only after the headers.
    SendHeartbeat(&'static [u8]),
    /// End this hold now.
    EndHold(HoldEnding),
}

/// The ending of a hold, chosen so that its client sends the request again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HoldEnding {
    /// Close the connection without a clean end.
    Disconnect,
    /// Before the headers: respond with this status and `Retry-After`.
    Status {
        /// The status of the response.
        status: u16,
        /// The time after which the client is to come back, in whole seconds and within the limit that it obeys.
        retry_after: Duration,
    },
    /// After the headers: write this frame, then end cleanly.
    ErrorFrame(String),
}
