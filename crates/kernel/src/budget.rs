//! What may be spent: one account per chain of retries, one per prompt.
//!
//! Invariant: what is spent only rises. There is no way to refill a budget, so an inner layer that is handed one can
//! spend it but never mint it. A wait is reserved when it is scheduled and settled when it ends, so that a wait cut
//! short costs what was slept and no more.

use crate::Timestamp;
use crate::event::Usage;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// An amount of money, in millionths of a dollar.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Cost(pub u64);

/// What a million tokens cost.
///
/// ```
/// use outlast_kernel::budget::{Cost, Price};
/// use outlast_kernel::event::Usage;
///
/// let price = Price { input: Cost(3_000_000), output: Cost(15_000_000), ..Price::default() };
/// let usage = Usage { input: 1000, output: 100, ..Usage::default() };
/// assert_eq!(price.of(usage), Cost(4500));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Price {
    /// Read, those from the cache not counted.
    pub input: Cost,
    /// Written.
    pub output: Cost,
    /// Read from the cache.
    pub cache_read: Cost,
    /// Written to the cache.
    pub cache_write: Cost,
}

impl Price {
    /// What that usage costs.
    pub fn of(&self, usage: Usage) -> Cost {
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
        // A part of a millionth counts as one: a ceiling is never passed by rounding.
        Cost(u64::try_from(millionths.div_ceil(1_000_000)).unwrap_or(u64::MAX))
    }
}

/// Time to sleep: what was slept, and what is reserved for the wait under way.
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

/// What one chain of retries has spent. A chain that ends, well or badly, leaves a new one behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chain {
    retries: u32,
    schedule_index: u32,
    sleep: Sleep,
    /// The retries that models before this one had.
    #[serde(default, skip_serializing_if = "is_zero")]
    elsewhere: u32,
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

impl Chain {
    /// Retries started, those without a wait included.
    pub const fn retries(&self) -> u32 {
        self.retries
    }

    /// Those of them that the model in use had.
    pub const fn retries_on_current_model(&self) -> u32 {
        self.retries.saturating_sub(self.elsewhere)
    }

    /// Those that models before it had.
    pub const fn retries_on_previous_models(&self) -> u32 {
        self.elsewhere
    }

    /// How far the schedule has been used. A switch without a wait leaves it where it is.
    pub const fn schedule_index(&self) -> u32 {
        self.schedule_index
    }

    /// The sleep that is spent or reserved.
    pub fn scheduled_sleep(&self) -> Duration {
        self.sleep.committed()
    }

    /// Whether any retry has been started.
    pub const fn is_open(&self) -> bool {
        self.retries > 0
    }

    pub(crate) fn start_wait(&mut self, wait: Duration) {
        self.retries = self.retries.saturating_add(1);
        self.schedule_index = self.schedule_index.saturating_add(1);
        self.sleep.reserve(wait);
    }

    /// Goes on with a wait that was interrupted.
    pub(crate) fn resume_wait(&mut self, rest: Duration) {
        self.sleep.reserve(rest);
    }

    pub(crate) fn start_switch(&mut self) {
        self.retries = self.retries.saturating_add(1);
    }

    /// A model that this chain has not asked yet begins with all of its retries; what was slept stays slept.
    pub(crate) fn start_model(&mut self) {
        self.elsewhere = self.retries;
        self.schedule_index = 0;
    }

    pub(crate) fn end_wait(&mut self, slept: Duration) {
        self.sleep.settle(slept);
    }
}

/// What a prompt's whole execution may spend, made by the outermost caller and handed down.
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

/// The ceilings of a prompt; `None` means none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// When it must be over.
    pub deadline: Option<Timestamp>,
    /// What it may cost.
    pub cost: Option<Cost>,
    /// How long it may sleep in all.
    pub sleep: Option<Duration>,
}

impl Limits {
    fn tighter(self, other: Self) -> Self {
        Self {
            deadline: lower(self.deadline, other.deadline),
            cost: lower(self.cost, other.cost),
            sleep: lower(self.sleep, other.sleep),
        }
    }
}

fn lower<T: Ord>(a: Option<T>, b: Option<T>) -> Option<T> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (one, None) | (None, one) => one,
    }
}

impl Prompt {
    /// A fresh budget with these ceilings.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            ..Self::default()
        }
    }

    /// Lowers ceilings; a ceiling that is lower already stays.
    pub fn tighten(&mut self, limits: Limits) {
        self.limits = self.limits.tighter(limits);
    }

    /// When the prompt must be over.
    pub const fn deadline(&self) -> Option<Timestamp> {
        self.limits.deadline
    }

    /// What is left to sleep; `None` when nothing limits it.
    pub fn sleep_left(&self) -> Option<Duration> {
        self.limits
            .sleep
            .map(|limit| limit.saturating_sub(self.sleep.committed()))
    }

    /// Whether the cost ceiling is reached.
    pub fn cost_is_spent(&self) -> bool {
        self.limits.cost.is_some_and(|limit| self.cost >= limit)
    }

    /// What has been paid so far.
    pub const fn cost(&self) -> Cost {
        self.cost
    }

    /// Notes money that was spent.
    pub fn spend(&mut self, cost: Cost) {
        self.cost = Cost(self.cost.0.saturating_add(cost.0));
    }

    /// Sets sleep aside for a wait that begins.
    pub fn reserve_sleep(&mut self, wait: Duration) {
        self.sleep.reserve(wait);
    }

    /// Ends the wait: what was slept is spent, the rest of the reservation comes back.
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
    fn a_switch_counts_as_a_retry_but_not_against_the_schedule() {
        let mut chain = Chain::default();
        chain.start_switch();
        chain.start_wait(SECOND);
        assert_eq!((chain.retries(), chain.schedule_index()), (2, 1));
    }

    #[test]
    fn ceilings_can_only_be_lowered() {
        let time = Timestamp::from_millis;
        let mut budget = Prompt::new(Limits {
            deadline: Some(time(50)),
            cost: Some(Cost(5)),
            sleep: None,
        });
        budget.tighten(Limits {
            deadline: Some(time(90)),
            cost: Some(Cost(3)),
            sleep: Some(SECOND),
        });
        assert_eq!(
            budget.limits,
            Limits {
                deadline: Some(time(50)),
                cost: Some(Cost(3)),
                sleep: Some(SECOND)
            }
        );
        budget.tighten(Limits::default());
        assert_eq!(budget.limits.cost, Some(Cost(3)));
    }

    #[test]
    fn cost_is_spent_at_the_ceiling() {
        let mut budget = Prompt::new(Limits {
            cost: Some(Cost(100)),
            ..Limits::default()
        });
        budget.spend(Cost(99));
        assert!(!budget.cost_is_spent());
        budget.spend(Cost(u64::MAX));
        assert!(budget.cost_is_spent());
    }

    proptest! {
        #[test]
        fn what_is_left_to_sleep_falls_by_what_was_slept(
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
