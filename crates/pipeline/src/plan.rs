//! Draws a pipeline as text: the steps that can run together, their needs, and the handling of their outcomes.
//!
//! For a terminal of any width: one fact per line. Text from the file is shown on one line and cut.

use super::definition::{
    Budget, CommandLine, Condition, Contract, Edge, Gate, Loop, OnFailure, Pipeline, Retry, Rule,
    Source, Step, Target, Work,
};
use outlast_kernel::text;
use outlast_kernel::time::Span;
use std::collections::HashMap;
use std::fmt::{self, Write};

/// Maximum bytes of a text to show.
const MAX_TEXT_BYTES: usize = 60;
/// Maximum number of a policy's delays to show.
const MAX_DELAYS: usize = 8;
/// Maximum number of step names in a row.
const MAX_NAMES: usize = 12;
/// Maximum width of the column of names.
const MAX_NAME_WIDTH: usize = 24;

/// Draws the pipeline.
pub fn plan(pipeline: &Pipeline) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    if draw(pipeline, &mut out).is_err() {
        out.push('…');
    }
    out
}

fn draw(pipeline: &Pipeline, out: &mut String) -> fmt::Result {
    draw_header(pipeline, out)?;
    let layers = layers(pipeline);
    let names = pipeline.steps.iter().map(|step| step.id.chars().count());
    let width = names.max().unwrap_or(0).min(MAX_NAME_WIDTH);
    for (index, layer) in layers.iter().enumerate() {
        writeln!(out, "{} {}", if index == 0 { '┌' } else { '├' }, index + 1)?;
        for step in layer {
            draw_step(step, width, out)?;
        }
    }
    let called: Vec<_> = pipeline
        .steps
        .iter()
        .filter(|step| step.is_on_demand)
        .collect();
    if !called.is_empty() {
        writeln!(out, "├ when something leads to it")?;
        for step in called {
            draw_step(step, width, out)?;
        }
    }
    writeln!(out, "└ end")
}

fn draw_header(pipeline: &Pipeline, out: &mut String) -> fmt::Result {
    let steps = pipeline.steps.len();
    let plural = if steps == 1 { "" } else { "s" };
    let name = printable(&pipeline.name);
    let most = pipeline.runtime.max_concurrency;
    writeln!(
        out,
        "{name}: {steps} step{plural}, at most {most} at a time"
    )?;
    if let Some(description) = &pipeline.description {
        writeln!(out, "  {}", printable(description))?;
    }
    for (name, input) in &pipeline.inputs {
        match &input.default {
            Some(default) => writeln!(out, "  input {name}, by default `{}`", printable(default))?,
            None => writeln!(out, "  input {name}, must be given")?,
        }
    }
    if let Some(stall) = pipeline.runtime.stall_timeout {
        writeln!(
            out,
            "  a step that shows nothing for {} has stalled",
            Span(stall)
        )?;
    }
    let budget = budget(&pipeline.runtime.budget);
    if !budget.is_empty() {
        writeln!(out, "  ends after {}", budget.join(" or "))?;
    }
    for (name, others) in &pipeline.runtime.fallbacks {
        let others: Vec<_> = others.iter().map(|other| printable(other)).collect();
        writeln!(
            out,
            "  {} can be replaced by {}",
            printable(name),
            others.join(", ")
        )?;
    }
    Ok(())
}

fn budget(budget: &Budget) -> Vec<String> {
    let time = budget.time.map(|time| Span(time).to_string());
    let cost = budget.cost.map(|cost| {
        let dollars = (cost.0 / 1_000_000, cost.0 % 1_000_000);
        let part = format!("{:06}", dollars.1);
        let part = part.trim_end_matches('0');
        format!("${}.{part:0<2}", dollars.0)
    });
    let tokens = budget.tokens.map(|tokens| format!("{tokens} tokens"));
    [time, cost, tokens].into_iter().flatten().collect()
}

/// Groups steps by layer: each needs only steps of earlier layers; steps that begin only when called are in none.
fn layers(pipeline: &Pipeline) -> Vec<Vec<&Step>> {
    let levels = levels(&pipeline.steps);
    let mut layers = vec![Vec::new(); pipeline.steps.len()];
    for (step, level) in pipeline.steps.iter().zip(levels) {
        if !step.is_on_demand {
            layers[level].push(step);
        }
    }
    layers.retain(|layer| !layer.is_empty());
    layers
}

