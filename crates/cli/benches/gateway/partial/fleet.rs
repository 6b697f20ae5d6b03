//! Sixty processes that share a folder go through one outage: sessions, and gateways with a client each.

use super::load::{Load, Retry};
use super::provider::{Arrival, Fault};
use super::scale::Scale;
use super::{Line, Rig};
use crate::process::Process;
use crate::systems::Setup;
use anyhow::{Result, bail};
use std::process::Command;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

const SESSIONS: usize = 54;
const GATEWAYS: usize = 6;
const OUTAGE: Duration = Duration::from_secs(60);
/// At this speed, a busy machine has time for sixty processes.
const SCALE: Scale = Scale(2);
/// Calls beyond the first one of each process.
const MAX_PROBES: usize = 26;
const PATIENCE: Duration = Duration::from_secs(120);

pub(super) async fn run(rig: &Rig<'_>, case: String) -> Result<Vec<Line>> {
    let (provider, direct) = rig.provider(SCALE, Duration::from_millis(300)).await?;
    let places = rig.places("fleet", direct)?;
    provider.set(Fault::Down);
    let mut gateways = Vec::new();
    for number in 0..GATEWAYS {
        gateways.push(
            rig.gateway_in(&places, SCALE, &format!("gateway-{number}"))
                .await?,
        );
    }
    let began = Instant::now();
    let mut clients = JoinSet::new();
    for (number, gateway) in gateways.iter().enumerate() {
        let load = Load {
            address: gateway.address,
            retry: Retry::None,
            scale: SCALE,
            clients: 1,
            pause: Duration::ZERO,
        };
        // The clients of odd numbers speak the sessions' dialect.
        clients.spawn(load.run([2 * number + 1]));
    }
    let mut sessions = Vec::new();
    for number in 0..SESSIONS {
        let log = places.folder.join(format!("session-{number}.log"));
        sessions.push(Process::start(session(&places), &log)?);
    }
    sleep(SCALE.real(OUTAGE).saturating_sub(began.elapsed())).await;
    let in_outage = provider.arrivals().len();
    provider.set(Fault::None);
    let mut lost = 0;
    while let Some(outcome) = clients.join_next().await {
        lost += outcome?.lost.len();
    }
    let end = Instant::now() + PATIENCE;
    while sessions.iter_mut().any(|session| !session.has_ended()) {
        if Instant::now() > end {
            bail!("a session does not end; see {}", places.folder.display());
        }
        sleep(Duration::from_millis(100)).await;
    }
    let served = |arrival: &&Arrival| arrival.status == 200;
    let served = provider.arrivals().iter().filter(served).count();
    let all = SESSIONS + GATEWAYS;
    let most = all + MAX_PROBES;
    let measured =
        format!("{in_outage} calls in the outage, {served} of {all} served, {lost} lost");
    let holds = in_outage <= most && served == all && lost == 0;
    Ok(vec![Line {
        case,
        system: "gateway",
        measured,
        limit: Some((format!("≤ {most} calls in the outage"), holds)),
    }])
}

/// A session that sends one prompt, with the key of the gateways' clients.
fn session(places: &Setup) -> Command {
    let mut command = Command::new(&places.outlast);
    command
        .args(["-p", "hi", "--provider", "anthropic", "--model"])
        .arg(crate::answers::Dialect::Messages.model())
        .args(["--policy", "overnight"])
        .current_dir(&places.folder)
        .env("HOME", &places.folder)
        .env("OUTLAST_HOME", places.folder.join("outlast-home"))
        .env("OUTLAST_TIME_SCALE", SCALE.0.to_string())
        .env("ANTHROPIC_API_KEY", "sk-ant-bench")
        .env("ANTHROPIC_BASE_URL", format!("http://{}", places.upstream));
    command
}
