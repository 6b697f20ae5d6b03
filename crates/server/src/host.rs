//! What a server needs of the program that it is part of: sessions, and the models that can be chosen.

use outlast_agent::Session;
use outlast_agent::session::Setup;
use outlast_agent::tools::shell::Shell;
use outlast_engine::BoxFuture;
use outlast_kernel::budget::Limits;
use serde::Serialize;
use serde_json::Value;
use std::path::PathBuf;
use std::sync::Arc;

/// Where sessions come from.
pub trait Host: Send + Sync {
    /// A new session.
    fn begin(&self) -> BoxFuture<'_, Result<Opened, String>>;

    /// The session of that name, or the only one whose name begins so.
    fn open<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Opened, String>>;

    /// A new session that begins with the entries of another one: those before the one of that number, or all.
    fn fork<'a>(
        &'a self,
        session: &'a Session,
        before: Option<u64>,
    ) -> BoxFuture<'a, Result<Opened, String>>;

    /// The models that can be chosen, always in the same order.
    fn models(&self) -> Vec<Model>;

    /// What the session is made of when it asks that model of that provider; `None` when there is no such model.
    fn choose<'a>(
        &'a self,
        now: Arc<Setup>,
        wanted: (&'a str, &'a str),
    ) -> BoxFuture<'a, Result<Option<(Setup, Model)>, String>>;

    /// What a prompt may spend that begins now.
    fn limits(&self) -> Limits;

    /// What another process needs to carry a prompt on that begins now.
    fn options(&self) -> Value;

    /// Where sessions are kept, if they are.
    fn file(&self) -> Option<String>;

    /// Where the session in use works.
    fn folder(&self) -> PathBuf;

    /// A command of the client's, in the folder of the session.
    fn shell(&self, command: &str) -> Shell;

    /// The session is left: for another one, or for good.
    fn leave(&self, session: &Session);

    /// Tells whoever has started the program, and not the client.
    fn warn(&self, warning: &str);
}

/// A session, and the model that it asks.
pub struct Opened {
    /// The session.
    pub session: Session,
    /// The model.
    pub model: Model,
}

/// A model, as clients are told of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
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
