//! The events that listeners receive: one vocabulary, versioned and numbered, with absolute times.
//!
//! Other protocols (the pi protocol, the turn stream, the gateway's comments) are translations of these events, made at
//! the edge.
//! Invariant: no event carries a credential; a provider's message is cleaned when its failure is created.

mod kind;

use crate::Timestamp;
use crate::attempt::{RetryEnded, RetryScheduled};
use crate::failure::ClassifiedFailure;
use crate::model_info::ContinueBy;
use crate::time::millis;
use crate::verdict::{Cause, Class};
use serde::{Deserialize, Serialize};

/// The version of the vocabulary.
pub const VERSION: u32 = 1;

/// An event, with its session, turn and attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Event {
    /// The version of the event vocabulary.
    pub v: u32,
    /// The number of the event within the session, from 1, without gaps. A process that resumes the session starts
    /// again at 1.
    pub seq: u64,
    /// The time of the event.
    pub time: Timestamp,
    /// The id of the session.
    pub session_id: String,
    /// The id of the turn.
    pub turn_id: String,
    /// The id of the attempt, once there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt_id: Option<String>,
    /// The type of the event, with its data.
    #[serde(flatten)]
    pub body: Body,
}

/// The type of an event, with its data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Body {
    /// A turn begins.
    Start {
        /// The name of the provider.
        provider: String,
        /// The requested model.
        model: String,
    },
    /// The user's message.
    Input {
        /// The text of the message.
        text: String,
    },
    /// The queue of messages for the model has changed; this is its new content.
    QueueChanged {
        /// Messages that are sent with the next call to the model.
        steering: Vec<String>,
        /// Messages that are sent after the turn's answer.
        follow_up: Vec<String>,
    },
    /// The title of the session has changed.
    Renamed {
        /// The new title.
        title: String,
    },
    /// The account that requests use from now on.
    Account {
        /// The name of the account.
        name: String,
    },
    /// An account is blocked, for all requests that use it.
    AccountBlocked {
        /// The name of the account.
        name: String,
        /// The cause of the block.
        cause: Cause,
        /// The time at which the block ends.
        until: Timestamp,
    },
    /// An attempt to call the model begins.
    AttemptStarted {
        /// The number of the attempt within the turn, from 1.
        attempt: u32,
    },
    /// A piece of the answer.
    TextDelta {
        /// The piece.
        text: String,
    },
    /// A piece of the model's reasoning.
    ReasoningDelta {
        /// The piece.
        text: String,
    },
    /// Complete reasoning, with its proof. Its pieces were sent before.
    ReasoningDone(Reasoning),
    /// The model wants a tool to run.
    ToolCall(ToolCall),
    /// A tool begins to run.
    ToolStarted {
        /// The call's id.
        id: String,
        /// The tool's name.
        name: String,
    },
    /// The result of a tool call.
    ToolResult {
        /// The call's id.
        id: String,
        /// The output of the tool.
        output: String,
        /// Whether the tool failed or was not run.
        is_error: bool,
    },
    /// A failed write to the journal: recent events would be lost in a restart. The turn continues, and the write is
    /// retried.
    Unrecorded {
        /// The reason for the failed write.
        message: String,
    },
    /// The tokens that the call has used so far.
    Usage(Usage),
    /// The output of this attempt is discarded; the model is called again.
    Retracted {
        /// The number of the attempt, from 1.
        attempt: u32,
    },
    /// The point at which the answer was cut off; the following text continues it.
    Seam {
        /// The way in which the answer is continued.
        by: ContinueBy,
    },
    /// A switch to another model for the following requests.
    ModelSwitched {
        /// The previous model.
        from: String,
        /// The new model.
        to: String,
        /// The cause of the switch; absent when switching back to the first model.
        #[serde(skip_serializing_if = "Option::is_none")]
        cause: Option<Cause>,
        /// The time until which the previous model is not used, if the switch is temporary.
        #[serde(skip_serializing_if = "Option::is_none")]
        until: Option<Timestamp>,
    },
    /// A retry after an unusable answer: the model is told the defect.
    Corrected {
        /// The defect of the answer.
        cause: Cause,
        /// The defect, as text for people.
        message: String,
        /// The number of corrections in a row.
        attempt: u32,
        /// The maximum number of corrections in a row.
        max_attempts: u32,
    },
    /// A warning for the user; the turn continues.
    Warning {
        /// The text of the warning.
        message: String,
    },
    /// The additional cost of answers that were cut off.
    BilledTwice {
        /// The tokens that were paid for more than once.
        usage: Usage,
        /// Whether the numbers are partly an estimate, as the provider had not reported them yet.
        estimated: bool,
    },
    /// One call of the turn succeeded.
    StepComplete {
        /// The model that answered.
        #[serde(default)]
        model: String,
        /// The model's reason for stopping.
        stop_reason: StopReason,
    },
    /// A retry is scheduled.
    RetryScheduled {
        /// The number of the retry, from 1.
        attempt: u32,
        /// The maximum number of retries, if known.
        #[serde(skip_serializing_if = "Option::is_none")]
        max_attempts: Option<u32>,
        /// The wait before the retry, in milliseconds.
        delay_ms: u64,
        /// The time of the retry.
        retry_at: Timestamp,
        /// The cause of the failure.
        cause: Cause,
        /// The provider's message.
        message: String,
        /// The HTTP status or the provider's code.
        #[serde(skip_serializing_if = "Option::is_none")]
        code: Option<String>,
    },
    /// A wait at the gate, because other requests have failed. Sent again when the time changes.
    Held {
        /// The expected end of the wait.
        until: Timestamp,
        /// The cause of the wait, if known.
        #[serde(skip_serializing_if = "Option::is_none")]
        cause: Option<Cause>,
    },
    /// Compaction of the conversation has started.
    AutoCompactionStarted {
        /// The reason for the compaction.
        reason: CompactionReason,
        /// The approximate size of the conversation, in tokens.
        tokens: u64,
    },
    /// A failed summary is retried.
    AutoCompactionRetry {
        /// The number of the retry, from 1.
        attempt: u32,
        /// The time of the retry.
        retry_at: Timestamp,
        /// The cause of the failure.
        cause: Cause,
        /// The provider's message.
        message: String,
    },
    /// The compaction has ended.
    AutoCompactionEnded {
        /// The reason for the compaction.
        reason: CompactionReason,
        /// The approximate size of the conversation before, in tokens.
        before: u64,
        /// The approximate size of the conversation now, in tokens.
        after: u64,
        /// Whether the failed call is retried.
        will_retry: bool,
        /// The summary that replaces the removed messages, if there is one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        summary: Option<String>,
        /// The reason for which the conversation is unchanged, if the compaction failed.
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    /// A series of retries has ended.
    RetryEnded {
        /// Whether a retry succeeded.
        success: bool,
        /// The number of the last retry.
        attempt: u32,
        /// The reason for which the retries ended without success.
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    /// The turn's error, sent once.
    Error {
        /// The class of the failure, which says how to respond to it.
        class: Class,
        /// The cause of the failure.
        cause: Cause,
        /// The provider's message.
        message: String,
        /// The HTTP status or the provider's code.
        #[serde(skip_serializing_if = "Option::is_none")]
        code: Option<String>,
        /// The reason for which there is no further retry.
        reason: String,
    },
    /// The turn's answer is complete.
    Done {
        /// The model's reason for stopping.
        stop_reason: StopReason,
    },
    /// The turn is over; nothing follows.
    Sealed {
        /// The final status of the turn.
        status: TurnStatus,
    },
}

/// A tool that the model wants to run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ToolCall {
    /// The call's id, by which its result is matched.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// The arguments, as the JSON text that the model wrote.
    pub arguments: String,
}

