//! The JSON Schema of `outlast.toml`, made from the table.

use super::key::Key;
use super::placeholder::{MAX_SERVER_NAME_LENGTH, RESERVED_SERVER_NAMES};
use super::renamed::RENAMED;
use super::table::{Placeholder, Setting, settings};
use super::value::{RawValue, Value};
use serde_json::{Value as Json, json};

const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";

/// Returns the whole schema.
pub(crate) fn schema() -> Json {
    let mut schema = Json::Null;
    for setting in settings() {
        insert(&mut schema, setting.path, setting, None);
    }
    for renamed in RENAMED {
        // An editor must not suggest an old name, so it has no default.
        if let Some(setting) = Key::from_path(renamed.new).setting() {
            let default = None;
            insert(
                &mut schema,
                renamed.old,
                &Setting {
                    default,
                    ..*setting
                },
                None,
            );
            let old = schema.pointer_mut(&format!(
                "/properties/{}",
                renamed.old.replace('.', "/properties/")
            ));
            if let Some(old) = old {
                old["deprecated"] = true.into();
                old["description"] = format!("Deprecated: use {}.", renamed.new).into();
            }
        }
    }
    schema["$schema"] = DIALECT.into();
    schema["title"] = "outlast.toml".into();
    schema["description"] = "The settings of the outlast command.".into();
    schema
}

/// Inserts a setting at a path below a node. `name` is the free name that was chosen on the way there.
fn insert(node: &mut Json, path: &str, setting: &Setting, name: Option<&str>) {
    let (segment, rest) = path.split_once('.').unwrap_or((path, ""));
    if segment.is_empty() {
        *node = leaf(setting, name);
        return;
    }
    let free = Placeholder::parse(segment);
    if !node.is_object() {
        *node = match free {
            Some(Placeholder::Number) => json!({ "type": "array" }),
            _ => json!({ "type": "object", "additionalProperties": false }),
        };
    }
    if setting.required && rest.is_empty() {
        match node["required"].as_array_mut() {
            Some(required) => required.push(segment.into()),
            None => node["required"] = json!([segment]),
        }
    }
    match free {
        None => insert(&mut node["properties"][segment], rest, setting, name),
        Some(Placeholder::Number) => insert(&mut node["items"], rest, setting, name),
        Some(free) if free.names().is_empty() => {
            node["propertyNames"] = names(free);
            insert(&mut node["additionalProperties"], rest, setting, name);
        }
        Some(free) => {
            for name in free.names() {
                insert(&mut node["properties"][*name], rest, setting, Some(name));
            }
        }
    }
}

fn names(free: Placeholder) -> Json {
    match free {
        Placeholder::Header => json!({ "pattern": "^[A-Za-z0-9!#$%&'*+.^_`|~-]+$" }),
        Placeholder::Account => json!({ "pattern": "^[A-Za-z0-9_.-]{1,64}$" }),
        Placeholder::Server => json!({
            "pattern": format!("^[A-Za-z0-9_-]{{1,{MAX_SERVER_NAME_LENGTH}}}$"),
            "not": { "enum": RESERVED_SERVER_NAMES },
        }),
        Placeholder::Variable => json!({ "pattern": "^[A-Za-z_][A-Za-z0-9_]*$" }),
        Placeholder::Model | Placeholder::Provider | Placeholder::Number => {
            json!({ "minLength": 1 })
        }
    }
}

fn leaf(setting: &Setting, name: Option<&str>) -> Json {
    let mut schema = setting.kind.schema();
    if setting.kind.is_secret() {
        schema["writeOnly"] = true.into();
    }
    let default = setting.default.map(RawValue::Untyped);
    if let Some(Ok(default)) = default.map(|text| Value::parse(setting.kind, text)) {
        schema["default"] = default.json();
    }
    schema["description"] = describe(setting, name).into();
    schema
}

/// Describes a setting in sentences.
fn describe(setting: &Setting, name: Option<&str>) -> String {
    let mut text = setting.description.to_owned();
    let own = setting
        .variables
        .iter()
        .filter(|variable| variable.provider.is_none() || variable.provider == name);
    let names: Vec<&str> = own.map(|variable| variable.name).collect();
    if !names.is_empty() {
        text += &format!(" Environment: {}.", names.join(", "));
    }
    if let Some(flag) = setting.flag {
        text += &format!(" Flag: {flag}.");
    }
    if setting.is_restricted() {
        text += " Ignored in a project's file until the project is trusted.";
    }
    text
}
