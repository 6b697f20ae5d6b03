//! Builds providers and models from settings.

use crate::config::{Provider, Settings, url};
use crate::factory::keys::FixedKey;
use crate::platform::exit::UsageError;
use anyhow::Context;
use outlast_dialect::Dialect;
use outlast_engine::Clock;
use outlast_engine::accounts::{Account, Accounts};
use outlast_engine::credential::Credential;
use outlast_engine::provider::Adapter;
use outlast_engine::shared_state::SharedState;
use outlast_engine::target::ModelTarget;
use outlast_engine::transport::{Http, HttpSettings, Proxies};
use outlast_kernel::budget::{Cost, Price};
use outlast_kernel::gate::{KeyMark, key_account};
use outlast_kernel::model_info::Capabilities;
use outlast_kernel::text;
use outlast_mock::{Script, ScriptedTransport};
use outlast_session::factory::{Model, ModelCost};
use secrecy::ExposeSecret;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

/// The default of the scripted provider: enough to see a retry at work.
pub(crate) const DEFAULT_SCRIPT: &str = "overloaded:2";
const MAX_CERTIFICATE_BYTES: u64 = 4 << 20;

/// A model with its provider and accounts, ready to be called.
pub(crate) struct ResolvedModel {
    pub(crate) adapter: Adapter,
    pub(crate) model: String,
    pub(crate) accounts: Vec<Account>,
    /// Whether other processes can use the shared state of this provider.
    pub(crate) is_shared: bool,
    pub(crate) price: Option<Price>,
    pub(crate) traits: Capabilities,
    max_tokens: Option<u32>,
}

impl ResolvedModel {
    /// Builds the target of requests; the accounts report to the given shared state.
    pub(crate) fn route(self, knowledge: &SharedState, clock: &Arc<dyn Clock>) -> ModelTarget {
        let accounts = (!self.accounts.is_empty())
            .then(|| Accounts::new(self.accounts, knowledge.clone(), clock.clone()));
        ModelTarget {
            provider: Arc::new(self.adapter),
            model: self.model,
            accounts: accounts.map(Arc::new),
            price: self.price,
            traits: self.traits,
            max_tokens: self.max_tokens,
        }
    }
}

/// The values that clients receive for a model with unknown limits, in tokens.
const DEFAULT_CONTEXT_WINDOW: u64 = 128_000;
const DEFAULT_MAX_TOKENS: u32 = 8192;

impl ResolvedModel {
    /// Describes the model for a client.
    pub(crate) fn model_info(&self, settings: &Settings, base_url: Option<&str>) -> Model {
        let dialect = settings.provider.and_then(dialect);
        let api = match dialect {
            None | Some(Dialect::Anthropic) => "anthropic-messages",
            Some(Dialect::OpenaiChat) => "openai-completions",
            Some(Dialect::OpenaiResponses) => "openai-responses",
        };
        let own = dialect.map(default_base_url).unwrap_or_default();
        let base_url = base_url.or(settings.base_url.as_deref()).unwrap_or(own);
        let price = self.price.unwrap_or_default();
        Model {
            id: self.model.clone(),
            name: self.model.clone(),
            api: api.to_owned(),
            provider: settings
                .provider
                .unwrap_or(Provider::Mock)
                .name()
                .to_owned(),
            base_url: url::without_credentials(&url::without_query(base_url)),
            reasoning: false,
            input: vec!["text".to_owned(), "image".to_owned()],
            cost: ModelCost {
                input: dollars(price.input),
                output: dollars(price.output),
                cache_read: dollars(price.cache_read),
                cache_write: dollars(price.cache_write),
            },
            context_window: self.traits.window.unwrap_or(DEFAULT_CONTEXT_WINDOW),
            max_tokens: self.max_tokens.unwrap_or(DEFAULT_MAX_TOKENS).into(),
        }
    }
}

fn dollars(cost: Cost) -> f64 {
    // Prices are far below the limit up to which a float counts exactly.
    u32::try_from(cost.0).map_or(f64::MAX, f64::from) / 1e6
}

