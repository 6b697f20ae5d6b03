//! The gateway's request log on stderr, as lines of JSON or short lines for people, and the export of its requests as
//! spans to a collector, if that is built in and configured.
//!
//! Invariant: a caller that logs never waits for the reader, and a line costs less than the request that it is about.
//! Text from clients and providers is cleaned before it is shown.

use crate::args::LogFormat;
use crate::config::Settings;
use crate::factory::provider;
use crate::output::diagnostics;
use crate::output::run_view::{one_line, whole_seconds};
use crate::platform::exit::UsageError;
use outlast_engine::transport::HttpSettings;
use outlast_gateway::observe::log::{
    self, Event, EventKind, Level, LineSink, Outcome, Record, Sink, WaitReason, cleaned,
    cleaned_path,
};
#[cfg(feature = "otel")]
use outlast_gateway::observe::otel::{self, ExporterTask};
use outlast_kernel::Timestamp;
use outlast_kernel::time::{Span, millis};
use outlast_kernel::verdict::Cause;
use parking_lot::Mutex;
use secrecy::{ExposeSecret, SecretString};
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

/// Returns the sink for log events.
pub(super) fn sink(form: LogFormat) -> io::Result<Arc<dyn Sink>> {
    // Quiet mode leaves out requests in progress.
    let least = match diagnostics::is_quiet() {
        true => Level::Error,
        false => Level::Info,
    };
    Ok(match form {
        LogFormat::Off => Arc::new(()),
        LogFormat::Json => Arc::new(LineSink::new(io::stderr(), least, log::json)?),
        LogFormat::Text => Arc::new(LineSink::new(io::stderr(), least, write_short)?),
    })
}

/// Formats an event as a short line, if the event is meant for people.
fn write_short(event: &Event<'_>, out: &mut Vec<u8>) {
    let before = out.len();
    write_clock(event.at, out);
    match write_words(event, out) {
        Ok(true) => out.push(b'\n'),
        // Writing to memory does not fail.
        Ok(false) | Err(_) => out.truncate(before),
    }
}

/// Writes an event in words. Returns `false` for events that are not for people.
fn write_words(event: &Event<'_>, out: &mut Vec<u8>) -> io::Result<bool> {
    let id = event.request.map_or("", |request| request.id);
    match event.kind {
        EventKind::Waiting {
            cause,
            attempt,
            reason,
            wake,
        } => {
            let cause = cause.phrase();
            let next = next_try(wake, event.at);
            let reason = match reason {
                WaitReason::Schedule => "",
                WaitReason::StatedTime => ", as stated by the provider",
                WaitReason::Gate => ", queued with others",
                WaitReason::Permit => ", all concurrent calls of the account are in use",
            };
            write!(out, " ⚠ {id}: {cause} (attempt {attempt}), {next}{reason}")?;
        }
        EventKind::Gate { name, state, .. } => {
            write!(out, " ⚠ {}: {state}", sanitized(name))?;
        }
        EventKind::Resumed { attempts, .. } => write!(
            out,
            " ● {id}: its client sent it again; it goes on after {attempts} attempts"
        )?,
        EventKind::Finished(record) => write_finished(record, id, out)?,
        EventKind::Refused {
            status, message, ..
        } => write!(out, " ✗ refused ({status}): {}", sanitized(message))?,
        EventKind::Reload { problem: None } => write!(out, " ● the settings are read again")?,
        EventKind::Reload {
            problem: Some(problem),
        } => write!(out, " ✗ the settings are not taken: {}", sanitized(problem))?,
        EventKind::Drain { in_flight, held } => write!(
            out,
            " ● ending: {in_flight} requests are under way, {held} wait"
        )?,
        EventKind::EventsDropped { events } => write!(out, " ⚠ {events} log events dropped")?,
        _ => return Ok(false),
    }
    Ok(true)
}

fn next_try(wake: Option<Timestamp>, now: Timestamp) -> String {
    match wake {
        Some(wake) => {
            let seconds = millis(wake.since(now)).div_ceil(1000);
            format!(
                "next try in {}",
                whole_seconds(Duration::from_secs(seconds))
            )
        }
        None => "waiting for its turn".to_owned(),
    }
}

