//! A file as a whole: the inputs of a run, what counts for all steps, and then the steps.

use super::fault_log::FaultLog;
use super::raw::{Field, RawBreaker, RawCost, place};
use super::raw::{RawBudget, RawInput, RawPipeline, RawRuntime};
use super::scalar::{PositiveMinutes, PositiveTime, Shape};
use super::step::{self, StepDefaults};
use super::{SourceSpan, resolve, yaml};
use crate::definition::{Budget, Input, Pipeline, Runtime};
use outlast_kernel::breaker;
use outlast_kernel::verdict::Class;
use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::Path;
use std::time::Duration;

/// How often a step may be visited when the file does not say.
const DEFAULT_MAX_VISITS: NonZeroU32 = NonZeroU32::MIN.saturating_add(9);
/// How many steps work at a time when the file does not say.
const DEFAULT_CONCURRENCY: NonZeroUsize = NonZeroUsize::MIN.saturating_add(9);
/// For how long a step may show nothing when the file does not say.
const DEFAULT_STALL_TIMEOUT: Duration = Duration::from_secs(1800);
/// How often the same failure may come when the file does not say.
const DEFAULT_BREAKER_LIMIT: NonZeroU32 = NonZeroU32::MIN.saturating_add(2);
/// The failures that the breaker counts when the file does not say.
const DEFAULT_TRACKED_CLASSES: [Class; 3] = [
    Class::Deterministic,
    Class::ContractFailure,
    Class::TestFailure,
];

/// One that takes the place of another.
pub(super) struct Fallback {
    pub(super) original: String,
    pub(super) replacement: String,
    pub(super) span: SourceSpan,
}

/// Makes a pipeline of what stands in a file. It is valid if no fault was noted.
pub(super) fn read(raw: RawPipeline, file: &Path, log: &FaultLog<'_>) -> Pipeline {
    let inputs = raw.inputs.unwrap_or_default().into_iter();
    let inputs = inputs
        .map(|(name, input)| (name.0, run_input(input, log)))
        .collect();
    let mut settings = raw.runtime.unwrap_or_default();
    let fallbacks = fallbacks(&mut settings);
    let timeout = timeout(
        settings.timeout.take(),
        &settings.default_timeout_minutes,
        "default_timeout_minutes",
        log,
    );
    let runtime = runtime(settings, &fallbacks, log);
    let defaults = StepDefaults {
        log,
        folder: file.parent().unwrap_or_else(|| Path::new("")),
        inputs: &inputs,
        fallbacks: &runtime.fallbacks,
        provider: raw.provider.map(|name| name.0),
        model: raw.model.map(|name| name.0),
        timeout,
        max_visits: raw
            .max_step_visits
            .map_or(DEFAULT_MAX_VISITS, |count| count.0),
    };
    let drafts = step::read_all(raw.steps, &defaults);
    let steps = resolve::resolve_steps(drafts, &fallbacks, log);
    let stem = file.file_stem().unwrap_or(file.as_os_str());
    Pipeline {
        name: raw
            .name
            .map_or_else(|| stem.to_string_lossy().into_owned(), |name| name.0),
        description: raw.description.map(|text| text.0),
        runtime,
        inputs,
        steps,
    }
}

fn run_input(input: Field<Shape<RawInput>>, log: &FaultLog<'_>) -> Input {
    let Some(input) = input else {
        return Input::default();
    };
    let span = yaml::span(&input);
    let (default, description) = match input.value {
        Shape::Text(text) => (Some(text), None),
        Shape::Plain => (Some(log.written(span).to_owned()), None),
        Shape::Map(input) => (input.default.map(|it| it.0), input.description),
        Shape::List(_) => {
            log.fault(span, "expected what it is by default, or a mapping");
            (None, None)
        }
    };
    Input {
        description: description.map(|text| text.0),
        default,
    }
}

fn fallbacks(runtime: &mut RawRuntime) -> Vec<Fallback> {
    let mut fallbacks = Vec::new();
    for (original, list) in runtime.fallbacks.take().unwrap_or_default() {
        fallbacks.extend(list.into_iter().map(|name| Fallback {
            original: original.clone(),
            span: yaml::span(&name),
            replacement: name.value.0,
        }));
    }
    fallbacks
}

fn runtime(raw: RawRuntime, fallbacks: &[Fallback], log: &FaultLog<'_>) -> Runtime {
    let stall = raw.stall_timeout.map_or(DEFAULT_STALL_TIMEOUT, |it| it.0);
    let mut chains = BTreeMap::<String, Vec<String>>::new();
    for fallback in fallbacks {
        let chain = chains.entry(fallback.original.clone()).or_default();
        chain.push(fallback.replacement.clone());
    }
    Runtime {
        max_concurrency: raw.max_concurrency.map_or(DEFAULT_CONCURRENCY, |it| it.0),
        circuit_breaker: raw
            .circuit_breaker
            .map_or_else(breaker::Config::default, |raw| circuit_breaker(raw, log)),
        stall_timeout: (!stall.is_zero()).then_some(stall),
        budget: budget(raw.budget.unwrap_or_default(), raw.cost, log),
        fallbacks: chains,
    }
}

/// A time limit, which can also be said in minutes under another name.
pub(super) fn timeout(
    timeout: Option<PositiveTime>,
    minutes: &Field<PositiveMinutes>,
    name: &str,
    log: &FaultLog<'_>,
) -> Option<Duration> {
    if let (Some(_), Some(place)) = (&timeout, place(minutes)) {
        log.same_meaning("timeout", name, place);
    }
    let minutes = minutes.as_ref().map(|minutes| minutes.value.0);
    timeout.map(|time| time.0).or(minutes)
}

fn circuit_breaker(raw: RawBreaker, log: &FaultLog<'_>) -> breaker::Config {
    let place = place(&raw.limit);
    let limit = raw.limit.map_or(DEFAULT_BREAKER_LIMIT, |it| it.value.0);
    let classes = raw.tracked_classes.map_or_else(
        || DEFAULT_TRACKED_CLASSES.to_vec(),
        |classes| classes.into_iter().map(|class| class.0).collect(),
    );
    breaker::Config::new(limit, &classes).unwrap_or_else(|error| {
        // Canceled is no class that can be read here, so that only the limit can be wrong.
        log.fault(place.unwrap_or(SourceSpan::START), error.to_string());
        breaker::Config::default()
    })
}

fn budget(raw: RawBudget, cost: Option<RawCost>, log: &FaultLog<'_>) -> Budget {
    let ceiling = cost.and_then(|cost| cost.budget_ceiling);
    if let (Some(_), Some(place)) = (&raw.cost, place(&ceiling)) {
        log.same_meaning("budget.cost", "cost.budget_ceiling", place);
    }
    Budget {
        time: raw.time.map(|time| time.0),
        cost: raw.cost.or(ceiling.map(|it| it.value)).map(|cost| cost.0),
        tokens: raw.tokens.map(|tokens| tokens.0.get()),
    }
}
