use super::super::scenes::{SCENES, Scene};
use super::*;

fn record(name: &'static str, moments: &[(u64, MomentKind)]) -> Record {
    let answer = "two words";
    let scene = Scene {
        name,
        answer,
        ..SCENES[0]
    };
    let mut record = Record::new(Box::leak(Box::new(scene)));
    let moment = |(millis, what): &(u64, MomentKind)| Moment {
        at: Duration::from_millis(*millis),
        kind: *what,
    };
    record.moments = moments.iter().map(moment).collect();
    record.requests = record.count(MomentKind::RequestSent);
    record.text = "two words".to_owned();
    record
}

/// What a run of the demo looks like.
fn outage() -> Vec<Record> {
    use MomentKind::{
        AnswerBroken, Answered, GivenUp, Killed, RequestSent, Resumed, ToolStarted, WaitStarted,
    };
    const MINUTE: u64 = 60_000;
    let mut records = vec![
        record(
            "overload",
            &[
                (0, RequestSent),
                (10, WaitStarted),
                (5020, RequestSent),
                (5030, WaitStarted),
                (15_040, RequestSent),
                (15_050, WaitStarted),
                (60_070, RequestSent),
                (60_100, Answered),
            ],
        ),
        record(
            "cut",
            &[
                (0, RequestSent),
                (20, AnswerBroken),
                (20, WaitStarted),
                (5020, RequestSent),
                (5030, Answered),
            ],
        ),
        record(
            "5h window",
            &[
                (0, RequestSent),
                (9000, ToolStarted),
                (12_000, RequestSent),
                (15_000, WaitStarted),
                (120 * MINUTE, Killed),
                (196 * MINUTE, Resumed),
                (196 * MINUTE, WaitStarted),
                (300 * MINUTE + 20_000, RequestSent),
                (300 * MINUTE + 40_000, Answered),
            ],
        ),
        record("wrong key", &[(0, RequestSent), (220, GivenUp)]),
    ];
    records[2].tool_runs = vec!["the tool ran".to_owned()];
    records
}

fn shown(records: &[Record], columns: usize) -> String {
    let text = picture(records, Duration::from_secs(93), columns);
    for line in text.lines() {
        assert!(width(line) <= columns, "{line}");
    }
    text
}

#[test]
fn wide_picture_has_row_per_scene() {
    insta::assert_snapshot!(shown(&outage(), 100));
}

#[test]
fn sixty_column_picture_has_same_rows() {
    insta::assert_snapshot!(shown(&outage(), 60));
}

#[test]
fn picture_never_panics_at_any_width_or_without_records() {
    let empty = [record("empty", &[])];
    for columns in 1..130 {
        shown(&outage(), columns);
        shown(&empty, columns);
        shown(&[], columns);
    }
}

#[test]
fn totals_count_repeated_tool_runs_and_words() {
    let mut records = outage();
    records[0].text = "two words words two two".to_owned();
    records[2].tool_runs.push("the tool ran".to_owned());
    records[2].moments.pop();
    let line = totals(&records, Duration::ZERO);
    let expected = "Requests: 10. Waited: 5h1m (in 0s of yours). Kills survived: 0. Tools run: 2, twice: 1. \
                    Words shown twice: 3.";
    assert_eq!(line, expected);
}

#[test]
fn wait_interrupted_by_kill_counts_as_one_wait() {
    let waits = outage()[2].waits();
    assert_eq!(join_durations(&waits), "5h");
    assert_eq!(join_durations(&outage()[0].waits()), "5s, 10s and 45s");
}
