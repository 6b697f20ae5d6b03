//! The tools of a session: registers them, admits calls and runs them within their limits.
//!
//! Invariant: a tool runs as a task of its own, so that a panic affects its call only. A caller that stops waiting stops it.

use super::permission::{NOT_ALLOWED, OUTSIDE_PERMISSION, Permissions};
use super::{
    ApprovalRequest, Approver, Context, PathScope, Tool, edit, grep, input, path_resolution, read,
    write,
};
use crate::process::output::bounded;
use futures_util::future::join_all;
use outlast_engine::tools::{Effect, Output, Toolbox};
use outlast_engine::{BoxFuture, CancellationToken, Clock};
use outlast_kernel::event::ToolCall;
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::task::AbortOnDropHandle;

/// Maximum time limit of a tool.
const MAX_TIMEOUT: Duration = Duration::from_secs(24 * 3600);
/// Time for a cancelled tool to end by itself. Processes get less than that.
const CANCEL_TIMEOUT: Duration = Duration::from_millis(230);

/// The tools of a session.
pub struct Tools {
    tools: BTreeMap<String, Arc<dyn Tool>>,
    permissions: Permissions,
    directory: PathBuf,
    clock: Arc<dyn Clock>,
    hidden_variables: Vec<String>,
    timeout: Duration,
    is_protected: Arc<dyn Fn(&Path) -> bool + Send + Sync>,
    /// Name prefixes of tools that are not registered because no permission covers them.
    withheld_prefixes: Vec<String>,
    /// Calls that may leave the working folder, this once.
    outside_grants: Mutex<Vec<ToolCall>>,
}

/// A call that passed validation.
struct ValidatedCall {
    tool: Arc<dyn Tool>,
    permissions: Vec<String>,
    paths: Vec<PathBuf>,
    limit: Duration,
    question: ApprovalRequest,
}

/// A call that is about to run.
struct PreparedCall {
    tool: Arc<dyn Tool>,
    name: String,
    arguments: Value,
    context: Context,
}

impl Tools {
    /// Creates an empty set of tools.
    pub fn empty(directory: impl Into<PathBuf>, clock: Arc<dyn Clock>) -> Self {
        Self {
            tools: BTreeMap::new(),
            permissions: Permissions::default(),
            directory: directory.into(),
            clock,
            hidden_variables: Vec::new(),
            timeout: MAX_TIMEOUT,
            is_protected: Arc::new(|_| false),
            withheld_prefixes: Vec::new(),
            outside_grants: Mutex::default(),
        }
    }

    /// Creates `bash`, `edit`, `grep`, `read` and `write`. Only pure tools may run until more is allowed.
    pub fn standard(directory: impl Into<PathBuf>, clock: Arc<dyn Clock>) -> Self {
        let tools = Self::empty(directory, clock)
            .with(Arc::new(edit::Edit))
            .with(Arc::new(grep::Grep))
            .with(Arc::new(read::Read))
            .with(Arc::new(write::Write));
        #[cfg(unix)]
        let tools = tools.with(Arc::new(super::bash::Bash));
        tools
    }

    /// Adds a tool, or replaces the one of the same name.
    #[must_use]
    pub fn with(mut self, tool: Arc<dyn Tool>) -> Self {
        self.tools.insert(tool.describe().name, tool);
        self
    }

    /// Allows tools by name; [`OUTSIDE_PERMISSION`] allows leaving the working folder, `write` covers `edit`.
    #[must_use]
    pub fn with_allowed<N: Into<String>>(self, names: impl IntoIterator<Item = N>) -> Self {
        self.permissions.allow(names.into_iter().map(Into::into));
        self
    }

    /// Sets the approver, who is asked about calls that are not allowed.
    #[must_use]
    pub fn with_approver(mut self, approve: Arc<dyn Approver>) -> Self {
        self.permissions.set_approver(approve);
        self
    }

    /// Hides environment variables from commands.
    #[must_use]
    pub fn with_hidden_variables<N: Into<String>>(
        mut self,
        variables: impl IntoIterator<Item = N>,
    ) -> Self {
        let variables = variables.into_iter().map(Into::into);
        self.hidden_variables.extend(variables);
        self
    }

