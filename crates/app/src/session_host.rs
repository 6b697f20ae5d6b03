//! Where the sessions of `outlast rpc`, of the chat and of `outlast serve` come from: the settings, the folder, and what
//! was chosen since.

use crate::assemble::{Attendance, Parts};
use crate::cli::SessionChoice;
use crate::config::{LimitSettings, Provider};
use crate::interrupt::{Signal, Signals};
use crate::known::{current_folder, last_in};
use crate::options::Options;
use crate::{accounts_command, complain, config, home, hooks, journal, knowledge, resume_command};
use anyhow::Context;
use futures_util::future::join_all;
use outlast_agent::Session;
use outlast_agent::hooks::{Hooks, Reason};
use outlast_agent::session::{Setup, Subscription};
use outlast_agent::tools::shell::Shell;
use outlast_engine::knowledge::Knowledge;
use outlast_engine::{BoxFuture, Clock};
use outlast_kernel::budget::Limits;
use outlast_kernel::policy::Policy;
use outlast_server::host::{Card, Host, Model, Opened};
use outlast_store::Journal;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long hooks are waited for after a signal: clients give us a second for everything.
const AFTER_SIGNAL: Duration = Duration::from_millis(400);

/// By which door somebody comes: it says what counts where nothing is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Door {
    /// Somebody sits in front of it.
    Attended,
    /// A server that goes on by itself.
    Server,
}

pub(crate) struct SessionHost {
    door: Door,
    clock: Arc<dyn Clock>,
    attendance: Attendance,
    knowledge: Knowledge,
    journal: Option<Journal>,
    /// What was typed, with what was said for this session in its place.
    typed: Options,
    /// What counts before what a session was led by: what was typed for it, and not for all sessions of a server.
    said: Options,
    /// The model that was chosen since.
    chosen: Mutex<Option<(String, String)>>,
    /// The policy that was chosen since.
    chosen_policy: Mutex<Option<String>>,
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
    /// As it was made.
    made_with: Options,
    /// The same with the model that was chosen since.
    options: Options,
    folder: PathBuf,
    models: Vec<Model>,
    hidden_variables: Vec<String>,
    limits: LimitSettings,
    policy: Option<Policy>,
}

impl SessionHost {
    pub(crate) async fn new(
        choice: &SessionChoice,
        clock: Arc<dyn Clock>,
        attendance: Attendance,
    ) -> anyhow::Result<Self> {
        let home = home::prepare();
        let home = home.inspect_err(|error| complain(&format!("warning: {error:#}")));
        let home = home.ok();
        let journal = match &home {
            _ if choice.no_session => None,
            Some(home) => kept(home),
            None => {
                unwritten("there is no folder to keep it in");
                None
            }
        };
        Ok(Self {
            door: Door::Attended,
            knowledge: knowledge::open(home, &clock).await,
            clock,
            attendance,
            journal,
            typed: Options::of(choice),
            said: Options::of(choice),
            chosen: Mutex::default(),
            chosen_policy: Mutex::default(),
            in_use: Mutex::default(),
            hooks: Mutex::default(),
            signalled: Mutex::default(),
        })
    }

    /// One more of a server, for a session for which that was said.
    pub(crate) fn beside(&self, said: &Options) -> Self {
        Self {
            door: Door::Server,
            clock: Arc::clone(&self.clock),
            attendance: self.attendance.clone(),
            knowledge: self.knowledge.clone(),
            journal: self.journal.clone(),
            typed: self.typed.clone().with(said),
            said: said.clone(),
            chosen: Mutex::default(),
            chosen_policy: Mutex::default(),
            in_use: Mutex::default(),
            hooks: Mutex::default(),
            signalled: Mutex::default(),
        }
    }

    /// What a session in that folder would be made of: the one that this was typed for before, or a new one.
    pub(crate) fn look(&self, folder: &Path, earlier: Option<Options>) -> anyhow::Result<Card> {
        let options = match earlier {
            Some(earlier) => self.after(earlier),
            None => self.typed.clone(),
        };
        let mut in_use = InUse::default();
        let parts = self.parts(folder, options, &mut in_use)?;
        Ok(Card {
            model: parts.card(in_use.options.base_url.as_deref()),
            models: in_use.models,
            policy: parts.settings.retry.policy.name.to_string(),
        })
    }

