//! `outlast policy`: shows the named policies as tables, JSON and pictures.

use crate::args::PolicyCommand;
use crate::commands::plot;
use crate::output::{print, print_json};
use crate::platform::exit::{Exit, UsageError};
use anyhow::Context;
use outlast_kernel::policy::{Backoff, Jitter, Policy};
use outlast_kernel::time::{Span, millis};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::time::Duration;

/// The largest number of delays that is listed; no named policy has as many.
const MAX_DELAYS: usize = 10_000;

pub(crate) fn run(command: PolicyCommand) -> anyhow::Result<Exit> {
    match command {
        PolicyCommand::List { json: false } => print(&list(&all()?)),
        PolicyCommand::List { json: true } => {
            print_json(&all()?.iter().map(as_json).collect::<Value>())
        }
        PolicyCommand::Show { name, json, plot } => {
            let policy = named(&name)?;
            if let Some(path) = plot {
                let svg = plot::policy(&policy).context("cannot draw the policy")?;
                std::fs::write(&path, svg)
                    .with_context(|| format!("--plot: cannot write {}", path.display()))?;
            }
            match json {
                true => print_json(&as_json(&policy)),
                false => print(&show(&policy)),
            }
        }
    }
}

fn named(name: &str) -> Result<Policy, UsageError> {
    Policy::named(name).map_err(|error| UsageError(error.to_string()))
}

fn all() -> Result<Vec<Policy>, UsageError> {
    Policy::NAMES.into_iter().map(named).collect()
}

/// Returns every nominal delay of a policy.
pub(crate) fn delays(policy: &Policy) -> Vec<Duration> {
    policy.delays(MAX_DELAYS)
}

fn list(policies: &[Policy]) -> String {
    let mut text = format!(
        "{:<13} {:>7}  {:>9}  {}\n",
        "policy", "retries", "waits", "delays"
    );
    for policy in policies {
        let delays = delays(policy);
        let total: Duration = delays.iter().sum();
        let waits = if delays.is_empty() {
            "-".to_owned()
        } else {
            Span(total).to_string()
        };
        // Writing to a string cannot fail.
        writeln!(
            text,
            "{:<13} {:>7}  {waits:>9}  {}",
            policy.name,
            delays.len(),
            describe_schedule(policy)
        )
        .ok();
    }
    text
}

fn show(policy: &Policy) -> String {
    let delays = delays(policy);
    let retries = match delays.len() {
        0 => "no retry".to_owned(),
        1 => "1 retry".to_owned(),
        n => format!("{n} retries"),
    };
    let mut text = format!(
        "{}: {retries}\n{}\n\n",
        policy.name,
        describe_schedule(policy)
    );
    let mut total = Duration::ZERO;
    if !delays.is_empty() {
        text.push_str("retry   delay   slept in all\n");
    }
    for (index, delay) in delays.iter().enumerate() {
        total += *delay;
        let (delay, total) = (Span(*delay).to_string(), Span(total).to_string());
        writeln!(text, "{:>5}  {delay:>6}   {total:>12}", index + 1).ok();
    }
    let end = if delays.is_empty() {
        "gives up at the first failure".to_owned()
    } else {
        format!(
            "gives up when retry {} fails, after {} of waiting",
            delays.len(),
            Span(total)
        )
    };
    let stated = match (
        policy.max_stated_wait.or(policy.sleep_budget),
        delays.is_empty(),
    ) {
        (Some(wait), false) => format!(
            "\naccepts a wait that the server states up to {}",
            Span(wait)
        ),
        _ => String::new(),
    };
    writeln!(
        text,
        "{}{end}{stated}",
        if delays.is_empty() { "" } else { "\n" }
    )
    .ok();
    text
}

/// Describes the schedule of a policy in words.
fn describe_schedule(policy: &Policy) -> String {
    if policy.retries() == Some(0) {
        return "never tries again".to_owned();
    }
    let backoff = match &policy.backoff {
        Backoff::Fixed { delay } => format!("{} each", Span(*delay)),
        Backoff::Linear { base } => format!("{} more each time", Span(*base)),
        Backoff::Exponential { base, factor } => format!("{}, then × {factor}", Span(*base)),
        Backoff::Stepped { steps } => {
            let steps: Vec<String> = steps.iter().map(|step| Span(*step).to_string()).collect();
            format!("{}, then the last again", steps.join(" "))
        }
    };
    let jitter = match policy.jitter {
        Jitter::None => "",
        Jitter::Full => ", spread from 0 to the delay",
        Jitter::Equal => ", spread over its upper half",
        Jitter::Short => ", delays up to 2s shortened by up to a quarter",
    };
    let cap = policy
        .max_delay
        .map_or(String::new(), |cap| format!(", at most {}", Span(cap)));
    let budget = policy
        .sleep_budget
        .map_or(String::new(), |budget| format!(", {} in all", Span(budget)));
    format!("{backoff}{cap}{budget}{jitter}")
}

fn as_json(policy: &Policy) -> Value {
    let delays = delays(policy);
    let total: Duration = delays.iter().sum();
    let delays_ms: Vec<u64> = delays.iter().map(|delay| millis(*delay)).collect();
    let optional = |duration: Option<Duration>| duration.map(millis);
    json!({
        "name": policy.name,
        "delays_ms": delays_ms,
        "total_ms": millis(total),
        "retries": delays.len(),
        "max_attempts": policy.max_attempts,
        "max_delay_ms": optional(policy.max_delay),
        "jitter": policy.jitter,
        "sleep_budget_ms": optional(policy.sleep_budget),
        "longest_stated_wait_ms": optional(policy.max_stated_wait.or(policy.sleep_budget)),
        "schedule": describe_schedule(policy),
    })
}
