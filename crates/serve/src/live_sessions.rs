//! The sessions of a server: any number of them, each as a live session.
//!
//! ```text
//! LiveSessions -> LiveSession -> EventLog: the last events and the running turn, for readers
//!                             -> OpenSession: its conversation, open while it is needed
//! ```
//!
//! Invariants: a live session outlives its readers as long as a turn runs in it; a session that no client needs is
//! released, so that other programs can open it; no reader, however slow, delays a turn.

mod live_session;
mod open_session;
mod session_commands;
mod snapshot;
mod view;

pub use live_session::{EventBatch, EventCursor, LiveSession, ParseCursorError, SettingsChange};
pub use view::{
    ModelView, QueueMode, SessionList, SessionRow, SessionView, SettingsView, SnapshotEvents,
    SnapshotView, State,
};

use futures_util::{StreamExt, stream};
use outlast_engine::CancellationToken;
use outlast_engine::journal::Entry;
use outlast_kernel::text;
use outlast_session::factory::{FactoryError, SessionFactory, SessionOptions};
use outlast_session::parse_entry;
use outlast_store::Journal;
use outlast_store::journal::{Availability as Owned, Page, Summary};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

/// How often it is looked for sessions that nobody needs.
const HOUSEKEEPING_INTERVAL: Duration = Duration::from_secs(10);
/// How often it is looked again after turns that were left in use, and how soon.
const MAX_RECHECKS: u32 = 5;
const RECHECK_INTERVAL: Duration = Duration::from_millis(500);
/// How many sessions may be there in which nothing was said yet.
const MAX_NEW_SESSIONS: usize = 10_000;
/// How many sessions are carried on at the same time, until they run.
const MAX_CONCURRENT_RESUMES: usize = 8;
/// How many snapshots are made at the same time.
const MAX_CONCURRENT_SNAPSHOTS: usize = 4;
/// The most of a first prompt that stands for a title, in bytes.
const MAX_TITLE_BYTES: usize = 120;
/// What is left when the server ends has so long to be left well.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);

/// Something that cannot be done with a session.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// It cannot be had.
    #[error(transparent)]
    Factory(#[from] FactoryError),
    /// As things are, this is not done.
    #[error("{0}")]
    Refused(String),
    /// Too much happens just now.
    #[error("too much happens in this session; ask again")]
    Busy,
    /// There are too many.
    #[error(
        "there are {MAX_NEW_SESSIONS} sessions in which nothing was said; say something in one of them"
    )]
    TooMany,
    /// Whoever follows has read too slowly.
    #[error("what comes next is not known any more; take a snapshot and follow from there")]
    Stale,
    /// What is written down cannot be read.
    #[error("{0}")]
    Unreadable(String),
}

/// All sessions of a server.
pub struct LiveSessions {
    session_factory: Arc<dyn SessionFactory>,
    sessions: Mutex<HashMap<String, Arc<LiveSession>>>,
    stop: CancellationToken,
    tasks: TaskTracker,
    readers: Arc<Semaphore>,
}

impl LiveSessions {
    /// Creates the sessions of that factory.
    pub fn new(session_factory: Arc<dyn SessionFactory>) -> Arc<Self> {
        Arc::new(Self {
            session_factory,
            sessions: Mutex::default(),
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
            readers: Arc::new(Semaphore::new(MAX_CONCURRENT_SNAPSHOTS)),
        })
    }

    /// Returns the factory that opens the sessions.
    pub fn session_factory(&self) -> &Arc<dyn SessionFactory> {
        &self.session_factory
    }

    /// Creates a session. The journal has it from its first prompt on.
    pub async fn create(&self, mut wishes: SessionOptions) -> Result<Arc<LiveSession>, Error> {
        wishes.title = wishes.title.map(|title| sanitize_title(&title));
        let card = self.session_factory.describe(None, &wishes).await?;
        let id = uuid::Uuid::now_v7().to_string();
        let room = self.make(id, Some(wishes));
        room.set_description(card);
        let mut rooms = self.sessions.lock();
        if rooms.values().filter(|room| room.is_new()).count() >= MAX_NEW_SESSIONS {
            return Err(Error::TooMany);
        }
        rooms.insert(room.id().to_owned(), Arc::clone(&room));
        Ok(room)
    }

