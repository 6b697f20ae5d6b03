//! The setup of a session, and a request to prompt it.

use outlast_dialect::{Delivery, Message, Request, Tool};
use outlast_engine::accounts::Accounts;
use outlast_engine::compaction::{Compactor, Job, Outcome, Size};
use outlast_engine::shared_state::SharedState;
use outlast_engine::strategy::Aborted;
use outlast_engine::target::ModelTarget;
use outlast_engine::tools::Toolbox;
use outlast_engine::{BoxFuture, CancellationToken, Clock, Provider, RetryStrategy};
use outlast_kernel::budget::{Limits, Price};
use outlast_kernel::decision::{AfterContent, RetryRules};
use outlast_kernel::event::CompactionReason;
use outlast_kernel::failure::ClassifiedFailure;
use outlast_kernel::fallback;
use outlast_kernel::model_info::Capabilities;
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Default number of corrections in a row.
const DEFAULT_MAX_CORRECTIONS: u32 = 3;

/// The setup of a session.
#[derive(Clone)]
pub struct Setup {
    /// The provider.
    pub provider: Arc<dyn Provider>,
    /// The model.
    pub model: String,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// The system prompt.
    pub system: Option<String>,
    /// Maximum number of tokens of a completion.
    pub max_tokens: Option<u32>,
    /// Whether completions are streamed or delivered as a whole.
    pub delivery: Delivery,
    /// The retry strategy; without it failures are not retried.
    pub retry: Option<Arc<dyn RetryStrategy>>,
    /// Whether failures are retried at the start; can be switched later.
    pub retry_enabled: bool,
    /// The accounts to make requests with.
    pub accounts: Option<Arc<Accounts>>,
    /// The state of gates and accounts that is shared beyond this session.
    pub shared_state: Option<SharedState>,
    /// The price of tokens, for a ceiling on the cost of a prompt.
    pub price: Option<Price>,
    /// The capabilities of the model.
    pub traits: Capabilities,
    /// The models to ask when this one cannot answer, in order.
    pub fallbacks: Vec<ModelTarget>,
    /// The conditions under which a fallback is asked.
    pub fallback_rules: fallback::Rules,
    /// Makes the conversation smaller when it has become too large.
    pub compaction: Option<Arc<dyn Compactor>>,
    /// The reaction to a completion that breaks off after part of it was handed on.
    pub after_content: AfterContent,
    /// Maximum number of corrections in a row: the model is told that its completion is invalid, and asked again.
    pub max_corrections: u32,
    /// The component that runs the tools.
    pub tools: Option<Arc<dyn Toolbox>>,
    /// The tools offered to the model.
    pub tool_definitions: Vec<Tool>,
}

impl Setup {
    /// Creates a setup for that model, without retries and tools; the other fields can be set.
    pub fn new(
        provider: Arc<dyn Provider>,
        model: impl Into<String>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            provider,
            model: model.into(),
            clock,
            system: None,
            max_tokens: None,
            delivery: Delivery::default(),
            retry: None,
            retry_enabled: true,
            accounts: None,
            shared_state: None,
            price: None,
            traits: Capabilities::default(),
            fallbacks: Vec::new(),
            fallback_rules: fallback::Rules::default(),
            compaction: None,
            after_content: AfterContent::default(),
            max_corrections: DEFAULT_MAX_CORRECTIONS,
            tools: None,
            tool_definitions: Vec::new(),
        }
    }

    /// Returns all models that may be asked, the primary one first, without duplicates.
    pub(super) fn routes(&self) -> Vec<ModelTarget> {
        let first = ModelTarget {
            provider: self.provider.clone(),
            model: self.model.clone(),
            accounts: self.accounts.clone(),
            price: self.price,
            traits: self.traits,
            max_tokens: self.max_tokens,
        };
        let mut routes = vec![first];
        for route in &self.fallbacks {
            let is_new = |known: &ModelTarget| known.key() != route.key();
            if routes.iter().all(is_new) {
                routes.push(route.clone());
            }
        }
        routes
    }

    pub(super) fn request(&self, messages: Vec<Message>) -> Request {
        Request {
            model: self.model.clone(),
            system: self.system.clone(),
            messages,
            tools: self.tool_definitions.clone(),
            max_tokens: self.max_tokens,
            delivery: self.delivery,
            resumable: false,
        }
    }
}

/// A request to prompt a session.
#[derive(Clone, Debug, Default)]
pub struct PromptRequest {
    /// The prompt.
    pub message: Option<Message>,
    /// The limits of the turn.
    pub limits: Limits,
    /// Data that the front end needs to resume the turn after a restart.
    pub options: Value,
    /// Whether the user has just chosen the model: this clears all cooldowns of models.
    pub model_chosen: bool,
    /// Aborts the turn when it is cancelled, also before it begins.
    pub abort: CancellationToken,
}

impl From<&str> for PromptRequest {
    fn from(text: &str) -> Self {
        Self {
            message: Some(Message::user(text)),
            ..Self::default()
        }
    }
}

/// A strategy that can be switched off while a turn runs.
pub(super) struct SwitchableRetry<'a> {
    pub(super) strategy: &'a dyn RetryStrategy,
    pub(super) enabled: &'a AtomicBool,
}

impl SwitchableRetry<'_> {
    fn active_strategy(&self) -> Option<&dyn RetryStrategy> {
        self.enabled
            .load(Ordering::Relaxed)
            .then_some(self.strategy)
    }
}

impl RetryStrategy for SwitchableRetry<'_> {
    fn delay_for(&self, attempt: u32) -> Option<Duration> {
        self.active_strategy()?.delay_for(attempt)
    }

    fn sleep<'a>(
        &'a self,
        delay: Duration,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<(), Aborted>> {
        // Switching retries off does not end a wait that has begun.
        self.strategy.sleep(delay, cancel)
    }

    fn rules(&self) -> RetryRules {
        self.active_strategy()
            .map_or(RetryRules::NONE, RetryStrategy::rules)
    }
}

/// A compaction that can be switched off while a turn runs.
pub(super) struct SwitchableCompaction<'a> {
    pub(super) compactor: &'a dyn Compactor,
    pub(super) enabled: &'a AtomicBool,
}

impl Compactor for SwitchableCompaction<'_> {
    fn should_compact(&self, size: Size) -> bool {
        self.enabled.load(Ordering::Relaxed) && self.compactor.should_compact(size)
    }

    fn reason_for(
        &self,
        judged: &ClassifiedFailure,
        request: &Request,
        size: Size,
    ) -> Option<CompactionReason> {
        let is_on = self.enabled.load(Ordering::Relaxed);
        is_on.then(|| self.compactor.reason_for(judged, request, size))?
    }

    fn compact<'a>(&'a self, job: Job<'a>) -> BoxFuture<'a, Outcome> {
        self.compactor.compact(job)
    }
}
