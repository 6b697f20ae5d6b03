//! The keep-alive schedule of one held request.
//!
//! A state machine without a clock: [`KeepAliveSchedule::next_action`] returns the next action and its time,
//! [`KeepAliveSchedule::mark_done`] records it. Invariant: a hold ends before the client's own timers would end it, and in a
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
    format: ResponseFormat,
    started_at: Timestamp,
    /// The time of the last bytes that count for the client.
    last_activity: Timestamp,
    /// Heartbeats since the last real data.
    beats: u32,
    stage: Stage,
    retry_at: Option<Timestamp>,
    has_failed_attempt: bool,
    /// The time limit that the client stated.
    stated_timeout: Option<Duration>,
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
    pub fn new(profile: &'static Profile, format: ResponseFormat, started_at: Timestamp) -> Self {
        Self {
            profile,
            format,
            started_at,
            last_activity: started_at,
            beats: 0,
            stage: Stage::Open,
            retry_at: None,
            has_failed_attempt: false,
            stated_timeout: None,
        }
    }

    /// Applies the time limit that the client stated, see [`stated_timeout`](super::stated_timeout).
    pub fn with_stated_timeout(mut self, stated: Option<Duration>) -> Self {
        self.stated_timeout = stated.filter(|_| self.profile.stated_limit != StatedLimit::Unstated);
        self
    }

    /// Returns the next action and its time, or `None` if nothing has to be done.
    ///
    /// The result can change with every call of another method: a caller that sleeps until then must ask again before
    /// acting.
    pub fn next_action(&self) -> Option<(Timestamp, KeepAliveAction)> {
        match self.stage {
            Stage::Ended => None,
            Stage::Content => self.next_heartbeat(),
            Stage::Committed => earliest([self.next_end(), self.next_heartbeat(), None]),
            Stage::Open => earliest([self.next_end(), self.next_headers(), self.next_interim()]),
        }
    }

    /// Returns the action that is due, if there is one, and records it as done.
    pub fn take_due(&mut self, now: Timestamp) -> Option<KeepAliveAction> {
        let (_, act) = self.next_action().filter(|(at, _)| *at <= now)?;
        self.mark_done(now);
        Some(act)
    }

    /// Records that the action from [`next_action`](Self::next_action) was carried out; no other method may be called in between.
    pub fn mark_done(&mut self, now: Timestamp) {
        match self.next_action() {
            None => return,
            Some((_, KeepAliveAction::SendInterim)) => {}
            Some((_, KeepAliveAction::SendHeaders)) => self.stage = Stage::Committed,
            Some((_, KeepAliveAction::SendHeartbeat(_))) => {
                self.beats = self.beats.saturating_add(1)
            }
            Some((_, KeepAliveAction::EndHold(_))) => self.stage = Stage::Ended,
        }
        self.last_activity = self.last_activity.max(now);
    }

    /// Sets the time of the next attempt. A time means that an attempt has failed.
    pub fn set_retry_at(&mut self, wake: Option<Timestamp>) {
        self.has_failed_attempt |= wake.is_some();
        self.retry_at = wake;
    }

    /// Records that the headers went out with a part of the response: from here on a hold never ends by itself, and
    /// heartbeats only fill silences that the client would not tolerate.
    pub fn content_sent(&mut self) {
        if self.stage != Stage::Ended {
            self.stage = Stage::Content;
        }
    }

    /// Records that real data was sent to the client, which restarts the silence. Cheap enough for every frame.
    pub fn record_activity(&mut self, now: Timestamp) {
        self.beats = 0;
        self.last_activity = self.last_activity.max(now);
    }

    /// Returns whether a status has been sent, so that no other one can be.
    pub fn has_sent_headers(&self) -> bool {
        matches!(self.stage, Stage::Committed | Stage::Content)
    }

    /// Returns the way to end this hold now so that its client comes back.
    pub fn hold_ending(&self, now: Timestamp) -> HoldEnding {
        let retry_after = self
            .profile
            .retry_after_for(self.retry_at.map(|wake| wake.since(now)));
        if !self.has_sent_headers() {
            return HoldEnding::Status {
                status: self.profile.retry_status,
                retry_after,
            };
        }
        match self.format {
            ResponseFormat::Streamed(Dialect::OpenaiResponses) => {
                HoldEnding::ErrorFrame(responses_frame(retry_after))
            }
            ResponseFormat::Streamed(Dialect::OpenaiChat) => {
                HoldEnding::ErrorFrame(chat_frame(retry_after))
            }
            ResponseFormat::Streamed(Dialect::Anthropic)
            | ResponseFormat::Gemini
            | ResponseFormat::Whole
            | ResponseFormat::Opaque => HoldEnding::Disconnect,
        }
    }

    // --- times ---

    fn next_interim(&self) -> Option<(Timestamp, KeepAliveAction)> {
        let pause = self.profile.hold_plan(self.format).interim_interval?;
        Some((
            self.last_activity + self.within_stated_silence(pause),
            KeepAliveAction::SendInterim,
        ))
    }

    fn next_headers(&self) -> Option<(Timestamp, KeepAliveAction)> {
        let wait = self.profile.hold_plan(self.format);
        let HeaderTiming::After {
            failed_attempt,
            pending_attempt,
        } = wait.headers
        else {
            return None;
        };
        if self.format == ResponseFormat::Opaque {
            return None;
        }
        let after = if self.has_failed_attempt {
            failed_attempt
        } else {
            pending_attempt
        };
        let after = match (self.profile.stated_limit, self.stated_timeout) {
            (StatedLimit::UntilHeaders, Some(stated)) => with_margin(stated),
            (StatedLimit::BetweenBytes, Some(stated)) if wait.interim_interval.is_none() => {
                after.min(with_margin(stated))
            }
            _ => after,
        };
        Some((self.started_at + after, KeepAliveAction::SendHeaders))
    }

    fn next_heartbeat(&self) -> Option<(Timestamp, KeepAliveAction)> {
        let beat = self.profile.hold_plan(self.format).heartbeat;
        let is_content_of_json =
            self.format == ResponseFormat::Whole && self.stage == Stage::Content;
        if beat.is_spent(self.beats) || is_content_of_json {
            return None;
        }
        let frame = self.profile.frames.for_format(self.format)?;
        // During a silence within a response, the slow pace is enough from the start.
        let pause = match self.stage {
            Stage::Content => beat.slow_interval,
            _ => beat.interval_after(self.beats),
        };
        Some((
            self.last_activity + self.within_stated_silence(pause),
            KeepAliveAction::SendHeartbeat(frame),
        ))
    }

    fn next_end(&self) -> Option<(Timestamp, KeepAliveAction)> {
        let (limit, watchdog) = (self.hold_deadline(), self.silence_deadline());
        let at = limit.into_iter().chain(watchdog).min()?;
        Some((at, KeepAliveAction::EndHold(self.hold_ending(at))))
    }

    /// Returns the time after which the client would stop waiting whatever it receives.
    ///
    /// As long as nothing has failed, the client runs into its own limit, as it would without the gateway: the response
    /// may still come in time.
    fn hold_deadline(&self) -> Option<Timestamp> {
        let at_most = self.profile.hold_plan(self.format).max_hold?;
        let at_most = match (self.profile.stated_limit, self.stated_timeout) {
            (StatedLimit::UntilHeaders, Some(stated)) => with_margin(stated),
            _ => at_most,
        };
        self.has_failed_attempt.then_some(self.started_at + at_most)
    }

    /// Returns the time at which the client would end a silence that heartbeats no longer fill.
    fn silence_deadline(&self) -> Option<Timestamp> {
        let beat = self.profile.hold_plan(self.format).heartbeat;
        let is_out_of_beats = self.stage == Stage::Committed && beat.is_spent(self.beats);
        is_out_of_beats.then_some(self.last_activity + beat.slow_interval)
    }

    /// Returns a pause that leaves room for two tries within the silence that the client stated.
    fn within_stated_silence(&self, pause: Duration) -> Duration {
        match (self.profile.stated_limit, self.stated_timeout) {
            (StatedLimit::BetweenBytes, Some(stated)) => pause.min(stated / 3),
            _ => pause,
        }
    }
}

