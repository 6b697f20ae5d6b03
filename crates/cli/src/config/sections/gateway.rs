//! The settings of the gateway: their rows of the table, and their types.
//!
//! A gateway carries the keys of every agent on the machine. So all rows are restricted: no project says where the keys go,
//! who may use the gateway or how much it takes.

use crate::config::layers::Layers;
use crate::config::settings::Secret;
use crate::config::table::{Kind, Setting, setting, variable};
use crate::config::url;
use crate::config::value::parse_route;
use crate::platform::exit::UsageError;
use outlast_engine::provider::Timeouts;
use outlast_kernel::policy::{Overrides, Policy};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

pub(in crate::config) const GATEWAY: &[Setting] = &[
    setting("gateway.listen", Kind::Address, "Address on which the gateway listens. A change takes effect at the next start.")
        .default("127.0.0.1:4180")
        .flag("--listen"),
    setting(
        "gateway.upstream",
        Kind::Upstream,
        "Upstream of all requests, by default the provider of their dialect; `mock:SCRIPT` is the scripted provider. A later layer overrides an earlier one; within a layer, gateway.anthropic_upstream and gateway.openai_upstream override this.",
    )
    .flag("--upstream"),
    setting(
        "gateway.anthropic_upstream",
        Kind::Upstream,
        "Upstream of requests in the Messages dialect [https://api.anthropic.com].",
    ),
    setting(
        "gateway.openai_upstream",
        Kind::Upstream,
        "Upstream of requests in the dialects of OpenAI and of requests in no known dialect [https://api.openai.com/v1].",
    ),
    setting(
        "gateway.policy",
        Kind::Choice(&Policy::NAMES),
        "Retry policy of requests; the header `x-outlast-policy` overrides it for one request.",
    )
    .default("gateway")
    .flag("--policy"),
    setting(
        "gateway.policies",
        Kind::List(&Kind::Route),
        "Retry policies by path, such as \"/v1/embeddings=standard\"; the longest matching path applies.",
    ),
    setting(
        "gateway.client",
        Kind::Text,
        "Client of all requests, such as \"codex\"; by default clients are recognised by their headers. The header `x-outlast-client` overrides it for one request.",
    )
    .flag("--client"),
    setting(
        "gateway.allowed_hosts",
        Kind::List(&Kind::Name),
        "Host names that requests may address, in addition to the listening address and localhost.",
    ),
    setting(
        "gateway.origins",
        Kind::List(&Kind::Name),
        "Origins of web pages that may send requests, such as \"https://app.example.com\"; none by default.",
    ),
    setting(
        "gateway.client_keys",
        Kind::List(&Kind::Token),
        "Keys with which clients may send requests if stored accounts are used. Required to listen beyond this machine.",
    )
    .variables(&[variable("OUTLAST_GATEWAY_KEYS")]),
    setting(
        "gateway.use_accounts",
        Kind::Flag,
        "Sends requests to models with the stored accounts and keys, instead of the client's own key.",
    )
    .default("false"),
    setting("gateway.max_body", Kind::Size, "Maximum size of a request body.")
        .default("64MiB"),
    setting("gateway.max_connections", Kind::COUNT, "Maximum number of concurrent connections.")
        .default("20000"),
    setting(
        "gateway.max_waiting",
        Kind::COUNT,
        "Maximum number of waiting requests; further ones are told to retry later.",
    )
    .default("10000"),
    setting(
        "gateway.drain",
        Kind::Duration,
        "Time that requests in progress have to finish when the gateway shuts down.",
    )
    .default("30s"),
    setting(
        "gateway.headers_timeout",
        Kind::Duration,
        "Maximum time until the response headers. A response that is not streamed is complete by then.",
    )
    .default("15m"),
    setting(
        "gateway.first_event_timeout",
        Kind::Duration,
        "Maximum time until the first event of a streamed response; by default timeouts.first_event.",
    ),
    setting(
        "gateway.idle_timeout",
        Kind::Duration,
        "Maximum pause within a streamed response; by default timeouts.idle.",
    ),
    setting(
        "gateway.min_throughput",
        Kind::Integer(0, u32::MAX),
        "Minimum throughput of a streamed response in bytes per second, over a minute; 0 means no minimum.",
    )
    .default("0"),
    setting("gateway.otlp_endpoint", Kind::Url, "Endpoint to which traces are exported, in the OTLP protocol."),
    setting(
        "gateway.otlp_headers",
        Kind::List(&Kind::Token),
        "Headers of requests to the OTLP endpoint, such as \"x-key=abc\"; a space is written as %20.",
    ),
    setting(
        "gateway.spool",
        Kind::Path,
        "Folder for the bodies of waiting requests, private to the user; by default one in OUTLAST_HOME. `none` keeps them in memory.",
    ),
];

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
        let own = layers.table("gateway");
        let routes: Vec<String> = own.value("policies");
        let routes = routes.iter().filter_map(|text| parse_route(text));
        let policies = routes.map(|(path, name)| Ok((path.to_owned(), policy(layers, name)?)));
        Ok(Self {
            listen: own
                .get("listen")
                .unwrap_or(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))),
            anthropic: upstream(layers, "gateway.anthropic_upstream"),
            openai: upstream(layers, "gateway.openai_upstream"),
            policy: policy(layers, &own.value::<String>("policy"))?,
            policies: policies.collect::<Result<_, UsageError>>()?,
            client: own.get("client"),
            host_names: own.value("allowed_hosts"),
            origins: own.value("origins"),
            client_keys: own.value("client_keys"),
            use_accounts: own.value("use_accounts"),
            limits: GatewayLimits {
                max_body: own.value("max_body"),
                max_connections: own.value("max_connections"),
                max_waiting: own.value("max_waiting"),
                drain: own.value("drain"),
            },
            timeouts: Timeouts {
                connect: timeouts.connect,
                headers: own.get("headers_timeout").unwrap_or(timeouts.headers),
                first_event: own
                    .get("first_event_timeout")
                    .unwrap_or(timeouts.first_event),
                idle: own.get("idle_timeout").unwrap_or(timeouts.idle),
            },
            min_throughput: own.value("min_throughput"),
            otlp_endpoint: own.get("otlp_endpoint"),
            otlp_headers: own.value("otlp_headers"),
            body_store: match own.get::<String>("spool").as_deref() {
                Some("none") => BodyStore::Memory,
                _ => own
                    .file("spool")
                    .map_or(BodyStore::DefaultFolder, BodyStore::Folder),
            },
        })
    }

    /// Reports whether only this machine can reach the gateway.
    pub(crate) fn is_local(&self) -> bool {
        self.listen.ip().is_loopback()
    }
}

/// Returns the policy with the given name. Settings for prompts do not change its numbers.
fn policy(layers: &Layers, name: &str) -> Result<Policy, UsageError> {
    let name = match layers.get("retry.enabled") {
        Some(true) => name,
        _ => "none",
    };
    let overrides = Overrides {
        wait_for_reset: layers.get("retry.wait_for_reset"),
        ..Overrides::default()
    };
    let policy = Policy::named(name).and_then(|policy| policy.with_overrides(overrides));
    policy.map_err(|error| UsageError(error.to_string()))
}

fn upstream(layers: &Layers, path: &str) -> Upstream {
    let Some(text) = layers.get_or_general::<String>(path, "gateway.upstream") else {
        return Upstream::ProviderDefault;
    };
    match text.strip_prefix(url::SCRIPTED_PREFIX) {
        Some(script) => Upstream::Scripted(script.to_owned()),
        None => Upstream::Url(text),
    }
}
