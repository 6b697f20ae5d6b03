//! The arguments of tool calls: complete or not at all, and unchanged from the model's text.

use crate::{Delta, stream_error};
use outlast_kernel::Timestamp;
use outlast_kernel::event::ToolCall;
use outlast_kernel::failure::Failure;
use serde::de::IgnoredAny;
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::{BTreeSet, HashMap};

/// The number of blanks, and nothing else, after which a model is considered stuck.
const MAX_BLANK_BYTES: usize = 4096;

/// The reason for aborting a completion.
pub(crate) enum RunawayOutput {
    /// It begins an absurd number of these.
    TooManyParts(&'static str),
    /// The arguments of a call of that tool are only blanks.
    BlankArguments(String),
}

impl RunawayOutput {
    pub(crate) fn into_failure(self, provider: &str, at: Timestamp) -> Box<Failure> {
        match self {
            Self::TooManyParts(what) => stream_error::too_many_parts(provider, what, at),
            Self::BlankArguments(tool) => stream_error::blank_arguments(provider, &tool, at),
        }
    }
}

/// Adds a piece to the arguments of a call.
pub(crate) fn append(call: &mut ToolCall, piece: &str) -> Result<(), RunawayOutput> {
    call.arguments.push_str(piece);
    let is_long = call.arguments.len() > MAX_BLANK_BYTES;
    match is_long && call.arguments.trim_start().is_empty() {
        true => Err(RunawayOutput::BlankArguments(call.name.clone())),
        false => Ok(()),
    }
}

/// Emits the calls of a completion: complete ones at once, the others before the end.
#[derive(Debug, Default)]
pub(crate) struct EmittedCalls {
    ids: BTreeSet<String>,
    incomplete: Vec<String>,
}

impl EmittedCalls {
    /// Emits a call, if it is complete and names a tool, and returns whether it did.
    pub(crate) fn emit(&mut self, call: ToolCall, deltas: &mut Vec<Delta>) -> bool {
        let name = call.name.clone();
        let Some(mut call) = complete_call(call).filter(|call| !call.name.is_empty()) else {
            self.note_incomplete(name);
            return false;
        };
        if call.id.is_empty() {
            call.id = self.new_id();
        }
        self.ids.insert(call.id.clone());
        deltas.push(Delta::ToolCall(call));
        true
    }

    /// Records a call that is not emitted.
    pub(crate) fn note_incomplete(&mut self, name: String) {
        self.incomplete.push(name);
    }

    /// Reports the calls that were not emitted.
    pub(crate) fn report_incomplete(&mut self, deltas: &mut Vec<Delta>) {
        let cut = std::mem::take(&mut self.incomplete).into_iter();
        deltas.extend(cut.map(|name| Delta::IncompleteToolCall { name }));
    }

    /// Returns an id for a call without one from its provider: its result could not be matched otherwise.
    fn new_id(&self) -> String {
        let ids = (self.ids.len() + 1..).map(|number| format!("call_{number}"));
        let mut free = ids.skip_while(|id| self.ids.contains(id));
        free.next().unwrap_or_default()
    }
}

/// Returns whether these arguments are complete.
pub(crate) fn is_complete_json(arguments: &str) -> bool {
    serde_json::from_str::<IgnoredAny>(arguments).is_ok()
}

/// Returns the call, unless a part of its arguments is missing. A call without arguments gets an empty object.
fn complete_call(mut call: ToolCall) -> Option<ToolCall> {
    if call.arguments.trim().is_empty() {
        "{}".clone_into(&mut call.arguments);
    }
    is_complete_json(&call.arguments).then_some(call)
}

/// Returns the arguments in a field that holds them as text or as a value.
pub(crate) fn from_value(arguments: &Value) -> String {
    match arguments {
        Value::String(text) => text.clone(),
        Value::Object(fields) if !fields.is_empty() => arguments.to_string(),
        _ => String::new(),
    }
}

/// Returns the text of one field of an object.
pub(crate) fn raw_field<'a>(object: &'a str, name: &str) -> Option<&'a str> {
    let fields: HashMap<String, &RawValue> = serde_json::from_str(object).ok()?;
    fields.get(name).map(|value| value.get())
}

/// Returns the texts of the elements of an array.
pub(crate) fn raw_elements(array: &str) -> Vec<&str> {
    let elements: Vec<&RawValue> = serde_json::from_str(array).unwrap_or_default();
    elements.into_iter().map(RawValue::get).collect()
}
