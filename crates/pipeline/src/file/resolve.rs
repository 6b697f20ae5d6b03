//! Names of steps, looked up: who needs whom, who leads to whom, and who can never begin.
//!
//! Invariant: what comes out names only steps that are there, and its needs have no circle, unless a fault was noted.

use super::document::Fallback;
use super::fault_log::FaultLog;
use super::step::{Draft, ReferenceKind, StepReference};
use super::words::{AGENTS, unknown_name};
use super::{SourceSpan, printable};
use crate::definition::{OUTPUT, Step, Work};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::num::NonZeroU32;

/// How deep loops can lie inside of each other: as deep as mappings can.
const MAX_LOOP_DEPTH: usize = 64;

/// How many steps of a circle are named.
const MAX_NAMED_STEPS: usize = 12;

/// Needs of each step, as indices, with where the file says so.
type Needs = Vec<Vec<Need>>;

/// A step that is needed, and where the file says so.
#[derive(Clone, Copy)]
struct Need {
    step: usize,
    span: SourceSpan,
}

/// The steps with all names looked up.
pub(super) fn resolve_steps(
    drafts: Vec<Draft>,
    fallbacks: &[Fallback],
    log: &FaultLog<'_>,
) -> Vec<Step> {
    let names = Lookup::new(&drafts, log);
    for draft in &drafts {
        for mention in &draft.references {
            names.check(draft, mention);
        }
    }
    let mut needs = names.needs();
    names.propagate_through_loops(&mut needs);
    reject_cycles("need", &drafts, &needs, log);
    reject_cycles("make good for", &drafts, &names.reworks(), log);
    reject_unknown_agents(&drafts, fallbacks, log);
    let called = names.on_demand_steps();
    let visits: Vec<_> = (0..drafts.len())
        .map(|step| names.max_visits(step))
        .collect();
    let ids: Vec<String> = drafts.iter().map(|draft| draft.step.id.clone()).collect();
    let settle = |(at, draft): (usize, Draft)| Step {
        needs: needs[at]
            .iter()
            .map(|need| ids[need.step].clone())
            .collect(),
        max_visits: visits[at],
        is_on_demand: called.contains(&at),
        ..draft.step
    };
    drafts.into_iter().enumerate().map(settle).collect()
}

/// The steps, by their names.
struct Lookup<'a> {
    drafts: &'a [Draft],
    log: &'a FaultLog<'a>,
    by_name: HashMap<&'a str, usize>,
    /// The loop that each step is part of, which stands before it.
    parents: Vec<Option<usize>>,
}

impl<'a> Lookup<'a> {
    fn new(drafts: &'a [Draft], log: &'a FaultLog<'a>) -> Self {
        let mut by_name = HashMap::new();
        for (at, draft) in drafts.iter().enumerate() {
            let id = draft.step.id.as_str();
            if let Some(other) = by_name.get(id) {
                let other: &Draft = &drafts[*other];
                let message = format!(
                    "there is a step `{id}` already, in line {}",
                    other.span.line
                );
                log.fault(draft.span, message);
            } else if !id.is_empty() {
                by_name.insert(id, at);
            }
        }
        let parent = |draft: &Draft| by_name.get(draft.step.parent_loop.as_deref()?).copied();
        Self {
            parents: drafts.iter().map(parent).collect(),
            drafts,
            log,
            by_name,
        }
    }

