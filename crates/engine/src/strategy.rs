//! The retry schedule and the way to sleep, injected into a turn.

use crate::{BoxFuture, CancellationToken, Clock};
use outlast_kernel::decision::RetryRules;
use outlast_kernel::policy::Policy;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

/// The error of a wait that was cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aborted;

/// Decides when a turn retries, and waits for that time. A turn without a strategy does not retry.
pub trait RetryStrategy: Send + Sync {
    /// Returns the delay before retry number `attempt` (0 is the first), or `None` to stop.
    fn delay_for(&self, attempt: u32) -> Option<Duration>;

    /// Waits for the delay; must return an error at once when `cancel` is cancelled.
    fn sleep<'a>(
        &'a self,
        delay: Duration,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<(), Aborted>>;

    /// Returns further limits of a retry chain; by default only the schedule limits it.
    fn rules(&self) -> RetryRules {
        RetryRules::BY_SCHEDULE
    }
}

/// The strategy of all front ends of Outlast: a policy of the kernel and a clock.
pub struct PolicyRetry {
    policy: Arc<Policy>,
    rules: RetryRules,
    clock: Arc<dyn Clock>,
    entropy: Mutex<fastrand::Rng>,
}

impl PolicyRetry {
    /// Creates a strategy from a policy and a clock.
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
}

impl RetryStrategy for PolicyRetry {
    fn delay_for(&self, attempt: u32) -> Option<Duration> {
        self.policy
            .jittered_delay(attempt, self.entropy.lock().u64(..))
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
