//! What counts for all steps: how many at a time, the breaker, the watchdog, budgets, fallbacks.

use super::document::value;
use super::fields::{self, Fields};
use super::names::{self, BREAKER, BUDGET, CLASSES, COST, RUNTIME};
use super::{Spanned, values};
use crate::definition::{Budget, Runtime};
use outlast_kernel::breaker;
use outlast_kernel::verdict::Class;
use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Duration;

/// How many steps work at a time when the file does not say.
const DEFAULT_CONCURRENCY: NonZeroUsize = NonZeroUsize::MIN.saturating_add(9);
/// For how long a step may show nothing when the file does not say.
const DEFAULT_STALL_TIMEOUT: Duration = Duration::from_secs(1800);
/// How often the same failure may come when the file does not say.
const DEFAULT_BREAKER_LIMIT: NonZeroU32 = NonZeroU32::MIN.saturating_add(2);

/// What counts for all steps, as it was read.
pub(super) struct RuntimeSettings {
    pub(super) runtime: Runtime,
    /// What a step's timeout is by default.
    pub(super) timeout: Option<Duration>,
    /// Who takes whose place, with where it says so.
    pub(super) fallbacks: Vec<Fallback>,
}

/// One that takes the place of another.
pub(super) struct Fallback {
    pub(super) original: String,
    pub(super) replacement: Spanned<String>,
}

/// Reads it, with what counts where the file says nothing.
pub(super) fn read(top: &Fields<'_>) -> RuntimeSettings {
    let fields = top
        .get("runtime")
        .and_then(|node| Fields::new(node, &RUNTIME, top.log));
    let Some(fields) = fields else {
        return RuntimeSettings {
            runtime: Runtime {
                max_concurrency: DEFAULT_CONCURRENCY,
                circuit_breaker: breaker::Config::default(),
                stall_timeout: Some(DEFAULT_STALL_TIMEOUT),
                budget: Budget::default(),
                fallbacks: BTreeMap::new(),
            },
            timeout: None,
            fallbacks: Vec::new(),
        };
    };
    let stall =
        value(fields.parsed("stall_timeout", values::duration)).unwrap_or(DEFAULT_STALL_TIMEOUT);
    let fallbacks = fallbacks(&fields);
    let mut chains = BTreeMap::<String, Vec<String>>::new();
    for Fallback {
        original,
        replacement,
    } in &fallbacks
    {
        chains
            .entry(original.clone())
            .or_default()
            .push(replacement.value.clone());
    }
    RuntimeSettings {
        runtime: Runtime {
            max_concurrency: value(fields.count("max_concurrency")).unwrap_or(DEFAULT_CONCURRENCY),
            circuit_breaker: circuit_breaker(&fields),
            stall_timeout: (!stall.is_zero()).then_some(stall),
            budget: budget(&fields),
            fallbacks: chains,
        },
        timeout: timeout(&fields, "default_timeout_minutes"),
        fallbacks,
    }
}

/// A time limit, which can also be said in minutes under another name.
pub(super) fn timeout(fields: &Fields<'_>, in_minutes: &'static str) -> Option<Duration> {
    match fields.either("timeout", in_minutes)? {
        "timeout" => value(fields.parsed("timeout", values::positive_duration)),
        minutes => value(fields.parsed(minutes, values::minutes)),
    }
}

fn circuit_breaker(runtime: &Fields<'_>) -> breaker::Config {
    let fields = runtime
        .get("circuit_breaker")
        .and_then(|node| Fields::new(node, &BREAKER, runtime.log));
    let Some(fields) = fields else {
        return breaker::Config::default();
    };
    let limit = fields.count("limit");
    let place = limit.as_ref().map(|limit| limit.span);
    let limit = value(limit).unwrap_or(DEFAULT_BREAKER_LIMIT);
    let classes = if fields.has("tracked_classes") {
        classes(&fields)
    } else {
        vec![
            Class::Deterministic,
            Class::ContractFailure,
            Class::TestFailure,
        ]
    };
    breaker::Config::new(limit, &classes).unwrap_or_else(|error| {
        fields
            .log
            .fault(place.unwrap_or(fields.span), error.to_string());
        breaker::Config::default()
    })
}

fn classes(fields: &Fields<'_>) -> Vec<Class> {
    let mut classes = Vec::new();
    for word in fields.texts("tracked_classes", "classes") {
        let name = word.value.replace("cancelled", "canceled");
        match CLASSES.iter().find(|(known, _)| *known == name) {
            // Noted at its own place, and then left out.
            Some((_, Class::Canceled)) => {
                let message = breaker::Error::CanceledTracked.to_string();
                fields.log.fault(word.span, message);
            }
            Some((_, class)) => classes.push(*class),
            None => {
                let words = CLASSES.map(|(name, _)| name);
                let message = names::not_one_of(&word.value, &words[..5]);
                fields.log.fault(word.span, message);
            }
        }
    }
    classes
}

fn budget(runtime: &Fields<'_>) -> Budget {
    let log = runtime.log;
    let fields = runtime
        .get("budget")
        .and_then(|node| Fields::new(node, &BUDGET, log));
    let ceiling = runtime.get("cost").and_then(|node| {
        let fields = Fields::new(node, &COST, log)?;
        fields.parsed("budget_ceiling", values::dollars)
    });
    let of_budget = fields
        .as_ref()
        .and_then(|fields| fields.parsed("cost", values::dollars));
    if let (Some(_), Some(ceiling)) = (&of_budget, &ceiling) {
        let message = "`budget.cost` and `cost.budget_ceiling` mean the same; write one of them";
        log.fault(ceiling.span, message);
    }
    Budget {
        time: fields
            .as_ref()
            .and_then(|fields| value(fields.parsed("time", values::positive_duration))),
        cost: value(of_budget.or(ceiling)),
        tokens: fields.and_then(|fields| value(fields.count("tokens"))),
    }
}

fn fallbacks(runtime: &Fields<'_>) -> Vec<Fallback> {
    let what = "a mapping of agents or models to lists of those that take their place";
    let mut fallbacks = Vec::new();
    for entry in runtime.free_entries("fallbacks", what) {
        let list = fields::items(&entry.value, "agents or models", runtime.log).iter();
        let names = list.filter_map(|item| fields::text(item, runtime.log));
        fallbacks.extend(names.map(|replacement| Fallback {
            original: entry.name.clone(),
            replacement,
        }));
    }
    fallbacks
}