/// Returns the earliest action, the first of those that are due at the same time.
fn earliest(
    actions: [Option<(Timestamp, KeepAliveAction)>; 3],
) -> Option<(Timestamp, KeepAliveAction)> {
    let actions = actions.into_iter().flatten();
    actions.min_by_key(|(at, _)| *at)
}

/// Returns most of a time limit, so that an action within it comes in time.
fn with_margin(limit: Duration) -> Duration {
    limit * 9 / 10
}

fn responses_frame(retry_after: Duration) -> String {
    let message = retry_message(retry_after);
    format!(
        "event: response.failed\ndata: {{\"type\":\"response.failed\",\"response\":{{\"id\":\"resp_outlast\",\
         \"object\":\"response\",\"status\":\"failed\",\"error\":{{\"code\":\"rate_limit_exceeded\",\
         \"message\":\"{message}\"}}}}}}\n\n"
    )
}

fn chat_frame(retry_after: Duration) -> String {
    let message = retry_message(retry_after);
    format!(
        "data: {{\"error\":{{\"message\":\"{message}\",\"type\":\"rate_limit_error\",\
         \"code\":\"rate_limit_exceeded\"}}}}\n\n"
    )
}

/// Returns the wording that clients look for.
fn retry_message(retry_after: Duration) -> String {
    let seconds = retry_after.as_secs();
    format!("The provider is not available. Please try again in {seconds}s.")
}

#[cfg(test)]
#[path = "keepalive_tests.rs"]
mod tests;
