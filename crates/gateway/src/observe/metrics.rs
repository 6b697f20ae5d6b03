//! Metrics for Prometheus.
//!
//! Invariants: the number of series is bounded whatever clients send (a model is no label, and a client is one of a
//! fixed table or `other`); counting during a request allocates nothing once a series exists. Not here: access
//! (see `control`), and single requests (see `log`).

use crate::observe::log::{Event, EventKind, Outcome, Record, Sink, dialect_label};
use outlast_dialect::Dialect;
use prometheus_client::encoding::{EncodeLabelSet, LabelSetEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Metric, Registry};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::hash::{Hash, Hasher};
use std::time::Duration;

/// The content type of the text, for scrapers.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

const PREFIX: &str = "outlast_gateway";
/// Covers the eight hours that a request may be held, and a client's resends beyond.
const WAITED_BUCKETS: [f64; 11] = [
    1.0, 5.0, 15.0, 60.0, 180.0, 600.0, 1800.0, 3600.0, 7200.0, 14_400.0, 28_800.0,
];
const FIRST_BYTE_BUCKETS: [f64; 12] = [
    0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0, 600.0, 3600.0,
];
const DURATION_BUCKETS: [f64; 13] = [
    0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 180.0, 600.0, 1800.0, 3600.0, 14_400.0, 28_800.0,
];

/// The label of a client that is not in the table.
const OTHER: &str = "other";

/// The names and values of `N` labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Labels<const N: usize>([(&'static str, &'static str); N]);

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

type CounterFamily = Family<Labels<1>, Counter>;

/// Declares all metrics: the field, the type or the buckets, the name and the description of each.
macro_rules! metrics {
    ($($field:ident: $kind:ty, $name:literal, $help:literal;)*
     => $($histogram:ident: $buckets:ident, $its_name:literal, $its_help:literal;)*) => {
        /// All metrics of one gateway.
        pub struct Metrics {
            registry: Registry,
            /// The clients with a label of their own.
            clients: Vec<&'static str>,
            totals: Totals,
            $(#[doc = $help] pub(crate) $field: $kind,)*
            $(#[doc = $its_help] $histogram: Family<Labels<1>, Histogram>,)*
        }

        impl Metrics {
            /// Creates all metrics at zero. `clients` are the client names with a label of their own.
            pub fn new(clients: &[&'static str]) -> Self {
                let mut metrics = Self {
                    registry: Registry::with_prefix(PREFIX),
                    clients: clients.to_vec(),
                    totals: Totals::default(),
                    $($field: <$kind>::default(),)*
                    $($histogram: Family::new_with_constructor(|| Histogram::new($buckets)),)*
                };
                let to = &mut metrics.registry;
                let version = vec![("version", env!("CARGO_PKG_VERSION"))];
                to.register("build", "Version of the program", Info::new(version));
                $(to.register($name, $help, metrics.$field.clone());)*
                $(to.register($its_name, $its_help, metrics.$histogram.clone());)*
                add_old_name(to, "taken_up", "resumed", &metrics.resumed);
                add_old_name(to, "beats", "keepalives", &metrics.keepalives);
                add_old_name(to, "interims", "interim_responses", &metrics.interim_responses);
                metrics
            }
        }
    };
}

metrics! {
    requests: Family<Labels<3>, Counter>, "requests", "Finished requests";
    attempts_failed: Family<Labels<2>, Counter>, "attempts_failed",
        "Failed attempts, before any content was sent";
    retries: CounterFamily, "retries", "Retries";
    resent: CounterFamily, "resent", "Requests that their client sent again";
    resumed: CounterFamily, "resumed", "Requests that resumed the wait of an earlier request";
    refused: CounterFamily, "refused", "Requests that the gateway refused";
    sent_upstream: Counter, "upstream_sent_bytes", "Request body bytes sent to providers";
    received_upstream: Counter, "upstream_received_bytes",
        "Response body bytes received from providers";
    keepalives: Counter, "keepalives", "Keep-alive frames sent to clients";
    interim_responses: Counter, "interim_responses",
        "Interim responses (1xx) sent to clients as keep-alive";
    connections: Gauge, "connections", "Open client connections";
    in_flight: Gauge, "in_flight", "Requests in progress, waiting ones included";
    held: Gauge, "held", "Requests waiting for their next attempt";
    spooled: Gauge, "spooled_bytes", "Bytes of request bodies kept in files";
    blocked: Gauge, "accounts_blocked", "Blocked accounts";
    =>
    waited: WAITED_BUCKETS, "waited_seconds",
        "Wait of requests before their last attempt, of those that waited";
    first_byte: FIRST_BYTE_BUCKETS, "first_byte_seconds",
        "Time from the arrival of a request to the first byte of its response";
    duration: DURATION_BUCKETS, "duration_seconds", "Time from the arrival of a request to its end";
}

/// Exports a counter for one version under its old name, too.
fn add_old_name<M: Metric + Clone>(registry: &mut Registry, old: &str, new: &str, metric: &M) {
    let help = format!("Deprecated: use {PREFIX}_{new}_total");
    registry.register(old, help, metric.clone());
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
        let count = |family: &CounterFamily, label| {
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
