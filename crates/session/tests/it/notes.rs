//! A tool that may run at most once, and notes what it was called with.

use outlast_dialect::Tool;
use outlast_engine::tools::{Effect, Output, Toolbox};
use outlast_engine::{BoxFuture, CancellationToken};
use outlast_kernel::event::ToolCall;
use serde_json::json;
use std::sync::Mutex;

/// A tool that notes what it was called with.
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

/// As it is offered.
pub(crate) fn note() -> Tool {
    Tool {
        name: "note".to_owned(),
        description: "Notes a number.".to_owned(),
        parameters: json!({ "type": "object" }),
    }
}
