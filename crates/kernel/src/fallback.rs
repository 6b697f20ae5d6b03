//! Decides when to ask another model instead of waiting for the one in use, and when to return to an excluded one.
//!
//! Models have an order of preference; the first that is free and large enough is asked.
//! Invariants: an excluded model is not asked before its exclusion is over; every failure that excludes a model states
//! an end to the exclusion.
//! Not here: the list of models (see the engine's `target`).

use crate::Timestamp;
use crate::budget::Chain;
use crate::verdict::{Authority, Cause, Class, Verdict};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The shortest exclusion, so that two models never alternate without a pause.
const MIN_COOLDOWN: Duration = Duration::from_secs(1);

/// A condition for asking another model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The model is overloaded, unreachable or fails by itself, again and again.
    Overload,
    /// A plan's window is used up for longer than the accepted wait.
    UsageLimit,
    /// It can never succeed there: a refused key, no credit, no such model, a request that the model does not take.
    HardError,
    /// The model or a filter refused.
    Refusal,
    /// The conversation does not fit.
    Overflow,
}

impl Condition {
    /// All conditions.
    pub const ALL: [Self; 5] = [
        Self::Overload,
        Self::UsageLimit,
        Self::HardError,
        Self::Refusal,
        Self::Overflow,
    ];

    /// Returns the name of the condition.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Overload => "overload",
            Self::UsageLimit => "usage_limit",
            Self::HardError => "hard_error",
            Self::Refusal => "refusal",
            Self::Overflow => "overflow",
        }
    }

    /// Returns the condition of a failure, if it is one. An invalid completion is no condition: the model gets a
    /// notice.
    pub fn from_verdict(verdict: &Verdict) -> Option<Self> {
        Some(match verdict.cause {
            Cause::UsageLimit => Self::UsageLimit,
            // Another model would not do better here.
            Cause::EmptyOutput | Cause::CommandFailed => return None,
            Cause::ContextOverflow => Self::Overflow,
            Cause::ContentFilter => Self::Refusal,
            Cause::Auth
            | Cause::Permission
            | Cause::Billing
            | Cause::InvalidRequest
            | Cause::ModelNotFound
            | Cause::Misconfigured
            | Cause::Unknown => Self::HardError,
            cause if cause.class() == Class::Transient => Self::Overload,
            _ => return None,
        })
    }
}

/// The rules for changing models.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// The conditions for asking another model.
    pub conditions: Vec<Condition>,
    /// The number of retries that an overloaded model has first.
    pub overload_retries: u32,
    /// The longest wait for a plan's window that is preferred to another model.
    pub max_usage_wait: Duration,
    /// The exclusion of a model when no end of its outage is stated.
    pub cooldown: Duration,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            conditions: Condition::ALL.to_vec(),
            overload_retries: 2,
            max_usage_wait: Duration::from_secs(5 * 60),
            cooldown: Duration::from_secs(5 * 60),
        }
    }
}

/// The length of an exclusion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "for", rename_all = "snake_case")]
pub enum Exclusion {
    /// Until a time.
    Until {
        /// The time at which the model is asked again.
        until: Timestamp,
    },
    /// For the rest of the turn.
    Turn,
    /// For the rest of the session, unless somebody chooses a model.
    Session,
    /// For requests of that size and above.
    Above {
        /// The number of tokens that were too many.
        tokens: u64,
    },
}

impl Rules {
    /// Returns the condition of a failure, if these rules ask another model for it.
    pub fn condition(&self, verdict: &Verdict) -> Option<Condition> {
        Condition::from_verdict(verdict).filter(|condition| self.conditions.contains(condition))
    }

    /// Returns whether the other model is asked before any wait.
    pub fn should_switch_immediately(
        &self,
        verdict: &Verdict,
        chain: &Chain,
        now: Timestamp,
    ) -> bool {
        match Condition::from_verdict(verdict) {
            Some(Condition::Overload) => chain.retries_on_current_model() >= self.overload_retries,
            Some(Condition::UsageLimit) => {
                let wait = verdict.hint.as_ref().map(|hint| hint.wait(now));
                wait.is_none_or(|wait| wait > self.max_usage_wait)
            }
            condition => condition.is_some(),
        }
    }

    /// Returns how long a model is excluded after that failure with a request of so many tokens.
    pub fn exclusion(&self, verdict: &Verdict, tokens: u64, now: Timestamp) -> Exclusion {
        match (Condition::from_verdict(verdict), verdict.cause) {
            (Some(Condition::Refusal), _) => Exclusion::Session,
            (Some(Condition::Overflow), _) => Exclusion::Above { tokens },
            // The model may well take another request.
            (_, Cause::InvalidRequest) => Exclusion::Turn,
            _ => {
                let own = now + self.cooldown.max(MIN_COOLDOWN);
                let hint = verdict.hint.as_ref();
                let stated = hint.filter(|hint| hint.authority != Authority::Guessed);
                let until = stated.map_or(own, |hint| hint.not_before.max(own));
                Exclusion::Until { until }
            }
        }
    }
}

