//! A room: a session, those who watch it, and whoever leads it while something is to be done.

use super::event_log::EventLog;
use super::view::{QueueMode, State};
use super::{SessionRow, open_session::OpenSession};
use crate::native::StaleCursor;
use outlast_engine::CancellationToken;
use outlast_kernel::Timestamp;
use outlast_kernel::event::{Body, Event};
use outlast_session::Session;
use outlast_session::factory::{SessionDescription, SessionFactory, SessionOptions};
use serde_json::Value;
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

/// A session in a server.
pub struct LiveSession {
    id: String,
    /// Distinguishes the numbers of this room from those of earlier ones.
    log: u32,
    pub(super) house: Arc<dyn SessionFactory>,
    pub(super) tasks: TaskTracker,
    pub(super) stop: CancellationToken,
    record: Mutex<EventLog>,
    /// The number of the last event.
    news: watch::Sender<u64>,
    pub(super) lead: Mutex<Option<OpenSession>>,
    /// One at a time opens or closes the session.
    pub(super) door: tokio::sync::Mutex<()>,
    is_new: AtomicBool,
    created: Timestamp,
    pub(super) wanted: Mutex<PendingSettings>,
    /// When something was last done with the session, and when somebody has last looked.
    used: Mutex<Instant>,
    watched: Mutex<Instant>,
    /// How many snapshots are made at the same time, of all rooms.
    pub(super) readers: Arc<Semaphore>,
}

/// What was asked for, and what is known of a session that is not open.
#[derive(Clone, Debug, Default)]
pub(super) struct PendingSettings {
    pub(super) wishes: SessionOptions,
    pub(super) switches: RuntimeSettings,
    pub(super) card: Option<SessionDescription>,
}

/// What can be switched while a session is open; the room keeps it when it is not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RuntimeSettings {
    pub(super) auto_retry: Option<bool>,
    pub(super) auto_compaction: Option<bool>,
    pub(super) steering_mode: Option<QueueMode>,
    pub(super) follow_up_mode: Option<QueueMode>,
}

/// How a session is to be led; what is not said stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SettingsChange {
    /// What it is about.
    pub title: Option<String>,
    /// Who answers, and which model is asked.
    pub model: Option<(String, String)>,
    /// The retry policy.
    pub policy: Option<String>,
    /// Whether failures are retried.
    pub auto_retry: Option<bool>,
    /// Whether the conversation is made smaller by itself.
    pub auto_compaction: Option<bool>,
    /// How many messages that wait are said at once, of those for the turn that runs.
    pub steering_mode: Option<QueueMode>,
    /// The same for those that follow.
    pub follow_up_mode: Option<QueueMode>,
}

/// Something to be said to the model.
#[derive(Clone, Debug, PartialEq)]
pub struct UserMessage {
    /// The text.
    pub text: String,
    /// Pictures, as the protocol of `rpc` has them.
    pub images: Vec<Value>,
}

/// When something is said while a turn runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// With the next call of that turn.
    Steer,
    /// After it.
    FollowUp,
}

/// How far somebody has come in a room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventCursor {
    /// Which numbers are meant.
    pub log: u32,
    /// The number of the last event that was heard.
    pub seq: u64,
}

/// A place that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a place is what a snapshot or an event came with, such as `1f2e3d4c-17`")]
pub struct ParseCursorError;

impl fmt::Display for EventCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}-{}", self.log, self.seq)
    }
}

impl FromStr for EventCursor {
    type Err = ParseCursorError;

    fn from_str(text: &str) -> Result<Self, ParseCursorError> {
        let (log, seq) = text.split_once('-').ok_or(ParseCursorError)?;
        let log = u32::from_str_radix(log, 16).map_err(|_| ParseCursorError)?;
        let seq = seq.parse().map_err(|_| ParseCursorError)?;
        Ok(Self { log, seq })
    }
}

/// What comes after a place.
#[derive(Clone, Debug, PartialEq)]
pub enum EventBatch {
    /// These events, perhaps none.
    Events(Vec<Event>),
    /// They are not known any more: take a snapshot.
    Stale,
}

