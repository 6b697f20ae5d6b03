//! Values that are lists: an array of texts in a file; elsewhere one text, with an entry on each line.
//!
//! Entries other than names of models may be separated by commas as well; the name of a model may hold commas.

use super::key::{closest_word, sanitized};
use super::sections::fallback_chain::ModelEntry;
use super::table::Kind;
use super::value::RawValue;
use outlast_kernel::policy::Policy;
use toml::de::DeValue;

/// The separator between the entries of a list that is one text.
pub(crate) const SEPARATOR: char = '\n';

/// Returns the checked entries of a list of the given kind, or a description of the problem.
pub(super) fn parse_entries(kind: Kind, given: RawValue<'_>) -> Result<Vec<String>, String> {
    let expected = kind.expected();
    let Some(texts) = split_entries(given, !matches!(kind, Kind::Models)) else {
        let found = match given {
            RawValue::List(_) => "something else in the list",
            given => given.type_name(),
        };
        return Err(format!("expected {expected}, found {found}"));
    };
    let check = |text: &&str| match kind {
        Kind::Choices(words) | Kind::AtLeastOneOf(words) => check_word(text, words, &expected),
        Kind::Names => check_name(text, &expected),
        Kind::Routes => check_route(text, &expected),
        Kind::Credentials => check_key(text, &expected),
        _ => ModelEntry::parse(text)
            .map(drop)
            .map_err(|why| format!("expected {expected}; `{}`: {why}", sanitized(text))),
    };
    texts.iter().try_for_each(check)?;
    if texts.is_empty() && matches!(kind, Kind::AtLeastOneOf(_)) {
        return Err(format!("expected {expected}; it is empty"));
    }
    Ok(texts.into_iter().map(str::to_owned).collect())
}

fn check_word(text: &str, words: &[&str], expected: &str) -> Result<(), String> {
    if words.contains(&text) {
        return Ok(());
    }
    let near = closest_word(text, words.iter().copied());
    let near = near.map_or(String::new(), |word| format!("; did you mean `{word}`?"));
    Err(format!(
        "expected {expected}, found `{}`{near}",
        sanitized(text)
    ))
}

fn check_name(text: &str, expected: &str) -> Result<(), String> {
    let fits = |c: char| c.is_ascii_graphic() && c != ',';
    match !text.is_empty() && text.chars().all(fits) {
        true => Ok(()),
        false => Err(format!("expected {expected}, found `{}`", sanitized(text))),
    }
}

/// Checks a key. The error does not repeat it.
fn check_key(text: &str, expected: &str) -> Result<(), String> {
    match !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic()) {
        true => Ok(()),
        false => Err(format!(
            "expected {expected}; one of them is empty, or holds other characters"
        )),
    }
}

/// Splits `PATH=POLICY` into the path and the name of the policy.
pub(super) fn parse_route(text: &str) -> Option<(&str, &str)> {
    let (path, policy) = text.rsplit_once('=')?;
    let (path, policy) = (path.trim(), policy.trim());
    let is_path = path.starts_with('/') && path.chars().all(|c| c.is_ascii_graphic());
    is_path.then_some((path, policy))
}

fn check_route(text: &str, expected: &str) -> Result<(), String> {
    match parse_route(text) {
        Some((_, policy)) => check_word(policy, &Policy::NAMES, "the name of a policy"),
        None => Err(format!("expected {expected}, found `{}`", sanitized(text))),
    }
}

fn split_entries(given: RawValue<'_>, by_commas: bool) -> Option<Vec<&str>> {
    let is_between = |c: char| c == SEPARATOR || (by_commas && c == ',');
    match given {
        RawValue::Untyped(text) | RawValue::Text(text) => {
            let parts = text.split(is_between).map(str::trim);
            Some(parts.filter(|part| !part.is_empty()).collect())
        }
        RawValue::List(list) => {
            let text = |value: &DeValue<'_>| matches!(value, DeValue::String(_));
            let all_texts = list.iter().all(|value| text(value.get_ref()));
            let texts = list.iter().filter_map(|value| value.get_ref().as_str());
            all_texts.then(|| texts.map(str::trim).collect())
        }
        _ => None,
    }
}
