//! The names of the kinds of events, as they are written.
//!
//! Invariant: the name is the `type` of the event that is written; a kind without a name does not compile.

use super::Body;

macro_rules! kinds {
    ($($name:ident => $word:literal;)*) => {
        impl Body {
            /// The names of all kinds.
            pub const KINDS: &[&'static str] = &[$($word),*];

            /// Returns the name of the event's kind.
            pub const fn kind(&self) -> &'static str {
                match self { $(Self::$name { .. } => $word,)* }
            }
        }
    };
}

kinds! {
    Start => "start";
    Input => "input";
    QueueChanged => "queue_changed";
    Renamed => "renamed";
    Account => "account";
    AccountBlocked => "account_blocked";
    AttemptStarted => "attempt_started";
    TextDelta => "text_delta";
    ReasoningDelta => "reasoning_delta";
    ReasoningDone => "reasoning_done";
    ToolCall => "tool_call";
    ToolStarted => "tool_started";
    ToolResult => "tool_result";
    Unrecorded => "unrecorded";
    Usage => "usage";
    Retracted => "retracted";
    Seam => "seam";
    ModelSwitched => "model_switched";
    Corrected => "corrected";
    Warning => "warning";
    BilledTwice => "billed_twice";
    StepComplete => "step_complete";
    RetryScheduled => "retry_scheduled";
    Held => "held";
    AutoCompactionStarted => "auto_compaction_started";
    AutoCompactionRetry => "auto_compaction_retry";
    AutoCompactionEnded => "auto_compaction_ended";
    RetryEnded => "retry_ended";
    Error => "error";
    Done => "done";
    Sealed => "sealed";
}
