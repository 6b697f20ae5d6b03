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

pub(crate) use device::{is_owned_by_this_thread, restore_terminal};

use crate::args::PromptArguments;
use crate::output::diagnostics;
use crate::platform::clock;
use crate::platform::exit::{Exit, UsageError};
use crate::platform::runtime;
use crate::print_diagnostic;
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
    let choice = arguments.session_arguments.clone();
    let (signal, left) = runtime::run_with_stdin(async move {
        match is_plain {
            true => Box::pin(plain::run(choice, clock)).await,
            false => Box::pin(screen::run(choice, clock)).await,
        }
    })?;
    if let Some(warning) = left.warning {
        print_diagnostic(&warning);
    }
    if let Some(says) = left.resume_hint {
        diagnostics::print_status(&says);
    }
    Ok(match signal {
        Some(signal) => Exit::Signalled(signal),
        None if left.is_unrecorded => Exit::Unrecorded,
        None => Exit::Success,
    })
}
