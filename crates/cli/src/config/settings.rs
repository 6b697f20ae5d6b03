//! What the settings amount to, in plain types.

use super::key::Key;
use super::layers::{Layers, SourcedValue, key_variable};
use super::sections::accounts::{self, AccountSettings};
use super::sections::fallback_chain::{self, ModelEntry, ProviderModel};
use super::sections::gateway::GatewaySettings;
use super::sections::hooks;
use super::sections::mcp_servers::{self, McpServerSettings};
use super::sections::recovery::{self, Recovery};
use super::sections::serve::ServeSettings;
use super::table::SETTINGS;
use super::value::{ProxyUrl, Value};
use crate::platform::exit::UsageError;
use outlast_engine::provider::Timeouts;
use outlast_kernel::Timestamp;
use outlast_kernel::budget::{Cost, Limits, Price};
use outlast_kernel::model_info::Capabilities;
use outlast_kernel::policy::{Overrides, Policy};
use outlast_session::hooks::Hook;
use secrecy::SecretString;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub(crate) type Secret = SecretString;

/// Who answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Provider {
    Mock,
    Anthropic,
    OpenAi,
    OpenAiResponses,
}

/// The settings that count, for one provider and model.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) provider: Option<Provider>,
    pub(crate) model: Option<String>,
    pub(crate) max_tokens: Option<u32>,
    pub(crate) retry: Retry,
    pub(crate) recovery: Recovery,
    /// What is known of the model.
    pub(crate) traits: Capabilities,
    /// The same for the models that are asked when this one cannot be, in order.
    pub(crate) fallbacks: Vec<Settings>,
    /// The same for the model that summarises conversations first, if another one does.
    pub(crate) summarizer: Option<Box<Settings>>,
    pub(crate) limits: LimitSettings,
    pub(crate) price: Option<Price>,
    pub(crate) tools: ToolSettings,
    /// MCP servers, by name.
    pub(crate) servers: Vec<McpServerSettings>,
    /// What is run when something happens, the user's before the project's.
    pub(crate) hooks: Vec<Hook>,
    pub(crate) timeouts: Timeouts,
    pub(crate) base_url: Option<String>,
    pub(crate) api_key: Option<Secret>,
    /// The variable of the environment in which a key is looked for.
    pub(crate) api_key_variable: Option<String>,
    /// All variables of the environment that hold keys, of whatever provider.
    pub(crate) key_variables: Vec<String>,
    pub(crate) headers: Vec<(String, Secret)>,
    pub(crate) proxy: Proxy,
    pub(crate) ca_file: Option<PathBuf>,
    /// Of all providers, by name.
    pub(crate) accounts: Vec<AccountSettings>,
    pub(crate) gateway: GatewaySettings,
    pub(crate) serve: ServeSettings,
}

#[derive(Clone, Debug)]
pub(crate) struct Retry {
    pub(crate) enabled: bool,
    /// The named policy with `wait_for_reset` applied.
    pub(crate) policy: Policy,
}

/// What a prompt may spend.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LimitSettings {
    pub(crate) deadline: Option<Duration>,
    pub(crate) sleep: Option<Duration>,
    pub(crate) cost: Option<Cost>,
}

impl LimitSettings {
    /// What a prompt may spend that begins then.
    pub(crate) fn limits_starting_at(self, now: Timestamp) -> Limits {
        Limits {
            deadline: self.deadline.map(|limit| now + limit),
            sleep: self.sleep,
            cost: self.cost,
        }
    }
}

/// What a model may do.
#[derive(Clone, Debug)]
pub(crate) struct ToolSettings {
    pub(crate) enabled: bool,
    /// What may run without being asked about.
    pub(crate) allow: Vec<String>,
    pub(crate) timeout: Duration,
}

