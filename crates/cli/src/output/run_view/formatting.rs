//! How single things of a run are put into words for a terminal.

use crate::output::progress::time_of_day;
use outlast_kernel::budget::Cost;
use outlast_kernel::event::Usage;
use outlast_kernel::time::{Span, millis};
use outlast_kernel::{Timestamp, text};
use outlast_pipeline::entry::Outcome;
use outlast_pipeline::state::StepState;
use std::time::Duration;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// The most of a text from outside that is shown in a line, in bytes.
const MAX_TEXT_BYTES: usize = 300;
/// From this on the time of day is shown as well.
const LONG_WAIT: Duration = Duration::from_secs(60);

/// A text from outside: in one line, without what a terminal obeys, and bounded.
pub(crate) fn one_line(text: &str) -> String {
    // Cut before it is cleaned: a megabyte is not worth the work.
    let text = text::bounded(text, 4 * MAX_TEXT_BYTES);
    let words: Vec<&str> = text.split_whitespace().collect();
    text::bounded(&text::plain(&words.join(" ")), MAX_TEXT_BYTES).into_owned()
}

/// How many columns a text takes.
pub(crate) fn width(text: &str) -> usize {
    text.width()
}

/// As much of a line as there is room for.
pub(crate) fn truncate(line: &str, columns: usize) -> String {
    if width(line) <= columns {
        return line.to_owned();
    }
    let mut room = columns.saturating_sub(1);
    let fits = |c: &char| {
        let wide = c.width().unwrap_or_default();
        let fits = wide <= room;
        room = room.saturating_sub(wide);
        fits
    };
    let kept: String = line.chars().take_while(fits).collect();
    match columns {
        0 => kept,
        _ => kept + "…",
    }
}

/// A name, as wide as it is said to be.
pub(super) fn padded(name: &str, columns: usize) -> String {
    let name = truncate(&one_line(name), columns);
    let missing = columns.saturating_sub(width(&name));
    name + &" ".repeat(missing)
}

/// A time that passes, in whole seconds.
pub(crate) fn whole_seconds(time: Duration) -> String {
    match time.as_secs() {
        0 => "0s".to_owned(),
        seconds => Span(Duration::from_secs(seconds)).to_string(),
    }
}

/// How long something took that is over.
pub(super) fn elapsed(time: Duration) -> String {
    match time.as_secs() {
        0 => Span(time).to_string(),
        _ => whole_seconds(time),
    }
}

/// How long it is until something is tried again.
#[derive(Clone, Copy)]
pub(crate) struct TimeLeft {
    until: Timestamp,
    now: Timestamp,
}

impl TimeLeft {
    pub(crate) const fn new(until: Timestamp, now: Timestamp) -> Self {
        Self { until, now }
    }

    /// As it is said once.
    pub(crate) fn exact(self) -> String {
        let left = self.until.since(self.now);
        match left < Duration::from_secs(1) {
            true => self.format(left),
            false => self.rounded(),
        }
    }

    /// As it counts down.
    pub(crate) fn rounded(self) -> String {
        let seconds = millis(self.until.since(self.now)).div_ceil(1000);
        self.format(Duration::from_secs(seconds))
    }

    fn format(self, left: Duration) -> String {
        match left {
            Duration::ZERO => "now…".to_owned(),
            left if left >= LONG_WAIT => {
                let clock = time_of_day(self.until, self.now);
                format!("in {}… at {clock}", Span(left))
            }
            left => format!("in {}…", Span(left)),
        }
    }
}

/// `attempt 2/5`.
pub(super) fn attempts(number: u32, most: Option<u32>) -> String {
    match most {
        Some(most) => format!("attempt {number}/{most}"),
        None => format!("attempt {number}"),
    }
}

/// What was used and paid, if anything was.
pub(super) fn spent(usage: Usage, cost: Cost) -> String {
    let tokens = usage.total_input().saturating_add(usage.output);
    let mut spent = String::new();
    if tokens > 0 {
        spent += &format!("; {tokens} tokens");
    }
    if cost.0 > 0 {
        spent += &format!("; ${}.{:02}", cost.0 / 1_000_000, cost.0 / 10_000 % 100);
    }
    spent
}

/// Why, if anybody said so.
pub(super) fn reason_suffix(reason: Option<&str>) -> String {
    reason.map_or(String::new(), |reason| format!(": {}", one_line(reason)))
}

pub(super) const fn outcome_mark(outcome: Outcome) -> char {
    match outcome {
        Outcome::Completed => '✓',
        Outcome::Continued => '!',
        Outcome::Skipped => '–',
        Outcome::Failed => '✗',
        Outcome::Canceled => '■',
    }
}

/// How a step ended, with why.
pub(super) fn outcome_with_reason(step: &StepState, outcome: Outcome) -> String {
    let visit = step.visit();
    let ended = visit.and_then(|visit| visit.ended.as_ref());
    let reason = reason_suffix(ended.and_then(|ended| ended.reason.as_deref()));
    format!("{}{reason}", outcome_phrase(step, outcome))
}

/// How a step ended.
pub(super) fn outcome_phrase(step: &StepState, outcome: Outcome) -> String {
    let Some(visit) = step.visit() else {
        return match outcome {
            Outcome::Completed => "completed".to_owned(),
            Outcome::Continued => "failed, and the run goes on".to_owned(),
            Outcome::Skipped => "left out".to_owned(),
            Outcome::Failed => "failed".to_owned(),
            Outcome::Canceled => "cancelled".to_owned(),
        };
    };
    let at = visit.ended.as_ref().map_or(visit.started, |ended| ended.at);
    let took = Span(at.since(visit.started));
    let after = match visit.attempts.len() {
        0 | 1 => String::new(),
        many => format!(" after {many} attempts"),
    };
    match outcome {
        Outcome::Completed if after.is_empty() => format!("completed in {took}"),
        Outcome::Completed => format!("completed{after} in {took}"),
        Outcome::Continued => format!("failed{after} in {took}, and the run goes on"),
        Outcome::Skipped => format!("left out{after}"),
        Outcome::Failed => format!("failed{after} in {took}"),
        Outcome::Canceled => format!("cancelled after {took}"),
    }
}
