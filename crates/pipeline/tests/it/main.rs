//! Pipelines through the public API.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test may stop at once"
)]

mod fuzz_targets;
