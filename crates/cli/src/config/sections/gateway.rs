//! The typed settings of the gateway.

use crate::config::key::Key;
use crate::config::layers::Layers;
use crate::config::list::parse_route;
use crate::config::settings::{Secret, resolve_path};
use crate::config::url;
use crate::config::value::Value;
use crate::platform::exit::UsageError;
use outlast_engine::provider::Timeouts;
use outlast_kernel::policy::{Overrides, Policy};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// The settings of a gateway.
#[derive(Clone, Debug)]
pub(crate) struct GatewaySettings {
    pub(crate) listen: SocketAddr,
    /// The upstream for requests in the Messages dialect.
    pub(crate) anthropic: Upstream,
    /// The upstream for all other requests.
    pub(crate) openai: Upstream,
    pub(crate) policy: Policy,
    /// Policies for certain paths.
    pub(crate) policies: Vec<(String, Policy)>,
    /// The client to assume, instead of recognising it.
    pub(crate) client: Option<String>,
    /// Additional host names under which the gateway responds.
    pub(crate) host_names: Vec<String>,
    /// Origins of web pages that may send requests.
    pub(crate) origins: Vec<String>,
    pub(crate) client_keys: Vec<Secret>,
    pub(crate) use_accounts: bool,
    pub(crate) limits: GatewayLimits,
    pub(crate) timeouts: Timeouts,
    /// In bytes a second.
    pub(crate) min_throughput: u32,
    pub(crate) otlp_endpoint: Option<String>,
    /// Headers, each as `name=value`.
    pub(crate) otlp_headers: Vec<Secret>,
    pub(crate) body_store: BodyStore,
}

/// Limits of a gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GatewayLimits {
    pub(crate) max_body: u64,
    pub(crate) max_connections: u32,
    pub(crate) max_waiting: u32,
    pub(crate) drain: Duration,
}

/// The destination of requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Upstream {
    /// The provider of the request's dialect.
    ProviderDefault,
    /// That address.
    Url(String),
    /// The scripted provider, in this process.
    Scripted(String),
}

/// The storage for the bodies of held requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BodyStore {
    /// A folder in our home folder.
    DefaultFolder,
    Folder(PathBuf),
    Memory,
}

impl GatewaySettings {
    /// Builds the settings, which hold for every provider and model.
    pub(in crate::config) fn from_layers(
        layers: &Layers,
        timeouts: Timeouts,
    ) -> Result<Self, UsageError> {
        let policies = texts(layers, "gateway.policies");
        let policies = policies.iter().filter_map(|text| parse_route(text));
        let policies = policies.map(|(path, name)| Ok((path.to_owned(), policy(layers, name)?)));
        let text = |path: &str| layers.text(&Key::from_path(path)).map(str::to_owned);
        let duration = |path: &str, usual: Duration| match layers.value(path) {
            Some(Value::Duration(duration)) => *duration,
            _ => usual,
        };
        Ok(Self {
            listen: match layers.value("gateway.listen") {
                Some(Value::Address(address)) => *address,
                _ => SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            },
            anthropic: upstream(layers, "gateway.anthropic_upstream"),
            openai: upstream(layers, "gateway.openai_upstream"),
            policy: policy(layers, &text("gateway.policy").unwrap_or_default())?,
            policies: policies.collect::<Result<_, UsageError>>()?,
            client: text("gateway.client"),
            host_names: texts(layers, "gateway.allowed_hosts"),
            origins: texts(layers, "gateway.origins"),
            client_keys: secrets(layers, "gateway.client_keys"),
            use_accounts: matches!(
                layers.value("gateway.use_accounts"),
                Some(Value::Flag(true))
            ),
            limits: GatewayLimits {
                max_body: match layers.value("gateway.max_body") {
                    Some(Value::Size(bytes)) => *bytes,
                    _ => u64::MAX,
                },
                max_connections: count(layers, "gateway.max_connections").unwrap_or(u32::MAX),
                max_waiting: count(layers, "gateway.max_waiting").unwrap_or(u32::MAX),
                drain: duration("gateway.drain", Duration::ZERO),
            },
            timeouts: Timeouts {
                connect: timeouts.connect,
                headers: duration("gateway.headers_timeout", timeouts.headers),
                first_event: duration("gateway.first_event_timeout", timeouts.first_event),
                idle: duration("gateway.idle_timeout", timeouts.idle),
            },
            min_throughput: count(layers, "gateway.min_throughput").unwrap_or_default(),
            otlp_endpoint: text("gateway.otlp_endpoint"),
            otlp_headers: secrets(layers, "gateway.otlp_headers"),
            body_store: body_store(layers),
        })
    }

    /// Reports whether only this machine can reach the gateway.
    pub(crate) fn is_local(&self) -> bool {
        self.listen.ip().is_loopback()
    }
}

pub(in crate::config) fn texts(layers: &Layers, path: &str) -> Vec<String> {
    match layers.value(path) {
        Some(Value::List(texts)) => texts.clone(),
        _ => Vec::new(),
    }
}

fn secrets(layers: &Layers, path: &str) -> Vec<Secret> {
    match layers.value(path) {
        Some(Value::Secrets(secrets)) => secrets.clone(),
        _ => Vec::new(),
    }
}

pub(in crate::config) fn count(layers: &Layers, path: &str) -> Option<u32> {
    match layers.value(path) {
        Some(Value::Count(count)) => Some(*count),
        _ => None,
    }
}

/// Returns the policy with the given name. Settings for prompts do not change its numbers.
fn policy(layers: &Layers, name: &str) -> Result<Policy, UsageError> {
    let flag = |path| matches!(layers.value(path), Some(Value::Flag(true)));
    let name = match flag("retry.enabled") {
        true => name,
        false => "none",
    };
    let overrides = Overrides {
        wait_for_reset: Some(flag("retry.wait_for_reset")),
        ..Overrides::default()
    };
    let policy = Policy::named(name).and_then(|policy| policy.with_overrides(overrides));
    policy.map_err(|error| UsageError(error.to_string()))
}

/// Returns the upstream of a dialect. A later layer wins; within a layer the setting of the dialect does.
fn upstream(layers: &Layers, path: &str) -> Upstream {
    let found = |path: &str| layers.effective.get(&Key::from_path(path));
    let chosen = match (found(path), found("gateway.upstream")) {
        (Some(own), Some(any)) if any.origin.layer() > own.origin.layer() => Some(any),
        (own, any) => own.or(any),
    };
    match chosen.map(|found| &found.value) {
        Some(Value::Text(text)) => match text.strip_prefix(url::SCRIPTED_PREFIX) {
            Some(script) => Upstream::Scripted(script.to_owned()),
            None => Upstream::Url(text.clone()),
        },
        _ => Upstream::ProviderDefault,
    }
}

fn body_store(layers: &Layers) -> BodyStore {
    let found = layers.effective.get(&Key::from_path("gateway.spool"));
    match found.map(|found| (&found.value, resolve_path(found))) {
        Some((Value::Text(text), _)) if text == "none" => BodyStore::Memory,
        Some((_, Some(folder))) => BodyStore::Folder(folder),
        _ => BodyStore::DefaultFolder,
    }
}
