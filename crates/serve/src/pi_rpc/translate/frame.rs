//! The frames of the pi protocol for events. They borrow their content: each update contains the growing message twice,
//! and no frame copies it.

use crate::pi_rpc::message::{
    Assistant, Block, EmptyObject, ErrorDetails, Message, PricedUsage, ToolResult, User,
};
use outlast_kernel::Timestamp;
use outlast_kernel::event::CompactionReason;
use serde::Serialize;
use serde_json::value::RawValue;

#[derive(Serialize)]
#[serde(
    tag = "type",
    rename_all = "snake_case",
    rename_all_fields = "camelCase"
)]
pub(super) enum Frame<'a> {
    AgentStart,
    AgentEnd {
        messages: &'a [Message],
        will_retry: bool,
    },
    AgentSettled {
        aborted: bool,
    },
    TurnStart,
    TurnEnd {
        message: &'a Assistant,
        tool_results: &'a [ToolResult],
    },
    MessageStart {
        message: MessageRef<'a>,
    },
    MessageUpdate {
        usage: &'a PricedUsage,
        assistant_message_event: Update<'a>,
        message: &'a Assistant,
    },
    MessageEnd {
        message: MessageRef<'a>,
    },
    ToolExecutionStart {
        tool_call_id: &'a str,
        tool_name: &'a str,
        args: &'a RawValue,
    },
    ToolExecutionEnd {
        tool_call_id: &'a str,
        tool_name: &'a str,
        result: Output<'a>,
        is_error: bool,
    },
    AutoRetryStart(Retry<'a>),
    AutoRetryEnd {
        success: bool,
        attempt: u32,
        #[serde(skip_serializing_if = "Option::is_none")]
        final_error: Option<&'a str>,
    },
    CompactionStart {
        reason: &'static str,
    },
    CompactionEnd {
        reason: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        result: Option<Compacted<'a>>,
        aborted: bool,
        will_retry: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        error_message: Option<&'a str>,
    },
    SummarizationRetryScheduled(Retry<'a>),
    SummarizationRetryFinished,
    QueueUpdate {
        steering: &'a [String],
        follow_up: &'a [String],
    },
    SessionInfoChanged {
        name: &'a str,
    },
    ExtensionUiRequest(Request<'a>),
}

/// A message of any kind.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum MessageRef<'a> {
    User(&'a User),
    Assistant(&'a Assistant),
    ToolResult(&'a ToolResult),
}

/// A change of a completion in progress.
#[derive(Clone, Copy, Serialize)]
#[serde(
    tag = "type",
    rename_all = "snake_case",
    rename_all_fields = "camelCase"
)]
pub(super) enum Update<'a> {
    TextStart {
        content_index: usize,
        partial: &'a Assistant,
    },
    TextDelta {
        content_index: usize,
        delta: &'a str,
        partial: &'a Assistant,
    },
    TextEnd {
        content_index: usize,
        content: &'a str,
        partial: &'a Assistant,
    },
    ThinkingStart {
        content_index: usize,
        partial: &'a Assistant,
    },
    ThinkingDelta {
        content_index: usize,
        delta: &'a str,
        partial: &'a Assistant,
    },
    ThinkingEnd {
        content_index: usize,
        content: &'a str,
        partial: &'a Assistant,
    },
    ToolcallStart {
        content_index: usize,
        id: &'a str,
        tool_name: &'a str,
        partial: &'a Assistant,
    },
    ToolcallDelta {
        content_index: usize,
        delta: &'a str,
        partial: &'a Assistant,
    },
    ToolcallEnd {
        content_index: usize,
        tool_call: &'a Block,
        partial: &'a Assistant,
    },
}

/// The output of a tool.
#[derive(Serialize)]
pub(super) struct Output<'a> {
    pub(super) content: &'a [Block],
    pub(super) details: EmptyObject,
}

/// A wait before a retry.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Retry<'a> {
    pub(super) attempt: u32,
    pub(super) max_attempts: u32,
    pub(super) delay_ms: u64,
    pub(super) error_message: &'a str,
    pub(super) outlast: RetryDetails,
}

/// The cause and the end of a wait.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RetryDetails {
    pub(super) retry_at: Timestamp,
    #[serde(flatten)]
    pub(super) details: ErrorDetails,
}

/// The result of a compaction.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Compacted<'a> {
    pub(super) summary: &'a str,
    pub(super) first_kept_entry_id: &'a str,
    pub(super) tokens_before: u64,
    pub(super) estimated_tokens_after: u64,
    pub(super) details: Files,
}

/// The files that a summary covers; always empty here, because our summaries name files in their text.
#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Files {
    read_files: [&'static str; 0],
    modified_files: [&'static str; 0],
}

/// A notice or status for the user, which needs no reply.
#[derive(Serialize)]
#[serde(
    tag = "method",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub(super) enum Request<'a> {
    Notify {
        id: String,
        message: &'a str,
        notify_type: &'static str,
    },
    SetStatus {
        id: String,
        status_key: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        status_text: Option<&'a str>,
    },
}

/// Returns the protocol's word for the reason of a compaction.
pub(super) const fn reason_name(reason: CompactionReason) -> &'static str {
    match reason {
        CompactionReason::Manual => "manual",
        CompactionReason::Threshold => "threshold",
        _ => "overflow",
    }
}
