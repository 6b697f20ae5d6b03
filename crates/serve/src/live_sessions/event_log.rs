//! The event log of a live session: the last events, and the running turn.
//!
//! Invariants: events are numbered without gaps for the life of the live session, however often its session is opened;
//! the running turn and the journal entries before it contain everything that the events up to the last number said.

use crate::native::StaleCursor;
use crate::native::event_buffer::EventBuffer;
use outlast_kernel::event::{Body, Event};

/// Maximum number of events in one batch: a slow reader holds no more than these.
const MAX_BATCH_EVENTS: usize = 128;

/// What happened.
#[derive(Debug, Default)]
pub(super) struct EventLog {
    buffer: EventBuffer,
    live: Option<LiveTurn>,
    /// The event of the current wait.
    wait: Option<Event>,
    /// The turns and entries that the journal had when the session was opened.
    persisted: PersistedRange,
    /// Whether the next turn is a resumed one, a part of which is in the journal already.
    is_resuming: bool,
    /// Changes whenever something else is written down as a whole.
    generation: u64,
    /// The journal status that readers of a closed session know.
    last_journal_status: Option<JournalStatus>,
}

/// The status of a session that is not open here, as the journal shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct JournalStatus {
    /// How many entries it has.
    pub(super) entries: u64,
    /// Whether another process holds the session.
    pub(super) is_open_elsewhere: bool,
}

/// The turn under way.
#[derive(Clone, Debug, Default)]
pub(super) struct LiveTurn {
    turn_id: String,
    /// Whether an earlier process began the turn: then its beginning is in the journal.
    pub(super) is_resumed: bool,
    /// Its events, with the deltas of a text merged.
    pub(super) events: Vec<Event>,
}

/// The part of the journal that a snapshot takes from there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PersistedRange {
    /// Turns up to this one, when it is known.
    pub(super) turns: Option<u64>,
    /// Of the turn under way, entries up to this one.
    pub(super) entries: u64,
}

/// The parts of a snapshot that are not in the journal.
#[derive(Clone, Debug)]
pub(super) struct LogSnapshot {
    pub(super) seq: u64,
    pub(super) generation: u64,
    pub(super) persisted: PersistedRange,
    pub(super) live: Option<LiveTurn>,
    pub(super) wait: Option<Event>,
}

impl EventLog {
    /// The session is open: it has so many turns and entries, and perhaps one that is to be carried on.
    pub(super) fn open(&mut self, turns: u64, entries: u64, is_unfinished: bool) {
        self.last_journal_status = None;
        self.persisted = PersistedRange {
            turns: Some(turns),
            entries,
        };
        (self.live, self.wait) = (None, None);
        self.is_resuming = is_unfinished;
        self.generation += 1;
    }

    /// Records that the session was closed. Readers that are up to date continue; others need a snapshot.
    pub(super) fn close(&mut self, session_id: &str, seen: Option<JournalStatus>) {
        let newest = self.buffer.newest();
        self.buffer.reset(session_id, newest);
        self.last_journal_status = seen;
        (self.live, self.wait, self.persisted) = (None, None, PersistedRange::default());
        self.generation += 1;
    }

    /// How a session stands that is not open. What another process has added, or that it has come or gone, nobody here was
    /// told of: every place is behind it. Says whether that is so.
    pub(super) fn update_journal_status(&mut self, session_id: &str, seen: JournalStatus) -> bool {
        let is_new = |known: JournalStatus| {
            seen.entries > known.entries || seen.is_open_elsewhere != known.is_open_elsewhere
        };
        let is_behind = self.last_journal_status.is_some_and(is_new);
        self.last_journal_status = Some(seen);
        if is_behind {
            let newest = self.buffer.newest() + 1;
            self.buffer.reset(session_id, newest);
            self.generation += 1;
        }
        is_behind
    }

    /// Returns a stamp that changes whenever a new snapshot would differ.
    pub(super) fn version(&self) -> (u64, u64) {
        (self.newest(), self.generation)
    }

    pub(super) fn newest(&self) -> u64 {
        self.buffer.newest()
    }

    /// The next events after that number; there may be more.
    pub(super) fn since(&self, after: u64) -> Result<Vec<Event>, StaleCursor> {
        Ok(self
            .buffer
            .since(after)?
            .take(MAX_BATCH_EVENTS)
            .cloned()
            .collect())
    }

