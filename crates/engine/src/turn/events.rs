//! Numbers and dates events, and hands them on.

use crate::Clock;
use outlast_kernel::Timestamp;
use outlast_kernel::event::{Body, Event, VERSION};

/// The receiver of events.
pub type Sink<'a> = &'a mut (dyn FnMut(Event) + Send);

/// The session and the turn that events belong to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ids {
    /// The session's id.
    pub session: String,
    /// The turn's id.
    pub turn: String,
}

impl Ids {
    /// Returns new ids, ordered by time.
    pub fn fresh() -> Self {
        Self {
            session: uuid::Uuid::now_v7().to_string(),
            turn: uuid::Uuid::now_v7().to_string(),
        }
    }
}

pub(super) struct Emitter<'a> {
    ids: Ids,
    seq: u64,
    /// The number of the last attempt.
    pub(super) attempt: u32,
    clock: &'a dyn Clock,
    sink: Sink<'a>,
}

impl<'a> Emitter<'a> {
    pub(super) fn new(ids: Ids, clock: &'a dyn Clock, sink: Sink<'a>) -> Self {
        Self {
            seq: 0,
            ids,
            attempt: 0,
            clock,
            sink,
        }
    }

    pub(super) fn start_attempt(&mut self) {
        self.attempt += 1;
        self.emit(Body::AttemptStarted {
            attempt: self.attempt,
        });
    }

    pub(super) fn emit(&mut self, body: Body) {
        self.emit_at(self.clock.now(), body);
    }

    pub(super) fn emit_at(&mut self, time: Timestamp, body: Body) {
        self.seq += 1;
        (self.sink)(Event {
            v: VERSION,
            seq: self.seq,
            time,
            session_id: self.ids.session.clone(),
            turn_id: self.ids.turn.clone(),
            attempt_id: (self.attempt > 0).then(|| format!("{}.{}", self.ids.turn, self.attempt)),
            body,
        });
    }
}