    /// What counts for a session that was led by that before.
    fn after(&self, earlier: Options) -> Options {
        self.said.clone().after(earlier).or(&self.typed)
    }

    /// A new session of that name and title.
    pub(crate) async fn begin_named(
        &self,
        folder: &Path,
        name: (&str, &str),
    ) -> anyhow::Result<Opened> {
        self.make(folder, From::Name(name)).await
    }

    /// What was typed for every session.
    pub(crate) const fn typed(&self) -> &Options {
        &self.typed
    }

    /// What is known of providers.
    pub(crate) const fn knowledge(&self) -> &Knowledge {
        &self.knowledge
    }

    /// Takes note of why the process ends.
    pub(crate) fn signalled(&self, signal: Signal) {
        *lock(&self.signalled) = Some(signal);
    }

    /// Waits for hooks to be done, for a bounded time.
    pub(crate) async fn finish(&self, signals: &Signals) {
        let signalled = *lock(&self.signalled);
        let all = std::mem::take(&mut *lock(&self.hooks));
        let finish = all.iter().map(async |hooked| match signalled {
            Some(_) => hooked.hooks.finish(AFTER_SIGNAL).await,
            None => hooks::finish(&hooked.hooks, None, signals.clone()).await,
        });
        join_all(finish).await;
    }

