//! Requests a summary from a model.
//!
//! Invariants: each model gets three attempts at most, and the next model is asked instead of a long wait; usage is
//! counted whatever the outcome. The engine's turn performs the retries, as it does everywhere.

use super::buffered_provider::BufferedProvider;
use super::summary::{self, SummaryOptions};
use super::{Compaction, CompactionRun};
use outlast_dialect::{Message, Request};
use outlast_engine::strategy::Aborted;
use outlast_engine::target::ModelTarget;
use outlast_engine::token_estimate;
use outlast_engine::turn::{Control, Turn, TurnOutcome};
use outlast_engine::{BoxFuture, CancellationToken, RetryStrategy, run_turn};
use outlast_kernel::decision::RetryRules;
use outlast_kernel::event::{Body, Event, StopReason, TurnStatus};
use outlast_kernel::verdict::Cause;
use std::time::Duration;

const MAX_RETRIES: u32 = 2;
/// The longest wait: another model could be asked, or parts left out.
const MAX_WAIT: Duration = Duration::from_secs(30);
/// A summary that was cut off with fewer tokens than this had hardly begun.
const MIN_TRUNCATED_SUMMARY_TOKENS: u64 = 100;

/// The outcome of a summary request.
pub(super) enum SummaryOutcome {
    /// A summary.
    Text(String),
    /// The model cannot read that much.
    TooLong(String),
    /// There is no summary; the text says why.
    Failed(String),
    /// The caller has cancelled the request.
    Cancelled,
}

impl Compaction {
    /// Asks a model for a summary of the older part.
    pub(super) async fn request_summary(
        &self,
        work: &mut CompactionRun<'_>,
        route: &ModelTarget,
        old: &[Message],
    ) -> SummaryOutcome {
        let form = SummaryOptions {
            max_tokens: self.settings.max_summary_tokens,
            instructions: work.job.focus.or(self.settings.instructions.as_deref()),
        };
        match summary::request(route, old, &work.size_budget, &form) {
            Some(request) => check_summary(self.call(work, route, request).await),
            None => {
                SummaryOutcome::Failed(format!("{} cannot read even a part of it", route.model))
            }
        }
    }

    async fn call(
        &self,
        work: &mut CompactionRun<'_>,
        route: &ModelTarget,
        request: Request,
    ) -> TurnOutcome {
        let retry = BoundedRetry {
            strategy: &*self.retry,
        };
        let provider = BufferedProvider(&*route.provider);
        let job = &mut work.job;
        let turn = Turn {
            retry: Some(&retry),
            budget: job.budget.clone(),
            price: route.price,
            accounts: route.accounts.as_deref(),
            control: Control::new(job.cancel.clone()).0,
            ..Turn::new(&provider, request, &*self.clock)
        };
        let say = &mut job.emit;
        let ended = run_turn(turn, &mut |event: Event| {
            if let Some(body) = as_compaction(event.body) {
                say(body);
            }
        })
        .await;
        work.usage = work.usage.plus(ended.usage);
        job.budget = ended.budget.clone();
        ended
    }
}

fn as_compaction(body: Body) -> Option<Body> {
    match body {
        Body::RetryScheduled {
            attempt,
            retry_at,
            cause,
            message,
            ..
        } => Some(Body::AutoCompactionRetry {
            attempt,
            retry_at,
            cause,
            message,
        }),
        _ => None,
    }
}

/// Converts the turn's outcome to a summary or the reason why there is none.
fn check_summary(ended: TurnOutcome) -> SummaryOutcome {
    if ended.seal == TurnStatus::Aborted {
        return SummaryOutcome::Cancelled;
    }
    if let Some((judged, reason)) = &ended.error {
        let why = format!("{}: {reason}", judged.failure.message);
        return match judged.verdict.cause {
            Cause::ContextOverflow => SummaryOutcome::TooLong(why),
            _ => SummaryOutcome::Failed(why),
        };
    }
    let text = ended.message.text();
    let tokens = token_estimate::text_tokens(text.trim());
    match ended.stop_reason {
        _ if tokens == 0 => SummaryOutcome::Failed("the summary is empty".to_owned()),
        Some(StopReason::Refusal) => SummaryOutcome::Failed("the model refused".to_owned()),
        Some(StopReason::Length) if tokens < MIN_TRUNCATED_SUMMARY_TOKENS => {
            SummaryOutcome::Failed("the summary is cut off".to_owned())
        }
        _ => SummaryOutcome::Text(text),
    }
}

/// A strategy that gives up early, since there is an alternative to waiting.
struct BoundedRetry<'a> {
    strategy: &'a dyn RetryStrategy,
}

impl RetryStrategy for BoundedRetry<'_> {
    fn delay_for(&self, attempt: u32) -> Option<Duration> {
        let delay = self
            .strategy
            .delay_for(attempt)
            .filter(|_| attempt < MAX_RETRIES)?;
        (delay <= MAX_WAIT).then_some(delay)
    }

    fn sleep<'a>(
        &'a self,
        delay: Duration,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<(), Aborted>> {
        self.strategy.sleep(delay, cancel)
    }

    fn rules(&self) -> RetryRules {
        let rules = self.strategy.rules();
        let stated = rules.max_stated_wait.unwrap_or(MAX_WAIT);
        RetryRules {
            retries: Some(
                rules
                    .retries
                    .map_or(MAX_RETRIES, |most| most.min(MAX_RETRIES)),
            ),
            max_stated_wait: Some(stated.min(MAX_WAIT)),
            wait_for_reset: false,
            ..rules
        }
    }
}
