//! What the settings amount to, in plain types.

use super::layers::{Layers, key_variable};
use super::sections::accounts::{self, AccountSettings};
use super::sections::fallback_chain::{self, ModelEntry, ProviderModel};
use super::sections::gateway::GatewaySettings;
use super::sections::mcp_servers::{self, McpServerSettings};
use super::sections::serve::ServeSettings;
use super::table::settings;
use super::value::{FromValue, ProxyUrl};
use crate::platform::exit::UsageError;
use outlast_engine::provider::Timeouts;
use outlast_kernel::Timestamp;
use outlast_kernel::budget::{Cost, Limits, Price};
use outlast_kernel::decision::AfterContent;
use outlast_kernel::fallback::{Condition, Rules};
use outlast_kernel::model_info::{self, Capabilities, ContinueBy};
use outlast_kernel::policy::{Overrides, Policy};
use outlast_session::compaction;
use outlast_session::hooks::{Hook, HookEvent};
use secrecy::SecretString;
use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::path::PathBuf;
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
        let provider = layers.get("provider");
        let provider = provider.and_then(|name: String| Provider::from_name(&name));
        let model: Option<String> = layers.get("model");
        let first = ProviderModel {
            provider: provider.unwrap_or(Provider::Mock),
            model: model.clone().unwrap_or_default(),
        };
        let other =
            |place: ProviderModel| Self::for_model(layers, Some(place.provider), Some(place.model));
        let fallbacks = fallback_chain::fallback_models(layers, &first)
            .into_iter()
            .map(other);
        let summariser: Option<String> = layers.get("compaction.model");
        let summariser = summariser.as_deref().map(ModelEntry::parse);
        let summariser = summariser.and_then(Result::ok);
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
        let name = provider.map_or("", Provider::name);
        let own = layers.named("providers", name);
        let (limits, http) = (layers.table("limits"), layers.table("http"));
        let servers = mcp_servers::all(layers)?;
        let place = ProviderModel {
            provider: provider.unwrap_or(Provider::Mock),
            model: model.clone().unwrap_or_default(),
        };
        Ok(Self {
            provider,
            recovery: Recovery::from_layers(layers),
            traits: model_traits(layers, &place),
            fallbacks: Vec::new(),
            summarizer: None,
            max_tokens: layers.get("max_tokens"),
            retry: Retry::from_layers(layers)?,
            limits: LimitSettings {
                deadline: limits.limit("deadline"),
                sleep: limits.limit("sleep"),
                cost: cost_ceiling(layers),
            },
            price: price(layers, &place.model)?,
            tools: ToolSettings::from_layers(layers, &servers)?,
            servers,
            hooks: hooks(layers),
            timeouts: timeouts(layers, model.as_deref()),
            model,
            base_url: own.get("base_url"),
            api_key: own.get("api_key"),
            api_key_variable: key_variable(layers, name),
            key_variables: key_variables(layers),
            headers: own.secrets("headers"),
            proxy: Proxy {
                http: layers.get_or_general("http.proxy_http", "http.proxy"),
                https: layers.get_or_general("http.proxy_https", "http.proxy"),
                no_proxy: http.get("no_proxy"),
            },
            ca_file: http.file("ca_file"),
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
        let own = layers.table("retry");
        let retries: Option<u32> = own.get("max_retries");
        let base_delay: Option<u32> = own.get("base_delay_ms");
        let overrides = Overrides {
            wait_for_reset: own.get("wait_for_reset"),
            max_attempts: retries.and_then(|retries| NonZeroU32::MIN.checked_add(retries)),
            base_delay: base_delay.map(|millis| Duration::from_millis(millis.into())),
            max_delay: own.get("max_delay"),
            ..Overrides::default()
        };
        let policy = Policy::named(&own.value::<String>("policy"));
        let policy = policy.and_then(|policy| policy.with_overrides(overrides));
        Ok(Self {
            enabled: own.value("enabled"),
            policy: policy.map_err(|error| UsageError(error.to_string()))?,
        })
    }
}

/// Returns the cost limit of a prompt; zero means no limit.
fn cost_ceiling(layers: &Layers) -> Option<Cost> {
    layers.get("limits.cost").filter(|cost| *cost > Cost(0))
}

/// What the model's tokens cost, where that is set. A ceiling without a price would be none.
fn price(layers: &Layers, model: &str) -> Result<Option<Price>, UsageError> {
    let own = layers.named("models", model);
    match (own.get("price.input"), own.get("price.output")) {
        (Some(input), Some(output)) => Ok(Some(Price {
            input,
            output,
            cache_read: own.get("price.cache_read").unwrap_or(input),
            cache_write: own.get("price.cache_write").unwrap_or(input),
        })),
        _ if cost_ceiling(layers).is_none() => Ok(None),
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
        let own = layers.table("tools");
        let names: String = own.value("allow");
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
            enabled: own.value("enabled"),
            allow,
            timeout: own.limit("timeout").unwrap_or(MAX_TOOL_TIMEOUT),
        })
    }
}

