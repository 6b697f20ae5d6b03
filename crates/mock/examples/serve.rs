//! The mock provider as a server, until it is interrupted: `cargo run -p outlast-mock --example serve`.
#![allow(clippy::print_stdout, reason = "its address is what it has to say")]

use outlast_engine::CancellationToken;
use outlast_engine::clock::WallClock;
use outlast_mock::{Options, Server};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let options = Options::new("ok".parse()?);
    let server = Server::bind(address, Arc::new(WallClock::default()), options).await?;
    println!("listening on http://{}", server.address());
    let stop = CancellationToken::new();
    let interrupted = async {
        tokio::signal::ctrl_c().await.ok();
        stop.cancel();
    };
    tokio::join!(server.serve(stop.clone()), interrupted);
    Ok(())
}
