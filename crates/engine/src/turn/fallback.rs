//! A turn and the models that it may ask.
//!
//! Invariants: the model that is asked is the first of the list that is free and large enough, unless none is; a model
//! that was left is not asked before its time, also not by the next turn; each change is written down and said.
//! Not here: when a model is left, and for how long (see the kernel's `fallback`).

use super::{ResumeState, Runner};
use crate::journal::{Entry, ModelSwitch};
use crate::target::ModelTarget;
use crate::token_estimate;
use outlast_kernel::Timestamp;
use outlast_kernel::attempt::{Event, step};
use outlast_kernel::budget::Price;
use outlast_kernel::decision::Remedies;
use outlast_kernel::event::Body;
use outlast_kernel::failure::{ClassifiedFailure, Failure, Phase};
use outlast_kernel::fallback::{
    Candidate, Condition, Exclusion, Exclusions, ModelRequirements, Rules,
};
use outlast_kernel::verdict::{Cause, Class, Scope};
use std::sync::Arc;
use std::time::Duration;

/// The room that an answer needs where nobody said how long it may be, in tokens.
const DEFAULT_COMPLETION_TOKENS: u64 = 4096;
/// For how long a call is held at a gate before another model is asked instead.
const MAX_HOLD_BEFORE_SWITCH: Duration = Duration::from_secs(10);

/// The models that a turn may ask.
#[derive(Clone)]
pub struct Models<'a> {
    /// In order of preference. The first is the one that the turn begins with, as long as nothing is held against it.
    pub targets: &'a [ModelTarget],
    /// When another one is asked.
    pub rules: Rules,
    /// The models that the session has left before.
    pub availability: Exclusions,
}

/// Which of the models is asked.
pub(super) struct ModelSelection {
    current: usize,
    keys: Vec<String>,
    /// Those that the open chain of retries has asked.
    attempted: Vec<usize>,
    /// The one of them that may come back, and what it was left for.
    recoverable: Option<(usize, Arc<ClassifiedFailure>)>,
}

impl ModelSelection {
    /// The first model, in a chain that has asked and left others before.
    pub(super) fn new(models: Option<&Models<'_>>, resume_state: &ResumeState) -> Self {
        let routes = models.map_or(&[][..], |models| models.targets);
        let keys: Vec<String> = routes.iter().map(ModelTarget::key).collect();
        let places = 0..keys.len();
        let asked = places.filter(|place| resume_state.attempted_models.contains(&keys[*place]));
        let left = resume_state.recoverable_model.as_ref();
        let recoverable = left.and_then(|(key, judged)| {
            let place = keys.iter().position(|other| other == key)?;
            Some((place, Arc::clone(judged)))
        });
        Self {
            current: 0,
            attempted: asked.collect(),
            recoverable,
            keys,
        }
    }

    /// A call is made.
    pub(super) fn mark_attempted(&mut self) {
        if !self.attempted.contains(&self.current) {
            self.attempted.push(self.current);
        }
    }

    /// A chain of retries is over.
    pub(super) fn end_chain(&mut self) {
        self.attempted.clear();
        self.recoverable = None;
    }
}