/// The reasoning of a model before its answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Reasoning {
    /// The readable part of the reasoning.
    pub text: String,
    /// The proof that the provider requires with the reasoning, unchanged to the byte.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proof: Option<Proof>,
    /// The model that produced the reasoning, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}

impl Reasoning {
    /// Returns whether this reasoning may be sent to the given model: a proof is often valid only for the model that
    /// gave it.
    pub fn can_be_sent_to(&self, model: &str) -> bool {
        self.model.as_deref().is_none_or(|own| own == model)
    }
}

/// The proof by which a provider accepts its own reasoning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Proof {
    /// A signature over the text.
    Signature {
        /// The signature.
        signature: String,
    },
    /// Reasoning that the provider does not disclose.
    Redacted {
        /// The opaque data that the provider sent instead of the reasoning.
        data: String,
    },
    /// Encrypted reasoning, stored by the client.
    Encrypted {
        /// The id of the reasoning.
        id: String,
        /// The encrypted content, if the provider sent it.
        #[serde(skip_serializing_if = "Option::is_none")]
        content: Option<String>,
    },
}

/// The number of tokens used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Usage {
    /// Input tokens, without those read from or written to the cache.
    pub input: u64,
    /// Output tokens.
    pub output: u64,
    /// Tokens read from the cache.
    pub cache_read: u64,
    /// Tokens written to the cache.
    pub cache_write: u64,
}

