//! What the agents do about failures.

use outlast_kernel::decision::RetryRules;
use outlast_kernel::policy::{self, Backoff, Jitter, Policy, Switches};
use std::num::NonZeroU32;
use std::time::Duration;

/// A policy, with or without the gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Strategy {
    /// What it is called.
    pub name: String,
    pub(super) policy: Policy,
    pub(super) rules: RetryRules,
    pub(super) is_gated: bool,
}

impl Strategy {
    /// Each agent by this policy, for itself.
    pub fn ungated(policy: Policy) -> Self {
        let name = format!("{} alone", policy.name);
        Self::new(name, policy, false)
    }

    /// Each agent by this policy, behind one gate for all.
    pub fn gated(policy: Policy) -> Self {
        let name = format!("{} + gate", policy.name);
        Self::new(name, policy, true)
    }

    /// Each agent for itself: 1 s, doubled up to 60 s, spread from 0 to the delay, without end.
    pub fn full_jitter() -> Self {
        let policy = exponential(
            Duration::from_secs(1),
            Duration::from_secs(60),
            Jitter::Full,
        );
        Self::new("full jitter".to_owned(), policy, false)
    }

    /// What client libraries do unless told otherwise: two retries, 0.5 s doubled up to 8 s and spread over its upper
    /// half; then the agent fails, and whoever runs it starts the call again after 30 s.
    pub fn sdk_defaults() -> Self {
        let policy = Policy {
            max_attempts: NonZeroU32::new(3),
            ..exponential(
                Duration::from_millis(500),
                Duration::from_secs(8),
                Jitter::Equal,
            )
        };
        Self::new("SDK defaults".to_owned(), policy, false)
    }

    /// The four that are always compared: ours first.
    pub fn standard_set() -> Result<Vec<Self>, policy::Error> {
        let overnight = Policy::named("overnight")?;
        Ok(vec![
            Self::gated(overnight.clone()),
            Self::full_jitter(),
            Self::ungated(overnight),
            Self::sdk_defaults(),
        ])
    }

    fn new(name: String, policy: Policy, is_gated: bool) -> Self {
        let rules = RetryRules::from(&policy);
        Self {
            name,
            policy,
            rules,
            is_gated,
        }
    }
}

fn exponential(base: Duration, cap: Duration, jitter: Jitter) -> Policy {
    Policy {
        name: String::new(),
        backoff: Backoff::Exponential { base, factor: 2 },
        max_delay: Some(cap),
        jitter,
        max_attempts: None,
        sleep_budget: None,
        max_stated_wait: None,
        wait_for_reset: false,
        may_switch: Switches::NONE,
    }
}
