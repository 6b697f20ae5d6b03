//! The arguments of tool calls: whole or not at all, and in the words of the model.

use crate::{Delta, stream_error};
use outlast_kernel::Timestamp;
use outlast_kernel::event::ToolCall;
use outlast_kernel::failure::Failure;
use serde::de::IgnoredAny;
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::{BTreeSet, HashMap};

/// Blanks beyond this, and nothing else, are a model that does not find its way out.
const MAX_BLANK_BYTES: usize = 4096;

/// Why an answer is not read to its end.
pub(crate) enum RunawayOutput {
    /// It begins more of these than anybody could mean.
    TooMany(&'static str),
    /// The arguments of a call of that tool are nothing but blanks.
    Blank(String),
}

impl RunawayOutput {
    pub(crate) fn failure(self, provider: &str, at: Timestamp) -> Box<Failure> {
        match self {
            Self::TooMany(what) => stream_error::too_many(provider, what, at),
            Self::Blank(tool) => stream_error::blank_arguments(provider, &tool, at),
        }
    }
}

/// Adds a piece to the arguments of a call.
pub(crate) fn add(call: &mut ToolCall, piece: &str) -> Result<(), RunawayOutput> {
    call.arguments.push_str(piece);
    let is_long = call.arguments.len() > MAX_BLANK_BYTES;
    match is_long && call.arguments.trim_start().is_empty() {
        true => Err(RunawayOutput::Blank(call.name.clone())),
        false => Ok(()),
    }
}

/// The calls of an answer as they are handed on: those that are whole at once, the others before the end.
#[derive(Debug, Default)]
pub(crate) struct EmittedCalls {
    ids: BTreeSet<String>,
    cut: Vec<String>,
}

impl EmittedCalls {
    /// Hands a call on, if it is whole and names a tool; whether it was.
    pub(crate) fn call(&mut self, call: ToolCall, deltas: &mut Vec<Delta>) -> bool {
        let name = call.name.clone();
        let Some(mut call) = complete(call).filter(|call| !call.name.is_empty()) else {
            self.cut(name);
            return false;
        };
        if call.id.is_empty() {
            call.id = self.new_id();
        }
        self.ids.insert(call.id.clone());
        deltas.push(Delta::ToolCall(call));
        true
    }

    /// Takes note of a call that is not handed on.
    pub(crate) fn cut(&mut self, name: String) {
        self.cut.push(name);
    }

    /// Says which calls were not handed on.
    pub(crate) fn report_incomplete(&mut self, deltas: &mut Vec<Delta>) {
        let cut = std::mem::take(&mut self.cut).into_iter();
        deltas.extend(cut.map(|name| Delta::CallCut { name }));
    }

    /// The id of a call whose provider gave it none: its result could not be matched without one.
    fn new_id(&self) -> String {
        let ids = (self.ids.len() + 1..).map(|number| format!("call_{number}"));
        let mut free = ids.skip_while(|id| self.ids.contains(id));
        free.next().unwrap_or_default()
    }
}

/// Whether these are all of the arguments.
pub(crate) fn are_whole(arguments: &str) -> bool {
    serde_json::from_str::<IgnoredAny>(arguments).is_ok()
}

/// The call, unless a part of its arguments is missing. A tool without arguments is called with none, not with nothing.
fn complete(mut call: ToolCall) -> Option<ToolCall> {
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
