//! A failure as the user describes it: by flags, or as a line of JSON.

use crate::args::ExplainArguments;
use crate::platform::exit::UsageError;
use jiff::tz::TimeZone;
use outlast_dialect::error_body::{self, RawError};
use outlast_engine::Clock;
use outlast_kernel::Timestamp;
use outlast_kernel::failure::{Failure, Transport};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Read;

const MAX_BODY_BYTES: u64 = 4 << 20;

/// A time, and the local UTC offset at that time.
#[derive(Clone, Copy)]
pub(super) struct LocalTime {
    at: Timestamp,
    offset_minutes: i16,
}

impl LocalTime {
    pub(super) fn from_clock(clock: &dyn Clock) -> Self {
        let at = clock.now();
        let millis = i64::try_from(at.as_millis()).unwrap_or(i64::MAX);
        let zoned =
            jiff::Timestamp::from_millisecond(millis).map(|time| time.to_zoned(TimeZone::system()));
        let seconds = zoned.map_or(0, |zoned| zoned.offset().seconds());
        Self {
            at,
            offset_minutes: i16::try_from(seconds / 60).unwrap_or(0),
        }
    }

    /// Parses a time and the offset that is written with it.
    fn parse(text: &str) -> Result<Self, UsageError> {
        let at: Timestamp = text
            .parse()
            .map_err(|error| UsageError(format!("`now`: {error}")))?;
        let pieces = jiff::fmt::temporal::DateTimeParser::new().parse_pieces(text);
        let offset = pieces.ok().and_then(|pieces| pieces.to_numeric_offset());
        let minutes = offset.map_or(0, |offset| offset.seconds() / 60);
        Ok(Self {
            at,
            offset_minutes: i16::try_from(minutes).unwrap_or(0),
        })
    }
}

#[derive(Clone, Copy, Debug, Default, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum TransportKind {
    /// HTTP response
    #[default]
    Http,
    /// Event inside a stream
    #[serde(alias = "stream")]
    Sse,
    /// Error that a client raised
    Thrown,
    /// Output of a program that failed
    Process,
}

impl From<TransportKind> for Transport {
    fn from(came: TransportKind) -> Self {
        match came {
            TransportKind::Http => Self::Http,
            TransportKind::Sse => Self::Stream,
            TransportKind::Thrown => Self::Thrown,
            TransportKind::Process => Self::Process,
        }
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct Input {
    #[serde(default)]
    pub(super) id: Value,
    #[serde(default)]
    provider: Option<String>,
    #[serde(default)]
    transport: TransportKind,
    #[serde(default)]
    status: Option<u16>,
    #[serde(default)]
    headers: Option<BTreeMap<String, Value>>,
    #[serde(default)]
    body: Value,
    #[serde(default)]
    now: Option<String>,
}

impl Input {
    pub(super) fn from_arguments(arguments: &ExplainArguments) -> anyhow::Result<Self> {
        let header = |text: &String| {
            let (name, value) = text
                .split_once(':')
                .ok_or_else(|| UsageError(format!("--header is `name: value`; it is `{text}`")))?;
            Ok::<_, UsageError>((name.trim().to_owned(), Value::from(value.trim())))
        };
        let headers = arguments
            .header
            .iter()
            .map(header)
            .collect::<Result<_, _>>()?;
        let body = match arguments.body.as_deref() {
            Some("-") => {
                let mut body = String::new();
                std::io::stdin()
                    .take(MAX_BODY_BYTES)
                    .read_to_string(&mut body)?;
                body
            }
            body => body.unwrap_or_default().to_owned(),
        };
        if body.is_empty() && arguments.status.is_none() {
            return Err(UsageError(
                "say what was seen: --status, --body, or both; see `outlast explain --help`"
                    .to_owned(),
            )
            .into());
        }
        Ok(Self {
            id: Value::Null,
            provider: arguments.provider.clone(),
            transport: arguments
                .transport
                .unwrap_or(if arguments.status.is_some() {
                    TransportKind::Http
                } else {
                    TransportKind::Thrown
                }),
            status: arguments.status,
            headers: Some(headers),
            body: Value::from(body),
            now: arguments.now.clone(),
        })
    }

    pub(super) fn failure(&self, now: LocalTime) -> Result<Failure, UsageError> {
        let LocalTime { at, offset_minutes } =
            self.now.as_deref().map_or(Ok(now), LocalTime::parse)?;
        let body = match &self.body {
            Value::String(text) => text.clone(),
            Value::Null => String::new(),
            structured => structured.to_string(),
        };
        let value = |value: &Value| match value {
            Value::String(text) => text.clone(),
            Value::Array(values) => values.first().map_or(String::new(), |value| {
                value
                    .as_str()
                    .map_or_else(|| value.to_string(), str::to_owned)
            }),
            other => other.to_string(),
        };
        let headers: Vec<(String, String)> = self
            .headers
            .iter()
            .flatten()
            .map(|(name, text)| (name.clone(), value(text)))
            .collect();
        let provider = self.provider.as_deref().unwrap_or("unknown");
        let transport = self.transport.into();
        let seen = RawError {
            provider,
            transport,
            status: self.status,
            headers: &headers,
            body: &body,
            at,
        };
        Ok(Failure {
            local_offset_minutes: offset_minutes,
            ..error_body::parse(seen)
        })
    }
}
