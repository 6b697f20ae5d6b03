//! From times to places in a picture.
//!
//! Where no process was at work for long, the axis is broken: a night between two halves of an hour would leave nothing
//! of them to be seen.

use super::measure::TimeRange;
use outlast_kernel::Timestamp;
use std::time::Duration;

/// How wide a break is.
const BREAK_WIDTH: f64 = 46.0;
/// The most breaks; more are drawn as they are.
const MAX_BREAKS: usize = 6;
/// How far apart two marks are at least.
const MIN_TICK_SPACING: f64 = 92.0;
/// What marks can be apart, in milliseconds.
const TICK_INTERVALS_MS: [u64; 29] = [
    1,
    2,
    5,
    10,
    20,
    50,
    100,
    200,
    500,
    SECOND,
    2 * SECOND,
    5 * SECOND,
    10 * SECOND,
    15 * SECOND,
    30 * SECOND,
    MINUTE,
    2 * MINUTE,
    5 * MINUTE,
    10 * MINUTE,
    15 * MINUTE,
    30 * MINUTE,
    HOUR,
    2 * HOUR,
    3 * HOUR,
    6 * HOUR,
    12 * HOUR,
    24 * HOUR,
    7 * 24 * HOUR,
    30 * 24 * HOUR,
];
const SECOND: u64 = 1000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;

/// From times to places.
#[derive(Debug)]
pub(super) struct Axis {
    pieces: Vec<Segment>,
}

/// A part of the axis that is drawn evenly.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub(super) time: TimeRange,
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) is_break: bool,
}

/// A time on the axis.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tick {
    pub(super) x: f64,
    pub(super) time: String,
    /// The day, where it begins to count.
    pub(super) day: Option<String>,
}

impl Axis {
    /// An axis for that time, between these places, with breaks where they help.
    pub(super) fn new(whole: TimeRange, gaps: &[TimeRange], left: f64, right: f64) -> Self {
        let breaks = breaks(whole, gaps);
        let broken: Duration = breaks.iter().map(|gap| gap.length()).sum();
        let drawn = millis(whole.length().saturating_sub(broken)).max(1.0);
        let room = right - left - BREAK_WIDTH * breaks.len() as f64;
        let mut pieces = Vec::new();
        let (mut from, mut x) = (whole.from, left);
        let mut add = |time: TimeRange, width: f64, is_break: bool| {
            pieces.push(Segment {
                time,
                left: x,
                right: x + width,
                is_break,
            });
            x += width;
        };
        for gap in breaks {
            let before = TimeRange { from, to: gap.from };
            add(before, millis(before.length()) / drawn * room, false);
            add(gap, BREAK_WIDTH, true);
            from = gap.to;
        }
        let rest = TimeRange { from, to: whole.to };
        add(rest, millis(rest.length()) / drawn * room, false);
        Self { pieces }
    }

    /// Where that time is.
    pub(super) fn x_at(&self, time: Timestamp) -> f64 {
        let piece = self.pieces.iter().find(|piece| time <= piece.time.to);
        let Some(piece) = piece.or(self.pieces.last()) else {
            return 0.0;
        };
        let length = millis(piece.time.length()).max(1.0);
        let share = (millis(time.since(piece.time.from)) / length).min(1.0);
        piece.left + share * (piece.right - piece.left)
    }

    /// Where it is broken.
    pub(super) fn breaks(&self) -> impl Iterator<Item = &Segment> {
        self.pieces.iter().filter(|piece| piece.is_break)
    }

    /// The times that stand on it.
    pub(super) fn ticks(&self) -> Vec<Tick> {
        let even = || self.pieces.iter().filter(|piece| !piece.is_break);
        let drawn: u64 = even().map(|piece| whole_millis(piece.time.length())).sum();
        let room: f64 = even().map(|piece| piece.right - piece.left).sum();
        let per_mark = drawn as f64 * MIN_TICK_SPACING / room.max(1.0);
        let fits = |step: &&u64| **step as f64 >= per_mark;
        let step = TICK_INTERVALS_MS.iter().find(fits).copied();
        // A run that took years has marks that are years apart.
        let step = step.unwrap_or((drawn / 8).max(1));
        let mut marks: Vec<Tick> = Vec::new();
        let (mut day, mut last) = (String::new(), f64::NEG_INFINITY);
        for piece in even() {
            let mut at = piece.time.from.as_millis().next_multiple_of(step);
            while at <= piece.time.to.as_millis() {
                let time = Timestamp::from_millis(at);
                let x = self.x_at(time);
                // After a break the next one may come too soon.
                if x - last >= MIN_TICK_SPACING / 2.0 {
                    let (date, clock) = format_time(time, step);
                    let is_new = date != day;
                    marks.push(Tick {
                        x,
                        time: clock,
                        day: is_new.then(|| date.clone()),
                    });
                    (day, last) = (date, x);
                }
                at += step;
            }
        }
        marks
    }
}

/// The gaps that are so long that the rest would suffer, in order and apart from each other.
fn breaks(whole: TimeRange, gaps: &[TimeRange]) -> Vec<TimeRange> {
    let all: Duration = gaps.iter().map(|gap| gap.overlap(whole)).sum();
    let rest = whole.length().saturating_sub(all);
    let mut long: Vec<TimeRange> = gaps
        .iter()
        .filter(|gap| gap.overlap(whole) == gap.length() && gap.length() > rest / 8)
        .copied()
        .collect();
    long.sort_by_key(|gap| std::cmp::Reverse(gap.length()));
    long.truncate(MAX_BREAKS);
    long.sort_by_key(|gap| gap.from);
    long.dedup_by(|later, earlier| later.from < earlier.to);
    long
}

/// The day and the time of day, as exact as the marks are.
fn format_time(time: Timestamp, step: u64) -> (String, String) {
    let text = time.to_string();
    let (day, clock) = text.split_once('T').unwrap_or((&text, ""));
    let clock = match step {
        0..SECOND => clock.trim_end_matches('Z'),
        SECOND..MINUTE => clock.get(..8).unwrap_or_default(),
        _ => clock.get(..5).unwrap_or_default(),
    };
    (day.to_owned(), clock.to_owned())
}

fn millis(duration: Duration) -> f64 {
    whole_millis(duration) as f64
}

fn whole_millis(duration: Duration) -> u64 {
    outlast_kernel::time::millis(duration)
}
