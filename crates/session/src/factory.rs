//! Interfaces that a server needs from its program: sessions, and the models to choose from.
//!
//! A [`Host`] serves one session at a time, a [`SessionFactory`] any number of them.

use crate::Session;
use crate::Setup;
use crate::tools::shell::ShellCommand;
use outlast_engine::{BoxFuture, Clock};
use outlast_kernel::budget::Limits;
use outlast_kernel::policy::Policy;
use outlast_store::Journal;
use serde::Serialize;
use serde_json::Value;
use std::path::PathBuf;
use std::sync::Arc;

/// Opens and creates sessions for one client.
pub trait Host: Send + Sync {
    /// Creates a new session.
    fn create(&self) -> BoxFuture<'_, Result<OpenedSession, String>>;

    /// Opens the session of that name, or the only one whose name begins with it.
    fn open<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<OpenedSession, String>>;

    /// Creates a new session with the entries of another one: those before the given entry number, or all.
    fn fork<'a>(
        &'a self,
        session: &'a Session,
        before: Option<u64>,
    ) -> BoxFuture<'a, Result<OpenedSession, String>>;

    /// Returns the available models, always in the same order.
    fn models(&self) -> Vec<Model>;

    /// Returns the setup for asking that model of that provider; `None` when there is no such model.
    fn setup_with_model<'a>(
        &'a self,
        now: Arc<Setup>,
        wanted: (&'a str, &'a str),
    ) -> BoxFuture<'a, Result<Option<(Setup, Model)>, String>>;

    /// Returns the setup with the retry policy of that name.
    fn setup_with_policy(&self, now: &Setup, name: &str) -> Result<Setup, String>;

    /// Returns the retry policy of the current session.
    fn policy(&self) -> Option<Policy>;

    /// Returns the limits for a prompt that begins now.
    fn limits(&self) -> Limits;

    /// Returns the data that another process needs to resume a prompt that begins now.
    fn resume_options(&self) -> Value;

    /// Returns the path of the session store, if there is one.
    fn journal_path(&self) -> Option<String>;

    /// Returns the working folder of the current session.
    fn folder(&self) -> PathBuf;

    /// Prepares a command of the client, to be run in the folder of the session.
    fn shell_command(&self, command: &str) -> ShellCommand;

    /// Is called when the client leaves the session, for another one or for good.
    fn leave_session(&self, session: &Session);

    /// Warns the user who started the program, not the client.
    fn warn(&self, warning: &str);
}

/// Opens and creates the sessions of a server that has many.
pub trait SessionFactory: Send + Sync {
    /// Returns the journal in which sessions are stored, if there is one.
    fn journal(&self) -> Option<&Journal>;

    /// Returns the clock of the sessions.
    fn clock(&self) -> Arc<dyn Clock>;

    /// Returns the default working folder of a session.
    fn folder(&self) -> PathBuf;

    /// Describes a session that is not open: the one of that name, or a new one.
    fn describe<'a>(
        &'a self,
        name: Option<&'a str>,
        wishes: &'a SessionOptions,
    ) -> BoxFuture<'a, Result<SessionDescription, FactoryError>>;

    /// Opens the session of that name: with the settings of its last prompt, and the options requested since. A session
    /// without any entries is created.
    fn open<'a>(
        &'a self,
        name: &'a str,
        wishes: &'a SessionOptions,
    ) -> BoxFuture<'a, Result<HostedSession, FactoryError>>;
}

/// A session of a factory, with its host.
pub struct HostedSession {
    /// The session.
    pub opened: OpenedSession,
    /// Its host.
    pub host: Arc<dyn Host>,
}

/// Options that a client requests for a session; the settings supply those that are absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionOptions {
    /// The working folder.
    pub folder: Option<PathBuf>,
    /// The title.
    pub title: Option<String>,
    /// The provider.
    pub provider: Option<String>,
    /// The model.
    pub model: Option<String>,
    /// The retry policy.
    pub policy: Option<String>,
    /// The reaction to a completion that breaks off.
    pub after_content: Option<String>,
}

impl SessionOptions {
    /// Returns whether an option is requested that a prompt records.
    pub const fn has_settings(&self) -> bool {
        let is_asked = self.provider.is_some() || self.model.is_some();
        is_asked || self.policy.is_some() || self.after_content.is_some()
    }

    /// Clears the options that a prompt has recorded.
    pub fn clear_settings(&mut self) {
        (self.provider, self.model) = (None, None);
        (self.policy, self.after_content) = (None, None);
    }
}

/// A session's setup, as clients see it.
#[derive(Clone, Debug)]
pub struct SessionDescription {
    /// The current model.
    pub model: Model,
    /// The available models.
    pub models: Vec<Model>,
    /// The retry policy.
    pub policy: String,
    /// The reason why no prompt is possible now; the other fields then hold the last known values.
    pub problem: Option<String>,
}

impl SessionDescription {
    /// Returns the description if a prompt is possible; otherwise the problem as an error.
    pub fn ensure_usable(self) -> Result<Self, FactoryError> {
        match self.problem {
            Some(problem) => Err(FactoryError::Invalid(problem)),
            None => Ok(self),
        }
    }
}

/// The reason why a session is not available.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FactoryError {
    /// There is no session of that name.
    #[error("there is no session {name}")]
    NotFound {
        /// The session's name.
        name: String,
    },
    /// Another process holds the session.
    #[error(
        "session {name} is in use by another process; it can be gone on with when that has left it"
    )]
    InUse {
        /// The session's name.
        name: String,
    },
    /// A requested option or a setting cannot be satisfied.
    #[error("{0}")]
    Invalid(String),
    /// The session could not be opened.
    #[error("{0}")]
    Failed(String),
}

/// A session and its model.
pub struct OpenedSession {
    /// The session.
    pub session: Arc<Session>,
    /// The model.
    pub model: Model,
}

/// A model, as clients see it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Model {
    /// The provider's name for the model.
    pub id: String,
    /// The display name.
    pub name: String,
    /// The wire protocol: `anthropic-messages`, `openai-completions` or `openai-responses`.
    pub api: String,
    /// The provider.
    pub provider: String,
    /// The base URL of the provider.
    pub base_url: String,
    /// Whether the amount of reasoning can be chosen.
    pub reasoning: bool,
    /// The kinds of input that the model accepts.
    pub input: Vec<String>,
    /// The price of a million tokens, in dollars.
    pub cost: ModelCost,
    /// Maximum number of tokens that the model can read.
    pub context_window: u64,
    /// Maximum number of tokens that the model can write.
    pub max_tokens: u64,
}

impl Model {
    /// Returns whether both are the same model of the same provider.
    pub fn is_same(&self, other: &Self) -> bool {
        (&self.provider, &self.id) == (&other.provider, &other.id)
    }
}

/// The price of a million tokens, in dollars.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelCost {
    /// Input tokens.
    pub input: f64,
    /// Output tokens.
    pub output: f64,
    /// Tokens read from the cache.
    pub cache_read: f64,
    /// Tokens written to the cache.
    pub cache_write: f64,
}