    fn make(&self, id: String, new: Option<SessionOptions>) -> Arc<LiveSession> {
        let house = Arc::clone(&self.session_factory);
        let (tasks, readers) = (self.tasks.clone(), Arc::clone(&self.readers));
        let stop = self.stop.child_token();
        Arc::new(LiveSession::new(id, new, house, tasks, readers, stop))
    }

    /// Returns the live session of that name, or the only one whose name begins with it.
    pub async fn find(&self, name: &str) -> Result<Arc<LiveSession>, Error> {
        if let Some(room) = self.sessions.lock().get(name) {
            return Ok(Arc::clone(room));
        }
        let unknown = || FactoryError::NotFound {
            name: text::bounded(&text::plain(name), MAX_TITLE_BYTES).into_owned(),
        };
        let is_id = |b: u8| b.is_ascii_hexdigit() || b == b'-';
        if name.is_empty() || name.len() > 64 || !name.bytes().all(is_id) {
            return Err(unknown().into());
        }
        let journal = self.session_factory.journal().ok_or_else(unknown)?;
        let summary = match journal.summary(name).await {
            Ok(summary) => summary,
            Err(outlast_store::Error::NoSuchSession { .. }) => return Err(unknown().into()),
            Err(error @ outlast_store::Error::Ambiguous { .. }) => {
                return Err(Error::Refused(error.to_string()));
            }
            Err(error) => return Err(Error::Unreadable(error.to_string())),
        };
        let mut rooms = self.sessions.lock();
        let room = rooms.entry(summary.id.clone());
        let room = room.or_insert_with(|| self.make(summary.id, None));
        Ok(Arc::clone(room))
    }

    /// A page of them, the newest first: those before that one.
    pub async fn list(&self, limit: usize, before: Option<&str>) -> Result<SessionList, Error> {
        let mut rows = self.unwritten_rows();
        if let Some(journal) = self.session_factory.journal() {
            let kept = journal.sessions().await;
            let kept = kept.map_err(|error| Error::Unreadable(error.to_string()))?;
            rows.retain(|row| kept.iter().all(|summary| summary.id != row.id));
            rows.extend(kept.into_iter().map(|summary| self.row(summary)));
        }
        let start = match before {
            None => 0,
            Some(id) => {
                let place = rows.iter().position(|row| row.id == id);
                let unknown =
                    || FactoryError::Invalid("before: there is no such session".to_owned());
                place.ok_or_else(unknown)? + 1
            }
        };
        let more = rows.len() > start + limit;
        let mut sessions: Vec<SessionRow> = rows.into_iter().skip(start).take(limit).collect();
        if let Some(journal) = self.session_factory.journal() {
            for row in sessions.iter_mut().filter(|row| row.title.is_empty()) {
                row.title = first_prompt_text(journal, &row.id).await;
            }
        }
        let now = self.session_factory.clock().now();
        Ok(SessionList {
            now,
            sessions,
            more,
        })
    }

    /// Those that are in no journal: nothing was said in them, or they cannot be written down.
    fn unwritten_rows(&self) -> Vec<SessionRow> {
        let rooms: Vec<Arc<LiveSession>> = self.sessions.lock().values().cloned().collect();
        let unwritten = rooms.iter().filter(|room| room.is_unwritten());
        let mut rows: Vec<SessionRow> = unwritten.map(|room| room.unwritten_row()).collect();
        rows.sort_by(|one, other| other.id.cmp(&one.id));
        rows
    }

    fn row(&self, summary: Summary) -> SessionRow {
        let room = self.sessions.lock().get(&summary.id).cloned();
        let led = room.and_then(|room| room.open_session_state());
        let state = led.unwrap_or(match (summary.availability, summary.open_turn) {
            (Owned::InUse, _) => State::Elsewhere,
            (_, Some(_)) => State::Unfinished,
            (Owned::Free | Owned::Abandoned, None) => State::Idle,
        });
        SessionRow {
            id: summary.id,
            title: sanitize_title(&summary.title),
            directory: summary.directory,
            created: summary.created,
            changed: summary.changed,
            turns: summary.turns,
            state,
        }
    }

