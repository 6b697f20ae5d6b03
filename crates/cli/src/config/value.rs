//! One value: read from what was given, according to its kind.
//!
//! Invariant: the text of a problem repeats a value only when nothing of its kind can be a secret.

use super::key::{closest_word, sanitized};
use super::sections::fallback_chain;
use super::table::Kind;
use super::{duration, size, url};
use outlast_kernel::budget::Cost;
use outlast_kernel::policy::Policy;
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value as Json;
use std::net::SocketAddr;
use std::time::Duration;
use toml::de::{DeArray, DeValue};

/// The separator between the entries of a list that is one text.
pub(crate) const SEPARATOR: char = '\n';

/// A value in a file, a variable or a flag.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RawValue<'a> {
    /// The text of a variable or a flag, for a value of any kind.
    Untyped(&'a str),
    Text(&'a str),
    Integer {
        digits: &'a str,
        radix: u32,
    },
    Fraction(&'a str),
    Flag(bool),
    List(&'a DeArray<'a>),
    /// The name of a type that no setting has.
    Other(&'static str),
}

impl<'a> RawValue<'a> {
    pub(crate) fn from_toml(value: &'a DeValue<'_>) -> Self {
        match value {
            DeValue::String(text) => Self::Text(text),
            DeValue::Integer(number) => Self::Integer {
                digits: number.as_str(),
                radix: number.radix(),
            },
            DeValue::Float(number) => Self::Fraction(number.as_str()),
            DeValue::Boolean(flag) => Self::Flag(*flag),
            DeValue::Datetime(_) => Self::Other("a date"),
            DeValue::Array(list) => Self::List(list),
            DeValue::Table(_) => Self::Other("a table"),
        }
    }

    fn text(self) -> Option<&'a str> {
        match self {
            Self::Untyped(text) | Self::Text(text) => Some(text),
            _ => None,
        }
    }

    fn integer(self) -> Option<u64> {
        match self {
            Self::Untyped(text) => text.parse().ok(),
            Self::Integer { digits, radix } => u64::from_str_radix(digits, radix).ok(),
            _ => None,
        }
    }

    fn integer_in_range(self, least: u32, most: u32) -> Option<u32> {
        let number = u32::try_from(self.integer()?).ok()?;
        (least..=most).contains(&number).then_some(number)
    }

    fn flag(self) -> Option<bool> {
        match self {
            Self::Untyped(text) => text.parse().ok(),
            Self::Flag(flag) => Some(flag),
            _ => None,
        }
    }

    fn amount(self) -> Option<Cost> {
        let whole;
        let text = match self {
            Self::Untyped(text) | Self::Fraction(text) => text,
            Self::Integer { .. } => {
                whole = self.integer()?.to_string();
                &whole
            }
            _ => return None,
        };
        let (dollars, part) = text.trim().split_once('.').unwrap_or((text.trim(), "0"));
        let is_number = |digits: &str| digits.bytes().all(|b| b.is_ascii_digit());
        if dollars.is_empty() || part.is_empty() || part.len() > 6 {
            return None;
        }
        if !is_number(dollars) || !is_number(part) {
            return None;
        }
        let dollars: u64 = dollars.parse().ok()?;
        let part: u64 = format!("{part:0<6}").parse().ok()?;
        dollars.checked_mul(1_000_000)?.checked_add(part).map(Cost)
    }

    fn duration(self) -> Option<Duration> {
        match self {
            Self::Untyped(text) | Self::Text(text) | Self::Fraction(text) => duration::parse(text),
            Self::Integer { .. } => duration::parse(&self.integer()?.to_string()),
            Self::Flag(_) | Self::List(_) | Self::Other(_) => None,
        }
    }

    /// A number of bytes.
    fn size(self) -> Option<u64> {
        let bytes = match self {
            Self::Untyped(text) | Self::Text(text) => size::parse(text)?,
            _ => self.integer()?,
        };
        (bytes > 0).then_some(bytes)
    }

    /// A duration, but none that is longer than so many seconds.
    fn duration_up_to(self, seconds: u32) -> Option<Duration> {
        let most = Duration::from_secs(seconds.into());
        let fits = |duration: &Duration| !duration.is_zero() && *duration <= most;
        self.duration().filter(fits)
    }

    pub(crate) fn type_name(self) -> &'static str {
        match self {
            Self::Untyped(_) | Self::Text(_) => "text",
            Self::Integer { .. } | Self::Fraction(_) => "a number",
            Self::Flag(true) => "true",
            Self::Flag(false) => "false",
            Self::List(_) => "a list",
            Self::Other(name) => name,
        }
    }
}

/// A value that has been checked.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Text(String),
    List(Vec<String>),
    Count(u32),
    Flag(bool),
    Duration(Duration),
    Amount(Cost),
    Proxy(ProxyUrl),
    Secret(SecretString),
    Secrets(Vec<SecretString>),
    Address(SocketAddr),
    /// In bytes.
    Size(u64),
}

