//! Contracts: checks the result of a step, and reports exactly what is wrong with it.
//!
//! Free checks run first, then tests, then judges; a stage starts only if the one before passed, and checks all of its
//! contracts, so that one rework can repair all. Invariants: the same failure gives the same message (the breaker
//! relies on it); violations are exact, safe to show, bounded, at most [`MAX_VIOLATIONS`]; a warning contract fails no
//! attempt. Not here: feedback (`step::feedback`), retries.

mod basic;
pub(crate) mod json;
mod judge;
pub(crate) mod schema;
mod suite;

pub(super) use suite::last_lines;

use super::definition::{Contract, Judge, Rule, Step};
use super::entry::Problem;
use outlast_engine::{BoxFuture, CancellationToken, Clock};
use outlast_kernel::text;
use outlast_kernel::verdict::{Cause, Class};
use std::collections::BTreeMap;
use std::path::Path;

/// Maximum number of violations to report.
pub(crate) const MAX_VIOLATIONS: usize = 50;
/// Maximum length of a violation in bytes; the output of tests has its own limit.
const MAX_VIOLATION_BYTES: usize = 1024;
/// Maximum length of a message in bytes: text beyond it does not help to tell failures apart.
const MAX_MESSAGE_BYTES: usize = 480;

/// The result to check, and the resources for the checks.
pub(crate) struct CheckContext<'a> {
    /// The step.
    pub(crate) step: &'a Step,
    /// The artifacts of the step by name, its output included.
    pub(crate) artifacts: &'a BTreeMap<String, Vec<u8>>,
    /// The working directory of the step.
    pub(crate) directory: &'a Path,
    /// Environment variables for test commands.
    pub(crate) env: &'a [(String, String)],
    /// Variables of our own environment that test commands must not see.
    pub(crate) hidden_variables: &'a [String],
    /// The client that asks the judging model.
    pub(crate) judge_client: &'a dyn JudgeClient,
    /// Cancelled when the attempt is over.
    pub(crate) stop: &'a CancellationToken,
    /// Receives the output of tests as it arrives.
    pub(crate) on_output: &'a (dyn Fn(&[u8]) + Send + Sync),
    /// The clock.
    pub(crate) clock: &'a dyn Clock,
}

impl CheckContext<'_> {
    /// Returns the problem to report if the attempt ends before all checks are done. The caller that ended it knows
    /// why.
    fn interrupted() -> Problem {
        Problem::new(Cause::Interrupted, "ended while its result was checked")
    }
}

/// Asks a judging model.
pub(crate) trait JudgeClient: Send + Sync {
    /// Returns the completion of the judging model, or a problem if the model could not be asked.
    fn ask<'a>(
        &'a self,
        judge: &'a Judge,
        prompt: String,
    ) -> BoxFuture<'a, Result<String, Problem>>;
}

/// The result of the checks when all contracts are satisfied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CheckOutcome {
    /// Warnings that do not fail the attempt.
    pub(crate) warnings: Vec<String>,
}

/// The result of the check of one contract.
#[derive(Debug, Default)]
struct Finding {
    /// Warnings that violate nothing.
    warnings: Vec<String>,
    /// The breach, if the contract is violated.
    breach: Option<Breach>,
}

/// A breach of a contract.
#[derive(Debug)]
struct Breach {
    cause: Cause,
    /// A short message, which is the same for the same failure.
    message: String,
    /// The violations, one by one.
    violations: Vec<String>,
}

impl Finding {
    /// Creates a finding with one violation.
    fn breached(cause: Cause, message: String, violation: String) -> Self {
        Self {
            warnings: Vec::new(),
            breach: Some(Breach {
                cause,
                message,
                violations: vec![violation],
            }),
        }
    }
}

/// Checks all contracts of a step. The problem lists the violations, or states why a check was not possible, with its
/// own cause.
pub(crate) async fn check(scene: &CheckContext<'_>) -> Result<CheckOutcome, Problem> {
    let mut findings = Findings::default();
    for cost in [CheckCost::Free, CheckCost::Time, CheckCost::Money] {
        let contracts = &scene.step.contracts;
        for contract in contracts
            .iter()
            .filter(|it| CheckCost::for_rule(&it.rule) == cost)
        {
            findings.add(contract, check_contract(scene, contract).await)?;
        }
        if let Some(problem) = findings.problem() {
            return Err(problem);
        }
    }
    Ok(CheckOutcome {
        warnings: findings.warnings,
    })
}

