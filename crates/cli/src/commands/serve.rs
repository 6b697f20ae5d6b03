//! `outlast serve`: serves sessions over HTTP and WebSocket, and a page for the browser.
//!
//! Not here: the server itself (see `outlast_serve::http`).

pub(crate) mod accounts_and_gateways;
pub(crate) mod session_factory;

use crate::args::ServerArguments;
use crate::commands::serve::session_factory::ServeSessionFactory;
use crate::config::{self, ServeSettings};
use crate::factory::run_start::RunStarter;
use crate::factory::session_lookup::current_folder;
use crate::output::{print, print_json};
use crate::platform::clock;
use crate::platform::exit::Exit;
use crate::platform::home;
use crate::platform::runtime;
use crate::platform::signals;
use crate::print_diagnostic;
use anyhow::Context;
use outlast_engine::{CancellationToken, Clock};
use outlast_gateway::auth::{AllowedNames, Token};
use outlast_kernel::text;
use outlast_pipeline::run_store::RunStore;
use outlast_serve::http::{self, HostServices, HttpServer, Limits, Setup};
use outlast_serve::live_sessions::LiveSessions;
use outlast_session::factory::SessionFactory;
use std::path::Path;
use std::sync::Arc;

/// The name of the token file in the home folder.
const TOKEN_FILE: &str = "serve.token";

pub(crate) fn run(arguments: &ServerArguments) -> anyhow::Result<Exit> {
    if arguments.openapi {
        return print_json(&http::document());
    }
    let folder = current_folder()?;
    let mut flags = arguments.flags.overrides();
    flags.extend(
        arguments
            .listen
            .clone()
            .map(|listen| ("serve.listen", listen)),
    );
    config::print_notices(&folder)?;
    let settings = config::load_for_server(&folder, &flags)?.serve;
    let clock: Arc<dyn Clock> = Arc::new(clock::clock()?);
    if !settings.is_local() {
        print_diagnostic(
            "warning: other machines can reach this server; the token and what is said come to it unencrypted",
        );
    }
    crate::platform::runtime::raise_file_limit();
    runtime::run(serve(arguments, settings, &folder, clock))
}

async fn serve(
    arguments: &ServerArguments,
    settings: ServeSettings,
    folder: &Path,
    clock: Arc<dyn Clock>,
) -> anyhow::Result<Exit> {
    let mut signals = signals::signals_without_hang_up();
    let house =
        ServeSessionFactory::new(&arguments.session_arguments(), clock, folder.to_owned()).await?;
    house.check()?;
    let house = Arc::new(house);
    let sessions = LiveSessions::new(Arc::clone(&house) as Arc<dyn SessionFactory>);
    let server = HttpServer::bind(Setup {
        listen: settings.listen,
        sessions: Arc::clone(&sessions),
        runs: (
            RunStore::new(&home::path()?),
            Arc::new(RunStarter::new(folder)?),
        ),
        host_services: Arc::clone(&house) as Arc<dyn HostServices>,
        names: AllowedNames::new(
            "serve",
            settings.host_names.clone(),
            settings.origins.clone(),
        ),
        token: token(&settings)?,
        limits: limits(&settings),
    })
    .await?;
    let (address, stop) = (server.address(), CancellationToken::new());
    let serving = tokio::spawn(server.serve(stop.clone()));
    let keeper = Arc::clone(&sessions);
    tokio::spawn(async move { keeper.run_housekeeping().await });
    print(&greeting(address, &settings))?;
    let carrying_on = Arc::clone(&sessions);
    tokio::spawn(async move {
        match carrying_on.resume_unfinished().await {
            Ok(failed) => failed.iter().for_each(|(session, error)| {
                print_diagnostic(&format!(
                    "warning: session {session} is not carried on: {error}"
                ));
            }),
            Err(error) => print_diagnostic(&format!(
                "warning: what was left unfinished is not carried on: {error}"
            )),
        }
    });
    let signal = signals.next().await;
    house.set_signal(signal);
    sessions.shutdown().await;
    stop.cancel();
    serving.await?;
    house.finish(&signals).await;
    Ok(Exit::Success)
}

/// Loads or creates the token that every request needs, if others than this user may reach the server.
fn token(settings: &ServeSettings) -> anyhow::Result<Option<Token>> {
    if !settings.requires_token() {
        return Ok(None);
    }
    let home = home::prepare().context("the token cannot be kept")?;
    Ok(Some(Token::load_or_create(&home.join(TOKEN_FILE))?))
}

fn limits(settings: &ServeSettings) -> Limits {
    let whole = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
    Limits {
        body: usize::try_from(settings.max_body).unwrap_or(usize::MAX),
        connections: whole(settings.max_connections).min(runtime::max_connections()),
        requests: settings.max_requests_per_second,
        ..Limits::default()
    }
}

/// Returns a few lines of text. The first one is for programs.
fn greeting(address: std::net::SocketAddr, settings: &ServeSettings) -> String {
    let key = match token_path(settings) {
        Some(place) => format!("It asks for the token in {place}.\n"),
        None => String::new(),
    };
    let screen = format!(
        "listening on http://{address}\n\n\
         Open it in a browser, or drive it from a program: docs/serve.md, http://{address}/api/openapi.json\n{key}\
         Ctrl-C ends it; turns that run are left as they are, and carried on at the next start.\n"
    );
    text::plain(&screen).into_owned()
}

fn token_path(settings: &ServeSettings) -> Option<String> {
    let home = home::path().ok().filter(|_| settings.requires_token())?;
    Some(home.join(TOKEN_FILE).display().to_string())
}
