//! Tests of the text for scrapers.

use super::*;
use crate::observe::log::{RequestRef, sample};
use outlast_kernel::Timestamp;
use outlast_kernel::verdict::Cause;

fn metrics() -> Metrics {
    Metrics::new(&["claude-code", "codex"])
}

fn tell(metrics: &Metrics, client: &'static str, dialect: Option<Dialect>, kind: EventKind<'_>) {
    let request = Some(RequestRef {
        client,
        dialect,
        ..RequestRef::default()
    });
    let at = Timestamp::default();
    metrics.emit(&Event { at, request, kind });
}

fn finished(metrics: &Metrics, record: &Record<'_>) {
    let kind = EventKind::Finished(record);
    tell(metrics, record.client, record.dialect, kind);
}

fn attempt_failed(metrics: &Metrics, dialect: Option<Dialect>, cause: Cause) {
    let kind = EventKind::AttemptFailed {
        cause,
        attempt: 1,
        status: None,
        account: None,
        message: "",
    };
    tell(metrics, "codex", dialect, kind);
}

fn attempt(metrics: &Metrics, dialect: Option<Dialect>, attempt: u32) {
    let body_bytes = 1000;
    let kind = EventKind::AttemptStarted {
        attempt,
        body_bytes,
    };
    tell(metrics, "codex", dialect, kind);
}

fn resent(metrics: &Metrics, client: &'static str) {
    let kind = EventKind::Received {
        model: "",
        path: "",
        is_resent: true,
    };
    tell(metrics, client, None, kind);
}

const RESUMED: EventKind<'_> = EventKind::Resumed {
    attempts: 1,
    resent: 1,
    since: Timestamp::from_millis(0),
};

fn refused(metrics: &Metrics, kind: &'static str) {
    let (status, message) = (403, "");
    let kind = EventKind::Refused {
        status,
        kind,
        message,
    };
    tell(metrics, "", None, kind);
}

/// Returns the value of one series.
fn value(metrics: &Metrics, series: &str) -> Option<f64> {
    let text = metrics.text();
    let line = text.lines().find_map(|line| line.strip_prefix(series))?;
    line.strip_prefix(' ')?.parse().ok()
}

#[test]
fn a_request_counts_by_dialect_client_and_outcome() {
    let metrics = metrics();
    let record = sample::record();
    finished(&metrics, &record);
    finished(&metrics, &record);
    let failed = Record {
        dialect: None,
        client: "never heard of",
        outcome: Outcome::Failed,
        waited: Duration::ZERO,
        first_byte: None,
        ..record
    };
    finished(&metrics, &failed);
    let requests = "outlast_gateway_requests_total";
    let known = r#"{dialect="anthropic",client="claude-code",outcome="answered"}"#;
    let other = r#"{dialect="other",client="other",outcome="failed"}"#;
    assert_eq!(value(&metrics, &format!("{requests}{known}")), Some(2.0));
    assert_eq!(value(&metrics, &format!("{requests}{other}")), Some(1.0));
    let text = metrics.text();
    assert_eq!(text.matches("requests_total{").count(), 2, "{text}");
    assert!(!text.contains("never heard of") && !text.contains("opus"));
}

#[test]
fn histograms_are_in_seconds_and_skip_absent_times() {
    let metrics = metrics();
    finished(&metrics, &sample::record());
    let quick = Record {
        waited: Duration::ZERO,
        first_byte: None,
        duration: Duration::from_millis(20),
        ..sample::record()
    };
    finished(&metrics, &quick);
    let read = |what: &str| {
        let series = |part: &str| format!("outlast_gateway_{what}_{part}{{dialect=\"anthropic\"}}");
        (
            value(&metrics, &series("count")),
            value(&metrics, &series("sum")),
        )
    };
    assert_eq!(read("waited_seconds"), (Some(1.0), Some(15.0)));
    assert_eq!(read("first_byte_seconds"), (Some(1.0), Some(16.25)));
    assert_eq!(read("duration_seconds"), (Some(2.0), Some(21.52)));
    let bucket = "outlast_gateway_duration_seconds_bucket{le=\"0.05\",dialect=\"anthropic\"}";
    assert_eq!(value(&metrics, bucket), Some(1.0));
}

#[test]
fn gauges_return_to_zero_when_guards_drop() {
    let metrics = metrics();
    let counted = (
        GaugeGuard::new(&metrics.connections, 1),
        GaugeGuard::new(&metrics.in_flight, 1),
        GaugeGuard::new(&metrics.held, 1),
        GaugeGuard::new(&metrics.spooled, 4096),
    );
    metrics.blocked.set(2);
    let all = || {
        [
            "connections",
            "in_flight",
            "held",
            "spooled_bytes",
            "accounts_blocked",
        ]
        .map(|name| value(&metrics, &format!("outlast_gateway_{name}")).unwrap())
    };
    assert_eq!(all(), [1.0, 1.0, 1.0, 4096.0, 2.0]);
    let counters = metrics.counters();
    assert_eq!((counters.connections, counters.held), (1, 1));
    drop(counted);
    metrics.blocked.set(0);
    assert_eq!(all(), [0.0; 5]);
}

