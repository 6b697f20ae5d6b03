//! Parts that several rows of the table share: hold plans, frames and header signs.
//!
//! Invariant: a plan is named after its reason, so that a number is changed where its reason is documented.

use super::profile::{HeaderSign, HeaderTiming, HeartbeatPlan, HoldPlan, KeepAliveFrames};
use std::time::Duration;

/// The frames that every measured client accepts.
pub(super) const DEFAULT_FRAMES: KeepAliveFrames = KeepAliveFrames {
    messages: b"event: ping\ndata: {\"type\":\"ping\"}\n\n",
    // One line without an empty one after it: the empty line would be an event to some clients.
    chat: b": outlast\n",
    responses: b"event: keepalive\ndata: {\"type\":\"keepalive\"}\n\n",
    gemini: b"\n",
    whole: b"\n",
};

/// The header that tells the API of a request whose user agent does not.
pub(super) const ANTHROPIC_VERSION_HEADER: HeaderSign =
    HeaderSign::HeaderPresent("anthropic-version");

/// The longest time that a JavaScript timer can hold: 2³¹ ms, a little more than 24 days.
pub(super) const MAX_JS_TIMER: Duration = seconds(24 * 86_400);

/// For a client that has to see a status early: late enough for a quick failure and its retries to keep the true one,
/// and well before the client reports the silence to a person (45 s in Claude Code).
pub(super) const EARLY_HEADERS: HeaderTiming = HeaderTiming::After {
    failed_attempt: seconds(20),
    pending_attempt: seconds(40),
};

/// No limit before the headers.
pub(super) const NO_HEADER_LIMIT: HoldPlan = HoldPlan {
    headers: HeaderTiming::WithResponse,
    interim_interval: None,
    heartbeat: HeartbeatPlan::every(seconds(60)),
    max_hold: None,
};

/// Interim responses keep the client waiting indefinitely: httpx, and undici without an SDK's timer.
pub(super) const INTERIM_RESPONSES: HoldPlan = HoldPlan {
    interim_interval: Some(seconds(60)),
    heartbeat: HeartbeatPlan::every(seconds(120)),
    ..NO_HEADER_LIMIT
};

/// Interim responses keep the client for the 600 s that its SDK waits for headers, frames after that.
pub(super) const NODE_SDK: HoldPlan = HoldPlan {
    headers: HeaderTiming::After {
        failed_attempt: seconds(540),
        pending_attempt: seconds(540),
    },
    ..INTERIM_RESPONSES
};

/// 300 s between bytes, and no use for interim responses.
pub(super) const BUN: HoldPlan = HoldPlan {
    headers: EARLY_HEADERS,
    heartbeat: HeartbeatPlan::every(seconds(120)),
    ..NO_HEADER_LIMIT
};

/// The same for a JSON response, which begins as late as possible: after that, a failure cannot be reported any more.
pub(super) const BUN_WHOLE: HoldPlan = HoldPlan {
    headers: HeaderTiming::After {
        failed_attempt: seconds(60),
        pending_attempt: seconds(240),
    },
    ..NO_HEADER_LIMIT
};

/// 60 s before the headers.
pub(super) const GEMINI: HoldPlan = HoldPlan {
    interim_interval: Some(seconds(20)),
    ..NO_HEADER_LIMIT
};

/// 600 s in all.
pub(super) const GOOSE: HoldPlan = HoldPlan {
    max_hold: Some(seconds(570)),
    ..NO_HEADER_LIMIT
};

/// Returns a duration of that many seconds.
pub(super) const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}
