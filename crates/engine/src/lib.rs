//! Executes model calls and their retries.
//!
//! [`turn::run_turn`] makes a call, lets the kernel classify a failure, and carries out the decision: wait, call again,
//! report, settle. [`stream_retry::retry_stream`] is the smaller equivalent for any fallible stream.
//!
//! Invariant: all decisions are made by the kernel. There is one retry layer: adapters make one request each.
#![warn(missing_docs)]

pub mod accounts;
pub mod admission;
pub mod attempt;
pub mod clock;
pub mod compaction;
pub mod credential;
pub mod inbox;
pub mod journal;
mod permits;
pub mod provider;
pub mod shared_state;
pub mod strategy;
pub mod stream_retry;
pub mod target;
pub mod token_estimate;
pub mod tools;
pub mod transport;
pub mod turn;

pub use clock::Clock;
pub use futures_util::future::BoxFuture;
pub use futures_util::stream::BoxStream;
pub use provider::Provider;
pub use strategy::RetryStrategy;
pub use tokio_util::sync::CancellationToken;
pub use transport::Transport;
pub use turn::run_turn;
