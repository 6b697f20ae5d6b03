//! Metrics for Prometheus.
//!
//! Invariants: the number of series is bounded whatever clients send (a model is no label, and a client is one of a
//! fixed table or `other`); counting during a request allocates nothing once a series exists. Not here: names and
//! descriptions (see `registration`), access (see `control`), and single requests (see `log`).

mod registration;
mod table;

use crate::observe::log::{Outcome, Record};
use outlast_dialect::Dialect;
use outlast_kernel::verdict::Cause;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use table::{LabelValues, SeriesTable};

/// The content type of the text, for scrapers.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The label of a client that is not in the table.
const OTHER: &str = "other";
/// All metrics of one gateway.
pub struct Metrics {
    registry: Registry,
    dialects: LabelValues,
    clients: LabelValues,
    causes: LabelValues,
    outcomes: LabelValues,
    requests: SeriesTable<3, Counter>,
    attempts_failed: SeriesTable<2, Counter>,
    retries: SeriesTable<1, Counter>,
    resent: SeriesTable<1, Counter>,
    resumed: SeriesTable<1, Counter>,
    refused: Family<RefusalLabels, Counter>,
    refused_total: Counter,
    connections: Gauge,
    in_flight: Gauge,
    held: Gauge,
    spooled: Gauge,
    blocked: Gauge,
    sent_upstream: Counter,
    received_upstream: Counter,
    keepalives: Counter,
    interim_responses: Counter,
    waited: SeriesTable<1, Histogram>,
    first_byte: SeriesTable<1, Histogram>,
    duration: SeriesTable<1, Histogram>,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RefusalLabels {
    kind: &'static str,
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
    fn new(gauge: &Gauge, by: i64) -> Self {
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

impl Metrics {
    /// Counts an open connection.
    pub fn connection(&self) -> GaugeGuard {
        GaugeGuard::new(&self.connections, 1)
    }

    /// Counts a request in progress.
    pub fn in_flight(&self) -> GaugeGuard {
        GaugeGuard::new(&self.in_flight, 1)
    }

    /// Counts a waiting request.
    pub fn held(&self) -> GaugeGuard {
        GaugeGuard::new(&self.held, 1)
    }

    /// Counts a body of that size in a file.
    pub fn spooled(&self, bytes: u64) -> GaugeGuard {
        GaugeGuard::new(&self.spooled, i64::try_from(bytes).unwrap_or(i64::MAX))
    }

    /// Counts an attempt that failed before content.
    pub fn attempt_failed(&self, dialect: Option<Dialect>, cause: Cause) {
        let cause = self.causes.index_of(cause.as_str());
        let place = [self.dialect(dialect), cause];
        self.attempts_failed.series(place).inc();
    }

    /// Counts an attempt after the first.
    pub fn retry(&self, dialect: Option<Dialect>) {
        self.retries.series([self.dialect(dialect)]).inc();
    }

    /// Counts a request that its client is known, or says, to have sent before.
    pub fn resent(&self, client: &'static str) {
        self.resent.series([self.clients.index_of(client)]).inc();
    }

    /// Counts such a request that resumes where the earlier one stopped.
    pub fn resumed(&self, client: &'static str) {
        self.resumed.series([self.clients.index_of(client)]).inc();
    }

    /// Counts a refused request; `kind` is one word of our own for the reason.
    pub fn refused(&self, kind: &'static str) {
        self.refused.get_or_create(&RefusalLabels { kind }).inc();
        self.refused_total.inc();
    }

    /// Counts the bytes of a body that were sent to a provider.
    pub fn sent_upstream(&self, bytes: u64) {
        self.sent_upstream.inc_by(bytes);
    }

    /// Counts the bytes of a response that came from a provider.
    pub fn received_upstream(&self, bytes: u64) {
        self.received_upstream.inc_by(bytes);
    }

    /// Counts a keep-alive frame that was sent to a client.
    pub fn keepalive_sent(&self) {
        self.keepalives.inc();
    }

    /// Counts an interim response that was sent to a client as keep-alive.
    pub fn interim_response_sent(&self) {
        self.interim_responses.inc();
    }

    /// Sets the number of accounts that are not in use now.
    pub fn accounts_blocked(&self, number: usize) {
        self.blocked.set(i64::try_from(number).unwrap_or(i64::MAX));
    }

    /// Counts a request that is over.
    pub fn finished(&self, record: &Record<'_>) {
        let dialect = self.dialect(record.dialect);
        let client = self.clients.index_of(record.client);
        let outcome = self.outcomes.index_of(record.outcome.as_str());
        self.requests.series([dialect, client, outcome]).inc();
        self.duration
            .series([dialect])
            .observe(record.duration.as_secs_f64());
        if record.waited > Duration::ZERO {
            self.waited
                .series([dialect])
                .observe(record.waited.as_secs_f64());
        }
        if let Some(first_byte) = record.first_byte {
            self.first_byte
                .series([dialect])
                .observe(first_byte.as_secs_f64());
        }
    }

    fn dialect(&self, dialect: Option<Dialect>) -> usize {
        let name = dialect.map_or(OTHER, Dialect::name);
        self.dialects.index_of(name)
    }
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
        let answered = self.outcomes.index_of(Outcome::Answered.as_str());
        Counters {
            requests: self.requests.sum(|_| true),
            answered: self.requests.sum(|outcome| outcome == answered),
            attempts_failed: self.attempts_failed.sum(|_| true),
            retries: self.retries.sum(|_| true),
            resumed: self.resumed.sum(|_| true),
            refused: self.refused_total.get(),
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
