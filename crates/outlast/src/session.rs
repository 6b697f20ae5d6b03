//! Conversations that survive the process.

use crate::{Error, FunctionTool, Message, Model};
use outlast_engine::clock::WallClock;
use outlast_engine::shared_state::SharedState;
use outlast_engine::strategy::PolicyRetry;
use outlast_engine::turn::TurnOutcome;
use outlast_engine::{Clock, RetryStrategy};
use outlast_kernel::budget::Limits;
use outlast_kernel::decision::AfterContent;
use outlast_kernel::event::{Event, TurnStatus, Usage};
use outlast_kernel::policy::Policy;
use outlast_session::compaction::Compaction;
use outlast_session::tools::{Tool, Tools};
use outlast_session::{Conversation, Options, PromptRequest, PromptSettings, Setup, Subscription};
use outlast_store::Journal;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The name of the policy that a session has unless it is given another one.
const DEFAULT_POLICY: &str = "session";

/// A conversation with a model, its settings and its history.
///
/// Prompts, waits and tool calls are in the journal before they happen, so another process can continue where this one
/// stopped. One process owns a session at a time.
pub struct Session {
    inner: outlast_session::Session,
    deadline: Option<Duration>,
}

impl Session {
    /// Returns the builder of a session that asks this model.
    pub fn builder(model: Model) -> SessionBuilder {
        SessionBuilder::new(model)
    }

    /// Drives the session from several places at once, and lets any number of listeners follow it. Must be called within a
    /// runtime.
    pub fn into_conversation(self) -> Conversation {
        let session = Arc::new(self.inner);
        let (clock, deadline) = (Arc::clone(&session), self.deadline);
        Conversation::start(
            session,
            Options::new(move || PromptSettings {
                limits: limits(clock.clock(), deadline),
                ..PromptSettings::default()
            }),
        )
    }

    /// Sends a prompt, and returns the model's reply when all tools, retries and waits are over.
    pub async fn prompt(&self, text: &str) -> Result<Reply, Error> {
        let request = PromptRequest {
            limits: limits(self.inner.clock(), self.deadline),
            ..PromptRequest::from(text)
        };
        Reply::from_outcome(self.inner.prompt(request).await?)
    }

    /// Continues the turn that an earlier process left unfinished; `None` when there is none.
    pub async fn resume(&self) -> Result<Option<Reply>, Error> {
        if self.inner.unfinished_turn().is_none() {
            return Ok(None);
        }
        Reply::from_outcome(self.inner.resume().await?).map(Some)
    }

    /// Continues the unfinished turn if there is one, else sends the prompt: a program that is started again after a crash
    /// does not ask twice.
    pub async fn resume_or_prompt(&self, text: &str) -> Result<Reply, Error> {
        match self.resume().await? {
            Some(reply) => Ok(reply),
            None => self.prompt(text).await,
        }
    }

    /// Calls the listener with every event, until the subscription is dropped. The listener must not block.
    pub fn subscribe(&self, listener: impl FnMut(&Event) + Send + 'static) -> Subscription {
        self.inner.subscribe(listener)
    }

    /// Aborts the running turn: a wait, a request or a tool.
    pub fn abort(&self) {
        self.inner.abort();
    }

    /// Cancels the wait before a retry; the turn then fails with the error that caused the wait.
    pub fn abort_retry(&self) {
        self.inner.abort_retry();
    }

    /// Ends the wait before a retry and retries at once.
    pub fn retry_now(&self) {
        self.inner.retry_now();
    }

    /// Returns the name under which the session is in the journal.
    pub fn id(&self) -> &str {
        self.inner.id()
    }

    /// Returns the conversation: prompts, replies, tool calls and their results, without failed attempts.
    pub fn messages(&self) -> Vec<Message> {
        self.inner.messages()
    }

    /// Closes the session, so that another process may open it. Fails while a turn runs.
    pub async fn close(self) -> Result<(), Error> {
        Ok(self.inner.close().await?)
    }
}

/// Returns the limits of a prompt that begins now.
fn limits(clock: &dyn Clock, deadline: Option<Duration>) -> Limits {
    Limits {
        deadline: deadline.map(|limit| clock.now() + limit),
        ..Limits::default()
    }
}

/// The model's reply to a prompt.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The last message of the model.
    pub message: Message,
    /// The tokens of all attempts together.
    pub usage: Usage,
}

impl Reply {
    /// Returns the text of the reply.
    pub fn text(&self) -> String {
        self.message.text()
    }

    fn from_outcome(outcome: TurnOutcome) -> Result<Self, Error> {
        match (outcome.seal, outcome.error) {
            (TurnStatus::Aborted, _) => Err(Error::Aborted),
            (_, Some((failure, reason))) => Err(Error::Failed { failure, reason }),
            _ => Ok(Self {
                message: outcome.message,
                usage: outcome.usage,
            }),
        }
    }
}

/// Builds a [`Session`]. Without other instructions it retries by the policy `session` (after 2, 4 and 8 seconds),
/// summarises a conversation that outgrows the model, and has no tools.
pub struct SessionBuilder {
    model: Model,
    fallbacks: Vec<Model>,
    clock: Arc<dyn Clock>,
    retry: Option<Arc<dyn RetryStrategy>>,
    policy: Option<Policy>,
    shared_state: Option<SharedState>,
    journal: Option<PathBuf>,
    directory: PathBuf,
    system: Option<String>,
    max_tokens: Option<u32>,
    deadline: Option<Duration>,
    after_content: AfterContent,
    tools: Vec<Arc<dyn Tool>>,
}

