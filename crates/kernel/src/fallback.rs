//! When another model is asked instead of waiting for the one in use, and when the one that was left is asked again.
//!
//! Models stand in an order of preference; the first that is free and large enough is asked. Invariants: a model that
//! was left is not asked before what it was left for is over; every failure that leaves a model names an end to that.
//! Not here: which models there are (see the engine's `route`).

use crate::Timestamp;
use crate::budget::Chain;
use crate::verdict::{Authority, Cause, Class, Verdict};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// No two models are asked in turns without a pause.
const MIN_COOLDOWN: Duration = Duration::from_secs(1);

/// What another model may be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The model is overloaded, out of reach or fails by itself, again and again.
    Overload,
    /// A plan's window is used up for longer than is waited.
    UsageLimit,
    /// It can never succeed there: a refused key, no credit, no such model, a request that it does not take.
    HardError,
    /// The model or a filter refused.
    Refusal,
    /// The conversation does not fit.
    Overflow,
}

impl Condition {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Overload,
        Self::UsageLimit,
        Self::HardError,
        Self::Refusal,
        Self::Overflow,
    ];

    /// Its word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Overload => "overload",
            Self::UsageLimit => "usage_limit",
            Self::HardError => "hard_error",
            Self::Refusal => "refusal",
            Self::Overflow => "overflow",
        }
    }

    /// The condition that a failure is, if it is one. What an answer lacks is no condition: the model is told.
    pub fn of(verdict: &Verdict) -> Option<Self> {
        Some(match verdict.cause {
            Cause::UsageLimit => Self::UsageLimit,
            // Nothing that another model would do better.
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

/// When models are changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// What another model is asked for.
    pub on: Vec<Condition>,
    /// How many retries an overloaded model has first.
    pub overload_retries: u32,
    /// The longest wait for a plan's window that is preferred to another model.
    pub usage_wait: Duration,
    /// For how long a model is left when nobody says for how long it is out.
    pub cooldown: Duration,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            on: Condition::ALL.to_vec(),
            overload_retries: 2,
            usage_wait: Duration::from_secs(5 * 60),
            cooldown: Duration::from_secs(5 * 60),
        }
    }
}

/// For how long a model is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "for", rename_all = "snake_case")]
pub enum Exclusion {
    /// Until then.
    Until {
        /// When it is asked again.
        until: Timestamp,
    },
    /// As long as the turn goes on.
    Turn,
    /// As long as the session goes on, unless somebody chooses a model.
    Session,
    /// For requests of that size and above.
    Above {
        /// The tokens that were too many.
        tokens: u64,
    },
}

impl Rules {
    /// The condition that a failure is, if another model is asked for it.
    pub fn condition(&self, verdict: &Verdict) -> Option<Condition> {
        Condition::of(verdict).filter(|condition| self.on.contains(condition))
    }

    /// Whether the other model is asked before anything is waited for.
    pub fn should_switch_immediately(
        &self,
        verdict: &Verdict,
        chain: &Chain,
        now: Timestamp,
    ) -> bool {
        match Condition::of(verdict) {
            Some(Condition::Overload) => chain.retries_on_current_model() >= self.overload_retries,
            Some(Condition::UsageLimit) => {
                let wait = verdict.hint.as_ref().map(|hint| hint.wait(now));
                wait.is_none_or(|wait| wait > self.usage_wait)
            }
            condition => condition.is_some(),
        }
    }

    /// For how long a model is left that failed like that with so many tokens.
    pub fn left(&self, verdict: &Verdict, tokens: u64, now: Timestamp) -> Exclusion {
        match (Condition::of(verdict), verdict.cause) {
            (Some(Condition::Refusal), _) => Exclusion::Session,
            (Some(Condition::Overflow), _) => Exclusion::Above { tokens },
            // Another request may well be taken.
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

/// The models that a session has left. A model is known by its key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exclusions(Vec<(String, Exclusion)>);

/// A model that could be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate<'a> {
    /// What it is known by.
    pub key: &'a str,
    /// How many tokens a request and its answer may have together, where that is known.
    pub window: Option<u64>,
    /// How many of them its answer may need.
    pub answer: u64,
}

/// What a model is wanted for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModelRequirements {
    /// The tokens of the request by a measure that does not change with the model: what did not fit one must not look
    /// smaller from the next.
    pub tokens: u64,
    /// The same as far as they are known; not fewer.
    pub known: u64,
    /// Another one than that is wanted.
    pub but: Option<usize>,
    /// One that is known to hold more than this window is wanted.
    pub more_than: Option<Option<u64>>,
}

impl Exclusions {
    /// That model is left.
    pub fn leave(&mut self, key: &str, left: Exclusion) {
        self.0
            .retain(|(other, known)| other != key || !is_same_kind(*known, left));
        self.0.push((key.to_owned(), left));
    }

    /// That model is asked again although its time is not over: there is no other.
    pub fn take_back(&mut self, key: &str) {
        let is_timed = |left: &Exclusion| matches!(left, Exclusion::Until { .. });
        self.0
            .retain(|(other, left)| other != key || !is_timed(left));
    }

    /// A turn has ended.
    pub fn end_turn(&mut self) {
        self.0.retain(|(_, left)| *left != Exclusion::Turn);
    }

    /// Somebody has chosen a model: nothing is held against any.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Whether nothing is held against it for a request of that size.
    pub fn is_free(&self, key: &str, tokens: u64, now: Timestamp) -> bool {
        let stands_in_the_way = |left: &Exclusion| match left {
            Exclusion::Until { until } => *until > now,
            Exclusion::Turn | Exclusion::Session => true,
            Exclusion::Above { tokens: too_many } => tokens >= *too_many,
        };
        let own = self.0.iter().filter(|(other, _)| other == key);
        !own.map(|(_, left)| left).any(stands_in_the_way)
    }

    /// Until when that model is left, if that is known.
    pub fn excluded_until(&self, key: &str, now: Timestamp) -> Option<Timestamp> {
        let own = self.0.iter().filter(|(other, _)| other == key);
        let until = own.filter_map(|(_, left)| match left {
            Exclusion::Until { until } if *until > now => Some(*until),
            _ => None,
        });
        until.max()
    }

    /// The model to change to: the first that is free and large enough, if it comes before the one in use or that one may
    /// not be asked.
    pub fn better(
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

    /// The first of these that is free, large enough and as it is wanted.
    pub fn first_free(
        &self,
        candidates: &[Candidate<'_>],
        wanted: &ModelRequirements,
        now: Timestamp,
    ) -> Option<usize> {
        let mut places = 0..candidates.len();
        places.find(|place| {
            let one = &candidates[*place];
            let more = wanted.more_than;
            Some(*place) != wanted.but
                && self.is_free(one.key, wanted.tokens, now)
                && more.is_none_or(|than| is_larger_window(one.window, than))
                && self.fits(one, candidates, wanted)
        })
    }

    /// Whether the request and its answer fit there, as far as that is known. What did not fit another one fits only where
    /// more is known to fit.
    fn fits(&self, one: &Candidate<'_>, all: &[Candidate<'_>], wanted: &ModelRequirements) -> bool {
        let needed = wanted.known.saturating_add(one.answer);
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

/// Whether one window is known to be larger than another.
fn is_larger_window(window: Option<u64>, than: Option<u64>) -> bool {
    window.is_some_and(|window| than.is_none_or(|than| window > than))
}

fn is_same_kind(one: Exclusion, other: Exclusion) -> bool {
    std::mem::discriminant(&one) == std::mem::discriminant(&other)
}

#[cfg(test)]
#[path = "fallback_tests.rs"]
mod tests;
