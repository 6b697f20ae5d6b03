//! `outlast gateway status`: shows the held requests, their causes and their next attempts.
//!
//! Times are those of the gateway's clock. Invariant: no line is wider than the given width, and text from outside cannot
//! add a line or reach the terminal as an escape sequence.

use crate::args::GatewaySelector;
use crate::commands::gateway::client::{ControlRequest, send_optional};
use crate::commands::gateway::registry::{self, RunningGateway};
use crate::output::progress::time_of_day;
use crate::output::run_view::{one_line, stdout_size, truncate, whole_seconds, width};
use crate::output::spinner::Spinner;
use crate::output::{print, safe_json};
use crate::platform::exit::Exit;
use crate::platform::home;
use crate::platform::runtime;
use crate::platform::signals;
use anyhow::Context;
use outlast_gateway::control::{Account, Gate, GatewaySummary, Status, WaitingRequest};
use outlast_kernel::Timestamp;
use outlast_kernel::time::millis;
use outlast_kernel::verdict::Cause;
use serde::Deserialize;
use serde_json::Value;
use std::io::IsTerminal;
use std::path::Path;
use std::time::Duration;

/// Polling interval in real time, as it is for the eye.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Width of lines, in columns, when stdout is not a terminal.
const DEFAULT_COLUMNS: usize = 1000;

/// The output form, and whether to repeat it.
#[derive(Clone, Copy)]
pub(super) struct StatusOptions {
    pub(super) json: bool,
    pub(super) watch: bool,
}

pub(super) fn run(which: GatewaySelector, form: StatusOptions) -> anyhow::Result<Exit> {
    let home = home::path()?;
    runtime::run(async {
        if !form.watch {
            let working = Spinner::start("asking the gateway");
            let all = fetch_all(&home, which).await?;
            drop(working);
            return match form.json {
                true => print(&json(&all)?),
                false => print(&(lines(&all, columns())?.join("\n") + "\n")),
            };
        }
        let mut signals = signals::signals();
        tokio::select! {
            watched = watch(&home, which, form) => watched,
            _ = signals.next() => Ok(Exit::Success),
        }
    })
}

type Statuses = Vec<(RunningGateway, Value)>;

async fn fetch_all(home: &Path, which: GatewaySelector) -> anyhow::Result<Statuses> {
    let mut answers = Vec::new();
    for running in registry::select(home, which)? {
        let answer = send_optional(&running, home, ControlRequest::Status).await?;
        answers.push((running, answer));
    }
    Ok(answers)
}

/// Returns one line of JSON for each gateway.
fn json(all: &Statuses) -> anyhow::Result<String> {
    let line = |(running, answer): &(RunningGateway, Value)| {
        let mut answer = answer.clone();
        if let Some(fields) = answer.as_object_mut() {
            fields.insert("url".to_owned(), running.url().into());
            fields.insert("pid".to_owned(), running.pid.into());
        }
        let line = serde_json::to_string(&answer)?;
        Ok(format!("{}\n", safe_json(&line)))
    };
    all.iter().map(line).collect()
}

fn lines(all: &Statuses, columns: usize) -> anyhow::Result<Vec<String>> {
    let mut lines = Vec::new();
    for (running, answer) in all {
        if !lines.is_empty() {
            lines.push(String::new());
        }
        let status = Status::deserialize(answer);
        let status = status.context("the gateway is of another version")?;
        let view = View {
            running,
            status: &status,
        };
        lines.extend(view.lines(columns));
    }
    Ok(lines)
}

fn columns() -> usize {
    match std::io::stdout().is_terminal() {
        true => stdout_size().0,
        false => DEFAULT_COLUMNS,
    }
}

