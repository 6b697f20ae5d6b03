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
    pub(super) fn say(self, event: &Event) -> Option<Box<RawValue>> {
        match self {
            Self::Turn => to_raw_value(&TurnEvent::of(event)?).ok(),
            Self::Native => to_raw_value(event).ok(),
        }
    }
}

/// The next item of a subscription.
pub(super) enum StreamItem {
    /// The next events are no longer available: the reader needs a [snapshot](SessionEvents::snapshot).
    Behind,
    /// An event, encoded in the dialect.
    Event(EventCursor, Box<RawValue>),
    /// A keep-alive: nothing happened for a while.
    Beat,
}

/// The subscription of one reader to a live session.
pub(super) struct SessionEvents {
    room: Arc<LiveSession>,
    dialect: Dialect,
    /// The position of the last event delivered; without one the reader needs a snapshot.
    place: Option<EventCursor>,
    /// The only turn to deliver, until its end; `None` delivers everything.
    turn: Option<String>,
    news: watch::Receiver<u64>,
    stop: CancellationToken,
    ready: std::vec::IntoIter<Event>,
    is_over: bool,
}

impl SessionEvents {
    pub(super) fn new(
        room: Arc<LiveSession>,
        dialect: Dialect,
        place: Option<EventCursor>,
        stop: CancellationToken,
    ) -> Self {
        Self {
            news: room.news(),
            room,
            dialect,
            place,
            turn: None,
            stop,
            ready: Vec::new().into_iter(),
            is_over: false,
        }
    }

    /// Restricts the subscription to one turn.
    pub(super) fn of_turn(mut self, turn_id: String) -> Self {
        self.turn = Some(turn_id);
        self
    }

    /// Waits for the next item; returns `None` when no more will come.
    pub(super) async fn next(&mut self) -> Option<StreamItem> {
        loop {
            if self.is_over || self.stop.is_cancelled() {
                return None;
            }
            for event in self.ready.by_ref() {
                let place = self.room.place_of(&event);
                self.place = Some(place);
                if self
                    .turn
                    .as_ref()
                    .is_some_and(|turn| event.turn_id != *turn)
                {
                    continue;
                }
                self.is_over = self.turn.is_some() && matches!(event.body, Body::Sealed { .. });
                if let Some(said) = self.dialect.say(&event) {
                    return Some(StreamItem::Event(place, said));
                }
            }
            self.news.mark_unchanged();
            let heard = self.place.map(|place| self.room.since(place));
            match heard {
                Some(EventBatch::Events(events)) if events.is_empty() => tokio::select! {
                    // The channel cannot close: `self` holds the live session.
                    _ = self.news.changed() => {}
                    () = self.stop.cancelled() => return None,
                    () = tokio::time::sleep(KEEPALIVE_INTERVAL) => return Some(StreamItem::Beat),
                },
                Some(EventBatch::Events(events)) => self.ready = events.into_iter(),
                Some(EventBatch::Stale) | None => return Some(StreamItem::Behind),
            }
        }
    }

    /// Returns whether the reader needs a snapshot before anything else.
    pub(super) fn is_behind(&self) -> bool {
        let heard = self.place.map(|place| self.room.since(place));
        heard.is_none_or(|heard| heard == EventBatch::Stale)
    }

    /// Takes a snapshot of everything until now, and continues after it.
    pub(super) async fn snapshot(&mut self) -> Result<SnapshotView, Error> {
        let snapshot = self.room.snapshot(self.dialect == Dialect::Native).await?;
        // The live session made this cursor, so it parses.
        self.place = snapshot.place.parse().ok();
        Ok(snapshot)
    }
}
