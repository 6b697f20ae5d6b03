//! Requests as spans, sent to a collector over OTLP (feature `otel`). Not here: the content of a span (see `span`).
//!
//! Each finished request becomes one span, and its events become the span's events. A task of its own sends batches.
//! Invariants: no request waits for the collector; the queue is bounded, and beyond that spans are lost; no body and no
//! secret is in a span. An undelivered batch is not sent again: the one retry layer is for requests. Settings are the
//! app's.

mod span;

use crate::observe::log::{Event, EventKind, Record, Sink};
use futures_util::TryStreamExt;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{
    ExporterBuildError, Protocol, RetryPolicy, SpanExporter, WithExportConfig, WithHttpConfig,
};
use opentelemetry_sdk::trace::{SpanData, SpanExporter as _};
use outlast_engine::CancellationToken;
use outlast_engine::transport::{self, Http, HttpSettings, SettingError, Transport};
use outlast_kernel::text;
use parking_lot::Mutex;
use span::SpanEvent;
use std::collections::HashMap;
use std::pin::Pin;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// The path for spans, below the collector's address.
const PATH: &str = "/v1/traces";
/// Maximum number of spans in one batch.
const BATCH: usize = 512;
/// Maximum number of spans that wait to be sent.
const MAX_QUEUED_SPANS: usize = 4 * BATCH;
/// The time for which a batch of spans is gathered.
const BATCH_INTERVAL: Duration = Duration::from_secs(1);
/// The time that the end of the program waits for a collector.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);
/// The timeout of a request to the collector.
const COLLECTOR_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of bytes that are read of a collector's response.
const ANSWER_LIMIT: usize = 64 * 1024;
/// Maximum number of requests whose events are kept.
const REQUESTS: usize = 20_000;
/// Maximum number of events that are kept of one request: those of the eight hours of a patient policy, twice.
const MAX_EVENTS_PER_REQUEST: usize = 96;

/// The reason for which spans cannot be sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OtelError {
    /// The address of the collector is invalid.
    #[error(transparent)]
    Settings(#[from] SettingError),
    /// The exporter cannot be created.
    #[error("spans cannot be sent to {endpoint}: {why}")]
    Exporter {
        /// The address of the collector.
        endpoint: String,
        /// The reason.
        why: ExporterBuildError,
    },
}

/// A sink that turns requests into spans.
pub struct SpanSink {
    spans: mpsc::Sender<SpanData>,
    /// The events of requests that are not over.
    pending_events: Mutex<HashMap<Box<str>, Vec<SpanEvent>>>,
}

/// The task that sends spans.
pub struct ExporterTask {
    task: JoinHandle<()>,
    shutdown: CancellationToken,
}

impl ExporterTask {
    /// Sends the remaining spans, and ends. Waits for a collector that does not respond only a little longer.
    pub async fn shutdown(self) {
        self.shutdown.cancel();
        let ended = tokio::time::timeout(SHUTDOWN_TIMEOUT, self.task).await;
        // Spans that are lost now are lost.
        drop(ended);
    }
}

/// Starts to send spans to the collector at that address, with these headers. Must be called within a runtime.
pub fn start(collector: &HttpSettings) -> Result<(SpanSink, ExporterTask), OtelError> {
    let base = collector.base_url.trim_end_matches('/');
    let base = base.strip_suffix(PATH).unwrap_or(base);
    let settings = HttpSettings {
        base_url: base.to_owned(),
        connect_timeout: COLLECTOR_TIMEOUT,
        ..collector.clone()
    };
    let client = Client(Http::new(&settings)?);
    let endpoint = format!("{base}{PATH}");
    let built = SpanExporter::builder()
        .with_http()
        .with_http_client(client)
        .with_endpoint(&endpoint)
        .with_protocol(Protocol::HttpBinary)
        .with_timeout(COLLECTOR_TIMEOUT)
        .with_retry_policy(RetryPolicy::disabled())
        .build();
    let shown = || text::bounded(&endpoint, 200).into_owned();
    let mut exporter = built.map_err(|why| OtelError::Exporter {
        endpoint: shown(),
        why,
    })?;
    exporter.set_resource(&span::resource());
    let (spans, waiting) = mpsc::channel(MAX_QUEUED_SPANS);
    let shutdown = CancellationToken::new();
    let exporting = ExporterTask {
        task: tokio::spawn(export_all(waiting, exporter, shutdown.clone())),
        shutdown,
    };
    let pending_events = Mutex::default();
    Ok((
        SpanSink {
            spans,
            pending_events,
        },
        exporting,
    ))
}

