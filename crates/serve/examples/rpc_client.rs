//! Drives a session in another process, as an editor would: `cargo run -p outlast-serve --example rpc_client`.
//!
//! It needs the `outlast` command (`cargo build -p outlast-cli`) and no API key: the scripted provider is overloaded
//! twice, then answers.
#![expect(clippy::print_stdout, reason = "it is an example")]

use outlast_serve::pi_rpc::client::RpcClient;
use std::error::Error;
use tokio::process::Command;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut command = Command::new("target/debug/outlast");
    command.args(["rpc", "--provider", "mock", "--model", "overloaded:2"]);
    command.arg("--no-session");
    let client = RpcClient::spawn(command)?;
    client.set_auto_retry(true).await?;

    let mut events = client.events();
    let impatient = client.clone();
    let watching = tokio::spawn(async move {
        while let Some(event) = events.next().await {
            let Ok(event) = event else { continue };
            if event["type"] == "auto_retry_start" {
                println!("waiting {} ms: {}", event["delayMs"], event["errorMessage"]);
                // A client may end the wait at any time.
                impatient.retry_now().await.ok();
            }
        }
    });
    let said = client.prompt_and_wait("Say hello").await?;
    let answers = said
        .iter()
        .filter(|event| event["type"] == "message_end" && event["message"]["stopReason"] == "stop");
    for answer in answers {
        println!("{}", answer["message"]["content"][0]["text"]);
    }
    client.close().await;
    watching.await?;
    Ok(())
}
