//! A gateway in this process, from its settings to its end.

use crate::commands::gateway::registry::{Registration, RunningGateway};
use crate::commands::gateway::upstream_factory::{
    UpstreamFactory, body_store, limits, points_to_gateway,
};
use crate::config::{GatewaySettings, Settings};
use crate::factory::shared_state;
use crate::platform::exit::UsageError;
use crate::platform::home;
use crate::print_diagnostic;
use outlast_engine::shared_state::StoreEvent;
use outlast_engine::{CancellationToken, Clock};
use outlast_gateway::auth::{AllowedNames, ClientKeys, Token, TokenError};
use outlast_gateway::observe::log::Sink;
use outlast_gateway::{Gateway, Handle, Setup};
use std::collections::HashMap;
use std::net::SocketAddr;
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
