//! `outlast resume`: carries on what a crash, a reboot or a signal has interrupted, each in the folder where it began.
//!
//! Invariant: a session that a living process leads is left alone.

use crate::args::ResumeArguments;
use crate::commands::run;
use crate::complain;
use crate::config;
use crate::factory::journal;
use crate::factory::options::Options;
use crate::factory::session::{Attendance, SessionParts};
use crate::factory::shared_state;
use crate::output::approval::TerminalApprover;
use crate::output::deliver::deliver;
use crate::output::diagnostics::notice;
use crate::output::screen::Screen;
use crate::output::watcher::{WatchContext, follow};
use crate::platform::clock;
use crate::platform::exit::{Exit, UsageError};
use crate::platform::home;
use crate::platform::runtime;
use crate::platform::signals::{self, Signals};
use anyhow::{Context, bail};
use futures_util::future::join_all;
use outlast_engine::Clock;
use outlast_engine::journal::Entry;
use outlast_engine::shared_state::SharedState;
use outlast_engine::turn::TurnOutcome;
use outlast_kernel::policy::Policy;
use outlast_session::Session;
use outlast_session::hooks::Hooks;
use outlast_session::{self as session, PromptRequest, read};
use outlast_store::Journal;
use outlast_store::journal::{Availability, Summary};
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(crate) fn run(arguments: &ResumeArguments) -> anyhow::Result<Exit> {
    let clock: Arc<dyn Clock> = Arc::new(clock::clock()?);
    if arguments.session.is_none() && !arguments.json {
        run::say_unfinished()?;
    }
    let Some(journal) = journal::existing()? else {
        return match &arguments.session {
            Some(_) => Err(UsageError(journal::NO_SESSION.to_owned()).into()),
            None => nothing(),
        };
    };
    runtime::run(async {
        let work = work(&journal, arguments).await?;
        if work.is_empty() {
            return nothing();
        }
        let knowledge = shared_state::open(Some(home::prepare()?), &clock).await;
        let resuming = Resumer {
            journal,
            clock,
            knowledge,
            json: arguments.json,
            allow: arguments.allow.clone(),
            several: work.len() > 1,
            everything: arguments.session.is_none(),
        };
        Ok(resuming.all(work).await)
    })
}

/// What was put aside because it is damaged may hold unfinished turns, too.
fn nothing() -> anyhow::Result<Exit> {
    notice("Nothing to resume.");
    for aside in journal::damaged(&home::path()?) {
        complain(&format!(
            "Damaged sessions are kept as {}; `sqlite3 FILE .recover` reads what is whole.",
            aside.display()
        ));
    }
    Ok(Exit::Success)
}

/// A session, and what is to be done about it.
struct PendingSession {
    summary: Summary,
    what: ResumeAction,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ResumeAction {
    /// Its turn is not settled.
    CarryOn,
    /// Its turn is settled, and its process died before it could say so.
    Deliver,
    /// It was named, and its last turn failed, or something waits to be said in it.
    TryAgain,
    /// Something waits to be said in it.
    SayWaiting,
}

/// What is to be done: for the session that was named, or for all.
async fn work(
    journal: &Journal,
    arguments: &ResumeArguments,
) -> anyhow::Result<Vec<PendingSession>> {
    let of = |summary: Summary| match (summary.open_turn, summary.state) {
        (_, Availability::InUse) => None,
        (Some(_), _) => Some(PendingSession {
            summary,
            what: ResumeAction::CarryOn,
        }),
        (None, Availability::Abandoned) if summary.turns > 0 => Some(PendingSession {
            summary,
            what: ResumeAction::Deliver,
        }),
        (None, Availability::Abandoned | Availability::Free) => None,
    };
    let Some(id) = &arguments.session else {
        let sessions = journal.sessions().await?;
        return Ok(sessions.into_iter().rev().filter_map(of).collect());
    };
    let summary = journal::find(journal, id).await?;
    if summary.state == Availability::InUse {
        bail!(
            "session {} is in use by another process; it can be carried on when that has ended",
            summary.id
        );
    }
    let what = ResumeAction::TryAgain;
    Ok(vec![
        of(summary.clone()).unwrap_or(PendingSession { summary, what }),
    ])
}

struct Resumer {
    journal: Journal,
    clock: Arc<dyn Clock>,
    knowledge: SharedState,
    json: bool,
    allow: Option<String>,
    several: bool,
    /// Whether no session was named.
    everything: bool,
}

impl Resumer {
    /// All of them side by side: one that waits for hours does not hold up the others.
    async fn all(&self, work: Vec<PendingSession>) -> Exit {
        let signals = signals::signals();
        let running = work.iter().map(|work| self.one(work, signals.clone()));
        let exits = join_all(running).await;
        exits
            .into_iter()
            .max_by_key(|exit| exit.code())
            .unwrap_or(Exit::Success)
    }

