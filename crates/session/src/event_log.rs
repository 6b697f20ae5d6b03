//! The events of a session for its readers: the last events by number, and the running turn.
//!
//! Invariants: events are numbered without gaps for the life of the log, however often its session is opened; the running
//! turn and the journal entries before it contain everything that the events up to the last number said; the log holds at
//! most [`MAX_EVENTS`], and all but the longest have at most [`MAX_BYTES`] together: a very long event drives out neither
//! itself nor the events just before it. A reader has a number and no queue, so a slow one costs nothing.

use outlast_kernel::event::{Body, Event};
use parking_lot::{Mutex, MutexGuard};
use serde::Serialize;
use std::collections::VecDeque;
use std::io;
use tokio::sync::watch;

/// Maximum number of events.
pub const MAX_EVENTS: usize = 4_096;
/// Maximum size of all events but the longest, in bytes as they are written.
pub const MAX_BYTES: usize = 4 << 20;

/// The error of a reader whose next events are no longer stored, or never were.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "events after number {after} are not kept (the oldest is number {oldest}, the last was number {newest}): take a \
     snapshot and follow from its number"
)]
pub struct StaleCursor {
    /// The number after which events were requested.
    pub after: u64,
    /// The oldest number that is stored; the next one if none is.
    pub oldest: u64,
    /// The number of the last event.
    pub newest: u64,
}

/// The last events of a session, and its running turn.
#[derive(Debug, Default)]
pub struct EventLog {
    state: Mutex<LogState>,
    /// The number of the last event.
    newest: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct LogState {
    buffer: EventBuffer,
    live: Option<LiveTurn>,
    /// The event of the current wait.
    wait: Option<Event>,
    persisted: PersistedRange,
    /// Whether the next turn is a resumed one, a part of which is in the journal already.
    is_resuming: bool,
    /// Changes whenever another part of the session is in the journal.
    generation: u64,
}

/// The running turn.
#[derive(Clone, Debug, Default)]
pub struct LiveTurn {
    turn_id: String,
    /// Whether an earlier process began the turn: then its beginning is in the journal.
    pub is_resumed: bool,
    /// Its events, with the deltas of a text merged.
    pub events: Vec<Event>,
}

/// The part of a session that a snapshot takes from the journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PersistedRange {
    /// Turns up to this one; all, if unknown.
    pub turns: Option<u64>,
    /// Entries of the resumed turn up to this one.
    pub entries: u64,
}

/// The part of a session that is not in the journal.
#[derive(Clone, Debug)]
pub struct LogSnapshot {
    /// The number of the last event.
    pub seq: u64,
    /// The generation of the log.
    pub generation: u64,
    /// The rest, which is in the journal.
    pub persisted: PersistedRange,
    /// The running turn.
    pub live: Option<LiveTurn>,
    /// The event of the current wait.
    pub wait: Option<Event>,
}

impl EventLog {
    /// Creates an empty log; the first event gets the number after `seq`.
    pub fn after(seq: u64) -> Self {
        let log = Self::default();
        log.state().buffer.newest = seq;
        log.newest.send_replace(seq);
        log
    }

    // --- For the owner of the session ---

    /// Records that the session was opened with that many turns and entries, and perhaps a turn to resume. What a resumed
    /// turn announces again is left out: readers take it from the journal.
    pub fn open(&self, turns: u64, entries: u64, is_unfinished: bool) {
        let mut state = self.state();
        let turns = Some(turns);
        state.restart(PersistedRange { turns, entries });
        state.is_resuming = is_unfinished;
    }

    /// Records that the session was closed. Readers that are up to date continue; others need a snapshot.
    pub fn close(&self) {
        let mut state = self.state();
        state.restart(PersistedRange::default());
        state.buffer.clear();
    }

    /// Makes every reader take a snapshot: something has happened that is no event here.
    pub fn invalidate(&self) {
        let newest = {
            let mut state = self.state();
            state.generation += 1;
            state.buffer.clear();
            state.buffer.newest += 1;
            state.buffer.newest
        };
        self.newest.send_replace(newest);
    }

    /// Adds an event of the session, which has that many turns now.
    pub fn push(&self, event: &Event, turns: u64) {
        let newest = {
            let mut state = self.state();
            state.push(event, turns);
            state.buffer.newest
        };
        self.newest.send_replace(newest);
    }

    // --- For readers ---

    /// Returns the number of the last event.
    pub fn newest(&self) -> u64 {
        self.state().buffer.newest
    }

    /// Returns a stamp that changes whenever a new snapshot would differ.
    pub fn version(&self) -> (u64, u64) {
        let state = self.state();
        (state.buffer.newest, state.generation)
    }

