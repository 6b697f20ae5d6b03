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
    pub routes: &'a [ModelTarget],
    /// When another one is asked.
    pub rules: Rules,
    /// The models that the session has left before.
    pub standing: Exclusions,
}

/// Which of the models is asked.
pub(super) struct ModelSelection {
    place: usize,
    keys: Vec<String>,
    /// Those that the open chain of retries has asked.
    asked: Vec<usize>,
    /// The one of them that may come back, and what it was left for.
    may_come_back: Option<(usize, Arc<ClassifiedFailure>)>,
}

impl ModelSelection {
    /// The first model, in a chain that has asked and left others before.
    pub(super) fn new(models: Option<&Models<'_>>, resume_state: &ResumeState) -> Self {
        let routes = models.map_or(&[][..], |models| models.routes);
        let keys: Vec<String> = routes.iter().map(ModelTarget::key).collect();
        let places = 0..keys.len();
        let asked = places.filter(|place| resume_state.asked.contains(&keys[*place]));
        let left = resume_state.may_come_back.as_ref();
        let may_come_back = left.and_then(|(key, judged)| {
            let place = keys.iter().position(|other| other == key)?;
            Some((place, Arc::clone(judged)))
        });
        Self {
            place: 0,
            asked: asked.collect(),
            may_come_back,
            keys,
        }
    }

    /// A call is made.
    pub(super) fn ask(&mut self) {
        if !self.asked.contains(&self.place) {
            self.asked.push(self.place);
        }
    }

    /// A chain of retries is over.
    pub(super) fn end_chain(&mut self) {
        self.asked.clear();
        self.may_come_back = None;
    }
}