#[derive(Clone, Debug)]
pub(crate) struct Proxy {
    /// For `http://` addresses.
    pub(crate) http: Option<ProxyUrl>,
    /// For `https://` addresses.
    pub(crate) https: Option<ProxyUrl>,
    /// Hosts that are reached without one, separated by commas.
    pub(crate) no_proxy: Option<String>,
}

impl Provider {
    /// Its name in files, flags and the environment.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Mock => "mock",
            Self::Anthropic => "anthropic",
            Self::OpenAi => "openai",
            Self::OpenAiResponses => "openai-responses",
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        [
            Self::Mock,
            Self::Anthropic,
            Self::OpenAi,
            Self::OpenAiResponses,
        ]
        .into_iter()
        .find(|provider| provider.name() == name)
    }
}

impl Settings {
    /// For the provider and the model that are chosen, and for those that may be asked beside them.
    pub(crate) fn from_layers(layers: &Layers) -> Result<Self, UsageError> {
        let text = |path: &str| layers.text(&Key::from_path(path));
        let provider = text("provider").and_then(Provider::from_name);
        let model = text("model").map(str::to_owned);
        let first = ProviderModel {
            provider: provider.unwrap_or(Provider::Mock),
            model: model.clone().unwrap_or_default(),
        };
        let other =
            |place: ProviderModel| Self::for_model(layers, Some(place.provider), Some(place.model));
        let fallbacks = fallback_chain::fallback_models(layers, &first)
            .into_iter()
            .map(other);
        let summariser = text("compaction.model").and_then(|text| ModelEntry::parse(text).ok());
        let summariser = summariser.map(|entry| other(entry.resolve_for(first.provider)));
        Ok(Self {
            fallbacks: fallbacks.collect::<Result<_, _>>()?,
            summarizer: summariser.transpose()?.map(Box::new),
            ..Self::for_model(layers, provider, model)?
        })
    }

    /// For that provider alone, whatever is chosen.
    pub(super) fn for_provider(layers: &Layers, provider: Provider) -> Result<Self, UsageError> {
        Self::for_model(layers, Some(provider), None)
    }

    /// For that provider and model alone.
    fn for_model(
        layers: &Layers,
        provider: Option<Provider>,
        model: Option<String>,
    ) -> Result<Self, UsageError> {
        let text = |path: &str| layers.text(&Key::from_path(path)).map(str::to_owned);
        let name = provider.map_or("", Provider::name);
        let own = |field: &str| Key::with_name(&format!("providers.<provider>.{field}"), name);
        let servers = mcp_servers::all(layers)?;
        let place = ProviderModel {
            provider: provider.unwrap_or(Provider::Mock),
            model: model.clone().unwrap_or_default(),
        };
        Ok(Self {
            provider,
            recovery: Recovery::from_layers(layers),
            traits: recovery::model_traits(layers, &place),
            fallbacks: Vec::new(),
            summarizer: None,
            max_tokens: match layers.value("max_tokens") {
                Some(Value::Count(count)) => Some(*count),
                _ => None,
            },
            retry: Retry::from_layers(layers)?,
            limits: LimitSettings {
                deadline: layers.limit("limits.deadline"),
                sleep: layers.limit("limits.sleep"),
                cost: layers.cost_ceiling(),
            },
            price: price(layers, model.as_deref())?,
            tools: ToolSettings::from_layers(layers, &servers)?,
            servers,
            hooks: hooks::all(layers),
            timeouts: timeouts(layers, model.as_deref()),
            model,
            base_url: layers.text(&own("base_url")).map(str::to_owned),
            api_key: layers.effective.get(&own("api_key")).and_then(secret),
            api_key_variable: key_variable(layers, name),
            key_variables: key_variables(layers),
            headers: headers(layers, &own("headers")),
            proxy: Proxy {
                http: proxy(layers, "http.proxy_http"),
                https: proxy(layers, "http.proxy_https"),
                no_proxy: text("http.no_proxy"),
            },
            ca_file: layers
                .effective
                .get(&Key::from_path("http.ca_file"))
                .and_then(resolve_path),
            accounts: accounts::all(layers)?,
            gateway: GatewaySettings::from_layers(layers, timeouts(layers, None))?,
            serve: ServeSettings::from_layers(layers),
        })
    }
}

