//! A tool that may run at most once, and records its arguments.

use outlast_dialect::Tool;
use outlast_engine::tools::{Effect, Output, Toolbox};
use outlast_engine::{BoxFuture, CancellationToken};
use outlast_kernel::event::ToolCall;
use serde_json::json;
use std::sync::Mutex;

/// A tool that records its arguments.
#[derive(Default)]
pub(crate) struct Notes(Mutex<Vec<String>>);

impl Toolbox for Notes {
    fn admit<'a>(&'a self, _: &'a ToolCall) -> BoxFuture<'a, Result<Effect, String>> {
        Box::pin(async { Ok(Effect::AtMostOnce) })
    }

    fn run<'a>(&'a self, call: &'a ToolCall, _: CancellationToken) -> BoxFuture<'a, Output> {
        self.0.lock().unwrap().push(call.arguments.clone());
        Box::pin(async { Output::ok("noted") })
    }
}

impl Notes {
    pub(crate) fn noted(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

/// Returns the description of the tool.
pub(crate) fn note() -> Tool {
    Tool {
        name: "note".to_owned(),
        description: "Notes a number.".to_owned(),
        parameters: json!({ "type": "object" }),
    }
}
