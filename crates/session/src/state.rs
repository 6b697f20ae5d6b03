//! The state of a session, computed from the entries of its journal.
//!
//! Invariants: failed attempts are not part of the conversation; every tool call of the conversation is followed by a
//! result, whatever entries were lost; the same entries always produce the same state.

use outlast_dialect::{Message, Part, Role, ToolResult};
use outlast_engine::inbox::QueuedMessage;
use outlast_engine::journal::{Entry, ModelSwitch, Spent};
use outlast_engine::tools::Output;
use outlast_engine::turn::{CallProgress, CompletionPrefix, OutstandingCall, ResumeState};
use outlast_kernel::attempt::Wait;
use outlast_kernel::budget::{Chain, Prompt};
use outlast_kernel::event::{ToolCall, TurnStatus, Usage};
use outlast_kernel::failure::ClassifiedFailure;
use outlast_kernel::fallback;
use outlast_kernel::verdict::Class;
use serde_json::Value;
use std::sync::Arc;

const NOT_RUN: &str = "it was not run: the turn ended before it began";
const INTERRUPTED: &str = "it was interrupted and may have partly run";

/// The state of a session.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// The conversation as it is sent.
    pub messages: Vec<Message>,
    /// Number of turns.
    pub turns: u64,
    /// The usage of all turns.
    pub usage: Usage,
    /// The turn that is not settled.
    pub unfinished: Option<UnfinishedTurn>,
    /// The status with which the last turn was settled.
    pub last_seal: Option<TurnStatus>,
    /// The models in cooldown, and for how long.
    pub models: fallback::Exclusions,
    /// The queued messages, the oldest first.
    pub queued: Vec<QueuedMessage>,
}

/// A turn that an earlier process did not finish.
#[derive(Clone, Debug)]
pub struct UnfinishedTurn {
    /// The turn's id.
    pub turn_id: String,
    /// The turn's budget.
    pub budget: Prompt,
    /// Data that the front end has stored with the turn.
    pub options: Value,
    /// The progress of the turn.
    pub resume_state: ResumeState,
}

impl State {
    /// Computes the state from all entries.
    pub fn from_entries(entries: impl IntoIterator<Item = Entry>) -> Self {
        let mut standing = Self::default();
        for entry in entries {
            standing.apply(entry);
        }
        standing
    }

    /// Applies the next entry.
    pub fn apply(&mut self, entry: Entry) {
        match entry {
            prompt @ Entry::Prompt { .. } => self.begin_turn(prompt),
            Entry::Settled { seal, usage, .. } => {
                self.complete_tool_calls();
                self.models.end_turn();
                self.usage = self.usage.plus(usage);
                self.last_seal = Some(seal);
                self.unfinished = None;
            }
            Entry::Message { message, usage, .. } => {
                self.apply_response(&message, usage);
                if !message.parts.is_empty() {
                    self.messages.push(message);
                }
            }
            Entry::Noticed { message, .. } => self.messages.push(message),
            Entry::Queued { id, place, message } => {
                let letter = QueuedMessage { id, place, message };
                self.queued.push(letter);
            }
            Entry::Unqueued { ids } => self.remove_queued(&ids),
            Entry::Delivered {
                ids,
                messages,
                note,
            } => {
                self.remove_queued(&ids);
                self.append_messages(messages, note);
            }
            Entry::Compacted {
                messages,
                usage,
                spent,
                ..
            } => self.apply_compaction(messages, usage, spent),
            Entry::ToolStarted { index, effect, .. } => {
                self.set_call_progress(index, CallProgress::Started(effect));
            }
            Entry::ToolFinished {
                index,
                output,
                is_error,
                ..
            } => {
                let text = output;
                self.set_call_progress(index, CallProgress::Finished(Output { text, is_error }));
                if self.calls().iter().all(is_finished) {
                    self.complete_tool_calls();
                }
            }
            entry => {
                self.apply_switch(&entry);
                if let Some(turn) = &mut self.unfinished {
                    turn.apply(entry);
                }
            }
        }
    }

    fn begin_turn(&mut self, prompt: Entry) {
        let Entry::Prompt {
            turn_id,
            message,
            budget,
            options,
            chosen,
        } = prompt
        else {
            return;
        };
        self.complete_tool_calls();
        self.turns += 1;
        if chosen {
            self.models.clear();
        }
        let inputs = message.iter().map(Message::text).collect();
        self.messages.extend(message);
        self.last_seal = None;
        self.unfinished = Some(UnfinishedTurn {
            turn_id,
            budget,
            options,
            resume_state: ResumeState {
                inputs,
                ..ResumeState::default()
            },
        });
    }

    /// Removes messages from the queue.
    fn remove_queued(&mut self, ids: &[String]) {
        self.queued.retain(|letter| !ids.contains(&letter.id));
    }

    fn append_messages(&mut self, messages: Vec<Message>, note: bool) {
        self.complete_tool_calls();
        if let Some(turn) = &mut self.unfinished {
            // A message never interrupts a completion: the prefix of a broken one was given up before.
            turn.resume_state.continuation = None;
            if !note {
                let texts = messages.iter().map(Message::text);
                turn.resume_state.inputs.extend(texts);
            }
        }
        self.messages.extend(messages);
    }

