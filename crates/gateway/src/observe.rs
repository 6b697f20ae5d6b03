//! The observers of requests: log, metrics, request list and traces. A call tells all of them about each event in one place.

pub(crate) mod gate_log;
pub mod log;
pub mod metrics;
#[cfg(feature = "otel")]
pub mod otel;
pub mod request_log;