/// A type that holds values of one kind.
pub(crate) trait FromValue: Sized {
    fn from_value(value: &Value) -> Option<Self>;
}

macro_rules! from_value {
    ($($kind:ident => $type:ty),* $(,)?) => {$(
        impl FromValue for $type {
            fn from_value(value: &Value) -> Option<Self> {
                match value {
                    Value::$kind(inner) => Some(inner.clone()),
                    _ => None,
                }
            }
        }
    )*};
}

from_value! {
    Text => String,
    List => Vec<String>,
    Count => u32,
    Flag => bool,
    Duration => Duration,
    Amount => Cost,
    Proxy => ProxyUrl,
    Secret => SecretString,
    Secrets => Vec<SecretString>,
    Address => SocketAddr,
    Size => u64,
}

/// The address of a proxy, which may hold a password: it is shown without.
#[derive(Clone, Debug)]
pub(crate) struct ProxyUrl(SecretString);

impl ProxyUrl {
    /// The whole address, with user and password.
    pub(crate) fn expose(&self) -> &str {
        self.0.expose_secret()
    }
}

impl std::fmt::Display for ProxyUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&url::without_credentials(self.expose()))
    }
}

impl Value {
    /// Returns the checked value of a setting, or a description of the problem.
    pub(crate) fn parse(kind: Kind, given: RawValue<'_>) -> Result<Self, String> {
        let wrong = || mismatch(kind, given);
        let because = |reason: &str| format!("expected {}; {reason}", kind.expected());
        let value = match kind {
            Kind::Integer(least, most) => given.integer_in_range(least, most).map(Self::Count),
            Kind::Flag => given.flag().map(Self::Flag),
            Kind::Duration => given.duration().map(Self::Duration),
            Kind::DurationUpTo(seconds) => given.duration_up_to(seconds).map(Self::Duration),
            Kind::Amount => given.amount().map(Self::Amount),
            Kind::Size => given.size().map(Self::Size),
            Kind::List(entry) | Kind::NonEmptyList(entry) => Self::parse_list(*entry, given)?,
            _ => {
                let text = given.text().ok_or_else(wrong)?;
                let value = Self::parse_text(kind, text);
                Some(value.map_err(|why| why.map_or_else(wrong, |why| because(&why)))?)
            }
        };
        let value = value.ok_or_else(wrong)?;
        let is_empty = match &value {
            Self::Text(text) => text.trim().is_empty(),
            Self::Secret(secret) => secret.expose_secret().is_empty(),
            Self::List(entries) => entries.is_empty() && matches!(kind, Kind::NonEmptyList(_)),
            _ => false,
        };
        match is_empty {
            true => Err(because("it is empty")),
            false => Ok(value),
        }
    }

    /// Parses a value whose kind is a text. The error is a reason, or `None` if there is none to add.
    fn parse_text(kind: Kind, text: &str) -> Result<Self, Option<String>> {
        let trimmed = text.trim();
        let check = |holds: bool, reason: &str| match holds {
            true => Ok(()),
            false => Err(Some(reason.to_owned())),
        };
        match kind {
            Kind::Proxy => {
                let whole = url::complete_proxy(text).map_err(|why| Some(why.to_owned()))?;
                return Ok(Self::Proxy(ProxyUrl(whole.into())));
            }
            Kind::Address => return trimmed.parse().map(Self::Address).map_err(|_| None),
            Kind::Credential | Kind::Token => {
                let is_space = |b: u8| matches!(b, b' ' | b'\t') && kind == Kind::Credential;
                let fits = |b: u8| b.is_ascii_graphic() || is_space(b);
                let reason = "it holds other characters (it is not shown here)";
                check(trimmed.bytes().all(fits), reason)?;
                return Ok(Self::Secret(trimmed.into()));
            }
            Kind::Choice(words) => words.contains(&trimmed).then_some(()).ok_or(None)?,
            Kind::Name => {
                let fits = |c: char| c.is_ascii_graphic() && c != ',';
                trimmed.chars().all(fits).then_some(()).ok_or(None)?;
            }
            Kind::Route => {
                let (_, policy) = parse_route(text).ok_or(None)?;
                Self::parse(Kind::Choice(&Policy::NAMES), RawValue::Text(policy)).map_err(Some)?;
            }
            Kind::Model => {
                fallback_chain::ModelEntry::parse(text).map_err(Some)?;
            }
            Kind::Upstream => url::check_upstream(trimmed).map_err(Some)?,
            Kind::Url => url::check_base(text).map_err(|why| Some(why.to_owned()))?,
            Kind::VariableName => {
                let reason = "it is something else (and not shown: is it the key itself?)";
                check(is_variable_name(text), reason)?;
            }
            _ => check(
                !text.contains(char::is_control),
                "it holds control characters",
            )?,
        }
        let is_verbatim = matches!(kind, Kind::Text | Kind::Path | Kind::Url);
        Ok(Self::Text(
            if is_verbatim { text } else { trimmed }.to_owned(),
        ))
    }