    /// Sets a time limit for all tools.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout.min(MAX_TIMEOUT);
        self
    }

    /// Protects files from changes by tools, whatever the permissions. Commands are not held to it.
    #[must_use]
    pub fn with_protected_paths(
        mut self,
        is_protected: impl Fn(&Path) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.is_protected = Arc::new(is_protected);
        self
    }

    /// Returns the tools for the model: those of which a call could get to run.
    pub fn definitions(&self) -> Vec<outlast_dialect::Tool> {
        let possible = |tool: &&Arc<dyn Tool>| self.permissions.can_run(&tool.permissions());
        let all = self.tools.values().filter(possible);
        all.map(|tool| tool.describe()).collect()
    }

    /// Returns the working folder.
    #[cfg(all(unix, feature = "mcp"))]
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the environment variables hidden from processes.
    #[cfg(all(unix, feature = "mcp"))]
    pub(super) fn hidden_variables(&self) -> &[String] {
        &self.hidden_variables
    }

    /// Returns whether one of these permissions, or one for a tool with this prefix, could let a tool run. If not, calls
    /// of tools with the prefix get the message that they are not allowed.
    #[cfg(all(unix, feature = "mcp"))]
    pub(super) fn can_run_any(&mut self, prefix: &str, permissions: &[String]) -> bool {
        let could = self.permissions.can_run(permissions) || self.permissions.allows_prefix(prefix);
        if !could {
            self.withheld_prefixes.push(prefix.to_owned());
        }
        could
    }

    async fn admit_call(&self, call: &ToolCall) -> Result<Effect, String> {
        let ValidatedCall {
            paths,
            permissions,
            mut question,
            ..
        } = self.validate(call)?;
        let effect = question.effect;
        let is_change = effect != Effect::Pure;
        question.outside_path = self.first_outside(paths, is_change).await?;
        let leaves = question.outside_path.is_some();
        self.permissions.authorize(question, &permissions).await?;
        if leaves && !self.permissions.allows(OUTSIDE_PERMISSION) {
            self.outside_grants.lock().push(call.clone());
        }
        Ok(effect)
    }

    /// Returns the validated call, or the problem with it. Tools are foreign code here as well.
    fn validate(&self, call: &ToolCall) -> Result<ValidatedCall, String> {
        let tool = self.tools.get(&call.name);
        let tool = tool.ok_or_else(|| self.unknown(&call.name))?;
        let arguments = input::parse(&call.arguments)?;
        let examine = || {
            tool.check(&arguments)?;
            Ok(ValidatedCall {
                permissions: tool.permissions(),
                paths: tool.paths(&arguments),
                limit: tool.time_limit(&arguments),
                question: ApprovalRequest {
                    tool: call.name.clone(),
                    permission: call.name.clone(),
                    summary: tool.summary(&arguments),
                    arguments: arguments.clone(),
                    effect: tool.effect(),
                    outside_path: None,
                },
                tool: Arc::clone(tool),
            })
        };
        catch_unwind(AssertUnwindSafe(examine))
            .unwrap_or_else(|_| Err("it failed while its arguments were looked at".to_owned()))
    }

    fn unknown(&self, name: &str) -> String {
        if self
            .withheld_prefixes
            .iter()
            .any(|prefix| name.starts_with(prefix))
        {
            return NOT_ALLOWED.to_owned();
        }
        let names: Vec<_> = self
            .definitions()
            .into_iter()
            .map(|tool| tool.name)
            .collect();
        format!("there is no such tool. There are: {}", names.join(", "))
    }

    /// Returns the first of the paths that lies outside of the working folder.
    async fn first_outside(
        &self,
        paths: Vec<PathBuf>,
        is_change: bool,
    ) -> Result<Option<PathBuf>, String> {
        let directory = self.directory.clone();
        let is_protected = Arc::clone(&self.is_protected);
        // File system calls may block.
        let look = move || {
            for path in paths {
                let said = |error| format!("{}: {error}", path.display());
                if is_change
                    && is_protected(&path_resolution::resolve(&directory, &path).map_err(said)?)
                {
                    return Err(format!("{} is not yours to change", path.display()));
                }
                let found = path_resolution::resolve_outside(&directory, &path).map_err(said)?;
                if found.is_some() {
                    return Ok(found);
                }
            }
            Ok(None)
        };
        tokio::task::spawn_blocking(look)
            .await
            .unwrap_or_else(|error| Err(error.to_string()))
    }

    async fn run_call(&self, call: &ToolCall, cancel: CancellationToken) -> Output {
        let examined = match self.validate(call) {
            Ok(examined) => examined,
            Err(why) => return Output::error(not_run(&call.name, &why)),
        };
        let job = PreparedCall {
            tool: examined.tool,
            name: call.name.clone(),
            arguments: examined.question.arguments,
            context: Context {
                directory: self.directory.clone(),
                cancel: CancellationToken::new(),
                clock: Arc::clone(&self.clock),
                hidden_variables: self.hidden_variables.clone(),
                path_scope: self.take_path_scope(call),
            },
        };
        run_with_limits(job, cancel, examined.limit.min(self.timeout)).await
    }

    /// Returns the path scope of an admitted call; uses up a one-time permission.
    fn take_path_scope(&self, call: &ToolCall) -> PathScope {
        let mut let_out = self.outside_grants.lock();
        let allowed = let_out.iter().position(|other| other == call);
        if let Some(index) = allowed {
            let_out.swap_remove(index);
        }
        if allowed.is_some() || self.permissions.allows(OUTSIDE_PERMISSION) {
            PathScope::Anywhere
        } else {
            PathScope::WorkingFolder
        }
    }
}