fn write_finished(record: &Record<'_>, id: &str, out: &mut Vec<u8>) -> io::Result<()> {
    let (mark, outcome) = match record.outcome {
        Outcome::Answered => ("✓", "answered"),
        Outcome::Failed => ("✗", "failed"),
        Outcome::Broken => ("✗", "broke off"),
        Outcome::SentBack => ("↻", "its client comes back"),
        Outcome::Left => ("–", "its client left"),
        Outcome::Cancelled => ("■", "cancelled"),
    };
    let what = match record.model {
        Some(model) => sanitized(model),
        None => one_line(&cleaned_path(record.path)),
    };
    write!(out, " {mark} {id}: {} {what} {outcome}", record.client)?;
    if let Some(cause) = record.cause.map(Cause::phrase) {
        write!(out, ": {cause}")?;
    }
    let took = Duration::from_millis(millis(record.duration));
    write!(out, " ({}", Span(took))?;
    if record.attempts > 1 {
        let waited = whole_seconds(record.waited);
        write!(out, ", {} attempts, waited {waited}", record.attempts)?;
    }
    write!(out, ")")
}

/// Makes a text from outside safe to show.
fn sanitized(text: &str) -> String {
    one_line(&cleaned(text))
}

/// Writes the time of day, to the second. All lines of the same second share one computation.
fn write_clock(time: Timestamp, out: &mut Vec<u8>) {
    static LAST: Mutex<(u64, String)> = Mutex::new((0, String::new()));
    let second = time.as_millis() / 1000;
    let mut last = LAST.lock();
    if last.0 != second || last.1.is_empty() {
        *last = (second, time_of_day(time));
    }
    out.extend_from_slice(last.1.as_bytes());
}

fn time_of_day(time: Timestamp) -> String {
    let millis = i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
    match jiff::Timestamp::from_millisecond(millis) {
        Ok(time) => {
            let here = time.to_zoned(jiff::tz::TimeZone::system());
            here.strftime("%H:%M:%S").to_string()
        }
        Err(_) => time.to_string(),
    }
}

// --- traces ---

/// The running export to a collector, if there is one.
#[derive(Default)]
pub(super) struct Traces {
    #[cfg(feature = "otel")]
    exporting: Option<ExporterTask>,
}

impl Traces {
    /// Starts the export beside the log. Must be called within a runtime.
    pub(super) fn attach(
        log: Arc<dyn Sink>,
        settings: &Settings,
    ) -> anyhow::Result<(Arc<dyn Sink>, Self)> {
        let Some(endpoint) = &settings.gateway.otlp_endpoint else {
            return Ok((log, Self::default()));
        };
        let headers = settings.gateway.otlp_headers.iter().map(header);
        let collector = HttpSettings {
            headers: headers.collect::<Result<_, _>>()?,
            ..provider::http_settings(settings, endpoint)?
        };
        Ok(Self::begin(log, &collector)?)
    }

    #[cfg(feature = "otel")]
    fn begin(
        log: Arc<dyn Sink>,
        collector: &HttpSettings,
    ) -> Result<(Arc<dyn Sink>, Self), UsageError> {
        let (otel, exporting) = otel::start(collector)
            .map_err(|error| UsageError(format!("gateway.otlp_endpoint: {error}")))?;
        let both: Vec<Arc<dyn Sink>> = vec![log, Arc::new(otel)];
        let exporting = Some(exporting);
        Ok((Arc::new(both), Self { exporting }))
    }

    #[cfg(not(feature = "otel"))]
    fn begin(log: Arc<dyn Sink>, _: &HttpSettings) -> Result<(Arc<dyn Sink>, Self), UsageError> {
        crate::print_diagnostic(
            "warning: gateway.otlp_endpoint: traces are not built into this outlast; build it with \
             `cargo install --path crates/cli --features otel`",
        );
        Ok((log, Self::default()))
    }

    /// Sends the remaining spans.
    #[cfg(feature = "otel")]
    pub(super) async fn end(self) {
        if let Some(exporting) = self.exporting {
            exporting.shutdown().await;
        }
    }

    /// Does nothing: the export is not built in.
    #[cfg(not(feature = "otel"))]
    pub(super) fn end(self) -> std::future::Ready<()> {
        std::future::ready(())
    }
}

