//! When steps worked and waited: a row for each step, a bar for each attempt, in percent of the width.
//!
//! Where no process was at work for long, the scale is broken: a night between two halves of an hour would leave nothing
//! of them to be seen. Invariant: the timeline is bounded for any run, and counts what it leaves out.

use super::super::entry::{NextAction, Outcome};
use super::super::state::{Attempt, StepState, Visit};
use super::FullRun;
use super::failures::attempt_name;
use super::measure::{self, TimeRange};
use super::summary::{one_line, outcome};
use outlast_kernel::time::{Span, millis};
use outlast_kernel::verdict::{Cause, Class};
use outlast_kernel::{Timestamp, text};
use std::time::Duration;

/// Maximum number of rows.
const MAX_ROWS: usize = 250;
/// Maximum number of bars: more than anybody can tell apart.
const MAX_BARS: usize = 8000;
/// Maximum number of marks for processes that resumed the run.
const MAX_RESUMES: usize = 200;
/// Maximum number of breaks; longer lists of gaps are drawn to scale.
const MAX_BREAKS: usize = 6;
/// The width of a break, in percent.
const BREAK_WIDTH: f64 = 4.0;
/// The minimum width of a bar, in percent.
const MIN_WIDTH: f64 = 0.2;
/// The minimum width of a bar with words in it, in percent.
const MIN_LABELLED_WIDTH: f64 = 5.0;
/// The maximum length of a bar's description, in bytes.
const MAX_TITLE_BYTES: usize = 400;
/// The number of parts into which times divide the width.
const PARTS: u8 = 4;

/// The look of a bar: its class in HTML, its name in the legend, and its character in plain text.
#[derive(Debug)]
pub(super) struct Look {
    pub(super) class: &'static str,
    pub(super) legend: &'static str,
    pub(super) symbol: char,
}

const fn look(class: &'static str, legend: &'static str, symbol: char) -> Look {
    Look {
        class,
        legend,
        symbol,
    }
}

const GOOD: &Look = &look("good", "completed", '=');
const RETRIED: &Look = &look("retried", "failed, tried again", 'r');
const FAILED: &Look = &look("bad", "failed for good", 'x');
const WORKING: &Look = &look("working", "under way", '>');
const CANCELLED: &Look = &look("cancelled", "cancelled", 'c');
const INTERRUPTED: &Look = &look("interrupted", "interrupted", 'i');
const WAIT: &Look = &look("waits", "waits", '~');
const GATE: &Look = &look("gate", "gate", '?');
const NO_PROCESS: &Look = &look("nobody", "no process", '.');
/// All looks, in the order of the legend.
pub(super) const LEGEND: [&Look; 9] = [
    GOOD,
    RETRIED,
    FAILED,
    WORKING,
    CANCELLED,
    INTERRUPTED,
    WAIT,
    GATE,
    NO_PROCESS,
];

/// A part of the width, with its meaning.
#[derive(Debug)]
pub(super) struct Bar {
    pub(super) look: &'static Look,
    /// Where it begins, in percent.
    pub(super) left: f64,
    /// How wide it is, in percent.
    pub(super) width: f64,
    /// The full description.
    pub(super) title: String,
    /// The words inside; empty for most.
    pub(super) label: String,
}

/// The bars of a step.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) step: String,
    pub(super) bars: Vec<Bar>,
    /// The phase of a step without visits.
    pub(super) note: String,
}

/// A point in time with its place.
#[derive(Debug)]
pub(super) struct Mark {
    /// In percent.
    pub(super) left: f64,
    pub(super) text: String,
}

/// The timeline of a run.
#[derive(Debug)]
pub(super) struct Timeline {
    pub(super) rows: Vec<Row>,
    /// The long gaps in which no process worked.
    pub(super) gaps: Vec<Bar>,
    pub(super) times: Vec<Mark>,
    pub(super) resumes: Vec<Mark>,
    /// The omissions, in a sentence; empty if there are none.
    pub(super) left_out: String,
}

impl Timeline {
    pub(super) fn new(whole: &FullRun, now: Timestamp) -> Self {
        let run = &whole.run;
        let (end, gaps) = (measure::observed_end(run, now), measure::gaps(run));
        let time = TimeRange {
            from: run.started,
            to: end.max(run.started),
        };
        let scale = Scale::new(time, &gaps);
        let resume = |time: &Timestamp| Mark {
            left: scale.percent(*time),
            text: format!("taken up again at {time}"),
        };
        let steps = whole.steps_by_start();
        let (shown, more) = steps.split_at(steps.len().min(MAX_ROWS));
        let mut timeline = Self {
            rows: Vec::new(),
            gaps: scale.breaks.iter().map(|gap| scale.gap(*gap)).collect(),
            times: scale.times(),
            resumes: run
                .resumed_at
                .iter()
                .take(MAX_RESUMES)
                .map(resume)
                .collect(),
            left_out: String::new(),
        };
        let rows = RowBuilder { scale, end, gaps };
        timeline.rows = shown.iter().map(|(id, step)| rows.row(id, step)).collect();
        timeline.truncate(more.len());
        timeline
    }