impl Runner<'_> {
    /// Asks the best model that is free, and the first one again when its time has come.
    pub(super) async fn choose_model(&mut self) {
        let now = self.turn.clock.now();
        let wanted = self.model_requirements();
        let Some(models) = &self.turn.models else {
            return;
        };
        let (here, candidates) = (self.model_selection.current, self.candidates());
        let key = candidates.get(here).map_or("", |candidate| candidate.key);
        // Who has begun an answer goes on with it; but after a restart the first model is in use, which may have been left.
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

    /// The models that may be asked, the one in use included.
    fn candidates(&self) -> Vec<Candidate<'_>> {
        let routes = self
            .turn
            .models
            .as_ref()
            .map_or(&[][..], |models| models.targets);
        let all = self.model_selection.keys.iter().zip(routes);
        all.map(|(key, route)| Candidate {
            key,
            window: route.traits.window,
            output_tokens: route
                .max_tokens
                .map_or(DEFAULT_COMPLETION_TOKENS, u64::from),
        })
        .collect()
    }

    /// What a model is wanted for: this request, with all that is known of its size.
    fn model_requirements(&self) -> ModelRequirements {
        ModelRequirements {
            tokens: self.estimated_tokens(),
            known_tokens: self.context_size().tokens,
            ..ModelRequirements::default()
        }
    }

    /// The first that could be asked instead of the one in use. What does not fit here must be known to fit there.
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

    /// What tokens cost at the model of that key, if it is in the list.
    pub(super) fn price_of(&self, key: &str) -> Option<Option<Price>> {
        let place = self
            .model_selection
            .keys
            .iter()
            .position(|other| other == key)?;
        Some(self.target(place)?.price)
    }

    fn target(&self, place: usize) -> Option<&ModelTarget> {
        self.turn.models.as_ref()?.targets.get(place)
    }

    /// The tokens of the request by the one measure that does not change with the model: what did not fit the model that
    /// was left must not look smaller from the next one.
    fn estimated_tokens(&self) -> u64 {
        token_estimate::request_tokens(&self.turn.request)
    }

    /// Whether another model could be asked after that failure, and whether before anything is waited for.
    pub(super) fn consider_models(&self, judged: &ClassifiedFailure, remedies: &mut Remedies) {
        let now = self.turn.clock.now();
        let verdict = &judged.verdict;
        let rules = self.turn.models.as_ref().map(|models| &models.rules);
        let Some((rules, condition)) =
            rules.and_then(|rules| Some((rules, rules.condition(verdict)?)))
        else {
            return;
        };
        if self.next_model(condition, now).is_none() {
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
        let rules = self.turn.models.as_ref().map(|models| &models.rules);
        let Some(left) = rules.map(|rules| rules.exclusion(&judged.verdict, tokens, now)) else {
            return;
        };
        let condition = Condition::from_verdict(&judged.verdict);
        let Some(next) = condition.and_then(|condition| self.next_model(condition, now)) else {
            return;
        };
        let here = self.model_selection.current;
        if judged.verdict.class() == Class::Transient {
            self.model_selection.recoverable = Some((here, Arc::clone(judged)));
        }
        let left = Some((left, judged.verdict.cause));
        self.switch_model(next, left).await;
    }

    /// A model that can never succeed is no reason to give up one that may come back.
    pub(super) fn can_return_to_earlier_model(&self, judged: &ClassifiedFailure) -> bool {
        let rules = self.turn.models.as_ref().map(|models| &models.rules);
        let is_hard = Some(Condition::HardError);
        let is_hard = rules.is_some_and(|rules| rules.condition(&judged.verdict) == is_hard);
        is_hard && self.model_selection.recoverable.is_some()
    }

    /// Asks that one again, by its own schedule; what it was left for is what is judged.
    pub(super) async fn return_to_earlier_model(
        &mut self,
        judged: &ClassifiedFailure,
    ) -> Option<Arc<ClassifiedFailure>> {
        let rules = self.turn.models.as_ref().map(|models| &models.rules)?;
        let left = rules.exclusion(&judged.verdict, 0, self.turn.clock.now());
        let (place, earlier) = self.model_selection.recoverable.take()?;
        if let (Some(models), Some(key)) =
            (&mut self.turn.models, self.model_selection.keys.get(place))
        {
            models.availability.readmit(key);
        }
        let left = Some((left, judged.verdict.cause));
        self.switch_model(place, left).await;
        // What it had handed on before it was left is settled.
        let phase = earlier.failure.phase.min(Phase::BeforeContent);
        let (failure, verdict) = (earlier.failure.clone(), earlier.verdict.clone());
        let failure = Failure { phase, ..failure };
        Some(Arc::new(ClassifiedFailure { failure, verdict }))
    }

    /// When a call that is held at the gate asks another model instead, if it may.
    pub(super) fn hold_switch_time(&self, since: Timestamp) -> Option<Timestamp> {
        let rules = &self.turn.models.as_ref()?.rules;
        let may = self.driver.state().rules().may_switch.model
            && rules.conditions.contains(&Condition::Overload);
        let now = self.turn.clock.now();
        let next = self.next_model(Condition::Overload, now);
        (may && next.is_some()).then_some(since + MAX_HOLD_BEFORE_SWITCH)
    }

    /// Leaves a model whose gate is closed: others have met what this turn need not meet.
    pub(super) async fn abandon_held_model(&mut self, until: Timestamp, cause: Option<Cause>) {
        let now = self.turn.clock.now();
        let rules = self.turn.models.as_ref().map(|models| &models.rules);
        let Some(cooldown) = rules.map(|rules| rules.cooldown) else {
            return;
        };
        let until = until.max(now + cooldown);
        let left = (
            Exclusion::Until { until },
            cause.unwrap_or(Cause::Overloaded),
        );
        if let Some(next) = self.next_model(Condition::Overload, now) {
            self.switch_model(next, Some(left)).await;
        }
    }

    /// Asks that model from here on; the other one is left for that long and for that cause.
    async fn switch_model(&mut self, place: usize, left: Option<(Exclusion, Cause)>) {
        self.update_cost();
        self.reset_cost_baseline();
        let from = self.model_selection.current;
        let Some(models) = &mut self.turn.models else {
            return;
        };
        let routes = models.targets;
        let Some(route) = routes.get(place) else {
            return;
        };
        if let (Some((left, _)), Some(key)) = (left, self.model_selection.keys.get(from)) {
            models.availability.exclude(key, left);
        }
        let old = std::mem::replace(&mut self.turn.request.model, route.model.clone());
        self.turn.request.max_tokens = route.max_tokens;
        self.turn.provider = &*route.provider;
        self.turn.accounts = route.accounts.as_deref();
        (self.turn.price, self.turn.traits) = (route.price, route.traits);
        self.turn.request.resumable = self.turn.is_resumable();
        self.billed_tokens = None;
        self.driver.forget_accounts();
        self.continue_by_prompt();
        self.model_selection.current = place;
        // Who is asked has come back.
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
        let key = |place: usize| {
            self.model_selection
                .keys
                .get(place)
                .cloned()
                .unwrap_or_default()
        };
        let model = Some(ModelSwitch {
            from: key(from),
            to: key(self.model_selection.current),
            left: left.map(|(left, _)| left),
        });
        let spent = self.spent();
        self.journal_writer.record(Entry::Switched {
            left: None,
            model,
            spent,
        });
        self.commit().await;
        // Also of a model that an earlier turn has left.
        let now = self.turn.clock.now();
        let models = self
            .turn
            .models
            .as_ref()
            .zip(self.model_selection.keys.get(from));
        let until = models.and_then(|(models, key)| models.availability.excluded_until(key, now));
        self.emitter.emit(Body::ModelSwitched {
            from: old,
            to: self.turn.request.model.clone(),
            cause: left.map(|(_, cause)| cause),
            until,
        });
    }

    /// How large the request is, and how large it may be.
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
