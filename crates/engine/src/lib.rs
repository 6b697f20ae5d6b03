//! Acts: one model call and its retries.
//!
//! [`turn::run_turn`] makes a call, lets the kernel decide what a failure means, and carries that out: wait, call
//! again, say so, settle. [`stream_retry::retrying`] is the smaller thing for any fallible stream.
//!
//! Invariant: the kernel decides, nothing here does. There is one retry layer: adapters make one request each.
#![warn(missing_docs)]

pub mod accounts;
pub mod admission;
pub mod clock;
pub mod compaction;
pub mod credential;
pub mod inbox;
pub mod journal;
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
