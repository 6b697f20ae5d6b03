//! Following a room: what has happened, what happens, what is missed made good by a snapshot.
//!
//! Invariants: what comes after a place comes once, in order; whoever reads slowly costs nothing but a place, and gets a
//! snapshot when it has fallen behind; hanging up ends nothing but the following.

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

/// In silence a sign of life comes so often.
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
    /// An event in these words, if they have any for it.
    pub(super) fn say(self, event: &Event) -> Option<Box<RawValue>> {
        match self {
            Self::Turn => to_raw_value(&TurnEvent::of(event)?).ok(),
            Self::Native => to_raw_value(event).ok(),
        }
    }
}

/// What comes next.
pub(super) enum StreamItem {
    /// What comes cannot be told without a [snapshot](Following::snapshot).
    Behind,
    /// An event, in its words.
    Event(EventCursor, Box<RawValue>),
    /// Nothing, for a while.
    Beat,
}

/// Somebody who follows a room.
pub(super) struct SessionEvents {
    room: Arc<LiveSession>,
    dialect: Dialect,
    /// How far they have come; without it they need a snapshot.
    place: Option<EventCursor>,
    /// The one turn that they follow, to its end; otherwise everything.
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

    /// For those who follow one turn.
    pub(super) fn of_turn(mut self, turn_id: String) -> Self {
        self.turn = Some(turn_id);
        self
    }

    /// Waits for what comes next; `None` when nothing does any more.
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
                    // The room lasts as long as we hold it.
                    _ = self.news.changed() => {}
                    () = self.stop.cancelled() => return None,
                    () = tokio::time::sleep(KEEPALIVE_INTERVAL) => return Some(StreamItem::Beat),
                },
                Some(EventBatch::Events(events)) => self.ready = events.into_iter(),
                Some(EventBatch::Stale) | None => return Some(StreamItem::Behind),
            }
        }
    }

    /// Whether a snapshot is needed before anything else.
    pub(super) fn is_behind(&self) -> bool {
        let heard = self.place.map(|place| self.room.since(place));
        heard.is_none_or(|heard| heard == EventBatch::Stale)
    }

    /// Everything up to now, from where it goes on.
    pub(super) async fn snapshot(&mut self) -> Result<SnapshotView, Error> {
        let snapshot = self.room.snapshot(self.dialect == Dialect::Native).await?;
        // It was made by the room, and can be read.
        self.place = snapshot.place.parse().ok();
        Ok(snapshot)
    }
}