/// Parses a header from `name=value`; a blank in it is written `%20`, as in the variable of OpenTelemetry.
fn header(text: &SecretString) -> Result<(String, SecretString), UsageError> {
    // The error leaves out the malformed text: it may be a key.
    let problem = || UsageError("gateway.otlp_headers: each is written as name=value".to_owned());
    let (name, value) = text.expose_secret().split_once('=').ok_or_else(problem)?;
    Ok((name.to_owned(), value.replace("%20", " ").into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use outlast_dialect::Dialect;
    use outlast_gateway::observe::log::RequestRef;

    fn record() -> Record<'static> {
        Record {
            received_at: Timestamp::default(),
            client: "claude-code",
            dialect: Some(Dialect::Anthropic),
            model: Some("claude-opus-4-5"),
            account: None,
            method: "POST",
            path: "/v1/messages",
            status: Some(200),
            attempts: 3,
            waited: Duration::from_millis(10_500),
            duration: Duration::from_millis(12_250),
            first_byte: None,
            bytes_in: 1,
            bytes_out: 2,
            outcome: Outcome::Answered,
            cause: None,
        }
    }

    fn said(all: &[(Option<&str>, EventKind<'_>)]) -> String {
        let mut said = Vec::new();
        for (request, what) in all {
            let at = Timestamp::from_millis(1_800_000_000_000);
            let request = request.map(|id| RequestRef {
                id,
                ..RequestRef::default()
            });
            let kind = *what;
            write_short(&Event { at, request, kind }, &mut said);
        }
        let said = String::from_utf8(said).unwrap();
        // The time of day depends on the machine.
        let lines = said.lines().map(|line| line.split_at(8).1);
        lines.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn request_events_render_as_short_log_lines() {
        let at = Timestamp::from_millis(1_800_000_000_000);
        let waiting = |cause, attempt, reason, wake| EventKind::Waiting {
            cause,
            attempt,
            reason,
            wake,
        };
        let refused = Record {
            client: "codex",
            model: None,
            path: "/v1/files\u{1b}[2J?key=secret",
            attempts: 1,
            duration: Duration::from_micros(80_999),
            outcome: Outcome::Failed,
            cause: Some(Cause::Auth),
            ..record()
        };
        let sent_back = Record {
            client: "codex",
            model: Some("gpt-5.1"),
            attempts: 9,
            waited: Duration::from_secs(3600),
            duration: Duration::from_secs(3601),
            outcome: Outcome::SentBack,
            cause: Some(Cause::ServerError),
            ..record()
        };
        let resumed = EventKind::Resumed {
            attempts: 2,
            resent: 1,
            since: at,
        };
        let wake = Some(at + Duration::from_secs(10));
        insta::assert_snapshot!(said(&[
            (
                Some("req-1"),
                waiting(Cause::Overloaded, 2, WaitReason::Schedule, wake),
            ),
            (
                Some("req-2"),
                waiting(Cause::UsageLimit, 1, WaitReason::Gate, None),
            ),
            (Some("req-1"), resumed),
            (Some("req-1"), EventKind::Finished(&record())),
            (Some("req-2"), EventKind::Finished(&refused)),
            (Some("req-3"), EventKind::Finished(&sent_back)),
        ]));
    }

    #[test]
    fn gateway_events_render_as_short_log_lines() {
        let listening = EventKind::Listening {
            address: "127.0.0.1:4180".parse().unwrap(),
            version: "0.1.0",
        };
        let refused = EventKind::Refused {
            status: 403,
            kind: "unknown_host",
            message: "`evil.example` is not a name of this gateway",
        };
        let problem = Some("outlast.toml:3:1: no such setting");
        let (in_flight, held) = (3, 2);
        let all = [
            listening,
            refused,
            EventKind::Gate {
                name: "anthropic@/work/claude-opus-5",
                cause: Some(Cause::Overloaded),
                state: "12 % of calls fail; not waiting for others",
            },
            EventKind::Reload { problem: None },
            EventKind::Reload { problem },
            EventKind::Drain { in_flight, held },
            EventKind::EventsDropped { events: 7 },
        ];
        insta::assert_snapshot!(said(&all.map(|what| (None, what))));
    }

    #[test]
    fn failed_attempt_event_prints_nothing() {
        let failed = EventKind::AttemptFailed {
            cause: Cause::Overloaded,
            attempt: 1,
            status: Some(529),
            account: None,
            message: "Overloaded",
        };
        assert_eq!(said(&[(Some("req-1"), failed)]), "");
    }

    #[test]
    fn header_value_is_decoded_and_hidden_from_errors() {
        let read = |text: &str| header(&SecretString::from(text.to_owned()));
        let (name, value) = read("authorization=Basic%20abc==").unwrap();
        assert_eq!(
            (name.as_str(), value.expose_secret()),
            ("authorization", "Basic abc==")
        );
        let problem = read("hushhush").unwrap_err().to_string();
        assert!(!problem.contains("hushhush"), "{problem}");
    }
}
