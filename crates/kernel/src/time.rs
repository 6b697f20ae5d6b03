//! Wall-clock time as a value.
//!
//! Invariant: arithmetic is total. It saturates between the Unix epoch and the end of the year 9999, so that no stated
//! time, however absurd, can panic or wrap.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

mod span;

pub use span::{ParseSpanError, Span};

/// A point in wall-clock time, in whole milliseconds since the Unix epoch.
///
/// Written and read as RFC 3339 in UTC.
///
/// ```
/// use outlast_kernel::Timestamp;
/// use std::time::Duration;
///
/// let start: Timestamp = "2026-11-15T22:00:00Z".parse()?;
/// assert_eq!((start + Duration::from_secs(90)).to_string(), "2026-11-15T22:01:30.000Z");
/// # Ok::<(), outlast_kernel::time::ParseError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

/// A text that is not an RFC 3339 time between 1970 and 9999.
#[derive(Debug, thiserror::Error)]
#[error("`{text}` is not a time such as 2026-11-15T22:00:00Z")]
pub struct ParseError {
    text: String,
}

impl Timestamp {
    /// The last moment that can be written and read in any time zone: 9999-12-30T22:00:00.999Z.
    pub const LATEST: Self = Self(253_402_207_200_999);

    /// Returns the moment that many milliseconds after the Unix epoch.
    pub const fn from_millis(millis: u64) -> Self {
        if millis > Self::LATEST.0 {
            Self::LATEST
        } else {
            Self(millis)
        }
    }

    /// Returns the milliseconds since the Unix epoch.
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// Returns the time since `earlier`; zero when this is not after it.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

/// Returns the whole milliseconds of a duration, saturating.
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl std::ops::Add<Duration> for Timestamp {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self::from_millis(self.0.saturating_add(millis(duration)))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = i64::try_from(self.0).unwrap_or(i64::MAX);
        match jiff::Timestamp::from_millisecond(millis) {
            Ok(time) => write!(f, "{time:.3}"),
            Err(_) => f.write_str("9999-12-30T22:00:00.999Z"),
        }
    }
}

impl FromStr for Timestamp {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        text.parse::<jiff::Timestamp>()
            .ok()
            .and_then(|time| u64::try_from(time.as_millisecond()).ok())
            .map(Self::from_millis)
            .ok_or_else(|| ParseError {
                text: crate::text::bounded(text, 64).into_owned(),
            })
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

#[cfg(feature = "schema")]
impl schemars::JsonSchema for Timestamp {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Timestamp".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "description": "A point in time, as RFC 3339 in UTC with milliseconds.",
            "type": "string",
            "format": "date-time",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_instead_of_wrapping() {
        assert_eq!(Timestamp::from_millis(u64::MAX), Timestamp::LATEST);
        assert_eq!(Timestamp::LATEST + Duration::MAX, Timestamp::LATEST);
        assert_eq!(
            Timestamp::default().since(Timestamp::LATEST),
            Duration::ZERO
        );
        assert_eq!(Timestamp::LATEST.to_string(), "9999-12-30T22:00:00.999Z");
    }

    #[test]
    fn text_survives_a_round_trip() {
        let last = Timestamp::LATEST;
        for time in [
            Timestamp::default(),
            Timestamp::from_millis(1_794_715_200_123),
            last,
        ] {
            assert_eq!(time.to_string().parse::<Timestamp>().unwrap(), time);
        }
        assert_eq!(
            "2026-11-15T04:00:00+04:00"
                .parse::<Timestamp>()
                .unwrap()
                .to_string(),
            "2026-11-15T00:00:00.000Z"
        );
    }

    #[test]
    fn invalid_time_is_named_in_the_error() {
        for bad in [
            "",
            "yesterday",
            "1960-01-01T00:00:00Z",
            "99999-01-01T00:00:00Z",
        ] {
            let error = bad.parse::<Timestamp>().unwrap_err().to_string();
            assert!(error.contains(bad), "{error}");
        }
    }
}
