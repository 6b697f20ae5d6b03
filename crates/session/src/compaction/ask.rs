//! Asks a model for a summary.
//!
//! Invariants: a route is tried three times at most, and left for the next one rather than waited for; what was used is
//! counted, whatever came of it. The turn does the retrying, here as everywhere.

use super::summary::{self, Form};
use super::whole::Whole;
use super::{Compaction, Work};
use outlast_dialect::{Message, Request};
use outlast_engine::route::Route;
use outlast_engine::size;
use outlast_engine::strategy::Aborted;
use outlast_engine::turn::{Control, Ended, Turn};
use outlast_engine::{BoxFuture, CancellationToken, RetryStrategy, run_turn};
use outlast_kernel::decision::Rules;
use outlast_kernel::event::{Body, Event, Seal, StopReason};
use outlast_kernel::verdict::Cause;
use std::time::Duration;

const MAX_RETRIES: u32 = 2;
/// The longest wait: somebody else could be asked, or parts left out.
const MAX_WAIT: Duration = Duration::from_secs(30);
/// A summary that was cut off and has fewer tokens was hardly begun.
const MIN_TRUNCATED_SUMMARY_TOKENS: u64 = 100;

/// What came of asking.
pub(super) enum Answer {
    /// A summary.
    Text(String),
    /// None: the model cannot read that much.
    TooLong(String),
    /// None.
    Failed(String),
    /// Nobody wants it any more.
    Cancelled,
}

impl Compaction {
    /// Asks there for a summary of the older part.
    pub(super) async fn ask(&self, work: &mut Work<'_>, route: &Route, old: &[Message]) -> Answer {
        let form = Form {
            most: self.settings.summary,
            instructions: work.job.focus.or(self.settings.instructions.as_deref()),
        };
        match summary::request(route, old, &work.room, &form) {
            Some(request) => judge(self.call(work, route, request).await),
            None => Answer::Failed(format!("{} cannot read even a part of it", route.model)),
        }
    }

    async fn call(&self, work: &mut Work<'_>, route: &Route, request: Request) -> Ended {
        let retry = Bounded {
            strategy: &*self.retry,
        };
        let provider = Whole(&*route.provider);
        let job = &mut work.job;
        let turn = Turn {
            retry: Some(&retry),
            budget: job.budget.clone(),
            price: route.price,
            accounts: route.accounts.as_deref(),
            control: Control::new(job.cancel.clone()).0,
            ..Turn::new(&provider, request, &*self.clock)
        };
        let say = &mut job.say;
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

/// Whether that is a summary.
fn judge(ended: Ended) -> Answer {
    if ended.seal == Seal::Aborted {
        return Answer::Cancelled;
    }
    if let Some((judged, reason)) = &ended.error {
        let why = format!("{}: {reason}", judged.failure.message);
        return match judged.verdict.cause {
            Cause::ContextOverflow => Answer::TooLong(why),
            _ => Answer::Failed(why),
        };
    }
    let text = ended.message.text();
    let tokens = size::text_tokens(text.trim());
    match ended.stop_reason {
        _ if tokens == 0 => Answer::Failed("the summary is empty".to_owned()),
        Some(StopReason::Refusal) => Answer::Failed("the model refused".to_owned()),
        Some(StopReason::Length) if tokens < MIN_TRUNCATED_SUMMARY_TOKENS => {
            Answer::Failed("the summary is cut off".to_owned())
        }
        _ => Answer::Text(text),
    }
}

/// A strategy that ends early: there is another way.
struct Bounded<'a> {
    strategy: &'a dyn RetryStrategy,
}

impl RetryStrategy for Bounded<'_> {
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

    fn rules(&self) -> Rules {
        let rules = self.strategy.rules();
        let stated = rules.longest_stated_wait.unwrap_or(MAX_WAIT);
        Rules {
            retries: Some(
                rules
                    .retries
                    .map_or(MAX_RETRIES, |most| most.min(MAX_RETRIES)),
            ),
            longest_stated_wait: Some(stated.min(MAX_WAIT)),
            wait_for_reset: false,
            ..rules
        }
    }
}
