//! What a model may do to the world.
//!
//! [`Tools`] holds the tools of a session, decides which calls may run (`permission`) and runs them. Each tool is a file
//! of its own.
//!
//! Invariants: what is refused has not begun; a tool that hangs, panics or says too much costs its own call and
//! nothing else. A path that leaves the working folder needs a permission of its own, looked at when the call is admitted
//! and again when it runs.
//!
//! Not here: when a call is made, and what is remembered of it.

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
pub(crate) use bash::how_it_ended;

pub use outlast_engine::tools::{Effect, Output, Toolbox};

use outlast_engine::{BoxFuture, CancellationToken, Clock};
use serde_json::Value;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How long a tool may run that says nothing else.
const DEFAULT_TIME_LIMIT: Duration = Duration::from_secs(600);

/// One thing that a model may do.
pub trait Tool: Send + Sync {
    /// Its name, what it does and the schema of its arguments, for the model.
    fn describe(&self) -> outlast_dialect::Tool;

    /// What running it twice would do.
    fn effect(&self) -> Effect;

    /// The permissions of which one has to be given before it runs, the narrowest first; none when it may always run. What
    /// changes nothing may, and everything else is allowed by its name, unless a tool says otherwise.
    fn permissions(&self) -> Vec<String> {
        match self.effect() {
            Effect::Pure => Vec::new(),
            Effect::Idempotent | Effect::AtMostOnce => vec![self.describe().name],
        }
    }

    /// What a person is shown before it runs, in one line, such as `bash: cargo test`.
    fn summary(&self, arguments: &Value) -> String;

    /// What is wrong with the arguments, for the model. Only arguments that passed are shown, asked about and run.
    fn check(&self, _arguments: &Value) -> Result<(), String> {
        Ok(())
    }

    /// The paths that it would touch, as they were given. Those outside of the working folder must be allowed.
    fn paths(&self, _arguments: &Value) -> Vec<PathBuf> {
        Vec::new()
    }

    /// How long it may run. The session's limit counts as well.
    fn time_limit(&self, _arguments: &Value) -> Duration {
        DEFAULT_TIME_LIMIT
    }

    /// Runs it. Once the context's `cancel` is cancelled it should end within 200 milliseconds and hand back what it
    /// has; that it was interrupted is said by the caller. The future may be dropped at any time.
    fn run<'a>(&'a self, arguments: Value, context: &'a Context) -> BoxFuture<'a, Output>;

    /// Ends what it keeps running between two calls. It may be called more than once.
    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}

/// Where and under which conditions a tool runs.
#[derive(Clone)]
pub struct Context {
    /// The working folder: relative paths begin here.
    pub directory: PathBuf,
    /// Cancelled when the tool has to end, for whatever reason.
    pub cancel: CancellationToken,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
    /// Variables that commands must not see.
    pub hidden_variables: Vec<String>,
    /// Whether this call may leave the working folder.
    pub reach: PathScope,
}

/// How far the paths of a call may lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathScope {
    /// Only within the working folder.
    Inside,
    /// Anywhere.
    Anywhere,
}
