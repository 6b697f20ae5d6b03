//! The eight named policies and their numbers, which are a contract.

use super::{Backoff, Error, Jitter, Policy, Switches};
use std::num::NonZeroU32;
use std::time::Duration;

/// The longest stated wait that a person in front of the session still waits for; the policy reports a longer one and
/// stops.
const SESSION_STATED_WAIT: Duration = Duration::from_secs(300);

const OVERNIGHT_STEPS: [u64; 8] = [5, 10, 30, 60, 300, 600, 900, 1800];
/// The first steps of `gateway`, in milliseconds.
const QUICK_STEPS_MS: [u64; 3] = [500, 1000, 2000];

impl Policy {
    /// The names of all policies, in the order of the documentation.
    pub const NAMES: [&str; 8] = [
        "none",
        "standard",
        "aggressive",
        "patient",
        "conservative",
        "session",
        "overnight",
        "gateway",
    ];

    /// Returns the policy with that name.
    pub fn named(name: &str) -> Result<Self, Error> {
        Ok(match name {
            "none" => Self::none(),
            "standard" => Self::standard(),
            "aggressive" => Self::aggressive(),
            "patient" => Self::patient(),
            "conservative" => Self::conservative(),
            "session" => Self::session(),
            "overnight" => Self::overnight(),
            "gateway" => Self::gateway(),
            _ => {
                return Err(Error::UnknownName {
                    name: crate::text::bounded(name, 64).into_owned(),
                });
            }
        })
    }

    /// Returns the policy with one attempt and no retry.
    pub fn none() -> Self {
        Self {
            may_switch: Switches::NONE,
            ..doubling("none", 1, Duration::from_secs(1), Duration::from_secs(30))
        }
    }

    /// Returns the policy with retries after 1 and 2 seconds.
    pub fn standard() -> Self {
        doubling(
            "standard",
            3,
            Duration::from_secs(1),
            Duration::from_secs(30),
        )
    }

    /// Returns the policy with four quick retries, the first after 200 milliseconds.
    pub fn aggressive() -> Self {
        doubling(
            "aggressive",
            5,
            Duration::from_millis(200),
            Duration::from_secs(30),
        )
    }

    /// Returns the policy with retries after 5 and 15 seconds.
    pub fn patient() -> Self {
        let base = Duration::from_secs(5);
        Self {
            backoff: Backoff::Exponential { base, factor: 3 },
            ..doubling("patient", 3, base, Duration::from_secs(90))
        }
    }

    /// Returns the policy with one retry after at most half a second, spread at random: the default of the library's
    /// stream helper.
    pub fn conservative() -> Self {
        Self {
            jitter: Jitter::Full,
            may_switch: Switches::NONE,
            ..doubling(
                "conservative",
                2,
                Duration::from_millis(500),
                Duration::from_secs(4),
            )
        }
    }

    /// Returns the policy for a person in front of a session: retries after 2, 4 and 8 seconds.
    pub fn session() -> Self {
        Self {
            max_delay: None,
            max_stated_wait: Some(SESSION_STATED_WAIT),
            ..doubling("session", 4, Duration::from_secs(2), SESSION_STATED_WAIT)
        }
    }

    /// Returns the policy for unattended work: from 5 seconds to half an hour between retries, eight hours in all.
    pub fn overnight() -> Self {
        Self {
            name: "overnight".to_owned(),
            backoff: Backoff::Stepped {
                steps: OVERNIGHT_STEPS.map(Duration::from_secs).to_vec(),
            },
            max_delay: None,
            jitter: Jitter::None,
            max_attempts: None,
            sleep_budget: Some(Duration::from_secs(8 * 3600)),
            max_stated_wait: None,
            wait_for_reset: false,
            may_switch: Switches::ALL,
            quick_retries: false,
        }
    }

    /// Returns the policy of the gateway: as quick as the SDKs of its clients at first, then as patient as `overnight`.
    pub fn gateway() -> Self {
        let quick = QUICK_STEPS_MS.map(Duration::from_millis);
        let long = OVERNIGHT_STEPS.map(Duration::from_secs);
        Self {
            name: "gateway".to_owned(),
            backoff: Backoff::Stepped {
                steps: quick.into_iter().chain(long).collect(),
            },
            jitter: Jitter::Short,
            quick_retries: true,
            ..Self::overnight()
        }
    }
}

fn doubling(name: &str, attempts: u32, base: Duration, cap: Duration) -> Policy {
    Policy {
        name: name.to_owned(),
        backoff: Backoff::Exponential { base, factor: 2 },
        max_delay: Some(cap),
        jitter: Jitter::None,
        max_attempts: NonZeroU32::new(attempts),
        sleep_budget: None,
        max_stated_wait: Some(cap),
        wait_for_reset: false,
        may_switch: Switches::ALL,
        quick_retries: false,
    }
}
