//! `outlast gateway retry-now` and `cancel`: what a person wants of requests that wait.

use super::ask::{Question, ask};
use super::place;
use crate::cli::Which;
use crate::exit::{Exit, Usage};
use crate::output::print;
use crate::{home, runtime};
use outlast_kernel::text;

/// Has one request that waits, or all of them, try again at once.
pub(super) fn retry_now(which: Which, id: Option<&str>) -> anyhow::Result<Exit> {
    let woken = everywhere(which, Question::RetryNow(id))?;
    match (id, woken) {
        (Some(id), 0) => Err(unknown(id)),
        (None, 0) => print("Nothing waits.\n"),
        (_, 1) => print("1 request tries again.\n"),
        (_, woken) => print(&format!("{woken} requests try again.\n")),
    }
}

/// Ends one request that waits.
pub(super) fn cancel(which: Which, id: &str) -> anyhow::Result<Exit> {
    match everywhere(which, Question::Cancel(id))? {
        0 => Err(unknown(id)),
        _ => print("It is cancelled.\n"),
    }
}

fn unknown(id: &str) -> anyhow::Error {
    let id = text::plain(id);
    Usage(format!(
        "no request `{id}` waits; `outlast gateway status` shows those that do"
    ))
    .into()
}

/// Asks all gateways that are meant; the answer is how many requests it was about.
fn everywhere(which: Which, question: Question<'_>) -> anyhow::Result<u64> {
    let home = home::path()?;
    let meant = place::meant(&home, which)?;
    runtime::run(async {
        let mut count = 0;
        for running in &meant {
            let answer = ask(running, &home, question).await?;
            let is_done = answer["cancelled"].is_string();
            count += answer["retried"].as_u64().unwrap_or(is_done.into());
        }
        Ok(count)
    })
}
