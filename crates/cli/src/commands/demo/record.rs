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
    Asked,
    /// From here on the agent waits.
    Waits,
    /// A tool begins to run.
    Tool,
    /// The answer broke off.
    Cut,
    /// The agent was killed.
    Killed,
    /// Another process went on.
    Resumed,
    /// The answer is complete.
    Answered,
    /// It was given up.
    Stopped,
}

/// What happened, and how long after the beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moment {
    pub(super) at: Duration,
    pub(super) what: MomentKind,
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
    pub(super) wanted: &'static str,
    /// A line for each time that a tool ran.
    pub(super) tool_runs: Vec<String>,
    /// When the last wait was to end.
    pub(super) until: Option<Duration>,
    began: Option<Timestamp>,
}

impl Record {
    pub(super) fn new(name: &'static str, wanted: &'static str) -> Self {
        Self {
            name,
            moments: Vec::new(),
            requests: 0,
            text: String::new(),
            wanted,
            tool_runs: Vec::new(),
            until: None,
            began: None,
        }
    }

    /// How long after the beginning that is: the first thing that is noted.
    fn elapsed(&mut self, time: Timestamp) -> Duration {
        time.since(*self.began.get_or_insert(time))
    }

    pub(super) fn note(&mut self, time: Timestamp, what: MomentKind) {
        let at = self.elapsed(time);
        self.moments.push(Moment { at, what });
    }

    /// Takes note of what the agent says.
    pub(super) fn event(&mut self, time: Timestamp, body: &Body) {
        match body {
            Body::AttemptStarted { .. } => self.note(time, MomentKind::Asked),
            Body::RetryScheduled { retry_at, .. } => {
                let is_cut = !self.text.is_empty() && self.last() == Some(MomentKind::Asked);
                if is_cut {
                    self.note(time, MomentKind::Cut);
                }
                self.note(time, MomentKind::Waits);
                self.until = Some(self.elapsed(*retry_at));
            }
            Body::ToolStarted { .. } => self.note(time, MomentKind::Tool),
            Body::TextDelta { text } => self.text += text,
            // What was said before a tool is no part of the answer; what was taken back does not count.
            Body::ToolCall(_) | Body::Retracted { .. } => self.text.clear(),
            Body::Done { .. } => self.note(time, MomentKind::Answered),
            Body::Error { .. } => self.note(time, MomentKind::Stopped),
            _ => {}
        }
    }

    pub(super) fn last(&self) -> Option<MomentKind> {
        self.moments.last().map(|moment| moment.what)
    }

    pub(super) fn count(&self, what: MomentKind) -> usize {
        let such = |moment: &&Moment| moment.what == what;
        self.moments.iter().filter(such).count()
    }

    /// How long each wait took, from its beginning to the next request; what a kill interrupts is one wait.
    pub(super) fn waits(&self) -> Vec<Duration> {
        let mut waits = Vec::new();
        let mut since = None;
        for moment in &self.moments {
            match moment.what {
                MomentKind::Waits => since = since.or(Some(moment.at)),
                MomentKind::Asked => waits.extend(since.take().map(|since| moment.at - since)),
                _ => {}
            }
        }
        waits
    }

    /// How many words were shown more often than the answer has them.
    pub(super) fn words_shown_twice(&self) -> usize {
        surplus(self.text.split_whitespace(), self.wanted.split_whitespace())
    }

    /// How many words of the answer were not shown.
    pub(super) fn words_missing(&self) -> usize {
        surplus(self.wanted.split_whitespace(), self.text.split_whitespace())
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
