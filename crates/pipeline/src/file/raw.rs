//! A file as it is written: one type for each mapping, with the places of what may turn out to be wrong.
//!
//! serde refuses what has another shape, one fault at a time. Not here: defaults, names of steps, and what contradicts
//! itself (see `document`). A field without a value counts as left out.

use super::scalar::{
    ArtifactName, Backoff, Count, Dollars, InputSource, Name, NonEmpty, Percent, PolicyName,
    PositiveMinutes, PositiveTime, RelativePath, Scalar, Shape, StepCondition, StepName, Text,
    Time, TrackedClass, VariableName,
};
use super::{SourceSpan, yaml};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_saphyr::Spanned;
use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroU64, NonZeroUsize};

/// A field that may be left out, and its place.
pub(super) type Field<T> = Option<Spanned<T>>;
/// A list, the place of the list, and the places of its items.
pub(super) type List<T> = Spanned<Vec<Spanned<T>>>;
/// A shell's line, or a program and its arguments.
pub(super) type RawCommand = Spanned<Shape<IgnoredAny>>;

/// Returns the place of a field that is there.
pub(super) fn place<T>(field: &Field<T>) -> Option<SourceSpan> {
    field.as_ref().map(yaml::span)
}

/// Returns the items of a list that may be left out.
pub(super) fn items<T>(list: Option<List<T>>) -> impl Iterator<Item = Spanned<T>> {
    list.map_or_else(Vec::new, |list| list.value).into_iter()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawPipeline {
    pub(super) name: Option<NonEmpty>,
    pub(super) description: Option<Text>,
    pub(super) inputs: Option<BTreeMap<Name, Field<Shape<RawInput>>>>,
    pub(super) provider: Option<NonEmpty>,
    pub(super) model: Option<NonEmpty>,
    pub(super) max_step_visits: Option<Count<NonZeroU32>>,
    pub(super) runtime: Option<RawRuntime>,
    pub(super) steps: List<RawStep>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawInput {
    pub(super) description: Option<Text>,
    pub(super) default: Option<Scalar>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawRuntime {
    pub(super) max_concurrency: Option<Count<NonZeroUsize>>,
    pub(super) circuit_breaker: Option<RawBreaker>,
    pub(super) stall_timeout: Option<Time>,
    pub(super) timeout: Option<PositiveTime>,
    pub(super) default_timeout_minutes: Field<PositiveMinutes>,
    pub(super) budget: Option<RawBudget>,
    pub(super) cost: Option<RawCost>,
    pub(super) fallbacks: Option<BTreeMap<String, Vec<Spanned<Text>>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawBreaker {
    pub(super) limit: Field<Count<NonZeroU32>>,
    pub(super) tracked_classes: Option<Vec<TrackedClass>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawBudget {
    pub(super) time: Option<PositiveTime>,
    pub(super) cost: Option<Dollars>,
    pub(super) tokens: Option<Count<NonZeroU64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawCost {
    pub(super) budget_ceiling: Field<Dollars>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawStep {
    pub(super) id: Spanned<StepName>,
    #[serde(alias = "dependencies")]
    pub(super) needs: Option<List<Text>>,
    pub(super) prompt: Field<NonEmpty>,
    pub(super) command: Option<RawCommand>,
    pub(super) agent: Field<Shape<RawAgent>>,
    pub(super) gate: Field<RawGate>,
    pub(super) r#loop: Field<RawLoop>,
    pub(super) system: Field<Text>,
    pub(super) provider: Field<NonEmpty>,
    pub(super) model: Field<NonEmpty>,
    pub(super) tools: Field<bool>,
    pub(super) allow: Option<List<Text>>,
    pub(super) env: Field<BTreeMap<VariableName, Scalar>>,
    pub(super) directory: Field<RelativePath>,
    pub(super) inputs: Field<BTreeMap<Name, Spanned<InputSource>>>,
    #[serde(alias = "output_artifacts")]
    pub(super) outputs: Option<List<RawOutput>>,
    pub(super) contracts: Option<List<RawContract>>,
    pub(super) handover: Field<RawHandover>,
    pub(super) timeout: Field<PositiveTime>,
    pub(super) timeout_minutes: Field<PositiveMinutes>,
    pub(super) optional: Field<bool>,
    pub(super) once: Field<bool>,
    pub(super) retry: Field<RawRetry>,
    pub(super) on_failure: Field<FailureWord>,
    pub(super) rework_step: Field<NonEmpty>,
    #[serde(default)]
    pub(super) rework_only: bool,
    pub(super) max_visits: Option<Count<NonZeroU32>>,
    pub(super) edges: Option<List<RawEdge>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawAgent {
    pub(super) name: Spanned<NonEmpty>,
    pub(super) program: Option<List<Scalar>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawGate {
    pub(super) r#type: GateType,
    pub(super) message: Field<NonEmpty>,
    pub(super) choices: Option<List<RawChoice>>,
    pub(super) default: Field<Name>,
    pub(super) timeout: Option<PositiveTime>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum GateType {
    Approval,
    Timer,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawChoice {
    pub(super) key: Spanned<Name>,
    pub(super) label: Option<NonEmpty>,
    pub(super) target: Field<NonEmpty>,
    #[serde(default)]
    pub(super) rejects: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawLoop {
    pub(super) max_iterations: Count<NonZeroU32>,
    pub(super) until: Option<StepCondition>,
    pub(super) steps: List<RawStep>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawOutput {
    pub(super) name: Spanned<ArtifactName>,
    pub(super) path: RelativePath,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawHandover {
    pub(super) contract: Field<RawContract>,
    pub(super) contracts: Option<List<RawContract>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawContract {
    pub(super) r#type: ContractType,
    pub(super) on_failure: Option<ContractFailureWord>,
    pub(super) must_pass: Field<bool>,
    pub(super) artifact: Field<NonEmpty>,
    pub(super) schema: Field<serde_json::Value>,
    pub(super) schema_path: Field<RelativePath>,
    pub(super) command: Option<RawCommand>,
    pub(super) timeout: Field<PositiveTime>,
    pub(super) pattern: Field<NonEmpty>,
    pub(super) negated: Field<bool>,
    pub(super) path: Field<RelativePath>,
    pub(super) criteria: Option<List<Text>>,
    pub(super) threshold: Field<Percent>,
    pub(super) model: Field<NonEmpty>,
    pub(super) provider: Field<NonEmpty>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(super) enum ContractType {
    JsonSchema,
    TestSuite,
    Regex,
    FileExists,
    NonEmptyFile,
    NonEmpty,
    LlmJudge,
}

#[derive(Clone, Copy, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(super) enum ContractFailureWord {
    Fail,
    Warn,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawRetry {
    pub(super) policy: Option<PolicyName>,
    pub(super) max_attempts: Field<Count<NonZeroU32>>,
    pub(super) backoff: Option<Backoff>,
    pub(super) base_delay: Field<Time>,
    pub(super) max_delay: Option<Time>,
    pub(super) on_failure: Field<FailureWord>,
    pub(super) rework_step: Field<NonEmpty>,
}

#[derive(Clone, Copy, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(super) enum FailureWord {
    Fail,
    Skip,
    Continue,
    Rework,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawEdge {
    pub(super) target: Spanned<NonEmpty>,
    pub(super) condition: Option<StepCondition>,
}
