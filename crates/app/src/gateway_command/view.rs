//! Where a gateway stands, in lines for a person.
//!
//! Pure: time and room come in as arguments. Invariant: no line is wider than there is room for, and nothing that comes
//! from outside can make another one, or be obeyed by a terminal.

use super::place::Running;
use crate::progress::time_of_day;
use crate::run_view::{cut, one_line, whole, width};
use outlast_kernel::Timestamp;
use outlast_kernel::time::millis;
use outlast_kernel::verdict::Cause;
use serde::Deserialize;
use std::time::Duration;

/// What a gateway says of itself. What it does not say is nothing.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Status {
    since: Option<Timestamp>,
    connections: u64,
    in_flight: u64,
    accounts: Vec<Account>,
    gates: Vec<Gate>,
    waiting: Vec<Waiting>,
}

/// An account, and what is held against it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Account {
    name: String,
    provider: String,
    blocks: Vec<Block>,
}

#[derive(Clone, Debug, Deserialize)]
struct Block {
    cause: Cause,
    until: Timestamp,
    #[serde(default)]
    model: Option<String>,
}

/// What is known of a provider that fails.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Gate {
    name: String,
    cause: Option<Cause>,
    until: Option<Timestamp>,
    waiting: u64,
}

/// A request that waits.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Waiting {
    id: String,
    client: String,
    model: Option<String>,
    account: Option<String>,
    path: String,
    cause: Option<Cause>,
    attempts: u32,
    resent: u32,
    since: Option<Timestamp>,
    wake: Option<Timestamp>,
    /// Its client has left, and is expected to come back.
    abandoned: bool,
}

/// One gateway at one time.
pub(super) struct View<'a> {
    pub(super) running: &'a Running,
    pub(super) status: &'a Status,
    pub(super) now: Timestamp,
}

impl View<'_> {
    /// All that there is to say, in lines of at most so many columns.
    pub(super) fn lines(&self, columns: usize) -> Vec<String> {
        let mut lines = vec![self.headline()];
        lines.extend(section("accounts", self.accounts()));
        lines.extend(section("providers that fail", self.gates()));
        lines.extend(section("waiting", self.waiting()));
        lines.iter().map(|line| cut(line, columns)).collect()
    }

    fn headline(&self) -> String {
        let Running { pid, .. } = self.running;
        let Status {
            connections,
            in_flight,
            waiting,
            ..
        } = self.status;
        let up = match self.status.since {
            Some(since) => format!(", up {}", whole(self.now.since(since))),
            None => String::new(),
        };
        let held = waiting.iter().filter(|one| !one.abandoned).count();
        let url = self.running.url();
        format!(
            "{url} (pid {pid}{up}): {connections} connections, {in_flight} requests, {held} waiting"
        )
    }

    fn accounts(&self) -> Vec<Vec<String>> {
        let row = |account: &Account| {
            let blocks = account.blocks.iter();
            let blocks = blocks.filter(|block| block.until > self.now);
            let state: Vec<String> = blocks.map(|block| self.block(block)).collect();
            let state = match state.is_empty() {
                true => "free".to_owned(),
                false => state.join("; "),
            };
            vec![one_line(&account.name), one_line(&account.provider), state]
        };
        self.status.accounts.iter().map(row).collect()
    }

    fn block(&self, block: &Block) -> String {
        let model = block.model.as_deref();
        let model = model.map_or(String::new(), |model| format!(" for {}", one_line(model)));
        let cause = block.cause.phrase();
        format!("{cause}{model}, free {}", self.left(block.until))
    }

    fn gates(&self) -> Vec<Vec<String>> {
        let row = |gate: &Gate| {
            let cause = gate.cause.map_or("failing", Cause::phrase);
            let next = gate.until.map_or(String::new(), |until| {
                format!("next try {}", self.left(until))
            });
            let line = format!("{} in line", gate.waiting);
            vec![one_line(&gate.name), cause.to_owned(), next, line]
        };
        self.status.gates.iter().map(row).collect()
    }

    fn waiting(&self) -> Vec<Vec<String>> {
        let mut all: Vec<&Waiting> = self.status.waiting.iter().collect();
        all.sort_by_key(|one| (one.abandoned, one.since));
        all.into_iter().map(|one| self.request(one)).collect()
    }

    fn request(&self, one: &Waiting) -> Vec<String> {
        let model = one.model.as_deref().unwrap_or(&one.path);
        let account = one.account.as_deref().filter(|name| !name.is_empty());
        let account = account.map_or(String::new(), |name| format!(" ({})", one_line(name)));
        let next = match one.wake {
            Some(wake) => format!("next try {}", self.left(wake)),
            None => "next try when its turn comes".to_owned(),
        };
        let since = one.since.map_or(String::new(), |since| {
            format!("for {}", whole(self.now.since(since)))
        });
        let state = match (one.abandoned, one.resent) {
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
            since,
            state,
        ]
    }

    /// How long it is until then, and when that is.
    fn left(&self, until: Timestamp) -> String {
        let seconds = millis(until.since(self.now)).div_ceil(1000);
        match seconds {
            0 => "now".to_owned(),
            seconds => {
                let left = whole(Duration::from_secs(seconds));
                format!("in {left}, at {}", time_of_day(until, self.now))
            }
        }
    }
}

/// Rows as columns below a heading; nothing where there is none.
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
