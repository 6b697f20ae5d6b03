//! `outlast` without a command: a chat in the terminal.
//!
//! `chat/` is the state machine that keys and events change; `driver/` runs its actions on sessions; `screen.rs` shows
//! it on a terminal and `plain.rs` line by line, for a screen reader. Invariants: the first frame is drawn before
//! anything is read or opened; the terminal is restored, however the chat ends.

pub(crate) mod activity;
pub(crate) mod approver;
mod chat;
mod choices;
mod commands;
mod device;
mod driver;
mod editor;
mod highlight;
mod markdown;
mod plain;
mod screen;
mod status;
mod theme;
mod transcript;
mod view;
mod wrap;

pub(crate) use device::{give_back, is_owned_by_this_thread};

use crate::args::PromptArguments;
use crate::complain;
use crate::output::diagnostics;
use crate::platform::clock;
use crate::platform::exit::{Exit, UsageError};
use crate::platform::runtime;
use outlast_engine::Clock;
use std::io::IsTerminal;
use std::sync::Arc;

pub(crate) fn run(arguments: &PromptArguments) -> anyhow::Result<Exit> {
    let is_plain = arguments.plain || std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    let is_terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    if !is_plain && !is_terminal {
        let problem = "there is no terminal to chat in; try `outlast -p \"Say hello\"`, `outlast --plain` or \
                       `outlast --help`";
        return Err(UsageError(problem.to_owned()).into());
    }
    let clock: Arc<dyn Clock> = Arc::new(clock::clock()?);
    let choice = arguments.choice.clone();
    let (signal, left) = runtime::run_reading(async move {
        match is_plain {
            true => Box::pin(plain::run(choice, clock)).await,
            false => Box::pin(screen::run(choice, clock)).await,
        }
    })?;
    if let Some(warning) = left.warning {
        complain(&warning);
    }
    if let Some(says) = left.says {
        diagnostics::notice(&says);
    }
    Ok(match signal {
        Some(signal) => Exit::Signalled(signal),
        None if left.is_lost => Exit::Unrecorded,
        None => Exit::Success,
    })
}
