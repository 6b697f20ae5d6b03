//! A file as a tree: YAML with the place of every name and value.
//!
//! A tree and not types, because types stop at the first thing that does not fit, and a person wants to know all of it.
//! Invariants: whatever the text, its depth and what its aliases repeat are bounded; a key stands once.

use super::SourceSpan;
use outlast_kernel::text;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value as Json};
use serde_saphyr::{Error, Location, Options, Spanned};
use std::fmt;

/// How deep lists and mappings may lie inside of each other.
const MAX_DEPTH: usize = 32;
/// How many aliases may lie inside of each other.
const MAX_ALIAS_DEPTH: usize = 4;
/// How many anchors a file may have, and how often it may use them.
const MAX_ALIASES: usize = 10_000;
/// How much aliases may repeat, in names, values and brackets.
const MAX_REPLAYED_EVENTS: usize = 200_000;
/// How many names and values a file may have.
const MAX_NODES: usize = 1_000_000;

/// A value, and where it is.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) span: SourceSpan,
    /// Where it begins in the text, in bytes.
    pub(super) offset: usize,
    pub(super) value: Value,
}

/// What a value is.
#[derive(Debug)]
pub(super) enum Value {
    Null,
    /// With how it is written.
    Bool(bool, String),
    /// With how it is written: `1.10` is not `1.1` where a text is meant.
    Number(Number, String),
    Text(String),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

/// A name of a mapping, and what stands under it.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) span: SourceSpan,
    pub(super) value: Node,
}

/// Reads YAML; what cannot be read is said with its place.
pub(super) fn parse(source: &str) -> Result<Node, (SourceSpan, String)> {
    let raw: RawNode = serde_saphyr::from_str_with_options(source, options())
        .map_err(|error| (error_span(&error), error_message(&error)))?;
    Ok(raw.into_node(source))
}

fn options() -> Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: MAX_DEPTH,
            flow_nesting_limit: MAX_DEPTH,
            max_aliases: MAX_ALIASES,
            max_anchors: MAX_ALIASES,
            max_nodes: MAX_NODES,
            max_events: 2 * MAX_NODES,
            max_documents: 1,
            max_merge_keys: MAX_ALIASES,
            // One anchor for the retries of a thousand steps is what anchors are for.
            enforce_alias_anchor_ratio: false,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: MAX_REPLAYED_EVENTS,
            max_replay_stack_depth: MAX_ALIAS_DEPTH,
        },
        // `y`, `no` and `on` are words.
        strict_booleans: true,
        with_snippet: false,
        non_finite_float_policy: serde_saphyr::options::NonFiniteFloatPolicy::AsString,
    }
}

impl Node {
    /// What it is, in words.
    pub(super) fn kind(&self) -> String {
        match &self.value {
            Value::Null => "nothing".to_owned(),
            Value::Bool(_, text) => format!("`{}`", super::printable(text)),
            Value::Number(_, text) => format!("the number `{}`", super::printable(text)),
            Value::Text(text) => format!("`{}`", super::printable(text)),
            Value::List(_) => "a list".to_owned(),
            Value::Map(_) => "a mapping".to_owned(),
        }
    }

    /// How a text, a number, `true` or `false` is written.
    pub(super) fn scalar(&self) -> Option<&str> {
        match &self.value {
            Value::Bool(_, text) | Value::Number(_, text) | Value::Text(text) => Some(text),
            Value::Null | Value::List(_) | Value::Map(_) => None,
        }
    }

    /// The same as JSON.
    pub(super) fn json(&self) -> Json {
        match &self.value {
            Value::Null => Json::Null,
            Value::Bool(value, _) => Json::Bool(*value),
            Value::Number(number, _) => Json::Number(number.clone()),
            Value::Text(text) => Json::String(text.clone()),
            Value::List(list) => list.iter().map(Self::json).collect(),
            Value::Map(entries) => {
                let pairs = entries.iter();
                let pairs = pairs.map(|entry| (entry.name.clone(), entry.value.json()));
                Json::Object(pairs.collect::<Map<_, _>>())
            }
        }
    }
}

/// A value as it is read, before it is known how it was written.
struct RawNode(Spanned<RawValue>);

enum RawValue {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<RawNode>),
    Map(Vec<(Spanned<String>, RawNode)>),
}

