//! Keeps LLM agents running through provider failure, as a library.
//!
//! A call to a model fails: rate limits, overload, a stream that breaks, a usage window that closes. This crate identifies
//! the failure, decides whether and when to try again, survives the death of the process in the middle of the wait, and
//! never produces the same text or runs the same tool twice.
//!
//! Start with the task that you have:
//!
//! | task | start at |
//! |---|---|
//! | Retry a stream of any client | [`retry_stream`] |
//! | Hold a conversation that survives a crash, with tools | [`Session`] |
//! | Know what an error means, and when to come back | [`HttpError`], [`classify()`] |
//! | Use a schedule of your own | [`RetryPolicy`], [`RetryStrategy`] |
//! | Show waits to a person | [`Session::subscribe`], [`Event`] |
//! | Prompt, steer, queue and abort from several places | [`Session::into_conversation`], [`Conversation`] |
//! | Make one call with everything in your own hands | [`run_turn`] |
//!
//! # Retry any stream
//!
//! The first item decides: before it, a failed stream is created again; after it, never, so nothing is seen twice.
//!
//! ```
//! use futures_util::{StreamExt, stream};
//! use outlast::{RetryPolicy, retry_stream};
//! # use std::io::{Error, ErrorKind};
//! # struct Client(std::sync::atomic::AtomicBool);
//! # impl Client {
//! #     async fn stream(&self, _: &str) -> Result<impl futures_util::Stream<Item = Result<&'static str, Error>>, Error> {
//! #         match self.0.swap(true, std::sync::atomic::Ordering::Relaxed) {
//! #             false => Err(Error::from(ErrorKind::ConnectionReset)),
//! #             true => Ok(stream::iter([Ok("Hello, "), Ok("world")])),
//! #         }
//! #     }
//! # }
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Error> {
//! # let client = Client(false.into());
//! let mut tokens = Box::pin(retry_stream(RetryPolicy::conservative(), || client.stream("Hello")));
//! while let Some(token) = tokens.next().await {
//!     print!("{}", token?);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # A durable session with a tool
//!
//! After `kill -9`, run the program again and it continues: a wait ends at its original time, and a tool that was
//! interrupted runs again only if it says that this does no harm.
//!
//! ```no_run
//! use outlast::{Model, RetryPolicy, Session, tool};
//! use serde::Deserialize;
//!
//! #[derive(Deserialize, schemars::JsonSchema)]
//! struct City {
//!     name: String,
//! }
//!
//! # async fn run(api_key: String) -> Result<(), outlast::Error> {
//! let weather = tool("weather", "Returns the weather of a city.", |city: City| async move {
//!     Ok::<_, String>(format!("{}: 21 C", city.name))
//! });
//! let session = Session::builder(Model::anthropic(api_key, "claude-sonnet-4-5"))
//!     .journal("agent.db")
//!     .retry(RetryPolicy::overnight())
//!     .tool(weather.idempotent())
//!     .open_or_create("trip")
//!     .await?;
//! println!("{}", session.resume_or_prompt("Do I need a coat in Paris?").await?.text());
//! session.close().await
//! # }
//! ```
//!
//! # Classify an error
//!
//! Facts decide (status, code, headers, I/O kind), wording only within what they leave open.
//!
//! ```
//! use outlast::{Decision, GiveUp, HttpError, RetryPolicy, Timestamp};
//!
//! let error = HttpError::new("openai", 429)
//!     .header("retry-after", "30")
//!     .body(r#"{"error":{"code":"insufficient_quota","message":"You exceeded your current quota."}}"#);
//! let verdict = error.classify();
//! println!("{} ({:?}): {:?}", verdict.cause, verdict.class(), verdict.evidence);
//! let decision = RetryPolicy::standard().decide(&verdict, 0, Timestamp::default());
//! assert_eq!(decision, Decision::GiveUp(GiveUp::NotRetryable));
//! ```
//!
//! # What is stable
//!
//! This crate is the only supported interface. The crates below it (`outlast-kernel`, `outlast-engine` and so on) are
//! internal: their types appear here, everything else in them may change at any time.
#![warn(missing_docs)]

mod error;
mod http_error;
mod model;
mod session;
mod tool;

pub use error::Error;
pub use http_error::HttpError;
pub use model::Model;
pub use session::{Reply, Session, SessionBuilder};
pub use tool::{FunctionTool, tool};

// --- Failures and decisions ---
#[doc(inline)]
pub use outlast_kernel::{
    Timestamp,
    classify::classify,
    decision::{AfterContent, Decision, GiveUp, Remedy},
    failure::{ClassifiedFailure, Failure, IoKind},
    policy::{Backoff, Error as PolicyError, Jitter, Policy as RetryPolicy},
    verdict::{Authority, Cause, Class, Evidence, Hint, Scope, Verdict},
};

// --- Streams and turns ---
pub use outlast_engine::CancellationToken;
#[doc(inline)]
pub use outlast_engine::{
    Clock, Provider, RetryStrategy,
    clock::WallClock,
    provider::Timeouts,
    run_turn,
    shared_state::SharedState,
    strategy::{Aborted, PolicyRetry},
    stream_retry::{StreamRetry, ToFailure, retry_stream},
    turn::{Control, Turn, TurnOutcome},
};

// --- Conversations ---
#[doc(inline)]
pub use outlast_dialect::{Delta, Message, Part, Request, Role};
#[doc(inline)]
pub use outlast_kernel::event::{Body, Event, StopReason, TurnStatus, Usage};
#[doc(inline)]
pub use outlast_session::{
    Accepted, Conversation, Delivery, EventStream, Rejected, RunOutcome, Started, Subscription,
    event_log::StaleCursor,
    tools::{Context, Effect, Output, Tool},
};
