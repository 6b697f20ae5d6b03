//! The models of a turn, and the switch from one to another.
//!
//! Invariants: the turn uses the first model of the list that is free and large enough, unless none is; a model that was
//! left is not called before its time, also not by the next turn; each switch is journaled, then emitted.
//! Not here: the conditions of a switch, and its duration (see the kernel's `fallback`).

use super::{ResumeState, Runner};
use crate::journal::{Entry, ModelSwitch};
use crate::target::ModelTarget;
use crate::token_estimate;
use outlast_kernel::Timestamp;
use outlast_kernel::attempt::{Event, step};
use outlast_kernel::budget::Price;
use outlast_kernel::decision::Remedies;
use outlast_kernel::event::Body;
use outlast_kernel::failure::{ClassifiedFailure, Phase};
use outlast_kernel::fallback::{
    Candidate, Condition, Exclusion, Exclusions, ModelRequirements, Rules,
};
use outlast_kernel::verdict::{Cause, Class, Scope};
use std::sync::Arc;
use std::time::Duration;

/// The room for a completion whose maximum length is not known, in tokens.
const DEFAULT_COMPLETION_TOKENS: u64 = 4096;
/// The time for which a call is held at a gate before the turn switches to another model.
const MAX_HOLD_BEFORE_SWITCH: Duration = Duration::from_secs(10);

/// The models that a turn may use.
#[derive(Clone)]
pub struct Models<'a> {
    /// In order of preference. The turn begins with the first, unless it is excluded.
    pub targets: &'a [ModelTarget],
    /// The conditions of a switch.
    pub rules: Rules,
    /// The models that the session has left before.
    pub availability: Exclusions,
}

/// The model in use, and those that the turn has left.
pub(super) struct ModelSelection {
    current: usize,
    keys: Vec<String>,
    /// Those that the open chain of retries has called.
    attempted: Vec<usize>,
    /// The one of them to which the turn may return, and the failure for which it was left.
    recoverable: Option<(usize, Arc<ClassifiedFailure>)>,
}

impl ModelSelection {
    /// Selects the first model, in a chain that has called and left others before.
    pub(super) fn new(models: Option<&Models<'_>>, resume_state: &ResumeState) -> Self {
        let targets = models.map_or(&[][..], |models| models.targets);
        let keys: Vec<String> = targets.iter().map(ModelTarget::key).collect();
        let places = 0..keys.len();
        let asked = places.filter(|place| resume_state.attempted_models.contains(&keys[*place]));
        let attempted = asked.collect();
        let mut selection = Self {
            current: 0,
            keys,
            attempted,
            recoverable: None,
        };
        let left = resume_state.recoverable_model.as_ref();
        selection.recoverable =
            left.and_then(|(key, judged)| Some((selection.position(key)?, Arc::clone(judged))));
        selection
    }

    fn position(&self, key: &str) -> Option<usize> {
        self.keys.iter().position(|other| other == key)
    }

    /// Records that the model in use is called.
    pub(super) fn mark_attempted(&mut self) {
        if !self.attempted.contains(&self.current) {
            self.attempted.push(self.current);
        }
    }

    /// Ends a chain of retries.
    pub(super) fn end_chain(&mut self) {
        self.attempted.clear();
        self.recoverable = None;
    }
}

