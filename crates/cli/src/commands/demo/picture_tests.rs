use super::*;

fn record(name: &'static str, moments: &[(u64, MomentKind)]) -> Record {
    let mut record = Record::new(name, "two words");
    let moment = |(millis, what): &(u64, MomentKind)| Moment {
        at: Duration::from_millis(*millis),
        what: *what,
    };
    record.moments = moments.iter().map(moment).collect();
    record.requests = record.count(MomentKind::Asked);
    record.text = "two words".to_owned();
    record
}

/// What a run of the demo looks like.
fn outage() -> Vec<Record> {
    use MomentKind::{Answered, Asked, Cut, Killed, Resumed, Stopped, Tool, Waits};
    const MINUTE: u64 = 60_000;
    let mut records = vec![
        record(
            "overload",
            &[
                (0, Asked),
                (10, Waits),
                (5020, Asked),
                (5030, Waits),
                (15_040, Asked),
                (15_050, Waits),
                (60_070, Asked),
                (60_100, Answered),
            ],
        ),
        record(
            "cut",
            &[
                (0, Asked),
                (20, Cut),
                (20, Waits),
                (5020, Asked),
                (5030, Answered),
            ],
        ),
        record(
            "5h window",
            &[
                (0, Asked),
                (9000, Tool),
                (12_000, Asked),
                (15_000, Waits),
                (120 * MINUTE, Killed),
                (196 * MINUTE, Resumed),
                (196 * MINUTE, Waits),
                (300 * MINUTE + 20_000, Asked),
                (300 * MINUTE + 40_000, Answered),
            ],
        ),
        record("wrong key", &[(0, Asked), (220, Stopped)]),
    ];
    records[2].tool_runs = vec!["the tool ran".to_owned()];
    records
}

fn shown(records: &[Record], columns: usize) -> String {
    let text = text(
        records,
        &Totals::of(records, Duration::from_secs(93)),
        columns,
    );
    for line in text.lines() {
        assert!(width(line) <= columns, "{line}");
    }
    text
}

#[test]
fn a_wide_picture_has_a_row_for_each_scene() {
    insta::assert_snapshot!(shown(&outage(), 100));
}

#[test]
fn a_picture_of_sixty_columns_has_the_same_rows() {
    insta::assert_snapshot!(shown(&outage(), 60));
}

#[test]
fn no_width_and_no_record_breaks_the_picture() {
    let empty = [record("empty", &[])];
    for columns in 1..130 {
        shown(&outage(), columns);
        shown(&empty, columns);
        shown(&[], columns);
    }
}

#[test]
fn what_happened_twice_is_counted() {
    let mut records = outage();
    records[0].text = "two words words two two".to_owned();
    records[2].tool_runs.push("the tool ran".to_owned());
    records[2].moments.pop();
    let line = Totals::of(&records, Duration::ZERO).line();
    let expected = "Requests: 10. Waited: 5h1m (in 0s of yours). Kills survived: 0. Tools run: 2, twice: 1. \
                    Words shown twice: 3.";
    assert_eq!(line, expected);
}

#[test]
fn a_wait_that_a_kill_interrupts_is_one_wait() {
    let waits = outage()[2].waits();
    assert_eq!(listed(&waits), "5h");
    assert_eq!(listed(&outage()[0].waits()), "5s, 10s and 45s");
}

#[test]
fn the_drawing_says_the_same() {
    let records = outage();
    let totals = Totals::of(&records, Duration::from_secs(93));
    let svg = crate::commands::demo::drawing::svg(&records, &totals).unwrap();
    for word in ["3 5h window", "killed 2h", "answered 5h", &totals.line()] {
        assert!(svg.contains(word), "{word}");
    }
}
