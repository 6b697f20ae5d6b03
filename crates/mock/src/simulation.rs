//! Simulates clients under partial failure, in virtual time: a provider that fails, refuses or hangs, and processes that
//! retry and admit their requests with the code that runs in production, beside clients that retry on their own.
//!
//! The gate, what a process sees of it, the recovery of a request and the policies are the kernel's; clients, provider and
//! store are simulated. A [`World`] is one run; a [`Scenario`] describes one, and [`run`] returns its [`Metrics`].
//!
//! Invariant: one seed gives one run. Not here: real sockets, tables and pictures (see the app).

mod metrics;
mod provider;
mod requests;
mod scenario;
mod store;
mod strategy;
mod world;

#[cfg(test)]
mod tests;

pub use metrics::{Blackout, Metrics};
pub use provider::{Fault, FaultContext, FaultKind, Provider, Treatment};
pub use requests::Clients;
pub use scenario::{Error, Flap, Scenario, run};
pub use strategy::Strategy;
pub use world::{CallResult, LoggedCall, Success, World};
