//! Tracks the tokens and the cost of all steps of a run while they are spent.

use crate::definition::Budget;
use crate::entry::Problem;
use crate::state::Run;
use outlast_engine::CancellationToken;
use outlast_kernel::budget::Cost;
use outlast_kernel::event::Usage;
use outlast_kernel::verdict::Cause;
use std::sync::atomic::{AtomicU64, Ordering};

/// The expenses of a run, and its budget.
#[derive(Debug)]
pub(crate) struct BudgetTracker {
    budget: Budget,
    tokens: AtomicU64,
    cost: AtomicU64,
    exceeded: CancellationToken,
}

impl BudgetTracker {
    pub(crate) fn new(budget: Budget, run: &Run) -> Self {
        let spent = Self {
            budget,
            tokens: AtomicU64::new(tokens(run.usage)),
            cost: AtomicU64::new(run.cost.0),
            exceeded: CancellationToken::new(),
        };
        spent.check_limits();
        spent
    }

    pub(crate) fn add(&self, usage: Usage, cost: Cost) {
        self.tokens.fetch_add(tokens(usage), Ordering::Relaxed);
        self.cost.fetch_add(cost.0, Ordering::Relaxed);
        self.check_limits();
    }

    /// Returns the rest of the cost budget, if there is one.
    pub(crate) fn cost_left(&self) -> Option<Cost> {
        let spent = self.cost.load(Ordering::Relaxed);
        self.budget
            .cost
            .map(|most| Cost(most.0.saturating_sub(spent)))
    }

    /// Resolves when a limit of the budget is reached.
    pub(crate) async fn exceeded(&self) -> Problem {
        self.exceeded.cancelled().await;
        self.exceeded_problem()
            .unwrap_or_else(|| Problem::new(Cause::CeilingReached, ""))
    }

    /// Returns the limit that is reached, if any, as a problem.
    pub(crate) fn exceeded_problem(&self) -> Option<Problem> {
        let (tokens, cost) = (
            self.tokens.load(Ordering::Relaxed),
            self.cost.load(Ordering::Relaxed),
        );
        let message = match self.budget {
            Budget {
                tokens: Some(most), ..
            } if tokens >= most => {
                format!("the run has used {tokens} tokens, and may use {most} (runtime.budget)")
            }
            Budget {
                cost: Some(most), ..
            } if cost >= most.0 => format!(
                "the run has cost {}, and may cost {} (runtime.budget)",
                dollars(Cost(cost)),
                dollars(most)
            ),
            _ => return None,
        };
        Some(Problem::new(Cause::CeilingReached, message))
    }

    fn check_limits(&self) {
        if self.exceeded_problem().is_some() {
            self.exceeded.cancel();
        }
    }
}

fn tokens(usage: Usage) -> u64 {
    usage.total_input().saturating_add(usage.output)
}

/// Writes an amount of money for a person.
fn dollars(cost: Cost) -> String {
    let cents = cost.0.div_ceil(100);
    format!("${}.{:04}", cents / 10_000, cents % 10_000)
}
