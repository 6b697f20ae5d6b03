//! Retries by a schedule of your own: `cargo run -p outlast --example custom_strategy`.

mod support;

use futures_util::future::BoxFuture;
use outlast::{Aborted, CancellationToken, Model, RetryStrategy, Session};
use std::sync::Arc;
use std::time::Duration;

/// Fibonacci delays, in tenths of a second, at most five.
struct Fibonacci;

impl RetryStrategy for Fibonacci {
    fn delay_for(&self, attempt: u32) -> Option<Duration> {
        let tenths = [1, 1, 2, 3, 5];
        tenths
            .get(attempt as usize)
            .map(|&tenths| Duration::from_millis(100 * tenths))
    }

    fn sleep<'a>(
        &'a self,
        delay: Duration,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<(), Aborted>> {
        Box::pin(async move {
            tokio::select! {
                () = cancel.cancelled() => Err(Aborted),
                () = tokio::time::sleep(delay) => Ok(()),
            }
        })
    }
}

#[tokio::main(flavor = "current_thread")]
#[expect(clippy::print_stdout, reason = "an example talks to whoever runs it")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = support::provider("overloaded:3+ok").await?;
    let session = Session::builder(Model::openai("no key", "scripted").base_url(url))
        .retry_strategy(Arc::new(Fibonacci))
        .open_or_create("fibonacci")
        .await?;
    println!("{}", session.prompt("Say hello").await?.text());
    session.close().await?;
    Ok(())
}
