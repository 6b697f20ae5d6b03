//! The sinks that observe requests: log, metrics, request list and traces.

pub(crate) mod gate_log;
pub mod log;
pub mod metrics;
#[cfg(feature = "otel")]
pub mod otel;
pub mod request_log;
