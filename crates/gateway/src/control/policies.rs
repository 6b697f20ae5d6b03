//! The named retry policies as data, with the delays of each, for display.

use outlast_kernel::policy::{Jitter, Policy};
use outlast_kernel::time::millis;
use schemars::JsonSchema;
use serde::Serialize;

/// Maximum number of delays that are listed; no named policy has as many.
const MAX_DELAYS: usize = 100;

/// A policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PolicyView {
    /// Its name.
    pub name: String,
    /// Calls in all, the first one included; without it the budget alone ends them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u32>,
    /// How delays are spread: `none`, `full`, `equal` or `short`.
    #[schemars(with = "String")]
    pub jitter: Jitter,
    /// The longest delay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cap_ms: Option<u64>,
    /// The most that is waited in all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget_ms: Option<u64>,
    /// The delay before each retry, before it is spread.
    pub delays_ms: Vec<u64>,
    /// Their sum.
    pub total_ms: u64,
}

/// Returns all named policies, in the order of the documentation.
pub fn all() -> Vec<PolicyView> {
    let named = Policy::NAMES.iter();
    let known = named.filter_map(|name| Policy::named(name).ok());
    known.map(|policy| PolicyView::of(&policy)).collect()
}

impl PolicyView {
    fn of(policy: &Policy) -> Self {
        let delays_ms: Vec<u64> = policy.delays(MAX_DELAYS).into_iter().map(millis).collect();
        Self {
            name: policy.name.clone(),
            attempts: policy.max_attempts.map(std::num::NonZero::get),
            jitter: policy.jitter,
            // A policy that never waits has no longest wait.
            cap_ms: policy
                .max_delay
                .filter(|_| !delays_ms.is_empty())
                .map(millis),
            budget_ms: policy.sleep_budget.map(millis),
            total_ms: delays_ms.iter().sum(),
            delays_ms,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn all_named_policies_list_every_delay() {
        let all = serde_json::to_value(all()).unwrap();
        let names: Vec<&str> = all
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, Policy::NAMES);
        assert_eq!(
            all[0],
            json!({
                "name": "none", "attempts": 1, "jitter": "none", "delays_ms": [], "total_ms": 0
            })
        );
        assert_eq!(
            all[4],
            json!({
                "name": "conservative", "attempts": 2, "jitter": "full", "cap_ms": 4000,
                "delays_ms": [500], "total_ms": 500
            })
        );
        let overnight = &all[6];
        assert_eq!(overnight["attempts"], json!(null));
        assert_eq!(overnight["budget_ms"], 28_800_000);
        assert_eq!(overnight["total_ms"], 27_105_000);
        let delays = overnight["delays_ms"].as_array().unwrap();
        assert_eq!(
            (delays.len(), &delays[0], &delays[20]),
            (21, &json!(5000), &json!(1_800_000))
        );
        let gateway = &all[7];
        assert_eq!(gateway["jitter"], "short");
        let delays = gateway["delays_ms"].as_array().unwrap();
        assert_eq!(delays[..5], [500, 1000, 2000, 5000, 10_000]);
    }
}
