//! A gateway in this process, from its settings to its end.
//!
//! Invariant: requests go only to the addresses in the gateway's own settings, or to the provider of their dialect. The
//! provider address of sessions (`ANTHROPIC_BASE_URL` and the like) does not count here: it may be this gateway.

use crate::commands::gateway::registry::{Registration, RunningGateway};
use crate::config::{self, BodyStore, GatewaySettings, Provider, Settings, url};
use crate::factory::{provider, shared_state};
use crate::platform::exit::UsageError;
use crate::platform::{home, runtime};
use crate::print_diagnostic;
use outlast_dialect::Dialect;
use outlast_engine::accounts::Accounts;
use outlast_engine::shared_state::{SharedState, StoreEvent};
use outlast_engine::transport::{Forwarder, HttpSettings};
use outlast_engine::{CancellationToken, Clock};
use outlast_gateway::auth::{AllowedNames, ClientKeys, Token, TokenError};
use outlast_gateway::observe::log::Sink;
use outlast_gateway::{Gateway, Handle, Limits, Setup, Upstream, Upstreams, clients};
use outlast_kernel::text;
use outlast_mock::{Options, Server};
use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::task::JoinHandle;

/// The clients that a gateway serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Audience {
    /// Any client.
    Everyone,
    /// One program; the gateway ends with it.
    Program,
}

/// A running gateway.
pub(super) struct StartedGateway {
    pub(super) running: RunningGateway,
    pub(super) home: PathBuf,
    pub(super) handle: Handle,
    pub(super) upstream_factory: UpstreamFactory,
    /// Cancelling it ends the gateway.
    pub(super) stop: CancellationToken,
    pub(super) serving: JoinHandle<()>,
    /// Keeps the gateway findable for other processes.
    _registration: Option<Registration>,
}

/// Starts a gateway. `settings` are those of Anthropic and of OpenAI, in that order.
pub(super) async fn start(
    settings: &[Settings; 2],
    whom: Audience,
    clock: Arc<dyn Clock>,
    log: Arc<dyn Sink>,
) -> anyhow::Result<StartedGateway> {
    let gateway = &settings[0].gateway;
    let home = home::prepare()?;
    let knowledge = shared_state::open(Some(home.clone()), &clock).await;
    let stop = CancellationToken::new();
    let mut upstream_factory = UpstreamFactory {
        clock: clock.clone(),
        shared_state: knowledge.clone(),
        scripted: HashMap::new(),
    };
    let token = token(&home, gateway)?;
    let setup = Setup {
        listen: gateway.listen,
        upstreams: upstream_factory.upstreams(settings).await?,
        limits: limits(gateway),
        clock,
        shared_state: knowledge,
        holds_file: holds_file(whom, gateway.listen).map(|file| home.join(file)),
        body_dir: body_store(gateway, &home),
        allowed_names: AllowedNames::new(
            "gateway",
            gateway.host_names.clone(),
            gateway.origins.clone(),
        ),
        client_keys: token
            .as_ref()
            .map(|token| ClientKeys::new(gateway.client_keys.clone(), token)),
        token,
        log,
        store_listener: Arc::new(report_notice),
    };
    let served = Gateway::bind(setup).await?;
    let address = served.address();
    check_not_itself(&settings[0], address)?;
    let running = RunningGateway {
        address,
        pid: std::process::id(),
        for_program: whom == Audience::Program,
    };
    let left = Registration::register(&home, &running);
    let left = left.map_err(|error| warn_unregistered(&error)).ok();
    let handle = served.handle();
    Ok(StartedGateway {
        running,
        home,
        handle,
        upstream_factory,
        serving: tokio::spawn(served.serve(stop.clone())),
        stop,
        _registration: left,
    })
}

/// Loads or creates the token for the endpoints that not everyone may use. Without a disk to keep it, a gateway still
/// serves this machine; beyond this machine the token protects the accounts, so its absence is an error.
fn token(home: &Path, gateway: &GatewaySettings) -> Result<Option<Token>, TokenError> {
    match Token::load_or_create_in(home) {
        Err(error) if gateway.is_local() => {
            warn_unregistered(&error);
            Ok(None)
        }
        token => token.map(Some),
    }
}

fn warn_unregistered(error: &dyn std::error::Error) {
    print_diagnostic(&format!(
        "warning: cannot write to Outlast's folder: {error}; `outlast gateway status` and the like do not find this gateway"
    ));
}

/// Reports events of the file of holds.
fn report_notice(notice: StoreEvent) {
    let warning = match notice {
        StoreEvent::Connected => {
            return crate::output::diagnostics::print_status(
                "Requests that wait are written down again.",
            );
        }
        StoreEvent::Disconnected { why } => format!(
            "warning: requests that wait are not written down: {why}; they do not survive the gateway"
        ),
        StoreEvent::Replaced { backup_path } => format!(
            "warning: the requests that waited are damaged; they are kept as {}, and a new file is begun",
            backup_path.display()
        ),
    };
    print_diagnostic(&warning);
}

/// Returns the name of the file of holds, or `None` for a gateway that nobody could find again.
fn holds_file(whom: Audience, listen: SocketAddr) -> Option<String> {
    let is_found_again = whom == Audience::Everyone && listen.port() != 0;
    is_found_again.then(|| format!("gateway-{}.db", listen.port()))
}

/// Rejects an upstream that is the gateway itself: such a request would never be answered.
pub(super) fn check_not_itself(settings: &Settings, address: SocketAddr) -> Result<(), UsageError> {
    let gateway = &settings.gateway;
    let both = [&gateway.anthropic, &gateway.openai];
    if both.into_iter().any(|one| points_to_gateway(one, address)) {
        let problem =
            format!("the upstream is this gateway itself, at {address}; name the provider");
        return Err(UsageError(problem));
    }
    Ok(())
}

// --- upstreams and limits, from the settings ---

/// Builds the reloadable parts of a gateway, once for each change of the settings.
pub(super) struct UpstreamFactory {
    pub(super) clock: Arc<dyn Clock>,
    shared_state: SharedState,
    /// The addresses of the scripted providers that were started, by script.
    scripted: HashMap<String, String>,
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
    pub(super) async fn upstreams(
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
fn limits(settings: &GatewaySettings) -> Limits {
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
fn body_store(settings: &GatewaySettings, home: &Path) -> Option<PathBuf> {
    match &settings.body_store {
        BodyStore::DefaultFolder => Some(home.join("spool")),
        BodyStore::Folder(folder) => Some(folder.clone()),
        BodyStore::Memory => None,
    }
}

/// Reports whether the upstream is the given listener itself.
fn points_to_gateway(upstream: &config::Upstream, listen: SocketAddr) -> bool {
    let config::Upstream::Url(text) = upstream else {
        return false;
    };
    let place = url::host_and_port(text);
    let port = listen.port();
    let names = ["localhost", "127.0.0.1", "[::1]"].map(|name| format!("{name}:{port}"));
    place == listen.to_string() || names.contains(&place)
}