async fn check_contract(scene: &CheckContext<'_>, contract: &Contract) -> Result<Finding, Problem> {
    match &contract.rule {
        Rule::TestSuite { command, timeout } => suite::check(scene, command, *timeout).await,
        Rule::FileExists { path, non_empty } => Ok(basic::check_file_exists(
            &scene.directory.join(path),
            path,
            *non_empty,
        )),
        rule => match scene.artifacts.get(&contract.artifact) {
            Some(bytes) => check_artifact(scene, rule, (&contract.artifact, bytes)).await,
            None => {
                let message = format!("`{}` was not made", contract.artifact);
                Ok(Finding::breached(
                    Cause::ContractBroken,
                    message.clone(),
                    message,
                ))
            }
        },
    }
}

/// The name and the content of an artifact.
type Artifact<'a> = (&'a str, &'a [u8]);

async fn check_artifact(
    scene: &CheckContext<'_>,
    rule: &Rule,
    artifact: Artifact<'_>,
) -> Result<Finding, Problem> {
    match rule {
        Rule::JsonSchema { schema } => schema::check(scene, schema, artifact).await,
        Rule::Regex { pattern, negated } => basic::check_regex(pattern, *negated, artifact),
        Rule::Judge(judge) => judge::check(scene, judge, artifact).await,
        Rule::NonEmpty => Ok(basic::check_non_empty(artifact)),
        // These rules are not about an artifact.
        Rule::TestSuite { .. } | Rule::FileExists { .. } => Ok(Finding::default()),
    }
}

/// The cost of checking a contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CheckCost {
    Free,
    Time,
    Money,
}

impl CheckCost {
    const fn for_rule(rule: &Rule) -> Self {
        match rule {
            Rule::TestSuite { .. } => Self::Time,
            Rule::Judge(_) => Self::Money,
            _ => Self::Free,
        }
    }
}

/// The findings so far.
#[derive(Debug, Default)]
struct Findings {
    warnings: Vec<String>,
    breaches: Vec<Breach>,
}

impl Findings {
    fn add(&mut self, contract: &Contract, found: Result<Finding, Problem>) -> Result<(), Problem> {
        let mut finding = match found {
            Ok(finding) => finding,
            Err(problem) if contract.is_warning_only && is_limited_to_contract(&problem) => {
                let warning = format!("could not be checked: {}", problem.message);
                self.warnings.push(sanitize(&warning, MAX_VIOLATION_BYTES));
                return Ok(());
            }
            Err(problem) => return Err(problem),
        };
        self.warnings.append(&mut finding.warnings);
        match finding.breach {
            Some(broken) if contract.is_warning_only => {
                self.warnings.extend(truncate_violations(broken.violations))
            }
            broken => self.breaches.extend(broken),
        }
        Ok(())
    }

    /// Takes all breaches, as one problem.
    fn problem(&mut self) -> Option<Problem> {
        let cause = self
            .breaches
            .iter()
            .map(|it| it.cause)
            .max_by_key(severity)?;
        let (mut messages, mut violations) = (Vec::new(), Vec::new());
        for broken in self.breaches.drain(..) {
            messages.push(broken.message);
            violations.extend(broken.violations);
        }
        let message = sanitize(&messages.join("; "), MAX_MESSAGE_BYTES);
        Some(Problem {
            violations: truncate_violations(violations),
            ..Problem::new(cause, message)
        })
    }
}

/// Ranks causes by how much they say about the repair; the highest one is reported when there are several breaches.
fn severity(cause: &Cause) -> u8 {
    match cause {
        Cause::TestsFailed => 4,
        Cause::Timeout => 3,
        Cause::MalformedOutput => 2,
        Cause::SchemaMismatch => 1,
        _ => 0,
    }
}

/// Returns whether the problem concerns only this contract: the end of an attempt or of a budget ends more than that.
fn is_limited_to_contract(problem: &Problem) -> bool {
    !matches!(problem.class, Class::Canceled | Class::BudgetExhausted)
}

/// Limits the violations to the maximum; the last one then states how many others there are.
fn truncate_violations(mut violations: Vec<String>) -> Vec<String> {
    if violations.len() > MAX_VIOLATIONS {
        let others = violations.len() - (MAX_VIOLATIONS - 1);
        violations.truncate(MAX_VIOLATIONS - 1);
        violations.push(format!("and {others} more"));
    }
    violations
}

/// Makes text from outside safe to show, and bounds it to the limit in bytes.
fn sanitize(said: &str, limit: usize) -> String {
    let said = text::bounded(said, 4 * limit);
    let said = text::plain(&said);
    text::bounded(&text::without_secrets(&said), limit).into_owned()
}

/// Quotes a short piece of text from outside on one line.
fn quoted(said: &str, limit: usize) -> String {
    format!("{:?}", sanitize(said, limit))
}

#[cfg(test)]
mod tests;