impl LiveSession {
    pub(super) fn new(
        id: String,
        new: Option<SessionOptions>,
        house: Arc<dyn SessionFactory>,
        tasks: TaskTracker,
        readers: Arc<Semaphore>,
        stop: CancellationToken,
    ) -> Self {
        Self {
            id,
            log: fastrand::u32(..),
            created: house.clock().now(),
            house,
            tasks,
            stop,
            record: Mutex::default(),
            news: watch::Sender::new(0),
            lead: Mutex::default(),
            door: tokio::sync::Mutex::default(),
            is_new: AtomicBool::new(new.is_some()),
            wanted: Mutex::new(PendingSettings {
                wishes: new.unwrap_or_default(),
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

    /// Whether nothing was said in it yet.
    pub fn is_new(&self) -> bool {
        self.is_new.load(Ordering::Relaxed)
    }

    pub(super) fn know(&self, card: SessionDescription) {
        lock(&self.wanted).card = Some(card);
    }

    /// Whether it is in no journal.
    pub(super) fn is_unwritten(&self) -> bool {
        self.is_new() || self.led().is_some_and(|lead| !lead.session.is_kept())
    }

    pub(super) fn unwritten_row(&self) -> SessionRow {
        let lead = self.led();
        let wishes = lock(&self.wanted).wishes.clone();
        // A folder is meant from the server's own.
        let mut folder = self.house.folder();
        if let Some(wished) = wishes.folder {
            folder.push(wished);
        }
        SessionRow {
            id: self.id.clone(),
            title: wishes.title.unwrap_or_default(),
            directory: folder.to_string_lossy().into_owned(),
            created: self.created,
            changed: self.created,
            turns: lead.as_ref().map_or(0, |lead| lead.session.turn_count()),
            state: match lead {
                Some(lead) if !self.is_new() => lead.state(),
                _ => State::New,
            },
        }
    }

    // --- Watching ---

    /// The place that everything up to now leads to.
    pub fn place(&self) -> EventCursor {
        self.at(self.record().newest())
    }

    pub(super) const fn at(&self, seq: u64) -> EventCursor {
        EventCursor { log: self.log, seq }
    }

    /// The place of an event of this room.
    pub const fn place_of(&self, event: &Event) -> EventCursor {
        self.at(event.seq)
    }

    /// What has come after a place.
    pub fn since(&self, place: EventCursor) -> EventBatch {
        self.look();
        if place.log != self.log {
            return EventBatch::Stale;
        }
        match self.record().since(place.seq) {
            Ok(events) => EventBatch::Events(events),
            Err(StaleCursor { .. }) => EventBatch::Stale,
        }
    }

    /// The turn after a place in which that was said.
    pub fn find_turn_with_input(&self, mut place: EventCursor, text: &str) -> Option<String> {
        loop {
            let EventBatch::Events(events) = self.since(place) else {
                return None;
            };
            let is_it = |event: &&Event| match &event.body {
                Body::Input { text: said } => said == text,
                _ => false,
            };
            if let Some(event) = events.iter().find(is_it) {
                return Some(event.turn_id.clone());
            }
            place = self.place_of(events.last()?);
        }
    }

    /// Wakes whenever something happens; its value is the number of the last event.
    pub fn news(&self) -> watch::Receiver<u64> {
        self.news.subscribe()
    }

    pub(super) fn record(&self) -> MutexGuard<'_, EventLog> {
        lock(&self.record)
    }

    /// Takes note of what happens in the session.
    pub(super) fn hear(&self, event: &Event, session: &Session) {
        self.touch();
        let turns = session.turn_count();
        if matches!(event.body, Body::Start { .. }) {
            // What was wished is written down with the turn.
            lock(&self.wanted).wishes.clear_settings();
        }
        let newest = {
            let mut record = self.record();
            record.hear(event, turns);
            record.newest()
        };
        if matches!(event.body, Body::Input { .. }) {
            self.is_new.store(false, Ordering::Relaxed);
        }
        self.news.send_replace(newest);
    }

    /// Wakes those who watch although nothing was said: what they know may have changed.
    pub(super) fn stir(&self) {
        self.news.send_modify(|_| {});
    }

    pub(super) fn touch(&self) {
        *lock(&self.used) = Instant::now();
    }

    pub(super) fn idle_since(&self) -> Instant {
        *lock(&self.used)
    }

    /// Somebody looks.
    pub(super) fn look(&self) {
        *lock(&self.watched) = Instant::now();
    }

    /// When somebody has last looked.
    pub(super) fn last_watched_at(&self) -> Instant {
        (*lock(&self.watched)).max(self.idle_since())
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
