//! Many turns at once that share what they learn through one file, with every other process that does.
//!
//! `cargo run -p outlast-engine --example crowd -- http://127.0.0.1:8787 20 /tmp/crowd.db` asks twenty times at once.
//! The last line says how many were answered. With OUTLAST_TIME_SCALE set, time runs that much faster.
#![allow(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "it is a program"
)]

use futures_util::future::join_all;
use outlast_dialect::{Dialect, Message, Request};
use outlast_engine::clock::WallClock;
use outlast_engine::knowledge::Knowledge;
use outlast_engine::provider::Adapter;
use outlast_engine::strategy::PolicyRetry;
use outlast_engine::transport::{Http, HttpSettings};
use outlast_engine::turn::Turn;
use outlast_engine::{Clock, run_turn};
use outlast_kernel::event::Seal;
use outlast_kernel::policy::Policy;
use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let usage = "usage: crowd URL COUNT FILE [MODEL]";
    let base_url = arguments.next().ok_or(usage)?;
    let count: usize = arguments.next().ok_or(usage)?.parse()?;
    let path = PathBuf::from(arguments.next().ok_or(usage)?);
    let model = arguments.next().unwrap_or_else(|| "ok".to_owned());
    let clock = clock()?;
    let http = Http::new(&HttpSettings {
        base_url,
        ..HttpSettings::default()
    })?;
    let adapter = Adapter::new(Dialect::OpenaiChat, Arc::new(http), clock.clone());
    let listener = Arc::new(|notice| println!("{notice:?}"));
    let knowledge = Knowledge::shared(path, clock.clone(), listener).await;
    let policy = Policy::named("overnight")?;
    let request = Request {
        model,
        messages: vec![Message::user("hi")],
        ..Request::default()
    };
    let ask = || async {
        let retry = PolicyRetry::new(policy.clone(), clock.clone());
        let turn = Turn {
            retry: Some(&retry),
            knowledge: Some(&knowledge),
            ..Turn::new(&adapter, request.clone(), &*clock)
        };
        run_turn(turn, &mut |_| {}).await.seal == Seal::Completed
    };
    let answers = join_all((0..count).map(|_| ask())).await;
    let answered = answers.into_iter().filter(|answered| *answered).count();
    println!("answered {answered} of {count}");
    Ok(())
}

fn clock() -> Result<Arc<dyn Clock>, Box<dyn Error>> {
    let Ok(scale) = std::env::var("OUTLAST_TIME_SCALE") else {
        return Ok(Arc::new(WallClock::default()));
    };
    let clock = WallClock::scaled(scale.parse()?).ok_or("the clock would run too fast")?;
    Ok(Arc::new(clock))
}
