//! What a turn is given: who is asked what, what it may spend and do, and where an earlier process left it.

use super::control::Control;
use super::events::Ids;
use super::fallback::Models;
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

/// Everything that a turn needs.
pub struct Turn<'a> {
    /// Who answers.
    pub provider: &'a dyn Provider,
    /// What is asked; it grows with each step.
    pub request: Request,
    /// When to try again; `None` means never.
    pub retry: Option<&'a dyn RetryStrategy>,
    /// What the turn may spend, as its outermost caller made it.
    pub budget: Prompt,
    /// What tokens cost; without it no cost is counted.
    pub price: Option<Price>,
    /// The time.
    pub clock: &'a dyn Clock,
    /// Where the turn belongs.
    pub ids: Ids,
    /// How others stop or hurry it.
    pub control: Control,
    /// The accounts to ask with; without them, the provider's own credential is used.
    pub accounts: Option<&'a Accounts>,
    /// What is known of the provider beyond this turn; without it, the turn keeps to its own schedule.
    pub knowledge: Option<&'a SharedState>,
    /// What runs the tools that the model calls; without it, the turn ends with the first answer.
    pub tools: Option<&'a dyn Toolbox>,
    /// What is known of the model.
    pub traits: Capabilities,
    /// The models that may be asked instead; without them, it is this one or none.
    pub models: Option<Models<'a>>,
    /// What makes the conversation smaller when it has become too large; without it, an overflow ends the turn.
    pub compaction: Option<&'a dyn Compactor>,
    /// What becomes of an answer that breaks off when part of it was handed on.
    pub after_content: AfterContent,
    /// How often in a row the model is told that its answer was none, and asked again; 0 takes every answer as it is.
    pub corrections: u32,
    /// What others want to be said to the model meanwhile.
    pub inbox: Option<&'a dyn Inbox>,
    /// Where it is written down.
    pub journal: Option<&'a dyn Journal>,
    /// What is written down first.
    pub opening: Vec<Entry>,
    /// Where an earlier process left it.
    pub taken_up: ResumeState,
}

impl<'a> Turn<'a> {
    /// A turn with no retries, no tools, no journal and no limits; the other fields can be set.
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
            knowledge: None,
            tools: None,
            traits: Capabilities::default(),
            models: None,
            compaction: None,
            after_content: AfterContent::Fail,
            corrections: 0,
            inbox: None,
            journal: None,
            opening: Vec::new(),
            taken_up: ResumeState::default(),
        }
    }
}

impl Turn<'_> {
    /// Whether the provider is to keep the answer, so that its rest can be fetched.
    pub(super) fn is_resumable(&self) -> bool {
        let goes_on = self.after_content == AfterContent::Continue;
        goes_on && self.traits.continues_by == ContinueBy::Resume
    }
}

/// Where an earlier process left a turn. The messages of its steps are in the request already, those of the tools that
/// are outstanding are not.
#[derive(Clone, Debug, Default)]
pub struct ResumeState {
    /// The calls that were made.
    pub attempts: u32,
    /// What they used.
    pub usage: Usage,
    /// As much of it as the budget's cost stands for. The rest was used by the model that was in use last.
    pub paid: Usage,
    /// That model, by its key, where it was not the first.
    pub model: Option<String>,
    /// What the open chain of retries has spent.
    pub chain: Chain,
    /// What the chain is for.
    pub failure: Option<Arc<ClassifiedFailure>>,
    /// The wait that was under way.
    pub wait: Option<Wait>,
    /// The accounts that were switched away from.
    pub left: Vec<String>,
    /// The models that the open chain has asked, by their keys, where it has changed them.
    pub asked: Vec<String>,
    /// The model that the open chain has left and that may come back, by its key, and what it was left for.
    pub may_come_back: Option<(String, Arc<ClassifiedFailure>)>,
    /// The calls of the last answer, when their results are not complete.
    pub calls: Vec<OutstandingCall>,
    /// The beginning of an answer that broke off, to go on with.
    pub kept: Option<CompletionPrefix>,
    /// What the user said in this turn, when it is not the last message of the request.
    pub inputs: Vec<String>,
}

/// The beginning of an answer that broke off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompletionPrefix {
    /// As much of it as came.
    pub message: Message,
    /// Where its provider has the rest, if it keeps answers.
    pub place: Option<StreamCursor>,
}
