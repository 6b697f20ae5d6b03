//! Reads durations as people and servers write them: `6m0s`, `1.898s`, `28ms`, `~158 min`, `2 days`, `1 hour and 5
//! minutes`.
//!
//! Invariant: reading is total. A longer duration is cut at [`MAX_DURATION`]; a text that is no duration is `None`.

use arrayvec::ArrayVec;
use std::time::Duration;

/// A hundred years: longer than any wait, short enough for every sum.
const MAX_DURATION: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// The unit of a number without one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BareUnit {
    /// None: a unit is required.
    UnitRequired,
    /// Seconds.
    Seconds,
    /// Milliseconds.
    Millis,
}

/// Returns the duration at the beginning of a text in lower case; the text after it is ignored.
pub(super) fn parse_leading(text: &str, bare: BareUnit) -> Option<Duration> {
    parse_leading_with_rest(text, bare).map(|(duration, _)| duration)
}

fn parse_leading_with_rest(text: &str, bare: BareUnit) -> Option<(Duration, &str)> {
    let mut rest = skip_padding(text);
    if let Some(found) = leading_clock(rest) {
        return Some(found);
    }
    let mut total: Option<Duration> = None;
    while let Some((number, after)) = leading_number(rest) {
        let (unit, next) = match leading_unit(after.trim_start_matches(' ')) {
            Some(found) => found,
            // A number alone must stand alone: `3 attempts` and `2026-01-19` are no seconds.
            None if total.is_none() && stands_alone(after) => (bare_unit(bare)?, after),
            None => break,
        };
        let part = scaled(number, unit);
        total = Some(
            total
                .unwrap_or_default()
                .saturating_add(part)
                .min(MAX_DURATION),
        );
        rest = skip_separator(next);
    }
    total.map(|total| (total, rest))
}

fn stands_alone(after: &str) -> bool {
    let rest = after.trim_start_matches(['.', ')', ',', ';', '"', '\'']);
    rest.is_empty() || (rest.len() < after.len() && rest.starts_with([' ', '\n']))
}

/// Reads `05:12:31`: hours, minutes and seconds.
fn leading_clock(text: &str) -> Option<(Duration, &str)> {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != ':')
        .unwrap_or(text.len());
    let [hours, minutes, seconds] = text[..end].splitn(4, ':').collect::<ArrayVec<&str, 4>>()[..]
    else {
        return None;
    };
    let number = |text: &str| text.parse::<u32>().ok().map(u64::from);
    let seconds = number(hours)? * 3600 + number(minutes)? * 60 + number(seconds)?;
    Some((Duration::from_secs(seconds).min(MAX_DURATION), &text[end..]))
}

/// Returns the duration that a whole text states.
pub(super) fn parse_whole(text: &str, bare: BareUnit) -> Option<Duration> {
    if let (Ok(seconds), BareUnit::Seconds) = (text.parse::<u32>(), bare) {
        return Some(Duration::from_secs(seconds.into()));
    }
    let text = text.trim().to_ascii_lowercase();
    let (duration, rest) = parse_leading_with_rest(&text, bare).filter(|_| text.len() <= 64)?;
    rest.is_empty().then_some(duration)
}

fn skip_padding(text: &str) -> &str {
    let mut rest = text.trim_start_matches([' ', ':', '=', '~', '"', '\'', '(']);
    for word in [
        "about ",
        "approximately ",
        "around ",
        "another ",
        "up to ",
        "at least ",
    ] {
        rest = rest.strip_prefix(word).unwrap_or(rest);
    }
    // The sign of an ISO 8601 duration.
    rest.trim_start_matches([' ', '~']).trim_start_matches("pt")
}

fn skip_separator(text: &str) -> &str {
    let rest = text.trim_start_matches([' ', ',']);
    rest.strip_prefix("and ").unwrap_or(rest).trim_start()
}

