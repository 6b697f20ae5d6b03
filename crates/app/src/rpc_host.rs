//! Where the sessions of `outlast rpc` come from: the settings, the folder, and what was chosen since.

use crate::assemble::{Attendance, Parts};
use crate::cli::SessionChoice;
use crate::config::{LimitSettings, Provider};
use crate::interrupt::{Signal, Signals};
use crate::known::{current_folder, last_in};
use crate::options::Options;
use crate::{complain, config, home, hooks, journal, knowledge, resume_command};
use anyhow::Context;
use futures_util::future::join_all;
use outlast_agent::Session;
use outlast_agent::hooks::{Hooks, Reason};
use outlast_agent::session::{Setup, Subscription};
use outlast_agent::tools::shell::Shell;
use outlast_engine::knowledge::Knowledge;
use outlast_engine::{BoxFuture, Clock};
use outlast_kernel::budget::Limits;
use outlast_server::host::{Host, Model, Opened};
use outlast_store::Journal;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub(crate) struct RpcHost {
    clock: Arc<dyn Clock>,
    knowledge: Knowledge,
    journal: Option<Journal>,
    /// What was typed, and chosen since.
    typed: Mutex<Options>,
    /// What the session in use was made with.
    in_use: Mutex<InUse>,
    /// What runs when something happens, for each session that there was; with who listens until it is left.
    hooks: Mutex<Vec<Hooked>>,
    signalled: Mutex<Option<Signal>>,
}

struct Hooked {
    session: String,
    hooks: Hooks,
    listening: Option<Subscription>,
}

#[derive(Clone, Default)]
struct InUse {
    options: Options,
    folder: PathBuf,
    models: Vec<Model>,
    hidden_variables: Vec<String>,
    limits: LimitSettings,
}

impl RpcHost {
    pub(crate) async fn new(choice: &SessionChoice, clock: Arc<dyn Clock>) -> anyhow::Result<Self> {
        let home = home::prepare();
        let home = home.inspect_err(|error| complain(&format!("warning: {error:#}")));
        let home = home.ok();
        let journal = match &home {
            _ if choice.no_session => None,
            Some(home) => kept(home),
            None => None,
        };
        Ok(Self {
            knowledge: knowledge::open(home, &clock).await,
            clock,
            journal,
            typed: Mutex::new(Options::of(choice)),
            in_use: Mutex::default(),
            hooks: Mutex::default(),
            signalled: Mutex::default(),
        })
    }

    /// Takes note of why the process ends.
    pub(crate) fn signalled(&self, signal: Signal) {
        *lock(&self.signalled) = Some(signal);
    }

    /// Waits for hooks to be done, for a bounded time.
    pub(crate) async fn finish(&self, signals: &Signals) {
        let signalled = *lock(&self.signalled);
        let all = std::mem::take(&mut *lock(&self.hooks));
        let finish = all
            .iter()
            .map(|hooked| hooks::finish(&hooked.hooks, signalled, signals.clone()));
        join_all(finish).await;
    }

    fn listen(&self, session: &Session, hooks: Hooks) {
        let hooked = Hooked {
            session: session.id().to_owned(),
            listening: Some(hooks.listen(session)),
            hooks,
        };
        lock(&self.hooks).push(hooked);
    }

    /// The session to begin with: a new one, or the one that was named.
    pub(crate) async fn first(&self, choice: &SessionChoice) -> anyhow::Result<Opened> {
        if !choice.go_on && choice.session.is_none() {
            return self.make(&current_folder()?, From::Nothing).await;
        }
        let journal = self.journal.as_ref();
        let journal = journal.context("sessions cannot be read here")?;
        let id = match &choice.session {
            Some(name) => journal::find(journal, name).await?.id,
            None => last_in(journal, &current_folder()?).await?.id,
        };
        self.reopen(&id).await
    }

    async fn reopen(&self, name: &str) -> anyhow::Result<Opened> {
        let journal = self.journal.as_ref();
        let journal = journal.context("sessions are not written down here")?;
        let summary = journal::find(journal, name).await?;
        let earlier = resume_command::options(journal, &summary.id).await?;
        let folder = PathBuf::from(&summary.directory);
        self.make(&folder, From::Session(&summary.id, earlier))
            .await
    }

    /// Makes a session, and takes note of what it is made of.
    async fn make(&self, folder: &Path, from: From<'_>) -> anyhow::Result<Opened> {
        let typed = lock(&self.typed).clone();
        let mut options = match &from {
            From::Session(_, earlier) => typed.after(earlier.clone()),
            From::Nothing | From::Copy(..) => typed,
        };
        let settings = config::load_in(Some(folder), &options.overrides())?;
        let parts = Parts::new(settings, &options, self.clock.clone())?;
        options.pin(&parts.settings, parts.model());
        let in_use = InUse {
            folder: folder.to_owned(),
            models: parts.models(options.base_url.as_deref()),
            hidden_variables: parts.settings.key_variables.clone(),
            limits: parts.settings.limits,
            options,
        };
        let hooks = parts.hooks(folder);
        let place = (folder, Attendance::Unattended);
        let setup = parts.setup(&in_use.options, &self.knowledge, place).await;
        let session = self.session(folder, (from, setup)).await?;
        self.listen(&session, hooks);
        let model = in_use.models.first().cloned();
        *lock(&self.in_use) = in_use;
        let model = model.context("there is no model")?;
        Ok(Opened { session, model })
    }

