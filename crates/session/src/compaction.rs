//! Makes a conversation smaller: replaces its older part by a summary, or elides parts of it.
//!
//! Invariants: a result fits, otherwise there is none; a tool call and its result stay together; the newest prompt is
//! never lost; the number of attempts is bounded; a failed compaction changes nothing.
//! Not here: when a turn requests a compaction, and the journal entry for it (see the engine's `turn`).

mod buffered_provider;
mod conversation;
mod elide;
mod shorten;
mod size_budget;
mod split_point;
mod summary;
mod summary_call;
mod trigger;

use outlast_dialect::{Message, Request};
use outlast_engine::compaction::{CompactedConversation, Compactor, Job, Outcome, Size};
use outlast_engine::target::ModelTarget;
use outlast_engine::{BoxFuture, Clock, RetryStrategy, token_estimate};
use outlast_kernel::event::{CompactionReason, Usage};
use outlast_kernel::failure::ClassifiedFailure;
use outlast_kernel::fallback::Exclusions;
use parking_lot::Mutex;
use size_budget::SizeBudget;
use std::sync::Arc;
use summary_call::SummaryOutcome;

const CANCELLED: &str = "cancelled";

/// Returns whether the message is a summary of an earlier part of the conversation, not something that anybody said.
pub fn is_summary(message: &Message) -> bool {
    summary::is_summary(message)
}

/// The settings of compaction.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Whether turns compact the conversation by themselves.
    pub enabled: bool,
    /// The share of the context window above which a compaction is due.
    pub threshold: f64,
    /// Number of newest tokens that stay as they are, approximately; never more than 30 % of the window.
    pub keep_tokens: u64,
    /// Maximum number of tokens of a summary; never more than a quarter of the window.
    pub max_summary_tokens: u32,
    /// The user's instructions for summaries.
    pub instructions: Option<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            enabled: true,
            threshold: 0.85,
            keep_tokens: 20_000,
            max_summary_tokens: 4096,
            instructions: None,
        }
    }
}

/// Makes conversations smaller, with models that summarise and without.
pub struct Compaction {
    routes: Vec<ModelTarget>,
    retry: Arc<dyn RetryStrategy>,
    clock: Arc<dyn Clock>,
    settings: Settings,
    /// The size of the conversation, in tokens, when it could not be brought below the threshold.
    stuck_at: Mutex<Option<u64>>,
}

impl Compaction {
    /// Creates a compaction that asks these models in order and retries by this strategy; without models it elides parts.
    pub fn new(
        routes: Vec<ModelTarget>,
        retry: Arc<dyn RetryStrategy>,
        clock: Arc<dyn Clock>,
        settings: Settings,
    ) -> Self {
        Self {
            routes,
            retry,
            clock,
            settings,
            stuck_at: Mutex::new(None),
        }
    }

    async fn run(&self, job: Job<'_>) -> Outcome {
        let mut work = CompactionRun::new(job);
        let result = self.shrink(&mut work).await;
        let cancelled = work.job.cancel.is_cancelled();
        let after = result.as_ref().map_or(work.job.size.tokens, |new| new.size);
        if !cancelled {
            self.record_size(after, work.job.size.window);
        }
        Outcome {
            result,
            usage: work.usage,
            budget: work.job.budget,
        }
    }

    async fn shrink(&self, work: &mut CompactionRun<'_>) -> Result<CompactedConversation, String> {
        let mut why = None;
        if !work.size_budget.is_byte_limited() {
            match self.summarise(work).await {
                Ok(smaller) => return Ok(smaller),
                Err(problem) => why = Some(problem),
            }
        }
        if work.job.cancel.is_cancelled() {
            return Err(CANCELLED.to_owned());
        }
        let messages = work.size_budget.elide(&work.job.request.messages);
        work.size_budget
            .accept(messages, None)
            .map_err(|messages| work.size_budget.refusal_message(&messages, why.as_deref()))
    }