    fn listen(&self, session: &Session, hooks: Hooks) {
        let hooked = Hooked {
            session: session.id().to_owned(),
            listening: Some(hooks.listen(session)),
            hooks,
        };
        if !hooked.hooks.is_empty() {
            lock(&self.hooks).push(hooked);
        }
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

    pub(crate) async fn reopen(&self, name: &str) -> anyhow::Result<Opened> {
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
        let (typed, chosen) = match &from {
            From::Session(_, earlier) => (self.after(earlier.clone()), None),
            From::Nothing | From::Name(_) | From::Copy(..) => {
                let policy = lock(&self.chosen_policy).clone();
                let policy = Options::said([("retry.policy", policy)]);
                (self.typed.clone().with(&policy), lock(&self.chosen).clone())
            }
        };
        let mut in_use = InUse {
            folder: folder.to_owned(),
            ..InUse::default()
        };
        let parts = self.parts(folder, typed, &mut in_use)?;
        in_use.made_with = in_use.options.clone();
        let parts = match chosen {
            None => parts,
            Some((provider, model)) => {
                let options = in_use.made_with.clone().choosing(&provider, &model);
                self.parts(folder, options, &mut in_use)?
            }
        };
        let hooks = parts.hooks(folder);
        let model = parts.card(in_use.options.base_url.as_deref());
        let place = (folder, self.attendance.clone());
        let setup = parts.setup(&in_use.options, &self.knowledge, place).await;
        if matches!(from, From::Session(..)) {
            // It has a model of its own.
            *lock(&self.chosen) = None;
        }
        let session = self.session(folder, (from, setup)).await?;
        self.listen(&session, hooks);
        *lock(&self.in_use) = in_use;
        let session = Arc::new(session);
        Ok(Opened { session, model })
    }

    /// What a session in that folder is made of with these options; what is to be known of it is noted.
    fn parts(&self, folder: &Path, options: Options, in_use: &mut InUse) -> anyhow::Result<Parts> {
        let settings = match self.door {
            Door::Attended => config::load_in(Some(folder), &options.overrides())?,
            Door::Server => config::load_for_server(folder, &options.overrides())?,
        };
        let parts = Parts::new(settings, &options, self.clock.clone())?;
        in_use.options = options;
        in_use.options.pin(&parts.settings, parts.model());
        in_use.limits = parts.settings.limits;
        in_use.policy = Some(parts.settings.retry.policy.clone());
        in_use
            .hidden_variables
            .clone_from(&parts.settings.key_variables);
        // Those that could be chosen before still can be, in their places.
        for model in parts.models(in_use.options.base_url.as_deref()) {
            match in_use.models.iter_mut().find(|known| known.is_same(&model)) {
                Some(known) => *known = model,
                None => in_use.models.push(model),
            }
        }
        Ok(parts)
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
            (from @ (From::Nothing | From::Name(_)), Some(journal)) => {
                let folder = folder.to_string_lossy();
                let begun = match from {
                    From::Name((id, title)) => {
                        let about = (&*folder, title);
                        Session::begin_as(journal, id.to_owned(), about, setup.clone()).await
                    }
                    _ => Session::begin(journal, (&folder, ""), setup.clone()).await,
                };
                begun.unwrap_or_else(|error| {
                    unwritten(&error.to_string());
                    Session::in_memory(setup)
                })
            }
            (From::Nothing | From::Name(_) | From::Session(..), None) => Session::in_memory(setup),
        })
    }

    pub(crate) fn choose_model(
        &self,
        now: &Setup,
        (provider, model): (&str, &str),
    ) -> anyhow::Result<Option<(Setup, Model)>> {
        if Provider::named(provider).is_none() {
            return Ok(None);
        }
        let mut in_use = lock(&self.in_use).clone();
        // The address that was typed is that of the provider that it was typed for.
        let options = in_use.made_with.clone().choosing(provider, model);
        let folder = in_use.folder.clone();
        let parts = self.parts(&folder, options, &mut in_use)?;
        let card = parts.card(in_use.options.base_url.as_deref());
        let setup = Setup {
            system: now.system.clone(),
            tools: now.tools.clone(),
            offered: now.offered.clone(),
            ..parts.setup_without_tools(&in_use.options, &self.knowledge)
        };
        *lock(&self.in_use) = in_use;
        *lock(&self.chosen) = Some((provider.to_owned(), model.to_owned()));
        Ok(Some((setup, card)))
    }

    /// What the session is made of when it retries by that policy.
    pub(crate) fn choose_policy(&self, now: &Setup, name: &str) -> anyhow::Result<Setup> {
        Policy::named(name)?;
        let mut in_use = lock(&self.in_use).clone();
        let chosen = Options::said([("retry.policy", Some(name.to_owned()))]);
        in_use.made_with = in_use.made_with.with(&chosen);
        let (folder, options) = (in_use.folder.clone(), in_use.options.clone().with(&chosen));
        let parts = self.parts(&folder, options, &mut in_use)?;
        let setup = Setup {
            system: now.system.clone(),
            tools: now.tools.clone(),
            offered: now.offered.clone(),
            ..parts.setup_without_tools(&in_use.options, &self.knowledge)
        };
        *lock(&self.chosen_policy) = Some(name.to_owned());
        *lock(&self.in_use) = in_use;
        Ok(setup)
    }

    /// Has the next new session ask that model.
    pub(crate) fn choose_for_next(&self, provider: &str, model: &str) {
        *lock(&self.chosen) = Some((provider.to_owned(), model.to_owned()));
    }

    /// The policy by which the session in use retries.
    pub(crate) fn policy(&self) -> Option<Policy> {
        lock(&self.in_use).policy.clone()
    }

    /// Where sessions are written down.
    pub(crate) const fn journal(&self) -> Option<&Journal> {
        self.journal.as_ref()
    }

    /// The accounts of the session in use, and what is held against them.
    pub(crate) fn accounts(&self) -> anyhow::Result<String> {
        let (folder, options) = {
            let in_use = lock(&self.in_use);
            (in_use.folder.clone(), in_use.options.clone())
        };
        let settings = config::load_in(Some(&folder), &options.overrides())?;
        let blocks = self.knowledge.blocks();
        Ok(accounts_command::table(
            &settings,
            &blocks,
            self.clock.now(),
        ))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a session begins with.
enum From<'a> {
    Nothing,
    /// Nothing but an id and a title.
    Name((&'a str, &'a str)),
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

impl Host for SessionHost {
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

    fn choose_policy(&self, now: &Setup, name: &str) -> Result<Setup, String> {
        Self::choose_policy(self, now, name).map_err(said)
    }

    fn policy(&self) -> Option<Policy> {
        Self::policy(self)
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
