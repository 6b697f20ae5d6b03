//! Integration tests of the engine, on a paused clock.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    clippy::too_many_lines,
    reason = "a test may stop at once, and its tables are long"
)]

mod accounts;
mod adapter;
mod admission;
mod attempt;
mod conservative_streams;
mod gate;
mod http;
mod journaled;
mod recorded;
mod scripted_transport;
mod shared_state;
mod support;
mod turn_control;
mod turn_inbox;
mod turn_journal;
mod turn_retry;
mod turn_unrecorded;
