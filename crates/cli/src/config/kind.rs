//! The kinds of values: what is allowed, in words for people and as a JSON Schema.

use super::duration;
use serde_json::{Value as Json, json};
use std::borrow::Cow;
use std::time::Duration;

/// The form of a value that `duration` parses.
const DURATION_PATTERN: &str = r"^([0-9]+(\.[0-9]+)?|([0-9]+(\.[0-9]+)?d)?([0-9]+(\.[0-9]+)?h)?([0-9]+(\.[0-9]+)?m)?([0-9]+(\.[0-9]+)?s)?([0-9]+(\.[0-9]+)?ms)?)$";

/// The kind of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    Path,
    Choice(&'static [&'static str]),
    /// A whole number from the one to the other.
    Integer(u32, u32),
    Flag,
    /// A duration; zero switches something off.
    Duration,
    /// A duration of more than zero and at most that many seconds.
    DurationUpTo(u32),
    /// Money, in dollars.
    Amount,
    /// A number of bytes, at least one.
    Size,
    /// `MODEL` or `PROVIDER:MODEL`.
    Model,
    /// The address of an API: no user, no password.
    Url,
    /// The address of a proxy, which may hold a user and a password.
    Proxy,
    /// The address of an API, or the scripted provider.
    Upstream,
    /// The address and port of a server.
    Address,
    /// Secret text that may be in a request header.
    Credential,
    /// The same without spaces, as an entry of a list.
    Token,
    VariableName,
    /// A name without spaces.
    Name,
    /// `PATH=POLICY`.
    Route,
    List(&'static Kind),
    NonEmptyList(&'static Kind),
}

impl Kind {
    /// A whole number of at least one.
    pub(crate) const COUNT: Self = Self::Integer(1, u32::MAX);

    /// Returns what is allowed, in words.
    pub(crate) fn expected(self) -> Cow<'static, str> {
        let fixed = match self {
            Self::Text => "text",
            Self::Path => "the path of a file",
            Self::Choice(words) => return format!("one of {}", words.join(", ")).into(),
            Self::Integer(least, most) => {
                return format!("a whole number of at least {least} and at most {most}").into();
            }
            Self::Flag => "true or false",
            Self::Duration => {
                "a duration such as \"30s\", \"2m\", \"1h30m\" or \"500ms\", or a number of seconds, of at most a year (0 switches it off)"
            }
            Self::DurationUpTo(seconds) => {
                let most = duration::to_text(Duration::from_secs(seconds.into()));
                return format!(
                    "a duration such as \"500ms\", \"30s\" or \"2m\", or a number of seconds, of more than 0 and at most {most}"
                )
                .into();
            }
            Self::Amount => "an amount of dollars such as 2.50",
            Self::Size => "a number of bytes, such as 65536, \"512KiB\" or \"64MiB\"",
            Self::Model => "a model, such as \"MODEL\" or \"PROVIDER:MODEL\"",
            Self::Url => "an address such as \"https://host/path\"",
            Self::Proxy => "an address such as \"http://host:3128\"",
            Self::Upstream => "an address such as \"https://host/path\", or \"mock:SCRIPT\"",
            Self::Address => "an address and a port, such as \"127.0.0.1:4180\"",
            Self::Credential => "text of visible ASCII characters",
            Self::Token => "text of visible ASCII characters without spaces",
            Self::VariableName => "the name of a variable, in capitals, such as \"MY_API_KEY\"",
            Self::Name => "a name without spaces and commas",
            Self::Route => "a path and a policy, such as \"/v1/embeddings=standard\"",
            Self::List(entry) => return format!("a list, each entry {}", entry.expected()).into(),
            Self::NonEmptyList(entry) => {
                return format!("a list of at least one entry, each {}", entry.expected()).into();
            }
        };
        fixed.into()
    }

    pub(crate) fn schema(self) -> Json {
        let pattern = match self {
            Self::Text | Self::Path | Self::Model => r"\S",
            Self::Choice(words) => return json!({ "type": "string", "enum": words }),
            Self::Integer(least, most) => {
                return json!({ "type": "integer", "minimum": least, "maximum": most });
            }
            Self::Flag => return json!({ "type": "boolean" }),
            Self::Duration => {
                return json!({ "type": ["string", "number"], "minLength": 1, "pattern": DURATION_PATTERN, "minimum": 0 });
            }
            Self::DurationUpTo(seconds) => {
                return json!({ "type": ["string", "number"], "minLength": 1, "pattern": DURATION_PATTERN, "exclusiveMinimum": 0, "maximum": seconds });
            }
            Self::Amount => return json!({ "type": "number", "minimum": 0 }),
            Self::Size => {
                return json!({ "type": ["string", "integer"], "pattern": "^[0-9]+ *([KMG]iB|B)?$", "minimum": 1 });
            }
            Self::Proxy | Self::Credential | Self::Token => {
                return json!({ "type": "string", "minLength": 1 });
            }
            Self::Url => r"^https?://[^@?#\s]+$",
            Self::Upstream => r"^(https?://[^@#\s]+|mock:.+)$",
            Self::Address => ":[0-9]+$",
            Self::VariableName => "^[A-Z_][A-Z0-9_]*$",
            Self::Name => r"^\S+$",
            Self::Route => "^/.*=.+$",
            Self::List(entry) => {
                return json!({ "type": ["array", "string"], "items": entry.schema() });
            }
            Self::NonEmptyList(entry) => {
                return json!({ "type": ["array", "string"], "minItems": 1, "minLength": 1, "items": entry.schema() });
            }
        };
        json!({ "type": "string", "pattern": pattern })
    }

    pub(crate) const fn is_secret(self) -> bool {
        matches!(self, Self::Credential | Self::List(Self::Token))
    }

    /// Reports whether a problem may repeat a wrong text.
    pub(crate) const fn may_be_repeated(self) -> bool {
        matches!(
            self,
            Self::Choice(_)
                | Self::Duration
                | Self::DurationUpTo(_)
                | Self::Address
                | Self::Size
                | Self::Name
                | Self::Route
        )
    }

    /// Reports whether a value can be written as a number.
    pub(crate) const fn is_number(self) -> bool {
        matches!(
            self,
            Self::Integer(..) | Self::Duration | Self::DurationUpTo(_) | Self::Amount | Self::Size
        )
    }
}
