//! Where the sessions of `outlast rpc`, of the chat and of `outlast serve` come from: the settings, the folder, and what
//! was chosen since.

pub(crate) mod host_impl;

use crate::args::SessionArguments;
use crate::commands::accounts;
use crate::commands::resume;
use crate::config::{self, LimitSettings, Provider};
use crate::factory::hooks;
use crate::factory::journal;
use crate::factory::options::Options;
use crate::factory::session::{Attendance, SessionParts};
use crate::factory::session_lookup::{current_folder, last_session_in};
use crate::factory::shared_state;
use crate::platform::home;
use crate::platform::signals::{Signal, Signals};
use crate::print_diagnostic;
use anyhow::Context;
use futures_util::future::join_all;
use outlast_engine::Clock;
use outlast_engine::shared_state::SharedState;
use outlast_kernel::policy::Policy;
use outlast_session::factory::{Model, OpenedSession, SessionDescription};
use outlast_session::hooks::Hooks;
use outlast_session::{Session, Setup, Subscription};
use outlast_store::Journal;
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How long hooks are waited for after a signal: clients give us a second for everything.
const HOOK_TIMEOUT_AFTER_SIGNAL: Duration = Duration::from_millis(400);
/// How long they are waited for after their session was given back.
const MAX_HOOK_TIME: Duration = Duration::from_secs(600);

/// By which door somebody comes: it says what counts where nothing is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostKind {
    /// Somebody sits in front of it.
    Interactive,
    /// A server that goes on by itself.
    Server,
}

pub(crate) struct SessionHost {
    kind: HostKind,
    clock: Arc<dyn Clock>,
    attendance: Attendance,
    shared_state: SharedState,
    journal: Option<Journal>,
    /// What was typed, with what was said for this session in its place.
    typed: Options,
    /// What counts before what a session was led by: what was typed for it, and not for all sessions of a server.
    overrides: Options,
    /// The model that was chosen since.
    chosen_model: Mutex<Option<(String, String)>>,
    /// The policy that was chosen since.
    chosen_policy: Mutex<Option<String>>,
    /// What the session in use was made with.
    current: Mutex<CurrentSession>,
    /// What runs when something happens, for each session that there was; with who listens until it is left.
    hooks: Mutex<Vec<SessionHooks>>,
    signal: Mutex<Option<Signal>>,
}

struct SessionHooks {
    session: String,
    hooks: Hooks,
    subscription: Option<Subscription>,
}

