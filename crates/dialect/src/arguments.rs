//! The arguments of tool calls: whole or not at all, and in the words of the model.

use outlast_kernel::event::ToolCall;
use serde::de::IgnoredAny;
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::HashMap;

/// Whether these are all of the arguments.
pub(crate) fn are_whole(arguments: &str) -> bool {
    serde_json::from_str::<IgnoredAny>(arguments).is_ok()
}

/// The call, unless a part of its arguments is missing. A tool without arguments is called with none, not with nothing.
pub(crate) fn complete(mut call: ToolCall) -> Option<ToolCall> {
    if call.arguments.trim().is_empty() {
        "{}".clone_into(&mut call.arguments);
    }
    are_whole(&call.arguments).then_some(call)
}

/// The arguments in a field that holds them as text, or as what the text would say.
pub(crate) fn in_field(arguments: &Value) -> String {
    match arguments {
        Value::String(text) => text.clone(),
        Value::Object(fields) if !fields.is_empty() => arguments.to_string(),
        _ => String::new(),
    }
}

/// The text of one field of an object.
pub(crate) fn field<'a>(object: &'a str, name: &str) -> Option<&'a str> {
    let fields: HashMap<String, &RawValue> = serde_json::from_str(object).ok()?;
    fields.get(name).map(|value| value.get())
}

/// The texts of the elements of an array.
pub(crate) fn elements(array: &str) -> Vec<&str> {
    let elements: Vec<&RawValue> = serde_json::from_str(array).unwrap_or_default();
    elements.into_iter().map(RawValue::get).collect()
}
