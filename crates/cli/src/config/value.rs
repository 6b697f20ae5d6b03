//! One value: read from what was given, according to its kind.
//!
//! Invariant: the text of a problem repeats a value only when nothing of its kind can be a secret.

use super::key::{closest_word, sanitized};
use super::sections::fallback_chain;
use super::table::{Kind, Setting};
use super::{duration, list, size, url};
use secrecy::{ExposeSecret, SecretString};
use std::net::SocketAddr;
use std::time::Duration;
use toml::de::{DeArray, DeValue};

/// What stands in a file, a variable or a flag.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RawValue<'a> {
    /// From a variable or a flag: it may be anything.
    Untyped(&'a str),
    Text(&'a str),
    Integer {
        digits: &'a str,
        radix: u32,
    },
    Fraction(&'a str),
    Flag(bool),
    List(&'a DeArray<'a>),
    /// What no setting is; its name.
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

    /// Dollars, as millionths of one.
    fn amount(self) -> Option<u64> {
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
        dollars.checked_mul(1_000_000)?.checked_add(part)
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
    /// In millionths of a dollar.
    Amount(u64),
    Proxy(ProxyUrl),
    Secret(SecretString),
    Secrets(Vec<SecretString>),
    Address(SocketAddr),
    /// In bytes.
    Size(u64),
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
    /// The checked value, or what is wrong with it.
    pub(crate) fn parse(setting: &Setting, given: RawValue<'_>) -> Result<Self, String> {
        let wrong = || mismatch(setting.kind, given);
        let text = || given.text().ok_or_else(wrong);
        let because = |reason: &str| format!("expected {}; {reason}", setting.kind.expected());
        let value = match setting.kind {
            Kind::Text | Kind::Path if text()?.contains(char::is_control) => {
                return Err(because("it holds control characters"));
            }
            Kind::Text | Kind::Path => Self::Text(text()?.to_owned()),
            Kind::Choice(words) => {
                let word = text()?.trim();
                let known = words.iter().find(|known| **known == word);
                Self::Text(known.ok_or_else(wrong)?.to_string())
            }
            Kind::Count => Self::Count(given.integer_in_range(1, u32::MAX).ok_or_else(wrong)?),
            Kind::IntegerRange(least, most) => {
                Self::Count(given.integer_in_range(least, most).ok_or_else(wrong)?)
            }
            Kind::Model => {
                fallback_chain::ModelEntry::parse(text()?).map_err(|why| because(&why))?;
                Self::Text(text()?.trim().to_owned())
            }
            Kind::Models
            | Kind::Choices(_)
            | Kind::AtLeastOneOf(_)
            | Kind::Names
            | Kind::Routes => Self::List(list::parse_entries(setting.kind, given)?),
            Kind::Credentials => {
                let keys = list::parse_entries(setting.kind, given)?;
                Self::Secrets(keys.into_iter().map(SecretString::from).collect())
            }
            Kind::Address => Self::Address(text()?.trim().parse().map_err(|_| wrong())?),
            Kind::Size => Self::Size(given.size().ok_or_else(wrong)?),
            Kind::Upstream => {
                let text = text()?.trim();
                url::check_upstream(text).map_err(|why| because(&why))?;
                Self::Text(text.to_owned())
            }
            Kind::Flag => Self::Flag(given.flag().ok_or_else(wrong)?),
            Kind::Duration => Self::Duration(given.duration().ok_or_else(wrong)?),
            Kind::DurationUpTo(seconds) => {
                Self::Duration(given.duration_up_to(seconds).ok_or_else(wrong)?)
            }
            Kind::Amount => Self::Amount(given.amount().ok_or_else(wrong)?),
            Kind::Url => {
                url::check_base(text()?).map_err(because)?;
                Self::Text(text()?.to_owned())
            }
            Kind::Proxy => {
                let whole = url::complete_proxy(text()?).map_err(because)?;
                Self::Proxy(ProxyUrl(whole.into()))
            }
            Kind::Credential => Self::Secret(credential(text()?.trim()).map_err(because)?.into()),
            Kind::VariableName => Self::Text(variable_name(text()?).map_err(because)?.to_owned()),
        };
        if value.is_empty() {
            return Err(because("it is empty"));
        }
        Ok(value)
    }

    fn is_empty(&self) -> bool {
        match self {
            Self::Text(text) => text.trim().is_empty(),
            Self::Secret(secret) => secret.expose_secret().is_empty(),
            _ => false,
        }
    }

    /// As it may be shown.
    pub(crate) fn redacted(&self) -> String {
        match self {
            Self::Text(text) => url::without_query(text),
            Self::List(texts) => format!("{texts:?}"),
            Self::Count(number) => number.to_string(),
            Self::Flag(flag) => flag.to_string(),
            Self::Duration(Duration::ZERO) => "off".to_owned(),
            Self::Duration(duration) => duration::to_text(*duration),
            Self::Amount(millionths) => {
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

fn credential(text: &str) -> Result<&str, &'static str> {
    match text.bytes().all(|b| matches!(b, b' '..=b'~' | b'\t')) {
        true => Ok(text),
        false => Err("it holds other characters (it is not shown here)"),
    }
}

fn variable_name(name: &str) -> Result<&str, &'static str> {
    match is_variable_name(name) {
        true => Ok(name),
        false => Err("it is something else (and not shown: is it the key itself?)"),
    }
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
    use super::super::table::SETTINGS;
    use super::*;

    fn read(path: &str, given: RawValue<'_>) -> Result<String, String> {
        let setting = SETTINGS
            .iter()
            .find(|setting| setting.path == path)
            .unwrap();
        Value::parse(setting, given).map(|value| value.redacted())
    }

    #[test]
    fn every_default_is_a_value_of_its_kind() {
        for setting in SETTINGS {
            if let Some(text) = setting.default {
                assert!(
                    Value::parse(setting, RawValue::Untyped(text)).is_ok(),
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