    /// Parses a list with entries of the given kind: an array of texts in a file, elsewhere one text with an entry on each
    /// line. Entries other than models may be separated by commas as well; the name of a model may hold commas.
    ///
    /// Returns `None` for something else.
    fn parse_list(kind: Kind, given: RawValue<'_>) -> Result<Option<Self>, String> {
        let is_between = |c: char| c == SEPARATOR || (c == ',' && kind != Kind::Model);
        let entries: Vec<RawValue<'_>> = match given {
            RawValue::Untyped(text) | RawValue::Text(text) => {
                let parts = text
                    .split(is_between)
                    .filter(|part| !part.trim().is_empty());
                parts.map(RawValue::Text).collect()
            }
            RawValue::List(list) => {
                let values = list.iter().map(|value| value.get_ref());
                values.map(RawValue::from_toml).collect()
            }
            _ => return Ok(None),
        };
        let (mut texts, mut secrets) = (Vec::new(), Vec::new());
        for (number, entry) in (1..).zip(entries) {
            match Self::parse(kind, entry).map_err(|why| format!("entry {number}: {why}"))? {
                Self::Text(text) => texts.push(text),
                Self::Secret(secret) => secrets.push(secret),
                _ => return Ok(None),
            }
        }
        Ok(Some(match kind {
            Kind::Token => Self::Secrets(secrets),
            _ => Self::List(texts),
        }))
    }

    /// Returns the value as it may be shown in JSON.
    pub(crate) fn json(&self) -> Json {
        match self {
            Self::Secret(_) => Json::Null,
            Self::Count(count) => (*count).into(),
            Self::Flag(flag) => (*flag).into(),
            Self::List(texts) => texts.clone().into(),
            other => other.redacted().into(),
        }
    }

    /// Returns the value as it may be shown.
    pub(crate) fn redacted(&self) -> String {
        match self {
            Self::Text(text) => url::without_query(text),
            Self::List(texts) => format!("{texts:?}"),
            Self::Count(number) => number.to_string(),
            Self::Flag(flag) => flag.to_string(),
            Self::Duration(Duration::ZERO) => "off".to_owned(),
            Self::Duration(duration) => duration::to_text(*duration),
            Self::Amount(Cost(millionths)) => {
                let (dollars, part) = (millionths / 1_000_000, millionths % 1_000_000);
                let part = format!("{part:06}");
                format!("{dollars}.{:0<2}", part.trim_end_matches('0'))
            }
            Self::Proxy(url) => url.to_string(),
            Self::Secret(_) | Self::Secrets(_) => "(set, hidden)".to_owned(),
            Self::Address(address) => address.to_string(),
            Self::Size(bytes) => size::to_text(*bytes),
        }
    }
}

/// Splits `PATH=POLICY` into the path and the name of the policy.
pub(super) fn parse_route(text: &str) -> Option<(&str, &str)> {
    let (path, policy) = text.rsplit_once('=')?;
    let (path, policy) = (path.trim(), policy.trim());
    let is_path = path.starts_with('/') && path.chars().all(|c| c.is_ascii_graphic());
    is_path.then_some((path, policy))
}

fn is_variable_name(name: &str) -> bool {
    let in_name = |b: u8| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_';
    name.bytes().all(in_name) && !name.starts_with(|c: char| c.is_ascii_digit())
}

