//! A live session: its event log for readers, and the open session while it is needed.

use super::view::{QueueMode, State};
use super::{SessionRow, open_session::OpenSession};
use outlast_engine::CancellationToken;
use outlast_kernel::Timestamp;
use outlast_kernel::event::{Body, Event};
use outlast_session::event_log::EventLog;
use outlast_session::factory::{SessionDescription, SessionFactory, SessionOptions};
use parking_lot::Mutex;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

/// Maximum number of events in one batch: a slow reader holds no more than these.
const MAX_BATCH_EVENTS: usize = 128;

/// A session in a server.
pub struct LiveSession {
    id: String,
    /// Distinguishes the event numbers of this live session from those of earlier ones.
    log_id: u32,
    pub(super) session_factory: Arc<dyn SessionFactory>,
    pub(super) tasks: TaskTracker,
    pub(super) stop: CancellationToken,
    event_log: Arc<EventLog>,
    /// The journal status that readers of a closed session know.
    journal_status: Mutex<Option<JournalStatus>>,
    pub(super) open_session: Mutex<Option<OpenSession>>,
    /// Held while the session is opened or closed.
    pub(super) open_lock: tokio::sync::Mutex<()>,
    is_new: AtomicBool,
    created: Timestamp,
    pub(super) pending: Mutex<PendingSettings>,
    /// The time of the last use of the session; below, the time of the last access by a reader.
    used: Mutex<Instant>,
    watched: Mutex<Instant>,
    /// Limits the number of snapshots that are made at the same time, over all live sessions.
    pub(super) readers: Arc<Semaphore>,
}

/// The requested options, and the description of a session that is not open.
#[derive(Clone, Debug, Default)]
pub(super) struct PendingSettings {
    pub(super) options: SessionOptions,
    pub(super) runtime_settings: RuntimeSettings,
    pub(super) description: Option<SessionDescription>,
}

/// Switches of an open session; the live session stores them while it is closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RuntimeSettings {
    pub(super) auto_retry: Option<bool>,
    pub(super) auto_compaction: Option<bool>,
    pub(super) steering_mode: Option<QueueMode>,
    pub(super) follow_up_mode: Option<QueueMode>,
}

/// The status of a session that is not open here, as the journal shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct JournalStatus {
    /// Number of entries.
    pub(super) entries: u64,
    /// Whether another process holds the session.
    pub(super) is_open_elsewhere: bool,
}

/// A change of a session's settings; absent ones stay as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SettingsChange {
    /// The title.
    pub title: Option<String>,
    /// The provider and the model.
    pub model: Option<(String, String)>,
    /// The retry policy.
    pub policy: Option<String>,
    /// Whether failures are retried.
    pub auto_retry: Option<bool>,
    /// Whether the conversation is compacted automatically.
    pub auto_compaction: Option<bool>,
    /// How many steering messages are sent at a time.
    pub steering_mode: Option<QueueMode>,
    /// How many follow-ups are sent at a time.
    pub follow_up_mode: Option<QueueMode>,
}

/// The position of a reader in the events of a live session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventCursor {
    /// The live session that the number belongs to.
    pub log_id: u32,
    /// The number of the last event that the reader has received.
    pub seq: u64,
}

/// The error of a cursor that cannot be parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a place is what a snapshot or an event came with, such as `1f2e3d4c-17`")]
pub struct ParseCursorError;

impl fmt::Display for EventCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}-{}", self.log_id, self.seq)
    }
}

impl FromStr for EventCursor {
    type Err = ParseCursorError;

    fn from_str(text: &str) -> Result<Self, ParseCursorError> {
        let (log, seq) = text.split_once('-').ok_or(ParseCursorError)?;
        let log_id = u32::from_str_radix(log, 16).map_err(|_| ParseCursorError)?;
        let seq = seq.parse().map_err(|_| ParseCursorError)?;
        Ok(Self { log_id, seq })
    }
}

/// The events after a cursor.
#[derive(Clone, Debug, PartialEq)]
pub enum EventBatch {
    /// These events, perhaps none.
    Events(Vec<Event>),
    /// The events are no longer stored: take a snapshot.
    Stale,
}

