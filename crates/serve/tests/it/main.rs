//! Integration tests of the server, through its public interface.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    clippy::too_many_lines,
    reason = "a test may stop at once, and its tables are long"
)]

mod kinds;
mod live_sessions;
mod native;
mod schema;
