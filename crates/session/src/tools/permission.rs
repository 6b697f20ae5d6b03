//! What may run: what changes nothing, what was allowed by name, and what a person says yes to.
//!
//! Invariant: people are asked one question at a time, and never one that the answer before it has settled.

use super::Effect;
use outlast_engine::BoxFuture;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The permission to leave the working folder, beside the names of tools.
pub const OUTSIDE_PERMISSION: &str = "outside";

/// What is said of a call that nobody allowed and nobody can be asked about.
pub(super) const NOT_ALLOWED: &str = "it is not allowed here";

/// What a person said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApprovalDecision {
    /// This call, whatever it needs.
    Yes,
    /// This call, and for the rest of the session what [`Question::permission`] names.
    Always,
    /// Not at all.
    No,
}

/// What a person is asked.
#[derive(Clone, Debug, PartialEq)]
pub struct ApprovalRequest {
    /// The tool that wants to run.
    pub tool: String,
    /// What [`Answer::Always`] would allow from now on: the tool, or [`OUTSIDE_PERMISSION`].
    pub permission: String,
    /// What it would do, in one line; a long one is cut.
    pub summary: String,
    /// All of its arguments.
    pub arguments: Value,
    /// What running it twice would do.
    pub effect: Effect,
    /// Where it would leave the working folder.
    pub outside: Option<PathBuf>,
}

/// Somebody who can be asked.
pub trait Approver: Send + Sync {
    /// Asks, and waits for the answer. The future is dropped when the question has become pointless.
    fn ask<'a>(&'a self, question: &'a ApprovalRequest) -> BoxFuture<'a, ApprovalDecision>;
}

/// What is allowed in this session.
#[derive(Default)]
pub(super) struct Permissions {
    allowed: Mutex<BTreeSet<String>>,
    approve: Option<Arc<dyn Approver>>,
    asking: tokio::sync::Mutex<()>,
}

impl Permissions {
    /// Allows tools, or [`OUTSIDE_PERMISSION`], by name.
    pub(super) fn allow(&self, names: impl IntoIterator<Item = String>) {
        self.allowed().extend(names);
    }

    /// Has a person asked about all that is not allowed.
    pub(super) fn ask(&mut self, approve: Arc<dyn Approver>) {
        self.approve = Some(approve);
    }

    /// Whether a call that needs one of these permissions could get to run.
    pub(super) fn could_run(&self, permissions: &[String]) -> bool {
        self.approve.is_some() || self.allows_any_of(permissions)
    }

    /// Whether this is allowed without asking.
    pub(super) fn allows(&self, name: &str) -> bool {
        self.allowed().contains(name)
    }

    /// Whether something is allowed whose name begins like this.
    #[cfg(all(unix, feature = "mcp"))]
    pub(super) fn allows_prefix(&self, prefix: &str) -> bool {
        self.allowed().iter().any(|name| name.starts_with(prefix))
    }

    /// Whether one of these is allowed without asking, or none is needed.
    fn allows_any_of(&self, permissions: &[String]) -> bool {
        permissions.is_empty() || permissions.iter().any(|name| self.allows(name))
    }

    /// Ends well when the call, which needs one of these permissions, may run. The error says why it may not.
    pub(super) async fn permit(
        &self,
        mut question: ApprovalRequest,
        permissions: &[String],
    ) -> Result<(), String> {
        let Some(missing) = self.missing(&question, permissions) else {
            return Ok(());
        };
        let Some(approve) = &self.approve else {
            return Err(not_allowed(&question, &missing));
        };
        let _one_at_a_time = self.asking.lock().await;
        let Some(missing) = self.missing(&question, permissions) else {
            return Ok(());
        };
        question.permission = missing;
        match approve.ask(&question).await {
            ApprovalDecision::Yes => Ok(()),
            ApprovalDecision::Always => {
                self.allow([question.permission]);
                Ok(())
            }
            ApprovalDecision::No => Err("the user did not allow it".to_owned()),
        }
    }

    /// What has to be allowed first.
    fn missing(&self, question: &ApprovalRequest, permissions: &[String]) -> Option<String> {
        if question.outside.is_some() && !self.allows(OUTSIDE_PERMISSION) {
            return Some(OUTSIDE_PERMISSION.to_owned());
        }
        let first = permissions.first()?;
        (!self.allows_any_of(permissions)).then(|| first.clone())
    }

    fn allowed(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.allowed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn not_allowed(question: &ApprovalRequest, missing: &str) -> String {
    match &question.outside {
        Some(path) if missing == OUTSIDE_PERMISSION => format!(
            "{} is outside of the working folder, and leaving that is not allowed here",
            path.display()
        ),
        _ => NOT_ALLOWED.to_owned(),
    }
}
