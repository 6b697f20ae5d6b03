//! Parsing YAML with serde: limits, places, and what to say when a file has another shape.
//!
//! Invariant: whatever the text, its depth and what its aliases repeat are bounded; a key stands once.

use super::raw::RawPipeline;
use super::{MAX_FILE_BYTES, SourceSpan, words};
use outlast_kernel::text;
use serde_saphyr::budget::BudgetBreach;
use serde_saphyr::{Error, Location, MessageFormatter, Options, Spanned};

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

/// Reads a file; what cannot be read is said with its place.
pub(super) fn parse(source: &str) -> Result<RawPipeline, (SourceSpan, String)> {
    if source.len() > MAX_FILE_BYTES {
        let message = format!("a pipeline's file may have at most {MAX_FILE_BYTES} bytes");
        return Err((SourceSpan::START, message));
    }
    serde_saphyr::from_str_with_options(source, options()).map_err(|error| {
        let place = error.location().unwrap_or(Location::UNKNOWN);
        (span_at(place), error_message(&error, source))
    })
}

pub(super) fn options() -> Options {
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

/// Returns the place of a value: where it is written, not where an alias repeats it.
pub(super) fn span<T>(value: &Spanned<T>) -> SourceSpan {
    span_at(value.defined)
}

fn span_at(location: Location) -> SourceSpan {
    let number = |number: u64| u32::try_from(number).unwrap_or(u32::MAX).max(1);
    let index = |index: Option<u64>| index.and_then(|index| usize::try_from(index).ok());
    SourceSpan {
        line: number(location.line()),
        column: number(location.column()),
        offset: index(location.span().byte_offset()).unwrap_or(0),
        len: index(location.span().byte_len()).unwrap_or(0),
    }
}

fn error_message(error: &Error, source: &str) -> String {
    let error = innermost(error);
    let place = span_at(error.location().unwrap_or(Location::UNKNOWN));
    let found = match super::printable(place.written(source)) {
        // A list or a mapping is as long as what opens it.
        written if matches!(written.as_str(), "" | "[" | "{") => String::new(),
        written => format!(", found `{written}`"),
    };
    match error {
        Error::SerdeUnknownField {
            field, expected, ..
        } => words::unknown_field(field, expected),
        Error::SerdeUnknownVariant {
            variant, expected, ..
        } => words::not_one_of(variant, expected),
        Error::SerdeMissingField { field, .. } => format!("`{field}` is missing here"),
        Error::InvalidScalar { .. } => format!("expected a whole number of at least 1{found}"),
        Error::InvalidBooleanStrict { .. } => format!("expected true or false{found}"),
        Error::Unexpected { expected, .. } => match *expected {
            "mapping start" => format!("expected a mapping{found}"),
            "sequence start" => format!("expected a list{found}"),
            _ => "expected a text".to_owned(),
        },
        Error::NullIntoString { .. } => "expected a text, found nothing".to_owned(),
        Error::Eof { .. } => "the file is empty; expected a mapping with `steps`".to_owned(),
        Error::SerdeInvalidType {
            unexpected,
            expected,
            ..
        } => format!("expected {expected}, found {unexpected}"),
        Error::Message { msg, .. } => match msg.strip_prefix("duplicate field ") {
            Some(field) => format!("{field} stands here twice, once under its other name"),
            None => msg.clone(),
        },
        error => limit_message(error).unwrap_or_else(|| {
            let message = serde_saphyr::DefaultMessageFormatter.format_message(error);
            let message = text::plain(&message).replace(['\n', '\t'], " ");
            format!("this is not YAML: {}", text::bounded(&message, 500))
        }),
    }
}

fn limit_message(error: &Error) -> Option<String> {
    Some(match error {
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
        _ => return None,
    })
}

fn innermost(mut error: &Error) -> &Error {
    while let Error::AliasError { error: inner, .. } | Error::WithSnippet { error: inner, .. } =
        error
    {
        error = inner;
    }
    error
}
