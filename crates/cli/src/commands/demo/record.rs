//! The measurements of a scene, and the promises that they are checked against.
//!
//! The measurements come from the agent's events, the provider's request log and the files of tools.

use super::picture::{format_duration, join_durations};
use super::scenes::{Scene, SceneKind, TOOL_LOG_FILE};
use outlast_kernel::Timestamp;
use std::collections::BTreeSet;
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MomentKind {
    RequestSent,
    /// The agent waits from here on.
    WaitStarted,
    ToolStarted,
    /// The answer broke off.
    AnswerBroken,
    /// The agent was killed.
    Killed,
    /// Another process resumed the turn.
    Resumed,
    /// The answer is complete.
    Answered,
    GivenUp,
}

/// An occurrence, and its time since the beginning of the scene.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moment {
    pub(super) at: Duration,
    pub(super) kind: MomentKind,
}

/// The measurements of a scene.
#[derive(Clone, Debug)]
pub(super) struct Record {
    pub(super) scene: &'static Scene,
    pub(super) moments: Vec<Moment>,
    /// The number of requests that reached the provider.
    pub(super) requests: usize,
    /// The text of the answer, without retracted parts.
    pub(super) text: String,
    /// A line for each run of the tool.
    pub(super) tool_runs: Vec<String>,
    /// The stated end of the last wait.
    pub(super) last_wait_end: Option<Duration>,
    started_at: Option<Timestamp>,
}

/// The result of checking one promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) has_passed: bool,
    pub(super) message: String,
}

impl Record {
    pub(super) fn new(scene: &'static Scene) -> Self {
        Self {
            scene,
            moments: Vec::new(),
            requests: 0,
            text: String::new(),
            tool_runs: Vec::new(),
            last_wait_end: None,
            started_at: None,
        }
    }

    /// Returns the time since the first moment, which is the given time if there is none yet.
    fn elapsed(&mut self, time: Timestamp) -> Duration {
        time.since(*self.started_at.get_or_insert(time))
    }

    pub(super) fn add(&mut self, time: Timestamp, kind: MomentKind) {
        let at = self.elapsed(time);
        self.moments.push(Moment { at, kind });
    }

    pub(super) fn add_wait(&mut self, time: Timestamp, until: Timestamp) {
        if !self.text.is_empty() && self.last() == Some(MomentKind::RequestSent) {
            self.add(time, MomentKind::AnswerBroken);
        }
        self.add(time, MomentKind::WaitStarted);
        self.last_wait_end = Some(self.elapsed(until));
    }

    pub(super) fn last(&self) -> Option<MomentKind> {
        self.moments.last().map(|moment| moment.kind)
    }

    pub(super) fn count(&self, kind: MomentKind) -> usize {
        let moments = self.moments.iter();
        moments.filter(|moment| moment.kind == kind).count()
    }

    /// Returns the duration of each wait up to the next request. A wait that a kill interrupts is one wait.
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

    /// Returns how many words were shown more often than the answer has them.
    pub(super) fn words_shown_twice(&self) -> usize {
        surplus_words(&self.text, self.scene.answer)
    }

    fn words_missing(&self) -> usize {
        surplus_words(self.scene.answer, &self.text)
    }

    pub(super) fn tools_run_twice(&self) -> usize {
        self.tool_runs.len() - self.tool_runs.iter().collect::<BTreeSet<_>>().len()
    }

    pub(super) fn kills_survived(&self) -> usize {
        match self.last() {
            Some(MomentKind::Answered) => self.count(MomentKind::Killed),
            _ => 0,
        }
    }

    // --- Findings ---

    /// Checks what the scene promises.
    pub(super) fn findings(&self) -> Vec<Finding> {
        let mut findings = vec![self.check_requests()];
        match self.scene.kind {
            SceneKind::Answered if self.count(MomentKind::AnswerBroken) > 0 => {
                findings.push(self.check_words());
            }
            SceneKind::Answered => findings.push(self.check_waits()),
            SceneKind::Killed { .. } => {
                findings.extend([self.check_interrupted_wait(), self.check_tool()]);
            }
            SceneKind::Refused => {}
        }
        findings
    }

    fn check_requests(&self) -> Finding {
        let end = match self.scene.kind {
            SceneKind::Answered | SceneKind::Killed { .. } => MomentKind::Answered,
            SceneKind::Refused => MomentKind::GivenUp,
        };
        let is_whole = self.words_missing() == 0 && self.words_shown_twice() == 0;
        let ended = self.last() == Some(end) && is_whole;
        let count = self.requests;
        let as_many =
            count == self.scene.expected_requests() && count == self.count(MomentKind::RequestSent);
        let requests = if count == 1 { "request" } else { "requests" };
        let then = match (end, ended) {
            (MomentKind::Answered, true) => "and the answer is here",
            (MomentKind::Answered, false) => "and no whole answer",
            (_, true) => "and not one more",
            (_, false) => "and it did not end as it should",
        };
        Finding {
            has_passed: ended && as_many,
            message: format!("{count} {requests} reached the provider, {then}."),
        }
    }

