//! The names and descriptions of the metrics.

use super::table::{LabelValues, SeriesTable};
use super::{Metrics, OTHER};
use crate::observe::log::Outcome;
use outlast_dialect::Dialect;
use outlast_kernel::verdict::Cause;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

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

impl Metrics {
    /// Creates all metrics at zero. `clients` are the client names with a label of their own.
    pub fn new(clients: &[&'static str]) -> Self {
        let mut registry = Registry::with_prefix(PREFIX);
        let dialects = LabelValues::new("dialect", Dialect::ALL.map(Dialect::name), OTHER);
        let clients = LabelValues::new("client", clients.iter().copied(), OTHER);
        let causes = LabelValues::new(
            "cause",
            Cause::ALL.iter().map(|cause| cause.as_str()),
            OTHER,
        );
        let outcomes = LabelValues::new("outcome", Outcome::ALL.map(Outcome::as_str), OTHER);
        let version = vec![("version", env!("CARGO_PKG_VERSION"))];
        registry.register("build", "Version of the program", Info::new(version));
        let counter = Counter::default;
        let requests = SeriesTable::new([&dialects, &clients, &outcomes], counter);
        let attempts_failed = SeriesTable::new([&dialects, &causes], counter);
        let [retries, resent, resumed] = [
            SeriesTable::new([&dialects], counter),
            SeriesTable::new([&clients], counter),
            SeriesTable::new([&clients], counter),
        ];
        let [waited, first_byte, duration] = [
            SeriesTable::new([&dialects], || Histogram::new(WAITED_BUCKETS)),
            SeriesTable::new([&dialects], || Histogram::new(FIRST_BYTE_BUCKETS)),
            SeriesTable::new([&dialects], || Histogram::new(DURATION_BUCKETS)),
        ];
        let mut made = Self {
            registry,
            requests,
            attempts_failed,
            retries,
            resent,
            resumed,
            waited,
            first_byte,
            duration,
            dialects,
            clients,
            causes,
            outcomes,
            refused: Family::default(),
            refused_total: Counter::default(),
            connections: Gauge::default(),
            in_flight: Gauge::default(),
            held: Gauge::default(),
            spooled: Gauge::default(),
            blocked: Gauge::default(),
            sent_upstream: Counter::default(),
            received_upstream: Counter::default(),
            keepalives: Counter::default(),
            interim_responses: Counter::default(),
        };
        made.register_counters();
        made.register_gauges();
        made.register_histograms();
        made
    }

    fn register_counters(&mut self) {
        let registry = &mut self.registry;
        self.requests
            .register(registry, "requests", "Finished requests");
        let help = "Failed attempts, before any content was sent";
        self.attempts_failed
            .register(registry, "attempts_failed", help);
        let help = "Retries";
        self.retries.register(registry, "retries", help);
        let help = "Requests that their client sent again";
        self.resent.register(registry, "resent", help);
        let help = "Requests that resumed the wait of an earlier request";
        self.resumed.register(registry, "resumed", help);
        let help = deprecated("resumed_total");
        self.resumed.register(registry, "taken_up", &help);
        let help = "Requests that the gateway refused";
        registry.register("refused", help, self.refused.clone());
        let help = "Request body bytes sent to providers";
        registry.register("upstream_sent_bytes", help, self.sent_upstream.clone());
        let help = "Response body bytes received from providers";
        registry.register(
            "upstream_received_bytes",
            help,
            self.received_upstream.clone(),
        );
        let help = "Keep-alive frames sent to clients";
        registry.register("keepalives", help, self.keepalives.clone());
        let help = deprecated("keepalives_total");
        registry.register("beats", help, self.keepalives.clone());
        let help = "Interim responses (1xx) sent to clients as keep-alive";
        let interim_responses = &self.interim_responses;
        registry.register("interim_responses", help, interim_responses.clone());
        let help = deprecated("interim_responses_total");
        registry.register("interims", help, interim_responses.clone());
    }

    fn register_gauges(&mut self) {
        for (name, help, gauge) in [
            ("connections", "Open client connections", &self.connections),
            (
                "in_flight",
                "Requests in progress, waiting ones included",
                &self.in_flight,
            ),
            (
                "held",
                "Requests waiting for their next attempt",
                &self.held,
            ),
            (
                "spooled_bytes",
                "Bytes of request bodies kept in files",
                &self.spooled,
            ),
            ("accounts_blocked", "Blocked accounts", &self.blocked),
        ] {
            self.registry.register(name, help, gauge.clone());
        }
    }

    fn register_histograms(&mut self) {
        let registry = &mut self.registry;
        let help = "Wait of requests before their last attempt, of those that waited";
        self.waited.register(registry, "waited_seconds", help);
        let help = "Time from the arrival of a request to the first byte of its response";
        self.first_byte
            .register(registry, "first_byte_seconds", help);
        let help = "Time from the arrival of a request to its end";
        self.duration.register(registry, "duration_seconds", help);
    }
}

/// Returns the help of the old name of a metric, which is exported for one version beside the new one.
fn deprecated(new: &str) -> String {
    format!("Deprecated: use {PREFIX}_{new}")
}
