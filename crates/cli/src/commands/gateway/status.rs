//! `outlast gateway status`: shows the held requests, their causes and their next attempts.

use super::view::View;
use crate::args::GatewaySelector;
use crate::commands::gateway::client::{ControlRequest, send_optional};
use crate::commands::gateway::registry::{self, RunningGateway};
use crate::output::run_view::{stdout_size, truncate};
use crate::output::spinner::Spinner;
use crate::output::{print, safe_json};
use crate::platform::exit::Exit;
use crate::platform::home;
use crate::platform::runtime;
use crate::platform::signals;
use anyhow::Context;
use outlast_gateway::control::Status;
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
