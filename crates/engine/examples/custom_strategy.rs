//! A turn with a custom retry strategy: delays in Fibonacci seconds, at most five retries.
//!
//! Run it with `cargo run -p outlast-engine --example custom_strategy`.

use futures_util::{StreamExt, stream};
use outlast_dialect::{Delta, Message, Request};
use outlast_engine::clock::WallClock;
use outlast_engine::credential::Credential;
use outlast_engine::strategy::Aborted;
use outlast_engine::turn::{Control, Turn};
use outlast_engine::{
    BoxFuture, BoxStream, CancellationToken, Clock, Provider, RetryStrategy, run_turn,
};
use outlast_kernel::event::{Body, StopReason};
use outlast_kernel::failure::Failure;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

struct Fibonacci;

impl RetryStrategy for Fibonacci {
    fn delay_for(&self, attempt: u32) -> Option<Duration> {
        let seconds = [1, 1, 2, 3, 5];
        seconds
            .get(attempt as usize)
            .map(|seconds| Duration::from_secs(*seconds))
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

/// A provider that fails twice, then answers.
struct Moody {
    calls: AtomicU32,
}

impl Provider for Moody {
    fn name(&self) -> &str {
        "moody"
    }

    fn stream(
        &self,
        _: &Request,
        _: Option<&Credential>,
    ) -> BoxStream<'static, Result<Delta, Box<Failure>>> {
        let items = if self.calls.fetch_add(1, Ordering::Relaxed) < 2 {
            {
                let failure = Failure::http("moody", 529, "Not now.", WallClock::default().now());
                vec![Err(Box::new(failure))]
            }
        } else {
            vec![
                Ok(Delta::Text("All right.".to_owned())),
                Ok(Delta::Stopped(StopReason::EndTurn)),
            ]
        };
        stream::iter(items).boxed()
    }
}

#[tokio::main(flavor = "current_thread")]
#[expect(clippy::print_stdout, reason = "an example talks to whoever runs it")]
async fn main() {
    let request = Request {
        model: "any".to_owned(),
        messages: vec![Message::user("Please.")],
        ..Request::default()
    };
    let (control, _handle) = Control::new(CancellationToken::new());
    let moody = Moody {
        calls: AtomicU32::new(0),
    };
    let clock = WallClock::default();
    let turn = Turn {
        retry: Some(&Fibonacci),
        control,
        ..Turn::new(&moody, request, &clock)
    };
    let ended = run_turn(turn, &mut |event| {
        if let Body::RetryScheduled {
            delay_ms, message, ..
        } = event.body
        {
            println!("{message} Trying again in {delay_ms} ms.");
        }
    })
    .await;
    println!("{}", ended.message.text());
}
