//! The arguments of one fault: numbers, keywords and `name=value`, separated by commas.
//!
//! Invariant: each argument is taken once, and an unused argument is an error.

use crate::reply::Keyword;
use std::str::FromStr;
use std::time::Duration;

/// The maximum duration: longer than any test, short enough for every sum.
const MAX_SECONDS: f64 = 366.0 * 86_400.0;

/// The arguments that were not yet taken.
pub(super) struct Arguments<'a>(Vec<&'a str>);

impl<'a> Arguments<'a> {
    pub(super) fn parse(text: &'a str) -> Self {
        let arguments = text.split(',').map(str::trim);
        Self(arguments.filter(|one| !one.is_empty()).collect())
    }

    /// Takes the first argument without a name, as text.
    fn take_positional(&mut self) -> Option<&'a str> {
        let place = self.0.iter().position(|one| !one.contains('='))?;
        Some(self.0.remove(place))
    }

    /// Takes the value of that name, as text.
    pub(super) fn take_named(&mut self, name: &str) -> Option<&'a str> {
        let value = |one: &&'a str| Some(one.split_once('=')?).filter(|(key, _)| *key == name);
        let place = self.0.iter().position(|one| value(one).is_some())?;
        let (_, value) = self.0.remove(place).split_once('=')?;
        Some(value)
    }

    pub(super) fn positional<T: FromStr>(&mut self, name: &str) -> Result<Option<T>, String> {
        self.take_positional()
            .map(|value| parse_number(name, value))
            .transpose()
    }

    pub(super) fn named<T: FromStr>(&mut self, name: &str) -> Result<Option<T>, String> {
        self.take_named(name)
            .map(|value| parse_number(name, value))
            .transpose()
    }

    /// Takes a flag; returns whether it is present.
    pub(super) fn flag(&mut self, word: &str) -> bool {
        let place = self.0.iter().position(|one| *one == word);
        place.map(|place| self.0.remove(place)).is_some()
    }

    /// Takes a keyword without a name.
    pub(super) fn keyword<T: Copy>(&mut self, words: &[Keyword<T>]) -> Result<Option<T>, String> {
        self.take_positional()
            .map(|value| parse_keyword(words, value))
            .transpose()
    }

    /// Takes a keyword under that name.
    pub(super) fn named_keyword<T: Copy>(
        &mut self,
        name: &str,
        words: &[Keyword<T>],
    ) -> Result<Option<T>, String> {
        self.take_named(name)
            .map(|value| parse_keyword(words, value))
            .transpose()
    }

    /// Takes a duration in seconds under that name.
    pub(super) fn seconds(&mut self, name: &str) -> Result<Option<Duration>, String> {
        self.take_named(name)
            .map(|value| parse_seconds(name, value))
            .transpose()
    }

    pub(super) fn positional_seconds(&mut self, name: &str) -> Result<Option<Duration>, String> {
        self.take_positional()
            .map(|value| parse_seconds(name, value))
            .transpose()
    }

    /// Takes a share under that name: `0.02` or `2%`.
    pub(super) fn share(&mut self, name: &str) -> Result<Option<f64>, String> {
        self.take_named(name).map(parse_share).transpose()
    }

    pub(super) fn positional_share(&mut self) -> Result<Option<f64>, String> {
        self.take_positional().map(parse_share).transpose()
    }

    /// Takes a rate, such as `200/s`.
    pub(super) fn rate(&mut self) -> Result<Option<u32>, String> {
        let parse = |value: &str| match value.strip_suffix("/s") {
            Some(number) => parse_number("N", number),
            None => Err(format!("a rate is written 200/s, not `{value}`")),
        };
        self.take_positional().map(parse).transpose()
    }

    /// Takes two durations, such as `20s/20s`; together they are longer than zero.
    pub(super) fn phases(&mut self) -> Result<Option<(Duration, Duration)>, String> {
        let parse = |value: &str| {
            let (up, down) = value
                .split_once('/')
                .ok_or_else(|| format!("phases are written 20s/20s, not `{value}`"))?;
            let seconds = |name, value: &str| parse_seconds(name, value.trim_end_matches('s'));
            let phases = (seconds("UP", up)?, seconds("DOWN", down)?);
            match phases.0.is_zero() && phases.1.is_zero() {
                true => Err("UP and DOWN cannot both be zero".to_owned()),
                false => Ok(phases),
            }
        };
        self.take_positional().map(parse).transpose()
    }

    /// Takes the number of repetitions: a number, or `always`.
    pub(super) fn times(&mut self) -> Result<u32, String> {
        match self.take_named("times") {
            None => Ok(1),
            Some("always") => Ok(u32::MAX),
            Some(value) => parse_number("times", value),
        }
    }

    /// Takes an error status.
    pub(super) fn status(&mut self) -> Result<Option<u16>, String> {
        match self.positional("STATUS")? {
            Some(status) if !(400..=599).contains(&status) => {
                Err("STATUS lies between 400 and 599".to_owned())
            }
            status => Ok(status),
        }
    }

    pub(super) fn finish(self) -> Result<(), String> {
        self.0.first().map_or(Ok(()), |extra| {
            Err(format!("`{extra}` has no meaning here"))
        })
    }
}

fn parse_number<T: FromStr>(name: &str, value: &str) -> Result<T, String> {
    value
        .parse()
        .map_err(|_| format!("{name} is a number, not `{value}`"))
}

fn parse_share(value: &str) -> Result<f64, String> {
    let share: f64 = match value.strip_suffix('%') {
        Some(percent) => parse_number::<f64>("SHARE", percent)? / 100.0,
        None => parse_number("SHARE", value)?,
    };
    match (0.0..=1.0).contains(&share) {
        true => Ok(share),
        false => Err("SHARE lies between 0 and 1, or 0% and 100%".to_owned()),
    }
}

fn parse_seconds(name: &str, value: &str) -> Result<Duration, String> {
    let seconds: f64 = parse_number(name, value)?;
    if (0.0..=MAX_SECONDS).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err(format!("{name} lies between 0 and a year, in seconds"))
    }
}

fn parse_keyword<T: Copy>(words: &[Keyword<T>], value: &str) -> Result<T, String> {
    let known = words.iter().find(|(word, ..)| *word == value);
    known.map(|(_, meaning, _)| *meaning).ok_or_else(|| {
        let words: Vec<&str> = words.iter().map(|(word, ..)| *word).collect();
        format!("`{value}` is none of {}", words.join(", "))
    })
}
