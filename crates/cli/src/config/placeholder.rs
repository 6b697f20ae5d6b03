//! Placeholders in a path: names of providers, models, headers, accounts, servers and variables; and indexes of lists.

use crate::config::table::REMOTE_PROVIDERS;

/// A placeholder in a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placeholder {
    Provider,
    Model,
    Header,
    Account,
    Server,
    Variable,
    /// The index in a list of tables, from 1.
    Number,
}

impl Placeholder {
    pub(crate) fn parse(segment: &str) -> Option<Self> {
        match segment {
            "<provider>" => Some(Self::Provider),
            "<model>" => Some(Self::Model),
            "<header>" => Some(Self::Header),
            "<account>" => Some(Self::Account),
            "<server>" => Some(Self::Server),
            "<variable>" => Some(Self::Variable),
            "<number>" => Some(Self::Number),
            _ => None,
        }
    }

    pub(crate) fn accepts(self, name: &str) -> bool {
        let is_token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
        match self {
            Self::Provider => REMOTE_PROVIDERS.contains(&name),
            Self::Model => !name.is_empty(),
            Self::Header => !name.is_empty() && name.bytes().all(is_token),
            Self::Account => is_account_name(name),
            Self::Server => is_server_name(name),
            Self::Variable => is_variable_name(name),
            Self::Number => name.parse::<u32>().is_ok(),
        }
    }

    /// Returns the allowed names, if they are a fixed set.
    pub(crate) fn names(self) -> &'static [&'static str] {
        match self {
            Self::Provider => REMOTE_PROVIDERS,
            _ => &[],
        }
    }

    pub(crate) fn expected(self) -> String {
        match self {
            Self::Provider => REMOTE_PROVIDERS.join(", "),
            Self::Model => "the name of a model".to_owned(),
            Self::Header => "the name of a header".to_owned(),
            Self::Account => "a name of letters, digits, `-`, `_` and `.`".to_owned(),
            Self::Server => format!(
                "a name of at most {MAX_SERVER_NAME_LENGTH} letters, digits, `-` and `_` that is none of {}",
                RESERVED_SERVER_NAMES.join(", ")
            ),
            Self::Variable => "the name of a variable".to_owned(),
            Self::Number => "a number".to_owned(),
        }
    }
}

/// Checks the name of an account: such names are shown, typed and put into keys of the store.
fn is_account_name(name: &str) -> bool {
    const MAX_LENGTH: usize = 64;
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    (1..=MAX_LENGTH).contains(&name.len()) && name.bytes().all(plain)
}

/// The longest name of a server, in bytes: it is part of its tools' names, which may have 64 characters.
pub(crate) const MAX_SERVER_NAME_LENGTH: usize = 24;
/// Names that mean something else where tools are allowed or called.
pub(crate) const RESERVED_SERVER_NAMES: [&str; 7] =
    ["bash", "edit", "grep", "mcp", "outside", "read", "write"];

fn is_server_name(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_".contains(&b);
    let fits = (1..=MAX_SERVER_NAME_LENGTH).contains(&name.len()) && name.bytes().all(plain);
    fits && !RESERVED_SERVER_NAMES.contains(&name)
}

fn is_variable_name(name: &str) -> bool {
    let in_name = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    let begins = |b: &u8| !b.is_ascii_digit();
    name.as_bytes().first().is_some_and(begins) && name.bytes().all(in_name)
}
