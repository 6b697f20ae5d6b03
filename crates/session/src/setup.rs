//! What a session is made of, and what is asked of it.

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

/// How often in a row a model is told that its answer was none.
const DEFAULT_MAX_CORRECTIONS: u32 = 3;

/// What a session is made of.
#[derive(Clone)]
pub struct Setup {
    /// Who answers.
    pub provider: Arc<dyn Provider>,
    /// The model that is asked.
    pub model: String,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// What the model is told before the conversation.
    pub system: Option<String>,
    /// The most tokens that an answer may have.
    pub max_tokens: Option<u32>,
    /// Whether answers come as a whole or in pieces.
    pub delivery: Delivery,
    /// When to try again; without it nothing is tried again.
    pub retry: Option<Arc<dyn RetryStrategy>>,
    /// Whether failures are retried, until that is switched.
    pub retry_enabled: bool,
    /// The accounts to ask with.
    pub accounts: Option<Arc<Accounts>>,
    /// What is known of the provider beyond this session.
    pub knowledge: Option<SharedState>,
    /// What tokens cost, for a ceiling on the cost of a prompt.
    pub price: Option<Price>,
    /// What is known of the model.
    pub traits: Capabilities,
    /// The models that are asked when this one cannot be, in order.
    pub fallbacks: Vec<ModelTarget>,
    /// When they are.
    pub fallback_rules: fallback::Rules,
    /// What makes the conversation smaller when it has become too large.
    pub compaction: Option<Arc<dyn Compactor>>,
    /// What becomes of an answer that breaks off when part of it was handed on.
    pub after_content: AfterContent,
    /// How often in a row the model is told that its answer was none, and asked again.
    pub corrections: u32,
    /// What runs the tools.
    pub tools: Option<Arc<dyn Toolbox>>,
    /// The tools that the model is offered.
    pub offered: Vec<Tool>,
}

impl Setup {
    /// A session with that model, without retries and tools; the other fields can be set.
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
            knowledge: None,
            price: None,
            traits: Capabilities::default(),
            fallbacks: Vec::new(),
            fallback_rules: fallback::Rules::default(),
            compaction: None,
            after_content: AfterContent::default(),
            corrections: DEFAULT_MAX_CORRECTIONS,
            tools: None,
            offered: Vec::new(),
        }
    }

    /// All models that may be asked, the first one first. One that is the same as an earlier one is none.
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
            tools: self.offered.clone(),
            max_tokens: self.max_tokens,
            delivery: self.delivery,
            resumable: false,
        }
    }
}

/// What is asked of a session.
#[derive(Clone, Debug, Default)]
pub struct PromptRequest {
    /// What is said.
    pub message: Option<Message>,
    /// What the turn may spend.
    pub limits: Limits,
    /// What the door needs to carry the turn on after a restart.
    pub options: Value,
    /// Whether somebody has just chosen the model: whatever was held against models is void.
    pub chosen: bool,
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
    pub(super) on: &'a AtomicBool,
}

impl SwitchableRetry<'_> {
    fn in_force(&self) -> Option<&dyn RetryStrategy> {
        self.on.load(Ordering::Relaxed).then_some(self.strategy)
    }
}

impl RetryStrategy for SwitchableRetry<'_> {
    fn delay_for(&self, attempt: u32) -> Option<Duration> {
        self.in_force()?.delay_for(attempt)
    }

    fn sleep<'a>(
        &'a self,
        delay: Duration,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<(), Aborted>> {
        // A wait that has begun goes on.
        self.strategy.sleep(delay, cancel)
    }

    fn rules(&self) -> RetryRules {
        self.in_force()
            .map_or(RetryRules::NONE, RetryStrategy::rules)
    }
}

/// A compaction that can be switched off while a turn runs.
pub(super) struct SwitchableCompaction<'a> {
    pub(super) compactor: &'a dyn Compactor,
    pub(super) on: &'a AtomicBool,
}

impl Compactor for SwitchableCompaction<'_> {
    fn is_due(&self, size: Size) -> bool {
        self.on.load(Ordering::Relaxed) && self.compactor.is_due(size)
    }

    fn helps(
        &self,
        judged: &ClassifiedFailure,
        request: &Request,
        size: Size,
    ) -> Option<CompactionReason> {
        let is_on = self.on.load(Ordering::Relaxed);
        is_on.then(|| self.compactor.helps(judged, request, size))?
    }

    fn compact<'a>(&'a self, job: Job<'a>) -> BoxFuture<'a, Outcome> {
        self.compactor.compact(job)
    }
}
