//! The events that listeners receive: one vocabulary, versioned and numbered, with absolute times.
//!
//! Other protocols (the pi protocol, the turn stream, the gateway's comments) are translations of these events, made
//! at the edge. Invariant: no event carries a credential; a provider's message is cleaned when its failure is created.

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

/// One thing that happened, and where it belongs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Event {
    /// The version of the vocabulary.
    pub v: u32,
    /// Its number within the session, from 1, without gaps; a process that takes a session up counts anew.
    pub seq: u64,
    /// When it happened.
    pub time: Timestamp,
    /// The session.
    pub session_id: String,
    /// The turn.
    pub turn_id: String,
    /// The attempt, once there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt_id: Option<String>,
    /// What happened.
    #[serde(flatten)]
    pub body: Body,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Body {
    /// A turn begins.
    Start {
        /// Who is called.
        provider: String,
        /// What is asked for.
        model: String,
    },
    /// What the user said.
    Input {
        /// The text.
        text: String,
    },
    /// What waits to be said to the model is now this.
    QueueChanged {
        /// What is said as soon as the model can be told something.
        steering: Vec<String>,
        /// What is said when it has answered.
        follow_up: Vec<String>,
    },
    /// The session has another title.
    Renamed {
        /// The title.
        title: String,
    },
    /// From here on that account is asked with.
    Account {
        /// Its name.
        name: String,
    },
    /// An account is set aside, for everyone who uses it.
    AccountBlocked {
        /// Its name.
        name: String,
        /// Why.
        cause: Cause,
        /// Until then.
        until: Timestamp,
    },
    /// A call is made.
    AttemptStarted {
        /// Its number within the turn, from 1.
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
    /// Reasoning that is complete, with what proves it; its pieces came before.
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
    /// What came of a tool call.
    ToolResult {
        /// The call's id.
        id: String,
        /// What the tool said.
        output: String,
        /// Whether it failed, or was not run.
        is_error: bool,
    },
    /// What happens could not be written down: a restart would not know of it. It goes on, and is tried again.
    Unrecorded {
        /// Why.
        message: String,
    },
    /// What the call has used so far.
    Usage(Usage),
    /// What this attempt said does not count: it is asked for anew.
    Retracted {
        /// The attempt.
        attempt: u32,
    },
    /// The answer broke off here; what follows goes on from there.
    Seam {
        /// How.
        by: ContinueBy,
    },
    /// From here on another model is asked.
    ModelSwitched {
        /// The model that is left.
        from: String,
        /// The model that is asked.
        to: String,
        /// What was wrong; nothing when the first one is asked again.
        #[serde(skip_serializing_if = "Option::is_none")]
        cause: Option<Cause>,
        /// Until when the other one is left, if only for a time.
        #[serde(skip_serializing_if = "Option::is_none")]
        until: Option<Timestamp>,
    },
    /// The model is told what was wrong with its answer, and asked again.
    Corrected {
        /// What was wrong.
        cause: Cause,
        /// The same in words.
        message: String,
        /// How often in a row that has happened.
        attempt: u32,
        /// How often it may.
        max_attempts: u32,
    },
    /// Something that a person should know, and that ends nothing.
    Warning {
        /// What.
        message: String,
    },
    /// What answers that broke off have cost in addition.
    BilledTwice {
        /// The tokens that were paid for more than once.
        usage: Usage,
        /// Whether some of them are an estimate: the provider had not said them yet.
        estimated: bool,
    },
    /// One call of the turn ended well.
    StepComplete {
        /// The model that answered.
        #[serde(default)]
        model: String,
        /// Why the model stopped.
        stop_reason: StopReason,
    },
    /// A retry will happen.
    RetryScheduled {
        /// Its number, from 1.
        attempt: u32,
        /// How many there can be, where that is known.
        #[serde(skip_serializing_if = "Option::is_none")]
        max_attempts: Option<u32>,
        /// The wait in milliseconds.
        delay_ms: u64,
        /// When it will happen.
        retry_at: Timestamp,
        /// What went wrong.
        cause: Cause,
        /// The provider's message.
        message: String,
        /// The HTTP status or the provider's code.
        #[serde(skip_serializing_if = "Option::is_none")]
        code: Option<String>,
    },
    /// The gate, which knows what others have met, has this call wait its turn. Said again when the time moves.
    Held {
        /// Until then, as things are.
        until: Timestamp,
        /// What is wrong there, where that is known.
        #[serde(skip_serializing_if = "Option::is_none")]
        cause: Option<Cause>,
    },
    /// The conversation is being made smaller.
    AutoCompactionStarted {
        /// Why.
        reason: CompactionReason,
        /// How many tokens it has, about.
        tokens: u64,
    },
    /// A summary failed and is tried again.
    AutoCompactionRetry {
        /// The number of the retry, from 1.
        attempt: u32,
        /// When it will happen.
        retry_at: Timestamp,
        /// What went wrong.
        cause: Cause,
        /// The provider's message.
        message: String,
    },
    /// That is over.
    AutoCompactionEnded {
        /// Why it was done.
        reason: CompactionReason,
        /// How many tokens the conversation had, about.
        before: u64,
        /// How many it has, about.
        after: u64,
        /// Whether the call that failed is made again.
        will_retry: bool,
        /// What stands for what was left out, if it was summarised.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        summary: Option<String>,
        /// Why it is as it was.
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    /// A chain of retries is over.
    RetryEnded {
        /// Whether a retry succeeded.
        success: bool,
        /// The number of the last retry.
        attempt: u32,
        /// Why it ended without success.
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    /// The turn's error, said once.
    Error {
        /// What may be done about it.
        class: Class,
        /// What went wrong.
        cause: Cause,
        /// The provider's message.
        message: String,
        /// The HTTP status or the provider's code.
        #[serde(skip_serializing_if = "Option::is_none")]
        code: Option<String>,
        /// Why nothing more was tried.
        reason: String,
    },
    /// The turn's answer is complete.
    Done {
        /// Why the model stopped.
        stop_reason: StopReason,
    },
    /// The turn is over; nothing follows.
    Sealed {
        /// How it ended.
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

/// What a model thought before it answered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Reasoning {
    /// As much of it as may be read.
    pub text: String,
    /// What its provider wants back with it, byte for byte.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proof: Option<Proof>,
    /// The model that it came from, where that is known.
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

/// What makes reasoning acceptable to the provider that it came from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Proof {
    /// A signature over the text.
    Signature {
        /// The signature.
        signature: String,
    },
    /// Reasoning that may not be read.
    Redacted {
        /// What stands for it.
        data: String,
    },
    /// Reasoning that is kept by the client, encrypted.
    Encrypted {
        /// Its id.
        id: String,
        /// The encrypted content, where it was sent.
        #[serde(skip_serializing_if = "Option::is_none")]
        content: Option<String>,
    },
}

/// Tokens used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Usage {
    /// Tokens read, those from the cache not counted.
    pub input: u64,
    /// Tokens written.
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
    pub fn read(self) -> u64 {
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

/// Why the model stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StopReason {
    /// It was done.
    EndTurn,
    /// It wants tools to run.
    ToolUse,
    /// It reached the output limit.
    Length,
    /// It refused.
    Refusal,
    /// Something else.
    Other,
}

/// Why a conversation is made smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CompactionReason {
    /// A person wants it.
    Manual,
    /// It comes close to what the model can read.
    Threshold,
    /// It has more tokens than the model can read.
    Overflow,
    /// It has more bytes than the provider takes.
    TooManyBytes,
    /// Sending it took the provider too long.
    SlowUpload,
}

/// How a turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", schemars(rename = "Seal"))]
pub enum TurnStatus {
    /// With an answer.
    Completed,
    /// With an error.
    Error,
    /// By a person's will.
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