impl Toolbox for Tools {
    fn admit<'a>(&'a self, call: &'a ToolCall) -> BoxFuture<'a, Result<Effect, String>> {
        Box::pin(async move {
            let admitted = self.admit_call(call).await;
            admitted.map_err(|why| bounded(not_run(&call.name, &why)))
        })
    }

    fn run<'a>(&'a self, call: &'a ToolCall, cancel: CancellationToken) -> BoxFuture<'a, Output> {
        Box::pin(async move {
            let output = self.run_call(call, cancel).await;
            Output {
                text: bounded(output.text),
                ..output
            }
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            join_all(self.tools.values().map(|tool| tool.close())).await;
        })
    }
}

/// Runs the tool until it ends, is cancelled, or exceeds its time limit.
async fn run_with_limits(job: PreparedCall, cancel: CancellationToken, limit: Duration) -> Output {
    let name = job.name.clone();
    if cancel.is_cancelled() {
        return Output::error(not_run(&name, "it was interrupted before it began"));
    }
    let clock = Arc::clone(&job.context.clock);
    let too_late = clock.sleep_until(clock.now() + limit);
    // Not a child of `cancel`: a tool must not end before this function knows that it was cancelled.
    let stop = job.context.cancel.clone();
    let _stops_what_was_left_behind = stop.clone().drop_guard();
    let mut task = AbortOnDropHandle::new(tokio::spawn(async move {
        job.tool.run(job.arguments, &job.context).await
    }));
    let why = tokio::select! {
        ended = &mut task => {
            return ended.unwrap_or_else(|_| Output::error(format!("`{name}` broke down; it may have partly run")));
        }
        () = cancel.cancelled() => format!("`{name}` was interrupted; it may have partly run"),
        () = too_late => format!("`{name}` took longer than {limit:?} and was stopped; it may have partly run"),
    };
    stop.cancel();
    let last_words = match tokio::time::timeout(CANCEL_TIMEOUT, &mut task).await {
        Ok(Ok(output)) => output.text,
        Ok(Err(_)) | Err(_) => String::new(),
    };
    Output::error(append_note(&last_words, &why))
}

/// Appends a note to a tool's output.
pub(super) fn append_note(text: &str, note: &str) -> String {
    let text = text.trim_end_matches('\n');
    if text.is_empty() {
        note.to_owned()
    } else {
        format!("{text}\n[{note}]")
    }
}

fn not_run(name: &str, why: &str) -> String {
    format!("`{name}` was not run: {why}")
}
