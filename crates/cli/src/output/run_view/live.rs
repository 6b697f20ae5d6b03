//! What is known of a step only while it runs: what it waits for just now, what was heard of it last, what it asks.

use super::formatting::{TimeLeft, one_line};
use outlast_kernel::Timestamp;
use outlast_kernel::event::Body;
use outlast_kernel::verdict::Cause;
use outlast_pipeline::run_view::{Question, RunSnapshot, RunWait, open_question};
use outlast_pipeline::state::Phase;
use std::collections::BTreeMap;

/// What is known of a step only while it runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct LiveStep {
    /// What its session waits for.
    pub(crate) retry: Option<Countdown>,
    /// What was heard of it last.
    pub(crate) last_activity: Option<String>,
    /// What a person is asked.
    pub(crate) question: Option<Question>,
    /// The model that its turn began with.
    pub(crate) first_model: String,
}

/// A wait of a session for its provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Countdown {
    pub(crate) cause: Option<Cause>,
    pub(crate) until: Timestamp,
    /// Which retry follows; nothing when others are ahead in line.
    pub(crate) retry: Option<(u32, Option<u32>)>,
}

impl From<RunWait> for Countdown {
    fn from(wait: RunWait) -> Self {
        Self {
            cause: wait.cause,
            until: wait.until,
            retry: wait
                .attempt
                .map(|attempt| (attempt.saturating_sub(1), None)),
        }
    }
}

impl Countdown {
    /// As it counts down.
    pub(super) fn remaining_text(&self, now: Timestamp) -> String {
        self.text_with(&TimeLeft::new(self.until, now).rounded())
    }

    /// As it is said once.
    pub(super) fn announcement(&self, now: Timestamp) -> String {
        self.text_with(&TimeLeft::new(self.until, now).exact())
    }

    fn text_with(&self, left: &str) -> String {
        let phrase = self.cause.map_or("Others are ahead", Cause::phrase);
        match self.retry {
            Some((retry, Some(most))) => format!("{phrase}, retrying {left} ({retry}/{most})"),
            Some((retry, None)) => format!("{phrase}, retrying {left} ({retry})"),
            None => format!("{phrase}, waiting in line, next try {left}"),
        }
    }
}

/// What a person is asked, on one line.
pub(super) fn question_line(asked: &Question) -> String {
    let message = one_line(&asked.message);
    match asked.choices.is_empty() {
        true => message,
        false => format!("{message} [{}]", one_line(&asked.choices.join(", "))),
    }
}

/// Returns the recorded facts about steps that are not in the run's state: waits of sessions, and open questions.
pub(crate) fn recorded_live_steps(seen: &RunSnapshot) -> BTreeMap<String, LiveStep> {
    let mut live: BTreeMap<String, LiveStep> = BTreeMap::new();
    for (id, wait) in &seen.waits {
        live.entry(id.clone()).or_default().retry = Some(wait.clone().into());
    }
    for (id, step) in &seen.run.steps {
        if matches!(step.phase, Phase::AtGate { .. }) {
            live.entry(id.clone()).or_default().question = open_question(id, &seen.entries);
        }
    }
    live
}

impl LiveStep {
    /// Takes note of what its session says.
    pub(super) fn event(&mut self, body: &Body, now: Timestamp) {
        match body {
            Body::Start { model, .. } => self.first_model.clone_from(model),
            Body::RetryScheduled {
                attempt,
                max_attempts,
                retry_at,
                cause,
                ..
            } => self.start_wait(Some(*cause), *retry_at, Some((*attempt, *max_attempts))),
            Body::AutoCompactionRetry {
                attempt,
                retry_at,
                cause,
                ..
            } => self.start_wait(Some(*cause), *retry_at, Some((*attempt, None))),
            // Before its own time, the wait that is shown is its own.
            Body::Held { until, cause } if self.own_wait_until() <= Some(now) => {
                self.start_wait(*cause, *until, None);
            }
            Body::AttemptStarted { .. } | Body::RetryEnded { .. } | Body::Sealed { .. } => {
                self.retry = None;
            }
            Body::TextDelta { .. } => self.note_activity("answers"),
            Body::ReasoningDelta { .. } => self.note_activity("thinks"),
            Body::ToolStarted { name, .. } => self.note_activity(name),
            Body::ToolResult { .. } => self.note_activity("reads what the tool said"),
            _ => {}
        }
    }

    /// What was heard of it last; said for every piece of an answer, so nothing is made that is there already.
    pub(super) fn note_activity(&mut self, what: &str) {
        if self.last_activity.as_deref() != Some(what) {
            self.last_activity = Some(one_line(what));
        }
    }

    fn start_wait(
        &mut self,
        cause: Option<Cause>,
        until: Timestamp,
        retry: Option<(u32, Option<u32>)>,
    ) {
        self.retry = Some(Countdown {
            cause,
            until,
            retry,
        });
    }

    fn own_wait_until(&self) -> Option<Timestamp> {
        let own = self.retry.as_ref().filter(|wait| wait.retry.is_some());
        own.map(|wait| wait.until)
    }
}
