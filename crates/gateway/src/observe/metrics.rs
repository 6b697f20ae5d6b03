//! Metrics for Prometheus.
//!
//! Invariants: the number of series is bounded whatever clients send (a model is no label, and a client is one of a
//! fixed table or `other`); counting during a request allocates nothing once a series exists. Not here: names and
//! descriptions (see `registration`), access (see `control`), and single requests (see `log`).

mod registration;

use crate::observe::log::{Event, EventKind, Outcome, Record, Sink, dialect_label};
use outlast_dialect::Dialect;
use prometheus_client::encoding::{EncodeLabelSet, LabelSetEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::hash::{Hash, Hasher};
use std::time::Duration;

/// The content type of the text, for scrapers.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The label of a client that is not in the table.
const OTHER: &str = "other";

/// The names and values of `N` labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Labels<const N: usize>([(&'static str, &'static str); N]);

/// Hashes little: series are looked up several times in each request, and the values of a label differ in length or in
/// their first letter nearly always.
impl<const N: usize> Hash for Labels<N> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        for (_, value) in self.0 {
            let first = value.bytes().next().unwrap_or_default();
            state.write_usize(value.len() << 8 | usize::from(first));
        }
    }
}

impl<const N: usize> EncodeLabelSet for Labels<N> {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> std::fmt::Result {
        self.0.encode(encoder)
    }
}

/// All metrics of one gateway.
pub struct Metrics {
    registry: Registry,
    /// The clients with a label of their own.
    clients: Vec<&'static str>,
    totals: Totals,
    requests: Family<Labels<3>, Counter>,
    attempts_failed: Family<Labels<2>, Counter>,
    retries: Family<Labels<1>, Counter>,
    resent: Family<Labels<1>, Counter>,
    resumed: Family<Labels<1>, Counter>,
    refused: Family<Labels<1>, Counter>,
    /// Body bytes that were sent to providers.
    sent_upstream: Counter,
    /// Body bytes that came from providers.
    received_upstream: Counter,
    /// Keep-alive frames that were sent to clients.
    keepalives: Counter,
    /// Interim responses that were sent to clients as keep-alive.
    interim_responses: Counter,
    /// Open connections.
    pub(crate) connections: Gauge,
    /// Requests in progress.
    pub(crate) in_flight: Gauge,
    /// Waiting requests.
    pub(crate) held: Gauge,
    /// Bytes of bodies in files.
    pub(crate) spooled: Gauge,
    /// Accounts that are not in use now.
    pub(crate) blocked: Gauge,
    waited: Family<Labels<1>, Histogram>,
    first_byte: Family<Labels<1>, Histogram>,
    duration: Family<Labels<1>, Histogram>,
}

/// The sums of metrics over all their labels.
#[derive(Default)]
struct Totals {
    requests: Counter,
    answered: Counter,
    attempts_failed: Counter,
    retries: Counter,
    resumed: Counter,
    refused: Counter,
}

/// The sums of a few counters, and the gauges, for the status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Counters {
    /// Finished requests.
    pub requests: u64,
    /// Requests that ended with the provider's response.
    pub answered: u64,
    /// Failed attempts, before any content was sent.
    pub attempts_failed: u64,
    /// Retries.
    pub retries: u64,
    /// Requests that resumed the wait of an earlier request of the same client.
    #[serde(rename = "taken_up")]
    pub resumed: u64,
    /// Requests that the gateway refused.
    pub refused: u64,
    /// Open connections.
    pub connections: u64,
    /// Requests in progress.
    pub in_flight: u64,
    /// Requests in progress that wait for their next attempt.
    pub held: u64,
}

/// A gauge that is raised for as long as this guard lives.
pub struct GaugeGuard {
    gauge: Gauge,
    by: i64,
}

impl GaugeGuard {
    /// Raises the gauge.
    pub fn new(gauge: &Gauge, by: usize) -> Self {
        let by = i64::try_from(by).unwrap_or(i64::MAX);
        gauge.inc_by(by);
        Self {
            gauge: gauge.clone(),
            by,
        }
    }
}

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.gauge.dec_by(self.by);
    }
}

