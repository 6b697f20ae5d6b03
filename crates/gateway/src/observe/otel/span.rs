//! The content of a request's span.
//!
//! The names of attributes are those of OpenTelemetry's conventions where there is one; the rest begin with `outlast.`.

use crate::observe::log::{self, EventKind, Outcome, Record};
use opentelemetry::trace::{
    Event, SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};
use outlast_dialect::Dialect;
use outlast_kernel::Timestamp;
use outlast_kernel::time::millis;
use outlast_kernel::verdict::Cause;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const STATUS: &str = "http.response.status_code";
const ERROR: &str = "error.type";
const ATTEMPT: &str = "outlast.attempt";
const ATTEMPTS: &str = "outlast.attempts";

/// An event of a request before it is over; small, because ten thousand may wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct SpanEvent {
    at: Timestamp,
    name: &'static str,
    /// The key and the value of its number of attempts.
    attempts: (&'static str, u32),
    cause: Option<Cause>,
    status: Option<u16>,
    wake: Option<Timestamp>,
    resent: Option<u32>,
}

impl SpanEvent {
    /// Returns the part of an event that is worth keeping, if any.
    pub(super) fn from_event(at: Timestamp, what: EventKind<'_>) -> Option<Self> {
        let event = |name, attempts| Self {
            at,
            name,
            attempts,
            cause: None,
            status: None,
            wake: None,
            resent: None,
        };
        match what {
            EventKind::AttemptFailed {
                cause,
                attempt,
                status,
                ..
            } => Some(Self {
                cause: Some(cause),
                status,
                ..event("attempt_failed", (ATTEMPT, attempt))
            }),
            EventKind::Waiting {
                cause,
                attempt,
                wake,
                ..
            } => Some(Self {
                cause: Some(cause),
                wake,
                ..event("waiting", (ATTEMPT, attempt))
            }),
            EventKind::Resumed {
                attempts, resent, ..
            } => Some(Self {
                resent: Some(resent),
                ..event("resumed", (ATTEMPTS, attempts))
            }),
            _ => None,
        }
    }

    fn otel_event(&self) -> Event {
        let (key, attempts) = self.attempts;
        let cause = self.cause.map(|cause| word(ERROR, cause.as_str()));
        let status = self.status.map(|status| number(STATUS, status));
        let wake = self
            .wake
            .map(|at| KeyValue::new("outlast.wake", at.to_string()));
        let resent = self.resent.map(|times| number("outlast.resent", times));
        let others = [cause, status, wake, resent].into_iter().flatten();
        let attributes = std::iter::once(number(key, attempts)).chain(others);
        Event::new(self.name, time(self.at), attributes.collect(), 0)
    }
}

/// Returns the resource that names this program as the source of the spans.
pub(super) fn resource() -> Resource {
    Resource::builder_empty()
        .with_service_name("outlast-gateway")
        .with_attribute(word("service.version", env!("CARGO_PKG_VERSION")))
        .build()
}

/// Returns the span of a request that is over.
pub(super) fn build_span(id: &str, record: &Record<'_>, moments: &[SpanEvent]) -> SpanData {
    let mut events = SpanEvents::default();
    events.events = moments.iter().map(SpanEvent::otel_event).collect();
    SpanData {
        span_context: context(id),
        parent_span_id: SpanId::INVALID,
        parent_span_is_remote: false,
        span_kind: SpanKind::Client,
        name: name(record).into(),
        start_time: time(record.received_at),
        end_time: time(record.received_at + record.duration),
        attributes: attributes(id, record),
        dropped_attributes_count: 0,
        events,
        links: SpanLinks::default(),
        status: status(record),
        instrumentation_scope: InstrumentationScope::builder("outlast").build(),
    }
}

/// Returns the span context. The request's id is the trace's, so that a log line leads to it.
fn context(id: &str) -> SpanContext {
    let id = uuid::Uuid::parse_str(id).unwrap_or_else(|_| uuid::Uuid::now_v7());
    let (_, own) = id.as_u64_pair();
    let flags = TraceFlags::SAMPLED;
    SpanContext::new(
        TraceId::from(id.as_u128()),
        SpanId::from(own),
        flags,
        false,
        TraceState::default(),
    )
}

fn name(record: &Record<'_>) -> String {
    match (operation(record), record.model) {
        (Some(operation), Some(model)) => format!("{operation} {}", log::cleaned(model)),
        (Some(operation), None) => operation.to_owned(),
        (None, _) => log::cleaned(record.method).into_owned(),
    }
}

/// Returns the name of the operation in the words of the conventions; `None` for requests that are not for a model.
fn operation(record: &Record<'_>) -> Option<&'static str> {
    let path = record.path.split('?').next().unwrap_or_default();
    if path.ends_with("/embeddings") {
        return Some("embeddings");
    }
    let is_inference = |dialect: &Dialect| path.ends_with(dialect.path());
    Dialect::ALL.iter().any(is_inference).then_some("chat")
}

fn provider(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Anthropic => "anthropic",
        Dialect::OpenaiChat | Dialect::OpenaiResponses => "openai",
    }
}

fn attributes(id: &str, record: &Record<'_>) -> Vec<KeyValue> {
    let text = |key, text: &str| KeyValue::new(key, log::cleaned(text).into_owned());
    let mut all = vec![
        text("outlast.request.id", id),
        word("outlast.client", record.client),
        text("http.request.method", record.method),
        KeyValue::new("url.path", log::cleaned_path(record.path).into_owned()),
        word("outlast.outcome", record.outcome.as_str()),
        number(ATTEMPTS, record.attempts),
        duration("outlast.waited_ms", record.waited),
        size("http.request.body.size", record.bytes_in),
        size("http.response.body.size", record.bytes_out),
    ];
    all.extend(operation(record).map(|operation| word("gen_ai.operation.name", operation)));
    all.extend(
        record
            .dialect
            .map(|dialect| word("gen_ai.provider.name", provider(dialect))),
    );
    all.extend(
        record
            .model
            .map(|model| text("gen_ai.request.model", model)),
    );
    all.extend(
        record
            .account
            .map(|account| text("outlast.account", account)),
    );
    all.extend(record.status.map(|status| number(STATUS, status)));
    all.extend(
        record
            .first_byte
            .map(|time| duration("outlast.first_byte_ms", time)),
    );
    all.extend(record.cause.map(|cause| word(ERROR, cause.as_str())));
    all
}

/// Returns the status of the span. A client that left and a person who cancelled are no errors.
fn status(record: &Record<'_>) -> Status {
    match record.outcome {
        Outcome::Answered | Outcome::Left | Outcome::Cancelled => Status::Unset,
        Outcome::Failed | Outcome::Broken | Outcome::SentBack => {
            Status::error(record.cause.map_or("", Cause::phrase))
        }
    }
}

// --- values ---

fn word(key: &'static str, word: &'static str) -> KeyValue {
    KeyValue::new(key, word)
}

fn number(key: &'static str, number: impl Into<u32>) -> KeyValue {
    KeyValue::new(key, i64::from(number.into()))
}

fn size(key: &'static str, bytes: u64) -> KeyValue {
    KeyValue::new(key, i64::try_from(bytes).unwrap_or(i64::MAX))
}

fn duration(key: &'static str, time: Duration) -> KeyValue {
    size(key, millis(time))
}

fn time(at: Timestamp) -> SystemTime {
    UNIX_EPOCH + at.since(Timestamp::default())
}
