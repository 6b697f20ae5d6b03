//! Which row of the table a request belongs to.
//!
//! Invariant: the first row whose signs are there wins, so what is more special stands higher up in the table.

use super::profile::{Profile, Sign};
use super::table;
use http::HeaderMap;
use http::header::USER_AGENT;

/// The client that sent these headers, or the one that was named, if there is such a one.
pub fn recognise(headers: &HeaderMap, forced: Option<&str>) -> &'static Profile {
    if let Some(profile) = forced.and_then(named) {
        return profile;
    }
    table::ALL
        .iter()
        .find(|profile| has_marks(profile, headers))
        .unwrap_or(&table::UNKNOWN)
}

/// The row of that name; upper and lower case are the same.
pub fn named(name: &str) -> Option<&'static Profile> {
    let name = name.trim();
    table::ALL
        .iter()
        .chain([&table::UNKNOWN])
        .find(|profile| profile.name.eq_ignore_ascii_case(name))
}

fn has_marks(profile: &Profile, headers: &HeaderMap) -> bool {
    profile
        .marks
        .iter()
        .any(|signs| signs.iter().all(|sign| is_there(*sign, headers)))
}

fn is_there(sign: Sign, headers: &HeaderMap) -> bool {
    let value = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let agent = || value(USER_AGENT.as_str()).unwrap_or_default();
    match sign {
        Sign::AgentBegins(text) => agent().starts_with(text),
        Sign::AgentHas(text) => agent().contains(text),
        Sign::Says(name, wanted) => {
            value(name).is_some_and(|value| value.eq_ignore_ascii_case(wanted))
        }
        Sign::Sends(name) => headers.contains_key(name),
    }
}