    /// Returns up to `limit` events after that number.
    pub fn since(&self, after: u64, limit: usize) -> Result<Vec<Event>, StaleCursor> {
        let state = self.state();
        Ok(state.buffer.since(after)?.take(limit).cloned().collect())
    }

    /// Returns a receiver that wakes on every event; its value is the number of the last one.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }

    /// Wakes the readers without an event: something else that they show may have changed.
    pub fn notify(&self) {
        self.newest.send_modify(|_| {});
    }

    /// Returns everything that is not in the journal.
    pub fn snapshot(&self) -> LogSnapshot {
        let state = self.state();
        LogSnapshot {
            seq: state.buffer.newest,
            generation: state.generation,
            persisted: state.persisted,
            live: state.live.clone(),
            wait: state.wait.clone(),
        }
    }

    fn state(&self) -> MutexGuard<'_, LogState> {
        self.state.lock()
    }
}

impl LogState {
    fn restart(&mut self, persisted: PersistedRange) {
        (self.live, self.wait, self.persisted) = (None, None, persisted);
        self.is_resuming = false;
        self.generation += 1;
    }

    fn push(&mut self, event: &Event, turns: u64) {
        if self.is_already_persisted(event) {
            return;
        }
        let event = Event {
            seq: self.buffer.newest + 1,
            ..event.clone()
        };
        self.buffer.push(event.clone());
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

    /// Returns whether the journal has the content of an event: a resumed turn announces its beginning again.
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
            // The beginning of a continued completion was never announced as final.
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

    /// Adds an event to the running turn, unless it is transient.
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
                let is_kept = |body: &Body| matches!(body, Body::Start { .. } | Body::Input { .. });
                events.retain(|event| event.attempt_id != retracted || is_kept(&event.body));
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
                // A retry is shown until its outcome is known; a gate that let the call through is passed.
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

/// Merges an event into the one before it, if it continues or repeats that one.
fn merge_into(last: &mut Event, event: &Event) -> bool {
    if last.attempt_id != event.attempt_id {
        return false;
    }
    match (&mut last.body, &event.body) {
        (Body::TextDelta { text: so_far }, Body::TextDelta { text })
        | (Body::ReasoningDelta { text: so_far }, Body::ReasoningDelta { text }) => {
            so_far.push_str(text);
        }
        (Body::Usage(so_far), Body::Usage(usage)) => *so_far = *usage,
        _ => return false,
    }
    last.seq = event.seq;
    true
}

// --- The stored events ---

#[derive(Debug, Default)]
struct EventBuffer {
    newest: u64,
    /// Each with its size in bytes; their numbers have no gaps, and the last one is `newest`.
    events: VecDeque<(Event, usize)>,
    bytes: usize,
}

impl EventBuffer {
    fn clear(&mut self) {
        self.events = VecDeque::new();
        self.bytes = 0;
    }

    fn push(&mut self, event: Event) {
        self.newest = event.seq;
        let bytes = encoded_len(&event);
        self.bytes += bytes;
        self.events.push_back((event, bytes));
        while self.is_over_limit()
            && let Some((_, bytes)) = self.events.pop_front()
        {
            self.bytes -= bytes;
        }
    }

    fn is_over_limit(&self) -> bool {
        if self.events.len() > MAX_EVENTS || self.bytes <= MAX_BYTES {
            return self.events.len() > MAX_EVENTS;
        }
        let longest = self.events.iter().map(|(_, bytes)| *bytes).max();
        self.bytes - longest.unwrap_or(0) > MAX_BYTES
    }

    fn since(&self, after: u64) -> Result<impl Iterator<Item = &Event>, StaleCursor> {
        let oldest = match self.events.front() {
            Some((event, _)) => event.seq,
            None => self.newest.saturating_add(1),
        };
        if after.saturating_add(1) < oldest || after > self.newest {
            return Err(StaleCursor {
                after,
                oldest,
                newest: self.newest,
            });
        }
        let known = usize::try_from(after.saturating_add(1) - oldest).unwrap_or(usize::MAX);
        Ok(self.events.iter().skip(known).map(|(event, _)| event))
    }
}

/// Returns the size of a value as JSON, in bytes; 0 if it cannot be serialized.
pub fn encoded_len(value: &impl Serialize) -> usize {
    let mut count = Count(0);
    serde_json::to_writer(&mut count, value).map_or(0, |()| count.0)
}

/// A writer that only counts.
struct Count(usize);

impl io::Write for Count {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
#[path = "event_log_tests.rs"]
mod tests;
