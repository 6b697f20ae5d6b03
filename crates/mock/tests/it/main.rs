//! The mock provider behind the real adapter and the real turn, and over real sockets, on a paused clock.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    clippy::too_many_lines,
    reason = "a test may stop at once, and its tables are long"
)]

mod agent;
mod answers;
mod client;
mod control;
mod faults;
mod partial_failure;
mod resume;
mod turns;
