//! Decides which calls may run: pure ones, those allowed by name, and those that a person approves.
//!
//! Invariant: a person is asked one question at a time, and never one that an earlier decision has settled.

use super::Effect;
use outlast_engine::BoxFuture;
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

/// The permission to leave the working folder, beside the names of tools.
pub const OUTSIDE_PERMISSION: &str = "outside";

/// The refusal of a call that is not allowed when there is no person to ask.
pub(super) const NOT_ALLOWED: &str = "it is not allowed here";

/// A person's decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApprovalDecision {
    /// Allows this call, with everything that it needs.
    AllowOnce,
    /// Allows this call, and [`ApprovalRequest::permission`] for the rest of the session.
    AllowAlways,
    /// Refuses the call.
    Deny,
}

/// A question to a person.
#[derive(Clone, Debug, PartialEq)]
pub struct ApprovalRequest {
    /// The tool that wants to run.
    pub tool: String,
    /// The permission that [`ApprovalDecision::AllowAlways`] would grant: the tool, or [`OUTSIDE_PERMISSION`].
    pub permission: String,
    /// A description of the call in one line; a long one is cut.
    pub summary: String,
    /// All of its arguments.
    pub arguments: Value,
    /// The effect of running it twice.
    pub effect: Effect,
    /// The path outside of the working folder, if the call would leave it.
    pub outside_path: Option<PathBuf>,
}

/// Asks a person for approval.
pub trait Approver: Send + Sync {
    /// Asks, and waits for the decision. The future is dropped when the question has become pointless.
    fn request_approval<'a>(
        &'a self,
        question: &'a ApprovalRequest,
    ) -> BoxFuture<'a, ApprovalDecision>;
}

/// The permissions granted in this session.
#[derive(Default)]
pub(super) struct Permissions {
    allowed: Mutex<BTreeSet<String>>,
    approver: Option<Arc<dyn Approver>>,
    approval_lock: tokio::sync::Mutex<()>,
}

impl Permissions {
    /// Grants tools, or [`OUTSIDE_PERMISSION`], by name.
    pub(super) fn allow(&self, names: impl IntoIterator<Item = String>) {
        self.allowed.lock().extend(names);
    }

    /// Sets the approver, who is asked about all calls that are not allowed.
    pub(super) fn set_approver(&mut self, approve: Arc<dyn Approver>) {
        self.approver = Some(approve);
    }

    /// Returns whether a call that needs one of these permissions could get to run.
    pub(super) fn can_run(&self, permissions: &[String]) -> bool {
        self.approver.is_some() || self.allows_any_of(permissions)
    }

    /// Returns whether this is allowed without asking.
    pub(super) fn allows(&self, name: &str) -> bool {
        self.allowed.lock().contains(name)
    }

    /// Returns whether a permission is granted whose name begins with this prefix.
    #[cfg(all(unix, feature = "mcp"))]
    pub(super) fn allows_prefix(&self, prefix: &str) -> bool {
        self.allowed
            .lock()
            .iter()
            .any(|name| name.starts_with(prefix))
    }

    /// Returns whether one of these is allowed without asking, or none is needed.
    fn allows_any_of(&self, permissions: &[String]) -> bool {
        permissions.is_empty() || permissions.iter().any(|name| self.allows(name))
    }

    /// Succeeds when the call, which needs one of these permissions, may run. The error is the reason for the refusal.
    pub(super) async fn authorize(
        &self,
        mut question: ApprovalRequest,
        permissions: &[String],
    ) -> Result<(), String> {
        let Some(missing) = self.missing_permission(&question, permissions) else {
            return Ok(());
        };
        let Some(approve) = &self.approver else {
            return Err(not_allowed(&question, &missing));
        };
        let _one_at_a_time = self.approval_lock.lock().await;
        let Some(missing) = self.missing_permission(&question, permissions) else {
            return Ok(());
        };
        question.permission = missing;
        match approve.request_approval(&question).await {
            ApprovalDecision::AllowOnce => Ok(()),
            ApprovalDecision::AllowAlways => {
                self.allow([question.permission]);
                Ok(())
            }
            ApprovalDecision::Deny => Err("the user did not allow it".to_owned()),
        }
    }

    /// Returns the permission that must be granted first.
    fn missing_permission(
        &self,
        question: &ApprovalRequest,
        permissions: &[String],
    ) -> Option<String> {
        if question.outside_path.is_some() && !self.allows(OUTSIDE_PERMISSION) {
            return Some(OUTSIDE_PERMISSION.to_owned());
        }
        let first = permissions.first()?;
        (!self.allows_any_of(permissions)).then(|| first.clone())
    }
}

fn not_allowed(question: &ApprovalRequest, missing: &str) -> String {
    match &question.outside_path {
        Some(path) if missing == OUTSIDE_PERMISSION => format!(
            "{} is outside of the working folder, and leaving that is not allowed here",
            path.display()
        ),
        _ => NOT_ALLOWED.to_owned(),
    }
}
