//! When steps worked and waited, as a picture: a row for each step, a bar for each attempt.
//!
//! Invariant: it stays legible and bounded for any run; what is left out is said in the picture.

use super::super::entry::{NextAction, Outcome};
use super::super::state::{Attempt, Run, StepState, Visit};
use super::FullRun;
use super::axis::Axis;
use super::drawing::{Drawing, Rect, Style};
use super::failures::attempt_name;
use super::measure::{self, TimeRange};
use super::summary::{one_line, outcome, title};
use outlast_kernel::Timestamp;
use outlast_kernel::time::Span;
use outlast_kernel::verdict::Class;

const WIDTH: f64 = 1100.0;
/// Where names end, and bars begin.
const LEFT: f64 = 190.0;
const RIGHT: f64 = WIDTH - 40.0;
/// Where the first row begins.
const TOP: f64 = 96.0;
/// What follows the rows: times, the legend, what was left out.
const BOTTOM: f64 = 84.0;
/// The most rows.
const MAX_ROWS: usize = 250;
/// From so many rows on they are closer.
const COMPACT_ROWS_FROM: usize = 30;
/// The most marks for processes that took the run up.
const MAX_RESUMES: usize = 200;
/// The most letters of a name.
const MAX_NAME_CHARS: usize = 25;
/// The most letters of the title.
const MAX_TITLE_CHARS: usize = 90;
/// A bar that is there can be seen.
const MIN_BAR_WIDTH: f64 = 2.0;
/// How wide a letter is, about, in the small font.
const CHAR_WIDTH: f64 = 5.6;

const TITLE: Style = r##"font-size="17" font-weight="600" fill="#1c2430""##;
const SUBTITLE: Style = r##"font-size="12" fill="#5b6470""##;
const NAME: Style = r##"font-size="12" fill="#1c2430" text-anchor="end""##;
const CLOCK: Style = r##"font-size="11" fill="#5b6470" text-anchor="middle""##;
const DAY: Style = r##"font-size="10" fill="#8a919c" text-anchor="middle""##;
const INSIDE: Style = r##"font-size="10" fill="#6b4a05" text-anchor="middle""##;
const GATE_TEXT: Style = r##"font-size="10" fill="#4b2e83" text-anchor="middle""##;
const NUMBER: Style = r##"font-size="9" font-weight="700" fill="#ffffff""##;
const PLACEHOLDER: Style = r##"font-size="11" fill="#8a919c" font-style="italic""##;
const LEGEND: Style = r##"font-size="11" fill="#3c4552""##;

const STRIPE: Style = r##"fill="#f5f7fa""##;
const GRID: Style = r##"stroke="#e3e6eb" stroke-width="1""##;
const RESUME: Style = r##"stroke="#5a4fcf" stroke-width="1.5" stroke-dasharray="4 3""##;

const GOOD: Style = r##"rx="2" fill="#2f9e60""##;
const RETRIED: Style = r##"rx="2" fill="#e08a1e""##;
const FAILED: Style = r##"rx="2" fill="#cf3b3b""##;
const WORKING: Style = r##"rx="2" fill="#3f83d6""##;
const CANCELED: Style = r##"rx="2" fill="#9aa1ac""##;
const INTERRUPTED: Style =
    r##"rx="2" fill="#eceef1" stroke="#9aa1ac" stroke-width="1" stroke-dasharray="3 2""##;
const WAIT: Style = r##"fill="url(#waits)" stroke="#d99a1c" stroke-width="0.6""##;
const GATE: Style = r##"rx="2" fill="#e9defa" stroke="#8b5fbf" stroke-width="1""##;
const NO_PROCESS: Style = r##"fill="url(#nobody)""##;