impl Retry {
    /// The policy that counts where nothing can switch it off.
    pub(crate) fn effective_policy(&self) -> Policy {
        let none = Policy::named("none").ok();
        let off = none.filter(|_| !self.enabled);
        off.unwrap_or_else(|| self.policy.clone())
    }

    fn from_layers(layers: &Layers) -> Result<Self, UsageError> {
        let flag = |path| matches!(layers.value(path), Some(Value::Flag(true)));
        let name = layers
            .text(&Key::from_path("retry.policy"))
            .unwrap_or_default();
        let count = |path| match layers.value(path) {
            Some(Value::Count(count)) => Some(*count),
            _ => None,
        };
        let retries = count("retry.max_retries");
        let base_delay = count("retry.base_delay_ms");
        let overrides = Overrides {
            wait_for_reset: Some(flag("retry.wait_for_reset")),
            max_attempts: retries.and_then(|retries| NonZeroU32::MIN.checked_add(retries)),
            base_delay: base_delay.map(|millis| Duration::from_millis(millis.into())),
            max_delay: match layers.value("retry.max_delay") {
                Some(Value::Duration(delay)) => Some(*delay),
                _ => None,
            },
            ..Overrides::default()
        };
        let policy = Policy::named(name).and_then(|policy| policy.with_overrides(overrides));
        Ok(Self {
            enabled: flag("retry.enabled"),
            policy: policy.map_err(|error| UsageError(error.to_string()))?,
        })
    }
}

fn amount(value: &Value) -> Option<Cost> {
    match value {
        Value::Amount(millionths) => Some(Cost(*millionths)),
        _ => None,
    }
}

/// What the model's tokens cost, where that is set. A ceiling without a price would be none.
fn price(layers: &Layers, model: Option<&str>) -> Result<Option<Price>, UsageError> {
    let model = model.unwrap_or_default();
    let one = |field: &str| {
        let key = Key::with_name(&format!("models.<model>.price.{field}"), model);
        let found = layers.effective.get(&key);
        found.and_then(|found| amount(&found.value))
    };
    match (one("input"), one("output")) {
        (Some(input), Some(output)) => Ok(Some(Price {
            input,
            output,
            cache_read: one("cache_read").unwrap_or(input),
            cache_write: one("cache_write").unwrap_or(input),
        })),
        _ if layers.cost_ceiling().is_none() => Ok(None),
        _ => Err(UsageError(format!(
            "limits.cost needs to know what the model costs: set models.\"{model}\".price.input and .output, \
             in dollars for a million tokens"
        ))),
    }
}

/// What can be allowed, beside servers and their tools.
const ALLOWABLE_TOOLS: [&str; 5] = ["write", "edit", "bash", "outside", "mcp"];

impl ToolSettings {
    fn from_layers(layers: &Layers, servers: &[McpServerSettings]) -> Result<Self, UsageError> {
        let names = layers
            .text(&Key::from_path("tools.allow"))
            .unwrap_or_default();
        let names = names
            .split(',')
            .map(str::trim)
            .filter(|name| !name.is_empty());
        let allow: Vec<String> = names.map(str::to_owned).collect();
        let is_of = |name: &str, server: &McpServerSettings| {
            name == server.name || name.starts_with(&format!("mcp__{}__", server.name))
        };
        let is_known = |name: &str| {
            ALLOWABLE_TOOLS.contains(&name) || servers.iter().any(|server| is_of(name, server))
        };
        if let Some(unknown) = allow.iter().find(|name| !is_known(name)) {
            let known = ALLOWABLE_TOOLS.into_iter();
            let known: Vec<&str> = known
                .chain(servers.iter().map(|server| server.name.as_str()))
                .collect();
            let known = known.join(", ");
            return Err(UsageError(format!(
                "tools.allow: there is nothing to allow called `{unknown}`; there are {known}"
            )));
        }
        Ok(Self {
            enabled: matches!(layers.value("tools.enabled"), Some(Value::Flag(true))),
            allow,
            timeout: layers.limit("tools.timeout").unwrap_or(MAX_TOOL_TIMEOUT),
        })
    }
}