fn mismatch(kind: Kind, given: RawValue<'_>) -> String {
    let found = match given {
        RawValue::Untyped(text) | RawValue::Text(text) if kind.may_be_repeated() => {
            format!("`{}`", sanitized(text))
        }
        RawValue::Integer { digits, radix: 10 } if kind.is_number() => {
            format!("`{}`", sanitized(digits))
        }
        _ => given.type_name().to_owned(),
    };
    let near = match (kind, given.text()) {
        (Kind::Choice(words), Some(text)) => closest_word(text.trim(), words.iter().copied()),
        _ => None,
    };
    let near = near.map_or(String::new(), |word| format!("; did you mean `{word}`?"));
    format!("expected {}, found {found}{near}", kind.expected())
}

#[cfg(test)]
mod tests {
    use super::super::table::settings;
    use super::*;

    fn read(path: &str, given: RawValue<'_>) -> Result<String, String> {
        let setting = settings().find(|setting| setting.path == path).unwrap();
        Value::parse(setting.kind, given).map(|value| value.redacted())
    }

    #[test]
    fn every_default_is_a_value_of_its_kind() {
        for setting in settings() {
            if let Some(text) = setting.default {
                assert!(
                    Value::parse(setting.kind, RawValue::Untyped(text)).is_ok(),
                    "{}",
                    setting.path
                );
            }
        }
    }

    #[test]
    fn values_parse_according_to_setting_kind() {
        let whole = |digits| RawValue::Integer { digits, radix: 10 };
        let table = [
            ("model", RawValue::Text("claude"), Some("claude")),
            ("model", RawValue::Text(" "), None),
            ("model", RawValue::Text("a\nb"), None),
            ("model", whole("4"), None),
            ("provider", RawValue::Untyped(" openai\n"), Some("openai")),
            ("max_tokens", whole("4096"), Some("4096")),
            (
                "max_tokens",
                RawValue::Integer {
                    digits: "ff",
                    radix: 16,
                },
                Some("255"),
            ),
            ("max_tokens", RawValue::Untyped("4096"), Some("4096")),
            ("max_tokens", RawValue::Text("4096"), None),
            ("max_tokens", whole("0"), None),
            ("max_tokens", whole("-1"), None),
            ("max_tokens", whole("4294967296"), None),
            ("max_tokens", RawValue::Fraction("1.5"), None),
            ("retry.enabled", RawValue::Flag(false), Some("false")),
            ("retry.enabled", RawValue::Untyped("false"), Some("false")),
            ("retry.enabled", RawValue::Text("false"), None),
            ("timeouts.idle", whole("90"), Some("1m30s")),
            ("timeouts.idle", RawValue::Fraction("0.5"), Some("500ms")),
            ("timeouts.idle", whole("0"), Some("off")),
            ("timeouts.idle", whole("-3"), None),
            ("timeouts.idle", RawValue::Fraction("inf"), None),
            ("timeouts.idle", RawValue::Flag(true), None),
            (
                "http.proxy",
                RawValue::Untyped("u:p@host:1"),
                Some("http://…@host:1"),
            ),
            (
                "providers.<provider>.api_key",
                RawValue::Untyped("key\n"),
                Some("(set, hidden)"),
            ),
            ("providers.<provider>.api_key", RawValue::Text("a\nb"), None),
            (
                "providers.<provider>.api_key_env",
                RawValue::Text("WORK_KEY"),
                Some("WORK_KEY"),
            ),
            (
                "providers.<provider>.api_key_env",
                RawValue::Text("gsk_0123abcd"),
                None,
            ),
        ];
        for (path, given, value) in table {
            assert_eq!(read(path, given).ok().as_deref(), value, "{path} {given:?}");
        }
    }

    #[test]
    fn cost_amount_parses_to_six_decimals() {
        let whole = |digits| RawValue::Integer { digits, radix: 10 };
        let table = [
            ("limits.cost", RawValue::Fraction("2.5"), Some("2.50")),
            ("limits.cost", whole("3"), Some("3.00")),
            (
                "limits.cost",
                RawValue::Fraction("0.000001"),
                Some("0.000001"),
            ),
            ("limits.cost", RawValue::Fraction("0.0000001"), None),
            ("limits.cost", RawValue::Fraction("1e3"), None),
            ("limits.cost", whole("-1"), None),
            ("limits.cost", RawValue::Text("2.5"), None),
        ];
        for (path, given, value) in table {
            assert_eq!(read(path, given).ok().as_deref(), value, "{given:?}");
        }
    }

    #[test]
    fn value_debug_output_hides_secrets() {
        let secret = Value::Secret("sesame".into());
        let proxy = Value::Proxy(ProxyUrl("http://u:sesame@host".into()));
        assert!(!format!("{secret:?} {proxy:?}").contains("sesame"));
    }
}