/// Builds a model besides the chosen one. A typed address applies only to the provider of the chosen model.
pub(crate) fn secondary_model(
    other: &Settings,
    role: &str,
    chosen: &Settings,
    base_url: Option<&str>,
    clock: &Arc<dyn Clock>,
) -> anyhow::Result<ResolvedModel> {
    let name = |settings: &Settings| settings.provider.unwrap_or(Provider::Mock).name();
    let base_url = base_url.filter(|_| name(other) == name(chosen));
    let model = other.model.as_deref().unwrap_or_default();
    let context = || format!("{role} `{}:{}`", name(other), text::plain(model));
    self::resolve_model(other, base_url, clock.clone()).with_context(context)
}

/// Builds the provider and the model in the settings.
pub(crate) fn resolve_model(
    settings: &Settings,
    base_url: Option<&str>,
    clock: Arc<dyn Clock>,
) -> anyhow::Result<ResolvedModel> {
    let Some(adapter) = provider_adapter(settings, base_url, clock.clone())? else {
        return scripted_model(settings, clock);
    };
    let Some(model) = settings.model.clone() else {
        let remedy = "choose one with --model, OUTLAST_MODEL or `model` in outlast.toml";
        return Err(UsageError(format!("no model is set; {remedy}")).into());
    };
    let accounts = accounts(settings, base_url);
    Ok(ResolvedModel {
        adapter,
        model,
        accounts,
        is_shared: true,
        price: settings.price,
        traits: settings.traits,
        max_tokens: settings.max_tokens,
    })
}

/// Returns the accounts of the provider in use: those in the settings, else the one for its single key. At an address
/// other than the provider's own they have other names: state from there says nothing about the real accounts.
pub(crate) fn accounts(settings: &Settings, base_url: Option<&str>) -> Vec<Account> {
    let providers: Vec<Provider> = settings.provider.into_iter().collect();
    accounts_at(settings, &providers, &custom_host(settings, base_url))
}

/// Returns the accounts of the given providers at `place`, which is empty for the providers' own address.
pub(crate) fn accounts_at(
    settings: &Settings,
    providers: &[Provider],
    place: &str,
) -> Vec<Account> {
    let at_place = |name: &str| match place {
        "" => name.to_owned(),
        place => format!("{name}@{place}"),
    };
    let own = settings
        .accounts
        .iter()
        .filter(|account| providers.contains(&account.provider));
    let named: Vec<Account> = own
        .map(|account| Account {
            name: at_place(&account.name),
            source: Arc::new(account.key.clone()),
            max_in_flight: account.max_in_flight,
        })
        .collect();
    match (&settings.api_key, settings.provider) {
        (Some(key), Some(provider)) if named.is_empty() => {
            vec![Account {
                name: key_account(provider.name(), KeyMark::of(key.expose_secret()), place),
                source: Arc::new(FixedKey(key.clone())),
                max_in_flight: None,
            }]
        }
        _ => named,
    }
}

/// Returns the host and port of an address that is not the provider's own; else an empty text.
fn custom_host(settings: &Settings, base_url: Option<&str>) -> String {
    let Some(url) = base_url.or(settings.base_url.as_deref()) else {
        return String::new();
    };
    url::host_and_port(url)
}

/// Builds the provider in the settings; `None` for the scripted one. A key is needed only at the provider's own address.
pub(crate) fn provider_adapter(
    settings: &Settings,
    base_url: Option<&str>,
    clock: Arc<dyn Clock>,
) -> anyhow::Result<Option<Adapter>> {
    let Some(dialect) = settings.provider.and_then(dialect) else {
        if base_url.is_some() {
            let remedy = "say who answers there: --provider anthropic, openai or openai-responses";
            return Err(UsageError(format!("--base-url needs a provider; {remedy}")).into());
        }
        return Ok(None);
    };
    let own_url = base_url.or(settings.base_url.as_deref());
    if own_url.is_none() && accounts(settings, None).is_empty() {
        return Err(UsageError(missing_key_message(settings, dialect.name())).into());
    }
    let http = http_client(
        settings,
        own_url.unwrap_or_else(|| default_base_url(dialect)),
    )?;
    let secrets = settings.headers.iter();
    let secrets = secrets.map(|(_, value)| Credential::new(value.expose_secret().to_owned()));
    let adapter = Adapter::new(dialect, Arc::new(http), clock)
        .with_endpoint(&custom_host(settings, base_url))
        .with_timeouts(settings.timeouts)
        .with_redacted_secrets(secrets.collect());
    Ok(Some(adapter))
}

