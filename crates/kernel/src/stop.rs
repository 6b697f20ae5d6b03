//! Why an answer that ended is no answer.

use crate::event::{StopReason, ToolCall, Usage};
use crate::verdict::Cause;

/// Whether a model has shown its reasoning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reasoned {
    /// It has not.
    #[default]
    None,
    /// It has, without proof.
    Unproven,
    /// It has, with what its provider wants back.
    Proven,
}

/// An answer that ended.
#[derive(Clone, Copy, Debug)]
pub struct Answered<'a> {
    pub stop_reason: StopReason,
    pub text: &'a str,
    pub calls: &'a [&'a ToolCall],
    pub reasoned: Reasoned,
    pub call_was_cut: bool,
    pub usage: Usage,
    pub tools: bool,
    pub window: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Oddity {
    Empty { billed: bool },
    Refused,
    CutCall,
    Announced,
    RepeatedReasoning,
    BlankArguments,
}

pub fn judge(_: &Answered<'_>) -> Option<Oddity> {
    None
}

impl Oddity {
    pub const fn cause(self) -> Cause {
        Cause::EmptyOutput
    }
    pub const fn keeps_answer(self) -> bool {
        false
    }
    pub const fn notice(self) -> Option<&'static str> {
        None
    }
    pub const fn problem(self) -> &'static str {
        ""
    }
}