impl Runner<'_> {
    /// Asks the best model that is free, and the first one again when its time has come.
    pub(super) async fn choose_model(&mut self) {
        let now = self.turn.clock.now();
        let wanted = self.wanted();
        let Some(models) = &self.turn.models else {
            return;
        };
        let (here, candidates) = (self.in_use.place, self.candidates());
        let key = candidates.get(here).map_or("", |candidate| candidate.key);
        // Who has begun an answer goes on with it; but after a restart the first model is in use, which may have been left.
        if self.kept.is_some() && models.standing.is_free(key, wanted.tokens, now) {
            return;
        }
        if let Some(better) = models.standing.better(&candidates, here, &wanted, now) {
            self.switch_model(better, None).await;
        }
    }

    /// The models that may be asked, the one in use included.
    fn candidates(&self) -> Vec<Candidate<'_>> {
        let routes = self
            .turn
            .models
            .as_ref()
            .map_or(&[][..], |models| models.routes);
        let all = self.in_use.keys.iter().zip(routes);
        all.map(|(key, route)| Candidate {
            key,
            window: route.traits.window,
            answer: route
                .max_tokens
                .map_or(DEFAULT_COMPLETION_TOKENS, u64::from),
        })
        .collect()
    }

    /// What a model is wanted for: this request, with all that is known of its size.
    fn wanted(&self) -> ModelRequirements {
        ModelRequirements {
            tokens: self.estimated_tokens(),
            known: self.size().tokens,
            ..ModelRequirements::default()
        }
    }

    /// The first that could be asked instead of the one in use. What does not fit here must be known to fit there.
    fn another(&self, condition: Condition, now: Timestamp) -> Option<usize> {
        let models = self.turn.models.as_ref()?;
        let is_overflow = condition == Condition::Overflow;
        let wanted = ModelRequirements {
            but: Some(self.in_use.place),
            more_than: is_overflow.then_some(self.turn.traits.window),
            ..self.wanted()
        };
        models.standing.first_free(&self.candidates(), &wanted, now)
    }

    /// What tokens cost at the model of that key, if it is in the list.
    pub(super) fn price_of(&self, key: &str) -> Option<Option<Price>> {
        let place = self.in_use.keys.iter().position(|other| other == key)?;
        Some(self.route(place)?.price)
    }

    fn route(&self, place: usize) -> Option<&ModelTarget> {
        self.turn.models.as_ref()?.routes.get(place)
    }

    /// The tokens of the request by the one measure that does not change with the model: what did not fit the model that
    /// was left must not look smaller from the next one.
    fn estimated_tokens(&self) -> u64 {
        token_estimate::tokens(&self.turn.request)
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
        if self.another(condition, now).is_none() {
            return;
        }
        remedies.switch.model = true;
        // Another account of the same model is nearer.
        let by_account = remedies.switch.account && verdict.scope == Scope::Credential;
        let is_final = judged.failure.retryable == Some(false);
        let at_once = is_final || rules.should_switch_immediately(verdict, self.state.chain(), now);
        remedies.model_first = at_once && !by_account;
    }

    /// Leaves the model that failed.
    pub(super) async fn abandon_model(&mut self, judged: &Arc<ClassifiedFailure>) {
        let now = self.turn.clock.now();
        let tokens = self.estimated_tokens();
        let rules = self.turn.models.as_ref().map(|models| &models.rules);
        let Some(left) = rules.map(|rules| rules.left(&judged.verdict, tokens, now)) else {
            return;
        };
        let condition = Condition::of(&judged.verdict);
        let Some(next) = condition.and_then(|condition| self.another(condition, now)) else {
            return;
        };
        let here = self.in_use.place;
        if judged.verdict.class() == Class::Transient {
            self.in_use.may_come_back = Some((here, Arc::clone(judged)));
        }
        let left = Some((left, judged.verdict.cause));
        self.switch_model(next, left).await;
    }

    /// A model that can never succeed is no reason to give up one that may come back.
    pub(super) fn can_return_to_earlier_model(&self, judged: &ClassifiedFailure) -> bool {
        let rules = self.turn.models.as_ref().map(|models| &models.rules);
        let is_hard = Some(Condition::HardError);
        let is_hard = rules.is_some_and(|rules| rules.condition(&judged.verdict) == is_hard);
        is_hard && self.in_use.may_come_back.is_some()
    }

    /// Asks that one again, by its own schedule; what it was left for is what is judged.
    pub(super) async fn go_back(
        &mut self,
        judged: &ClassifiedFailure,
    ) -> Option<Arc<ClassifiedFailure>> {
        let rules = self.turn.models.as_ref().map(|models| &models.rules)?;
        let left = rules.left(&judged.verdict, 0, self.turn.clock.now());
        let (place, earlier) = self.in_use.may_come_back.take()?;
        if let (Some(models), Some(key)) = (&mut self.turn.models, self.in_use.keys.get(place)) {
            models.standing.take_back(key);
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
        let may = self.rules.may_switch.model && rules.on.contains(&Condition::Overload);
        let now = self.turn.clock.now();
        let next = self.another(Condition::Overload, now);
        (may && next.is_some()).then_some(since + MAX_HOLD_BEFORE_SWITCH)
    }

    /// Leaves a model whose gate is closed: others have met what this turn need not meet.
    pub(super) async fn abandon_held_model(&mut self, until: Timestamp) {
        let now = self.turn.clock.now();
        let rules = self.turn.models.as_ref().map(|models| &models.rules);
        let Some(cooldown) = rules.map(|rules| rules.cooldown) else {
            return;
        };
        let until = until.max(now + cooldown);
        let cause = self.gate.as_ref().and_then(super::TurnGate::cause);
        let left = (
            Exclusion::Until { until },
            cause.unwrap_or(Cause::Overloaded),
        );
        if let Some(next) = self.another(Condition::Overload, now) {
            self.switch_model(next, Some(left)).await;
        }
    }

    /// Asks that model from here on; the other one is left for that long and for that cause.
    async fn switch_model(&mut self, place: usize, left: Option<(Exclusion, Cause)>) {
        self.update_cost();
        self.price_from_here();
        let from = self.in_use.place;
        let Some(models) = &mut self.turn.models else {
            return;
        };
        let routes = models.routes;
        let Some(route) = routes.get(place) else {
            return;
        };
        if let (Some((left, _)), Some(key)) = (left, self.in_use.keys.get(from)) {
            models.standing.leave(key, left);
        }
        let old = std::mem::replace(&mut self.turn.request.model, route.model.clone());
        self.turn.request.max_tokens = route.max_tokens;
        self.turn.provider = &*route.provider;
        self.turn.accounts = route.accounts.as_deref();
        (self.turn.price, self.turn.traits) = (route.price, route.traits);
        self.turn.request.resumable = self.turn.is_resumable();
        (self.account, self.has_new_key, self.seen) = (None, false, None);
        (self.left, self.refreshed) = (Vec::new(), Vec::new());
        (self.held_since, self.said_held) = (None, None);
        self.go_on_otherwise();
        self.in_use.place = place;
        // Who is asked has come back.
        self.in_use
            .may_come_back
            .take_if(|(left, _)| *left == place);
        let again = self.in_use.asked.contains(&place);
        step(&mut self.state, Event::ModelChanged { again });
        self.record_model_switch(from, old, left).await;
    }

    async fn record_model_switch(
        &mut self,
        from: usize,
        old: String,
        left: Option<(Exclusion, Cause)>,
    ) {
        let key = |place: usize| self.in_use.keys.get(place).cloned().unwrap_or_default();
        let model = Some(ModelSwitch {
            from: key(from),
            to: key(self.in_use.place),
            left: left.map(|(left, _)| left),
        });
        let spent = self.spent();
        self.scribe.note(Entry::Switched {
            left: None,
            model,
            spent,
        });
        self.commit().await;
        // Also of a model that an earlier turn has left.
        let now = self.turn.clock.now();
        let models = self.turn.models.as_ref().zip(self.in_use.keys.get(from));
        let until = models.and_then(|(models, key)| models.standing.excluded_until(key, now));
        self.emitter.emit(Body::ModelSwitched {
            from: old,
            to: self.turn.request.model.clone(),
            cause: left.map(|(_, cause)| cause),
            until,
        });
    }

    /// How large the request is, and how large it may be.
    pub(super) fn size(&self) -> crate::compaction::Size {
        crate::compaction::Size {
            tokens: token_estimate::known(&self.turn.request, self.seen),
            window: self.turn.traits.window,
        }
    }
}
