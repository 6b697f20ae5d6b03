//! The activity line above the editor: the current activity and its remaining time.
//!
//! Invariant: a countdown is computed from its end time, so it is right after a suspend of the machine, a resize or a
//! restart.

use crate::output::progress::time_of_day;
use outlast_kernel::Timestamp;
use outlast_kernel::time::{Span, millis};
use outlast_kernel::verdict::Cause;
use std::time::Duration;

/// Duration from which a wait also shows the time of day at its end.
const LONG_WAIT_THRESHOLD: Duration = Duration::from_secs(60);
/// Time past its announced moment for which an early retry by the gate is still expected.
const EARLY_RETRY_GRACE: Duration = Duration::from_secs(1);
/// Duration from which a completion shows a timer.
const MIN_TIMED_DURATION: Duration = Duration::from_secs(2);

/// The current activity.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Activity {
    /// Idle: the chat waits for the user.
    #[default]
    Idle,
    /// The session is being opened.
    Starting,
    /// A completion is awaited or streamed.
    Working { since: Timestamp },
    /// A retry is scheduled.
    Retrying(Retrying),
    /// The gate holds the first call.
    Queued {
        until: Timestamp,
        cause: Option<Cause>,
    },
    /// The conversation is being compacted.
    Compacting { since: Timestamp },
}

/// A scheduled retry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Retrying {
    pub(crate) attempt: u32,
    pub(crate) max_attempts: Option<u32>,
    /// The time that the retry policy scheduled.
    pub(crate) at: Timestamp,
    /// The time at which the gate would allow an earlier retry.
    pub(crate) early: Option<Timestamp>,
}

impl Retrying {
    /// Returns the expected time of the retry.
    pub(crate) fn wake_time(&self, now: Timestamp) -> Timestamp {
        let early = self.early.filter(|early| now < *early + EARLY_RETRY_GRACE);
        early.map_or(self.at, |early| early.min(self.at))
    }

    /// Returns the full text of the countdown.
    pub(crate) fn countdown_text(&self, now: Timestamp) -> String {
        let (attempt, most) = (self.attempt, self.max_attempts_text());
        let seconds = seconds_left(self.wake_time(now), now);
        format!("Retrying ({attempt}/{most}) in {seconds}s… (esc to cancel)")
    }

    /// Returns a short form for narrow screens: the time comes first, because it must not be cut.
    fn short_text(&self, now: Timestamp) -> String {
        let left = Span(Duration::from_secs(seconds_left(self.wake_time(now), now)));
        format!("{left}… {}/{}", self.attempt, self.max_attempts_text())
    }

    fn max_attempts_text(&self) -> String {
        let most = self.max_attempts;
        most.map_or_else(|| "∞".to_owned(), |most| most.to_string())
    }
}

/// The texts of an activity line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ActivityText {
    pub(crate) text: String,
    /// Details for a wider screen.
    pub(crate) details: String,
    /// The key hint that applies only while the editor is empty.
    pub(crate) key: Option<&'static str>,
    /// A short form for a narrow screen.
    pub(crate) short: String,
}

impl Activity {
    /// Whether the line changes with time.
    pub(crate) fn is_animated(&self) -> bool {
        !matches!(self, Self::Idle | Self::Starting)
    }

    /// Returns the texts for the activity.
    pub(crate) fn describe(&self, now: Timestamp) -> Option<ActivityText> {
        let timed = |words: &str, since: Timestamp| {
            let past = now.since(since);
            let past = match past >= MIN_TIMED_DURATION {
                true => format!(" {}", Span(Duration::from_secs(past.as_secs()))),
                false => String::new(),
            };
            let words = format!("{words}…{past}");
            ActivityText::new(format!("{words} (esc to interrupt)"), words)
        };
        Some(match self {
            Self::Idle => return None,
            Self::Starting => ActivityText::new("Starting…".to_owned(), "Starting…".to_owned()),
            Self::Working { since } => timed("Working", *since),
            Self::Compacting { since } => timed("Making the conversation smaller", *since),
            Self::Retrying(retrying) => ActivityText {
                details: wait_details(retrying.wake_time(now), now),
                key: Some("r retries now"),
                ..ActivityText::new(retrying.countdown_text(now), retrying.short_text(now))
            },
            Self::Queued { until, cause } => {
                let phrase = cause.map_or("Others are ahead", Cause::phrase);
                let seconds = seconds_left(*until, now);
                let words = format!("{phrase}, waiting in line, {seconds}s… (esc to interrupt)");
                ActivityText {
                    details: wait_details(*until, now),
                    key: Some("r asks now"),
                    ..ActivityText::new(words, format!("in line {seconds}s…"))
                }
            }
        })
    }
}

impl ActivityText {
    const fn new(text: String, short: String) -> Self {
        Self {
            text,
            details: String::new(),
            key: None,
            short,
        }
    }
}