/// Prints the status whenever it has changed; on a terminal in place.
async fn watch(home: &Path, which: GatewaySelector, form: StatusOptions) -> anyhow::Result<Exit> {
    let in_place = std::io::stdout().is_terminal() && !form.json;
    let mut painted: Vec<String> = Vec::new();
    loop {
        let all = fetch_all(home, which).await?;
        let lines = match form.json {
            true => vec![json(&all)?.trim_end().to_owned()],
            false => fit_to_terminal(lines(&all, columns())?, in_place),
        };
        if lines != painted {
            let back = match (in_place, painted.len()) {
                (false, _) | (true, 0) => String::new(),
                (true, lines) => format!("\u{1b}[{lines}A\r\u{1b}[J"),
            };
            print(&format!("{back}{}\n", lines.join("\n")))?;
            painted = lines;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Limits the lines to the height of the terminal, so that all of them can be erased.
fn fit_to_terminal(mut lines: Vec<String>, in_place: bool) -> Vec<String> {
    let (columns, rows) = stdout_size();
    let room = rows.saturating_sub(1).max(1);
    if in_place && lines.len() > room {
        let more = lines.len() - (room - 1);
        lines.truncate(room - 1);
        lines.push(truncate(&format!("  … and {more} more"), columns));
    }
    lines
}

// --- lines for a person ---

/// A gateway, and the status that it returned.
struct View<'a> {
    running: &'a RunningGateway,
    status: &'a Status,
}

impl View<'_> {
    /// Returns the whole status in lines of at most `columns` columns.
    fn lines(&self, columns: usize) -> Vec<String> {
        let status = self.status;
        let accounts = status.accounts.iter().map(|one| self.account(one));
        let gates = status.gates.iter().map(Self::gate);
        let waiting = status.waiting.iter().map(|one| self.waiting(one));
        let mut lines = vec![self.headline()];
        lines.extend(section("accounts", accounts.collect()));
        lines.extend(section("providers that fail", gates.collect()));
        lines.extend(section("waiting", waiting.collect()));
        lines.iter().map(|line| truncate(line, columns)).collect()
    }

    fn headline(&self) -> String {
        let Status {
            about, counters, ..
        } = self.status;
        let GatewaySummary {
            now,
            listening_since,
            draining,
            ..
        } = about;
        let (url, pid) = (self.running.url(), self.running.pid);
        let up = whole_seconds(now.since(*listening_since));
        let state = match draining {
            true => ", ending",
            false => "",
        };
        let waiting = self.status.waiting.iter();
        let waiting = waiting.filter(|one| one.left.is_none()).count();
        format!(
            "{url} (pid {pid}, up {up}{state}): {}, {} under way, {waiting} waiting",
            pluralize(counters.connections, "connection"),
            pluralize(counters.in_flight, "request"),
        )
    }

    fn account(&self, account: &Account) -> Vec<String> {
        let until = account.until.filter(|until| *until > self.status.about.now);
        let state = match until {
            None => "free".to_owned(),
            Some(until) => {
                let cause = account.cause.map_or("blocked", Cause::phrase);
                let model = account.model.as_deref();
                let model =
                    model.map_or(String::new(), |model| format!(" for {}", one_line(model)));
                format!("{cause}{model}, free {}", self.time_left(until))
            }
        };
        vec![one_line(&account.name), one_line(&account.provider), state]
    }

    fn gate(gate: &Gate) -> Vec<String> {
        vec![
            one_line(&gate.name),
            gate.cause.map_or("failing", Cause::phrase).to_owned(),
            one_line(&gate.state),
        ]
    }

    fn waiting(&self, one: &WaitingRequest) -> Vec<String> {
        let model = one.model.as_deref().unwrap_or(&one.path);
        let account = one.account.as_deref().filter(|name| !name.is_empty());
        let account = account.map_or(String::new(), |name| format!(" ({})", one_line(name)));
        let next = match one.wake {
            Some(wake) => format!("next try {}", self.time_left(wake)),
            None => "next try when its turn comes".to_owned(),
        };
        let state = match (one.left.is_some(), one.resent) {
            (true, _) => "its client has left".to_owned(),
            (false, 0) => String::new(),
            (false, 1) => "sent again once".to_owned(),
            (false, times) => format!("sent again {times} times"),
        };
        vec![
            one_line(&one.id),
            one_line(&one.client),
            format!("{}{account}", one_line(model)),
            one.cause.map_or("", Cause::phrase).to_owned(),
            format!("attempt {}", one.attempts),
            next,
            format!(
                "for {}",
                whole_seconds(self.status.about.now.since(one.since))
            ),
            state,
        ]
    }

    /// Formats the time that is left until the given time, and that time.
    fn time_left(&self, until: Timestamp) -> String {
        let now = self.status.about.now;
        match millis(until.since(now)).div_ceil(1000) {
            0 => "now".to_owned(),
            seconds => {
                let left = whole_seconds(Duration::from_secs(seconds));
                format!("in {left}, at {}", time_of_day(until, now))
            }
        }
    }
}

/// Formats a number with its noun: `1 request`, `2 requests`.
fn pluralize(number: u64, what: &str) -> String {
    match number {
        1 => format!("1 {what}"),
        number => format!("{number} {what}s"),
    }
}

/// Formats rows as columns below a heading; returns nothing if there are no rows.
fn section(heading: &str, rows: Vec<Vec<String>>) -> Vec<String> {
    if rows.is_empty() {
        return Vec::new();
    }
    let count = rows.iter().map(Vec::len).max().unwrap_or_default();
    let cell = |row: &Vec<String>, column: usize| row.get(column).map_or(0, |text| width(text));
    let widest = |column| {
        rows.iter()
            .map(|row| cell(row, column))
            .max()
            .unwrap_or_default()
    };
    let widths: Vec<usize> = (0..count).map(widest).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).filter(|(_, columns)| **columns > 0);
        let cells = cells.map(|(text, columns)| {
            let missing = columns.saturating_sub(width(text));
            format!("  {text}{}", " ".repeat(missing))
        });
        cells.collect::<String>().trim_end().to_owned()
    };
    let mut lines = vec![String::new(), heading.to_owned()];
    lines.extend(rows.iter().map(line));
    lines
}

#[cfg(test)]
#[path = "status_tests.rs"]
mod tests;