    async fn session(
        &self,
        folder: &Path,
        (from, setup): (From<'_>, Setup),
    ) -> anyhow::Result<Session> {
        let journal = self.journal.as_ref();
        Ok(match (from, journal) {
            (From::Copy(session, before), _) => session.fork(journal, before, setup).await?,
            (From::Session(id, _), Some(journal)) => Session::open(journal, id, setup).await?,
            (From::Nothing, Some(journal)) => {
                let folder = folder.to_string_lossy();
                let begun = Session::begin(journal, (&folder, ""), setup.clone()).await;
                begun.unwrap_or_else(|error| {
                    unwritten(&error.to_string());
                    Session::in_memory(setup)
                })
            }
            (From::Nothing | From::Session(..), None) => Session::in_memory(setup),
        })
    }

    fn choose_model(
        &self,
        now: &Setup,
        (provider, model): (&str, &str),
    ) -> anyhow::Result<Option<(Setup, Model)>> {
        if Provider::named(provider).is_none() {
            return Ok(None);
        }
        let InUse {
            options, folder, ..
        } = lock(&self.in_use).clone();
        let mut options = options.choosing(provider, model);
        let settings = config::load_in(Some(&folder), &options.overrides())?;
        let parts = Parts::new(settings, &options, self.clock.clone())?;
        options.pin(&parts.settings, parts.model());
        let (models, limits) = (
            parts.models(options.base_url.as_deref()),
            parts.settings.limits,
        );
        let setup = Setup {
            system: now.system.clone(),
            tools: now.tools.clone(),
            offered: now.offered.clone(),
            ..parts.setup_without_tools(&options, &self.knowledge)
        };
        let chosen = models.first().cloned();
        let mut in_use = lock(&self.in_use);
        // Those that could be chosen before still can be.
        let others = std::mem::take(&mut in_use.models);
        let is_other = |other: &Model| !models.iter().any(|model| model == other);
        let others = others.into_iter().filter(is_other).collect::<Vec<_>>();
        in_use.models = models.into_iter().chain(others).collect();
        (in_use.options, in_use.limits) = (options.clone(), limits);
        *lock(&self.typed) = options;
        Ok(chosen.map(|model| (setup, model)))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a session begins with.
enum From<'a> {
    Nothing,
    /// Its own entries, and what was typed for its last prompt.
    Session(&'a str, Options),
    /// The entries of another one, up to a number.
    Copy(&'a Session, Option<u64>),
}

fn kept(home: &Path) -> Option<Journal> {
    match journal::open(home) {
        Ok((journal, _)) => Some(journal),
        Err(error) => {
            unwritten(&error.to_string());
            None
        }
    }
}

fn unwritten(why: &str) {
    complain(&format!(
        "warning: this session cannot be written down, and could not be carried on after a crash: {why}"
    ));
}

fn said(error: anyhow::Error) -> String {
    format!("{error:#}")
}

impl Host for RpcHost {
    fn begin(&self) -> BoxFuture<'_, Result<Opened, String>> {
        Box::pin(async {
            let folder = lock(&self.in_use).folder.clone();
            self.make(&folder, From::Nothing).await.map_err(said)
        })
    }

    fn open<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Opened, String>> {
        Box::pin(async { self.reopen(name).await.map_err(said) })
    }

    fn fork<'a>(
        &'a self,
        session: &'a Session,
        before: Option<u64>,
    ) -> BoxFuture<'a, Result<Opened, String>> {
        Box::pin(async move {
            let folder = lock(&self.in_use).folder.clone();
            let made = self.make(&folder, From::Copy(session, before)).await;
            made.map_err(said)
        })
    }

    fn models(&self) -> Vec<Model> {
        lock(&self.in_use).models.clone()
    }

    fn choose<'a>(
        &'a self,
        now: Arc<Setup>,
        wanted: (&'a str, &'a str),
    ) -> BoxFuture<'a, Result<Option<(Setup, Model)>, String>> {
        Box::pin(async move { self.choose_model(&now, wanted).map_err(said) })
    }

    fn limits(&self) -> Limits {
        lock(&self.in_use).limits.from(self.clock.now())
    }

    fn options(&self) -> Value {
        serde_json::to_value(&lock(&self.in_use).options).unwrap_or_default()
    }

    fn file(&self) -> Option<String> {
        let home = self.journal.as_ref().and_then(|_| home::path().ok())?;
        Some(home.join(journal::FILE).to_string_lossy().into_owned())
    }

    fn folder(&self) -> PathBuf {
        lock(&self.in_use).folder.clone()
    }

    fn shell(&self, command: &str) -> Shell {
        let in_use = lock(&self.in_use);
        Shell {
            command: command.to_owned(),
            directory: in_use.folder.clone(),
            hidden_variables: in_use.hidden_variables.clone(),
        }
    }

    fn leave(&self, session: &Session) {
        let reason = match *lock(&self.signalled) {
            None if session.is_running() => Reason::HungUp,
            signalled => hooks::reason(signalled),
        };
        for hooked in &mut *lock(&self.hooks) {
            // Those of sessions before have been told.
            if hooked.session == session.id() && hooked.listening.take().is_some() {
                hooked.hooks.stopped(session, reason);
            }
        }
    }

    fn warn(&self, warning: &str) {
        complain(&format!("warning: {warning}"));
    }
}
