//! The names and descriptions of the metrics.

use super::{Labels, Metrics, Totals};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Metric, Registry};

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
        let version = vec![("version", env!("CARGO_PKG_VERSION"))];
        registry.register("build", "Version of the program", Info::new(version));
        let to = &mut registry;
        let mut metrics = Self {
            clients: clients.to_vec(),
            totals: Totals::default(),
            requests: add(to, "requests", "Finished requests"),
            attempts_failed: {
                let help = "Failed attempts, before any content was sent";
                add(to, "attempts_failed", help)
            },
            retries: add(to, "retries", "Retries"),
            resent: add(to, "resent", "Requests that their client sent again"),
            resumed: {
                let help = "Requests that resumed the wait of an earlier request";
                add(to, "resumed", help)
            },
            refused: add(to, "refused", "Requests that the gateway refused"),
            sent_upstream: {
                let help = "Request body bytes sent to providers";
                add(to, "upstream_sent_bytes", help)
            },
            received_upstream: {
                let help = "Response body bytes received from providers";
                add(to, "upstream_received_bytes", help)
            },
            keepalives: add(to, "keepalives", "Keep-alive frames sent to clients"),
            interim_responses: {
                let help = "Interim responses (1xx) sent to clients as keep-alive";
                add(to, "interim_responses", help)
            },
            connections: add(to, "connections", "Open client connections"),
            in_flight: {
                let help = "Requests in progress, waiting ones included";
                add(to, "in_flight", help)
            },
            held: add(to, "held", "Requests waiting for their next attempt"),
            spooled: add(to, "spooled_bytes", "Bytes of request bodies kept in files"),
            blocked: add(to, "accounts_blocked", "Blocked accounts"),
            waited: {
                let help = "Wait of requests before their last attempt, of those that waited";
                add_histogram(to, "waited_seconds", help, || {
                    Histogram::new(WAITED_BUCKETS)
                })
            },
            first_byte: {
                let help = "Time from the arrival of a request to the first byte of its response";
                let make = || Histogram::new(FIRST_BYTE_BUCKETS);
                add_histogram(to, "first_byte_seconds", help, make)
            },
            duration: {
                let help = "Time from the arrival of a request to its end";
                let make = || Histogram::new(DURATION_BUCKETS);
                add_histogram(to, "duration_seconds", help, make)
            },
            registry,
        };
        metrics.add_old_names();
        metrics
    }

    /// Adds the old names of counters, which are exported for one version beside the new ones.
    fn add_old_names(&mut self) {
        let to = &mut self.registry;
        add_old_name(to, "taken_up", "resumed", &self.resumed);
        add_old_name(to, "beats", "keepalives", &self.keepalives);
        let interims = &self.interim_responses;
        add_old_name(to, "interims", "interim_responses", interims);
    }
}

fn add<M: Metric + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> M {
    let metric = M::default();
    registry.register(name, help, metric.clone());
    metric
}

fn add_histogram(
    registry: &mut Registry,
    name: &str,
    help: &str,
    make: fn() -> Histogram,
) -> Family<Labels<1>, Histogram> {
    let family = Family::new_with_constructor(make);
    registry.register(name, help, family.clone());
    family
}

fn add_old_name<M: Metric + Clone>(registry: &mut Registry, old: &str, new: &str, metric: &M) {
    let help = format!("Deprecated: use {PREFIX}_{new}_total");
    registry.register(old, help, metric.clone());
}
