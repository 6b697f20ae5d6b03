//! Budgets: one for each retry chain, one for each prompt.
//!
//! Invariant: spending only rises. There is no way to refill a budget, so an inner layer that receives one can spend it
//! but never increase it. A wait is reserved when it is scheduled and settled when it ends, so a wait that is cut short
//! costs only the time slept.

use crate::Timestamp;
use crate::event::Usage;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// An amount of money, in millionths of a dollar.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Cost(pub u64);

/// The price of a million tokens.
///
/// ```
/// use outlast_kernel::budget::{Cost, Price};
/// use outlast_kernel::event::Usage;
///
/// let price = Price { input: Cost(3_000_000), output: Cost(15_000_000), ..Price::default() };
/// let usage = Usage { input: 1000, output: 100, ..Usage::default() };
/// assert_eq!(price.cost(usage), Cost(4500));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Price {
    /// Input tokens, without those from the cache.
    pub input: Cost,
    /// Output tokens.
    pub output: Cost,
    /// Tokens read from the cache.
    pub cache_read: Cost,
    /// Tokens written to the cache.
    pub cache_write: Cost,
}

impl Price {
    /// Returns the cost of a usage.
    pub fn cost(&self, usage: Usage) -> Cost {
        let parts = [
            (usage.input, self.input),
            (usage.output, self.output),
            (usage.cache_read, self.cache_read),
            (usage.cache_write, self.cache_write),
        ];
        let millionths = parts
            .iter()
            .map(|(tokens, price)| u128::from(*tokens) * u128::from(price.0))
            .sum::<u128>();
        // A part of a millionth counts as one, so that rounding never lets a prompt exceed its cost limit.
        Cost(u64::try_from(millionths.div_ceil(1_000_000)).unwrap_or(u64::MAX))
    }
}

/// Time to sleep: the time slept, and the reservation for the wait under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Sleep {
    slept: Duration,
    reserved: Duration,
}

impl Sleep {
    fn reserve(&mut self, wait: Duration) {
        self.settle(self.reserved);
        self.reserved = wait;
    }

    fn settle(&mut self, slept: Duration) {
        self.slept = self.slept.saturating_add(slept.min(self.reserved));
        self.reserved = Duration::ZERO;
    }

    fn committed(&self) -> Duration {
        self.slept.saturating_add(self.reserved)
    }
}

/// The spending of one retry chain. A chain that ends, well or badly, leaves a new one behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chain {
    retries: u32,
    schedule_index: u32,
    sleep: Sleep,
    /// The retries that earlier models of the chain had.
    #[serde(default, skip_serializing_if = "is_zero")]
    elsewhere: u32,
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

impl Chain {
    /// Returns the number of retries started, those without a wait included.
    pub const fn retries(&self) -> u32 {
        self.retries
    }

    /// Returns the number of them that the model in use had.
    pub const fn retries_on_current_model(&self) -> u32 {
        self.retries.saturating_sub(self.elsewhere)
    }

    /// Returns the number of them that earlier models had.
    pub const fn retries_on_previous_models(&self) -> u32 {
        self.elsewhere
    }

    /// Returns the position in the schedule. A switch without a wait leaves it unchanged.
    pub const fn schedule_index(&self) -> u32 {
        self.schedule_index
    }

    /// Returns the sleep that is spent or reserved.
    pub fn scheduled_sleep(&self) -> Duration {
        self.sleep.committed()
    }

    /// Returns whether any retry has been started.
    pub const fn is_open(&self) -> bool {
        self.retries > 0
    }

    pub(crate) fn start_wait(&mut self, wait: Duration, next_index: u32) {
        self.retries = self.retries.saturating_add(1);
        self.schedule_index = next_index;
        self.sleep.reserve(wait);
    }

    pub(crate) const fn restart_schedule(&mut self) {
        self.schedule_index = 0;
    }

    pub(crate) fn start_switch(&mut self) {
        self.retries = self.retries.saturating_add(1);
    }