/// The models that a session has excluded, by their keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exclusions(Vec<(String, Exclusion)>);

/// A model that could be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate<'a> {
    /// The key of the model.
    pub key: &'a str,
    /// The maximum number of tokens of a request and its completion together, where it is known.
    pub window: Option<u64>,
    /// The number of those tokens that the completion may need.
    pub output_tokens: u64,
}

/// The requirements for a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModelRequirements {
    /// The tokens of the request, by a measure that does not change with the model: a request that did not fit one
    /// model must not look smaller to the next.
    pub tokens: u64,
    /// The tokens of the request as far as they are known; not fewer.
    pub known_tokens: u64,
    /// The index of a model to skip.
    pub except: Option<usize>,
    /// A window that the model must be known to exceed.
    pub larger_than: Option<Option<u64>>,
}

impl Exclusions {
    /// Excludes a model.
    pub fn exclude(&mut self, key: &str, left: Exclusion) {
        self.0
            .retain(|(other, known)| other != key || !is_same_kind(*known, left));
        self.0.push((key.to_owned(), left));
    }

    /// Includes a model again although its time is not over, because there is no other.
    pub fn readmit(&mut self, key: &str) {
        let is_timed = |left: &Exclusion| matches!(left, Exclusion::Until { .. });
        self.0
            .retain(|(other, left)| other != key || !is_timed(left));
    }

    /// Ends the exclusions of the turn.
    pub fn end_turn(&mut self) {
        self.0.retain(|(_, left)| *left != Exclusion::Turn);
    }

    /// Ends all exclusions, because somebody has chosen a model.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns whether no exclusion applies to a request of that size.
    pub fn is_free(&self, key: &str, tokens: u64, now: Timestamp) -> bool {
        let stands_in_the_way = |left: &Exclusion| match left {
            Exclusion::Until { until } => *until > now,
            Exclusion::Turn | Exclusion::Session => true,
            Exclusion::Above { tokens: too_many } => tokens >= *too_many,
        };
        let own = self.0.iter().filter(|(other, _)| other == key);
        !own.map(|(_, left)| left).any(stands_in_the_way)
    }

    /// Returns the end of a model's exclusion, if it is known.
    pub fn excluded_until(&self, key: &str, now: Timestamp) -> Option<Timestamp> {
        let own = self.0.iter().filter(|(other, _)| other == key);
        let until = own.filter_map(|(_, left)| match left {
            Exclusion::Until { until } if *until > now => Some(*until),
            _ => None,
        });
        until.max()
    }

    /// Returns the model to change to: the first that is free and large enough, if it comes before the one in use or
    /// the one in use may not be asked.
    pub fn switch_target(
        &self,
        candidates: &[Candidate<'_>],
        in_use: usize,
        wanted: &ModelRequirements,
        now: Timestamp,
    ) -> Option<usize> {
        let best = self.first_free(candidates, wanted, now)?;
        let here = candidates.get(in_use)?;
        let is_free = self.is_free(here.key, wanted.tokens, now);
        (best < in_use || (best != in_use && !is_free)).then_some(best)
    }

    /// Returns the first candidate that is free, large enough and meets the requirements.
    pub fn first_free(
        &self,
        candidates: &[Candidate<'_>],
        wanted: &ModelRequirements,
        now: Timestamp,
    ) -> Option<usize> {
        let mut places = 0..candidates.len();
        places.find(|place| {
            let one = &candidates[*place];
            let more = wanted.larger_than;
            Some(*place) != wanted.except
                && self.is_free(one.key, wanted.tokens, now)
                && more.is_none_or(|than| is_larger_window(one.window, than))
                && self.fits(one, candidates, wanted)
        })
    }

    /// Returns whether the request and its completion fit, as far as that is known. A request that did not fit one
    /// model fits only where a larger window is known.
    fn fits(&self, one: &Candidate<'_>, all: &[Candidate<'_>], wanted: &ModelRequirements) -> bool {
        let needed = wanted.known_tokens.saturating_add(one.output_tokens);
        let is_too_small = |other: &&Candidate<'_>| {
            let is_above = |left: &Exclusion| matches!(left, Exclusion::Above { tokens } if wanted.tokens >= *tokens);
            let own = self.0.iter().filter(|(key, _)| key == other.key);
            own.map(|(_, left)| left).any(is_above)
        };
        let mut too_small = all.iter().filter(is_too_small);
        one.window.is_none_or(|window| needed <= window)
            && too_small.all(|other| is_larger_window(one.window, other.window))
    }
}

/// Returns whether one window is known to be larger than another.
fn is_larger_window(window: Option<u64>, than: Option<u64>) -> bool {
    window.is_some_and(|window| than.is_none_or(|than| window > than))
}

fn is_same_kind(one: Exclusion, other: Exclusion) -> bool {
    std::mem::discriminant(&one) == std::mem::discriminant(&other)
}

#[cfg(test)]
#[path = "fallback_tests.rs"]
mod tests;
