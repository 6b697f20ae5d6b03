//! Runs turns: one at a time, each with the setup that the session had when it began.
//!
//! Invariants: a prompt returns when its last retry is over, not before; a queued message that is sent and its removal from
//! the queue are written together. Not here: the steps of a turn (see the engine's `turn`).

use super::queue::{SessionInbox, take_notes};
use super::setup::{PromptRequest, Setup, SwitchableCompaction, SwitchableRetry};
use super::{Error, Session};
use outlast_dialect::Message;
use outlast_engine::compaction::Compactor;
use outlast_engine::inbox::QueuedMessage;
use outlast_engine::journal::Entry;
use outlast_engine::turn::{Control, Ids, Models, ResumeState, Turn, TurnOutcome};
use outlast_engine::{CancellationToken, run_turn};
use outlast_kernel::budget::Prompt;
use outlast_kernel::event::{Body, Event, TurnStatus};
use outlast_kernel::fallback;
use std::sync::Arc;

impl Session {
    /// Sends a prompt to the model, and returns when its turn is over, including all steps, retries and waits.
    pub async fn prompt(&self, ask: PromptRequest) -> Result<TurnOutcome, Error> {
        drop(self.compaction_lock.lock().await);
        let running = self.acquire_run_cancellable(ask.abort.clone())?;
        self.ensure_no_unfinished_turn()?;
        let notes = self.journal.update_queue(take_notes);
        let begun = self.begin_turn(ask, notes);
        Ok(self.run(running, begun).await)
    }

    /// Sends the queued messages as a turn of their own; `None` when the queue is empty. Ignores the message in `ask`.
    pub async fn prompt_queued(&self, ask: PromptRequest) -> Result<Option<TurnOutcome>, Error> {
        drop(self.compaction_lock.lock().await);
        let running = self.acquire_run_cancellable(ask.abort.clone())?;
        self.ensure_no_unfinished_turn()?;
        let letters = self.take_for_turn();
        if letters.is_empty() {
            return Ok(None);
        }
        let message = None;
        let begun = self.begin_turn(PromptRequest { message, ..ask }, letters);
        Ok(Some(self.run(running, begun).await))
    }

    /// Resumes the unfinished turn at the point where an earlier process left it.
    pub async fn resume(&self) -> Result<TurnOutcome, Error> {
        self.resume_cancellable(CancellationToken::new()).await
    }

    /// Resumes the unfinished turn, until `abort` is cancelled.
    pub async fn resume_cancellable(&self, abort: CancellationToken) -> Result<TurnOutcome, Error> {
        let running = self.acquire_run_cancellable(abort)?;
        let found = self.journal.with_state(|standing| {
            let unfinished = standing.unfinished.clone()?;
            let turn = (standing.turns, unfinished);
            Some((standing.messages.clone(), standing.models.clone(), turn))
        });
        let (messages, models, (turn, unfinished)) =
            found.ok_or_else(|| self.nothing_to_resume_error())?;
        self.journal.begin_turn(turn);
        let begun = TurnStart {
            messages,
            models,
            turn_id: unfinished.turn_id,
            budget: unfinished.budget,
            resume_state: unfinished.resume_state,
            opening: Vec::new(),
            includes_queued: false,
        };
        Ok(self.run(running, begun).await)
    }

    /// Retries the last turn, which failed or was cancelled. No message is added, and no tool runs again.
    pub async fn retry_last_turn(&self, ask: PromptRequest) -> Result<TurnOutcome, Error> {
        let last_seal = self.journal.with_state(|standing| standing.last_seal);
        if matches!(last_seal, None | Some(TurnStatus::Completed)) {
            return Err(self.nothing_to_resume_error());
        }
        let message = None;
        self.prompt(PromptRequest { message, ..ask }).await
    }

    fn ensure_no_unfinished_turn(&self) -> Result<(), Error> {
        match self.unfinished_turn() {
            Some(_) => Err(self.unfinished_error()),
            None => Ok(()),
        }
    }

    pub(super) fn unfinished_error(&self) -> Error {
        let session = self.id.clone();
        Error::Unfinished { session }
    }

    fn nothing_to_resume_error(&self) -> Error {
        let session = self.id.clone();
        Error::NothingToResume { session }
    }