impl SessionBuilder {
    fn new(model: Model) -> Self {
        Self {
            model,
            fallbacks: Vec::new(),
            clock: Arc::new(WallClock::default()),
            retry: None,
            policy: None,
            shared_state: None,
            journal: None,
            directory: PathBuf::new(),
            system: None,
            max_tokens: None,
            deadline: None,
            after_content: AfterContent::default(),
            tools: Vec::new(),
        }
    }

    /// Adds a model to ask when the ones before it cannot answer.
    #[must_use]
    pub fn fallback(mut self, model: Model) -> Self {
        self.fallbacks.push(model);
        self
    }

    /// Sets the retry policy.
    #[must_use]
    pub fn retry(mut self, policy: Policy) -> Self {
        self.policy = Some(policy);
        self
    }

    /// Sets a retry strategy of your own instead of a policy.
    #[must_use]
    pub fn retry_strategy(mut self, strategy: Arc<dyn RetryStrategy>) -> Self {
        self.retry = Some(strategy);
        self
    }

    /// Shares what is known of the provider with other sessions: in an outage one of them probes, the others wait.
    #[must_use]
    pub fn shared_state(mut self, state: SharedState) -> Self {
        self.shared_state = Some(state);
        self
    }

    /// Sets the file of the journal; it is created if it does not exist. Without one the session lives in memory.
    #[must_use]
    pub fn journal(mut self, path: impl Into<PathBuf>) -> Self {
        self.journal = Some(path.into());
        self
    }

    /// Sets the folder in which tools work; by default the current one.
    #[must_use]
    pub fn directory(mut self, path: impl Into<PathBuf>) -> Self {
        self.directory = path.into();
        self
    }

    /// Sets the system prompt.
    #[must_use]
    pub fn system(mut self, prompt: impl Into<String>) -> Self {
        self.system = Some(prompt.into());
        self
    }

    /// Sets the maximum number of tokens of a reply.
    #[must_use]
    pub fn max_tokens(mut self, tokens: u32) -> Self {
        self.max_tokens = Some(tokens);
        self
    }

    /// Sets the time after which a prompt is given up, waits included.
    #[must_use]
    pub fn deadline(mut self, limit: Duration) -> Self {
        self.deadline = Some(limit);
        self
    }

    /// Sets the reaction to a reply that breaks off after part of it was shown; by default the turn fails.
    #[must_use]
    pub fn after_content(mut self, reaction: AfterContent) -> Self {
        self.after_content = reaction;
        self
    }

    /// Adds a function as a tool, and allows the model to call it.
    #[must_use]
    pub fn tool(self, tool: FunctionTool) -> Self {
        self.custom_tool(Arc::new(tool))
    }

    /// Adds a tool of your own, and allows the model to call it.
    #[must_use]
    pub fn custom_tool(mut self, tool: Arc<dyn Tool>) -> Self {
        self.tools.push(tool);
        self
    }

    /// Sets the clock; by default the machine's.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Opens the session of that name, or creates it. Takes it over from a process that died, never from one that lives.
    pub async fn open_or_create(self, name: &str) -> Result<Session, Error> {
        let (journal, directory, deadline) =
            (self.journal.clone(), self.directory.clone(), self.deadline);
        let setup = self.setup()?;
        let Some(path) = journal else {
            let inner = outlast_session::Session::in_memory_with_id(name.to_owned(), setup);
            return Ok(Session { inner, deadline });
        };
        let journal = Journal::open(&path)?.journal;
        let inner = match outlast_session::Session::open(&journal, name, setup.clone()).await {
            Err(outlast_session::Error::Store(outlast_store::Error::NoSuchSession { .. })) => {
                let directory = directory.to_string_lossy();
                let id = name.to_owned();
                outlast_session::Session::create_with_id(&journal, id, &directory, name, setup)
                    .await?
            }
            opened => opened?,
        };
        Ok(Session { inner, deadline })
    }

    fn setup(self) -> Result<Setup, Error> {
        let clock = self.clock;
        let model = self.model.connect(&clock)?;
        let fallbacks = self.fallbacks.into_iter();
        let fallbacks = fallbacks.map(|model| model.connect(&clock));
        let fallbacks = fallbacks.collect::<Result<Vec<_>, _>>()?;
        let policy = match self.policy {
            Some(policy) => policy,
            None => Policy::named(DEFAULT_POLICY)?,
        };
        let retry = self
            .retry
            .unwrap_or_else(|| Arc::new(PolicyRetry::new(policy, Arc::clone(&clock))));
        let routes = std::iter::once(&model).chain(&fallbacks).cloned();
        let compaction = Compaction::new(
            routes.collect(),
            Arc::clone(&retry),
            Arc::clone(&clock),
            outlast_session::compaction::Settings::default(),
        );
        let mut tools = Tools::empty(self.directory, Arc::clone(&clock));
        for tool in self.tools {
            let name = tool.describe().name;
            tools = tools.with(tool).with_allowed([name]);
        }
        Ok(Setup {
            system: self.system,
            max_tokens: self.max_tokens,
            retry: Some(retry),
            shared_state: self.shared_state,
            traits: model.traits,
            fallbacks,
            compaction: Some(Arc::new(compaction)),
            after_content: self.after_content,
            tool_definitions: tools.definitions(),
            tools: Some(Arc::new(tools)),
            ..Setup::new(model.provider, model.model, clock)
        })
    }
}