#[test]
fn each_counter_has_its_own_series() {
    let metrics = metrics();
    attempt_failed(&metrics, Some(Dialect::OpenaiResponses), Cause::Overloaded);
    attempt_failed(&metrics, None, Cause::DeadlinePassed);
    attempt(&metrics, Some(Dialect::OpenaiChat), 2);
    resent(&metrics, "codex");
    tell(&metrics, "codex", None, RESUMED);
    refused(&metrics, "cross_site");
    let bytes_out = 2000;
    let record = Record {
        bytes_out,
        ..sample::record()
    };
    finished(&metrics, &record);
    tell(&metrics, "codex", None, EventKind::Heartbeat);
    tell(&metrics, "codex", None, EventKind::InterimResponse);
    for (series, expected) in [
        (
            r#"attempts_failed_total{dialect="openai-responses",cause="overloaded"}"#,
            1.0,
        ),
        (
            r#"attempts_failed_total{dialect="other",cause="deadline_passed"}"#,
            1.0,
        ),
        (r#"retries_total{dialect="openai"}"#, 1.0),
        (r#"resent_total{client="codex"}"#, 1.0),
        (r#"resumed_total{client="codex"}"#, 1.0),
        (r#"refused_total{kind="cross_site"}"#, 1.0),
        ("upstream_sent_bytes_total", 1000.0),
        ("upstream_received_bytes_total", 2000.0),
        ("keepalives_total", 1.0),
        ("interim_responses_total", 1.0),
        (
            concat!(r#"build_info{version=""#, env!("CARGO_PKG_VERSION"), "\"}"),
            1.0,
        ),
    ] {
        let found = value(&metrics, &format!("outlast_gateway_{series}"));
        assert_eq!(found, Some(expected), "{series}\n{}", metrics.text());
    }
}

#[test]
fn deprecated_metric_names_have_the_same_values() {
    let metrics = metrics();
    tell(&metrics, "codex", None, RESUMED);
    tell(&metrics, "codex", None, EventKind::Heartbeat);
    tell(&metrics, "codex", None, EventKind::Heartbeat);
    tell(&metrics, "codex", None, EventKind::InterimResponse);
    let text = metrics.text();
    for (old, new, labels, expected) in [
        ("taken_up", "resumed", r#"{client="codex"}"#, 1.0),
        ("beats", "keepalives", "", 2.0),
        ("interims", "interim_responses", "", 1.0),
    ] {
        for name in [old, new] {
            let series = format!("outlast_gateway_{name}_total{labels}");
            assert_eq!(value(&metrics, &series), Some(expected), "{series}\n{text}");
        }
        let help =
            format!("# HELP outlast_gateway_{old} Deprecated: use outlast_gateway_{new}_total.\n");
        assert!(text.contains(&help), "{help}{text}");
    }
}

#[test]
fn status_counters_sum_the_metric_series() {
    let metrics = metrics();
    let record = sample::record();
    for outcome in sample::OUTCOMES {
        finished(&metrics, &Record { outcome, ..record });
    }
    let other = Record {
        dialect: Some(Dialect::OpenaiChat),
        client: "codex",
        ..record
    };
    finished(&metrics, &other);
    attempt_failed(&metrics, None, Cause::Network);
    attempt_failed(&metrics, Some(Dialect::OpenaiChat), Cause::Stalled);
    attempt(&metrics, None, 1);
    attempt(&metrics, None, 2);
    tell(&metrics, "codex", None, RESUMED);
    refused(&metrics, "no_host");
    refused(&metrics, "cross_site");
    let expected = Counters {
        requests: 7,
        answered: 2,
        attempts_failed: 2,
        retries: 1,
        resumed: 1,
        refused: 2,
        ..Counters::default()
    };
    assert_eq!(metrics.counters(), expected);
}

#[test]
fn unknown_clients_share_one_series() {
    let metrics = metrics();
    for number in 0..1000 {
        let client: &'static str = format!("client-{number}").leak();
        finished(
            &metrics,
            &Record {
                client,
                ..sample::record()
            },
        );
        resent(&metrics, client);
    }
    let text = metrics.text();
    assert_eq!(text.matches("requests_total{").count(), 1);
    assert_eq!(text.matches("resent_total{").count(), 1);
    assert!(text.ends_with("# EOF\n"));
}