    /// Starts a model that this chain has not asked yet, with all of its retries; time slept stays spent.
    pub(crate) fn start_model(&mut self) {
        self.elsewhere = self.retries;
        self.schedule_index = 0;
    }

    pub(crate) fn end_wait(&mut self, slept: Duration) {
        self.sleep.settle(slept);
    }
}

/// The budget of a prompt's whole execution, created by the outermost caller and handed down.
///
/// ```
/// use outlast_kernel::Timestamp;
/// use outlast_kernel::budget::{Cost, Limits, Prompt};
/// use std::time::Duration;
///
/// let mut budget = Prompt::new(Limits { sleep: Some(Duration::from_secs(60)), ..Limits::default() });
/// budget.reserve_sleep(Duration::from_secs(40));
/// budget.settle_sleep(Duration::from_secs(10)); // woken early: thirty seconds come back
/// assert_eq!(budget.sleep_left(), Some(Duration::from_secs(50)));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prompt {
    limits: Limits,
    sleep: Sleep,
    cost: Cost,
}

/// The limits of a prompt; `None` means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// The deadline.
    pub deadline: Option<Timestamp>,
    /// The maximum cost.
    pub cost: Option<Cost>,
    /// The maximum total sleep.
    pub sleep: Option<Duration>,
}

impl Prompt {
    /// Creates a fresh budget with these limits.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            ..Self::default()
        }
    }

    /// Returns the deadline.
    pub const fn deadline(&self) -> Option<Timestamp> {
        self.limits.deadline
    }

    /// Returns the sleep that is left; `None` when nothing limits it.
    pub fn sleep_left(&self) -> Option<Duration> {
        self.limits
            .sleep
            .map(|limit| limit.saturating_sub(self.sleep.committed()))
    }

    /// Returns whether the cost limit is reached.
    pub fn cost_limit_reached(&self) -> bool {
        self.limits.cost.is_some_and(|limit| self.cost >= limit)
    }

    /// Returns the cost so far.
    pub const fn cost(&self) -> Cost {
        self.cost
    }

    /// Records money that was spent.
    pub fn spend(&mut self, cost: Cost) {
        self.cost = Cost(self.cost.0.saturating_add(cost.0));
    }

    /// Reserves sleep for a wait that begins.
    pub fn reserve_sleep(&mut self, wait: Duration) {
        self.sleep.reserve(wait);
    }

    /// Ends the wait: the time slept is spent, the rest of the reservation comes back.
    pub fn settle_sleep(&mut self, slept: Duration) {
        self.sleep.settle(slept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn switch_counts_as_retry_but_keeps_schedule_index() {
        let mut chain = Chain::default();
        chain.start_switch();
        chain.start_wait(SECOND, 1);
        assert_eq!((chain.retries(), chain.schedule_index()), (2, 1));
    }

    #[test]
    fn cost_limit_is_reached_and_spending_saturates() {
        let mut budget = Prompt::new(Limits {
            cost: Some(Cost(100)),
            ..Limits::default()
        });
        budget.spend(Cost(99));
        assert!(!budget.cost_limit_reached());
        budget.spend(Cost(u64::MAX));
        assert!(budget.cost_limit_reached());
    }

    proptest! {
        #[test]
        fn sleep_left_decreases_by_settled_sleep(
            limit in 0_u64..10_000,
            waits in proptest::collection::vec((0_u64..1000, 0_u64..2000), 0..40),
        ) {
            let mut budget = Prompt::new(Limits { sleep: Some(Duration::from_secs(limit)), ..Limits::default() });
            let mut spent = 0;
            for (scheduled, slept) in waits {
                let before = budget.sleep_left();
                budget.reserve_sleep(Duration::from_secs(scheduled));
                budget.settle_sleep(Duration::from_secs(slept));
                spent += slept.min(scheduled);
                prop_assert!(budget.sleep_left() <= before);
                prop_assert_eq!(budget.sleep_left(), Some(Duration::from_secs(limit.saturating_sub(spent))));
            }
        }
    }
}