fn leading_number(text: &str) -> Option<(f64, &str)> {
    for (word, value) in [("an ", 1.0), ("a ", 1.0), ("one ", 1.0)] {
        if let Some(rest) = text.strip_prefix(word) {
            return Some((value, rest));
        }
    }
    let digits = |c: char| c.is_ascii_digit() || c == '.' || c == ',';
    let end = text.find(|c| !digits(c)).unwrap_or(text.len());
    // A full stop or a comma may end the phrase rather than belong to the number.
    let number = text[..end].trim_end_matches(['.', ',']);
    let thousands = number
        .split(',')
        .skip(1)
        .all(|group| group.split('.').next().is_some_and(|g| g.len() == 3));
    let number = if thousands {
        number
    } else {
        number.split(',').next()?
    };
    let value: f64 = number.replace(',', "").parse().ok()?;
    value.is_finite().then_some((value, &text[number.len()..]))
}

/// Returns the nanoseconds of the unit at the beginning of a text.
fn leading_unit(text: &str) -> Option<(f64, &str)> {
    const SECOND: f64 = 1e9;
    let end = text
        .find(|c: char| !c.is_ascii_alphabetic())
        .unwrap_or(text.len());
    let (word, rest) = text.split_at(end);
    let nanos = match word {
        "ns" => 1.0,
        "us" => 1e3,
        "ms" | "msec" | "msecs" | "millis" | "millisecond" | "milliseconds" => 1e6,
        "s" | "sec" | "secs" | "second" | "seconds" => SECOND,
        "m" | "min" | "mins" | "minute" | "minutes" => 60.0 * SECOND,
        "h" | "hr" | "hrs" | "hour" | "hours" => 3600.0 * SECOND,
        "d" | "day" | "days" => 86_400.0 * SECOND,
        "w" | "week" | "weeks" => 604_800.0 * SECOND,
        _ => return None,
    };
    Some((nanos, rest))
}

fn bare_unit(bare: BareUnit) -> Option<f64> {
    match bare {
        BareUnit::UnitRequired => None,
        BareUnit::Seconds => Some(1e9),
        BareUnit::Millis => Some(1e6),
    }
}

fn scaled(number: f64, nanos: f64) -> Duration {
    Duration::try_from_secs_f64(number * nanos / 1e9)
        .unwrap_or(MAX_DURATION)
        .min(MAX_DURATION)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_duration_formats_are_parsed() {
        let table = [
            ("6m0s", 360_000),
            ("1h2m3s", 3_723_000),
            ("1.898s", 1_898),
            ("28ms", 28),
            ("~158 min", 9_480_000),
            ("2 days", 172_800_000),
            ("9m38.016s. need more", 578_016),
            ("30 seconds before retrying", 30_000),
            ("1 hour and 5 minutes", 3_900_000),
            ("1 hour, 5 minutes.", 3_900_000),
            ("0.539477544s", 539),
            ("a minute", 60_000),
            ("about 3 weeks", 1_814_400_000),
            ("18h31m10s", 66_670_000),
            ("05:12:31.", 18_751_000),
            ("86,400 seconds", 86_400_000),
        ];
        for (text, millis) in table {
            let read =
                parse_leading(text, BareUnit::UnitRequired).map(|duration| duration.as_millis());
            assert_eq!(read, Some(millis), "{text}");
        }
    }

    #[test]
    fn non_duration_text_is_rejected() {
        for text in [
            "",
            "soon",
            "a while",
            "5 requests",
            "12",
            "...",
            "-3s",
            "5pm",
            "3 monkeys",
        ] {
            assert_eq!(parse_leading(text, BareUnit::UnitRequired), None, "{text}");
        }
        assert_eq!(
            parse_leading("12", BareUnit::Seconds),
            Some(Duration::from_secs(12))
        );
        assert_eq!(
            parse_leading("50", BareUnit::Millis),
            Some(Duration::from_millis(50))
        );
        for text in [
            "12; drop table",
            "12abc",
            "1e9",
            "3 attempts",
            "2026-01-19T22:15:35Z",
        ] {
            assert_eq!(parse_whole(text, BareUnit::Seconds), None, "{text}");
        }
        assert_eq!(
            parse_leading("2026-01-19t22:15:35z", BareUnit::Seconds),
            None
        );
        assert_eq!(parse_leading("3 attempts", BareUnit::Seconds), None);
    }

    #[test]
    fn huge_durations_are_capped() {
        for text in ["99999999999999999999999999 weeks", "1e5s", &"9".repeat(400)] {
            let read = parse_leading(text, BareUnit::Seconds);
            assert!(
                read.is_none_or(|duration| duration <= MAX_DURATION),
                "{text}"
            );
        }
    }
}
