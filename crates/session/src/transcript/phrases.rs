//! The phrases for single facts, the same in every format.

use super::blocks::Block;
use outlast_dialect::{Image, Part};
use outlast_engine::journal::TurnError;
use outlast_kernel::Timestamp;
use outlast_kernel::event::{StopReason, TurnStatus, Usage};
use outlast_kernel::failure::ClassifiedFailure;
use outlast_store::journal::StoredEntry;

/// Introduces a completion that did not come to its end.
pub(super) const PARTIAL_OUTPUT_NOTE: &str =
    "As much of the answer as came; it is not part of the conversation:";
/// Stands for reasoning without a text.
pub(super) const HIDDEN_REASONING_NOTE: &str = "Reasoning that its provider does not show.";

/// Describes a picture in words instead of its bytes.
pub(super) fn describe_image(image: &Image) -> String {
    let digits = image.data.trim_end_matches('=').len();
    let bytes = digits / 4 * 3 + digits % 4 * 3 / 4;
    format!("Picture: {}, {bytes} bytes", image.media_type)
}

pub(super) fn response_title(model: &str, stop_reason: StopReason) -> String {
    let of = match model {
        "" => String::new(),
        model => format!(" of {model}"),
    };
    let stopped = match stop_reason {
        StopReason::EndTurn | StopReason::ToolUse => "",
        StopReason::Length => " (cut off at the output limit)",
        StopReason::Refusal => " (refused)",
        _ => " (stopped for a reason of its own)",
    };
    format!("Answer{of}{stopped}")
}

pub(super) fn failed_attempt(
    attempt: u32,
    time: Timestamp,
    judged: Option<ClassifiedFailure>,
    parts: Vec<Part>,
) -> Block {
    let (title, message) = match judged {
        Some(ClassifiedFailure { failure, verdict }) => {
            let code = failure.public_code();
            let code = code.map_or(String::new(), |code| format!(" ({code})"));
            let cause = verdict.cause.phrase();
            let title = format!("Attempt {attempt} failed: {cause}{code}");
            (title, failure.message)
        }
        None => (format!("Attempt {attempt} was cancelled"), String::new()),
    };
    Block::FailedAttempt {
        title,
        time,
        message,
        parts,
    }
}

pub(super) fn turn_end(
    seal: TurnStatus,
    time: Timestamp,
    usage: Usage,
    error: Option<TurnError>,
) -> Block {
    let word = match seal {
        TurnStatus::Completed => "Completed",
        TurnStatus::Error => "Failed",
        TurnStatus::Aborted => "Cancelled",
    };
    let (title, message) = match error {
        Some(TurnError {
            cause,
            message,
            reason,
        }) => (format!("{word}: {}: {reason}", cause.phrase()), message),
        None => (word.to_owned(), String::new()),
    };
    Block::TurnEnd {
        title,
        time,
        message,
        tokens: tokens(usage),
    }
}

fn tokens(usage: Usage) -> String {
    let Usage {
        input,
        output,
        cache_read,
        cache_write,
    } = usage;
    format!(
        "Tokens: {input} read, {output} written; {cache_read} read from the cache, {cache_write} written to it"
    )
}

pub(super) fn unreadable_entry(stored: &StoredEntry) -> Block {
    let (seq, kind) = (stored.seq, &stored.entry.kind);
    Block::Unreadable {
        title: format!("Entry {seq} ({kind}) cannot be read"),
        body: stored.entry.body.clone(),
    }
}
