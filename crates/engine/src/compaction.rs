//! What a turn needs to make its conversation smaller.
//!
//! Invariant: nothing counts until the turn has written it down; whoever fails has changed nothing.
//! Not here: how it is done (see the agent's `compaction`).

use crate::{BoxFuture, CancellationToken};
use outlast_dialect::{Message, Request};
use outlast_kernel::budget::Prompt;
use outlast_kernel::event::{Body, CompactionReason, Usage};
use outlast_kernel::failure::ClassifiedFailure;
use outlast_kernel::fallback::Exclusions;

/// A conversation that is to be made smaller.
pub struct Job<'a> {
    /// The request as it would be sent.
    pub request: &'a Request,
    /// How large it is.
    pub size: Size,
    /// Why.
    pub reason: CompactionReason,
    /// What the summary should look at, when a person says so.
    pub focus: Option<&'a str>,
    /// What may be spent on it.
    pub budget: Prompt,
    /// Which models are left for a while: they are no good choice to ask.
    pub left: &'a Exclusions,
    /// Cancelled when it is not wanted any more.
    pub cancel: CancellationToken,
    /// Tells listeners of waits on the way.
    pub say: &'a mut (dyn FnMut(Body) + Send),
}

/// How large a request is, and how large it may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Its tokens, as far as they are known.
    pub tokens: u64,
    /// How many tokens a request and its answer may have together, where that is known.
    pub window: Option<u64>,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The smaller conversation, or why there is none.
    pub result: Result<CompactedConversation, String>,
    /// What its calls used.
    pub usage: Usage,
    /// What is left of the budget.
    pub budget: Prompt,
}

/// A conversation that says the same in fewer words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompactedConversation {
    /// All of it.
    pub messages: Vec<Message>,
    /// How many tokens a request with it has, about.
    pub size: u64,
    /// Who summarised it; nobody, when parts were only left out.
    pub model: Option<String>,
}

/// Makes conversations smaller.
pub trait Compactor: Send + Sync {
    /// Whether a request of that size should be made smaller before it is sent.
    fn is_due(&self, size: Size) -> bool;

    /// Whether a smaller conversation may help against that failure of a request of that size, and in which way.
    fn helps(
        &self,
        judged: &ClassifiedFailure,
        request: &Request,
        size: Size,
    ) -> Option<CompactionReason>;

    /// Makes the conversation smaller, so that the request fits. It may run a turn of its own.
    fn compact<'a>(&'a self, job: Job<'a>) -> BoxFuture<'a, Outcome>;
}
