//! The hooks in the settings.

use crate::config::key::Key;
use crate::config::layers::Layers;
use crate::config::value::Value;
use outlast_session::hooks::{Hook, HookEvent};
use std::collections::BTreeSet;
use std::time::Duration;

/// The time limit of a hook without one of its own.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

/// Returns all hooks, in the order of the files.
pub(in crate::config) fn all(layers: &Layers) -> Vec<Hook> {
    let keys = layers.effective.keys();
    let numbers: BTreeSet<u32> = keys.filter_map(Key::list_index).collect();
    numbers
        .into_iter()
        .filter_map(|number| hook(layers, &number.to_string()))
        .collect()
}

/// Returns the hook with the given index. Its required fields were checked when its file was read.
fn hook(layers: &Layers, number: &str) -> Option<Hook> {
    let key = |field: &str| Key::with_name(&format!("hooks.<number>.{field}"), number);
    let value = |field: &str| Some(&layers.effective.get(&key(field))?.value);
    let Value::List(on) = value("on")? else {
        return None;
    };
    Some(Hook {
        events: on
            .iter()
            .filter_map(|name| HookEvent::from_name(name))
            .collect(),
        command: layers.text(&key("command"))?.to_owned(),
        timeout: match value("timeout") {
            Some(Value::Duration(limit)) => *limit,
            _ => DEFAULT_TIMEOUT,
        },
    })
}
