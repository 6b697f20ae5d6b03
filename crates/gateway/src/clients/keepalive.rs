//! One held request: what keeps its client, and when.
//!
//! A state machine without a clock: [`KeepAliveSchedule::next`] says what is to be done and when, [`KeepAliveSchedule::done`] that it was.
//! Invariant: a hold ends before the client's own timers would end it, and in a way after which it comes back; between
//! two acts there is never more time than the client bears.
//! Not here: whether to wait at all (see the kernel), and writing (see `reply`).

use super::profile::{HeaderTiming, Profile, StatedLimit};
use super::{HoldEnding, KeepAliveAction, ResponseFormat};
use outlast_dialect::Dialect;
use outlast_kernel::Timestamp;
use std::time::Duration;

/// What keeps the client of one request that is under way.
#[derive(Clone, Debug)]
pub struct KeepAliveSchedule {
    profile: &'static Profile,
    form: ResponseFormat,
    since: Timestamp,
    /// When the client last got something that counts.
    last: Timestamp,
    /// Beats since something real was sent.
    beats: u32,
    stage: Stage,
    wake: Option<Timestamp>,
    is_troubled: bool,
    /// The time limit that the client stated.
    stated: Option<Duration>,
}

/// How far the response has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Open,
    Committed,
    Content,
    Ended,
}

impl KeepAliveSchedule {
    /// A request that came at `since`: the client's timers run from there, not from the first failure.
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

    /// Takes the time limit into account that the client stated, see [`stated_timeout`](super::stated_timeout).
    pub fn with_stated_timeout(mut self, stated: Option<Duration>) -> Self {
        self.stated = stated.filter(|_| self.profile.limit != StatedLimit::Unstated);
        self
    }

    /// What is to be done next and when; `None`: nothing, it can wait as it is.
    ///
    /// What it says can change with every call of another method: whoever sleeps until then asks again before acting.
    pub fn next(&self) -> Option<(Timestamp, KeepAliveAction)> {
        match self.stage {
            Stage::Ended => None,
            Stage::Content => self.beat(),
            Stage::Committed => earliest(self.end(), self.beat()),
            Stage::Open => earliest(self.end(), earliest(self.commit(), self.interim())),
        }
    }

    /// Takes what is due, if something is: it counts as done.
    pub fn due(&mut self, now: Timestamp) -> Option<KeepAliveAction> {
        let (_, act) = self.next().filter(|(at, _)| *at <= now)?;
        self.done(now);
        Some(act)
    }

    /// The act that [`next`](Self::next) named was carried out; nothing may have been told to `self` in between.
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

    /// When the next attempt is expected. A time means that an attempt has failed.
    pub fn expects(&mut self, wake: Option<Timestamp>) {
        self.is_troubled |= wake.is_some();
        self.wake = wake;
    }

    /// The headers went out with a part of the answer: from here on a hold never ends by itself, and beats only fill
    /// the silences that the client would not bear.
    pub fn content_sent(&mut self) {
        if self.stage != Stage::Ended {
            self.stage = Stage::Content;
        }
    }

    /// Something real was sent to the client: a silence begins anew. Cheap enough for every frame.
    pub fn passed(&mut self, now: Timestamp) {
        self.beats = 0;
        self.last = self.last.max(now);
    }

    /// Whether a status has been sent, so that another one cannot be any more.
    pub fn has_sent_headers(&self) -> bool {
        matches!(self.stage, Stage::Committed | Stage::Content)
    }

    /// How this hold ends when it has to end now, so that its client comes back by itself.
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

    // --- when ---

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
        // In a silence amid an answer there is nobody to reassure: the slow pace will do from the start.
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

    /// When the client would not wait any longer whatever it gets.
    ///
    /// As long as nothing has failed it is left to find that out by itself, as it would without us: what it asked for
    /// may still come in time.
    fn limit(&self) -> Option<Timestamp> {
        let at_most = self.profile.wait(self.form).at_most?;
        let at_most = match (self.profile.limit, self.stated) {
            (StatedLimit::Headers, Some(stated)) => nearly(stated),
            _ => at_most,
        };
        self.is_troubled.then_some(self.since + at_most)
    }

    /// When the client would end a silence that no beat of ours fills any more.
    fn watchdog(&self) -> Option<Timestamp> {
        let beat = self.profile.wait(self.form).beat;
        let is_out_of_beats = self.stage == Stage::Committed && beat.is_spent(self.beats);
        is_out_of_beats.then_some(self.last + beat.slowly)
    }

    /// A pause that leaves room for two tries within the silence that the client stated.
    fn bearable(&self, pause: Duration) -> Duration {
        match (self.profile.limit, self.stated) {
            (StatedLimit::Silence, Some(stated)) => pause.min(stated / 3),
            _ => pause,
        }
    }
}

/// The one that comes first; at the same time the former.
fn earliest(
    one: Option<(Timestamp, KeepAliveAction)>,
    other: Option<(Timestamp, KeepAliveAction)>,
) -> Option<(Timestamp, KeepAliveAction)> {
    match (one, other) {
        (Some(one), Some(other)) => Some(if other.0 < one.0 { other } else { one }),
        (one, other) => one.or(other),
    }
}

/// Most of a time limit, so that what has to happen within it does.
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

/// The wording that clients look for.
fn try_again(retry_after: Duration) -> String {
    let seconds = retry_after.as_secs();
    format!("The provider is not available. Please try again in {seconds}s.")
}

#[cfg(test)]
#[path = "keeping_tests.rs"]
mod tests;
