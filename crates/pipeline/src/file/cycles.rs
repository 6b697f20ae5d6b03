//! Circles: steps that need each other, or make good for each other.

use super::fault_log::FaultLog;
use super::resolve::Needs;
use super::step::Draft;
use super::{SourceSpan, printable};

/// How many steps of a circle are named.
const MAX_NAMED_STEPS: usize = 12;

#[derive(Clone, Copy, PartialEq, Eq)]
enum VisitState {
    New,
    /// On the way that is being walked.
    OnPath,
    Done,
}

/// Notes every circle in the needs, or in what is like them, at the need that closes it.
pub(super) fn reject_cycles(what: &str, drafts: &[Draft], needs: &Needs, log: &FaultLog<'_>) {
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
