//! The keep-alive schedule of one held request.
//!
//! A state machine without a clock: [`KeepAliveSchedule::next`] returns the next action and its time,
//! [`KeepAliveSchedule::done`] records it. Invariant: a hold ends before the client's own timers would end it, and in a
//! way after which the client comes back; two actions are never further apart than the client tolerates. Not here: the
//! decision to wait (see the kernel), and writing (see `server::response_writer`).

use super::profile::{HeaderTiming, Profile, StatedLimit};
use super::{HoldEnding, KeepAliveAction, ResponseFormat};
use outlast_dialect::Dialect;
use outlast_kernel::Timestamp;
use std::time::Duration;

/// The keep-alive schedule for the client of one request.
#[derive(Clone, Debug)]
pub struct KeepAliveSchedule {
    profile: &'static Profile,
    form: ResponseFormat,
    since: Timestamp,
    /// The time of the last bytes that count for the client.
    last: Timestamp,
    /// Heartbeats since the last real data.
    beats: u32,
    stage: Stage,
    wake: Option<Timestamp>,
    is_troubled: bool,
    /// The time limit that the client stated.
    stated: Option<Duration>,
}

/// The progress of the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Open,
    Committed,
    Content,
    Ended,
}

impl KeepAliveSchedule {
    /// Creates the schedule of a request that arrived at `since`: the client's timers run from there, not from the
    /// first failure.
    pub fn new(profile: &'static Profile, form: ResponseFormat, since: Timestamp) -> Self {
        Self {
            profile,
            form,
            since,
            last: since,
            beats: 0,
            stage: Stage::Open,
            wake: None,
            is_troubled: false,
            stated: None,
        }
    }

    /// Applies the time limit that the client stated, see [`stated_timeout`](super::stated_timeout).
    pub fn with_stated_timeout(mut self, stated: Option<Duration>) -> Self {
        self.stated = stated.filter(|_| self.profile.limit != StatedLimit::Unstated);
        self
    }

    /// Returns the next action and its time, or `None` if nothing has to be done.
    ///
    /// The result can change with every call of another method: a caller that sleeps until then must ask again before
    /// acting.
    pub fn next(&self) -> Option<(Timestamp, KeepAliveAction)> {
        match self.stage {
            Stage::Ended => None,
            Stage::Content => self.beat(),
            Stage::Committed => earliest(self.end(), self.beat()),
            Stage::Open => earliest(self.end(), earliest(self.commit(), self.interim())),
        }
    }

    /// Returns the action that is due, if there is one, and records it as done.
    pub fn due(&mut self, now: Timestamp) -> Option<KeepAliveAction> {
        let (_, act) = self.next().filter(|(at, _)| *at <= now)?;
        self.done(now);
        Some(act)
    }

    /// Records that the action from [`next`](Self::next) was carried out; no other method may be called in between.
    pub fn done(&mut self, now: Timestamp) {
        match self.next() {
            None => return,
            Some((_, KeepAliveAction::Interim)) => {}
            Some((_, KeepAliveAction::Commit)) => self.stage = Stage::Committed,
            Some((_, KeepAliveAction::Beat(_))) => self.beats = self.beats.saturating_add(1),
            Some((_, KeepAliveAction::End(_))) => self.stage = Stage::Ended,
        }
        self.last = self.last.max(now);
    }

    /// Sets the time of the next attempt. A time means that an attempt has failed.
    pub fn expects(&mut self, wake: Option<Timestamp>) {
        self.is_troubled |= wake.is_some();
        self.wake = wake;
    }

    /// Records that the headers went out with a part of the response: from here on a hold never ends by itself, and
    /// heartbeats only fill silences that the client would not tolerate.
    pub fn content_sent(&mut self) {
        if self.stage != Stage::Ended {
            self.stage = Stage::Content;
        }
    }

    /// Records that real data was sent to the client, which restarts the silence. Cheap enough for every frame.
    pub fn passed(&mut self, now: Timestamp) {
        self.beats = 0;
        self.last = self.last.max(now);
    }

    /// Returns whether a status has been sent, so that no other one can be.
    pub fn has_sent_headers(&self) -> bool {
        matches!(self.stage, Stage::Committed | Stage::Content)
    }

    /// Returns the way to end this hold now so that its client comes back.
    pub fn ending(&self, now: Timestamp) -> HoldEnding {
        let retry_after = self
            .profile
            .retry_after_for(self.wake.map(|wake| wake.since(now)));
        if !self.has_sent_headers() {
            return HoldEnding::Status {
                status: self.profile.status,
                retry_after,
            };
        }
        match self.form {
            ResponseFormat::Streamed(Dialect::OpenaiResponses) => {
                HoldEnding::Frame(responses_frame(retry_after))
            }
            ResponseFormat::Streamed(Dialect::OpenaiChat) => {
                HoldEnding::Frame(chat_frame(retry_after))
            }
            ResponseFormat::Streamed(Dialect::Anthropic)
            | ResponseFormat::Gemini
            | ResponseFormat::Whole
            | ResponseFormat::Opaque => HoldEnding::Drop,
        }
    }

