//! A scripted provider on a local port, so that the examples need no network and no key.

use outlast::{CancellationToken, WallClock};
use outlast_mock::{Options, Server};
use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

/// Starts a provider that plays the script, and returns its address.
pub(crate) async fn provider(script: &str) -> Result<String, Box<dyn Error>> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let clock = Arc::new(WallClock::default());
    let server = Server::bind(address, clock, Options::new(script.parse()?)).await?;
    let url = format!("http://{}", server.address());
    tokio::spawn(server.serve(CancellationToken::new()));
    Ok(url)
}
