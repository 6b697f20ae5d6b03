//! The frames of tools: their start and their results.

use super::PiEncoder;
use super::frame::{Frame, MessageRef, Output};
use super::run::Turn;
use crate::event_encoder::JsonLines;
use crate::pi_rpc::message::{ToolResult, no_arguments};

impl PiEncoder {
    pub(super) fn start_tool(&mut self, id: String, name: String, out: &mut JsonLines) {
        let turn = self.run.turn_for_tools(out);
        emit_tool_start(turn, &id, &name, out);
        turn.running.push((id, name));
    }

    pub(super) fn end_tool(&mut self, result: outlast_dialect::ToolResult, out: &mut JsonLines) {
        let now = self.run.now;
        let turn = self.run.turn_for_tools(out);
        let name = turn.end_tool(&result.id).unwrap_or_else(|| {
            // A tool that was not allowed to run starts and ends at once.
            let name = turn.call(&result.id).map(|(name, _)| name.to_owned());
            let name = name.unwrap_or_default();
            emit_tool_start(turn, &result.id, &name, out);
            name
        });
        let result = ToolResult::new(result, name, now);
        out.push(&Frame::ToolExecutionEnd {
            tool_call_id: &result.tool_call_id,
            tool_name: &result.tool_name,
            result: Output {
                content: &result.content,
                details: result.details,
            },
            is_error: result.is_error,
        });
        let message = MessageRef::ToolResult(&result);
        out.push(&Frame::MessageStart { message });
        let message = MessageRef::ToolResult(&result);
        out.push(&Frame::MessageEnd { message });
        turn.results.push(result);
    }
}

fn emit_tool_start(turn: &Turn, id: &str, name: &str, out: &mut JsonLines) {
    let none = no_arguments();
    out.push(&Frame::ToolExecutionStart {
        tool_call_id: id,
        tool_name: name,
        args: turn.call(id).map_or(&*none, |(_, arguments)| arguments),
    });
}
