//! What happened in a scene, as it was measured: by the agent's events, the provider's log and the files of tools.

use outlast_kernel::Timestamp;
use outlast_kernel::event::Body;
use serde::Deserialize;
use std::collections::HashMap;
use std::time::Duration;

/// One thing that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MomentKind {
    /// The provider is asked.
    RequestSent,
    /// From here on the agent waits.
    WaitStarted,
    /// A tool begins to run.
    ToolStarted,
    /// The answer broke off.
    AnswerBroken,
    /// The agent was killed.
    Killed,
    /// Another process went on.
    Resumed,
    /// The answer is complete.
    Answered,
    /// It was given up.
    GivenUp,
}

/// What happened, and how long after the beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moment {
    pub(super) at: Duration,
    pub(super) kind: MomentKind,
}

/// A request, as the provider's log has it.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Request {
    pub(super) time: Timestamp,
}

/// All that is known of a scene.
#[derive(Clone, Debug)]
pub(super) struct Record {
    pub(super) name: &'static str,
    pub(super) moments: Vec<Moment>,
    /// How many requests have reached the provider.
    pub(super) requests: usize,
    /// What the agent handed on of its answer, and did not take back.
    pub(super) text: String,
    /// What the answer should be.
    pub(super) expected_text: &'static str,
    /// A line for each time that a tool ran.
    pub(super) tool_runs: Vec<String>,
    /// When the last wait was to end.
    pub(super) last_wait_end: Option<Duration>,
    started_at: Option<Timestamp>,
}

impl Record {
    pub(super) fn new(name: &'static str, expected_text: &'static str) -> Self {
        Self {
            name,
            moments: Vec::new(),
            requests: 0,
            text: String::new(),
            expected_text,
            tool_runs: Vec::new(),
            last_wait_end: None,
            started_at: None,
        }
    }

    /// How long after the beginning that is: the first thing that is noted.
    fn elapsed(&mut self, time: Timestamp) -> Duration {
        time.since(*self.started_at.get_or_insert(time))
    }

    pub(super) fn add(&mut self, time: Timestamp, kind: MomentKind) {
        let at = self.elapsed(time);
        self.moments.push(Moment { at, kind });
    }

    /// Takes note of what the agent says.
    pub(super) fn add_event(&mut self, time: Timestamp, body: &Body) {
        match body {
            Body::AttemptStarted { .. } => self.add(time, MomentKind::RequestSent),
            Body::RetryScheduled { retry_at, .. } => {
                let is_cut = !self.text.is_empty() && self.last() == Some(MomentKind::RequestSent);
                if is_cut {
                    self.add(time, MomentKind::AnswerBroken);
                }
                self.add(time, MomentKind::WaitStarted);
                self.last_wait_end = Some(self.elapsed(*retry_at));
            }
            Body::ToolStarted { .. } => self.add(time, MomentKind::ToolStarted),
            Body::TextDelta { text } => self.text += text,
            // What was said before a tool is no part of the answer; what was taken back does not count.
            Body::ToolCall(_) | Body::Retracted { .. } => self.text.clear(),
            Body::Done { .. } => self.add(time, MomentKind::Answered),
            Body::Error { .. } => self.add(time, MomentKind::GivenUp),
            _ => {}
        }
    }

    pub(super) fn last(&self) -> Option<MomentKind> {
        self.moments.last().map(|moment| moment.kind)
    }

    pub(super) fn count(&self, what: MomentKind) -> usize {
        let such = |moment: &&Moment| moment.kind == what;
        self.moments.iter().filter(such).count()
    }

    /// How long each wait took, from its beginning to the next request; what a kill interrupts is one wait.
    pub(super) fn waits(&self) -> Vec<Duration> {
        let mut waits = Vec::new();
        let mut since = None;
        for moment in &self.moments {
            match moment.kind {
                MomentKind::WaitStarted => since = since.or(Some(moment.at)),
                MomentKind::RequestSent => {
                    waits.extend(since.take().map(|since| moment.at - since))
                }
                _ => {}
            }
        }
        waits
    }

    /// How many words were shown more often than the answer has them.
    pub(super) fn words_shown_twice(&self) -> usize {
        surplus(
            self.text.split_whitespace(),
            self.expected_text.split_whitespace(),
        )
    }

    /// How many words of the answer were not shown.
    pub(super) fn words_missing(&self) -> usize {
        surplus(
            self.expected_text.split_whitespace(),
            self.text.split_whitespace(),
        )
    }

    /// How often a tool ran again that had run.
    pub(super) fn tools_run_twice(&self) -> usize {
        let mut known: Vec<&String> = self.tool_runs.iter().collect();
        known.sort();
        known.dedup();
        self.tool_runs.len() - known.len()
    }

    /// How many kills the work has outlived.
    pub(super) fn kills_survived(&self) -> usize {
        let answered = self.last() == Some(MomentKind::Answered);
        if answered {
            self.count(MomentKind::Killed)
        } else {
            0
        }
    }
}

/// How many of the first there are beyond the second.
fn surplus<'a>(
    first: impl Iterator<Item = &'a str>,
    second: impl Iterator<Item = &'a str>,
) -> usize {
    let mut left: HashMap<&str, usize> = HashMap::new();
    for word in second {
        *left.entry(word).or_default() += 1;
    }
    let is_beyond = |word: &&str| match left.get_mut(*word) {
        Some(count) if *count > 0 => {
            *count -= 1;
            false
        }
        _ => true,
    };
    first.filter(is_beyond).count()
}
