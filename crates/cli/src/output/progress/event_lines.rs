//! Lines for the user about remedies other than a retry.

use crate::output::progress::time_of_day;
use outlast_kernel::Timestamp;
use outlast_kernel::event::{Body, CompactionReason, Usage};
use outlast_kernel::time::Span;
use outlast_kernel::verdict::Cause;
use std::time::Duration;

/// Returns the line about an event, if it has one. `first` is the model that the turn began with.
pub(crate) fn line(body: &Body, first: &str, now: Timestamp) -> Option<String> {
    Some(match body {
        // Retracted text was never shown: a completion is printed when it is complete.
        Body::Retracted { .. } => return None,
        Body::Seam { by } => format!("● the answer goes on where it broke off ({})", by.phrase()),
        Body::ModelSwitched {
            from,
            to,
            cause: Some(cause),
            until,
        } => fallback_line(from, to, *cause, until.map(|until| (until, now))),
        Body::ModelSwitched {
            from, to, until, ..
        } => match (to == first, until) {
            (true, _) => format!("● {to} is asked again, instead of {from}"),
            (false, Some(until)) => {
                let until = time_of_day(*until, now);
                format!("● {to} is asked instead of {from}, until {until}")
            }
            (false, None) => format!("● {to} is asked instead of {from}, as before"),
        },
        Body::Corrected {
            message,
            attempt,
            max_attempts,
            ..
        } => {
            // The remedy for the user comes second in the message, and is shown only when the correction
            // did not help.
            let problem = message.split("; ").next().unwrap_or_default();
            format!("⚠ {problem}: the model is told so ({attempt}/{max_attempts})")
        }
        Body::AccountBlocked { name, cause, until } => {
            let left = Span(Duration::from_secs(until.since(now).as_secs()));
            let phrase = cause.phrase();
            format!("⚠ account {name}: {phrase}, set aside for {left}")
        }
        Body::Unrecorded { message } => format!(
            "warning: this cannot be written down, and could not be carried on after a crash: {message}"
        ),
        Body::Warning { message } => format!("warning: {message}"),
        Body::BilledTwice { usage, estimated } => billed_twice(*usage, *estimated),
        body => return compaction_line(body, now),
    })
}

fn fallback_line(
    from: &str,
    to: &str,
    cause: Cause,
    until: Option<(Timestamp, Timestamp)>,
) -> String {
    let phrase = cause.phrase();
    let until = until.map_or(String::new(), |(until, now)| {
        let left = rounded(until.since(now));
        format!(" for {left}, until {}", time_of_day(until, now))
    });
    format!("⚠ {phrase}: {to} is asked instead of {from}{until}")
}

/// Rounds a time without a countdown, so that the moment before it was printed does not show.
fn rounded(time: Duration) -> Span {
    let seconds = (time + Duration::from_millis(500)).as_secs();
    let unit = match seconds {
        0..60 => 1,
        60..3600 => 10,
        _ => 60,
    };
    Span(Duration::from_secs((seconds + unit / 2) / unit * unit))
}

fn billed_twice(usage: Usage, estimated: bool) -> String {
    let about = if estimated { "about " } else { "" };
    let read = format!("{about}{} tokens read", usage.total_input());
    let written = match usage.output {
        0 => String::new(),
        written => format!(" and {written} written"),
    };
    format!("⚠ what had to be asked for again cost {read}{written} in addition")
}

/// Returns the line about a compaction. The command for a manual one reports its end itself.
fn compaction_line(body: &Body, now: Timestamp) -> Option<String> {
    match body {
        Body::AutoCompactionStarted { reason, tokens } => Some(format!(
            "● making the conversation of about {tokens} tokens smaller{}",
            reason_phrase(*reason)
        )),
        Body::AutoCompactionRetry {
            attempt,
            retry_at,
            cause,
            ..
        } => {
            let left = Span(Duration::from_secs(retry_at.since(now).as_secs()));
            let phrase = cause.phrase();
            Some(format!(
                "⚠ {phrase}, retrying the summary in {left}… ({attempt}, Ctrl-C cancels)"
            ))
        }
        Body::AutoCompactionEnded {
            reason: CompactionReason::Manual,
            ..
        } => None,
        Body::AutoCompactionEnded {
            reason,
            error: Some(error),
            ..
        } => Some(match reason {
            CompactionReason::Threshold => {
                format!("warning: the conversation is as it was: {error}")
            }
            // The error that ends the turn contains the reason.
            _ => "⚠ the conversation could not be made smaller".to_owned(),
        }),
        Body::AutoCompactionEnded { before, after, .. } => Some(format!(
            "● the conversation was made smaller, from about {before} to about {after} tokens"
        )),
        _ => None,
    }
}

const fn reason_phrase(reason: CompactionReason) -> &'static str {
    match reason {
        CompactionReason::Threshold => ": it comes close to what the model can read",
        CompactionReason::Overflow => ": it is more than the model can read",
        CompactionReason::TooManyBytes => ": it has more bytes than the provider takes",
        CompactionReason::SlowUpload => ": sending it takes too long",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

    fn switched(names: (&str, &str), cause: Option<Cause>, until: Option<u64>) -> Body {
        Body::ModelSwitched {
            from: names.0.to_owned(),
            to: names.1.to_owned(),
            cause,
            until: until.map(|seconds| NOW + Duration::from_secs(seconds)),
        }
    }

    #[test]
    fn displayed_duration_is_rounded() {
        let said = |millis| rounded(Duration::from_millis(millis)).to_string();
        let table = [
            (299_990, "5m"),
            (296_000, "5m"),
            (95_000, "1m40s"),
            (9_600, "10s"),
            (17_997_000, "5h"),
        ];
        for (millis, expected) in table {
            assert_eq!(said(millis), expected);
        }
    }

    #[test]
    fn model_switch_away_and_back_are_printed() {
        let said = |body: &Body| line(body, "a", NOW).unwrap();
        let away = said(&switched(("a", "b"), Some(Cause::Overloaded), Some(300)));
        let expected = "⚠ Server overloaded: b is asked instead of a for 5m, until ";
        assert!(away.starts_with(expected), "{away}");
        let for_good = switched(("a", "b"), Some(Cause::ContentFilter), None);
        assert!(said(&for_good).ends_with(": b is asked instead of a"));
        let back = switched(("b", "a"), None, None);
        assert_eq!(said(&back), "● a is asked again, instead of b");
        let still = switched(("a", "b"), None, None);
        assert_eq!(said(&still), "● b is asked instead of a, as before");
    }

    #[test]
    fn manual_compaction_prints_nothing_and_automatic_does() {
        let ended = |reason| Body::AutoCompactionEnded {
            reason,
            before: 900,
            after: 200,
            will_retry: false,
            summary: None,
            error: None,
        };
        assert_eq!(line(&ended(CompactionReason::Manual), "a", NOW), None);
        let said = line(&ended(CompactionReason::Threshold), "a", NOW);
        let expected = "● the conversation was made smaller, from about 900 to about 200 tokens";
        assert_eq!(said.as_deref(), Some(expected));
    }
}
