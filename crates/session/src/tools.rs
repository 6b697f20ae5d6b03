//! Tools: the actions that a model may request.
//!
//! [`Tools`] holds the tools of a session, decides which calls may run (`permission`) and runs them. Each tool is a file
//! of its own. Invariants: a refused call has not begun; a tool that hangs, panics or prints too much affects its own call
//! only. A path outside of the working folder needs a permission of its own, checked when the call is admitted and again when
//! it runs. Not here: when a call is made, and the record of it (see the engine's `turn`).

mod atomic_write;
#[cfg(unix)]
mod bash;
mod edit;
mod grep;
mod input;
mod lines;
#[cfg(all(unix, feature = "mcp"))]
pub mod mcp;
mod path_resolution;
mod permission;
mod read;
pub mod shell;
mod toolbox;
mod write;

pub use permission::{ApprovalDecision, ApprovalRequest, Approver, OUTSIDE_PERMISSION};
pub use toolbox::Tools;

#[cfg(unix)]
pub use crate::process::command::kill_all_commands;
#[cfg(unix)]
pub(crate) use bash::describe_exit;

pub use outlast_engine::tools::{Effect, Output, Toolbox};

use outlast_engine::{BoxFuture, CancellationToken, Clock};
use serde_json::Value;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Default time limit of a tool.
const DEFAULT_TIME_LIMIT: Duration = Duration::from_secs(600);

/// A tool that a model can call.
pub trait Tool: Send + Sync {
    /// Returns the tool's name, description and argument schema, for the model.
    fn describe(&self) -> outlast_dialect::Tool;

    /// Returns the effect of running the tool twice.
    fn effect(&self) -> Effect;

    /// Returns the permissions of which one is required before it runs, the narrowest first; empty when it may always run. By
    /// default a pure tool needs none, and any other tool the permission of its own name.
    fn permissions(&self) -> Vec<String> {
        match self.effect() {
            Effect::Pure => Vec::new(),
            Effect::Idempotent | Effect::AtMostOnce => vec![self.describe().name],
        }
    }

    /// Describes a call for a person in one line, such as `bash: cargo test`.
    fn summary(&self, arguments: &Value) -> String;

    /// Checks the arguments; the error is for the model. Only valid arguments are shown, approved and run.
    fn check(&self, _arguments: &Value) -> Result<(), String> {
        Ok(())
    }

    /// Returns the paths that the call would touch, as given. Those outside of the working folder must be allowed.
    fn paths(&self, _arguments: &Value) -> Vec<PathBuf> {
        Vec::new()
    }

    /// Returns the time limit of the call. The session's limit applies as well.
    fn time_limit(&self, _arguments: &Value) -> Duration {
        DEFAULT_TIME_LIMIT
    }

    /// Runs the tool. Once the context's `cancel` is cancelled it should end within 200 milliseconds and return the output so
    /// far; the caller adds that it was interrupted. The future may be dropped at any time.
    fn run<'a>(&'a self, arguments: Value, context: &'a Context) -> BoxFuture<'a, Output>;

    /// Stops the processes that the tool keeps running between calls. May be called more than once.
    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}

/// The environment in which a tool runs.
#[derive(Clone)]
pub struct Context {
    /// The working folder: relative paths begin here.
    pub directory: PathBuf,
    /// Cancelled when the tool has to end, for any reason.
    pub cancel: CancellationToken,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Environment variables hidden from commands.
    pub hidden_variables: Vec<String>,
    /// Whether this call may leave the working folder.
    pub path_scope: PathScope,
}

/// The places that the paths of a call may lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathScope {
    /// Only within the working folder.
    WorkingFolder,
    /// Anywhere.
    Anywhere,
}
