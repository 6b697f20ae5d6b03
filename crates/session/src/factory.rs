//! What a server needs of the program that it is part of: sessions, and the models that can be chosen.
//!
//! A [`Host`] is behind one session at a time, a [`House`] behind any number of them.

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

/// Where sessions come from.
pub trait Host: Send + Sync {
    /// A new session.
    fn begin(&self) -> BoxFuture<'_, Result<OpenedSession, String>>;

    /// The session of that name, or the only one whose name begins so.
    fn open<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<OpenedSession, String>>;

    /// A new session that begins with the entries of another one: those before the one of that number, or all.
    fn fork<'a>(
        &'a self,
        session: &'a Session,
        before: Option<u64>,
    ) -> BoxFuture<'a, Result<OpenedSession, String>>;

    /// The models that can be chosen, always in the same order.
    fn models(&self) -> Vec<Model>;

    /// What the session is made of when it asks that model of that provider; `None` when there is no such model.
    fn choose<'a>(
        &'a self,
        now: Arc<Setup>,
        wanted: (&'a str, &'a str),
    ) -> BoxFuture<'a, Result<Option<(Setup, Model)>, String>>;

    /// What the session is made of when it retries by that policy.
    fn choose_policy(&self, now: &Setup, name: &str) -> Result<Setup, String>;

    /// The policy by which the session in use retries.
    fn policy(&self) -> Option<Policy>;

    /// What a prompt may spend that begins now.
    fn limits(&self) -> Limits;

    /// What another process needs to carry a prompt on that begins now.
    fn options(&self) -> Value;

    /// Where sessions are kept, if they are.
    fn file(&self) -> Option<String>;

    /// Where the session in use works.
    fn folder(&self) -> PathBuf;

    /// A command of the client's, in the folder of the session.
    fn shell(&self, command: &str) -> ShellCommand;

    /// The session is left: for another one, or for good.
    fn leave(&self, session: &Session);

    /// Tells whoever has started the program, and not the client.
    fn warn(&self, warning: &str);
}

/// Where the sessions of a server come from that has many.
pub trait SessionFactory: Send + Sync {
    /// Where they are written down, if they are.
    fn journal(&self) -> Option<&Journal>;

    /// The clock that they go by.
    fn clock(&self) -> Arc<dyn Clock>;

    /// Where a session works that is not told where.
    fn folder(&self) -> PathBuf;

    /// What a session would be made of that is not open: the one of that name, or a new one.
    fn look<'a>(
        &'a self,
        name: Option<&'a str>,
        wishes: &'a SessionOptions,
    ) -> BoxFuture<'a, Result<SessionDescription, FactoryError>>;

    /// The session of that name, open: as its last prompt left it, with what is wished since. One that nothing was ever
    /// said in is begun.
    fn open<'a>(
        &'a self,
        name: &'a str,
        wishes: &'a SessionOptions,
    ) -> BoxFuture<'a, Result<HostedSession, FactoryError>>;
}

/// A session of a house, and the host behind it.
pub struct HostedSession {
    /// The session.
    pub opened: OpenedSession,
    /// Its host.
    pub host: Arc<dyn Host>,
}

/// What somebody wants of a session; what they do not say is as the settings have it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionOptions {
    /// Where it works.
    pub folder: Option<PathBuf>,
    /// What it is about.
    pub title: Option<String>,
    /// Who answers.
    pub provider: Option<String>,
    /// Which model is asked.
    pub model: Option<String>,
    /// The retry policy.
    pub policy: Option<String>,
    /// What becomes of an answer that breaks off.
    pub after_content: Option<String>,
}

impl SessionOptions {
    /// Whether something is wished that a prompt keeps.
    pub const fn has_settings(&self) -> bool {
        let is_asked = self.provider.is_some() || self.model.is_some();
        is_asked || self.policy.is_some() || self.after_content.is_some()
    }

    /// A prompt has kept it.
    pub fn clear_settings(&mut self) {
        (self.provider, self.model) = (None, None);
        (self.policy, self.after_content) = (None, None);
    }
}

/// What a session is made of, as clients are told.
#[derive(Clone, Debug)]
pub struct SessionDescription {
    /// The model that is asked.
    pub model: Model,
    /// The models that can be chosen.
    pub models: Vec<Model>,
    /// The retry policy.
    pub policy: String,
    /// Why nothing can be said as things are; then the rest is what was said of it before.
    pub problem: Option<String>,
}

impl SessionDescription {
    /// One with which something can be said.
    pub fn sound(self) -> Result<Self, FactoryError> {
        match self.problem {
            Some(problem) => Err(FactoryError::Wrong(problem)),
            None => Ok(self),
        }
    }
}

/// Why there is no such session.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FactoryError {
    /// There is none of that name.
    #[error("there is no session {name}")]
    Unknown {
        /// The name.
        name: String,
    },
    /// Another process leads it.
    #[error(
        "session {name} is in use by another process; it can be gone on with when that has left it"
    )]
    InUse {
        /// The name.
        name: String,
    },
    /// What is wished for, or set, cannot be had.
    #[error("{0}")]
    Wrong(String),
    /// It could not be opened.
    #[error("{0}")]
    Failed(String),
}

/// A session, and the model that it asks.
pub struct OpenedSession {
    /// The session.
    pub session: Arc<Session>,
    /// The model.
    pub model: Model,
}

/// A model, as clients are told of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Model {
    /// Its name at the provider.
    pub id: String,
    /// Its name for people.
    pub name: String,
    /// What is spoken with the provider: `anthropic-messages`, `openai-completions` or `openai-responses`.
    pub api: String,
    /// Who answers.
    pub provider: String,
    /// Where that is.
    pub base_url: String,
    /// Whether how much it thinks can be chosen.
    pub reasoning: bool,
    /// What it reads.
    pub input: Vec<String>,
    /// What a million tokens cost, in dollars.
    pub cost: ModelCost,
    /// How many tokens it can read.
    pub context_window: u64,
    /// How many it can write.
    pub max_tokens: u64,
}

impl Model {
    /// Whether that is the same model of the same provider.
    pub fn is_same(&self, other: &Self) -> bool {
        (&self.provider, &self.id) == (&other.provider, &other.id)
    }
}

/// What a million tokens cost, in dollars.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelCost {
    /// Read.
    pub input: f64,
    /// Written.
    pub output: f64,
    /// Read from the cache.
    pub cache_read: f64,
    /// Written to the cache.
    pub cache_write: f64,
}
