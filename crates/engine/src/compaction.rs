//! The interface between a turn and a compactor, which makes the conversation smaller.
//!
//! Invariant: a compaction takes effect only when the turn has written it to the journal; a failed one changes nothing.
//! Not here: the algorithm (see `compaction` in the session crate).

use crate::{BoxFuture, CancellationToken};
use outlast_dialect::{Message, Request};
use outlast_kernel::budget::Prompt;
use outlast_kernel::event::{Body, CompactionReason, Usage};
use outlast_kernel::failure::ClassifiedFailure;
use outlast_kernel::fallback::Exclusions;

/// A request to compact a conversation.
pub struct Job<'a> {
    /// The request as it would be sent.
    pub request: &'a Request,
    /// The size of the request.
    pub size: Size,
    /// The reason for the compaction.
    pub reason: CompactionReason,
    /// The topic that the summary should focus on, if the user named one.
    pub focus: Option<&'a str>,
    /// The budget for the compaction.
    pub budget: Prompt,
    /// The models that are excluded for a while and should not be asked for the summary.
    pub unavailable_models: &'a Exclusions,
    /// Cancelled when the result is no longer needed.
    pub cancel: CancellationToken,
    /// Emits events to listeners, such as waits during the compaction.
    pub emit: &'a mut (dyn FnMut(Body) + Send),
}

/// The size of a request, and its limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// The tokens of the request, as far as they are known.
    pub tokens: u64,
    /// The maximum number of tokens of a request and its completion together, if known.
    pub window: Option<u64>,
}

/// The outcome of a compaction.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The smaller conversation, or the reason why there is none.
    pub result: Result<CompactedConversation, String>,
    /// The tokens that the compaction's calls used.
    pub usage: Usage,
    /// The remaining budget.
    pub budget: Prompt,
}

/// A conversation with the same content in fewer tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompactedConversation {
    /// All messages of the compacted conversation.
    pub messages: Vec<Message>,
    /// The estimated number of tokens of a request with this conversation.
    pub size: u64,
    /// The model that wrote the summary; `None` when parts were only left out.
    pub model: Option<String>,
}

/// Makes conversations smaller.
pub trait Compactor: Send + Sync {
    /// Returns whether a request of this size should be compacted before it is sent.
    fn should_compact(&self, size: Size) -> bool;

    /// Returns the reason for a compaction that may help against this failure of a request of this size, if one may.
    fn reason_for(
        &self,
        judged: &ClassifiedFailure,
        request: &Request,
        size: Size,
    ) -> Option<CompactionReason>;

    /// Compacts the conversation so that the request fits. This may run a turn of its own.
    fn compact<'a>(&'a self, job: Job<'a>) -> BoxFuture<'a, Outcome>;
}