    fn get(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// Notes a name that nothing stands behind.
    fn check(&self, draft: &Draft, mention: &StepReference) {
        let (name, place) = (&mention.name, mention.span);
        let Some(at) = self.get(name) else {
            // What was meant is not looked for when nobody will read it.
            let all = self.by_name.keys().copied().filter(|_| !self.log.is_full());
            self.log.fault(place, unknown_name("step", name, all));
            return;
        };
        match &mention.kind {
            ReferenceKind::Input { artifact, .. } => {
                let outputs = &self.drafts[self.output_producer(at)].step.outputs;
                let mut names = outputs.iter().map(|output| output.name.as_str());
                if artifact != OUTPUT && !names.any(|name| name == artifact) {
                    let names = outputs.iter().map(|output| output.name.as_str());
                    let what = format!("output of `{}` called", printable(name));
                    self.log
                        .fault(place, unknown_name(&what, artifact, names.chain([OUTPUT])));
                }
            }
            ReferenceKind::Rework if *name == draft.step.id => {
                self.log.fault(place, "a step cannot make good for itself");
            }
            ReferenceKind::Need | ReferenceKind::Target | ReferenceKind::Rework => {}
        }
    }

    /// Who makes what a step is known for: the last step of a loop.
    fn output_producer(&self, mut at: usize) -> usize {
        for _ in 0..MAX_LOOP_DEPTH {
            let Work::Loop(it) = &self.drafts[at].step.work else {
                break;
            };
            match it.steps.last().and_then(|last| self.get(last)) {
                Some(last) => at = last,
                None => break,
            }
        }
        at
    }

    /// The loops around a step, from the inside out.
    fn loops_around(&self, step: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(self.parents[step], |at| self.parents[*at])
    }

    /// What is waited for when a step needs another: that, or the loop around it that the first one is not in.
    fn effective_need(&self, step: usize, other: usize) -> usize {
        let is_mine = |at: &usize| *at == step || self.loops_around(step).any(|mine| mine == *at);
        let foreign = self.loops_around(other).take_while(|at| !is_mine(at));
        foreign.last().unwrap_or(other)
    }

    /// Which step makes good for each; that one does so for itself is noted elsewhere.
    fn reworks(&self) -> Needs {
        let rework = |mention: &StepReference| {
            let step = self.get(&mention.name)?;
            let span = mention.span;
            (mention.kind == ReferenceKind::Rework).then_some(Need { step, span })
        };
        let steps = self.drafts.iter().enumerate();
        steps
            .map(|(at, draft)| {
                let reworks = draft.references.iter().filter_map(rework);
                reworks.filter(|by| by.step != at).collect()
            })
            .collect()
    }

    /// What each step needs by its own words.
    fn needs(&self) -> Needs {
        let mut needs = Needs::new();
        for (step, draft) in self.drafts.iter().enumerate() {
            let mut own = Vec::new();
            let mut known = HashSet::new();
            for mention in draft.references.iter().filter(|mention| mention.is_need()) {
                let other = self.get(&mention.name);
                let other = other.map(|other| self.effective_need(step, other));
                if let Some(step) = other.filter(|other| known.insert(*other)) {
                    let span = mention.span;
                    own.push(Need { step, span });
                }
            }
            needs.push(own);
        }
        needs
    }

    /// What a loop needs, its first steps need; the loop itself needs its steps.
    fn propagate_through_loops(&self, needs: &mut Needs) {
        let mut parts = vec![Vec::new(); self.drafts.len()];
        for (step, parent) in self.parents.iter().enumerate() {
            if let Some(parent) = parent {
                parts[*parent].push(step);
            }
        }
        // A loop comes before those inside of it, so that what it needs gets to the innermost.
        for (at, parts) in parts.into_iter().enumerate() {
            if parts.is_empty() {
                continue;
            }
            let own = std::mem::take(&mut needs[at]);
            for part in &parts {
                let is_inside = |need: &Need| self.parents[need.step] == Some(at);
                if !needs[*part].iter().any(is_inside) {
                    add_all(&mut needs[*part], &own);
                }
            }
            let span = self.drafts[at].span;
            needs[at] = parts.into_iter().map(|step| Need { step, span }).collect();
        }
    }

    /// How often a step may be visited: at least as often as the loops around it, and itself, may run.
    fn max_visits(&self, step: usize) -> NonZeroU32 {
        let around = std::iter::once(step).chain(self.loops_around(step));
        let times = around.filter_map(|at| match &self.drafts[at].step.work {
            Work::Loop(it) => Some(it.max_iterations),
            _ => None,
        });
        let least = times.fold(NonZeroU32::MIN, NonZeroU32::saturating_mul);
        self.drafts[step].step.max_visits.max(least)
    }

    /// The steps that begin only when something leads to them; one to which nothing does is noted.
    fn on_demand_steps(&self) -> HashSet<usize> {
        let mut called = HashSet::new();
        let mut led_back_to = HashSet::new();
        for (at, draft) in self.drafts.iter().enumerate() {
            for mention in &draft.references {
                let Some(other) = self.get(&mention.name) else {
                    continue;
                };
                match mention.kind {
                    ReferenceKind::Rework => called.insert(other),
                    ReferenceKind::Target if at < other => called.insert(other),
                    ReferenceKind::Target => led_back_to.insert(other),
                    ReferenceKind::Need | ReferenceKind::Input { .. } => false,
                };
            }
        }
        for (at, draft) in self.drafts.iter().enumerate() {
            if draft.is_rework_only && called.insert(at) && !led_back_to.contains(&at) {
                let message = "this step can never begin: it is `rework_only`, and no other names it as `rework_step`";
                self.log.fault(draft.span, message);
            }
        }
        called
    }
}

fn add_all(needs: &mut Vec<Need>, more: &[Need]) {
    let known: HashSet<usize> = needs.iter().map(|need| need.step).collect();
    needs.extend(more.iter().filter(|need| !known.contains(&need.step)));
}

/// Notes agents that are to take another's place and are not known.
fn reject_unknown_agents(drafts: &[Draft], fallbacks: &[Fallback], log: &FaultLog<'_>) {
    let used = drafts.iter().filter_map(|draft| match &draft.step.work {
        Work::Agent(agent) => Some(agent.name.as_str()),
        _ => None,
    });
    let agents: BTreeSet<&str> = used.chain(AGENTS).collect();
    for fallback in fallbacks {
        let name = fallback.replacement.as_str();
        if agents.contains(fallback.original.as_str()) && !agents.contains(name) {
            let message = unknown_name("agent", name, agents.iter().copied());
            log.fault(fallback.span, message);
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum VisitState {
    New,
    /// On the way that is being walked.
    OnPath,
    Done,
}

/// Notes every circle in the needs, or in what is like them, at the need that closes it.
fn reject_cycles(what: &str, drafts: &[Draft], needs: &Needs, log: &FaultLog<'_>) {
    let mut marks = vec![VisitState::New; needs.len()];
    for start in 0..needs.len() {
        if marks[start] != VisitState::New {
            continue;
        }
        // A walk with its own stack: a thousand steps in a row are no deeper than one.
        let mut way = vec![(start, 0)];
        marks[start] = VisitState::OnPath;
        while let Some((step, next)) = way.last_mut() {
            let Some(need) = needs[*step].get(*next) else {
                marks[*step] = VisitState::Done;
                way.pop();
                continue;
            };
            *next += 1;
            match marks[need.step] {
                VisitState::New => {
                    marks[need.step] = VisitState::OnPath;
                    way.push((need.step, 0));
                }
                VisitState::OnPath => {
                    let from = way.iter().position(|(step, _)| *step == need.step);
                    let circle = way[from.unwrap_or(0)..].iter().map(|(step, _)| *step);
                    report_cycle(what, circle, drafts, need.span, log);
                }
                VisitState::Done => {}
            }
        }
    }
}

fn report_cycle(
    what: &str,
    circle: impl Iterator<Item = usize>,
    drafts: &[Draft],
    place: SourceSpan,
    log: &FaultLog<'_>,
) {
    let circle: Vec<usize> = circle.collect();
    let name = |step: &usize| printable(&drafts[*step].step.id);
    let mut names: Vec<String> = circle.iter().take(MAX_NAMED_STEPS).map(name).collect();
    if circle.len() > MAX_NAMED_STEPS {
        names.push("…".to_owned());
    }
    names.extend(circle.first().map(name));
    log.fault(
        place,
        format!("steps {what} each other in a circle: {}", names.join(" → ")),
    );
}