async fn export_all(
    mut waiting: mpsc::Receiver<SpanData>,
    exporter: SpanExporter,
    is_over: CancellationToken,
) {
    while let Some(batch) = next_batch(&mut waiting, &is_over).await {
        // If the collector is away, its spans are lost and nothing else.
        exporter.export(batch).await.ok();
    }
}

/// Returns the next batch of spans; `None` at the end.
async fn next_batch(
    waiting: &mut mpsc::Receiver<SpanData>,
    is_over: &CancellationToken,
) -> Option<Vec<SpanData>> {
    let mut batch = Vec::new();
    let mut end = None;
    while batch.len() < BATCH {
        let enough = async {
            match end {
                Some(end) => tokio::time::sleep_until(end).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            next = waiting.recv() => match next {
                Some(span) => batch.push(span),
                None => break,
            },
            // Queued spans are still delivered, and none is added.
            () = is_over.cancelled(), if !waiting.is_closed() => waiting.close(),
            () = enough => break,
        }
        end = end.or_else(|| Some(Instant::now() + BATCH_INTERVAL));
    }
    (!batch.is_empty()).then_some(batch)
}

impl Sink for SpanSink {
    fn emit(&self, event: &Event<'_>) {
        match (event.kind, event.request) {
            (EventKind::Finished(record), Some(request)) => self.finish_span(request.id, record),
            (what, Some(request)) => {
                if let Some(moment) = SpanEvent::from_event(event.at, what) {
                    self.record_event(request.id, moment);
                }
            }
            _ => {}
        }
    }
}

impl SpanSink {
    fn record_event(&self, request: &str, moment: SpanEvent) {
        let mut moments = self.pending_events.lock();
        if moments.len() >= REQUESTS && !moments.contains_key(request) {
            return;
        }
        let known = moments.entry(request.into()).or_default();
        if known.len() < MAX_EVENTS_PER_REQUEST {
            known.push(moment);
        }
    }

    fn finish_span(&self, id: &str, record: &Record<'_>) {
        let moments = self.pending_events.lock().remove(id).unwrap_or_default();
        // With no room left the span is lost; waiting for it would hold a request up.
        let span = span::build_span(id, record, &moments);
        self.spans.try_send(span).ok();
    }
}

/// An HTTP client for the exporter that uses the workspace's own transport: it goes through the same proxies and trusts
/// the same certificates as everything else, and does not retry.
#[derive(Debug)]
struct Client(Http);

type SendFuture<'a> = Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'a>>;

impl HttpClient for Client {
    // The signature that the trait's macro makes of an `async fn`.
    fn send_bytes<'life0, 'async_trait>(
        &'life0 self,
        request: Request<Bytes>,
    ) -> SendFuture<'async_trait>
    where
        'life0: 'async_trait,
        Self: 'async_trait,
    {
        Box::pin(async move {
            let sent = tokio::time::timeout(COLLECTOR_TIMEOUT, send(&self.0, request)).await;
            sent.map_err(|_| "the collector takes too long")?
        })
    }
}

async fn send(http: &Http, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
    let (parts, body) = request.into_parts();
    let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let headers = parts.headers.iter();
    let asked = transport::Request {
        method: transport::Method::Post,
        path: PATH.to_owned(),
        headers: headers
            .map(|(name, value)| (name.as_str().to_owned(), text(value)))
            .collect(),
        body,
    };
    let lost = |error: transport::Error| error.message;
    let mut answer = http.send(asked).await.map_err(lost)?;
    let mut read = Vec::new();
    while let Some(piece) = answer.body.try_next().await.map_err(lost)? {
        read.extend_from_slice(&piece);
        if read.len() > ANSWER_LIMIT {
            return Err("the collector's answer is too long".into());
        }
    }
    let response = Response::builder().status(answer.status);
    Ok(response.body(Bytes::from(read))?)
}

#[cfg(test)]
#[path = "otel_tests.rs"]
mod tests;