    fn check_waits(&self) -> Finding {
        let (waits, expected) = (self.waits(), self.scene.expected_waits);
        let mut pairs = waits.iter().zip(expected);
        let stated = expected.last().copied().unwrap_or_default();
        Finding {
            has_passed: waits.len() == expected.len()
                && pairs.all(|(wait, least)| is_long_enough(*wait, *least)),
            message: format!(
                "It waited {}; the last time it was told {}.",
                join_durations(&waits),
                format_duration(stated)
            ),
        }
    }

    fn check_words(&self) -> Finding {
        let (missing, twice) = (self.words_missing(), self.words_shown_twice());
        let all = self.scene.answer.split_whitespace().count();
        let shown = all - missing.min(all);
        Finding {
            has_passed: missing == 0 && twice == 0,
            message: format!("{shown} of {all} words were shown, {twice} of them twice."),
        }
    }

    /// Checks that the wait went on after the kill until its stated end.
    fn check_interrupted_wait(&self) -> Finding {
        let mut moments = self.moments.iter().rev();
        let sent = moments.find(|moment| moment.kind == MomentKind::RequestSent);
        let sent = sent.map(|moment| moment.at).unwrap_or_default();
        let until = self.last_wait_end.unwrap_or_default();
        let in_time = is_long_enough(sent, until);
        Finding {
            has_passed: in_time && self.kills_survived() == 1,
            message: match in_time {
                true => format!(
                    "It waited {} in all, across the kill, and asked {} after its time had come.",
                    format_duration(self.waits().iter().sum()),
                    format_duration(sent.saturating_sub(until))
                ),
                false => "It asked before its time had come.".to_owned(),
            },
        }
    }

    fn check_tool(&self) -> Finding {
        let runs = self.tool_runs.len();
        let (lines, often) = match runs {
            1 => ("line", "once".to_owned()),
            _ => ("lines", format!("{runs} times")),
        };
        Finding {
            has_passed: runs == 1,
            message: format!(
                "{TOOL_LOG_FILE} has {runs} {lines}: across the kill, the tool ran {often}."
            ),
        }
    }
}

/// Returns how many words of the first text are missing in the second.
fn surplus_words(first: &str, second: &str) -> usize {
    let mut left: Vec<&str> = second.split_whitespace().collect();
    let is_surplus = |word: &&str| match left.iter().position(|other| other == word) {
        Some(place) => {
            left.swap_remove(place);
            false
        }
        None => true,
    };
    first.split_whitespace().filter(is_surplus).count()
}

/// Reports whether a wait was long enough. It may be a hundredth shorter: an accelerated clock counts in large steps.
fn is_long_enough(time: Duration, least: Duration) -> bool {
    time + least / 100 >= least
}

#[cfg(test)]
mod tests {
    use super::super::scenes::SCENES;
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(1_800_000_000_000 + 1000 * seconds)
    }

    /// Returns the record of the scene with the kill, as it should be.
    fn killed() -> Record {
        use MomentKind::{Answered, Killed, RequestSent, Resumed, ToolStarted, WaitStarted};
        let mut record = Record::new(&SCENES[2]);
        let moments = [
            (0, RequestSent),
            (1, ToolStarted),
            (2, RequestSent),
            (3, WaitStarted),
            (7200, Killed),
            (9000, Resumed),
            (9000, WaitStarted),
            (18_004, RequestSent),
            (18_005, Answered),
        ];
        for (seconds, what) in moments {
            record.add(at(seconds), what);
        }
        record.requests = 3;
        record.text = SCENES[2].answer.to_owned();
        record.tool_runs = vec!["ran".to_owned()];
        record.last_wait_end = Some(Duration::from_secs(18_003));
        record
    }

    fn broken(change: impl FnOnce(&mut Record)) -> Vec<String> {
        let mut record = killed();
        change(&mut record);
        let findings = record.findings().into_iter();
        let broken = findings.filter(|finding| !finding.has_passed);
        broken.map(|finding| finding.message).collect()
    }

    #[test]
    fn expected_record_has_no_failed_finding() {
        assert_eq!(broken(|_| {}), [""; 0]);
    }

    #[test]
    fn finding_reports_tool_that_ran_twice() {
        let found = broken(|record| record.tool_runs.push("ran".to_owned()));
        assert_eq!(
            found,
            ["proof.txt has 2 lines: across the kill, the tool ran 2 times."]
        );
    }

    #[test]
    fn finding_reports_surplus_request() {
        let found = broken(|record| record.requests = 4);
        assert_eq!(
            found,
            ["4 requests reached the provider, and the answer is here."]
        );
    }

    #[test]
    fn finding_reports_wait_that_ended_early() {
        let found = broken(|record| record.last_wait_end = Some(Duration::from_secs(19_000)));
        assert_eq!(found, ["It asked before its time had come."]);
    }

    #[test]
    fn finding_reports_missing_or_repeated_words() {
        for text in ["The line is in the", "The line line is in the file."] {
            let found = broken(|record| record.text = text.to_owned());
            assert_eq!(
                found,
                ["3 requests reached the provider, and no whole answer."]
            );
        }
    }
}