/// Returns the length of the longest chain of needs before each step.
fn levels(steps: &[Step]) -> Vec<usize> {
    let named = steps.iter().enumerate();
    let by_name: HashMap<&str, usize> = named.map(|(at, step)| (step.id.as_str(), at)).collect();
    let mut needed_by = vec![Vec::new(); steps.len()];
    let mut missing = vec![0_usize; steps.len()];
    for (at, step) in steps.iter().enumerate() {
        for need in step
            .needs
            .iter()
            .filter_map(|need| by_name.get(need.as_str()))
        {
            needed_by[*need].push(at);
            missing[at] += 1;
        }
    }
    let mut levels = vec![0; steps.len()];
    let mut ready: Vec<usize> = (0..steps.len()).filter(|at| missing[*at] == 0).collect();
    while let Some(at) = ready.pop() {
        for other in &needed_by[at] {
            levels[*other] = levels[*other].max(levels[at] + 1);
            missing[*other] -= 1;
            if missing[*other] == 0 {
                ready.push(*other);
            }
        }
    }
    levels
}

fn draw_step(step: &Step, width: usize, out: &mut String) -> fmt::Result {
    writeln!(
        out,
        "│ {:width$}  {}",
        printable(&step.id),
        work(&step.work)
    )?;
    for (what, words) in facts(step) {
        writeln!(out, "│ {:width$}    {what} {words}", "")?;
    }
    Ok(())
}

fn work(work: &Work) -> String {
    match work {
        Work::Prompt(prompt) => {
            let mut words = match (&prompt.provider, &prompt.model) {
                (None, None) => "prompt".to_owned(),
                (Some(one), None) | (None, Some(one)) => format!("prompt to {}", printable(one)),
                (Some(provider), Some(model)) => {
                    format!("prompt to {} of {}", printable(model), printable(provider))
                }
            };
            if prompt.tools {
                words += ", may read";
            }
            words + &allowed(&prompt.allow)
        }
        Work::Command(line) => format!("command `{}`", command(line)),
        Work::Agent(agent) => {
            let name = printable(&agent.name);
            let program = agent.program.as_ref();
            let program = program.map(|words| format!(", `{}`", printable(&words.join(" "))));
            let allowed = allowed(&agent.allow);
            format!("agent {name}{}{allowed}", program.unwrap_or_default())
        }
        Work::Gate(gate) => gate_words(gate),
        Work::Loop(it) => loop_words(it),
    }
}

fn allowed(allow: &[String]) -> String {
    let words = allow
        .iter()
        .map(|word| format!(", may {}", printable(word)));
    words.collect()
}

fn command(line: &CommandLine) -> String {
    match line {
        CommandLine::Shell(line) => printable(line),
        CommandLine::Program(words) => printable(&words.join(" ")),
    }
}

fn gate_words(gate: &Gate) -> String {
    let approval = match gate {
        Gate::Timer(time) => return format!("waits for {}", Span(*time)),
        Gate::Approval(approval) => approval,
    };
    let choices = approval.choices.iter().map(|choice| {
        let label = printable(&choice.label);
        let end = match (&choice.target, choice.is_rejection) {
            (Some(to), _) => format!(", to {}", target(to)),
            (None, true) => ", fails".to_owned(),
            (None, false) => String::new(),
        };
        format!("{} ({label}{end})", printable(&choice.key))
    });
    let choices: Vec<_> = choices.collect();
    let default = approval.default.as_ref();
    let default = default.map_or_else(
        || "fails".to_owned(),
        |key| format!("takes {}", printable(key)),
    );
    format!(
        "asks `{}`: {}; {default} after {}",
        printable(&approval.message),
        choices.join(", "),
        Span(approval.timeout)
    )
}

fn loop_words(it: &Loop) -> String {
    let steps = name_list(&it.steps);
    let until = it.until.as_ref().map(condition);
    let until = until.map_or_else(String::new, |until| format!(" until {until}"));
    format!(
        "has {steps} run again{until}, {} times at most",
        it.max_iterations
    )
}

/// Returns the facts about a step beside its work and its start.
fn facts(step: &Step) -> Vec<(&'static str, String)> {
    let is_loop = matches!(step.work, Work::Loop(_));
    let works = matches!(
        step.work,
        Work::Prompt(_) | Work::Command(_) | Work::Agent(_)
    );
    let mut facts = Vec::new();
    if !step.needs.is_empty() && !is_loop {
        facts.push(("after", name_list(&step.needs)));
    }
    if let Some(part_of) = &step.parent_loop {
        facts.push(("inside of", part_of.clone()));
    }
    if !step.inputs.is_empty() {
        let reads = step.inputs.iter();
        let reads = reads.map(|(name, source)| format!("{name} from {}", source_words(source)));
        facts.push(("reads", reads.collect::<Vec<_>>().join(", ")));
    }
    if !step.outputs.is_empty() {
        let keeps = step.outputs.iter().map(|output| {
            let path = output.path.to_string_lossy();
            format!("{} ({})", printable(&output.name), printable(&path))
        });
        facts.push(("keeps", keeps.collect::<Vec<_>>().join(", ")));
    }
    if works {
        facts.push(("tried", retry(&step.retry, step.once)));
    }
    if let Some(timeout) = step.timeout {
        facts.push(("ends", format!("after {} of work", Span(timeout))));
    }
    facts.extend(step.contracts.iter().map(|it| ("must", contract(it))));
    facts.extend(step.edges.iter().map(|edge| ("leads", edge_words(edge))));
    if let Some(words) = on_failure(&step.on_failure) {
        facts.push(("if it fails,", words));
    }
    facts
}

