//! Assembles tool calls that come in pieces.
//!
//! A piece belongs to the call with its index or, without one, with its id; without either, to the last. An index that
//! comes again with another id and a name is another call: some servers number all of them alike.

use crate::tool_arguments::{self, RunawayOutput, raw_elements, raw_field};
use outlast_kernel::event::ToolCall;
use serde_json::Value;
use std::collections::HashMap;

/// The maximum number of calls in one completion; more are an error of the model.
const MAX_TOOL_CALLS: usize = 1000;

/// The calls that have begun, in their order; they are complete when the completion is.
#[derive(Debug, Default)]
pub(super) struct ToolCalls {
    calls: Vec<ToolCall>,
    by_index: HashMap<u64, usize>,
    by_id: HashMap<String, usize>,
}

/// One piece of a call, with the keys that identify the call.
struct CallPiece<'a> {
    index: Option<u64>,
    id: Option<&'a str>,
    name: Option<&'a str>,
}

impl ToolCalls {
    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    pub(super) fn are_complete(&self) -> bool {
        let is_whole = |call: &ToolCall| tool_arguments::is_complete_json(&call.arguments);
        self.calls.iter().all(is_whole)
    }

    /// Takes all calls, and leaves none.
    pub(super) fn take(&mut self) -> Vec<ToolCall> {
        std::mem::take(self).calls
    }

    /// Adds a list of pieces from a chunk with that text, and returns whether they had content.
    pub(super) fn add(&mut self, pieces: &[Value], source: &str) -> Result<bool, RunawayOutput> {
        let are_objects = |piece: &Value| piece["function"]["arguments"].is_object();
        let texts = match pieces.iter().any(are_objects) {
            true => raw_arguments(source).unwrap_or_default(),
            false => Vec::new(),
        };
        let mut texts = texts.into_iter();
        let mut said = false;
        for (position, piece) in (0..).zip(pieces) {
            let id = non_empty_str(&piece["id"]);
            // No two pieces of one list belong to the same call.
            let position = (pieces.len() > 1 && id.is_none()).then_some(position);
            let index = piece["index"].as_u64().or(position);
            let name = non_empty_str(&piece["function"]["name"]);
            let text = texts.next().flatten().filter(|_| are_objects(piece));
            let text = text.map(Value::from);
            let arguments = text.as_ref().unwrap_or(&piece["function"]["arguments"]);
            said |= self.add_piece(&CallPiece { index, id, name }, arguments)?;
        }
        Ok(said)
    }

    /// Adds to the single function call of older servers.
    pub(super) fn add_function(&mut self, function: &Value) -> Result<bool, RunawayOutput> {
        let piece = CallPiece {
            index: Some(u64::MAX),
            id: None,
            name: non_empty_str(&function["name"]),
        };
        self.add_piece(&piece, &function["arguments"])
    }

    fn add_piece(
        &mut self,
        piece: &CallPiece<'_>,
        arguments: &Value,
    ) -> Result<bool, RunawayOutput> {
        let known = self.find(piece);
        let place = known.unwrap_or(self.calls.len());
        if place == MAX_TOOL_CALLS {
            return Err(RunawayOutput::TooManyParts("tool calls"));
        }
        if known.is_none() {
            self.calls.push(ToolCall::default());
        }
        if let Some(index) = piece.index {
            self.by_index.insert(index, place);
        }
        let call = &mut self.calls[place];
        if let Some(id) = piece.id.filter(|_| call.id.is_empty()) {
            id.clone_into(&mut call.id);
            self.by_id.insert(id.to_owned(), place);
        }
        // The name comes once; a server that repeats it does not mean to append it.
        if let Some(name) = piece.name {
            name.clone_into(&mut call.name);
        }
        match arguments {
            Value::String(piece) => tool_arguments::append(call, piece)?,
            whole @ Value::Object(_) => call.arguments = tool_arguments::from_value(whole),
            _ => {}
        }
        Ok(known.is_none() || !matches!(arguments, Value::Null) && *arguments != "")
    }

    /// Returns the call that a piece belongs to. A new id alone begins none: some servers generate one for each piece.
    fn find(&self, piece: &CallPiece<'_>) -> Option<usize> {
        let last = self.calls.len().checked_sub(1);
        let place = match piece.index {
            Some(index) => self.by_index.get(&index).copied(),
            None => last,
        };
        let (Some(id), Some(_)) = (piece.id, place) else {
            // A new index is a new call, even if all of them have the same id.
            return place;
        };
        let id_of = |place: &usize| self.calls[*place].id.as_str();
        let may_go_on = |place: &usize| {
            piece.name.is_none() || (piece.index.is_some() && id_of(place).is_empty())
        };
        place
            .filter(|place| id_of(place) == id)
            .or_else(|| self.by_id.get(id).copied())
            .or_else(|| place.filter(may_go_on))
    }
}

/// Returns the arguments of the pieces in the model's own text, from the text of their chunk.
fn raw_arguments(source: &str) -> Option<Vec<Option<&str>>> {
    let choices = raw_elements(raw_field(source, "choices")?);
    let is_first = |choice: &&str| {
        let index = raw_field(choice, "index").and_then(|index| index.parse().ok());
        index.unwrap_or(0_u64) == 0
    };
    let choice = choices.into_iter().find(is_first)?;
    let message =
        raw_field(choice, "delta").filter(|delta| raw_field(delta, "tool_calls").is_some());
    let message = message.or_else(|| raw_field(choice, "message"))?;
    let pieces = raw_elements(raw_field(message, "tool_calls")?).into_iter();
    let text = |piece| raw_field(raw_field(piece, "function")?, "arguments");
    Some(pieces.map(text).collect())
}

fn non_empty_str(value: &Value) -> Option<&str> {
    value.as_str().filter(|word| !word.is_empty())
}
