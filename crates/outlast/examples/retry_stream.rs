//! Retries a stream of a client that knows nothing of Outlast: `cargo run -p outlast --example retry_stream`.
#![expect(clippy::print_stdout, reason = "an example talks to whoever runs it")]

use futures_util::{Stream, StreamExt, stream};
use outlast::{RetryPolicy, retry_stream};
use std::io::{Error, ErrorKind};
use std::sync::atomic::{AtomicBool, Ordering};

/// A client whose first connection is reset.
#[derive(Default)]
struct Client {
    was_reset: AtomicBool,
}

impl Client {
    async fn stream(
        &self,
        prompt: &str,
    ) -> Result<impl Stream<Item = Result<String, Error>> + use<>, Error> {
        tokio::task::yield_now().await; // a real client connects here
        if !self.was_reset.swap(true, Ordering::Relaxed) {
            return Err(Error::from(ErrorKind::ConnectionReset));
        }
        Ok(stream::iter([
            Ok("You said: ".to_owned()),
            Ok(prompt.to_owned()),
        ]))
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let client = Client::default();
    let mut tokens = Box::pin(retry_stream(RetryPolicy::conservative(), || {
        client.stream("Hello")
    }));
    while let Some(token) = tokens.next().await {
        print!("{}", token?);
    }
    println!();
    Ok(())
}
