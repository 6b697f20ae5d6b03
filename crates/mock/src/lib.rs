//! Pretends: a provider that fails on demand.
//!
//! A [`Script`] says what goes wrong and when; [`Scripted`] plays it as a transport that speaks the Anthropic wire
//! format, so that everything above it is what users run.
#![warn(missing_docs)]

mod script;
pub mod simulation;
mod transport;

pub use script::{Error, Reply, Script};
pub use transport::Scripted;