fn source_words(source: &Source) -> String {
    match source {
        Source::Run { name } => format!("the run's {}", printable(name)),
        Source::Step {
            step,
            artifact,
            optional,
        } => {
            let if_there = if *optional { ", if it is there" } else { "" };
            format!("{}.{}{if_there}", printable(step), printable(artifact))
        }
    }
}

fn retry(retry: &Retry, once: bool) -> String {
    let policy = &retry.policy;
    let delays = policy.delays(MAX_DELAYS + 1);
    if once || delays.is_empty() {
        return "once".to_owned();
    }
    let more = if delays.len() > MAX_DELAYS {
        " …"
    } else {
        ""
    };
    let shown = delays.iter().take(MAX_DELAYS);
    let shown: Vec<_> = shown.map(|delay| Span(*delay).to_string()).collect();
    let times = match policy.max_attempts {
        Some(most) => format!("{most} times at most"),
        None => "again and again".to_owned(),
    };
    let by_default = if retry.is_explicit { "" } else { " by default" };
    format!(
        "{times} ({policy}{by_default}, after {}{more})",
        shown.join(" ")
    )
}

fn contract(contract: &Contract) -> String {
    let of = printable(&contract.artifact);
    let words = match &contract.rule {
        Rule::JsonSchema { .. } => format!("have {of} as JSON of its schema"),
        Rule::TestSuite { command: line, .. } => format!("pass `{}`", command(line)),
        Rule::Regex { pattern, negated } => {
            let verb = if *negated { "not match" } else { "match" };
            format!("have {of} {verb} `{}`", printable(pattern))
        }
        Rule::FileExists { path, non_empty } => {
            let filled = if *non_empty {
                " with something in it"
            } else {
                ""
            };
            format!("leave `{}`{filled}", printable(&path.to_string_lossy()))
        }
        Rule::NonEmpty => format!("have something in {of}"),
        Rule::Judge(judge) => {
            let (count, percent) = (judge.criteria.len(), judge.threshold_percent);
            format!("have {of} judged good by a model: {percent} % of {count} criteria")
        }
    };
    let warns = if contract.is_warning_only {
        " (else a warning)"
    } else {
        ""
    };
    format!("{words}{warns}")
}

fn edge_words(edge: &Edge) -> String {
    let to = target(&edge.target);
    match &edge.condition {
        Condition::Always => format!("to {to}"),
        condition_of => format!("to {to} if {}", condition(condition_of)),
    }
}

fn target(target: &Target) -> String {
    match target {
        Target::Step(step) => printable(step),
        Target::Complete => "the end".to_owned(),
    }
}

fn condition(condition: &Condition) -> String {
    match condition {
        Condition::Always => "it has ended".to_owned(),
        Condition::Success => "it ended well".to_owned(),
        Condition::Failure => "it failed".to_owned(),
        Condition::Context {
            key,
            value,
            negated,
        } => {
            let not = if *negated { " not" } else { "" };
            format!("{} is{not} `{}`", printable(key), printable(value))
        }
    }
}

fn on_failure(on_failure: &OnFailure) -> Option<String> {
    Some(match on_failure {
        OnFailure::Fail => return None,
        OnFailure::Skip => "it and what needs it are left out".to_owned(),
        OnFailure::Continue => "the run goes on".to_owned(),
        OnFailure::Rework { step } => format!("{} makes good for it", printable(step)),
    })
}

/// Joins step names; of many names, counts the rest.
fn name_list(names: &[String]) -> String {
    let first: Vec<_> = names
        .iter()
        .take(MAX_NAMES)
        .map(|name| printable(name))
        .collect();
    match names.len() - first.len() {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

/// Cuts a text from the file, on one line.
fn printable(words: &str) -> String {
    let words = text::bounded(words, 8 * MAX_TEXT_BYTES);
    let clean = text::plain(&words);
    let one_line: Vec<&str> = clean.split_whitespace().collect();
    text::bounded(&one_line.join(" "), MAX_TEXT_BYTES).into_owned()
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
