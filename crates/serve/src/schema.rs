//! The JSON Schema of the native dialect: every line that the server writes, and every command that it reads.
//!
//! Events, snapshots and the settlement are derived from the serialized types, so they cannot differ from them; the
//! envelope of replies and the commands are tables. Published as `docs/native-events.schema.json`. Not here: the data
//! of replies that are the same in the pi dialect.

mod command;

pub use command::names as command_names;

use crate::native::{FollowReply, Notice, SnapshotView};
use outlast_kernel::event::Event;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

/// Returns the whole document. Its root is a line that the server writes; a line that it reads is `#/$defs/Command`.
pub fn document() -> Value {
    let mut generator = SchemaSettings::draft2020_12()
        .for_serialize()
        .into_generator();
    let event = generator.subschema_for::<Event>();
    let notice = generator.subschema_for::<Notice>();
    generator.subschema_for::<SnapshotView>();
    generator.subschema_for::<FollowReply>();
    let mut definitions = generator.take_definitions(true);
    for definition in definitions.values_mut() {
        strip_null(definition);
    }
    definitions.insert("Reply".to_owned(), reply());
    definitions.insert("Command".to_owned(), command::schema());
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Outlast, native dialect",
        "description": "A line that `outlast rpc --mode native` writes. A line that it reads is a Command. New fields and \
                        new kinds of events may come: leave alone what you do not know.",
        "oneOf": [event, notice, { "$ref": "#/$defs/Reply" }],
        "$defs": definitions,
    })
}

/// Returns the document as it is published.
pub fn text() -> String {
    // `{:#}` is the indented form of a value, and cannot fail.
    format!("{:#}\n", document())
}

/// Returns the schema of the reply to a command.
fn reply() -> Value {
    json!({
        "description": "The reply to a command, in the order in which commands are answered.",
        "type": "object",
        "properties": {
            "id": { "description": "That of the command, if it had one." },
            "type": { "type": "string", "const": "response" },
            "command": {
                "description": "The command; `parse` when the line was none.",
                "type": "string",
            },
            "success": { "description": "Whether it was done.", "type": "boolean" },
            "data": { "description": "What was asked for." },
            "error": { "description": "Why it was not done.", "type": "string" },
            "code": {
                "description": "The same for programs: `stale` when events that are asked for are not kept.",
                "type": "string",
            },
            "oldest": {
                "description": "With `stale`: the number of the oldest event that is kept.",
                "type": "integer",
                "minimum": 0,
            },
        },
        "required": ["type", "command", "success"],
        "allOf": [
            reply_data("snapshot", "Snapshot"),
            reply_data("follow", "FollowReply"),
            {
                "if": { "properties": { "success": { "const": false } } },
                "then": { "required": ["error"] },
            },
        ],
    })
}

/// Returns the rule that the data of a command's reply matches a definition.
fn reply_data(command: &str, definition: &str) -> Value {
    let (command, definition) = (json!({ "const": command }), format!("#/$defs/{definition}"));
    json!({
        "if": { "properties": { "command": command, "success": { "const": true } } },
        "then": { "properties": { "data": { "$ref": definition } }, "required": ["data"] },
    })
}

/// Removes `null` from the schema: a field without a value is left out, never written as null.
fn strip_null(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            strip_null_from_object(object);
            object.values_mut().for_each(strip_null);
        }
        Value::Array(schemas) => schemas.iter_mut().for_each(strip_null),
        _ => {}
    }
}

fn strip_null_from_object(schema: &mut Map<String, Value>) {
    if let Some(Value::Array(types)) = schema.get_mut("type") {
        types.retain(|kind| kind != "null");
        if let [only] = types.as_mut_slice() {
            let only = only.take();
            schema.insert("type".to_owned(), only);
        }
    }
    if let Some(Value::Array(choices)) = schema.get_mut("anyOf") {
        choices.retain(|choice| choice["type"] != "null");
        if let [Value::Object(only)] = choices.as_mut_slice() {
            let only = std::mem::take(only);
            schema.remove("anyOf");
            schema.extend(only);
        }
    }
}
