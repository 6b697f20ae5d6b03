//! Contracts: whether what a step has made is what it was to make, and if not, exactly what is wrong with it.
//!
//! What costs nothing is looked at first, then tests are run, and a model judges last: neither when something before has
//! failed already. Within each of the three everything is looked at, so that one round of repair can repair all of it.
//! Invariants: the message of a problem says the same of the same failure, whatever else the output says (the breaker knows
//! failures by it); violations are exact, safe to show, bounded, and at most [`MAX_VIOLATIONS`]; a contract that only warns
//! fails no attempt.
//! Not here: what the next attempt is told (see `feedback`), and whether there is one.

mod basic;
pub(crate) mod json;
mod judge;
pub(crate) mod schema;
mod suite;

pub(super) use suite::the_end;

use super::definition::{Contract, Judge, Rule, Step};
use super::entry::Problem;
use outlast_engine::{BoxFuture, CancellationToken, Clock};
use outlast_kernel::text;
use outlast_kernel::verdict::{Cause, Class};
use std::collections::BTreeMap;
use std::path::Path;

/// How many violations are told.
pub(crate) const MAX_VIOLATIONS: usize = 50;
/// The most that is kept of one violation, in bytes, but for what tests printed.
const MAX_VIOLATION_BYTES: usize = 1024;
/// The most of a message, in bytes: it is to be short, and what is beyond that tells no failures apart.
const MAX_MESSAGE_BYTES: usize = 480;

/// What is looked at, and by which means.
pub(crate) struct CheckContext<'a> {
    /// The step.
    pub(crate) step: &'a Step,
    /// What it has made by name, its output included.
    pub(crate) artifacts: &'a BTreeMap<String, Vec<u8>>,
    /// Where it has worked.
    pub(crate) directory: &'a Path,
    /// Variables for test commands.
    pub(crate) env: &'a [(String, String)],
    /// Variables of ours that they must not see.
    pub(crate) hidden_variables: &'a [String],
    /// Asks a model.
    pub(crate) ask: &'a dyn JudgeClient,
    /// Cancelled when the attempt is over.
    pub(crate) stop: &'a CancellationToken,
    /// Is told what tests print, as it comes.
    pub(crate) on_output: &'a (dyn Fn(&[u8]) + Send + Sync),
    /// What time it is.
    pub(crate) clock: &'a dyn Clock,
}

impl CheckContext<'_> {
    /// What has to be said when the attempt is over before all is looked at. Who ended it knows why.
    fn stopped() -> Problem {
        Problem::new(Cause::Interrupted, "ended while its result was checked")
    }
}

/// Asks a model.
pub(crate) trait JudgeClient: Send + Sync {
    /// What the model that judges says to that; a problem when it could not be asked.
    fn ask<'a>(
        &'a self,
        judge: &'a Judge,
        prompt: String,
    ) -> BoxFuture<'a, Result<String, Problem>>;
}

/// All contracts are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CheckOutcome {
    /// What is worth saying all the same.
    pub(crate) warnings: Vec<String>,
}

/// What was found when one contract was looked at.
#[derive(Debug, Default)]
struct Finding {
    /// What is worth saying, and breaks nothing.
    warnings: Vec<String>,
    /// How it is broken.
    broken: Option<Breach>,
}

/// How a contract is broken.
#[derive(Debug)]
struct Breach {
    cause: Cause,
    /// The same in a few words, which are the same for the same failure.
    message: String,
    /// What is wrong, one by one.
    violations: Vec<String>,
}

impl Finding {
    /// One thing is wrong.
    fn broken(cause: Cause, message: String, violation: String) -> Self {
        Self {
            warnings: Vec::new(),
            broken: Some(Breach {
                cause,
                message,
                violations: vec![violation],
            }),
        }
    }
}

/// Looks at all that a step has made. The problem says what is wrong; or why it could not be looked at, with its own cause.
pub(crate) async fn check(scene: &CheckContext<'_>) -> Result<CheckOutcome, Problem> {
    let mut findings = Findings::default();
    for cost in [CheckCost::Free, CheckCost::Time, CheckCost::Money] {
        let contracts = &scene.step.contracts;
        for contract in contracts
            .iter()
            .filter(|it| CheckCost::of(&it.rule) == cost)
        {
            findings.add(contract, look(scene, contract).await)?;
        }
        if let Some(problem) = findings.problem() {
            return Err(problem);
        }
    }
    Ok(CheckOutcome {
        warnings: findings.warnings,
    })
}

