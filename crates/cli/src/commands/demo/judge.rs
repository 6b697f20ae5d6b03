//! What came of a scene: each thing that was promised, and whether what was measured bears it out.

use super::picture::{format_duration, join_durations};
use super::record::{MomentKind, Record};
use super::scenes::{Scene, SceneKind, TOOL_LOG_FILE};
use std::time::Duration;

/// Something that was promised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) has_passed: bool,
    /// What was measured.
    pub(super) message: String,
}

pub(super) fn findings(scene: &Scene, record: &Record) -> Vec<Finding> {
    let mut findings = vec![check_requests(scene, record)];
    match scene.kind {
        SceneKind::Answered if record.count(MomentKind::AnswerBroken) > 0 => {
            findings.push(check_words(record))
        }
        SceneKind::Answered => findings.push(check_waits(scene, record)),
        SceneKind::Killed { .. } => {
            findings.extend([check_interrupted_wait(record), check_tool(record)])
        }
        SceneKind::Refused => {}
    }
    findings
}

fn check_requests(scene: &Scene, record: &Record) -> Finding {
    let end = match scene.kind {
        SceneKind::Answered | SceneKind::Killed { .. } => MomentKind::Answered,
        SceneKind::Refused => MomentKind::GivenUp,
    };
    let ended = record.last() == Some(end);
    let whole = record.words_missing() == 0 && record.words_shown_twice() == 0;
    let count = record.requests;
    let as_many =
        count == scene.expected_requests() && count == record.count(MomentKind::RequestSent);
    let requests = if count == 1 { "request" } else { "requests" };
    let then = match (end, ended && whole) {
        (MomentKind::Answered, true) => "and the answer is here",
        (MomentKind::Answered, false) => "and no whole answer",
        (_, true) => "and not one more",
        (_, false) => "and it did not end as it should",
    };
    Finding {
        has_passed: ended && whole && as_many,
        message: format!("{count} {requests} reached the provider, {then}."),
    }
}

/// Whether that is as long as it was to be. A hundredth may be lost: a clock that is sped up counts in large steps.
fn is_long_enough(time: Duration, least: Duration) -> bool {
    time + least / 100 >= least
}

fn check_waits(scene: &Scene, record: &Record) -> Finding {
    let waits = record.waits();
    let long_enough = |(wait, least): (&Duration, &Duration)| is_long_enough(*wait, *least);
    let stated = scene.expected_waits.last().copied().unwrap_or_default();
    let has_passed = waits.len() == scene.expected_waits.len()
        && waits.iter().zip(scene.expected_waits).all(long_enough);
    let (waits, stated) = (join_durations(&waits), format_duration(stated));
    Finding {
        has_passed,
        message: format!("It waited {waits}; the last time it was told {stated}."),
    }
}

fn check_words(record: &Record) -> Finding {
    let (missing, twice) = (record.words_missing(), record.words_shown_twice());
    let all = record.expected_text.split_whitespace().count();
    let shown = all - missing.min(all);
    Finding {
        has_passed: missing == 0 && twice == 0,
        message: format!("{shown} of {all} words were shown, {twice} of them twice."),
    }
}

/// The rest of a wait that a kill has interrupted.
fn check_interrupted_wait(record: &Record) -> Finding {
    let asked = record
        .moments
        .iter()
        .rev()
        .find(|moment| moment.kind == MomentKind::RequestSent);
    let asked = asked.map(|moment| moment.at).unwrap_or_default();
    let until = record.last_wait_end.unwrap_or_default();
    let waited = format_duration(record.waits().iter().sum());
    let in_time = is_long_enough(asked, until);
    let late = format_duration(asked.saturating_sub(until));
    Finding {
        has_passed: in_time && record.kills_survived() == 1,
        message: match in_time {
            true => format!(
                "It waited {waited} in all, across the kill, and asked {late} after its time had come."
            ),
            false => "It asked before its time had come.".to_owned(),
        },
    }
}

fn check_tool(record: &Record) -> Finding {
    let (runs, twice) = (record.tool_runs.len(), record.tools_run_twice());
    let (lines, often) = match runs {
        1 => ("line", "once".to_owned()),
        _ => ("lines", format!("{runs} times")),
    };
    Finding {
        has_passed: runs == 1 && twice == 0,
        message: format!(
            "{TOOL_LOG_FILE} has {runs} {lines}: across the kill, the tool ran {often}."
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::demo::scenes::SCENES;
    use outlast_kernel::Timestamp;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(1_800_000_000_000 + 1000 * seconds)
    }

    /// The scene with the kill, as it should go.
    fn killed() -> Record {
        use MomentKind::{Answered, Killed, RequestSent, Resumed, ToolStarted, WaitStarted};
        let mut record = Record::new(SCENES[2].name, SCENES[2].answer);
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
        let findings = findings(&SCENES[2], &record).into_iter();
        let broken = findings.filter(|finding| !finding.has_passed);
        broken.map(|finding| finding.message).collect()
    }

    #[test]
    fn judge_accepts_expected_record() {
        assert_eq!(broken(|_| {}), [""; 0]);
    }

    #[test]
    fn judge_reports_tool_that_ran_twice() {
        let found = broken(|record| record.tool_runs.push("ran".to_owned()));
        assert_eq!(
            found,
            ["proof.txt has 2 lines: across the kill, the tool ran 2 times."]
        );
    }

    #[test]
    fn judge_reports_surplus_request() {
        let found = broken(|record| record.requests = 4);
        assert_eq!(
            found,
            ["4 requests reached the provider, and the answer is here."]
        );
    }

    #[test]
    fn judge_reports_wait_that_ended_early() {
        let found = broken(|record| record.last_wait_end = Some(Duration::from_secs(19_000)));
        assert_eq!(found, ["It asked before its time had come."]);
    }

    #[test]
    fn judge_reports_missing_or_repeated_words() {
        for text in ["The line is in the", "The line line is in the file."] {
            let found = broken(|record| record.text = text.to_owned());
            assert_eq!(
                found,
                ["3 requests reached the provider, and no whole answer."]
            );
        }
    }
}