    /// Replaces the older part by a model's summary. If the result is still too large, parts of it are elided.
    async fn summarise(
        &self,
        work: &mut CompactionRun<'_>,
    ) -> Result<CompactedConversation, String> {
        let request = work.job.request;
        let keep = work.size_budget.max_kept_tokens(self.settings.keep_tokens);
        let (old, kept) = request
            .messages
            .split_at(split_point::split_index(&request.messages, keep));
        if !work
            .size_budget
            .is_worth_summarising(token_estimate::messages_tokens(old))
        {
            return Err("the older part of the conversation is too short for one".to_owned());
        }
        let kept = work.size_budget.shorten_to(kept, keep);
        let mut why = "nobody is there to write one".to_owned();
        let routes = self.ordered_routes(work.job.unavailable_models);
        let mut too_small = None;
        for route in routes {
            // After a model could not read the conversation, only models with a larger known window are asked.
            if too_small.is_some_and(|window| route.traits.window <= window) {
                continue;
            }
            let checked = match self.request_summary(work, route, old).await {
                SummaryOutcome::Text(text) => self.with_summary(work, &text, old, &kept),
                SummaryOutcome::TooLong(why) => {
                    too_small = Some(route.traits.window);
                    Err(why)
                }
                SummaryOutcome::Cancelled => return Err(CANCELLED.to_owned()),
                SummaryOutcome::Failed(why) => Err(why),
            };
            match checked {
                Ok(messages) => match work.size_budget.accept(messages, Some(&route.model)) {
                    Ok(smaller) => return Ok(smaller),
                    Err(_) => "with the summary it would still be too long".clone_into(&mut why),
                },
                Err(problem) => why = problem,
            }
        }
        Err(why)
    }

    /// Returns the summarising models in order. Models in cooldown come last: they are asked when no other one succeeds.
    fn ordered_routes(&self, left: &Exclusions) -> Vec<&ModelTarget> {
        const ANY_SIZE: u64 = 0;
        let now = self.clock.now();
        let is_free = |route: &&ModelTarget| left.is_free(&route.key(), ANY_SIZE, now);
        let (free, left): (Vec<&ModelTarget>, Vec<&ModelTarget>) =
            self.routes.iter().partition(is_free);
        [free, left].concat()
    }

    /// Returns the new conversation, or an error if the summary is no shorter than the part that it replaces.
    fn with_summary(
        &self,
        work: &CompactionRun<'_>,
        text: &str,
        old: &[Message],
        kept: &[Message],
    ) -> Result<Vec<Message>, String> {
        let prompt = summary::last_prompt(old, work.size_budget.max_quote_bytes());
        let summary = summary::message(text, prompt);
        if token_estimate::message_tokens(&summary) >= token_estimate::messages_tokens(old) {
            return Err("the summary is no shorter than what it stands for".to_owned());
        }
        let messages: Vec<Message> = std::iter::once(summary)
            .chain(kept.iter().cloned())
            .collect();
        Ok(if work.size_budget.fits(&messages) {
            messages
        } else {
            work.size_budget.elide(&messages)
        })
    }

    // --- Whether a compaction is due ---

    fn is_above_threshold(&self, tokens: u64, window: u64) -> bool {
        tokens as f64 > self.settings.threshold * window as f64
    }

    /// Records the size of a conversation that stayed above the threshold: it is not compacted again until it has grown.
    fn record_size(&self, tokens: u64, window: Option<u64>) {
        let stuck = window.is_some_and(|window| self.is_above_threshold(tokens, window));
        *self.stuck_at.lock() = stuck.then_some(tokens);
    }
}

impl Compactor for Compaction {
    fn should_compact(&self, size: Size) -> bool {
        let Some(window) = size.window.filter(|_| self.settings.enabled) else {
            return false;
        };
        let mut stuck_at = self.stuck_at.lock();
        if !self.is_above_threshold(size.tokens, window) {
            *stuck_at = None;
            return false;
        }
        stuck_at.is_none_or(|tokens| size.tokens >= tokens.saturating_add(window / 10))
    }

    fn reason_for(
        &self,
        judged: &ClassifiedFailure,
        request: &Request,
        size: Size,
    ) -> Option<CompactionReason> {
        let enabled = self.settings.enabled;
        enabled.then(|| trigger::compaction_reason(judged, request, size))?
    }

    fn compact<'a>(&'a self, job: Job<'a>) -> BoxFuture<'a, Outcome> {
        Box::pin(self.run(job))
    }
}

/// One compaction and its usage so far.
struct CompactionRun<'a> {
    job: Job<'a>,
    size_budget: SizeBudget,
    usage: Usage,
}

impl<'a> CompactionRun<'a> {
    fn new(job: Job<'a>) -> Self {
        Self {
            size_budget: SizeBudget::new(&job),
            usage: Usage::default(),
            job,
        }
    }
}

#[cfg(test)]
#[path = "compaction_tests.rs"]
mod tests;
