//! A durable session with a custom tool and a custom retry strategy. It is interrupted in the middle of a wait, and resumed
//! from its journal as another process would do it.
//!
//! Run it with `cargo run -p outlast-session --example durable_session`.

use outlast_dialect::Dialect;
use outlast_engine::clock::WallClock;
use outlast_engine::provider::Adapter;
use outlast_engine::strategy::Aborted;
use outlast_engine::{BoxFuture, CancellationToken, Clock, RetryStrategy};
use outlast_kernel::event::Body;
use outlast_mock::ScriptedTransport;
use outlast_session::Session;
use outlast_session::tools::{Context, Effect, Output, Tool, Tools};
use outlast_session::{PromptRequest, Setup};
use outlast_store::Journal;
use serde_json::{Value, json};
use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// Books a table. A second booking would be one too many, so the tool is never run again.
struct Book;

impl Tool for Book {
    fn describe(&self) -> outlast_dialect::Tool {
        outlast_dialect::Tool {
            name: "book".to_owned(),
            description: "Books a table.".to_owned(),
            parameters: json!({
                "type": "object",
                "properties": { "guests": { "type": "integer" } },
                "required": ["guests"],
            }),
        }
    }

    fn effect(&self) -> Effect {
        Effect::AtMostOnce
    }

    fn summary(&self, arguments: &Value) -> String {
        format!("book: a table for {}", arguments["guests"])
    }

    fn run<'a>(&'a self, arguments: Value, _: &'a Context) -> BoxFuture<'a, Output> {
        Box::pin(async move { Output::ok(format!("A table for {}.", arguments["guests"])) })
    }
}

/// Retries after one second, at most five times.
struct EverySecond;

impl RetryStrategy for EverySecond {
    fn delay_for(&self, attempt: u32) -> Option<Duration> {
        (attempt < 5).then_some(Duration::from_secs(1))
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

/// Creates a setup with the scripted provider, which is overloaded once; then it calls the tools that the prompt names.
fn setup(folder: &Path) -> Result<Setup, outlast_mock::Error> {
    let clock: Arc<dyn Clock> = Arc::new(WallClock::default());
    let script = "overloaded:1+ok:agent,times=always".parse()?;
    let transport = Arc::new(ScriptedTransport::new(script, clock.clone()));
    let provider = Adapter::new(Dialect::Anthropic, transport, clock.clone());
    let tools = Tools::empty(folder, clock.clone())
        .with(Arc::new(Book))
        .with_allowed(["book"]);
    Ok(Setup {
        retry: Some(Arc::new(EverySecond)),
        tool_definitions: tools.definitions(),
        tools: Some(Arc::new(tools)),
        ..Setup::new(Arc::new(provider), "scripted", clock)
    })
}

#[tokio::main(flavor = "current_thread")]
#[expect(clippy::print_stdout, reason = "an example talks to whoever runs it")]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let journal = Journal::open(&folder.path().join("sessions.db"))?.journal;

    let place = (folder.path().to_string_lossy().into_owned(), "Dinner");
    let session = Session::create(&journal, (&place.0, place.1), setup(folder.path())?).await?;
    let id = session.id().to_owned();
    let waiting = Arc::new(Notify::new());
    let begun = Arc::clone(&waiting);
    let subscription = session.subscribe(move |event| {
        if let Body::RetryScheduled { retry_at, .. } = &event.body {
            println!("it waits until {retry_at}");
            begun.notify_one();
        }
    });
    let ask = PromptRequest::from("A table, please.\ncall book {\"guests\": 4}");
    tokio::select! {
        _ = session.prompt(ask) => println!("it did not wait"),
        () = waiting.notified() => println!("the process dies here"),
    }
    drop((subscription, session));

    let session = Session::open(&journal, &id, setup(folder.path())?).await?;
    let ended = session.resume().await?;
    println!("{}", ended.message.text());
    println!("{} messages, {:?}", session.messages().len(), ended.seal);
    session.close().await?;
    Ok(())
}