impl RawNode {
    fn into_node(self, source: &str) -> Node {
        let span = self.0.defined.span();
        let whole = |index: Option<u64>| index.and_then(|index| usize::try_from(index).ok());
        let offset = whole(span.byte_offset()).unwrap_or(0);
        let written = || {
            let end = offset.saturating_add(whole(span.byte_len()).unwrap_or(0));
            source
                .get(offset..end)
                .unwrap_or_default()
                .trim()
                .to_owned()
        };
        let value = match self.0.value {
            RawValue::Null => Value::Null,
            RawValue::Bool(value) => Value::Bool(value, written()),
            RawValue::Number(number) => Value::Number(number, written()),
            RawValue::Text(text) => Value::Text(text),
            RawValue::List(list) => {
                Value::List(list.into_iter().map(|it| it.into_node(source)).collect())
            }
            RawValue::Map(pairs) => Value::Map(
                pairs
                    .into_iter()
                    .map(|(name, value)| Entry {
                        span: span_at(name.defined),
                        name: name.value,
                        value: value.into_node(source),
                    })
                    .collect(),
            ),
        };
        Node {
            span: span_at(self.0.defined),
            offset,
            value,
        }
    }
}

impl<'de> Deserialize<'de> for RawNode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Spanned::deserialize(deserializer).map(Self)
    }
}

impl<'de> Deserialize<'de> for RawValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RawValueVisitor)
    }
}

struct RawValueVisitor;

impl<'de> Visitor<'de> for RawValueVisitor {
    type Value = RawValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<RawValue, E> {
        Ok(RawValue::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<RawValue, E> {
        Ok(RawValue::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<RawValue, E> {
        Ok(RawValue::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<RawValue, E> {
        Ok(RawValue::Number(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<RawValue, E> {
        let number = Number::from_f64(value).map(RawValue::Number);
        Ok(number.unwrap_or_else(|| RawValue::Text(value.to_string())))
    }

    fn visit_str<E>(self, value: &str) -> Result<RawValue, E> {
        Ok(RawValue::Text(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<RawValue, E> {
        Ok(RawValue::Text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<RawValue, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(RawValue::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<RawValue, A::Error> {
        let mut pairs = Vec::new();
        while let Some(pair) = entries.next_entry()? {
            pairs.push(pair);
        }
        Ok(RawValue::Map(pairs))
    }
}

fn span_at(location: Location) -> SourceSpan {
    let number = |number: u64| u32::try_from(number).unwrap_or(u32::MAX).max(1);
    SourceSpan {
        line: number(location.line()),
        column: number(location.column()),
    }
}

fn error_span(error: &Error) -> SourceSpan {
    span_at(error.location().unwrap_or(Location::UNKNOWN))
}

fn error_message(error: &Error) -> String {
    use serde_saphyr::MessageFormatter;
    use serde_saphyr::budget::BudgetBreach;
    let error = innermost(error);
    match error {
        Error::AliasReplayLimitExceeded { .. }
        | Error::AliasReplayCounterOverflow { .. }
        | Error::AliasExpansionLimitExceeded { .. }
        | Error::Budget {
            breach: BudgetBreach::Aliases { .. } | BudgetBreach::Anchors { .. },
            ..
        } => "aliases repeat too much here; write it out, or use fewer of them".to_owned(),
        Error::AliasReplayStackDepthExceeded { .. } => {
            format!("aliases lie inside of aliases more than {MAX_ALIAS_DEPTH} deep")
        }
        Error::Budget {
            breach: BudgetBreach::Depth { .. },
            ..
        } => format!("lists and mappings lie inside of each other more than {MAX_DEPTH} deep"),
        Error::MultipleDocuments { .. }
        | Error::Budget {
            breach: BudgetBreach::Documents { .. },
            ..
        } => "one file is one pipeline; remove the second `---`".to_owned(),
        Error::Budget { .. } => "the file has too many values".to_owned(),
        Error::DuplicateMappingKey { key, .. } => match key {
            Some(key) => format!("`{}` stands here twice", super::printable(key)),
            None => "the same name stands here twice".to_owned(),
        },
        Error::RecursiveReferencesRequireWeakTypes { .. } => {
            "an anchor may not hold an alias of itself".to_owned()
        }
        error => {
            let message = serde_saphyr::DefaultMessageFormatter.format_message(error);
            let message = text::plain(&message).replace(['\n', '\t'], " ");
            format!("this is not YAML: {}", text::bounded(&message, 500))
        }
    }
}

fn innermost(mut error: &Error) -> &Error {
    while let Error::AliasError { error: inner, .. } | Error::WithSnippet { error: inner, .. } =
        error
    {
        error = inner;
    }
    error
}
