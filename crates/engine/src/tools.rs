//! The interface between a turn and its tools: whether a call may run, and running it.
//!
//! Invariant: a refused call has not begun. A call is admitted first, then journaled as started, then run.

use crate::{BoxFuture, CancellationToken};
use outlast_kernel::event::ToolCall;
use serde::{Deserialize, Serialize};

/// The effect of running a tool twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Changes nothing, however often it runs.
    Pure,
    /// Running it again has the same result as running it once.
    Idempotent,
    /// Running it again may do harm: if it is unknown whether it ran, it is not run again.
    AtMostOnce,
}

impl Effect {
    /// Returns whether an interrupted call may be run again.
    pub const fn may_repeat(self) -> bool {
        !matches!(self, Self::AtMostOnce)
    }
}

/// The result of a tool call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// The text for the model.
    pub text: String,
    /// Whether the call failed.
    pub is_error: bool,
}

impl Output {
    /// Creates the output of a successful call.
    pub fn ok(text: impl Into<String>) -> Self {
        let text = text.into();
        Self {
            text,
            is_error: false,
        }
    }

    /// Creates the output of a failed call.
    pub fn error(text: impl Into<String>) -> Self {
        let text = text.into();
        Self {
            text,
            is_error: true,
        }
    }
}

/// The tools that a turn may run.
pub trait Toolbox: Send + Sync {
    /// Decides whether the call may run, and returns the effect of running it twice. May wait until a person answers.
    /// The model receives an error as the call's result.
    fn admit<'a>(&'a self, call: &'a ToolCall) -> BoxFuture<'a, Result<Effect, String>>;

    /// Runs an admitted call. Once `cancel` is cancelled, the call must end soon and leave nothing running.
    fn run<'a>(&'a self, call: &'a ToolCall, cancel: CancellationToken) -> BoxFuture<'a, Output>;

    /// Ends the processes that keep running between two calls. No call follows.
    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}
