//! When to try again and how to wait, injected into a turn.

use crate::{BoxFuture, CancellationToken, Clock};
use outlast_kernel::decision::RetryRules;
use outlast_kernel::policy::Policy;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A wait that was cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aborted;

/// Decides when a turn tries again, and waits for it. A turn without one does not retry.
pub trait RetryStrategy: Send + Sync {
    /// The delay before retry number `attempt` (0 is the first), or `None` to stop.
    fn delay_for(&self, attempt: u32) -> Option<Duration>;

    /// Waits; must return at once, with an error, when `cancel` is cancelled.
    fn sleep<'a>(
        &'a self,
        delay: Duration,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<(), Aborted>>;

    /// What else bounds a chain of retries; by default only the schedule does.
    fn rules(&self) -> RetryRules {
        RetryRules::BY_SCHEDULE
    }
}

/// A policy of the kernel and a clock: the strategy of every door of Outlast.
pub struct PolicyRetry {
    policy: Arc<Policy>,
    rules: RetryRules,
    clock: Arc<dyn Clock>,
    entropy: Mutex<fastrand::Rng>,
}

impl PolicyRetry {
    /// That policy by that clock.
    pub fn new(policy: impl Into<Arc<Policy>>, clock: Arc<dyn Clock>) -> Self {
        let entropy = Mutex::new(fastrand::Rng::new());
        let policy = policy.into();
        Self {
            rules: RetryRules::from(&*policy),
            policy,
            clock,
            entropy,
        }
    }

    fn entropy(&self) -> u64 {
        self.entropy.lock().map_or(u64::MAX, |mut rng| rng.u64(..))
    }
}

impl RetryStrategy for PolicyRetry {
    fn delay_for(&self, attempt: u32) -> Option<Duration> {
        self.policy.jittered_delay(attempt, self.entropy())
    }

    fn sleep<'a>(
        &'a self,
        delay: Duration,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<(), Aborted>> {
        let timer = self.clock.sleep_until(self.clock.now() + delay);
        Box::pin(async move {
            tokio::select! {
                biased;
                () = cancel.cancelled() => Err(Aborted),
                () = timer => Ok(()),
            }
        })
    }

    fn rules(&self) -> RetryRules {
        self.rules
    }
}
