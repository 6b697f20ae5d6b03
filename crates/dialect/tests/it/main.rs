//! The dialects from outside: whole requests, whole streams, and errors in great number.
#![allow(
    clippy::unwrap_used,
    clippy::too_many_lines,
    reason = "a test may stop at once, and its tables are long"
)]

mod calls;
mod errors;
mod requests;
mod streams;
mod windows;
