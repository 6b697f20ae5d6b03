//! The dialects from outside: whole requests, whole streams, and errors in great number.
#![allow(clippy::unwrap_used, reason = "a test may stop at once")]

mod errors;
mod requests;
mod streams;
