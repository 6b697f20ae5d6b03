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
        registry.register("build", "The program", Info::new(version));
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
            heartbeats: Counter::default(),
            interims: Counter::default(),
        };
        made.register_counters();
        made.register_gauges();
        made.register_histograms();
        made
    }

    fn register_counters(&mut self) {
        let registry = &mut self.registry;
        self.requests
            .register(registry, "requests", "Requests that are over");
        let help = "Attempts that failed before content";
        self.attempts_failed
            .register(registry, "attempts_failed", help);
        let help = "Attempts after the first";
        self.retries.register(registry, "retries", help);
        let help = "Requests that their client had sent before";
        self.resent.register(registry, "resent", help);
        let help = "Requests that went on where an earlier one had left";
        self.resumed.register(registry, "taken_up", help);
        let help = "Requests that were not taken";
        registry.register("refused", help, self.refused.clone());
        let help = "Bytes of bodies sent to providers";
        registry.register("upstream_sent_bytes", help, self.sent_upstream.clone());
        let help = "Bytes of bodies received from providers";
        registry.register(
            "upstream_received_bytes",
            help,
            self.received_upstream.clone(),
        );
        let help = "Frames sent to keep clients alive";
        registry.register("beats", help, self.heartbeats.clone());
        let help = "Interim responses sent to keep clients alive";
        registry.register("interims", help, self.interims.clone());
    }

    fn register_gauges(&mut self) {
        for (name, help, gauge) in [
            ("connections", "Connections of clients", &self.connections),
            ("in_flight", "Requests being answered", &self.in_flight),
            ("held", "Requests that wait", &self.held),
            ("spooled_bytes", "Bodies kept in files", &self.spooled),
            ("accounts_blocked", "Accounts not in use", &self.blocked),
        ] {
            self.registry.register(name, help, gauge.clone());
        }
    }

    fn register_histograms(&mut self) {
        let registry = &mut self.registry;
        let help = "How long requests waited that had to";
        self.waited.register(registry, "waited_seconds", help);
        let help = "From a request to the first byte of its answer";
        self.first_byte
            .register(registry, "first_byte_seconds", help);
        let help = "From a request to its end";
        self.duration.register(registry, "duration_seconds", help);
    }
}