    /// Reserves the session for one turn or compaction; fails if another one is running.
    pub(super) fn acquire_run(&self) -> Result<RunGuard<'_>, Error> {
        self.acquire_run_cancellable(CancellationToken::new())
    }

    /// Reserves the session for a turn or compaction that is aborted when `abort` is cancelled.
    pub(super) fn acquire_run_cancellable(
        &self,
        abort: CancellationToken,
    ) -> Result<RunGuard<'_>, Error> {
        let mut running = self.active_run.lock();
        if running.is_some() {
            return Err(Error::Busy);
        }
        if self.journal.is_closed() {
            return Err(Error::Closed);
        }
        let (control, handle) = Control::new(abort.clone());
        *running = Some(handle);
        Ok(RunGuard {
            session: self,
            setup: self.setup(),
            control: Some(control),
            abort,
        })
    }

    /// Begins a turn with these queued messages: notes before the prompt, all others after it.
    fn begin_turn(&self, ask: PromptRequest, letters: Vec<QueuedMessage>) -> TurnStart {
        let (mut messages, turns, mut models) = self.journal.with_state(|standing| {
            (
                standing.messages.clone(),
                standing.turns,
                standing.models.clone(),
            )
        });
        if ask.model_chosen {
            models.clear();
        }
        self.journal.begin_turn(turns + 1);
        let (turn_id, budget) = (uuid::Uuid::now_v7().to_string(), Prompt::new(ask.limits));
        let is_note = |entry: &Entry| matches!(entry, Entry::Delivered { note: true, .. });
        let (mut opening, said): (Vec<Entry>, Vec<Entry>) =
            Entry::delivered(letters).into_iter().partition(is_note);
        opening.push(Entry::Prompt {
            turn_id: turn_id.clone(),
            message: ask.message,
            budget: budget.clone(),
            chosen: ask.model_chosen,
            options: ask.options,
        });
        let includes_queued = !said.is_empty();
        opening.extend(said);
        let inputs = append_messages(&opening, &mut messages);
        let resume_state = ResumeState {
            inputs,
            ..ResumeState::default()
        };
        TurnStart {
            messages,
            models,
            turn_id,
            budget,
            resume_state,
            opening,
            includes_queued,
        }
    }

    async fn run(&self, mut running: RunGuard<'_>, begun: TurnStart) -> TurnOutcome {
        let setup = Arc::clone(&running.setup);
        let request = setup.request(begun.messages);
        let attempts = begun.resume_state.attempts;
        self.event_hub
            .update_snapshot(|snapshot| snapshot.attempt = attempts);
        let retry = setup.retry.as_deref().map(|strategy| SwitchableRetry {
            strategy,
            enabled: &self.auto_retry,
        });
        let compaction = setup.compaction.as_deref();
        let compaction = compaction.map(|compactor| SwitchableCompaction {
            compactor,
            enabled: &self.auto_compaction,
        });
        let (routes, inbox) = (
            setup.routes(),
            SessionInbox::new(self, begun.includes_queued),
        );
        let turn = Turn {
            retry: retry.as_ref().map(|retry| retry as _),
            budget: begun.budget,
            price: setup.price,
            ids: Ids {
                session: self.id.clone(),
                turn: begun.turn_id,
            },
            accounts: setup.accounts.as_deref(),
            shared_state: setup.shared_state.as_ref(),
            tools: setup.tools.as_deref(),
            traits: setup.traits,
            models: Some(Models {
                targets: &routes,
                rules: setup.fallback_rules.clone(),
                availability: begun.models,
            }),
            compaction: compaction.as_ref().map(|it| it as &dyn Compactor),
            after_content: setup.after_content,
            corrections: setup.max_corrections,
            inbox: Some(&inbox),
            journal: Some(&self.journal),
            initial_entries: begun.opening,
            resume_state: begun.resume_state,
            control: running.take_control(),
            ..Turn::new(&*setup.provider, request, &*setup.clock)
        };
        let mut sink = |event: Event| self.publish_turn_event(event);
        let ended = Box::pin(run_turn(turn, &mut sink)).await;
        self.write_late_notes().await;
        ended
    }

    /// Posts an event of the turn. At the input event the sent messages have left the queue; at the last event the state
    /// contains the whole turn.
    fn publish_turn_event(&self, event: Event) {
        match event.body {
            Body::Input { .. } => self.publish_queue(),
            Body::Sealed { .. } => {
                let usage = self.journal.with_state(|standing| standing.usage);
                self.event_hub
                    .update_snapshot(|snapshot| snapshot.usage = usage);
            }
            _ => {}
        }
        self.event_hub.publish(event);
    }
}

/// Adds the messages of entries to a conversation; returns the user's texts among them.
fn append_messages(entries: &[Entry], messages: &mut Vec<Message>) -> Vec<String> {
    let mut inputs = Vec::new();
    for entry in entries {
        let (said, note): (&[Message], bool) = match entry {
            Entry::Prompt { message, .. } => (message.as_slice(), false),
            Entry::Delivered { messages, note, .. } => (messages, *note),
            _ => continue,
        };
        messages.extend_from_slice(said);
        if !note {
            inputs.extend(said.iter().map(Message::text));
        }
    }
    inputs
}

/// The start of a turn.
struct TurnStart {
    messages: Vec<Message>,
    models: fallback::Exclusions,
    turn_id: String,
    budget: Prompt,
    resume_state: ResumeState,
    opening: Vec<Entry>,
    /// Whether the opening entries contain queued messages.
    includes_queued: bool,
}

/// A running turn; dropping it frees the session.
pub(super) struct RunGuard<'a> {
    session: &'a Session,
    /// The session's setup at the start of the turn.
    pub(super) setup: Arc<Setup>,
    control: Option<Control>,
    /// Cancelled when the turn is to end.
    pub(super) abort: CancellationToken,
}

impl RunGuard<'_> {
    fn take_control(&mut self) -> Control {
        let fresh = || Control::new(CancellationToken::new()).0;
        self.control.take().unwrap_or_else(fresh)
    }
}

impl Drop for RunGuard<'_> {
    fn drop(&mut self) {
        let mut running = self.session.active_run.lock();
        let setup = self.session.setup();
        // A turn that was dropped in the middle has not announced the end of its retry.
        self.session.event_hub.update_snapshot(|snapshot| {
            (snapshot.turn_id, snapshot.retry, snapshot.gate_hold) = (None, None, None);
            snapshot.is_compacting = false;
            if !Arc::ptr_eq(&setup, &self.setup) {
                snapshot.model.clone_from(&setup.model);
            }
        });
        *running = None;
    }
}
