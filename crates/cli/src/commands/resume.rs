//! `outlast resume`: carries on what a crash, a reboot or a signal has interrupted, each in the folder where it began.
//!
//! Invariant: a session that a living process leads is left alone.

use crate::args::ResumeArguments;
use crate::commands::run;
use crate::config;
use crate::factory::journal;
use crate::factory::options::Options;
use crate::factory::session::{Attendance, SessionParts};
use crate::factory::shared_state;
use crate::output::approval::TerminalApprover;
use crate::output::deliver::deliver;
use crate::output::diagnostics::print_status;
use crate::output::screen::Screen;
use crate::output::watcher::{WatchContext, watch_turn};
use crate::platform::clock;
use crate::platform::exit::{Exit, UsageError};
use crate::platform::home;
use crate::platform::runtime;
use crate::platform::signals::{self, Signals};
use crate::print_diagnostic;
use anyhow::{Context, bail};
use futures_util::future::join_all;
use outlast_engine::Clock;
use outlast_engine::journal::Entry;
use outlast_engine::shared_state::SharedState;
use outlast_engine::turn::TurnOutcome;
use outlast_kernel::policy::Policy;
use outlast_session::Session;
use outlast_session::hooks::Hooks;
use outlast_session::{self as session, PromptRequest, parse_entry};
use outlast_store::Journal;
use outlast_store::journal::{Availability, Summary};
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(crate) fn run(arguments: &ResumeArguments) -> anyhow::Result<Exit> {
    let clock: Arc<dyn Clock> = Arc::new(clock::clock()?);
    if arguments.session.is_none() && !arguments.json {
        run::report_unfinished()?;
    }
    let Some(journal) = journal::open_existing()? else {
        return match &arguments.session {
            Some(_) => Err(UsageError(journal::NO_SESSION.to_owned()).into()),
            None => report_nothing(),
        };
    };
    runtime::run(async {
        let work = pending_sessions(&journal, arguments).await?;
        if work.is_empty() {
            return report_nothing();
        }
        let knowledge = shared_state::open(Some(home::prepare()?), &clock).await;
        let resuming = Resumer {
            journal,
            clock,
            shared_state: knowledge,
            json: arguments.json,
            allow: arguments.allow.clone(),
            is_labelled: work.len() > 1,
            resumes_all: arguments.session.is_none(),
        };
        Ok(resuming.resume_all(work).await)
    })
}

/// What was put aside because it is damaged may hold unfinished turns, too.
fn report_nothing() -> anyhow::Result<Exit> {
    print_status("Nothing to resume.");
    for aside in journal::damaged_files(&home::path()?) {
        print_diagnostic(&format!(
            "Damaged sessions are kept as {}; `sqlite3 FILE .recover` reads what is whole.",
            aside.display()
        ));
    }
    Ok(Exit::Success)
}

/// A session, and what is to be done about it.
struct PendingSession {
    summary: Summary,
    action: ResumeAction,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ResumeAction {
    /// Its turn is not settled.
    Resume,
    /// Its turn is settled, and its process died before it could say so.
    Deliver,
    /// It was named, and its last turn failed, or something waits to be said in it.
    Retry,
    /// Something waits to be said in it.
    SendQueued,
}

/// What is to be done: for the session that was named, or for all.
async fn pending_sessions(
    journal: &Journal,
    arguments: &ResumeArguments,
) -> anyhow::Result<Vec<PendingSession>> {
    let of = |summary: Summary| match (summary.open_turn, summary.availability) {
        (_, Availability::InUse) => None,
        (Some(_), _) => Some(PendingSession {
            summary,
            action: ResumeAction::Resume,
        }),
        (None, Availability::Abandoned) if summary.turns > 0 => Some(PendingSession {
            summary,
            action: ResumeAction::Deliver,
        }),
        (None, Availability::Abandoned | Availability::Free) => None,
    };
    let Some(id) = &arguments.session else {
        let sessions = journal.sessions().await?;
        return Ok(sessions.into_iter().rev().filter_map(of).collect());
    };
    let summary = journal::find(journal, id).await?;
    if summary.availability == Availability::InUse {
        bail!(
            "session {} is in use by another process; it can be carried on when that has ended",
            summary.id
        );
    }
    let action = ResumeAction::Retry;
    Ok(vec![
        of(summary.clone()).unwrap_or(PendingSession { summary, action }),
    ])
}

struct Resumer {
    journal: Journal,
    clock: Arc<dyn Clock>,
    shared_state: SharedState,
    json: bool,
    allow: Option<String>,
    is_labelled: bool,
    /// Whether no session was named.
    resumes_all: bool,
}

impl Resumer {
    /// All of them side by side: one that waits for hours does not hold up the others.
    async fn resume_all(&self, work: Vec<PendingSession>) -> Exit {
        let signals = signals::signals();
        let running = work
            .iter()
            .map(|work| self.resume_one(work, signals.clone()));
        let exits = join_all(running).await;
        exits
            .into_iter()
            .max_by_key(|exit| exit.code())
            .unwrap_or(Exit::Success)
    }

