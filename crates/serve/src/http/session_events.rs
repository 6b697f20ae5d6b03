//! Follows a live session: replays past events, then delivers new ones; a snapshot repairs a gap.
//!
//! Invariants: the events after a cursor are delivered once, in order; a slow reader costs only its cursor, and gets a
//! snapshot when it has fallen behind; a client that disconnects ends only its own subscription.

use crate::live_sessions::{Error, EventBatch, EventCursor, LiveSession, SnapshotView};
use crate::turn_stream::TurnEvent;
use outlast_engine::CancellationToken;
use outlast_kernel::event::{Body, Event};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Interval between keep-alives while no event arrives.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// In which words events are said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Dialect {
    /// The turn stream.
    #[default]
    Turn,
    /// As they are.
    Native,
}

impl Dialect {
    /// Encodes an event in this dialect, or returns `None` if the dialect has no word for it.
    pub(super) fn encode(self, event: &Event) -> Option<Box<RawValue>> {
        match self {
            Self::Turn => to_raw_value(&TurnEvent::from_event(event)?).ok(),
            Self::Native => to_raw_value(event).ok(),
        }
    }
}

/// The next item of a subscription.
pub(super) enum StreamItem {
    /// The next events are no longer available: the reader needs a [snapshot](SessionEvents::snapshot).
    Lagged,
    /// An event, encoded in the dialect.
    Event(EventCursor, Box<RawValue>),
    /// A keep-alive: nothing happened for a while.
    KeepAlive,
}

/// The subscription of one reader to a live session.
pub(super) struct SessionEvents {
    session: Arc<LiveSession>,
    dialect: Dialect,
    /// The position of the last event delivered; without one the reader needs a snapshot.
    cursor: Option<EventCursor>,
    /// The only turn to deliver, until its end; `None` delivers everything.
    turn: Option<String>,
    newest_seq: watch::Receiver<u64>,
    stop: CancellationToken,
    buffered: std::vec::IntoIter<Event>,
    is_ended: bool,
}

impl SessionEvents {
    pub(super) fn new(
        session: Arc<LiveSession>,
        dialect: Dialect,
        cursor: Option<EventCursor>,
        stop: CancellationToken,
    ) -> Self {
        Self {
            newest_seq: session.watch_newest_seq(),
            session,
            dialect,
            cursor,
            turn: None,
            stop,
            buffered: Vec::new().into_iter(),
            is_ended: false,
        }
    }

    /// Restricts the subscription to one turn.
    pub(super) fn only_turn(mut self, turn_id: String) -> Self {
        self.turn = Some(turn_id);
        self
    }

    /// Waits for the next item; returns `None` when no more will come.
    pub(super) async fn next(&mut self) -> Option<StreamItem> {
        loop {
            if self.is_ended || self.stop.is_cancelled() {
                return None;
            }
            for event in self.buffered.by_ref() {
                let place = self.session.cursor_of(&event);
                self.cursor = Some(place);
                if self
                    .turn
                    .as_ref()
                    .is_some_and(|turn| event.turn_id != *turn)
                {
                    continue;
                }
                self.is_ended = self.turn.is_some() && matches!(event.body, Body::Sealed { .. });
                if let Some(said) = self.dialect.encode(&event) {
                    return Some(StreamItem::Event(place, said));
                }
            }
            self.newest_seq.mark_unchanged();
            let heard = self.cursor.map(|place| self.session.events_after(place));
            match heard {
                Some(EventBatch::Events(events)) if events.is_empty() => tokio::select! {
                    // The channel cannot close: `self` holds the live session.
                    _ = self.newest_seq.changed() => {}
                    () = self.stop.cancelled() => return None,
                    () = tokio::time::sleep(KEEPALIVE_INTERVAL) => return Some(StreamItem::KeepAlive),
                },
                Some(EventBatch::Events(events)) => self.buffered = events.into_iter(),
                Some(EventBatch::Stale) | None => return Some(StreamItem::Lagged),
            }
        }
    }

    /// Returns whether the reader needs a snapshot before anything else.
    pub(super) fn is_lagging(&self) -> bool {
        let heard = self.cursor.map(|place| self.session.events_after(place));
        heard.is_none_or(|heard| heard == EventBatch::Stale)
    }

    /// Takes a snapshot of everything until now, and continues after it.
    pub(super) async fn snapshot(&mut self) -> Result<SnapshotView, Error> {
        let snapshot = self
            .session
            .snapshot(self.dialect == Dialect::Native)
            .await?;
        // The live session made this cursor, so it parses.
        self.cursor = snapshot.place.parse().ok();
        Ok(snapshot)
    }
}
