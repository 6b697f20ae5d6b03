//! Durations as people write and read them: `30s`, `2m`, `1h30m`, `500ms`, `1.5s`.
//!
//! Reading is strict, unlike the reading of provider messages (see `hint`): a text that is not understood is an error,
//! never a guess.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A year: longer than any useful wait.
const MAX_SPAN: Duration = Duration::from_secs(365 * 24 * 3600);
/// The units, from the largest to the smallest.
const UNITS: [(&str, f64); 5] = [
    ("d", 86_400.0),
    ("h", 3600.0),
    ("m", 60.0),
    ("s", 1.0),
    ("ms", 0.001),
];

/// A duration in words: `200ms`, `1.5s`, `2s`, `1m30s`, `5h`, `2d3h`; read from the same, or from a number of seconds.
///
/// ```
/// use outlast_kernel::time::Span;
/// use std::time::Duration;
///
/// assert_eq!(Span(Duration::from_secs(5400)).to_string(), "1h30m");
/// assert_eq!("1h30m".parse(), Ok(Span(Duration::from_secs(5400))));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span(pub Duration);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, millis) = (self.0.as_secs(), self.0.subsec_millis());
        match (seconds, millis / 100) {
            (0, _) => return write!(f, "{millis}ms"),
            (1..60, tenths @ 1..) => return write!(f, "{seconds}.{tenths}s"),
            _ => {}
        }
        let mut rest = seconds;
        for (size, name) in [(86_400, 'd'), (3600, 'h'), (60, 'm'), (1, 's')] {
            if rest >= size {
                write!(f, "{}{name}", rest / size)?;
                rest %= size;
            }
        }
        Ok(())
    }
}

/// A text that is no duration, or one between zero and a millisecond, or longer than a year.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a duration such as 500ms, 30s, 10m, 8h or a number of seconds, at most 365d")]
pub struct ParseSpanError;

impl FromStr for Span {
    type Err = ParseSpanError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).map(Self).ok_or(ParseSpanError)
    }
}

fn parse(text: &str) -> Option<Duration> {
    if let Some(seconds) = number(text) {
        return bounded(seconds);
    }
    let mut rest = text;
    let mut total = 0.0;
    let mut units = UNITS.as_slice();
    while !rest.is_empty() {
        let end = rest.find(|c: char| c.is_ascii_alphabetic())?;
        let (amount, after) = rest.split_at(end);
        let end = after
            .find(|c: char| !c.is_ascii_alphabetic())
            .unwrap_or(after.len());
        let (name, after) = after.split_at(end);
        let place = units.iter().position(|(unit, _)| *unit == name)?;
        total += number(amount)? * units[place].1;
        // Each unit once, the larger before the smaller.
        units = &units[place + 1..];
        rest = after;
    }
    (!text.is_empty()).then_some(total).and_then(bounded)
}

fn number(text: &str) -> Option<f64> {
    let plain = |c: char| c.is_ascii_digit() || c == '.';
    if text.starts_with('.') || text.ends_with('.') || !text.chars().all(plain) {
        return None;
    }
    text.parse().ok()
}

fn bounded(seconds: f64) -> Option<Duration> {
    let duration = Duration::try_from_secs_f64(seconds).ok()?;
    let millis = u64::try_from((duration + Duration::from_micros(500)).as_millis()).ok()?;
    let fits = duration.is_zero() || (millis > 0 && duration <= MAX_SPAN);
    fits.then_some(Duration::from_millis(millis))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn human_written_durations_are_parsed() {
        let table = [
            ("30s", 30_000),
            ("2m", 120_000),
            ("1h30m", 5_400_000),
            ("500ms", 500),
            ("1.5s", 1_500),
            ("1m30s250ms", 90_250),
            ("2d3h", 183_600_000),
            ("365d", 31_536_000_000),
            ("30", 30_000),
            ("0.25", 250),
            ("0", 0),
            ("0s", 0),
        ];
        for (text, millis) in table {
            assert_eq!(parse(text), Some(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn invalid_durations_are_rejected() {
        let bad = [
            "",
            " ",
            "s",
            "5 s",
            "-5s",
            "-1",
            "5parsecs",
            "30s1h",
            "1s1s",
            "1e3",
            "5M",
            "1..5s",
            ".5s",
            "inf",
            "nan",
            "366d",
            "0.1ms",
            "99999999999999999999d",
            "３0s",
            "1h30",
        ];
        for text in bad {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn durations_display_in_human_form() {
        let table = [
            (0, "0ms"),
            (200, "200ms"),
            (1_500, "1.5s"),
            (2_000, "2s"),
            (90_000, "1m30s"),
            (18_000_000, "5h"),
            (97_200_000, "1d3h"),
        ];
        for (millis, text) in table {
            assert_eq!(Span(Duration::from_millis(millis)).to_string(), text);
        }
    }
}