    async fn resume_one(&self, work: &PendingSession, signals: Signals) -> Exit {
        match self.resume(work, signals).await {
            Ok(exit) => exit,
            Err(error) if self.resumes_all && is_owned_elsewhere(&error) => {
                let id = &work.summary.id;
                print_status(&format!("Session {id} is carried on by another process."));
                Exit::Success
            }
            Err(error) => {
                print_diagnostic(&format!("error: session {}: {error:#}", work.summary.id));
                Exit::Failed
            }
        }
    }

    async fn resume(&self, work: &PendingSession, signals: Signals) -> anyhow::Result<Exit> {
        let summary = &work.summary;
        if work.action == ResumeAction::Deliver {
            let screen = self.screen(summary);
            return deliver(&self.journal, &summary.id, screen, &*self.clock).await;
        }
        let (mut exit, mut waits) = self.run_turn(summary, work.action, signals.clone()).await?;
        // What was to follow has its turn.
        while waits && exit == Exit::Success {
            let next = self.run_turn(summary, ResumeAction::SendQueued, signals.clone());
            (exit, waits) = next.await?;
        }
        Ok(exit)
    }

    /// One turn of a session. Says whether something waits to be said after it.
    async fn run_turn(
        &self,
        summary: &Summary,
        what: ResumeAction,
        mut signals: Signals,
    ) -> anyhow::Result<(Exit, bool)> {
        let folder = PathBuf::from(&summary.directory);
        if !folder.is_dir() {
            bail!(
                "its folder {} is gone; make it again, or give the session up with `outlast sessions delete {}`",
                folder.display(),
                summary.id
            );
        }
        let (session, (policy, hooks), ask) = tokio::select! {
            opened = self.open(&summary.id, &folder) => opened?,
            signal = signals.next() => return Ok((Exit::Signalled(signal), false)),
        };
        let turn = async {
            match what {
                ResumeAction::Resume | ResumeAction::Deliver => session.resume().await,
                ResumeAction::SendQueued => send_queued(&session, ask).await,
                ResumeAction::Retry => match session.retry_last_turn(ask.clone()).await {
                    Err(session::Error::NothingToResume { .. }) => send_queued(&session, ask).await,
                    ended => ended,
                },
            }
        };
        let watching = WatchContext {
            screen: self.screen(summary),
            signals,
            hooks,
        };
        let followed = watch_turn(&session, turn, watching).await?;
        let waits = !session.queued_messages().is_empty();
        Ok((followed.finish(session, &policy).await?, waits))
    }

    /// Opens the session with what was typed for its last prompt.
    async fn open(
        &self,
        id: &str,
        folder: &Path,
    ) -> anyhow::Result<(Session, (Policy, Hooks), PromptRequest)> {
        let mut options = last_options(&self.journal, id).await?;
        if let Some(names) = &self.allow {
            options.allow(names);
        }
        let settings = config::load_in(Some(folder), &options.overrides())?;
        let policy = settings.retry.policy.clone();
        let parts = SessionParts::new(settings, &options, self.clock.clone())?;
        let ask = PromptRequest {
            model_chosen: false,
            message: None,
            limits: parts.limits(),
            options: serde_json::to_value(&options)?,
            ..PromptRequest::default()
        };
        // With several, nobody could tell whose question it is.
        let attendance = match !self.is_labelled && !self.json && TerminalApprover::is_attended() {
            true => Attendance::Attended(Arc::new(TerminalApprover)),
            false => Attendance::Unattended,
        };
        let hooks = parts.hooks(folder);
        let setup = parts
            .setup(&options, &self.shared_state, folder, attendance)
            .await;
        let session = Session::open(&self.journal, id, setup).await?;
        Ok((session, (policy, hooks), ask))
    }

    fn screen(&self, summary: &Summary) -> Screen {
        if !self.is_labelled {
            return Screen::new(self.json);
        }
        let heading = format!("== {} {}", summary.id, summary.title);
        Screen::one_of_several(self.json, &summary.id, heading)
    }
}

/// Says what waits, if anything does.
async fn send_queued(session: &Session, ask: PromptRequest) -> Result<TurnOutcome, session::Error> {
    let said = session.prompt_queued(ask).await?;
    let session = session.id().to_owned();
    said.ok_or(session::Error::NothingToResume { session })
}

/// Whether another process was faster: it has the session, or has finished it already.
fn is_owned_elsewhere(error: &anyhow::Error) -> bool {
    let in_use = |error: &outlast_store::Error| matches!(error, outlast_store::Error::InUse { .. });
    match error.downcast_ref::<session::Error>() {
        Some(session::Error::Store(error)) => in_use(error),
        Some(session::Error::NothingToResume { .. }) => true,
        Some(_) => false,
        None => error.downcast_ref().is_some_and(in_use),
    }
}

/// What was typed for the last prompt of a session.
pub(crate) async fn last_options(journal: &Journal, session: &str) -> anyhow::Result<Options> {
    let context = || format!("the last prompt of session {session} cannot be read");
    let Some(last) = journal.last_of_kind(session, "prompt").await? else {
        return Ok(Options::default());
    };
    match parse_entry(session, &last)? {
        Entry::Prompt { options, .. } if options.is_null() => Ok(Options::default()),
        Entry::Prompt { options, .. } => serde_json::from_value(options).with_context(context),
        _ => Ok(Options::default()),
    }
}
