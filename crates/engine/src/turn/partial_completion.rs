//! The completion that the attempts of a step have produced so far.

use outlast_dialect::{Message, Part, Role};
use outlast_kernel::event::{Reasoning, StopReason, Usage};

/// The completion that the attempts have produced so far.
#[derive(Default)]
pub(super) struct PartialCompletion {
    pub(super) parts: Vec<Part>,
    pub(super) stop_reason: Option<StopReason>,
    /// Whether a call is running.
    pub(super) is_in_progress: bool,
    /// Whether content of this attempt was emitted.
    pub(super) has_emitted_content: bool,
    /// Whether the model has shown its reasoning.
    pub(super) has_reasoning: bool,
    /// The reasoning that is still arriving.
    partial_reasoning: String,
    /// The names of the tool calls that are incomplete.
    pub(super) truncated_calls: Vec<String>,
    earlier_usage: Usage,
    pub(super) usage: Usage,
}

impl PartialCompletion {
    /// Creates an empty completion, after attempts with that usage.
    pub(super) fn with_earlier_usage(earlier_usage: Usage) -> Self {
        Self {
            earlier_usage,
            ..Self::default()
        }
    }

    pub(super) fn push_text(&mut self, piece: &str) {
        if let Some(Part::Text { text }) = self.parts.last_mut() {
            text.push_str(piece);
        } else {
            let text = piece.to_owned();
            self.parts.push(Part::Text { text });
        }
    }

    /// Adds to the reasoning that is still arriving.
    pub(super) fn push_reasoning(&mut self, piece: &str) {
        self.has_reasoning = true;
        self.partial_reasoning.push_str(piece);
    }

    /// Completes the reasoning.
    pub(super) fn finish_reasoning(&mut self, reasoning: Reasoning) {
        self.has_reasoning = true;
        self.partial_reasoning.clear();
        self.parts.push(Part::Reasoning(reasoning));
    }

    /// Begins an attempt that continues these parts; the usage of earlier attempts still counts.
    pub(super) fn begin_attempt(&mut self, kept: Vec<Part>) {
        *self = Self::with_earlier_usage(self.total_usage());
        self.parts = kept;
        self.is_in_progress = true;
    }

    /// Adds the usage of calls that are not the step's, such as a compaction.
    pub(super) fn add_usage(&mut self, usage: Usage) {
        self.earlier_usage = self.earlier_usage.plus(usage);
    }

    pub(super) fn total_usage(&self) -> Usage {
        self.earlier_usage.plus(self.usage)
    }

    pub(super) fn text(&self) -> String {
        self.message().text()
    }

    pub(super) fn has_calls(&self) -> bool {
        let is_call = |part: &Part| matches!(part, Part::ToolCall(_));
        self.parts.iter().any(is_call)
    }

    pub(super) fn message(&self) -> Message {
        Message {
            role: Role::Assistant,
            parts: self.parts.clone(),
        }
    }

    /// Returns the message with reasoning that is incomplete, for the journal.
    pub(super) fn message_with_partial_reasoning(&self) -> Message {
        let mut message = self.message();
        if !self.partial_reasoning.is_empty() {
            message.parts.push(Part::Reasoning(Reasoning {
                text: self.partial_reasoning.clone(),
                proof: None,
                model: None,
            }));
        }
        message
    }

    pub(super) fn into_message(self) -> Message {
        Message {
            role: Role::Assistant,
            parts: self.parts,
        }
    }
}