    async fn one(&self, work: &PendingSession, signals: Signals) -> Exit {
        match self.carry_on(work, signals).await {
            Ok(exit) => exit,
            Err(error) if self.everything && is_taken(&error) => {
                let id = &work.summary.id;
                notice(&format!("Session {id} is carried on by another process."));
                Exit::Success
            }
            Err(error) => {
                complain(&format!("error: session {}: {error:#}", work.summary.id));
                Exit::Failed
            }
        }
    }

    async fn carry_on(&self, work: &PendingSession, signals: Signals) -> anyhow::Result<Exit> {
        let summary = &work.summary;
        if work.what == ResumeAction::Deliver {
            let screen = self.screen(summary);
            return deliver(&self.journal, &summary.id, screen, &*self.clock).await;
        }
        let (mut exit, mut waits) = self.turn(summary, work.what, signals.clone()).await?;
        // What was to follow has its turn.
        while waits && exit == Exit::Success {
            let next = self.turn(summary, ResumeAction::SayWaiting, signals.clone());
            (exit, waits) = next.await?;
        }
        Ok(exit)
    }

    /// One turn of a session. Says whether something waits to be said after it.
    async fn turn(
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
                ResumeAction::CarryOn | ResumeAction::Deliver => session.resume().await,
                ResumeAction::SayWaiting => say_waiting(&session, ask).await,
                ResumeAction::TryAgain => match session.try_again(ask.clone()).await {
                    Err(session::Error::NothingToDo { .. }) => say_waiting(&session, ask).await,
                    ended => ended,
                },
            }
        };
        let watching = WatchContext {
            screen: self.screen(summary),
            signals,
            hooks,
        };
        let followed = follow(&session, turn, watching).await?;
        let waits = !session.waiting().is_empty();
        Ok((followed.finish(session, &policy).await?, waits))
    }

    /// Opens the session with what was typed for its last prompt.
    async fn open(
        &self,
        id: &str,
        folder: &Path,
    ) -> anyhow::Result<(Session, (Policy, Hooks), PromptRequest)> {
        let mut options = options(&self.journal, id).await?;
        if let Some(names) = &self.allow {
            options.allow(names);
        }
        let settings = config::load_in(Some(folder), &options.overrides())?;
        let policy = settings.retry.policy.clone();
        let parts = SessionParts::new(settings, &options, self.clock.clone())?;
        let ask = PromptRequest {
            chosen: false,
            message: None,
            limits: parts.limits(),
            options: serde_json::to_value(&options)?,
            ..PromptRequest::default()
        };
        // With several, nobody could tell whose question it is.
        let attendance = match !self.several && !self.json && TerminalApprover::is_attended() {
            true => Attendance::Attended(Arc::new(TerminalApprover)),
            false => Attendance::Unattended,
        };
        let hooks = parts.hooks(folder);
        let setup = parts
            .setup(&options, &self.knowledge, folder, attendance)
            .await;
        let session = Session::open(&self.journal, id, setup).await?;
        Ok((session, (policy, hooks), ask))
    }

    fn screen(&self, summary: &Summary) -> Screen {
        if !self.several {
            return Screen::new(self.json);
        }
        let heading = format!("== {} {}", summary.id, summary.title);
        Screen::one_of_several(self.json, &summary.id, heading)
    }
}

/// Says what waits, if anything does.
async fn say_waiting(session: &Session, ask: PromptRequest) -> Result<TurnOutcome, session::Error> {
    let said = session.prompt_queued(ask).await?;
    let session = session.id().to_owned();
    said.ok_or(session::Error::NothingToDo { session })
}

/// Whether another process was faster: it has the session, or has finished it already.
fn is_taken(error: &anyhow::Error) -> bool {
    let in_use = |error: &outlast_store::Error| matches!(error, outlast_store::Error::InUse { .. });
    match error.downcast_ref::<session::Error>() {
        Some(session::Error::Store(error)) => in_use(error),
        Some(session::Error::NothingToDo { .. }) => true,
        Some(_) => false,
        None => error.downcast_ref().is_some_and(in_use),
    }
}

/// What was typed for the last prompt of a session.
pub(crate) async fn options(journal: &Journal, session: &str) -> anyhow::Result<Options> {
    let context = || format!("the last prompt of session {session} cannot be read");
    let Some(last) = journal.last(session, "prompt").await? else {
        return Ok(Options::default());
    };
    match read(session, &last)? {
        Entry::Prompt { options, .. } if options.is_null() => Ok(Options::default()),
        Entry::Prompt { options, .. } => serde_json::from_value(options).with_context(context),
        _ => Ok(Options::default()),
    }
}