/// The picture of a run.
pub(super) fn draw(whole: &FullRun, id: &str, now: Timestamp) -> Drawing {
    let run = &whole.run;
    let steps = measure::steps_by_start(whole);
    let more = steps.len().saturating_sub(MAX_ROWS);
    let shown = &steps[..steps.len() - more];
    let row = if shown.len() > COMPACT_ROWS_FROM {
        18.0
    } else {
        26.0
    };
    let bottom = TOP + row * shown.len().max(1) as f64;
    let end = measure::observed_end(run, now);
    let whole = TimeRange {
        from: run.started,
        to: end.max(run.started),
    };
    let gaps = measure::gaps(run);
    let mut picture = Timeline {
        drawing: Drawing::new(
            (WIDTH, bottom + BOTTOM),
            &format!("Timeline of {}", title(run)),
        ),
        axis: Axis::new(whole, &gaps, LEFT, RIGHT),
        row,
        bottom,
        end,
        gaps,
    };
    picture.draw_header(run, id);
    picture.draw_background(shown.len(), run);
    for (index, (id, step)) in shown.iter().enumerate() {
        picture.step(index, id, step);
    }
    picture.resumes(run);
    picture.legend();
    picture.left_out(more);
    picture.drawing
}

struct Timeline {
    drawing: Drawing,
    axis: Axis,
    /// How high a row is.
    row: f64,
    /// Where the last row ends.
    bottom: f64,
    /// Until when the run is looked at.
    end: Timestamp,
    gaps: Vec<TimeRange>,
}

impl Timeline {
    fn draw_header(&mut self, run: &Run, id: &str) {
        let (from, took) = (run.started, Span(self.end.since(run.started)));
        let how = match run.ended.as_ref().map(|ended| ended.outcome) {
            None => "not finished",
            Some(Outcome::Completed | Outcome::Continued) => "completed",
            Some(Outcome::Canceled) => "cancelled",
            Some(Outcome::Failed | Outcome::Skipped) => "failed",
        };
        let id = one_line(id);
        let title = truncate_chars(&title(run), MAX_TITLE_CHARS);
        self.drawing.text((24.0, 30.0), TITLE, &title);
        let subtitle = format!("{how} · {took} · from {from} (UTC) · run {id}");
        self.drawing.text((24.0, 50.0), SUBTITLE, &subtitle);
    }

    /// Stripes, times, and where nobody was at work.
    fn draw_background(&mut self, rows: usize, run: &Run) {
        for index in (1..rows).step_by(2) {
            let area = Rect {
                x: 0.0,
                y: TOP + self.row * index as f64,
                width: WIDTH,
                height: self.row,
            };
            self.drawing.rectangle(area, STRIPE, "");
        }
        let breaks: Vec<_> = self.axis.breaks().copied().collect();
        for gap in breaks {
            let area = Rect {
                x: gap.left,
                y: TOP,
                width: gap.right - gap.left,
                height: self.bottom - TOP,
            };
            let (length, from) = (Span(gap.time.length()), gap.time.from);
            let title =
                format!("no process is known to have been at work for {length}, from {from}");
            self.drawing.rectangle(area, NO_PROCESS, &title);
            let rough = rough_duration(gap.time);
            let place = (f64::midpoint(gap.left, gap.right), TOP - 8.0);
            self.drawing.text(place, DAY, &rough);
        }
        if run.started < self.end {
            self.draw_ticks();
        }
    }

    fn draw_ticks(&mut self) {
        for mark in self.axis.ticks() {
            self.drawing
                .line((mark.x, TOP), (mark.x, self.bottom), (GRID, ""));
            self.drawing.text((mark.x, TOP - 8.0), CLOCK, &mark.time);
            self.drawing
                .text((mark.x, self.bottom + 15.0), CLOCK, &mark.time);
            if let Some(day) = mark.day {
                self.drawing.text((mark.x, TOP - 22.0), DAY, &day);
            }
        }
    }