async fn look(scene: &CheckContext<'_>, contract: &Contract) -> Result<Finding, Problem> {
    match &contract.rule {
        Rule::TestSuite { command, timeout } => suite::check(scene, command, *timeout).await,
        Rule::FileExists { path, non_empty } => {
            Ok(basic::file(&scene.directory.join(path), path, *non_empty))
        }
        rule => match scene.artifacts.get(&contract.artifact) {
            Some(bytes) => look_at(scene, rule, (&contract.artifact, bytes)).await,
            None => {
                let message = format!("`{}` was not made", contract.artifact);
                Ok(Finding::broken(
                    Cause::ContractBroken,
                    message.clone(),
                    message,
                ))
            }
        },
    }
}

/// Something that a step has made, and its name.
type Artifact<'a> = (&'a str, &'a [u8]);

async fn look_at(
    scene: &CheckContext<'_>,
    rule: &Rule,
    artifact: Artifact<'_>,
) -> Result<Finding, Problem> {
    match rule {
        Rule::JsonSchema { schema } => schema::check(scene, schema, artifact).await,
        Rule::Regex { pattern, negated } => basic::expression(pattern, *negated, artifact),
        Rule::Judge(judge) => judge::check(scene, judge, artifact).await,
        Rule::NonEmpty => Ok(basic::non_empty(artifact)),
        // They are about no artifact.
        Rule::TestSuite { .. } | Rule::FileExists { .. } => Ok(Finding::default()),
    }
}

/// What it takes to look at a contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CheckCost {
    Free,
    Time,
    Money,
}

impl CheckCost {
    const fn of(rule: &Rule) -> Self {
        match rule {
            Rule::TestSuite { .. } => Self::Time,
            Rule::Judge(_) => Self::Money,
            _ => Self::Free,
        }
    }
}

/// What was found so far.
#[derive(Debug, Default)]
struct Findings {
    warnings: Vec<String>,
    broken: Vec<Breach>,
}

impl Findings {
    fn add(&mut self, contract: &Contract, found: Result<Finding, Problem>) -> Result<(), Problem> {
        let mut finding = match found {
            Ok(finding) => finding,
            Err(problem) if contract.warns && is_limited_to_contract(&problem) => {
                let warning = format!("could not be checked: {}", problem.message);
                self.warnings.push(clean(&warning, MAX_VIOLATION_BYTES));
                return Ok(());
            }
            Err(problem) => return Err(problem),
        };
        self.warnings.append(&mut finding.warnings);
        match finding.broken {
            Some(broken) if contract.warns => self.warnings.extend(at_most(broken.violations)),
            broken => self.broken.extend(broken),
        }
        Ok(())
    }

    /// All that is broken, as one problem.
    fn problem(&mut self) -> Option<Problem> {
        let cause = self.broken.iter().map(|it| it.cause).max_by_key(weight)?;
        let (mut messages, mut violations) = (Vec::new(), Vec::new());
        for broken in self.broken.drain(..) {
            messages.push(broken.message);
            violations.extend(broken.violations);
        }
        let message = clean(&messages.join("; "), MAX_MESSAGE_BYTES);
        Some(Problem {
            violations: at_most(violations),
            ..Problem::new(cause, message)
        })
    }
}

/// What says most about what to do, when several things are broken.
fn weight(cause: &Cause) -> u8 {
    match cause {
        Cause::TestsFailed => 4,
        Cause::Timeout => 3,
        Cause::MalformedOutput => 2,
        Cause::SchemaMismatch => 1,
        _ => 0,
    }
}

/// Whether nothing but this contract is the matter: the end of an attempt or of a budget ends more.
fn is_limited_to_contract(problem: &Problem) -> bool {
    !matches!(problem.class, Class::Canceled | Class::BudgetExhausted)
}

/// As many as are told, with the number of the others in place of the last.
fn at_most(mut violations: Vec<String>) -> Vec<String> {
    if violations.len() > MAX_VIOLATIONS {
        let others = violations.len() - (MAX_VIOLATIONS - 1);
        violations.truncate(MAX_VIOLATIONS - 1);
        violations.push(format!("and {others} more"));
    }
    violations
}

/// Text that may come from outside, safe to show and no longer than that.
fn clean(said: &str, limit: usize) -> String {
    let said = text::bounded(said, 4 * limit);
    let said = text::plain(&said);
    text::bounded(&text::without_secrets(&said), limit).into_owned()
}

/// A short piece of text from outside in quotes, on one line.
fn quoted(said: &str, limit: usize) -> String {
    format!("{:?}", clean(said, limit))
}

#[cfg(test)]
mod tests;
