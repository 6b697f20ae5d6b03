//! What a turn needs of tools: whether a call may run, and running it.
//!
//! Invariant: what is refused has not begun. A call is admitted first, then written down as started, then run.

use crate::{BoxFuture, CancellationToken};
use outlast_kernel::event::ToolCall;
use serde::{Deserialize, Serialize};

/// What running a tool twice would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Nothing is changed, however often it runs.
    Pure,
    /// Running it again leaves what running it once does.
    Idempotent,
    /// Running it again may do harm: when nobody knows whether it ran, it is not run again.
    AtMostOnce,
}

impl Effect {
    /// Whether a call that began and did not end may begin again.
    pub const fn may_repeat(self) -> bool {
        !matches!(self, Self::AtMostOnce)
    }
}

/// What came of a tool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// What it says to the model.
    pub text: String,
    /// Whether it failed.
    pub is_error: bool,
}

impl Output {
    /// It did what it was asked to.
    pub fn ok(text: impl Into<String>) -> Self {
        let text = text.into();
        Self {
            text,
            is_error: false,
        }
    }

    /// It failed.
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
    /// Whether the call may run, and what running it twice would do. It may take as long as a person takes to answer.
    /// An error is what the model is told instead of a result.
    fn admit<'a>(&'a self, call: &'a ToolCall) -> BoxFuture<'a, Result<Effect, String>>;

    /// Runs an admitted call. Once `cancel` is cancelled it must end soon, and leave nothing running.
    fn run<'a>(&'a self, call: &'a ToolCall, cancel: CancellationToken) -> BoxFuture<'a, Output>;

    /// Ends what is kept running between two calls. No call follows.
    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}