fn dialect(provider: Provider) -> Option<Dialect> {
    match provider {
        Provider::Mock => None,
        Provider::Anthropic => Some(Dialect::Anthropic),
        Provider::OpenAi => Some(Dialect::OpenaiChat),
        Provider::OpenAiResponses => Some(Dialect::OpenaiResponses),
    }
}

/// Returns the default address of a provider.
pub(crate) fn default_base_url(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Anthropic => "https://api.anthropic.com",
        Dialect::OpenaiChat | Dialect::OpenaiResponses => "https://api.openai.com/v1",
    }
}

fn missing_key_message(settings: &Settings, name: &str) -> String {
    let variable = settings.api_key_variable.as_deref();
    let variable = variable.map_or(String::new(), |name| {
        format!("{name} in the environment, or ")
    });
    format!(
        "no key is set for {name}; set {variable}an account or `api_key` for it in outlast.toml"
    )
}

/// Builds the scripted provider inside this program.
fn scripted_model(settings: &Settings, clock: Arc<dyn Clock>) -> anyhow::Result<ResolvedModel> {
    let model = settings
        .model
        .clone()
        .unwrap_or_else(|| DEFAULT_SCRIPT.to_owned());
    let script: Script = model
        .parse()
        .map_err(|error: outlast_mock::Error| UsageError(error.to_string()))?;
    let transport = Arc::new(ScriptedTransport::by_model(script, clock.clone()));
    let adapter = Adapter::new(Dialect::Anthropic, transport, clock)
        .with_name("mock")
        .with_timeouts(settings.timeouts);
    Ok(ResolvedModel {
        adapter,
        model,
        accounts: Vec::new(),
        // The scripted provider exists in this process alone.
        is_shared: false,
        price: settings.price,
        traits: settings.traits,
        max_tokens: settings.max_tokens,
    })
}

fn http_client(settings: &Settings, base_url: &str) -> anyhow::Result<Http> {
    let settings = HttpSettings {
        headers: settings.headers.clone(),
        ..http_settings(settings, base_url)?
    };
    Http::new(&settings).map_err(|error| UsageError(error.to_string()).into())
}

/// Returns the HTTP settings for the given address, without the headers of a provider.
pub(crate) fn http_settings(settings: &Settings, base_url: &str) -> anyhow::Result<HttpSettings> {
    let certificates = settings.ca_file.as_deref().map(read_certificates);
    let proxy = |proxy: &Option<crate::config::ProxyUrl>| {
        proxy.as_ref().map(|url| url.expose().to_owned().into())
    };
    Ok(HttpSettings {
        base_url: base_url.to_owned(),
        headers: Vec::new(),
        connect_timeout: settings.timeouts.connect,
        proxies: Proxies {
            http: proxy(&settings.proxy.http),
            https: proxy(&settings.proxy.https),
            no_proxy: settings.proxy.no_proxy.clone().unwrap_or_default(),
        },
        certificates: certificates.transpose()?,
    })
}

fn read_certificates(path: &Path) -> anyhow::Result<Vec<u8>> {
    let context = || format!("cannot read the certificates in {}", path.display());
    let file = File::open(path).with_context(context)?;
    let mut pem = Vec::new();
    file.take(MAX_CERTIFICATE_BYTES)
        .read_to_end(&mut pem)
        .with_context(context)?;
    Ok(pem)
}
