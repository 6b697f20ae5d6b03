//! The JSON Schema of `outlast.toml`, made from the table.

use super::key::Key;
use super::placeholder::{MAX_SERVER_NAME_LENGTH, RESERVED_SERVER_NAMES};
use super::renamed::{RENAMED, Renamed};
use super::table::{Kind, Placeholder, SETTINGS, Setting};
use super::value::{RawValue, Value};
use serde_json::{Map, Value as Json, json};
use std::collections::BTreeMap;

const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";
/// What `duration` reads.
const DURATION: &str = r"^([0-9]+(\.[0-9]+)?|([0-9]+(\.[0-9]+)?d)?([0-9]+(\.[0-9]+)?h)?([0-9]+(\.[0-9]+)?m)?([0-9]+(\.[0-9]+)?s)?([0-9]+(\.[0-9]+)?ms)?)$";

#[derive(Default)]
struct Node {
    setting: Option<&'static Setting>,
    /// Set if this is the old name of the setting.
    renamed: Option<Renamed>,
    children: BTreeMap<&'static str, Node>,
}

/// The whole schema.
pub(crate) fn schema() -> Json {
    let mut root = Node::default();
    for setting in SETTINGS {
        root.descendant(setting.path).setting = Some(setting);
    }
    for renamed in RENAMED {
        let node = root.descendant(renamed.old);
        node.setting = Key::from_path(renamed.new).setting();
        node.renamed = Some(renamed);
    }
    let mut schema = root.schema(None);
    schema["$schema"] = DIALECT.into();
    schema["title"] = "outlast.toml".into();
    schema["description"] = "The settings of the outlast command.".into();
    schema
}

impl Node {
    fn descendant(&mut self, path: &'static str) -> &mut Self {
        let segments = path.split('.');
        segments.fold(self, |node, segment| {
            node.children.entry(segment).or_default()
        })
    }

    /// `name` is the free name that was chosen on the way here.
    fn schema(&self, name: Option<&str>) -> Json {
        if let Some(setting) = self.setting {
            let schema = leaf(setting, name);
            return match self.renamed {
                Some(renamed) => deprecated(schema, renamed),
                None => schema,
            };
        }
        if let Some(element) = self.children.get("<number>") {
            return json!({ "type": "array", "items": element.schema(name) });
        }
        let mut properties = Map::new();
        let mut others = json!(false);
        let mut schema = json!({ "type": "object" });
        for (segment, node) in &self.children {
            match Placeholder::parse(segment) {
                None => drop(properties.insert((*segment).to_owned(), node.schema(name))),
                Some(free) if free.names().is_empty() => {
                    schema["propertyNames"] = names(free);
                    others = node.schema(name);
                }
                Some(free) => {
                    let each = free.names().iter();
                    properties
                        .extend(each.map(|name| ((*name).to_owned(), node.schema(Some(name)))));
                }
            }
        }
        if !properties.is_empty() {
            schema["properties"] = properties.into();
        }
        let required = self.children.iter().filter(|(_, node)| node.is_required());
        let required: Vec<&str> = required.map(|(segment, _)| *segment).collect();
        if !required.is_empty() {
            schema["required"] = required.into();
        }
        schema["additionalProperties"] = others;
        schema
    }
}

impl Node {
    fn is_required(&self) -> bool {
        self.setting.is_some_and(|setting| setting.required)
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
    let mut schema = match setting.kind {
        Kind::Text | Kind::Path => json!({ "type": "string", "pattern": r"\S" }),
        Kind::Choice(words) => json!({ "type": "string", "enum": words }),
        Kind::Choices(words) => {
            json!({ "type": ["array", "string"], "items": { "type": "string", "enum": words } })
        }
        Kind::AtLeastOneOf(words) => {
            json!({ "type": ["array", "string"], "minItems": 1, "minLength": 1, "items": { "type": "string", "enum": words } })
        }
        Kind::Model => json!({ "type": "string", "pattern": r"\S" }),
        Kind::Models => {
            json!({ "type": ["array", "string"], "items": { "type": "string", "pattern": r"\S" } })
        }
        Kind::IntegerRange(least, most) => {
            json!({ "type": "integer", "minimum": least, "maximum": most })
        }
        Kind::Count => json!({ "type": "integer", "minimum": 1, "maximum": u32::MAX }),
        Kind::Flag => json!({ "type": "boolean" }),
        Kind::Amount => json!({ "type": "number", "minimum": 0 }),
        Kind::Duration => {
            json!({ "type": ["string", "number"], "minLength": 1, "pattern": DURATION, "minimum": 0 })
        }
        Kind::DurationUpTo(seconds) => {
            json!({ "type": ["string", "number"], "minLength": 1, "pattern": DURATION, "exclusiveMinimum": 0, "maximum": seconds })
        }
        Kind::Url => json!({ "type": "string", "pattern": "^https?://[^@?#\\s]+$" }),
        Kind::Proxy => json!({ "type": "string", "minLength": 1 }),
        Kind::Credential => json!({ "type": "string", "minLength": 1 }),
        Kind::Credentials => {
            json!({ "type": ["array", "string"], "items": { "type": "string", "minLength": 1 } })
        }
        Kind::Names => {
            json!({ "type": ["array", "string"], "items": { "type": "string", "pattern": r"^\S+$" } })
        }
        Kind::Routes => {
            json!({ "type": ["array", "string"], "items": { "type": "string", "pattern": "^/.*=.+$" } })
        }
        Kind::Address => json!({ "type": "string", "pattern": ":[0-9]+$" }),
        Kind::Upstream => json!({ "type": "string", "pattern": r"^(https?://[^@#\s]+|mock:.+)$" }),
        Kind::Size => {
            json!({ "type": ["string", "integer"], "pattern": "^[0-9]+ *([KMG]iB|B)?$", "minimum": 1 })
        }
        Kind::VariableName => json!({ "type": "string", "pattern": "^[A-Z_][A-Z0-9_]*$" }),
    };
    if setting.secret {
        schema["writeOnly"] = true.into();
    }
    if let Some(default) = default(setting) {
        schema["default"] = default;
    }
    schema["description"] = describe(setting, name).into();
    schema
}

/// Marks the schema of an old name. An editor must not suggest it, so it has no default.
fn deprecated(mut schema: Json, renamed: Renamed) -> Json {
    schema["deprecated"] = true.into();
    schema["description"] = format!("Deprecated: use {}.", renamed.new).into();
    if let Some(fields) = schema.as_object_mut() {
        fields.remove("default");
    }
    schema
}

fn default(setting: &Setting) -> Option<Json> {
    let value = Value::parse(setting, RawValue::Untyped(setting.default?)).ok()?;
    Some(match value {
        Value::Flag(flag) => flag.into(),
        Value::Count(count) => count.into(),
        Value::List(texts) => texts.into(),
        other => other.redacted().into(),
    })
}

/// What the table says about a setting, in sentences.
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
    if setting.restricted {
        text += " Ignored in a project's file until the project is trusted.";
    }
    text
}