    // --- times ---

    fn interim(&self) -> Option<(Timestamp, KeepAliveAction)> {
        let pause = self.profile.wait(self.form).interim?;
        Some((self.last + self.bearable(pause), KeepAliveAction::Interim))
    }

    fn commit(&self) -> Option<(Timestamp, KeepAliveAction)> {
        let wait = self.profile.wait(self.form);
        let HeaderTiming::By { troubled, latest } = wait.headers else {
            return None;
        };
        if self.form == ResponseFormat::Opaque {
            return None;
        }
        let after = if self.is_troubled { troubled } else { latest };
        let after = match (self.profile.limit, self.stated) {
            (StatedLimit::Headers, Some(stated)) => nearly(stated),
            (StatedLimit::Silence, Some(stated)) if wait.interim.is_none() => {
                after.min(nearly(stated))
            }
            _ => after,
        };
        Some((self.since + after, KeepAliveAction::Commit))
    }

    fn beat(&self) -> Option<(Timestamp, KeepAliveAction)> {
        let beat = self.profile.wait(self.form).beat;
        let is_content_of_json = self.form == ResponseFormat::Whole && self.stage == Stage::Content;
        if beat.is_spent(self.beats) || is_content_of_json {
            return None;
        }
        let frame = self.profile.frames.of(self.form)?;
        // During a silence within a response, the slow pace is enough from the start.
        let pause = match self.stage {
            Stage::Content => beat.slowly,
            _ => beat.pause(self.beats),
        };
        Some((
            self.last + self.bearable(pause),
            KeepAliveAction::Beat(frame),
        ))
    }

    fn end(&self) -> Option<(Timestamp, KeepAliveAction)> {
        let (limit, watchdog) = (self.limit(), self.watchdog());
        let at = limit.into_iter().chain(watchdog).min()?;
        Some((at, KeepAliveAction::End(self.ending(at))))
    }

    /// Returns the time after which the client would stop waiting whatever it receives.
    ///
    /// As long as nothing has failed, the client runs into its own limit, as it would without the gateway: the response
    /// may still come in time.
    fn limit(&self) -> Option<Timestamp> {
        let at_most = self.profile.wait(self.form).at_most?;
        let at_most = match (self.profile.limit, self.stated) {
            (StatedLimit::Headers, Some(stated)) => nearly(stated),
            _ => at_most,
        };
        self.is_troubled.then_some(self.since + at_most)
    }

    /// Returns the time at which the client would end a silence that heartbeats no longer fill.
    fn watchdog(&self) -> Option<Timestamp> {
        let beat = self.profile.wait(self.form).beat;
        let is_out_of_beats = self.stage == Stage::Committed && beat.is_spent(self.beats);
        is_out_of_beats.then_some(self.last + beat.slowly)
    }

    /// Returns a pause that leaves room for two tries within the silence that the client stated.
    fn bearable(&self, pause: Duration) -> Duration {
        match (self.profile.limit, self.stated) {
            (StatedLimit::Silence, Some(stated)) => pause.min(stated / 3),
            _ => pause,
        }
    }
}

/// Returns the earlier of the two, or the first if both are due at the same time.
fn earliest(
    one: Option<(Timestamp, KeepAliveAction)>,
    other: Option<(Timestamp, KeepAliveAction)>,
) -> Option<(Timestamp, KeepAliveAction)> {
    match (one, other) {
        (Some(one), Some(other)) => Some(if other.0 < one.0 { other } else { one }),
        (one, other) => one.or(other),
    }
}

/// Returns most of a time limit, so that an action within it comes in time.
fn nearly(limit: Duration) -> Duration {
    limit * 9 / 10
}

fn responses_frame(retry_after: Duration) -> String {
    let message = try_again(retry_after);
    format!(
        "event: response.failed\ndata: {{\"type\":\"response.failed\",\"response\":{{\"id\":\"resp_outlast\",\
         \"object\":\"response\",\"status\":\"failed\",\"error\":{{\"code\":\"rate_limit_exceeded\",\
         \"message\":\"{message}\"}}}}}}\n\n"
    )
}

fn chat_frame(retry_after: Duration) -> String {
    let message = try_again(retry_after);
    format!(
        "data: {{\"error\":{{\"message\":\"{message}\",\"type\":\"rate_limit_error\",\
         \"code\":\"rate_limit_exceeded\"}}}}\n\n"
    )
}

/// Returns the wording that clients look for.
fn try_again(retry_after: Duration) -> String {
    let seconds = retry_after.as_secs();
    format!("The provider is not available. Please try again in {seconds}s.")
}

#[cfg(test)]
#[path = "keeping_tests.rs"]
mod tests;
