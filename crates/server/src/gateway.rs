//! The gateway: a proxy in front of providers that holds a failing request, keeps its client alive in the client's own
//! way, and lets nothing happen twice.

pub mod client;
pub mod control;
pub mod guard;
pub mod holds;
pub mod log;
pub mod metrics;
