//! What several rows of the table have in common: ways to wait, frames and marks.
//!
//! Invariant: a way is named after what makes it necessary, so that a number is changed where its reason stands.

use super::profile::{Beat, Frames, Headers, Sign, Wait};
use std::time::Duration;

/// The frames that every client measured takes.
pub(super) const USUAL: Frames = Frames {
    messages: b"event: ping\ndata: {\"type\":\"ping\"}\n\n",
    // One line without an empty one after it: the empty line would be an event to some.
    chat: b": outlast\n",
    responses: b"event: keepalive\ndata: {\"type\":\"keepalive\"}\n\n",
    gemini: b"\n",
    whole: b"\n",
};

/// The API that a request is for, when its user agent does not tell.
pub(super) const ANTHROPIC: Sign = Sign::Sends("anthropic-version");

/// Any time that a JavaScript timer can hold: 2³¹ ms, a little more than 24 days.
pub(super) const ANY: Duration = seconds(24 * 86_400);

/// A client that has to see a status early: late enough for a quick failure and its retries to keep the true one, and
/// well before a person is told of the silence (45 s in Claude Code).
pub(super) const EARLY: Headers = Headers::By {
    troubled: seconds(20),
    latest: seconds(40),
};

/// No limit before the headers.
pub(super) const HELD: Wait = Wait {
    headers: Headers::Held,
    interim: None,
    beat: Beat::every(seconds(60)),
    at_most: None,
};

/// Interim responses keep it for ever: httpx, and undici without an SDK's timer.
pub(super) const OPEN: Wait = Wait {
    interim: Some(seconds(60)),
    beat: Beat::every(seconds(120)),
    ..HELD
};

/// Interim responses keep it for the 600 s that its SDK waits for headers, frames after that.
pub(super) const NODE_SDK: Wait = Wait {
    headers: Headers::By {
        troubled: seconds(540),
        latest: seconds(540),
    },
    ..OPEN
};

/// 300 s between bytes, and no use for interim responses.
pub(super) const BUN: Wait = Wait {
    headers: EARLY,
    beat: Beat::every(seconds(120)),
    ..HELD
};

/// The same for a JSON answer, which is begun only when it must be: a failure cannot be told any more after that.
pub(super) const BUN_WHOLE: Wait = Wait {
    headers: Headers::By {
        troubled: seconds(60),
        latest: seconds(240),
    },
    ..HELD
};

/// 60 s before the headers.
pub(super) const GEMINI: Wait = Wait {
    interim: Some(seconds(20)),
    ..HELD
};

/// 600 s in all.
pub(super) const GOOSE: Wait = Wait {
    at_most: Some(seconds(570)),
    ..HELD
};

/// That many seconds.
pub(super) const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}
