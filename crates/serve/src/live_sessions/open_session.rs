//! Opens a session when it is needed, drives it, and closes it when it is idle.

use super::Error;
use super::live_session::{JournalStatus, LiveSession, RuntimeSettings};
use super::view::State;
use crate::rpc::{CLOSE_TIMEOUT, SHORT_CLOSE_TIMEOUT, leave};
use outlast_session::factory::{Host, HostedSession};
use outlast_session::{Conversation, Options, PromptSettings, Session, Subscription};
use outlast_store::journal::Availability as Owned;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// A session in which nothing happens for so long is given back.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// A room that nobody has looked at for so long is forgotten; one in which nothing was said, after a day.
const UNWATCHED_TIMEOUT: Duration = Duration::from_secs(300);
const NEW_SESSION_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

/// A session that is open.
#[derive(Clone)]
pub(super) struct OpenSession {
    pub(super) conversation: Conversation,
    pub(super) host: Arc<dyn Host>,
    _subscription: Arc<Subscription>,
}

impl OpenSession {
    pub(super) fn session(&self) -> &Arc<Session> {
        self.conversation.session()
    }

    fn is_closed(&self) -> bool {
        self.conversation.status().borrow().is_closed
    }

    /// Lets go of the session: leaves a running turn to be resumed, and otherwise closes the session.
    async fn leave(&self, limit: Duration) {
        leave(&self.conversation, &*self.host, limit).await;
    }

    /// What it does, as those who watch are told.
    pub(super) fn state(&self) -> State {
        let snapshot = self.session().snapshot();
        let is_held = snapshot.gate_hold.is_some();
        let waits = is_held || snapshot.retry.is_some_and(|retry| retry.wake_at.is_some());
        match (self.session().is_running(), waits) {
            (true, true) => State::Waiting,
            (true, false) => State::Running,
            (false, _) if self.session().unfinished_turn().is_some() => State::Unfinished,
            (false, _) => State::Idle,
        }
    }
}

impl LiveSession {
    /// The session, if it is open.
    pub(super) fn led(&self) -> Option<OpenSession> {
        let lead = self.open_session.lock().clone();
        lead.filter(|lead| !lead.is_closed())
    }

    pub(super) fn open_session_state(&self) -> Option<State> {
        self.led().map(|lead| lead.state())
    }

    /// The session, open.
    pub(super) async fn enter(self: &Arc<Self>) -> Result<OpenSession, Error> {
        self.touch();
        let _door = self.open_lock.lock().await;
        if let Some(lead) = self.led() {
            return Ok(lead);
        }
        let wanted = self.pending.lock().clone();
        let HostedSession { opened, host } = self
            .session_factory
            .open(self.id(), &wanted.options)
            .await?;
        let session = Arc::clone(&opened.session);
        let entries = match self
            .session_factory
            .journal()
            .filter(|_| session.is_persistent())
        {
            Some(journal) => journal.summary(self.id()).await.map_or(0, |it| it.entries),
            None => 0,
        };
        let is_unfinished = session.unfinished_turn().is_some();
        let turns = session.turn_count();
        self.update_journal_status(JournalStatus {
            entries,
            is_open_elsewhere: false,
        });
        self.set_journal_status(None);
        self.event_log().open(turns, entries, is_unfinished);
        self.pending.lock().description = None;
        wanted.runtime_settings.apply(&session);
        let lead = self.drive(session, host);
        *self.open_session.lock() = Some(lead.clone());
        self.notify_watchers();
        Ok(lead)
    }

    /// Drives a session that was just opened, until it is closed or the server ends.
    fn drive(self: &Arc<Self>, session: Arc<Session>, host: Arc<dyn Host>) -> OpenSession {
        let room: Weak<Self> = Arc::downgrade(self);
        // Before the conversation's own listener, which puts the event into the log.
        let subscription = session.subscribe(move |event| {
            if let Some(room) = room.upgrade() {
                room.note_event(event);
            }
        });
        let settings = Arc::clone(&host);
        let options = Options {
            log: Arc::clone(self.event_log()),
            ..Options::new(move || PromptSettings {
                limits: settings.limits(),
                options: settings.resume_options(),
            })
        };
        let lead = OpenSession {
            conversation: Conversation::start(session, options),
            host,
            _subscription: Arc::new(subscription),
        };
        let (stop, leaving) = (self.stop.clone(), lead.clone());
        self.tasks.spawn(async move {
            let mut status = leaving.conversation.status();
            let closed = async { drop(status.wait_for(|status| status.is_closed).await) };
            let is_stopped = tokio::select! {
                () = stop.cancelled() => true,
                () = closed => false,
            };
            if is_stopped {
                leaving.leave(SHORT_CLOSE_TIMEOUT).await;
            }
        });
        lead
    }

    /// Gives the session back when nothing has happened in it for a while.
    pub(super) async fn close_if_idle(&self) {
        let Some(lead) = self.led() else {
            return;
        };
        let session = lead.session();
        let is_needed = || {
            let is_asked = session.is_running() || !session.queued_messages().is_empty();
            is_asked || !session.is_persistent() || self.idle_since().elapsed() < IDLE_TIMEOUT
        };
        // Whoever comes through the door meanwhile needs it.
        let door = self.open_lock.try_lock();
        if is_needed() || door.is_err() {
            return;
        }
        lead.leave(CLOSE_TIMEOUT).await;
        // It was led here until now, and by nobody else.
        let is_open_elsewhere = false;
        let seen = self.seen().await.map(|seen| JournalStatus {
            is_open_elsewhere,
            ..seen
        });
        *self.open_session.lock() = None;
        self.pending.lock().description = None;
        self.set_journal_status(seen);
        self.event_log().close();
        self.notify_watchers();
    }

    /// Looks whether another process has gone on with a session that somebody watches here.
    pub(super) async fn check_other_processes(&self) {
        if self.is_new() || self.led().is_some() {
            return;
        }
        let Some(seen) = self.seen().await else {
            return;
        };
        // It may have been opened meanwhile.
        let Ok(_door) = self.open_lock.try_lock() else {
            return;
        };
        if self.led().is_none() && self.update_journal_status(seen) {
            self.pending.lock().description = None;
            self.notify_watchers();
        }
    }

    async fn seen(&self) -> Option<JournalStatus> {
        let summary = self
            .session_factory
            .journal()?
            .summary(self.id())
            .await
            .ok()?;
        Some(JournalStatus {
            entries: summary.entries,
            is_open_elsewhere: summary.availability == Owned::InUse,
        })
    }

    /// Whether it can be made again from what is written down.
    pub(super) fn can_be_evicted(&self) -> bool {
        let has_wishes = {
            let wanted = self.pending.lock();
            wanted.options.has_settings() || wanted.runtime_settings != RuntimeSettings::default()
        };
        let unwatched = self.last_watched_at().elapsed();
        let is_old =
            unwatched > NEW_SESSION_TIMEOUT || unwatched > UNWATCHED_TIMEOUT && !self.is_new();
        self.led().is_none() && is_old && (self.is_new() || !has_wishes)
    }
}
