//! The accounts in the settings.

use crate::config::layers::Layers;
use crate::config::settings::Provider;
use crate::platform::exit::UsageError;
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
    let names = layers.names("accounts").into_iter();
    names.map(|name| account(layers, name)).collect()
}

fn account(layers: &Layers, name: &str) -> Result<AccountSettings, UsageError> {
    let own = layers.named("accounts", name);
    let wrong = |problem: &str| UsageError(format!("account `{name}`: {problem}"));
    let provider = own.get("provider");
    let provider = provider.and_then(|provider: String| Provider::from_name(&provider));
    let sources = [
        own.get("api_key_env").map(KeyLocation::Variable),
        own.file("api_key_file").map(KeyLocation::File),
        own.get("api_key_command").map(KeyLocation::Command),
    ];
    let provider = provider.ok_or_else(|| wrong("`provider` is missing"))?;
    let mut sources = sources.into_iter().flatten();
    let (Some(source), None) = (sources.next(), sources.next()) else {
        let problem = "it needs exactly one of `api_key_env`, `api_key_file`, `api_key_command`";
        return Err(wrong(problem));
    };
    Ok(AccountSettings {
        name: name.to_owned(),
        provider,
        key: source,
        max_in_flight: own.get("max_in_flight"),
    })
}