/// Returns the length and the end time of a long wait, or an empty text for a short one.
fn wait_details(at: Timestamp, now: Timestamp) -> String {
    let left = Duration::from_secs(seconds_left(at, now));
    match left >= LONG_WAIT_THRESHOLD {
        true => format!(" · {}, at {}", Span(left), time_of_day(at, now)),
        false => String::new(),
    }
}

/// Returns the time left, rounded up to whole seconds: a wait that is not over never shows zero.
fn seconds_left(at: Timestamp, now: Timestamp) -> u64 {
    millis(at.since(now)).div_ceil(1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

    fn retrying(seconds: u64) -> Retrying {
        Retrying {
            attempt: 1,
            max_attempts: Some(3),
            at: NOW + Duration::from_secs(seconds),
            early: None,
        }
    }

    #[test]
    fn countdown_text_counts_down_to_retry_time() {
        let words = |millis| retrying(2).countdown_text(NOW + Duration::from_millis(millis));
        assert_eq!(words(0), "Retrying (1/3) in 2s… (esc to cancel)");
        assert_eq!(words(999), "Retrying (1/3) in 2s… (esc to cancel)");
        assert_eq!(words(1000), "Retrying (1/3) in 1s… (esc to cancel)");
        assert_eq!(words(2500), "Retrying (1/3) in 0s… (esc to cancel)");
    }

    #[test]
    fn earlier_gate_opening_shortens_countdown() {
        let mut retry = retrying(600);
        retry.early = Some(NOW + Duration::from_secs(5));
        assert_eq!(
            retry.countdown_text(NOW),
            "Retrying (1/3) in 5s… (esc to cancel)"
        );
        retry.early = Some(NOW + Duration::from_secs(900));
        assert_eq!(
            retry.countdown_text(NOW),
            "Retrying (1/3) in 600s… (esc to cancel)"
        );
    }

    #[test]
    fn long_wait_also_shows_time_of_day() {
        let said = |seconds| Activity::Retrying(retrying(seconds)).describe(NOW).unwrap();
        let ActivityText { text, details, .. } = said(5 * 3600);
        assert_eq!(text, "Retrying (1/3) in 18000s… (esc to cancel)");
        let at = time_of_day(NOW + Duration::from_secs(5 * 3600), NOW);
        assert_eq!(details, format!(" · 5h, at {at}"));
        assert_eq!(
            (said(59).details.as_str(), said(59).key),
            ("", Some("r retries now"))
        );
    }

    #[test]
    fn activity_text_shows_elapsed_time_after_two_seconds() {
        let since = NOW;
        let table = [
            (Activity::Idle, 0, None),
            (Activity::Starting, 9000, Some("Starting…")),
            (
                Activity::Working { since },
                1999,
                Some("Working… (esc to interrupt)"),
            ),
            (
                Activity::Working { since },
                2999,
                Some("Working… 2s (esc to interrupt)"),
            ),
            (
                Activity::Working { since },
                65_000,
                Some("Working… 1m5s (esc to interrupt)"),
            ),
            (
                Activity::Compacting { since },
                3000,
                Some("Making the conversation smaller… 3s (esc to interrupt)"),
            ),
        ];
        for (doing, millis, expected) in table {
            let said = doing.describe(NOW + Duration::from_millis(millis));
            assert_eq!(said.as_ref().map(|said| said.text.as_str()), expected);
            assert!(said.is_none_or(|said| said.details.is_empty()));
        }
        assert!(!Activity::Starting.is_animated() && Activity::Retrying(retrying(1)).is_animated());
    }

    #[test]
    fn a_clock_that_was_set_back_does_not_end_the_wait() {
        let before = Timestamp::from_millis(NOW.as_millis() - 60_000);
        let working = Activity::Working { since: NOW };
        assert_eq!(
            working.describe(before).unwrap().text,
            "Working… (esc to interrupt)"
        );
        assert_eq!(
            retrying(2).countdown_text(before),
            "Retrying (1/3) in 62s… (esc to cancel)"
        );
    }

    #[test]
    fn queued_activity_shows_reason_and_remaining_time() {
        let in_line = |cause, seconds| {
            let until = NOW + Duration::from_secs(seconds);
            Activity::Queued { until, cause }.describe(NOW).unwrap()
        };
        let soon = in_line(None, 59);
        let expected = "Others are ahead, waiting in line, 59s… (esc to interrupt)";
        assert_eq!(
            (soon.text.as_str(), soon.key),
            (expected, Some("r asks now"))
        );
        let late = in_line(Some(Cause::Overloaded), 60);
        let at = time_of_day(NOW + Duration::from_secs(60), NOW);
        assert_eq!(late.details, format!(" · 1m, at {at}"));
    }

    #[test]
    fn unlimited_attempts_show_infinity_sign() {
        let mut retry = retrying(2);
        retry.max_attempts = None;
        assert_eq!(
            retry.countdown_text(NOW),
            "Retrying (1/∞) in 2s… (esc to cancel)"
        );
    }
}
