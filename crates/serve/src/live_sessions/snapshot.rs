//! What a room tells those who come: where its session stands, and everything that was said.

use super::live_session::{JournalStatus, LiveSession};
use super::view::{SessionRow, SessionView, SettingsView, SnapshotEvents, SnapshotView, State};
use super::{Error, first_prompt_text, sanitize_title};
use crate::native::{HeldView, RetryView, WaitingView};
use crate::replay;
use crate::turn_stream::TurnEvent;
use outlast_kernel::event::Event;
use outlast_session::event_log::{LogSnapshot, PersistedRange, encoded_len};
use outlast_session::factory::{FactoryError, SessionDescription};
use outlast_session::{DrainMode, Snapshot};
use outlast_store::journal::{Availability as Owned, Page, StoredEntry};
use std::sync::Arc;

/// How often a snapshot is tried anew when turns begin and end meanwhile.
const MAX_ATTEMPTS: usize = 50;
/// How many entries are read at a time.
const PAGE: u32 = 1000;
/// The most that a snapshot tells, in bytes; of a longer session, its end.
const MAX_SNAPSHOT_BYTES: usize = 16 << 20;

impl LiveSession {
    /// Everything that was said, and the place from which to follow; in the turn stream's words, or as it is.
    pub async fn snapshot(self: &Arc<Self>, native: bool) -> Result<SnapshotView, Error> {
        self.mark_watched();
        // Each has a whole session in memory.
        let turn = Arc::clone(&self.readers).acquire_owned().await;
        for _ in 0..MAX_ATTEMPTS {
            let view = self.event_log().snapshot();
            let entries = self.entries().await?;
            let session = self.view().await?;
            let (seq, generation) = self.event_log().version();
            let is_quiet = view.live.is_some() || seq == view.seq;
            // What was written down meanwhile is told by the events that follow.
            if generation == view.generation && is_quiet {
                let last = entries.last().map_or(0, |last| last.seq);
                let seen = JournalStatus {
                    entries: last,
                    is_open_elsewhere: session.row.state == State::Elsewhere,
                };
                // Another process has gone on: its number is another one.
                if self.led().is_none() && self.update_journal_status(seen) {
                    continue;
                }
                let room = Arc::clone(self);
                let told = tokio::task::spawn_blocking(move || {
                    let _turn = turn;
                    room.told(view, entries, session, native)
                });
                let told = told.await;
                return told.map_err(|error| Error::Unreadable(error.to_string()));
            }
        }
        Err(Error::Busy)
    }

    fn told(
        &self,
        view: LogSnapshot,
        entries: Vec<StoredEntry>,
        session: SessionView,
        native: bool,
    ) -> SnapshotView {
        let entries = entries.iter().filter(|stored| is_persisted(stored, &view));
        let mut events = replay::replay_events(self.id(), entries);
        events.extend(view.live.into_iter().flat_map(|live| live.events));
        events.extend(view.wait);
        let truncated = truncate_front(&mut events);
        let events = match native {
            true => SnapshotEvents::Native(events),
            false => {
                SnapshotEvents::Turn(events.iter().filter_map(TurnEvent::from_event).collect())
            }
        };
        SnapshotView {
            place: self.cursor_at(view.seq).to_string(),
            seq: view.seq,
            session,
            events,
            truncated,
        }
    }

    /// Everything that is written down.
    async fn entries(&self) -> Result<Vec<StoredEntry>, Error> {
        if let Some(lead) = self.led() {
            match lead.session().entries().await {
                // It was closed just now.
                Err(outlast_session::Error::Closed) => {}
                entries => {
                    return entries.map_err(|error| Error::Unreadable(error.to_string()));
                }
            }
        }
        let mut entries: Vec<StoredEntry> = Vec::new();
        let Some(journal) = self.session_factory.journal().filter(|_| !self.is_new()) else {
            return Ok(entries);
        };
        loop {
            let page = Page {
                after: entries.last().map_or(0, |last| last.seq),
                limit: PAGE,
                kinds: None,
            };
            let more = journal.read(self.id(), page).await;
            let more = more.map_err(|error| self.unread(error))?;
            if more.is_empty() {
                return Ok(entries);
            }
            entries.extend(more);
        }
    }

    fn unread(&self, error: outlast_store::Error) -> Error {
        let name = self.id().to_owned();
        match error {
            outlast_store::Error::NoSuchSession { .. } => FactoryError::NotFound { name }.into(),
            error => Error::Unreadable(error.to_string()),
        }
    }