impl LiveSession {
    pub(super) fn new(
        id: String,
        new: Option<SessionOptions>,
        session_factory: Arc<dyn SessionFactory>,
        tasks: TaskTracker,
        readers: Arc<Semaphore>,
        stop: CancellationToken,
    ) -> Self {
        Self {
            id,
            log_id: fastrand::u32(..),
            created: session_factory.clock().now(),
            session_factory,
            tasks,
            stop,
            event_log: Arc::default(),
            journal_status: Mutex::default(),
            open_session: Mutex::default(),
            open_lock: tokio::sync::Mutex::default(),
            is_new: AtomicBool::new(new.is_some()),
            pending: Mutex::new(PendingSettings {
                options: new.unwrap_or_default(),
                ..PendingSettings::default()
            }),
            used: Mutex::new(Instant::now()),
            watched: Mutex::new(Instant::now()),
            readers,
        }
    }

    /// The session's id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Whether the session has no prompt yet.
    pub fn is_new(&self) -> bool {
        self.is_new.load(Ordering::Relaxed)
    }

    pub(super) fn set_description(&self, card: SessionDescription) {
        self.pending.lock().description = Some(card);
    }

    /// Whether it is in no journal.
    pub(super) fn is_unwritten(&self) -> bool {
        self.is_new()
            || self
                .led()
                .is_some_and(|lead| !lead.session().is_persistent())
    }

    pub(super) fn unwritten_row(&self) -> SessionRow {
        let lead = self.led();
        let wishes = self.pending.lock().options.clone();
        // A relative folder is resolved against the server's own.
        let mut folder = self.session_factory.folder();
        if let Some(wished) = wishes.folder {
            folder.push(wished);
        }
        SessionRow {
            id: self.id.clone(),
            title: wishes.title.unwrap_or_default(),
            directory: folder.to_string_lossy().into_owned(),
            created: self.created,
            changed: self.created,
            turns: lead.as_ref().map_or(0, |lead| lead.session().turn_count()),
            state: match lead {
                Some(lead) if !self.is_new() => lead.state(),
                _ => State::New,
            },
        }
    }

    // --- Readers ---

    /// Returns the cursor after all events until now.
    pub fn cursor(&self) -> EventCursor {
        self.cursor_at(self.event_log().newest())
    }

    /// Returns the cursor after that event.
    pub const fn cursor_at(&self, seq: u64) -> EventCursor {
        EventCursor {
            log_id: self.log_id,
            seq,
        }
    }

    /// Returns the cursor of an event of this live session.
    pub const fn cursor_of(&self, event: &Event) -> EventCursor {
        self.cursor_at(event.seq)
    }

    /// Returns the events after a cursor.
    pub fn events_after(&self, place: EventCursor) -> EventBatch {
        self.mark_watched();
        if place.log_id != self.log_id {
            return EventBatch::Stale;
        }
        match self.event_log().since(place.seq, MAX_BATCH_EVENTS) {
            Ok(events) => EventBatch::Events(events),
            Err(_) => EventBatch::Stale,
        }
    }

    /// Returns a receiver that wakes on every event; its value is the number of the last one.
    pub fn watch_newest_seq(&self) -> watch::Receiver<u64> {
        self.event_log().watch()
    }

    pub(super) const fn event_log(&self) -> &Arc<EventLog> {
        &self.event_log
    }

    pub(super) fn set_journal_status(&self, seen: Option<JournalStatus>) {
        *self.journal_status.lock() = seen;
    }

    /// Records the status of a session that is not open here. If another process has added something, or has come or gone, every
    /// cursor is stale: those were no events here. Returns whether that is so.
    pub(super) fn update_journal_status(&self, seen: JournalStatus) -> bool {
        let known = self.journal_status.lock().replace(seen);
        let is_behind = known.is_some_and(|known| {
            seen.entries > known.entries || seen.is_open_elsewhere != known.is_open_elsewhere
        });
        if is_behind {
            self.event_log().invalidate();
        }
        is_behind
    }

    /// Takes note of an event of the session, before its log has it.
    pub(super) fn note_event(&self, event: &Event) {
        self.touch();
        match event.body {
            // The turn's journal entry has the requested settings.
            Body::Start { .. } => self.pending.lock().options.clear_settings(),
            Body::Input { .. } => self.is_new.store(false, Ordering::Relaxed),
            _ => {}
        }
    }

    /// Wakes the readers without a new event: the state that they know may have changed.
    pub(super) fn notify_watchers(&self) {
        self.event_log().notify();
    }

    pub(super) fn touch(&self) {
        *self.used.lock() = Instant::now();
    }

    pub(super) fn idle_since(&self) -> Instant {
        *self.used.lock()
    }

    /// Records an access by a reader.
    pub(super) fn mark_watched(&self) {
        *self.watched.lock() = Instant::now();
    }

    /// Returns the time of the last access by a reader.
    pub(super) fn last_watched_at(&self) -> Instant {
        (*self.watched.lock()).max(self.idle_since())
    }
}
