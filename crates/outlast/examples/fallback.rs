//! Shows waits while they happen, and asks another model when the first stays overloaded:
//! `cargo run -p outlast --example fallback`.

mod support;

use outlast::{Body, Model, RetryPolicy, Session};

#[tokio::main(flavor = "current_thread")]
#[expect(clippy::print_stdout, reason = "an example talks to whoever runs it")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let overloaded = support::provider("overloaded:99").await?;
    let healthy = support::provider("ok").await?;

    let session = Session::builder(Model::anthropic("no key", "first").base_url(overloaded))
        .fallback(Model::openai("no key", "second").base_url(healthy))
        .retry(RetryPolicy::aggressive())
        .open_or_create("fallback")
        .await?;
    let _subscription = session.subscribe(|event| match &event.body {
        Body::RetryScheduled {
            message, delay_ms, ..
        } => println!("⚠ {message}, retrying in {delay_ms} ms"),
        Body::ModelSwitched { to, .. } => println!("⚠ asking {to} from here on"),
        _ => {}
    });
    println!("{}", session.prompt("Say hello").await?.text());
    session.close().await?;
    Ok(())
}