impl Runner<'_> {
    /// Switches to the best model that is free; back to the first one when its time has come.
    pub(super) async fn choose_model(&mut self) {
        let now = self.turn.clock.now();
        let wanted = self.model_requirements();
        let Some(models) = &self.turn.models else {
            return;
        };
        let (here, candidates) = (self.model_selection.current, self.candidates());
        let key = candidates.get(here).map_or("", |candidate| candidate.key);
        // A model continues its own completion; but after a restart the first model is in use, which may have been left.
        if self.continuation.is_some() && models.availability.is_free(key, wanted.tokens, now) {
            return;
        }
        if let Some(better) = models
            .availability
            .switch_target(&candidates, here, &wanted, now)
        {
            self.switch_model(better, None).await;
        }
    }

    /// Returns the models that may be used, the one in use included.
    fn candidates(&self) -> Vec<Candidate<'_>> {
        let targets = self.turn.models.as_ref().map(|models| models.targets);
        let all = self.model_selection.keys.iter();
        let all = all.zip(targets.unwrap_or_default());
        all.map(|(key, target)| Candidate {
            key,
            window: target.traits.window,
            output_tokens: target
                .max_tokens
                .map_or(DEFAULT_COMPLETION_TOKENS, u64::from),
        })
        .collect()
    }

    /// Returns the requirements of this request.
    fn model_requirements(&self) -> ModelRequirements {
        ModelRequirements {
            tokens: self.estimated_tokens(),
            known_tokens: self.context_size().tokens,
            ..ModelRequirements::default()
        }
    }

    /// Returns the first model that could replace the one in use. After an overflow, it must be known to be larger.
    fn next_model(&self, condition: Condition, now: Timestamp) -> Option<usize> {
        let models = self.turn.models.as_ref()?;
        let is_overflow = condition == Condition::Overflow;
        let wanted = ModelRequirements {
            except: Some(self.model_selection.current),
            larger_than: is_overflow.then_some(self.turn.traits.window),
            ..self.model_requirements()
        };
        models
            .availability
            .first_free(&self.candidates(), &wanted, now)
    }

    /// Returns the price of the model with that key, if it is in the list.
    pub(super) fn price_of(&self, key: &str) -> Option<Option<Price>> {
        let place = self.model_selection.position(key)?;
        let target = self.turn.models.as_ref()?.targets.get(place)?;
        Some(target.price)
    }

    fn fallback_rules(&self) -> Option<&Rules> {
        self.turn.models.as_ref().map(|models| &models.rules)
    }

    /// Returns the tokens of the request by the one estimate that does not depend on the model: a request that did not fit
    /// the model that was left must not look smaller to the next one.
    fn estimated_tokens(&self) -> u64 {
        token_estimate::request_tokens(&self.turn.request)
    }

    /// Offers the remedy of another model after that failure, perhaps before any wait.
    pub(super) fn consider_models(&self, judged: &ClassifiedFailure, remedies: &mut Remedies) {
        let now = self.turn.clock.now();
        let verdict = &judged.verdict;
        let Some(rules) = self.fallback_rules() else {
            return;
        };
        let condition = rules.condition(verdict);
        let next = condition.and_then(|condition| self.next_model(condition, now));
        if next.is_none() {
            return;
        }
        remedies.switch.model = true;
        // Another account of the same model is nearer.
        let by_account = remedies.switch.account && verdict.scope == Scope::Credential;
        let is_final = judged.failure.retryable == Some(false);
        let at_once =
            is_final || rules.should_switch_immediately(verdict, self.driver.state().chain(), now);
        remedies.model_first = at_once && !by_account;
    }

    /// Leaves the model that failed.
    pub(super) async fn abandon_model(&mut self, judged: &Arc<ClassifiedFailure>) {
        let now = self.turn.clock.now();
        let tokens = self.estimated_tokens();
        let condition = Condition::from_verdict(&judged.verdict);
        let next = condition.and_then(|condition| self.next_model(condition, now));
        let (Some(rules), Some(next)) = (self.fallback_rules(), next) else {
            return;
        };
        let left = rules.exclusion(&judged.verdict, tokens, now);
        if judged.verdict.class() == Class::Transient {
            let here = self.model_selection.current;
            self.model_selection.recoverable = Some((here, Arc::clone(judged)));
        }
        let left = Some((left, judged.verdict.cause));
        self.switch_model(next, left).await;
    }

    /// Returns whether the model can never succeed while the turn may return to an earlier one.
    pub(super) fn can_return_to_earlier_model(&self, judged: &ClassifiedFailure) -> bool {
        let rules = self.fallback_rules();
        let condition = rules.and_then(|rules| rules.condition(&judged.verdict));
        condition == Some(Condition::HardError) && self.model_selection.recoverable.is_some()
    }

    /// Returns to the earlier model, by its own schedule; returns the failure for which it was left.
    pub(super) async fn return_to_earlier_model(
        &mut self,
        judged: &ClassifiedFailure,
    ) -> Option<Arc<ClassifiedFailure>> {
        let rules = self.fallback_rules()?;
        let left = rules.exclusion(&judged.verdict, 0, self.turn.clock.now());
        let (place, earlier) = self.model_selection.recoverable.take()?;
        if let (Some(models), Some(key)) =
            (&mut self.turn.models, self.model_selection.keys.get(place))
        {
            models.availability.readmit(key);
        }
        let left = Some((left, judged.verdict.cause));
        self.switch_model(place, left).await;
        let mut earlier = Arc::unwrap_or_clone(earlier);
        // Content that it had emitted before it was left is settled.
        earlier.failure.phase = earlier.failure.phase.min(Phase::BeforeContent);
        Some(Arc::new(earlier))
    }

    /// Returns the time at which a call that is held at the gate switches to another model, if it may.
    pub(super) fn hold_switch_time(&self, since: Timestamp) -> Option<Timestamp> {
        let rules = self.fallback_rules()?;
        let may = self.driver.state().rules().may_switch.model
            && rules.conditions.contains(&Condition::Overload);
        let now = self.turn.clock.now();
        let next = self.next_model(Condition::Overload, now);
        (may && next.is_some()).then_some(since + MAX_HOLD_BEFORE_SWITCH)
    }

    /// Leaves a model whose gate holds the call: other callers have met its failure already.
    pub(super) async fn abandon_held_model(&mut self, until: Timestamp, cause: Option<Cause>) {
        let now = self.turn.clock.now();
        let next = self.next_model(Condition::Overload, now);
        if let (Some(rules), Some(next)) = (self.fallback_rules(), next) {
            let until = until.max(now + rules.cooldown);
            let left = Exclusion::Until { until };
            let cause = cause.unwrap_or(Cause::Overloaded);
            self.switch_model(next, Some((left, cause))).await;
        }
    }

    /// Switches to that model; the other one is excluded for that long and for that cause.
    async fn switch_model(&mut self, place: usize, left: Option<(Exclusion, Cause)>) {
        self.update_cost();
        self.reset_cost_baseline();
        let from = self.model_selection.current;
        let Some(models) = &mut self.turn.models else {
            return;
        };
        let targets = models.targets;
        let Some(target) = targets.get(place) else {
            return;
        };
        if let (Some((left, _)), Some(key)) = (left, self.model_selection.keys.get(from)) {
            models.availability.exclude(key, left);
        }
        let old = std::mem::replace(&mut self.turn.request.model, target.model.clone());
        self.turn.request.max_tokens = target.max_tokens;
        self.turn.provider = &*target.provider;
        self.turn.accounts = target.accounts.as_deref();
        (self.turn.price, self.turn.traits) = (target.price, target.traits);
        self.turn.request.resumable = self.turn.is_resumable();
        self.billed_tokens = None;
        self.driver.forget_accounts();
        self.continue_by_prompt();
        self.model_selection.current = place;
        // The turn has returned to it.
        self.model_selection
            .recoverable
            .take_if(|(left, _)| *left == place);
        let was_used_before = self.model_selection.attempted.contains(&place);
        step(
            self.driver.state_mut(),
            Event::ModelChanged { was_used_before },
        );
        self.record_model_switch(from, old, left).await;
    }

    async fn record_model_switch(
        &mut self,
        from: usize,
        old: String,
        left: Option<(Exclusion, Cause)>,
    ) {
        let key = |place: usize| self.model_selection.keys.get(place).cloned();
        let key = |place| key(place).unwrap_or_default();
        let (from, to) = (key(from), key(self.model_selection.current));
        // Also of a model that an earlier turn has left.
        let now = self.turn.clock.now();
        let models = self.turn.models.as_ref();
        let until = models.and_then(|models| models.availability.excluded_until(&from, now));
        let left_until = left.map(|(left, _)| left);
        let spent = self.spent();
        self.journal_writer.record(Entry::Switched {
            left: None,
            model: Some(ModelSwitch {
                from,
                to,
                left: left_until,
            }),
            spent,
        });
        self.commit().await;
        self.emitter.emit(Body::ModelSwitched {
            from: old,
            to: self.turn.request.model.clone(),
            cause: left.map(|(_, cause)| cause),
            until,
        });
    }

    /// Returns the size of the request, and its limit.
    pub(super) fn context_size(&self) -> crate::compaction::Size {
        crate::compaction::Size {
            tokens: token_estimate::request_tokens_with_billing(
                &self.turn.request,
                self.billed_tokens,
            ),
            window: self.turn.traits.window,
        }
    }
}