    fn apply_switch(&mut self, entry: &Entry) {
        if let Entry::Switched {
            model: Some(switch),
            ..
        } = entry
        {
            if let Some(left) = switch.left {
                self.models.exclude(&switch.from, left);
            }
            // A model that is asked again is no longer in cooldown.
            self.models.readmit(&switch.to);
        }
    }

    fn apply_compaction(&mut self, messages: Vec<Message>, usage: Usage, spent: Option<Spent>) {
        self.complete_tool_calls();
        self.messages = messages;
        let Some(turn) = &mut self.unfinished else {
            self.usage = self.usage.plus(usage);
            return;
        };
        turn.resume_state.usage = turn.resume_state.usage.plus(usage);
        if let Some(spent) = spent {
            turn.apply_spending(spent);
        }
    }

    fn apply_response(&mut self, message: &Message, usage: Usage) {
        self.complete_tool_calls();
        let Some(turn) = &mut self.unfinished else {
            return;
        };
        let resume_state = &mut turn.resume_state;
        resume_state.usage = resume_state.usage.plus(usage);
        resume_state.chain = Chain::default();
        (
            resume_state.wait,
            resume_state.failure,
            resume_state.continuation,
        ) = (None, None, None);
        resume_state.attempted_models.clear();
        resume_state.recoverable_model = None;
        resume_state.outstanding_calls = message.tool_calls().map(not_started).collect();
    }

    fn calls(&self) -> &[OutstandingCall] {
        let turn = self.unfinished.as_ref();
        turn.map_or(&[], |turn| &turn.resume_state.outstanding_calls)
    }

    fn set_call_progress(&mut self, index: usize, so_far: CallProgress) {
        let turn = self.unfinished.as_mut();
        if let Some(call) = turn.and_then(|turn| turn.resume_state.outstanding_calls.get_mut(index))
        {
            call.progress = so_far;
        }
    }

    /// Gives every call of the last completion a result, and ends its step.
    fn complete_tool_calls(&mut self) {
        let Some(turn) = &mut self.unfinished else {
            return;
        };
        let calls = std::mem::take(&mut turn.resume_state.outstanding_calls);
        if !calls.is_empty() {
            let parts = calls.into_iter().map(result).collect();
            let role = Role::User;
            self.messages.push(Message { role, parts });
        }
    }
}

impl UnfinishedTurn {
    fn apply(&mut self, entry: Entry) {
        let resume_state = &mut self.resume_state;
        match entry {
            Entry::AttemptStarted { attempt } => {
                resume_state.attempts = attempt;
                resume_state.wait = None;
                resume_state
                    .attempted_models
                    .extend(resume_state.model.clone());
            }
            Entry::AttemptFailed {
                judged,
                message,
                usage,
                kept,
                place: resume_token,
                ..
            } => {
                resume_state.usage = resume_state.usage.plus(usage);
                resume_state.failure = judged.map(Arc::new);
                resume_state.continuation = kept.then_some(CompletionPrefix {
                    message,
                    resume_token,
                });
            }
            Entry::WaitScheduled {
                since,
                until,
                spent,
                ..
            } => {
                self.apply_spending(spent);
                self.resume_state.wait = self.resume_state.failure.clone().map(|failure| Wait {
                    since,
                    until,
                    failure,
                });
            }
            Entry::WaitEnded { spent } => {
                resume_state.wait = None;
                self.apply_spending(spent);
            }
            Entry::Switched { left, model, spent } => {
                resume_state.abandoned_accounts.extend(left);
                if let Some(switch) = model {
                    apply_model_switch(resume_state, switch);
                }
                self.apply_spending(spent);
            }
            _ => {}
        }
    }

    fn apply_spending(&mut self, spent: Spent) {
        self.resume_state.chain = spent.chain;
        self.resume_state.priced_usage = self.resume_state.usage;
        self.budget = spent.prompt;
    }
}

fn apply_model_switch(resume_state: &mut ResumeState, switch: ModelSwitch) {
    let is_back = |(key, _): &mut (String, _)| *key == switch.to;
    let came_back = resume_state.recoverable_model.take_if(is_back);
    // A model in cooldown has been asked: its failure put it there.
    if switch.left.is_some() {
        resume_state.attempted_models.push(switch.from.clone());
        let may_pass = |judged: &Arc<ClassifiedFailure>| judged.verdict.class() == Class::Transient;
        let failure = resume_state.failure.clone();
        match (came_back, failure.filter(may_pass)) {
            // The model is waited for, so the failure that counts is the one for which it was left.
            (Some((_, earlier)), _) => resume_state.failure = Some(earlier),
            (None, Some(failure)) => resume_state.recoverable_model = Some((switch.from, failure)),
            (None, None) => {}
        }
    }
    resume_state.model = Some(switch.to);
}

fn not_started(call: &ToolCall) -> OutstandingCall {
    OutstandingCall {
        call: call.clone(),
        progress: CallProgress::NotStarted,
    }
}

fn is_finished(call: &OutstandingCall) -> bool {
    matches!(call.progress, CallProgress::Finished(_))
}

fn result(outstanding: OutstandingCall) -> Part {
    let output = match outstanding.progress {
        CallProgress::Finished(output) => output,
        CallProgress::Started(_) => Output::error(INTERRUPTED),
        CallProgress::NotStarted => Output::error(NOT_RUN),
    };
    Part::ToolResult(ToolResult {
        id: outstanding.call.id,
        output: output.text,
        is_error: output.is_error,
    })
}