    /// Limits the number of bars, and states the omissions.
    fn truncate(&mut self, steps: usize) {
        let (mut room, mut bars) = (MAX_BARS, 0);
        for row in &mut self.rows {
            bars += row.bars.len().saturating_sub(room);
            row.bars.truncate(room);
            room -= row.bars.len();
        }
        self.left_out = match (steps, bars) {
            (0, 0) => String::new(),
            (steps, 0) => format!("There is no room for {steps} more steps."),
            (0, bars) => format!("There is no room for {bars} more bars."),
            (steps, bars) => {
                format!("There is no room for {steps} more steps and {bars} more bars.")
            }
        };
    }
}

/// Converts steps to rows.
struct RowBuilder {
    scale: Scale,
    /// The end of the run, or else the time up to which it is shown.
    end: Timestamp,
    gaps: Vec<TimeRange>,
}

impl RowBuilder {
    fn row(&self, id: &str, step: &StepState) -> Row {
        let visits = step.visits.iter();
        Row {
            step: one_line(id),
            bars: visits.flat_map(|visit| self.visit(id, visit)).collect(),
            note: match step.visits.is_empty() {
                true => outcome(step),
                false => String::new(),
            },
        }
    }

    fn visit(&self, id: &str, visit: &Visit) -> Vec<Bar> {
        let gate = measure::gate_range(visit, self.end);
        if visit.attempts.is_empty() && gate.is_none() {
            return vec![self.bare_visit(id, visit)];
        }
        let mut bars: Vec<Bar> = gate
            .into_iter()
            .map(|open| self.gate(id, visit, open))
            .collect();
        for (index, attempt) in visit.attempts.iter().enumerate() {
            if let Some(whole) = measure::attempt_range(visit, index, self.end) {
                bars.extend(self.attempt(id, visit, attempt, whole));
            }
        }
        bars
    }

    /// A visit without attempts: that of a loop, or of a step that was left.
    fn bare_visit(&self, id: &str, visit: &Visit) -> Bar {
        let ended = visit.ended.as_ref();
        let look = match ended.map(|ended| ended.outcome) {
            Some(Outcome::Completed) => GOOD,
            Some(Outcome::Failed | Outcome::Continued) => FAILED,
            Some(Outcome::Canceled | Outcome::Skipped) => CANCELLED,
            None => WORKING,
        };
        let to = ended.map_or(self.end, |ended| ended.at).max(visit.started);
        let from = visit.started;
        let title = format!("{}, visit {}", one_line(id), visit.number);
        self.scale.bar(TimeRange { from, to }, look, &title)
    }

    fn gate(&self, id: &str, visit: &Visit, open: TimeRange) -> Bar {
        let answer = match (&visit.choice, visit.ended.is_some()) {
            (Some(choice), _) if visit.is_default_choice => {
                format!("nobody answered, {} counts", one_line(choice))
            }
            (Some(choice), _) => format!("answered {}", one_line(choice)),
            (None, true) => "closed".to_owned(),
            (None, false) => "open".to_owned(),
        };
        let length = Span(open.length());
        let title = format!("{}: gate for {length}, {answer}", one_line(id));
        self.scale.bar(open, GATE, &title).labelled(&answer)
    }

    /// The bar of an attempt, and those of its waits.
    fn attempt(&self, id: &str, visit: &Visit, attempt: &Attempt, whole: TimeRange) -> Vec<Bar> {
        let (look, how) = match (&attempt.problem, attempt.ended) {
            (None, Some(_)) => (GOOD, "completed".to_owned()),
            (None, None) if measure::is_interrupted(visit, attempt, &self.gaps) => {
                (INTERRUPTED, "interrupted".to_owned())
            }
            (None, None) => (WORKING, "under way".to_owned()),
            (Some(problem), _) => {
                let look = match (problem.class, &attempt.next) {
                    (Class::Canceled, _) => CANCELLED,
                    (_, Some(NextAction::Stop { .. })) => FAILED,
                    _ => RETRIED,
                };
                let (phrase, message) = (problem.cause.phrase(), one_line(&problem.message));
                (look, format!("{phrase}: {message}"))
            }
        };
        let (name, length) = (attempt_name(id, visit, attempt), Span(whole.length()));
        let title = format!("{name}, {length}: {how}");
        let bar = self.scale.bar(whole, look, &title);
        let waits = attempt.waits.iter().map(|wait| {
            let waited = measure::wait_range(wait, self.end);
            let cause = wait.cause.map_or("", Cause::phrase);
            let (length, since) = (Span(waited.length()), wait.since);
            let title = format!("{name}: waited {length} from {since}: {cause}");
            self.scale.bar(waited, WAIT, &title).labelled(cause)
        });
        std::iter::once(bar).chain(waits).collect()
    }
}

