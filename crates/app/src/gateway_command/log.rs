//! What is said of requests on stderr: lines of JSON, or short lines made of them.
//!
//! Invariant: whoever says something does not wait for the reader; lines are made and written by a thread of the log's.

use crate::cli::LogForm;
use crate::run_view::{one_line, whole};
use outlast_kernel::Timestamp;
use outlast_kernel::time::{Span, millis};
use outlast_kernel::verdict::Cause;
use outlast_server::gateway::log::{JsonLines, Level, Sink};
use serde_json::Value;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

/// Who is told what happens.
pub(super) fn sink(form: LogForm) -> io::Result<Arc<dyn Sink>> {
    Ok(match form {
        LogForm::Off => Arc::new(()),
        LogForm::Json => Arc::new(JsonLines::new(io::stderr(), Level::Info)?),
        LogForm::Text => Arc::new(JsonLines::new(Short(io::stderr()), Level::Info)?),
    })
}

/// Takes whole lines of JSON, and writes short ones for people.
struct Short<Out: Write>(Out);

impl<Out: Write> Write for Short<Out> {
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        let mut all = String::new();
        for line in lines.split(|byte| *byte == b'\n') {
            let event: Value = serde_json::from_slice(line).unwrap_or_default();
            if let Some(line) = short(&event) {
                all.push_str(&line);
                all.push('\n');
            }
        }
        self.0.write_all(all.as_bytes())?;
        Ok(lines.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// An event in words, if it is one for people.
fn short(event: &Value) -> Option<String> {
    let text = |name: &str| one_line(event[name].as_str().unwrap_or_default());
    let time = time(event, "time")?;
    let words = match event["event"].as_str()? {
        "waiting" => format!("⚠ {}: {}", text("request"), waiting(event, time)),
        "taken_up" => format!(
            "● {}: its client sent it again; it goes on after {} attempts",
            text("request"),
            event["attempts"]
        ),
        "finished" => finished(event),
        "refused" => format!("✗ refused ({}): {}", event["status"], text("message")),
        "reload" if event["problem"].is_string() => {
            format!("✗ the settings are not taken: {}", text("problem"))
        }
        "reload" => "● the settings are read again".to_owned(),
        "drain" => format!(
            "● ending: {} requests are under way, {} wait",
            event["in_flight"], event["held"]
        ),
        "left_out" => format!("⚠ {} events are left out", event["events"]),
        _ => return None,
    };
    Some(format!("{} {words}", clock(time)))
}

fn waiting(event: &Value, now: Timestamp) -> String {
    let cause = cause(event).unwrap_or("failed");
    let next = match self::time(event, "wake") {
        Some(wake) => {
            let seconds = millis(wake.since(now)).div_ceil(1000);
            format!("next try in {}", whole(Duration::from_secs(seconds)))
        }
        None => "waiting for its turn".to_owned(),
    };
    format!("{cause} (attempt {}), {next}", event["attempt"])
}

fn finished(event: &Value) -> String {
    let text = |name: &str| one_line(event[name].as_str().unwrap_or_default());
    let number = |name: &str| event[name].as_u64().unwrap_or_default();
    let what = match event["model"].is_string() {
        true => text("model"),
        false => text("path"),
    };
    let (mark, outcome) = match event["outcome"].as_str() {
        Some("answered") => ("✓", "answered"),
        Some("failed") => ("✗", "failed"),
        Some("broken") => ("✗", "broke off"),
        Some("sent_back") => ("↻", "its client comes back"),
        Some("left") => ("–", "its client left"),
        _ => ("■", "cancelled"),
    };
    let cause = cause(event).map_or(String::new(), |cause| format!(": {cause}"));
    let took = Span(Duration::from_millis(number("duration_ms")));
    let more = match number("attempts") {
        0 | 1 => String::new(),
        attempts => {
            let waited = whole(Duration::from_millis(number("waited_ms")));
            format!(", {attempts} attempts, waited {waited}")
        }
    };
    let (id, client) = (text("request"), text("client"));
    format!("{mark} {id}: {client} {what} {outcome}{cause} ({took}{more})")
}

fn cause(event: &Value) -> Option<&'static str> {
    let cause: Cause = serde_json::from_value(event["cause"].clone()).ok()?;
    Some(cause.phrase())
}

fn time(event: &Value, name: &str) -> Option<Timestamp> {
    event[name].as_str()?.parse().ok()
}

/// The time of day, to the second.
fn clock(time: Timestamp) -> String {
    let millis = i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
    match jiff::Timestamp::from_millisecond(millis) {
        Ok(time) => {
            let here = time.to_zoned(jiff::tz::TimeZone::system());
            here.strftime("%H:%M:%S").to_string()
        }
        Err(_) => time.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENTS: &str = r#"
{"time":"2027-01-15T08:00:00Z","level":"info","event":"listening","address":"127.0.0.1:4180","version":"0.1.0"}
{"time":"2027-01-15T08:00:01Z","level":"warn","request":"req-1","event":"waiting","cause":"overloaded","attempt":2,"wake":"2027-01-15T08:00:11Z"}
{"time":"2027-01-15T08:00:02Z","level":"warn","request":"req-2","event":"waiting","cause":"usage_limit","attempt":1,"wake":null}
{"time":"2027-01-15T08:00:03Z","level":"info","request":"req-1","event":"taken_up","attempts":2,"resent":1,"since":"2027-01-15T08:00:00Z"}
{"time":"2027-01-15T08:00:12Z","level":"info","request":"req-1","event":"finished","client":"claude-code","dialect":"anthropic","model":"claude-opus-4-5","method":"POST","path":"/v1/messages","status":200,"attempts":3,"waited_ms":10500,"duration_ms":12250,"bytes_in":1,"bytes_out":2,"outcome":"answered"}
{"time":"2027-01-15T08:00:13Z","level":"error","request":"req-2","event":"finished","client":"codex","dialect":"other","method":"POST","path":"/v1/files\u001b[2J","status":401,"attempts":1,"waited_ms":0,"duration_ms":80,"bytes_in":1,"bytes_out":2,"outcome":"failed","cause":"auth"}
{"time":"2027-01-15T08:00:14Z","level":"warn","request":"req-3","event":"finished","client":"codex","model":"gpt-5.1","attempts":9,"waited_ms":3600000,"duration_ms":3601000,"outcome":"sent_back","cause":"server_error"}
{"time":"2027-01-15T08:00:15Z","level":"warn","event":"refused","status":403,"kind":"unknown_host","message":"`evil.example` is not a name of this gateway"}
{"time":"2027-01-15T08:00:16Z","level":"info","event":"reload"}
{"time":"2027-01-15T08:00:17Z","level":"error","event":"reload","problem":"outlast.toml:3:1: no such setting"}
{"time":"2027-01-15T08:00:18Z","level":"info","event":"drain","in_flight":3,"held":2}
not json
{"time":"2027-01-15T08:00:19Z","level":"warn","event":"left_out","events":7}
"#;

    #[test]
    fn what_happens_is_said_in_short_lines() {
        let mut said = Short(Vec::new());
        said.write_all(EVENTS.as_bytes()).unwrap();
        let said = String::from_utf8(said.0).unwrap();
        // The time of day is that of the machine.
        let lines = said.lines().map(|line| line.split_at(8).1);
        insta::assert_snapshot!(lines.collect::<Vec<_>>().join("\n"));
    }
}