    pub(super) fn snapshot(&self) -> LogSnapshot {
        LogSnapshot {
            seq: self.newest(),
            generation: self.generation,
            persisted: self.persisted,
            live: self.live.clone(),
            wait: self.wait.clone(),
        }
    }

    /// Takes note of an event; the session has so many turns by now.
    pub(super) fn push(&mut self, event: &Event, turns: u64) {
        if self.is_already_persisted(event) {
            return;
        }
        let event = Event {
            seq: self.newest() + 1,
            ..event.clone()
        };
        self.buffer.push(&event);
        self.note_wait(&event);
        match &event.body {
            Body::Start { .. } => self.begin(LiveTurn {
                turn_id: event.turn_id.clone(),
                is_resumed: false,
                events: vec![event],
            }),
            Body::Sealed { .. } => {
                (self.live, self.wait) = (None, None);
                self.persisted.turns = Some(turns);
                self.generation += 1;
            }
            _ => self.append_to_turn(event),
        }
    }

    /// Whether that was told before: a turn that is carried on says again what it is about.
    fn is_already_persisted(&mut self, event: &Event) -> bool {
        if !self.is_resuming {
            return false;
        }
        match &event.body {
            Body::Start { .. } => self.begin(LiveTurn {
                turn_id: event.turn_id.clone(),
                is_resumed: true,
                events: Vec::new(),
            }),
            Body::Input { .. } | Body::ToolCall(_) => {}
            // The beginning of an answer that is gone on with was never told as one that stands.
            Body::TextDelta { .. } | Body::ReasoningDelta { .. } | Body::QueueChanged { .. } => {
                return false;
            }
            _ => {
                self.is_resuming = false;
                return false;
            }
        }
        true
    }

    fn begin(&mut self, live: LiveTurn) {
        self.live = Some(live);
        self.generation += 1;
    }

    /// What passes is no part of what a turn has said.
    fn append_to_turn(&mut self, event: Event) {
        let Some(LiveTurn {
            turn_id, events, ..
        }) = &mut self.live
        else {
            return;
        };
        if event.turn_id != *turn_id {
            return;
        }
        match &event.body {
            Body::QueueChanged { .. }
            | Body::Renamed { .. }
            | Body::AttemptStarted { .. }
            | Body::ReasoningDone(_)
            | Body::RetryScheduled { .. }
            | Body::RetryEnded { .. }
            | Body::Held { .. }
            | Body::AutoCompactionStarted { .. }
            | Body::AutoCompactionRetry { .. } => {}
            Body::Retracted { attempt } => {
                let retracted = Some(format!("{turn_id}.{attempt}"));
                events.retain(|said| said.attempt_id != retracted || is_user_event(&said.body));
            }
            _ => {
                let last = events.last_mut();
                if !last.is_some_and(|last| merge_into(last, &event)) {
                    events.push(event);
                }
            }
        }
    }

    fn note_wait(&mut self, event: &Event) {
        match &event.body {
            Body::RetryScheduled { .. } | Body::Held { .. } => self.wait = Some(event.clone()),
            Body::AttemptStarted { .. } => {
                // A retry is shown until it has come to something; a gate that let the call through is passed.
                let is_held = |wait: &mut Event| matches!(wait.body, Body::Held { .. });
                drop(self.wait.take_if(is_held));
            }
            Body::RetryEnded { .. }
            | Body::TextDelta { .. }
            | Body::ReasoningDelta { .. }
            | Body::ToolCall(_)
            | Body::StepComplete { .. }
            | Body::Sealed { .. } => self.wait = None,
            _ => {}
        }
    }
}

const fn is_user_event(body: &Body) -> bool {
    matches!(body, Body::Input { .. } | Body::Start { .. })
}

/// Merges an event into the one before it, if it continues or repeats that one.
fn merge_into(last: &mut Event, event: &Event) -> bool {
    if last.attempt_id != event.attempt_id {
        return false;
    }
    match (&mut last.body, &event.body) {
        (Body::TextDelta { text: said }, Body::TextDelta { text })
        | (Body::ReasoningDelta { text: said }, Body::ReasoningDelta { text }) => {
            said.push_str(text);
        }
        (Body::Usage(said), Body::Usage(usage)) => *said = *usage,
        _ => return false,
    }
    last.seq = event.seq;
    true
}

#[cfg(test)]
#[path = "event_log_tests.rs"]
mod tests;