impl Usage {
    /// Returns this usage minus another one.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        Self {
            input: self.input.saturating_sub(other.input),
            output: self.output.saturating_sub(other.output),
            cache_read: self.cache_read.saturating_sub(other.cache_read),
            cache_write: self.cache_write.saturating_sub(other.cache_write),
        }
    }

    /// Returns the number of input tokens, cached ones included.
    pub fn total_input(self) -> u64 {
        let cached = self.cache_read.saturating_add(self.cache_write);
        self.input.saturating_add(cached)
    }

    /// Returns the sum of two usages.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            input: self.input.saturating_add(other.input),
            output: self.output.saturating_add(other.output),
            cache_read: self.cache_read.saturating_add(other.cache_read),
            cache_write: self.cache_write.saturating_add(other.cache_write),
        }
    }
}

/// The model's reason for stopping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StopReason {
    /// The answer is complete.
    EndTurn,
    /// The model requests tool calls.
    ToolUse,
    /// The model reached its output limit.
    Length,
    /// The model refused to answer.
    Refusal,
    /// Another reason.
    Other,
}

/// The reason for a compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CompactionReason {
    /// A person requested the compaction.
    Manual,
    /// The conversation is close to the model's context window.
    Threshold,
    /// The conversation exceeds the model's context window.
    Overflow,
    /// The conversation has more bytes than the provider accepts.
    TooManyBytes,
    /// The upload of the conversation took too long.
    SlowUpload,
}

/// The final status of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum TurnStatus {
    /// The turn ended with an answer.
    Completed,
    /// The turn ended with an error.
    Error,
    /// A person aborted the turn.
    Aborted,
}

impl From<RetryScheduled> for Body {
    fn from(retry: RetryScheduled) -> Self {
        let ClassifiedFailure { failure, verdict } = &*retry.failure;
        Self::RetryScheduled {
            attempt: retry.attempt,
            max_attempts: retry.max_attempts,
            delay_ms: millis(retry.delay),
            retry_at: retry.at,
            cause: verdict.cause,
            message: failure.message.clone(),
            code: failure.public_code(),
        }
    }
}

impl From<RetryEnded> for Body {
    fn from(end: RetryEnded) -> Self {
        Self::RetryEnded {
            success: end.success,
            attempt: end.attempt,
            error: end.error,
        }
    }
}

impl Body {
    /// Creates the error that ends a turn.
    pub fn error(judged: &ClassifiedFailure, reason: String) -> Self {
        Self::Error {
            class: judged.verdict.class(),
            cause: judged.verdict.cause,
            message: judged.failure.message.clone(),
            code: judged.failure.public_code(),
            reason,
        }
    }
}
