//! The input of a turn: the request, the model, the limits and tools, and the state that an earlier process left.

use super::control::Control;
use super::fallback::Models;
use super::record::Ids;
use super::tools::OutstandingCall;
use crate::accounts::Accounts;
use crate::compaction::Compactor;
use crate::inbox::Inbox;
use crate::journal::{Entry, Journal};
use crate::shared_state::SharedState;
use crate::tools::Toolbox;
use crate::{CancellationToken, Clock, Provider, RetryStrategy};
use outlast_dialect::{Message, Request, StreamCursor};
use outlast_kernel::attempt::Wait;
use outlast_kernel::budget::{Chain, Price, Prompt};
use outlast_kernel::decision::AfterContent;
use outlast_kernel::event::Usage;
use outlast_kernel::failure::ClassifiedFailure;
use outlast_kernel::model_info::{Capabilities, ContinueBy};
use std::sync::Arc;

/// The complete input of a turn.
pub struct Turn<'a> {
    /// The provider that is called.
    pub provider: &'a dyn Provider,
    /// The request; it grows with each step.
    pub request: Request,
    /// The retry schedule; `None` means that nothing is retried.
    pub retry: Option<&'a dyn RetryStrategy>,
    /// The turn's budget, as its outermost caller made it.
    pub budget: Prompt,
    /// The price of tokens; without it, no cost is counted.
    pub price: Option<Price>,
    /// The source of time.
    pub clock: &'a dyn Clock,
    /// The session and the turn that the events belong to.
    pub ids: Ids,
    /// The handle through which others cancel the turn or skip its waits.
    pub control: Control,
    /// The accounts to use; without them, the provider's own credential is used.
    pub accounts: Option<&'a Accounts>,
    /// The state shared with other turns and processes; without it, the turn follows its own schedule only.
    pub shared_state: Option<&'a SharedState>,
    /// The tools that the model may call; without them, the turn ends with the first completion.
    pub tools: Option<&'a dyn Toolbox>,
    /// The known capabilities of the model.
    pub traits: Capabilities,
    /// The alternative models; without them, the turn has no fallback.
    pub models: Option<Models<'a>>,
    /// Makes the conversation smaller when it has become too large; without it, an overflow ends the turn.
    pub compaction: Option<&'a dyn Compactor>,
    /// The treatment of a completion that is interrupted after a part of it was handed on.
    pub after_content: AfterContent,
    /// The maximum number of corrections in a row for invalid completions; 0 accepts every completion as it is.
    pub corrections: u32,
    /// The source of messages that are queued for the model during the turn.
    pub inbox: Option<&'a dyn Inbox>,
    /// The journal that records the turn.
    pub journal: Option<&'a dyn Journal>,
    /// The first entries of the journal.
    pub initial_entries: Vec<Entry>,
    /// The state that an earlier process left.
    pub resume_state: ResumeState,
}

impl<'a> Turn<'a> {
    /// Creates a turn with no retries, no tools, no journal and no limits; the other fields can be set.
    pub fn new(provider: &'a dyn Provider, request: Request, clock: &'a dyn Clock) -> Self {
        Self {
            provider,
            request,
            retry: None,
            budget: Prompt::default(),
            price: None,
            clock,
            ids: Ids::fresh(),
            control: Control::new(CancellationToken::new()).0,
            accounts: None,
            shared_state: None,
            tools: None,
            traits: Capabilities::default(),
            models: None,
            compaction: None,
            after_content: AfterContent::Fail,
            corrections: 0,
            inbox: None,
            journal: None,
            initial_entries: Vec::new(),
            resume_state: ResumeState::default(),
        }
    }
}

impl Turn<'_> {
    /// Returns whether the provider should store the completion, so that its rest can be fetched.
    pub(super) fn is_resumable(&self) -> bool {
        let goes_on = self.after_content == AfterContent::Continue;
        goes_on && self.traits.continues_by == ContinueBy::Resume
    }
}

/// The state in which an earlier process left a turn. The messages of its steps are in the request already; those of
/// its outstanding tool calls are not.
#[derive(Clone, Debug, Default)]
pub struct ResumeState {
    /// The number of calls that were made.
    pub attempts: u32,
    /// The tokens that they used.
    pub usage: Usage,
    /// The part of that usage whose cost the budget includes. The rest was used by the model that was in use last.
    pub priced_usage: Usage,
    /// The key of that model, if it was not the first one.
    pub model: Option<String>,
    /// The expenses of the open retry chain.
    pub chain: Chain,
    /// The failure that the chain retries.
    pub failure: Option<Arc<ClassifiedFailure>>,
    /// The wait that was in progress.
    pub wait: Option<Wait>,
    /// The accounts that were switched away from.
    pub abandoned_accounts: Vec<String>,
    /// The keys of the models that the open chain has asked, if it has switched models.
    pub attempted_models: Vec<String>,
    /// The key of the model that the open chain has left and may return to, and the failure for which it was left.
    pub recoverable_model: Option<(String, Arc<ClassifiedFailure>)>,
    /// The calls of the last completion, if their results are incomplete.
    pub outstanding_calls: Vec<OutstandingCall>,
    /// The beginning of an interrupted completion, which the next call continues.
    pub continuation: Option<CompletionPrefix>,
    /// The user's messages in this turn, if they are not the last message of the request.
    pub inputs: Vec<String>,
}

/// The beginning of an interrupted completion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompletionPrefix {
    /// The part that arrived.
    pub message: Message,
    /// The cursor from which the provider can send the rest, if it stores completions.
    pub resume_token: Option<StreamCursor>,
}
