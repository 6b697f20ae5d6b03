//! Simulates clients under partial failure, in virtual time: a provider that fails, refuses or hangs, and processes that
//! admit their requests with the kernel's [`ProcessQueue`](outlast_kernel::gate::admission::ProcessQueue) and
//! [`Gate`](outlast_kernel::gate::admission::Gate), beside clients that retry on their own.
//!
//! Invariant: one seed gives one run. Not here: real sockets.

mod clients;
mod provider;
mod store;
mod world;

#[cfg(test)]
mod tests;

pub use clients::{Clients, Strategy};
pub use provider::{Fault, FaultKind, Provider, Treatment};
pub use world::{CallResult, LoggedCall, Success, World};