    /// Where the session stands.
    pub async fn view(&self) -> Result<SessionView, Error> {
        let now = self.session_factory.clock().now();
        let (row, last) = self.row().await?;
        let card = self.card().await?;
        let lead = self.led();
        let snapshot = lead.as_ref().map(|lead| lead.session().snapshot());
        let snapshot = snapshot.unwrap_or_default();
        let Snapshot {
            retry, gate_hold, ..
        } = snapshot;
        let waiting = lead.as_ref().map(|lead| lead.session().queued_messages());
        Ok(SessionView {
            settings: self.settings_of(&row, &card),
            row,
            now,
            model: card.model.into(),
            turn_id: snapshot.turn_id,
            retry: retry.map(RetryView::from),
            held: gate_hold.map(HeldView::from),
            queue: waiting
                .map(|waiting| WaitingView::from(&waiting))
                .unwrap_or_default(),
            last_seal: last,
            usage: lead.map(|_| snapshot.usage),
            problem: card.problem,
        })
    }

    /// How it is led.
    pub async fn settings(&self) -> Result<SettingsView, Error> {
        Ok(self.view().await?.settings)
    }

    async fn row(&self) -> Result<(SessionRow, Option<outlast_kernel::event::TurnStatus>), Error> {
        let lead = self.led();
        let Some(journal) = self
            .session_factory
            .journal()
            .filter(|_| !self.is_unwritten())
        else {
            let row = self.unwritten_row();
            return Ok((row, lead.and_then(|lead| lead.session().last_seal())));
        };
        let summary = journal.summary(self.id()).await;
        let summary = summary.map_err(|error| self.unread(error))?;
        let title = match summary.title.is_empty() {
            true => first_prompt_text(journal, self.id()).await,
            false => sanitize_title(&summary.title),
        };
        let state = match (&lead, summary.availability, summary.open_turn) {
            (Some(lead), ..) => lead.state(),
            (None, Owned::InUse, _) => State::Elsewhere,
            (None, _, Some(_)) => State::Unfinished,
            (None, ..) => State::Idle,
        };
        let row = SessionRow {
            id: summary.id,
            title,
            directory: summary.directory,
            created: summary.created,
            changed: summary.changed,
            turns: summary.turns,
            state,
        };
        Ok((row, lead.and_then(|lead| lead.session().last_seal())))
    }

    /// What the session is made of.
    pub async fn card(&self) -> Result<SessionDescription, Error> {
        if let Some(card) = self.pending.lock().description.clone() {
            return Ok(card);
        }
        let wishes = self.pending.lock().options.clone();
        let name = Some(self.id()).filter(|_| !self.is_new());
        let card = self.session_factory.describe(name, &wishes).await?;
        // While nobody leads it here, others may. Something else may have been wished for meanwhile.
        let mut wanted = self.pending.lock();
        if (self.is_new() || self.led().is_some()) && wanted.options == wishes {
            wanted.description = Some(card.clone());
        }
        Ok(card)
    }

    fn settings_of(&self, row: &SessionRow, card: &SessionDescription) -> SettingsView {
        let lead = self.led();
        let session = lead.as_ref().map(|lead| lead.session());
        let switches = self.pending.lock().runtime_settings;
        let on = |open: Option<bool>, switched: Option<bool>| open.or(switched).unwrap_or(true);
        let mode = |open: Option<DrainMode>, switched| {
            let open = open.map(Into::into);
            open.or(switched).unwrap_or(DrainMode::default().into())
        };
        SettingsView {
            title: row.title.clone(),
            provider: card.model.provider.clone(),
            model: card.model.id.clone(),
            policy: card.policy.clone(),
            auto_retry: on(
                session.map(|it| it.auto_retry_enabled()),
                switches.auto_retry,
            ),
            auto_compaction: on(
                session.map(|it| it.auto_compaction_enabled()),
                switches.auto_compaction,
            ),
            steering_mode: mode(session.map(|it| it.steering_mode()), switches.steering_mode),
            follow_up_mode: mode(
                session.map(|it| it.follow_up_mode()),
                switches.follow_up_mode,
            ),
        }
    }
}

/// Whether an entry is told from what is written down, and not by the turn under way or by what follows.
fn is_persisted(stored: &StoredEntry, view: &LogSnapshot) -> bool {
    let PersistedRange { turns, entries } = view.persisted;
    let Some(turns) = turns else {
        return true;
    };
    let turn = stored.entry.turn;
    match &view.live {
        // The last of them goes on, and tells itself what comes after where it was taken up.
        Some(live) if live.is_resumed && turn == turns => stored.seq <= entries,
        _ => turn <= turns,
    }
}

/// Leaves out the beginning when there is too much.
fn truncate_front(events: &mut Vec<Event>) -> bool {
    let mut bytes = 0;
    let place = events.iter().rposition(|event| {
        bytes += encoded_len(event);
        bytes > MAX_SNAPSHOT_BYTES
    });
    if let Some(place) = place {
        events.drain(..=place);
    }
    place.is_some()
}
