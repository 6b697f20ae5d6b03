//! Builds a gateway's upstreams and limits from settings.
//!
//! Invariant: requests go only to the addresses in the gateway's own settings, or to the provider of their dialect. The
//! provider address of sessions (`ANTHROPIC_BASE_URL` and the like) does not count here: it may be this gateway.

use crate::config::{self, BodyStore, GatewaySettings, Provider, Settings, url};
use crate::factory::provider;
use crate::platform::exit::UsageError;
use crate::platform::runtime;
use outlast_dialect::Dialect;
use outlast_engine::accounts::Accounts;
use outlast_engine::shared_state::SharedState;
use outlast_engine::transport::{Forwarder, HttpSettings};
use outlast_engine::{CancellationToken, Clock};
use outlast_gateway::clients;
use outlast_gateway::{Limits, Upstream, Upstreams};
use outlast_kernel::text;
use outlast_mock::{Options, Server};
use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Builds the reloadable parts of a gateway, once for each change of the settings.
pub(in crate::commands::gateway) struct UpstreamFactory {
    pub(in crate::commands::gateway) clock: Arc<dyn Clock>,
    pub(in crate::commands::gateway) shared_state: SharedState,
    /// The addresses of the scripted providers that were started, by script.
    pub(in crate::commands::gateway) scripted: HashMap<String, String>,
}

/// One of the two providers that a gateway knows.
#[derive(Clone, Copy)]
struct UpstreamProvider {
    name: &'static str,
    dialect: Dialect,
    /// The providers whose accounts can be used there.
    providers: &'static [Provider],
}

const ANTHROPIC: UpstreamProvider = UpstreamProvider {
    name: "anthropic",
    dialect: Dialect::Anthropic,
    providers: &[Provider::Anthropic],
};
const OPENAI: UpstreamProvider = UpstreamProvider {
    name: "openai",
    dialect: Dialect::OpenaiChat,
    providers: &[Provider::OpenAi, Provider::OpenAiResponses],
};

impl UpstreamFactory {
    /// Builds both upstreams and their options from the settings of Anthropic and of OpenAI.
    pub(in crate::commands::gateway) async fn upstreams(
        &mut self,
        [anthropic, openai]: &[Settings; 2],
    ) -> anyhow::Result<Upstreams> {
        let gateway = &anthropic.gateway;
        let policies = gateway.policies.iter().cloned();
        let policies = policies.map(|(path, policy)| (path, Arc::new(policy)));
        check_client(gateway.client.as_deref())?;
        let upstreams = Upstreams {
            anthropic: self
                .upstream(ANTHROPIC, anthropic, &gateway.anthropic)
                .await?,
            openai: self.upstream(OPENAI, openai, &gateway.openai).await?,
            policy: gateway.policy.clone().into(),
            policies: policies.collect(),
            client: gateway.client.clone(),
            timeouts: gateway.timeouts,
            min_throughput: gateway.min_throughput,
        };
        let both = [&upstreams.anthropic, &upstreams.openai];
        if gateway.use_accounts && both.iter().all(|upstream| upstream.accounts.is_none()) {
            let problem = "gateway.use_accounts: there is no account and no key to use";
            return Err(UsageError(problem.to_owned()).into());
        }
        Ok(upstreams)
    }

    async fn upstream(
        &mut self,
        side: UpstreamProvider,
        settings: &Settings,
        upstream: &config::Upstream,
    ) -> anyhow::Result<Upstream> {
        let (name, address, way) = match upstream {
            config::Upstream::ProviderDefault => {
                let url = provider::default_base_url(side.dialect);
                let way = provider::http_settings(settings, url)?;
                (side.name, String::new(), way)
            }
            config::Upstream::Url(url) => {
                let way = provider::http_settings(settings, url)?;
                (side.name, url::host_and_port(url), way)
            }
            config::Upstream::Scripted(script) => {
                // The scripted provider is on this machine: no proxy, no certificates.
                let base_url = self.scripted(script).await?;
                let place = url::host_and_port(&base_url);
                let way = HttpSettings {
                    base_url,
                    ..HttpSettings::default()
                };
                ("mock", place, way)
            }
        };
        Ok(Upstream {
            name: name.to_owned(),
            forward: Forwarder::new(&way).map_err(|error| UsageError(error.to_string()))?,
            accounts: self.accounts(side, settings, &address),
            address,
        })
    }

    fn accounts(
        &self,
        side: UpstreamProvider,
        settings: &Settings,
        place: &str,
    ) -> Option<Arc<Accounts>> {
        if !settings.gateway.use_accounts {
            return None;
        }
        let list = provider::accounts_at(settings, side.providers, place);
        let (knowledge, clock) = (self.shared_state.clone(), self.clock.clone());
        (!list.is_empty()).then(|| Arc::new(Accounts::new(list, knowledge, clock)))
    }

    /// Returns the address of the scripted provider for the given script; starts it if necessary.
    async fn scripted(&mut self, script: &str) -> anyhow::Result<String> {
        if let Some(url) = self.scripted.get(script) {
            return Ok(url.clone());
        }
        let wrong = |error: outlast_mock::Error| UsageError(error.to_string());
        let options = Options::new(script.parse().map_err(wrong)?);
        let anywhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let server = Server::bind(anywhere, self.clock.clone(), options).await?;
        let url = format!("http://{}", server.address());
        // It ends with the process: requests in flight when the gateway is told to end still get their responses.
        tokio::spawn(server.serve(CancellationToken::new()));
        self.scripted.insert(script.to_owned(), url.clone());
        Ok(url)
    }
}

/// Rejects an unknown client name.
fn check_client(name: Option<&str>) -> Result<(), UsageError> {
    let Some(name) = name.filter(|name| clients::by_name(name).is_none()) else {
        return Ok(());
    };
    let known: Vec<&str> = clients::ALL.iter().map(|known| known.name).collect();
    let (name, known) = (text::plain(name), known.join(", "));
    Err(UsageError(format!(
        "gateway.client: there is no client `{name}`; there are {known}"
    )))
}

/// Returns the limits of the gateway.
pub(in crate::commands::gateway) fn limits(settings: &GatewaySettings) -> Limits {
    let whole = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
    Limits {
        max_body_bytes: usize::try_from(settings.limits.max_body).unwrap_or(usize::MAX),
        max_connections: whole(settings.limits.max_connections).min(runtime::max_connections()),
        max_waiting: whole(settings.limits.max_waiting),
        drain_timeout: settings.limits.drain,
        ..Limits::default()
    }
}

/// Returns the folder for the bodies of held requests; `None` keeps them in memory.
pub(in crate::commands::gateway) fn body_store(
    settings: &GatewaySettings,
    home: &Path,
) -> Option<PathBuf> {
    match &settings.body_store {
        BodyStore::DefaultFolder => Some(home.join("spool")),
        BodyStore::Folder(folder) => Some(folder.clone()),
        BodyStore::Memory => None,
    }
}

/// Reports whether the upstream is the given listener itself.
pub(in crate::commands::gateway) fn points_to_gateway(
    upstream: &config::Upstream,
    listen: SocketAddr,
) -> bool {
    let config::Upstream::Url(text) = upstream else {
        return false;
    };
    let place = url::host_and_port(text);
    let port = listen.port();
    let names = ["localhost", "127.0.0.1", "[::1]"].map(|name| format!("{name}:{port}"));
    place == listen.to_string() || names.contains(&place)
}