/// A tool without a limit of its own has this one.
pub(super) const MAX_TOOL_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

/// Those of the model where it has its own; zero is no limit.
fn timeouts(layers: &Layers, model: Option<&str>) -> Timeouts {
    let one = |field: &str| {
        let path = format!("models.<model>.timeouts.{field}");
        let own = model.and_then(|model| layers.effective.get(&Key::with_name(&path, model)));
        let own = own.map(|found| &found.value);
        match own.or_else(|| layers.value(&format!("timeouts.{field}"))) {
            Some(Value::Duration(duration)) => *duration,
            _ => Duration::ZERO,
        }
    };
    Timeouts {
        connect: one("connect"),
        headers: one("headers"),
        first_event: one("first_event"),
        idle: one("idle"),
    }
}

impl Layers {
    pub(super) fn value(&self, path: &str) -> Option<&Value> {
        self.effective
            .get(&Key::from_path(path))
            .map(|found| &found.value)
    }

    /// What a prompt may cost; zero is no ceiling.
    fn cost_ceiling(&self) -> Option<Cost> {
        let cost = self.value("limits.cost").and_then(amount);
        cost.filter(|cost| *cost > Cost(0))
    }

    /// A duration that zero switches off.
    fn limit(&self, path: &str) -> Option<Duration> {
        match self.value(path) {
            Some(Value::Duration(limit)) if !limit.is_zero() => Some(*limit),
            _ => None,
        }
    }
}

fn secret(found: &SourcedValue) -> Option<Secret> {
    match &found.value {
        Value::Secret(secret) => Some(secret.clone()),
        _ => None,
    }
}

fn key_variables(layers: &Layers) -> Vec<String> {
    let usual = SETTINGS.iter().filter(|setting| setting.secret);
    let usual = usual.flat_map(|setting| setting.variables.iter());
    let usual = usual.map(|variable| variable.name.to_owned());
    let named = layers.effective.iter();
    let named = named.filter(|(key, _)| key.last() == "api_key_env");
    let named = named.filter_map(|(_, found)| match &found.value {
        Value::Text(name) => Some(name.clone()),
        _ => None,
    });
    usual.chain(named).collect()
}

fn headers(layers: &Layers, parent: &Key) -> Vec<(String, Secret)> {
    let of_parent = layers
        .effective
        .iter()
        .filter(|(key, _)| key.is_directly_in(parent));
    of_parent
        .filter_map(|(key, found)| Some((key.last().to_owned(), secret(found)?)))
        .collect()
}

/// The proxy for one kind of address. A later layer counts; within a layer the one for this kind.
fn proxy(layers: &Layers, path: &str) -> Option<ProxyUrl> {
    let found = |path: &str| layers.effective.get(&Key::from_path(path));
    let chosen = match (found(path), found("http.proxy")) {
        (Some(own), Some(any)) if any.origin.layer() > own.origin.layer() => Some(any),
        (own, any) => own.or(any),
    };
    match chosen.map(|found| &found.value) {
        Some(Value::Proxy(url)) => Some(url.clone()),
        _ => None,
    }
}

/// A path as it is meant: from the folder of the file it stands in, with `~` for the user's.
pub(super) fn resolve_path(found: &SourcedValue) -> Option<PathBuf> {
    let Value::Text(text) = &found.value else {
        return None;
    };
    if let (Some(rest), Some(user)) = (text.strip_prefix("~/"), std::env::home_dir()) {
        return Some(user.join(rest));
    }
    let folder = found.origin.folder().unwrap_or(Path::new(""));
    Some(folder.join(text))
}
