//! Following a room: what has happened, what happens, what is missed made good by a snapshot.
//!
//! Invariants: what comes after a place comes once, in order; whoever reads slowly costs nothing but a place, and gets a
//! snapshot when it has fallen behind; hanging up ends nothing but the following.

use crate::sessions::{Error, Heard, Place, Room, SnapshotView};
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
const BEAT: Duration = Duration::from_secs(15);

/// How often it is looked whether a turn is followed by another one.
const A_MOMENT: Duration = Duration::from_millis(20);

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
pub(super) enum Next {
    /// Everything up to a place.
    Snapshot(Box<SnapshotView>),
    /// An event, in its words.
    Event(Place, Box<RawValue>),
    /// Nothing, for a while.
    Beat,
}

/// When there is no more to follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Until {
    /// When whoever follows has gone.
    Left,
    /// With the end of the next turn that begins.
    NextTurn(Option<String>),
    /// When nothing runs any more.
    Settled,
}

/// Somebody who follows a room.
pub(super) struct Following {
    room: Arc<Room>,
    dialect: Dialect,
    /// How far they have come; without it they need a snapshot.
    place: Option<Place>,
    /// Whether they can be given one in the middle.
    takes_snapshots: bool,
    until: Until,
    news: watch::Receiver<u64>,
    stop: CancellationToken,
    ready: std::vec::IntoIter<Event>,
    /// Whether a turn has ended, so that nothing may run any more.
    has_sealed: bool,
    is_over: bool,
}

impl Following {
    pub(super) fn new(
        room: Arc<Room>,
        dialect: Dialect,
        place: Option<Place>,
        stop: CancellationToken,
    ) -> Self {
        Self {
            news: room.news(),
            room,
            dialect,
            place,
            takes_snapshots: true,
            until: Until::Left,
            stop,
            ready: Vec::new().into_iter(),
            has_sealed: false,
            is_over: false,
        }
    }

    /// For those who cannot be given a snapshot: they are left when they have fallen behind.
    pub(super) fn without_snapshots(mut self) -> Self {
        self.takes_snapshots = false;
        self
    }

    pub(super) fn until(mut self, until: Until) -> Self {
        self.until = until;
        self
    }

    /// Waits for what comes next; `None` when nothing does any more.
    pub(super) async fn next(&mut self) -> Option<Result<Next, Error>> {
        loop {
            for event in self.ready.by_ref() {
                let place = self.room.place_of(&event);
                self.place = Some(place);
                self.is_over |= self.until.is_reached(&event);
                self.has_sealed = matches!(event.body, Body::Sealed { .. });
                if let Some(said) = self.dialect.say(&event) {
                    return Some(Ok(Next::Event(place, said)));
                }
                if self.is_over {
                    return None;
                }
            }
            let waits_for_end = self.until == Until::Settled && self.has_sealed;
            self.is_over |= waits_for_end && self.room.is_settled();
            if self.is_over || self.stop.is_cancelled() {
                return None;
            }
            self.news.mark_unchanged();
            let heard = self.place.map(|place| self.room.since(place));
            match heard {
                Some(Heard::Events(events)) if events.is_empty() => tokio::select! {
                    // The room lasts as long as we hold it.
                    _ = self.news.changed() => {}
                    () = self.stop.cancelled() => return None,
                    () = tokio::time::sleep(A_MOMENT), if waits_for_end => {}
                    () = tokio::time::sleep(BEAT) => return Some(Ok(Next::Beat)),
                },
                Some(Heard::Events(events)) => self.ready = events.into_iter(),
                Some(Heard::Stale) | None if self.takes_snapshots => {
                    return Some(self.snapshot().await);
                }
                Some(Heard::Stale) | None => return None,
            }
        }
    }

    async fn snapshot(&mut self) -> Result<Next, Error> {
        let snapshot = self.room.snapshot(self.dialect == Dialect::Native).await;
        let snapshot = snapshot.inspect_err(|_| self.is_over = true)?;
        // It was made by the room, and can be read.
        self.place = snapshot.place.parse().ok();
        Ok(Next::Snapshot(Box::new(snapshot)))
    }
}

impl Until {
    fn is_reached(&mut self, event: &Event) -> bool {
        let is_sealed = matches!(event.body, Body::Sealed { .. });
        match self {
            // The last turn is over a moment before nothing runs any more.
            Self::Left | Self::Settled => false,
            Self::NextTurn(turn @ None) => {
                if matches!(event.body, Body::Start { .. }) {
                    *turn = Some(event.turn_id.clone());
                }
                false
            }
            Self::NextTurn(Some(turn)) => is_sealed && event.turn_id == *turn,
        }
    }
}