    fn step(&mut self, index: usize, id: &str, step: &StepState) {
        let y = TOP + self.row * index as f64;
        let name = truncate_chars(&one_line(id), MAX_NAME_CHARS);
        let base = y + self.row / 2.0 + 4.0;
        self.drawing.text((LEFT - 12.0, base), NAME, &name);
        if step.visits.is_empty() {
            self.drawing
                .text((LEFT + 6.0, base), PLACEHOLDER, &outcome(step));
        }
        for visit in &step.visits {
            self.visit(y, id, visit, step.visits.len() > 1);
        }
    }

    fn visit(&mut self, y: f64, id: &str, visit: &Visit, is_numbered: bool) {
        let name = one_line(id);
        if visit.attempts.is_empty() && visit.gate.is_none() {
            self.empty_visit(y, &name, visit);
        }
        if let Some(open) = measure::gate_range(visit, self.end) {
            let said = match (&visit.choice, visit.ended.is_some()) {
                (Some(choice), _) if visit.is_default_choice => {
                    format!("nobody answered, {} counts", one_line(choice))
                }
                (Some(choice), _) => format!("answered {}", one_line(choice)),
                (None, true) => "closed".to_owned(),
                (None, false) => "open".to_owned(),
            };
            let length = Span(open.length());
            let area = self.bar(y, open, GATE, &format!("{name}: gate for {length}, {said}"));
            self.label_inside(area, GATE_TEXT, &said);
        }
        for (index, attempt) in visit.attempts.iter().enumerate() {
            let Some(whole) = measure::attempt_range(visit, index, self.end) else {
                continue;
            };
            self.attempt(y, whole, id, visit, attempt);
            if is_numbered && index == 0 {
                self.number(y, whole, visit.number);
            }
        }
    }

    /// A visit of which nothing is known but when it was: that of a loop, or of a step that was left.
    fn empty_visit(&mut self, y: f64, name: &str, visit: &Visit) {
        let ended = visit.ended.as_ref();
        let to = ended.map_or(self.end, |ended| ended.at);
        let look = match ended.map(|ended| ended.outcome) {
            Some(Outcome::Completed) => GOOD,
            Some(Outcome::Failed | Outcome::Continued) => FAILED,
            Some(Outcome::Canceled | Outcome::Skipped) => CANCELED,
            None => WORKING,
        };
        let time = TimeRange {
            from: visit.started,
            to: to.max(visit.started),
        };
        self.bar(y, time, look, &format!("{name}, visit {}", visit.number));
    }

    fn attempt(&mut self, y: f64, whole: TimeRange, id: &str, visit: &Visit, attempt: &Attempt) {
        let is_interrupted = measure::is_interrupted(visit, attempt, &self.gaps);
        let name = attempt_name(id, visit, attempt);
        let length = Span(whole.length());
        let (look, how) = match (&attempt.problem, attempt.ended) {
            (None, Some(_)) => (GOOD, "completed".to_owned()),
            (None, None) if is_interrupted => (INTERRUPTED, "interrupted".to_owned()),
            (None, None) => (WORKING, "under way".to_owned()),
            (Some(problem), _) => {
                let look = match (problem.class, &attempt.next) {
                    (Class::Canceled, _) => CANCELED,
                    (_, Some(NextAction::Stop { .. })) => FAILED,
                    _ => RETRIED,
                };
                let (phrase, message) = (problem.cause.phrase(), one_line(&problem.message));
                (look, format!("{phrase}: {message}"))
            }
        };
        self.bar(y, whole, look, &format!("{name}, {length}: {how}"));
        for wait in &attempt.waits {
            let waited = measure::wait_range(wait, self.end);
            let cause = wait
                .cause
                .map_or("", outlast_kernel::verdict::Cause::phrase);
            let length = Span(waited.length());
            let title = format!("{name}: waited {length} from {}: {cause}", wait.since);
            let mut area = self.area(y, waited);
            if waited.from < whole.to {
                // Above and below it stays to be seen how the attempt ended.
                area.y += self.row / 9.0;
                area.height -= self.row / 4.5;
            }
            self.drawing.rectangle(area, WAIT, &title);
            self.label_inside(area, INSIDE, cause);
        }
    }

