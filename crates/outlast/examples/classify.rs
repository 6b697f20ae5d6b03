//! Classifies an error response and asks a policy what to do: `cargo run -p outlast --example classify`.
#![expect(clippy::print_stdout, reason = "an example talks to whoever runs it")]

use outlast::{Clock, HttpError, RetryPolicy, WallClock};

fn main() {
    let error = HttpError::new("openai", 429)
        .header("retry-after", "30")
        .body(r#"{"error":{"code":"insufficient_quota","message":"You exceeded your current quota."}}"#);
    let verdict = error.classify();
    println!(
        "{} ({:?}): {:?}",
        verdict.cause,
        verdict.class(),
        verdict.evidence
    );
    println!(
        "{:?}",
        RetryPolicy::standard().decide(&verdict, 0, WallClock::default().now())
    );
}
