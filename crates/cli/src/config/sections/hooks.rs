//! The hooks in the settings.

use crate::config::layers::Layers;
use outlast_session::hooks::{Hook, HookEvent};
use std::collections::BTreeSet;
use std::time::Duration;

/// The time limit of a hook without one of its own.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

/// Returns all hooks, in the order of the files.
pub(in crate::config) fn all(layers: &Layers) -> Vec<Hook> {
    let numbers = layers.names("hooks").into_iter();
    let numbers: BTreeSet<u32> = numbers.filter_map(|number| number.parse().ok()).collect();
    numbers
        .into_iter()
        .filter_map(|number| hook(layers, number))
        .collect()
}

/// Returns the hook with the given index. Its required fields were checked when its file was read.
fn hook(layers: &Layers, number: u32) -> Option<Hook> {
    let own = layers.named("hooks", &number.to_string());
    let events: Vec<String> = own.get("on")?;
    Some(Hook {
        events: events
            .iter()
            .filter_map(|name| HookEvent::from_name(name))
            .collect(),
        command: own.get("command")?,
        timeout: own.get("timeout").unwrap_or(DEFAULT_TIMEOUT),
    })
}