#[derive(Clone, Default)]
struct CurrentSession {
    /// As it was made.
    initial_options: Options,
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
        choice: &SessionArguments,
        clock: Arc<dyn Clock>,
        attendance: Attendance,
    ) -> anyhow::Result<Self> {
        let home = home::prepare();
        let home = home.inspect_err(|error| print_diagnostic(&format!("warning: {error:#}")));
        let home = home.ok();
        let journal = match &home {
            _ if choice.no_session => None,
            Some(home) => open_journal(home),
            None => {
                warn_unrecorded("there is no folder to keep it in");
                None
            }
        };
        Ok(Self {
            kind: HostKind::Interactive,
            shared_state: shared_state::open(home, &clock).await,
            clock,
            attendance,
            journal,
            typed: Options::from_arguments(choice),
            overrides: Options::from_arguments(choice),
            chosen_model: Mutex::default(),
            chosen_policy: Mutex::default(),
            current: Mutex::default(),
            hooks: Mutex::default(),
            signal: Mutex::default(),
        })
    }

    /// One more of a server, for a session for which that was said.
    pub(crate) fn for_session(&self, said: &Options) -> Self {
        Self {
            kind: HostKind::Server,
            clock: Arc::clone(&self.clock),
            attendance: self.attendance.clone(),
            shared_state: self.shared_state.clone(),
            journal: self.journal.clone(),
            typed: self.typed.clone().overridden_by(said),
            overrides: said.clone(),
            chosen_model: Mutex::default(),
            chosen_policy: Mutex::default(),
            current: Mutex::default(),
            hooks: Mutex::default(),
            signal: Mutex::default(),
        }
    }

    /// What a session in that folder would be made of: the one that this was typed for before, or a new one.
    pub(crate) fn describe(
        &self,
        folder: &Path,
        earlier: Option<Options>,
    ) -> anyhow::Result<SessionDescription> {
        let options = match earlier {
            Some(earlier) => self.resolve_options(earlier),
            None => self.typed.clone(),
        };
        let mut in_use = CurrentSession::default();
        let parts = self.parts(folder, options, &mut in_use)?;
        Ok(SessionDescription {
            model: parts.model_info(in_use.options.base_url.as_deref()),
            models: in_use.models,
            policy: parts.settings.retry.policy.name.to_string(),
            problem: None,
        })
    }

    /// What is known of a session although nothing can be said in it as things are.
    pub(crate) fn describe_unavailable(
        &self,
        earlier: Options,
        problem: String,
    ) -> SessionDescription {
        let options = self.resolve_options(earlier);
        let named = |path: &str| options.get(path).unwrap_or_default().to_owned();
        let model = Model {
            id: named("model"),
            name: named("model"),
            provider: named("provider"),
            ..Model::default()
        };
        SessionDescription {
            model,
            models: Vec::new(),
            policy: named("retry.policy"),
            problem: Some(problem),
        }
    }

    /// What counts for a session that was led by that before.
    fn resolve_options(&self, earlier: Options) -> Options {
        self.overrides
            .clone()
            .or_earlier(earlier)
            .or_defaults(&self.typed)
    }

    /// A new session of that name and title.
    pub(crate) async fn begin_named(
        &self,
        folder: &Path,
        name: (&str, &str),
    ) -> anyhow::Result<OpenedSession> {
        self.open_session(folder, SessionOrigin::NewNamed(name))
            .await
    }

    /// What was typed for every session.
    pub(crate) const fn typed(&self) -> &Options {
        &self.typed
    }

    /// What is known of providers.
    pub(crate) const fn shared_state(&self) -> &SharedState {
        &self.shared_state
    }

    /// Takes note of why the process ends.
    pub(crate) fn set_signal(&self, signal: Signal) {
        *self.signal.lock() = Some(signal);
    }

    /// Waits for hooks to be done, for a bounded time.
    pub(crate) async fn finish(&self, signals: &Signals) {
        let signalled = *self.signal.lock();
        let all = std::mem::take(&mut *self.hooks.lock());
        let finish = all.iter().map(async |hooked| match signalled {
            Some(_) => hooked.hooks.finish(HOOK_TIMEOUT_AFTER_SIGNAL).await,
            None => hooks::finish(&hooked.hooks, None, signals.clone()).await,
        });
        join_all(finish).await;
    }

    /// The same for a session that was given back, while the process goes on.
    pub(crate) async fn finish_hooks(&self) {
        let all = std::mem::take(&mut *self.hooks.lock());
        let finish = all.iter().map(|hooked| hooked.hooks.finish(MAX_HOOK_TIME));
        join_all(finish).await;
    }

    fn attach_hooks(&self, session: &Session, hooks: Hooks) {
        let hooked = SessionHooks {
            session: session.id().to_owned(),
            subscription: Some(hooks.subscribe_to(session)),
            hooks,
        };
        if !hooked.hooks.is_empty() {
            self.hooks.lock().push(hooked);
        }
    }

    /// The session to begin with: a new one, or the one that was named.
    pub(crate) async fn open_first(
        &self,
        choice: &SessionArguments,
    ) -> anyhow::Result<OpenedSession> {
        if !choice.continue_last && choice.session.is_none() {
            return self
                .open_session(&current_folder()?, SessionOrigin::New)
                .await;
        }
        let journal = self.journal.as_ref();
        let journal = journal.context("sessions cannot be read here")?;
        let id = match &choice.session {
            Some(name) => journal::find(journal, name).await?.id,
            None => last_session_in(journal, &current_folder()?).await?.id,
        };
        self.reopen(&id).await
    }

    pub(crate) async fn reopen(&self, name: &str) -> anyhow::Result<OpenedSession> {
        let journal = self.journal.as_ref();
        let journal = journal.context("sessions are not written down here")?;
        let summary = journal::find(journal, name).await?;
        let earlier = resume::last_options(journal, &summary.id).await?;
        let folder = PathBuf::from(&summary.directory);
        self.open_session(&folder, SessionOrigin::Existing(&summary.id, earlier))
            .await
    }

    /// Makes a session, and takes note of what it is made of.
    async fn open_session(
        &self,
        folder: &Path,
        from: SessionOrigin<'_>,
    ) -> anyhow::Result<OpenedSession> {
        let (typed, chosen) = match &from {
            SessionOrigin::Existing(_, earlier) => (self.resolve_options(earlier.clone()), None),
            SessionOrigin::New | SessionOrigin::NewNamed(_) | SessionOrigin::Fork(..) => {
                let policy = self.chosen_policy.lock().clone();
                let policy = Options::from_settings([("retry.policy", policy)]);
                (
                    self.typed.clone().overridden_by(&policy),
                    self.chosen_model.lock().clone(),
                )
            }
        };
        let mut in_use = CurrentSession {
            folder: folder.to_owned(),
            ..CurrentSession::default()
        };
        let parts = self.parts(folder, typed, &mut in_use)?;
        in_use.initial_options = in_use.options.clone();
        let parts = match chosen {
            None => parts,
            Some((provider, model)) => {
                let options = in_use.initial_options.clone().with_model(&provider, &model);
                self.parts(folder, options, &mut in_use)?
            }
        };
        let hooks = parts.hooks(folder);
        let model = parts.model_info(in_use.options.base_url.as_deref());
        let attendance = self.attendance.clone();
        let setup = parts
            .setup(&in_use.options, &self.shared_state, folder, attendance)
            .await;
        if matches!(from, SessionOrigin::Existing(..)) {
            // It has a model of its own.
            *self.chosen_model.lock() = None;
        }
        let session = self.create_session(folder, from, setup).await?;
        self.attach_hooks(&session, hooks);
        *self.current.lock() = in_use;
        let session = Arc::new(session);
        Ok(OpenedSession { session, model })
    }

    /// What a session in that folder is made of with these options; what is to be known of it is noted.
    fn parts(
        &self,
        folder: &Path,
        options: Options,
        in_use: &mut CurrentSession,
    ) -> anyhow::Result<SessionParts> {
        let settings = match self.kind {
            HostKind::Interactive => config::load_in(Some(folder), &options.overrides())?,
            HostKind::Server => config::load_for_server(folder, &options.overrides())?,
        };
        let parts = SessionParts::new(settings, &options, self.clock.clone())?;
        in_use.options = options;
        in_use.options.pin_model(&parts.settings, parts.model());
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

    async fn create_session(
        &self,
        folder: &Path,
        from: SessionOrigin<'_>,
        setup: Setup,
    ) -> anyhow::Result<Session> {
        let journal = self.journal.as_ref();
        Ok(match (from, journal) {
            (SessionOrigin::Fork(session, before), _) => {
                session.fork(journal, before, setup).await?
            }
            (SessionOrigin::Existing(id, _), Some(journal)) => {
                Session::open(journal, id, setup).await?
            }
            (from @ (SessionOrigin::New | SessionOrigin::NewNamed(_)), Some(journal)) => {
                let folder = folder.to_string_lossy();
                let from = &from;
                let begun = match from {
                    SessionOrigin::NewNamed((id, title)) => {
                        let id = (*id).to_owned();
                        Session::create_with_id(journal, id, &folder, title, setup.clone()).await
                    }
                    _ => Session::create(journal, (&folder, ""), setup.clone()).await,
                };
                begun.unwrap_or_else(|error| {
                    warn_unrecorded(&error.to_string());
                    in_memory(from, setup)
                })
            }
            (
                from @ (SessionOrigin::New
                | SessionOrigin::NewNamed(_)
                | SessionOrigin::Existing(..)),
                None,
            ) => in_memory(&from, setup),
        })
    }

    pub(crate) fn choose_model(
        &self,
        now: &Setup,
        provider: &str,
        model: &str,
    ) -> anyhow::Result<Option<(Setup, Model)>> {
        if Provider::from_name(provider).is_none() {
            return Ok(None);
        }
        let mut in_use = self.current.lock().clone();
        // The address that was typed is that of the provider that it was typed for.
        let options = in_use.initial_options.clone().with_model(provider, model);
        let folder = in_use.folder.clone();
        let parts = self.parts(&folder, options, &mut in_use)?;
        let card = parts.model_info(in_use.options.base_url.as_deref());
        let setup = Setup {
            system: now.system.clone(),
            tools: now.tools.clone(),
            tool_definitions: now.tool_definitions.clone(),
            ..parts.setup_without_tools(&in_use.options, &self.shared_state)
        };
        *self.current.lock() = in_use;
        *self.chosen_model.lock() = Some((provider.to_owned(), model.to_owned()));
        Ok(Some((setup, card)))
    }

    /// What the session is made of when it retries by that policy.
    pub(crate) fn choose_policy(&self, now: &Setup, name: &str) -> anyhow::Result<Setup> {
        Policy::named(name)?;
        let mut in_use = self.current.lock().clone();
        let chosen = Options::from_settings([("retry.policy", Some(name.to_owned()))]);
        in_use.initial_options = in_use.initial_options.overridden_by(&chosen);
        let (folder, options) = (
            in_use.folder.clone(),
            in_use.options.clone().overridden_by(&chosen),
        );
        let parts = self.parts(&folder, options, &mut in_use)?;
        let setup = Setup {
            system: now.system.clone(),
            tools: now.tools.clone(),
            tool_definitions: now.tool_definitions.clone(),
            ..parts.setup_without_tools(&in_use.options, &self.shared_state)
        };
        *self.chosen_policy.lock() = Some(name.to_owned());
        *self.current.lock() = in_use;
        Ok(setup)
    }

    /// Has the next new session ask that model.
    pub(crate) fn choose_model_for_next(&self, provider: &str, model: &str) {
        *self.chosen_model.lock() = Some((provider.to_owned(), model.to_owned()));
    }

    /// The policy by which the session in use retries.
    pub(crate) fn policy(&self) -> Option<Policy> {
        self.current.lock().policy.clone()
    }

    /// Where sessions are written down.
    pub(crate) const fn journal(&self) -> Option<&Journal> {
        self.journal.as_ref()
    }

    /// The accounts of the session in use, and what is held against them.
    pub(crate) fn accounts(&self) -> anyhow::Result<String> {
        let (folder, options) = {
            let in_use = self.current.lock();
            (in_use.folder.clone(), in_use.options.clone())
        };
        let settings = config::load_in(Some(&folder), &options.overrides())?;
        let blocks = self.shared_state.blocks();
        Ok(accounts::table(&settings, &blocks, self.clock.now()))
    }
}

/// What a session begins with.
enum SessionOrigin<'a> {
    New,
    /// Nothing but an id and a title.
    NewNamed((&'a str, &'a str)),
    /// Its own entries, and what was typed for its last prompt.
    Existing(&'a str, Options),
    /// The entries of another one, up to a number.
    Fork(&'a Session, Option<u64>),
}

/// A session that is written down nowhere, by its name if it has one.
fn in_memory(from: &SessionOrigin<'_>, setup: Setup) -> Session {
    match from {
        SessionOrigin::NewNamed((id, _)) => Session::in_memory_with_id((*id).to_owned(), setup),
        _ => Session::in_memory(setup),
    }
}

fn open_journal(home: &Path) -> Option<Journal> {
    match journal::open(home) {
        Ok((journal, _)) => Some(journal),
        Err(error) => {
            warn_unrecorded(&error.to_string());
            None
        }
    }
}

fn warn_unrecorded(why: &str) {
    print_diagnostic(&format!(
        "warning: this session cannot be written down, and could not be carried on after a crash: {why}"
    ));
}

fn error_text(error: anyhow::Error) -> String {
    format!("{error:#}")
}
