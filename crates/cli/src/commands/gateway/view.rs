//! The status of a gateway as lines for a person.
//!
//! Pure; times are those of the gateway's clock. Invariant: no line is wider than the given width, and text from outside
//! cannot add a line or reach the terminal as an escape sequence.

use crate::commands::gateway::registry::RunningGateway;
use crate::output::progress::time_of_day;
use crate::output::run_view::{one_line, truncate, whole_seconds, width};
use outlast_gateway::control::{Account, Gate, GatewaySummary, Status, WaitingRequest};
use outlast_kernel::Timestamp;
use outlast_kernel::time::millis;
use outlast_kernel::verdict::Cause;
use std::time::Duration;

/// A gateway, and the status that it returned.
pub(super) struct View<'a> {
    pub(super) running: &'a RunningGateway,
    pub(super) status: &'a Status,
}

impl View<'_> {
    /// Returns the whole status in lines of at most `columns` columns.
    pub(super) fn lines(&self, columns: usize) -> Vec<String> {
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
#[path = "view_tests.rs"]
mod tests;