// --- counting ---

impl Sink for Metrics {
    fn emit(&self, event: &Event<'_>) {
        let request = event.request.unwrap_or_default();
        let dialect = || dialect_of(request.dialect);
        let count = |family: &Family<Labels<1>, Counter>, label| {
            family.get_or_create(&Labels([label])).inc();
        };
        match event.kind {
            EventKind::Received { is_resent, .. } if is_resent => {
                count(&self.resent, self.client_of(request.client));
            }
            EventKind::AttemptStarted {
                attempt,
                body_bytes,
            } => {
                self.sent_upstream.inc_by(body_bytes);
                if attempt > 1 {
                    count(&self.retries, dialect());
                    self.totals.retries.inc();
                }
            }
            EventKind::AttemptFailed { cause, .. } => {
                let labels = Labels([dialect(), ("cause", cause.as_str())]);
                self.attempts_failed.get_or_create(&labels).inc();
                self.totals.attempts_failed.inc();
            }
            EventKind::Resumed { .. } => {
                count(&self.resumed, self.client_of(request.client));
                self.totals.resumed.inc();
            }
            EventKind::Refused { kind, .. } => {
                count(&self.refused, ("kind", kind));
                self.totals.refused.inc();
            }
            EventKind::Heartbeat => drop(self.keepalives.inc()),
            EventKind::InterimResponse => drop(self.interim_responses.inc()),
            EventKind::Finished(record) => self.finished(record),
            _ => {}
        }
    }
}

impl Metrics {
    /// Counts a request that is over.
    fn finished(&self, record: &Record<'_>) {
        self.received_upstream.inc_by(record.bytes_out);
        let dialect = dialect_of(record.dialect);
        let outcome = ("outcome", record.outcome.as_str());
        let labels = Labels([dialect, self.client_of(record.client), outcome]);
        self.requests.get_or_create(&labels).inc();
        self.totals.requests.inc();
        if record.outcome == Outcome::Answered {
            self.totals.answered.inc();
        }
        let waited = Some(record.waited).filter(|waited| *waited > Duration::ZERO);
        for (histogram, time) in [
            (&self.duration, Some(record.duration)),
            (&self.waited, waited),
            (&self.first_byte, record.first_byte),
        ] {
            if let Some(time) = time {
                let series = histogram.get_or_create(&Labels([dialect]));
                series.observe(time.as_secs_f64());
            }
        }
    }

    fn client_of(&self, client: &'static str) -> (&'static str, &'static str) {
        let is_known = self.clients.contains(&client);
        ("client", if is_known { client } else { OTHER })
    }
}

fn dialect_of(dialect: Option<Dialect>) -> (&'static str, &'static str) {
    ("dialect", dialect_label(dialect))
}

// --- reading ---

impl Metrics {
    /// Returns all metrics in the scrapers' format, [`CONTENT_TYPE`].
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail; if a metric fails, the text so far is still of use.
        match prometheus_client::encoding::text::encode(&mut text, &self.registry) {
            Ok(()) | Err(std::fmt::Error) => text,
        }
    }

    /// Returns a few sums.
    pub fn counters(&self) -> Counters {
        Counters {
            requests: self.totals.requests.get(),
            answered: self.totals.answered.get(),
            attempts_failed: self.totals.attempts_failed.get(),
            retries: self.totals.retries.get(),
            resumed: self.totals.resumed.get(),
            refused: self.totals.refused.get(),
            connections: gauge_value(&self.connections),
            in_flight: gauge_value(&self.in_flight),
            held: gauge_value(&self.held),
        }
    }
}

fn gauge_value(gauge: &Gauge) -> u64 {
    u64::try_from(gauge.get()).unwrap_or_default()
}

#[cfg(test)]
#[path = "metrics_tests.rs"]
mod tests;
