//! What a value may be, in words for people.

use super::duration;
use std::time::Duration;

/// What a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    Choice(&'static [&'static str]),
    /// Any of these words.
    Choices(&'static [&'static str]),
    /// At least one of these words.
    AtLeastOneOf(&'static [&'static str]),
    /// At least one.
    Count,
    /// A whole number from the one to the other.
    IntegerRange(u32, u32),
    Flag,
    Duration,
    /// A duration of more than nothing and at most so many seconds.
    DurationUpTo(u32),
    /// Money, in dollars.
    Amount,
    /// A model that is asked instead of another one, perhaps of another provider.
    Model,
    /// Several of them, in order.
    Models,
    /// Where requests go: no user, no password, no query.
    Url,
    /// May hold a user and a password.
    Proxy,
    /// Text that may stand in a request header.
    Credential,
    /// Several of them.
    Credentials,
    VariableName,
    Path,
    /// Where a server listens.
    Address,
    /// Where a gateway sends requests: like a `Url`, or the scripted provider.
    Upstream,
    /// A number of bytes, at least one.
    Size,
    /// Several names without spaces.
    Names,
    /// Policies by the path that they are for.
    Routes,
}

impl Kind {
    /// What is allowed, in words.
    pub(crate) fn expected(self) -> String {
        match self {
            Self::Text => "text",
            Self::Choice(words) => return format!("one of {}", words.join(", ")),
            Self::Choices(words) => return format!("a list of {}", words.join(", ")),
            Self::AtLeastOneOf(words) => return format!("a list of some of {}", words.join(", ")),
            Self::Count => "a whole number of at least 1 and at most 4294967295",
            Self::IntegerRange(least, most) => {
                return format!("a whole number of at least {least} and at most {most}");
            }
            Self::Flag => "true or false",
            Self::Duration => {
                "a duration such as \"30s\", \"2m\", \"1h30m\" or \"500ms\", or a number of seconds, of at most a year (0 switches it off)"
            }
            Self::DurationUpTo(seconds) => {
                let most = duration::to_text(Duration::from_secs(seconds.into()));
                return format!(
                    "a duration such as \"500ms\", \"30s\" or \"2m\", or a number of seconds, of more than 0 and at most {most}"
                );
            }
            Self::Amount => "an amount of dollars such as 2.50",
            Self::Model => "a model, such as \"MODEL\" or \"PROVIDER:MODEL\"",
            Self::Models => "a list of models, such as [\"MODEL\", \"PROVIDER:MODEL\"]",
            Self::Url => "an address such as \"https://host/path\"",
            Self::Proxy => "an address such as \"http://host:3128\"",
            Self::Credential => "text of visible ASCII characters",
            Self::VariableName => "the name of a variable, in capitals, such as \"MY_API_KEY\"",
            Self::Credentials => "a list of texts of visible ASCII characters",
            Self::Path => "the path of a file",
            Self::Address => "an address and a port, such as \"127.0.0.1:4180\"",
            Self::Upstream => "an address such as \"https://host/path\", or \"mock:SCRIPT\"",
            Self::Size => "a number of bytes, such as 65536, \"512KiB\" or \"64MiB\"",
            Self::Names => "a list of names without spaces",
            Self::Routes => "a list of paths and policies, such as [\"/v1/embeddings=standard\"]",
        }
        .to_owned()
    }

    /// Whether a value that is wrong may be repeated.
    pub(crate) const fn may_be_repeated(self) -> bool {
        matches!(
            self,
            Self::Choice(_) | Self::Duration | Self::DurationUpTo(_) | Self::Address | Self::Size
        )
    }

    /// Whether it can be written as a number.
    pub(crate) const fn is_number(self) -> bool {
        matches!(
            self,
            Self::Count
                | Self::IntegerRange(..)
                | Self::Duration
                | Self::DurationUpTo(_)
                | Self::Amount
                | Self::Size
        )
    }
}