impl Bar {
    /// Adds words inside, if there is room.
    fn labelled(mut self, label: &str) -> Self {
        if self.width >= MIN_LABELLED_WIDTH {
            label.clone_into(&mut self.label);
        }
        self
    }
}

// --- Scale ---

/// Converts times to percent of the width: evenly, except that each break has the same width.
struct Scale {
    whole: TimeRange,
    /// In order, apart from each other.
    breaks: Vec<TimeRange>,
}

impl Scale {
    fn new(whole: TimeRange, gaps: &[TimeRange]) -> Self {
        let all: Duration = gaps.iter().map(|gap| gap.overlap(whole)).sum();
        let rest = whole.length().saturating_sub(all);
        // The gaps that are so long that the rest would suffer.
        let is_long =
            |gap: &&TimeRange| gap.overlap(whole) == gap.length() && gap.length() > rest / 8;
        let mut breaks: Vec<TimeRange> = gaps.iter().filter(is_long).copied().collect();
        breaks.sort_by_key(|gap| std::cmp::Reverse(gap.length()));
        breaks.truncate(MAX_BREAKS);
        breaks.sort_by_key(|gap| gap.from);
        breaks.dedup_by(|later, earlier| later.from < earlier.to);
        Self { whole, breaks }
    }

    fn percent(&self, time: Timestamp) -> f64 {
        let before = TimeRange {
            from: self.whole.from,
            to: time.min(self.whole.to),
        };
        let broken =
            |time: TimeRange| -> Duration { self.breaks.iter().map(|gap| gap.overlap(time)).sum() };
        let even = |time: TimeRange| millis(time.length().saturating_sub(broken(time))) as f64;
        let passed = |gap: &TimeRange| {
            millis(gap.overlap(before)) as f64 / (millis(gap.length()) as f64).max(1.0)
        };
        let room = 100.0 - BREAK_WIDTH * self.breaks.len() as f64;
        let breaks: f64 = self.breaks.iter().map(passed).sum();
        room * even(before) / even(self.whole).max(1.0) + BREAK_WIDTH * breaks
    }

    fn bar(&self, time: TimeRange, look: &'static Look, title: &str) -> Bar {
        let (from, to) = (self.percent(time.from), self.percent(time.to));
        Bar {
            look,
            left: from.min(100.0 - MIN_WIDTH),
            width: (to - from).max(MIN_WIDTH),
            title: text::bounded(title, MAX_TITLE_BYTES).into_owned(),
            label: String::new(),
        }
    }

    fn gap(&self, gap: TimeRange) -> Bar {
        let (length, from) = (Span(gap.length()), gap.from);
        let title = format!("no process is known to have been at work for {length}, from {from}");
        let mut bar = self.bar(gap, NO_PROCESS, &title);
        bar.label = rough_duration(gap.length());
        bar
    }

    /// The times at even distances, each with its day if that is new.
    fn times(&self) -> Vec<Mark> {
        let digits = match millis(self.whole.length()) {
            0..5_000 => 12,
            5_000..1_200_000 => 8,
            _ => 5,
        };
        let mut day = String::new();
        let mut times = Vec::new();
        for part in 0..=PARTS {
            let left = 100.0 * f64::from(part) / f64::from(PARTS);
            let Some(time) = self.time_at(left) else {
                continue;
            };
            let time = time.to_string();
            let (date, clock) = time.split_once('T').unwrap_or((&time, ""));
            let clock = clock.get(..digits).unwrap_or(clock);
            let text = match day == date {
                true => clock.to_owned(),
                false => format!("{date} {clock}"),
            };
            date.clone_into(&mut day);
            times.push(Mark { left, text });
        }
        times
    }

    /// The time at a place; `None` within a break.
    fn time_at(&self, percent: f64) -> Option<Timestamp> {
        let (mut early, mut late) = (self.whole.from.as_millis(), self.whole.to.as_millis());
        while early < late {
            let middle = early.midpoint(late);
            match self.percent(Timestamp::from_millis(middle)) < percent {
                true => early = middle + 1,
                false => late = middle,
            }
        }
        let time = Timestamp::from_millis(early);
        let is_inside = |gap: &TimeRange| gap.from < time && time < gap.to;
        (!self.breaks.iter().any(is_inside)).then_some(time)
    }
}

/// A long time in a few letters.
fn rough_duration(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}