    /// Carries on the turns that earlier processes left, each in its folder. Says of which it could not be begun, and why.
    pub async fn resume_unfinished(&self) -> Result<Vec<(String, Error)>, Error> {
        let (left, mut in_use) = self.unfinished().await?;
        let mut failed = self.resume_all(left).await;
        // A process that was killed may have left a child that has its locks until it has become another program.
        for _ in 0..MAX_RECHECKS {
            if in_use.is_empty() {
                break;
            }
            tokio::time::sleep(RECHECK_INTERVAL).await;
            let (left, still_in_use) = self.unfinished().await?;
            let freed = left.into_iter().filter(|id| in_use.contains(id)).collect();
            failed.extend(self.resume_all(freed).await);
            in_use = still_in_use;
        }
        Ok(failed)
    }

    /// The sessions with a turn that is not finished: those that nobody leads, and the others.
    async fn unfinished(&self) -> Result<(Vec<String>, Vec<String>), Error> {
        let Some(journal) = self.session_factory.journal() else {
            return Ok(Default::default());
        };
        let unfinished = journal.unfinished().await;
        let unfinished = unfinished.map_err(|error| Error::Unreadable(error.to_string()))?;
        let unfinished = unfinished.into_iter();
        let (in_use, left): (Vec<Summary>, Vec<Summary>) =
            unfinished.partition(|summary| summary.availability == Owned::InUse);
        let ids = |summaries: Vec<Summary>| summaries.into_iter().map(|it| it.id).collect();
        Ok((ids(left), ids(in_use)))
    }

    async fn resume_all(&self, ids: Vec<String>) -> Vec<(String, Error)> {
        let resumed = ids.into_iter().map(async |id| {
            let resumed = match self.find(&id).await {
                Ok(room) => room.resume().await,
                Err(error) => Err(error),
            };
            Some((id, resumed.err()?))
        });
        let resumed = stream::iter(resumed).buffer_unordered(MAX_CONCURRENT_RESUMES);
        resumed.filter_map(std::future::ready).collect().await
    }

    /// Gives back what nobody needs, until the server ends.
    pub async fn run_housekeeping(&self) {
        loop {
            tokio::select! {
                () = self.stop.cancelled() => return,
                () = tokio::time::sleep(HOUSEKEEPING_INTERVAL) => {}
            }
            let rooms: Vec<Arc<LiveSession>> = self.sessions.lock().values().cloned().collect();
            for room in rooms {
                room.close_if_idle().await;
                // Besides the map and this one, somebody holds it.
                if Arc::strong_count(&room) > 2 {
                    room.check_other_processes().await;
                }
            }
            // Ours is the only hold on those that nobody watches.
            self.sessions
                .lock()
                .retain(|_, room| Arc::strong_count(room) > 1 || !room.can_be_evicted());
        }
    }

    /// Lets go of all of them. Turns that run are left as they are, to be carried on.
    pub async fn shutdown(&self) {
        self.stop.cancel();
        self.tasks.close();
        tokio::time::timeout(SHUTDOWN_TIMEOUT, self.tasks.wait())
            .await
            .ok();
    }

    /// Cancelled when the server ends.
    pub fn stop_token(&self) -> &CancellationToken {
        &self.stop
    }
}

/// The beginning of the first prompt of a session; nothing when that cannot be read.
async fn first_prompt_text(journal: &Journal, id: &str) -> String {
    let page = Page {
        after: 0,
        limit: 3,
        kinds: Some(&["prompt", "said"]),
    };
    let entries = journal.read(id, page).await.unwrap_or_default();
    let mut said = entries
        .iter()
        .filter_map(|stored| match parse_entry(id, stored) {
            Ok(Entry::Prompt {
                message: Some(message),
                ..
            }) => Some(message.text()),
            Ok(Entry::Delivered { messages, .. }) => {
                messages.first().map(outlast_dialect::Message::text)
            }
            _ => None,
        });
    sanitize_title(&said.next().unwrap_or_default())
}

/// A text from outside as a title.
fn sanitize_title(title: &str) -> String {
    let start = text::bounded(title, 4 * MAX_TITLE_BYTES);
    let words = text::plain(&start);
    let words: Vec<&str> = words.split_whitespace().collect();
    text::bounded(&words.join(" "), MAX_TITLE_BYTES).into_owned()
}
