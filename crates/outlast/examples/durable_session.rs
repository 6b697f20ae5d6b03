//! A session with a tool that survives its process: `cargo run -p outlast --example durable_session [JOURNAL]`.
//!
//! The provider is overloaded at first. Kill the program with -9 while it waits, start it again with the same journal, and it
//! continues: the prompt is not sent twice, and the wait ends at its original time.

mod support;

use outlast::{Model, RetryPolicy, Session, tool};
use serde::Deserialize;

#[derive(Deserialize, schemars::JsonSchema)]
struct City {
    name: String,
}

#[tokio::main(flavor = "current_thread")]
#[expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "an example is a program: it has arguments and prints"
)]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let journal = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "trip.db".to_owned());
    let url = support::provider("overloaded:1+ok:agent,times=always").await?;

    let weather = tool(
        "weather",
        "Returns the weather of a city.",
        |city: City| async move { Ok::<_, String>(format!("{}: 21 C", city.name)) },
    );
    let session = Session::builder(Model::anthropic("no key", "scripted").base_url(url))
        .journal(journal)
        .retry(RetryPolicy::standard())
        .tool(weather.idempotent())
        .open_or_create("trip")
        .await?;
    let prompt = "Do I need a coat?\ncall weather {\"name\": \"Paris\"}";
    println!("{}", session.resume_or_prompt(prompt).await?.text());
    session.close().await?;
    Ok(())
}
