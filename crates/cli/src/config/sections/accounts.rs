//! The accounts in the settings.

use crate::config::key::Key;
use crate::config::layers::Layers;
use crate::config::settings::{Provider, resolve_path};
use crate::config::value::Value;
use crate::platform::exit::UsageError;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// A configured account.
#[derive(Clone, Debug)]
pub(crate) struct AccountSettings {
    pub(crate) name: String,
    pub(crate) provider: Provider,
    pub(crate) key: KeyLocation,
    pub(crate) max_in_flight: Option<u32>,
}

/// The source of an account's key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KeyLocation {
    Variable(String),
    File(PathBuf),
    Command(String),
}

impl std::fmt::Display for KeyLocation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Variable(name) => write!(f, "variable {name}"),
            Self::File(path) => write!(f, "file {}", path.display()),
            // The command line may hold a secret of its own.
            Self::Command(_) => f.write_str("command"),
        }
    }
}

/// Returns all accounts, ordered by name.
pub(in crate::config) fn all(layers: &Layers) -> Result<Vec<AccountSettings>, UsageError> {
    let fields = [
        "provider",
        "api_key_env",
        "api_key_file",
        "api_key_command",
        "max_in_flight",
    ];
    let paths = fields.map(|field| format!("accounts.<account>.{field}"));
    let names: BTreeSet<&str> = layers
        .effective
        .keys()
        .filter_map(|key| paths.iter().find_map(|path| key.name_in(path)))
        .collect();
    names
        .into_iter()
        .map(|name| account(layers, name))
        .collect()
}

fn account(layers: &Layers, name: &str) -> Result<AccountSettings, UsageError> {
    let key = |field: &str| Key::with_name(&format!("accounts.<account>.{field}"), name);
    let found = |field: &str| layers.effective.get(&key(field));
    let text = |field: &str| layers.text(&key(field)).map(str::to_owned);
    let wrong = |problem: &str| UsageError(format!("account `{name}`: {problem}"));
    let provider = text("provider")
        .and_then(|provider| Provider::from_name(&provider))
        .ok_or_else(|| wrong("`provider` is missing"))?;
    let sources = [
        text("api_key_env").map(KeyLocation::Variable),
        found("api_key_file")
            .and_then(resolve_path)
            .map(KeyLocation::File),
        text("api_key_command").map(KeyLocation::Command),
    ];
    let mut sources = sources.into_iter().flatten();
    let (Some(source), None) = (sources.next(), sources.next()) else {
        let problem = "it needs exactly one of `api_key_env`, `api_key_file`, `api_key_command`";
        return Err(wrong(problem));
    };
    Ok(AccountSettings {
        name: name.to_owned(),
        provider,
        key: source,
        max_in_flight: match found("max_in_flight").map(|found| &found.value) {
            Some(Value::Count(count)) => Some(*count),
            _ => None,
        },
    })
}