/// A tool without a limit of its own has this one.
pub(super) const MAX_TOOL_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

/// Those of the model where it has its own; zero is no limit.
fn timeouts(layers: &Layers, model: Option<&str>) -> Timeouts {
    let (own, all) = (
        layers.named("models", model.unwrap_or_default()),
        layers.table("timeouts"),
    );
    let one = |field: &str| {
        let own = own.get(&format!("timeouts.{field}"));
        own.unwrap_or_else(|| all.value(field))
    };
    Timeouts {
        connect: one("connect"),
        headers: one("headers"),
        first_event: one("first_event"),
        idle: one("idle"),
    }
}

fn key_variables(layers: &Layers) -> Vec<String> {
    let usual = settings().filter(|setting| setting.kind.is_secret());
    let usual = usual.flat_map(|setting| setting.variables.iter());
    let usual = usual.map(|variable| variable.name.to_owned());
    let named = layers.effective.iter();
    let named = named.filter(|(key, _)| key.last() == "api_key_env");
    let named = named.filter_map(|(_, found)| String::from_value(&found.value));
    usual.chain(named).collect()
}

// --- Remedies other than a retry ---

/// The default for [`Recovery::corrections`].
const DEFAULT_CORRECTIONS: u32 = 3;

/// Settings for remedies other than a retry.
#[derive(Clone, Debug)]
pub(crate) struct Recovery {
    pub(crate) after_content: AfterContent,
    /// The largest number of corrections in a row: messages that tell a model why its completion is invalid.
    pub(crate) corrections: u32,
    /// The conditions for a fallback.
    pub(crate) fallback: Rules,
    pub(crate) compaction: compaction::Settings,
}

impl Recovery {
    fn from_layers(layers: &Layers) -> Self {
        let usual = compaction::Settings::default();
        let own = layers.table("compaction");
        Self {
            after_content: match layers.get::<String>("after_content").as_deref() {
                Some("fail") => AfterContent::Fail,
                Some("continue") => AfterContent::Continue,
                _ => AfterContent::Retract,
            },
            corrections: match layers.get("recovery.retry_unusable_responses") {
                Some(true) => DEFAULT_CORRECTIONS,
                _ => 0,
            },
            fallback: rules(layers),
            compaction: compaction::Settings {
                enabled: own.value("enabled"),
                threshold: f64::from(own.value::<u32>("threshold")) / 100.0,
                keep_tokens: own.value::<u32>("keep").into(),
                ..usual
            },
        }
    }
}

fn rules(layers: &Layers) -> Rules {
    let own = layers.table("fallback");
    let words: Vec<String> = own.value("on");
    let is_named = |one: &Condition| words.iter().any(|word| word == one.as_str());
    Rules {
        conditions: Condition::ALL.into_iter().filter(is_named).collect(),
        overload_retries: own.value("overload_retries"),
        max_usage_wait: own.value("max_usage_limit_wait"),
        cooldown: own.value("cooldown"),
    }
}

/// Returns the capabilities of a model: the built-in ones, overridden by the settings.
fn model_traits(layers: &Layers, place: &ProviderModel) -> Capabilities {
    let known = model_info::capabilities(place.provider.name(), &place.model);
    let own = layers.named("models", &place.model);
    let window = own.get("context_window").map(|tokens: u32| tokens.into());
    let continues_by = own.get("continue_by");
    let continues_by = continues_by.and_then(|name: String| ContinueBy::named(&name));
    Capabilities {
        window: window.or(known.window),
        continues_by: continues_by.unwrap_or(known.continues_by),
    }
}

// --- Hooks ---

/// The time limit of a hook without one of its own.
const DEFAULT_HOOK_TIMEOUT: Duration = Duration::from_secs(10);

/// Returns all hooks, in the order of the files.
fn hooks(layers: &Layers) -> Vec<Hook> {
    let numbers = layers.names("hooks").into_iter();
    let numbers: BTreeSet<u32> = numbers.filter_map(|number| number.parse().ok()).collect();
    numbers
        .into_iter()
        .filter_map(|number| hook(layers, number))
        .collect()
}

/// Returns the hook with the given index. Its required fields were checked when its file was read.
fn hook(layers: &Layers, number: u32) -> Option<Hook> {
    let own = layers.named("hooks", &number.to_string());
    let events: Vec<String> = own.get("on")?;
    Some(Hook {
        events: events
            .iter()
            .filter_map(|name| HookEvent::from_name(name))
            .collect(),
        command: own.get("command")?,
        timeout: own.get("timeout").unwrap_or(DEFAULT_HOOK_TIMEOUT),
    })
}