    fn bar(&mut self, y: f64, time: TimeRange, look: Style, title: &str) -> Rect {
        let area = self.area(y, time);
        self.drawing.rectangle(area, look, title);
        area
    }

    fn area(&self, y: f64, time: TimeRange) -> Rect {
        let (from, to) = (self.axis.x_at(time.from), self.axis.x_at(time.to));
        Rect {
            x: from.min(RIGHT - MIN_BAR_WIDTH),
            y: y + 4.0,
            width: (to - from).max(MIN_BAR_WIDTH),
            height: self.row - 8.0,
        }
    }

    /// A word within a bar, if there is room for it.
    fn label_inside(&mut self, area: Rect, font: Style, word: &str) {
        let word = truncate_chars(word, 40);
        let room = word.chars().count() as f64 * CHAR_WIDTH + 14.0;
        if area.width < room || area.height < 12.0 {
            return;
        }
        let centre = (area.x + area.width / 2.0, area.y + area.height / 2.0 + 3.5);
        if font == INSIDE {
            let width = room - 6.0;
            let under = Rect {
                x: centre.0 - width / 2.0,
                y: area.y + 1.0,
                width,
                height: area.height - 2.0,
            };
            self.drawing
                .rectangle(under, r##"rx="3" fill="#fff8e8""##, "");
        }
        self.drawing.text(centre, font, &word);
    }

    fn number(&mut self, y: f64, whole: TimeRange, number: u32) {
        let (from, to) = (self.axis.x_at(whole.from), self.axis.x_at(whole.to));
        if to - from >= 14.0 {
            let place = (from + 4.0, y + self.row / 2.0 + 3.0);
            self.drawing.text(place, NUMBER, &number.to_string());
        }
    }

    fn resumes(&mut self, run: &Run) {
        for time in run.resumed_at.iter().take(MAX_RESUMES) {
            let x = self.axis.x_at(*time);
            let title = format!("taken up again at {time}");
            self.drawing
                .line((x, TOP - 4.0), (x, self.bottom), (RESUME, &title));
        }
    }

    fn legend(&mut self) {
        let kinds = [
            (GOOD, "completed"),
            (RETRIED, "failed, tried again"),
            (FAILED, "failed for good"),
            (WORKING, "under way"),
            (CANCELED, "cancelled"),
            (INTERRUPTED, "interrupted"),
            (WAIT, "waits"),
            (GATE, "gate"),
            (NO_PROCESS, "no process"),
        ];
        let y = self.bottom + 34.0;
        let mut x = 24.0;
        for (look, words) in kinds {
            let area = Rect {
                x,
                y,
                width: 16.0,
                height: 12.0,
            };
            self.drawing.rectangle(area, look, "");
            self.drawing.text((x + 22.0, y + 10.0), LEGEND, words);
            x += 42.0 + words.chars().count() as f64 * CHAR_WIDTH;
        }
        self.drawing.line((x, y - 2.0), (x, y + 14.0), (RESUME, ""));
        self.drawing
            .text((x + 8.0, y + 10.0), LEGEND, "taken up again");
    }

    fn left_out(&mut self, steps: usize) {
        let shapes = self.drawing.left_out();
        let said = match (steps, shapes) {
            (0, 0) => return,
            (steps, 0) => format!("There is no room for {steps} more steps."),
            (0, shapes) => format!("There is no room for {shapes} more bars."),
            (steps, shapes) => {
                format!("There is no room for {steps} more steps and {shapes} more bars.")
            }
        };
        self.drawing
            .text((24.0, self.bottom + 68.0), SUBTITLE, &said);
    }
}

/// The first letters of a text.
fn truncate_chars(text: &str, most: usize) -> String {
    match text.chars().count() > most {
        true => text.chars().take(most - 1).chain(['…']).collect(),
        false => text.to_owned(),
    }
}

/// A long time in a few letters.
fn rough_duration(time: TimeRange) -> String {
    let seconds = time.length().as_secs();
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}
