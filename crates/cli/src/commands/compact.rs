//! `-p /compact` and `outlast sessions compact`: makes the conversation of a session smaller, and asks nothing else.
//!
//! Invariant: what fails or is cancelled has changed nothing, and that is said.

use crate::args::PromptArguments;
use crate::factory::hooks;
use crate::factory::options::Options;
use crate::factory::session::Attendance;
use crate::factory::session_lookup::ExistingSession;
use crate::factory::shared_state;
use crate::output::diagnostics::print_status;
use crate::output::screen::Screen;
use crate::output::watcher::TICK_INTERVAL;
use crate::platform::clock;
use crate::platform::exit::{Exit, UsageError};
use crate::platform::home;
use crate::platform::runtime;
use crate::platform::signals::{self, Signal, Signals};
use crate::print_diagnostic;
use outlast_engine::Clock;
use outlast_kernel::budget::Limits;
use outlast_session::Session;
use outlast_session::{Compacted, Error};
use parking_lot::Mutex;
use std::pin::pin;
use std::sync::Arc;

const COMMAND: &str = "/compact";

/// What the summary should look at, perhaps nothing, when the prompt is the command.
fn parse_focus(prompt: &str) -> Option<&str> {
    let rest = prompt.trim().strip_prefix(COMMAND)?;
    let is_whole = rest.is_empty() || rest.starts_with(char::is_whitespace);
    is_whole.then(|| rest.trim())
}

/// Whether that prompt is the command, and nothing that a model is asked.
pub(crate) fn is_compact_command(prompt: &str) -> bool {
    parse_focus(prompt).is_some()
}

/// `outlast -p "/compact what to look at" --session ID`.
pub(crate) fn run_prompt(arguments: &PromptArguments) -> anyhow::Result<Exit> {
    let choice = &arguments.session_arguments;
    if !choice.continue_last && choice.session.is_none() {
        let problem = "there is nothing to make smaller in a new session; name one: --session ID, or --continue";
        return Err(UsageError(problem.to_owned()).into());
    }
    if !arguments.image.is_empty() {
        return Err(UsageError(format!("{COMMAND} takes no picture")).into());
    }
    let focus = arguments.prompt.as_deref().and_then(parse_focus);
    let (name, typed) = (choice.session.as_deref(), Options::from_arguments(choice));
    runtime::run(run(name, typed, focus.unwrap_or_default(), arguments.json))
}

/// `outlast sessions compact ID --focus "what to look at"`.
pub(crate) async fn compact_session(session: &str, focus: Option<&str>) -> anyhow::Result<Exit> {
    let typed = Options::default();
    run(Some(session), typed, focus.unwrap_or_default(), false).await
}

async fn run(name: Option<&str>, typed: Options, focus: &str, json: bool) -> anyhow::Result<Exit> {
    let clock: Arc<dyn Clock> = Arc::new(clock::clock()?);
    let known = ExistingSession::find(name, typed, &clock).await?;
    let shared = match known.parts.is_shared() {
        true => Some(home::prepare()?),
        false => None,
    };
    let knowledge = shared_state::open(shared, &clock).await;
    let limits = known.parts.limits();
    let (folder, attendance) = (known.folder.as_path(), Attendance::Unattended);
    let hooks = known.parts.hooks(&known.folder);
    let setup = known
        .parts
        .setup(&known.options, &knowledge, folder, attendance)
        .await;
    let session = Session::open(&known.journal, &known.summary.id, setup).await?;
    let focus = Some(focus.trim()).filter(|focus| !focus.is_empty());
    let mut signals = signals::signals();
    let hooked = hooks.subscribe_to(&session);
    let screen = Screen::new(json);
    let (result, signalled) = watch(&session, focus, limits, screen, &mut signals).await;
    drop(hooked);
    let id = session.id().to_owned();
    hooks.session_stopped(&session, hooks::exit_reason(signalled));
    session.close().await?;
    hooks::finish(&hooks, signalled, signals).await;
    report_outcome(result?, signalled, &id, json)
}

/// Makes it smaller while somebody watches. A signal cancels it: nothing has changed until it is written down.
async fn watch(
    session: &Session,
    focus: Option<&str>,
    limits: Limits,
    screen: Screen,
    signals: &mut Signals,
) -> (std::io::Result<Result<Compacted, Error>>, Option<Signal>) {
    let screen = Arc::new(Mutex::new(screen));
    let shown = Arc::clone(&screen);
    let subscription = session.subscribe(move |event| shown.lock().event(event));
    let mut work = pin!(session.compact(focus, limits));
    let mut ticks = tokio::time::interval(TICK_INTERVAL);
    let mut signalled = None;
    let result = loop {
        tokio::select! {
            result = &mut work => break result,
            _ = ticks.tick() => screen.lock().progress.tick(session.clock().now()),
            signal = signals.next() => {
                signalled = Some(signal);
                session.abort();
            }
        }
    };
    drop(subscription);
    let written = screen.lock().take_lost_stdout().map_or(Ok(()), Err);
    (written.map(|()| result), signalled)
}

fn report_outcome(
    result: Result<Compacted, Error>,
    signalled: Option<Signal>,
    id: &str,
    json: bool,
) -> anyhow::Result<Exit> {
    match (result, signalled) {
        (Ok(Compacted { before, after, .. }), _) => {
            if !json {
                print_status(&format!(
                    "The conversation of session {id} was made smaller, from about {before} to about {after} tokens."
                ));
            }
            Ok(Exit::Success)
        }
        (Err(_), Some(signal)) => {
            print_diagnostic("Cancelled: the conversation is as it was.");
            Ok(Exit::Signalled(signal))
        }
        (Err(error), None) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compact_command_matches_only_full_word_at_start() {
        let table = [
            ("/compact", Some("")),
            (" /compact \n", Some("")),
            (
                "/compact the parser, not the tests",
                Some("the parser, not the tests"),
            ),
            ("/compact\nthe parser", Some("the parser")),
            ("/compactor", None),
            ("say /compact", None),
            ("", None),
        ];
        for (prompt, expected) in table {
            assert_eq!(parse_focus(prompt), expected, "{prompt:?}");
        }
    }
}
