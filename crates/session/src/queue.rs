//! What waits to be said to the model, and what is only noted.
//!
//! Invariants: what waits is written down before whoever sent it is told so, and said once, whatever dies meanwhile; an
//! abort leaves it waiting; every change of it is an event.
//! Not here: when a running turn asks for it (see the engine's `turn`).

use super::{Error, Session};
use outlast_dialect::Message;
use outlast_engine::inbox::{Inbox, QueueKind, QueuedMessage};
use outlast_engine::journal::{AppendError, Entry, Journal};
use outlast_kernel::event::Body;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};

/// How many of the messages that wait in one place are said at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DrainMode {
    /// All of them.
    All,
    /// The one that waits longest.
    #[default]
    OneAtATime,
}

/// The messages that wait, those that wait longest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Queued {
    /// What is said as soon as the model can be told something.
    pub steering: Vec<Message>,
    /// What is said when it has answered.
    pub follow_up: Vec<Message>,
}

impl Queued {
    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.steering.is_empty() && self.follow_up.is_empty()
    }

    fn of<'a>(letters: impl IntoIterator<Item = &'a QueuedMessage>) -> Self {
        let mut waiting = Self::default();
        for letter in letters {
            let message = letter.message.clone();
            match letter.place {
                QueueKind::Steering => waiting.steering.push(message),
                QueueKind::FollowUp => waiting.follow_up.push(message),
                QueueKind::Note => {}
            }
        }
        waiting
    }
}

/// How what waits is said, and what listeners know of it.
#[derive(Debug, Default)]
pub(super) struct QueueState {
    steering: DrainMode,
    follow_up: DrainMode,
    announced: (Vec<String>, Vec<String>),
}

impl Session {
    /// Has a message said to the model later. Once this is `Ok` it is written down and survives a crash; an error means
    /// that it does not wait.
    pub async fn queue(&self, place: QueueKind, message: Message) -> Result<(), Error> {
        let id = uuid::Uuid::now_v7().to_string();
        let entry = Entry::Queued {
            id: id.clone(),
            place,
            message,
        };
        if let Err(error) = self.record.jot(entry).await {
            let place =
                |waiting: &[QueuedMessage]| waiting.iter().position(|letter| letter.id == id);
            let taken_back = self
                .record
                .update_queue(|waiting| place(waiting).map(|place| waiting.remove(place)));
            // What was said meanwhile was said.
            return taken_back.map_or(Ok(()), |_| Err(error));
        }
        self.publish_queue();
        Ok(())
    }

    /// What waits.
    pub fn waiting(&self) -> Queued {
        self.record.look(|standing| Queued::of(&standing.waiting))
    }

    /// Takes out everything that waits: it is not said. Notes stay.
    pub async fn clear_queue(&self) -> Result<Queued, Error> {
        let is_note = |letter: &QueuedMessage| letter.place == QueueKind::Note;
        let taken: Vec<QueuedMessage> = self
            .record
            .update_queue(|waiting| waiting.extract_if(.., |it| !is_note(it)).collect());
        if taken.is_empty() {
            return Ok(Queued::default());
        }
        let ids = taken.iter().map(|letter| letter.id.clone()).collect();
        if let Err(error) = self.record.jot(Entry::Unqueued { ids }).await {
            self.record
                .update_queue(|waiting| drop(waiting.splice(..0, taken)));
            return Err(error);
        }
        self.publish_queue();
        Ok(Queued::of(&taken))
    }

    /// Adds something to the conversation without asking the model: now, or with the next call of the turn that runs.
    pub async fn note(&self, message: Message) -> Result<(), Error> {
        if self.is_running() {
            return self.queue(QueueKind::Note, message).await;
        }
        let _others_wait = self.compacting.lock().await;
        let _running = match self.enter() {
            Err(Error::Busy) => return self.queue(QueueKind::Note, message).await,
            entered => entered?,
        };
        if self.unfinished_turn().is_some() {
            return self.queue(QueueKind::Note, message).await;
        }
        let entry = Entry::Said {
            ids: Vec::new(),
            messages: vec![message],
            note: true,
        };
        self.write_between_turns(vec![entry]).await
    }

    /// Writes something down that belongs to no turn. What cannot be written now is written with what comes next.
    pub(super) async fn write_between_turns(&self, entries: Vec<Entry>) -> Result<(), Error> {
        let turn = self.record.look(|standing| standing.turns);
        self.record.begin_turn(turn);
        match self.record.append(&entries).await {
            Ok(()) => Ok(()),
            Err(AppendError::Failed { why: message }) => {
                self.say(Body::Unrecorded { message });
                Ok(())
            }
            Err(AppendError::Lost { why }) => Err(Error::NotWritten { why }),
        }
    }

    /// Notes that came too late for the last call of a turn are part of the conversation when it is over.
    pub(super) async fn write_late_notes(&self) {
        let notes = self.record.update_queue(notes);
        if !notes.is_empty() {
            // Whoever has lost the session has been told so by the turn.
            self.write_between_turns(Entry::said(notes)).await.ok();
        }
    }

    /// How many messages are said at a time with a call of a running turn.
    pub fn steering_mode(&self) -> DrainMode {
        self.modes().steering
    }

    /// How many messages begin a turn of their own together.
    pub fn follow_up_mode(&self) -> DrainMode {
        self.modes().follow_up
    }

    /// Changes how many messages are said at a time with a call of a running turn.
    pub fn set_steering_mode(&self, mode: DrainMode) {
        self.modes().steering = mode;
    }

    /// Changes how many messages begin a turn of their own together.
    pub fn set_follow_up_mode(&self, mode: DrainMode) {
        self.modes().follow_up = mode;
    }

    fn modes(&self) -> std::sync::MutexGuard<'_, QueueState> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes out what a turn of its own begins with: steering before follow-ups.
    pub(super) fn take_for_turn(&self) -> Vec<QueuedMessage> {
        let (steering, follow_up) = (self.steering_mode(), self.follow_up_mode());
        self.record.update_queue(|waiting| {
            let waits = |place| {
                waiting
                    .iter()
                    .any(|letter: &QueuedMessage| letter.place == place)
            };
            let (place, mode) = match (waits(QueueKind::Steering), waits(QueueKind::FollowUp)) {
                (true, _) => (QueueKind::Steering, steering),
                (false, true) => (QueueKind::FollowUp, follow_up),
                (false, false) => return Vec::new(),
            };
            take(waiting, place, mode)
        })
    }

    /// Tells listeners of what waits, if it is not what they know.
    pub(super) fn publish_queue(&self) {
        {
            let mut queue = self.modes();
            let Queued {
                steering,
                follow_up,
            } = self.waiting();
            let texts = |messages: Vec<Message>| messages.iter().map(Message::text).collect();
            let now: (Vec<String>, Vec<String>) = (texts(steering), texts(follow_up));
            if queue.announced == now {
                return;
            }
            queue.announced.clone_from(&now);
            let (steering, follow_up) = now;
            // Put up before anybody else can look at what is known, told when they can.
            self.board.enqueue(self.event(Body::QueueChanged {
                steering,
                follow_up,
            }));
        }
        self.board.tell();
    }

    /// What waits is known to whoever opened the session.
    pub(super) fn mark_queue_announced(&self) {
        let Queued {
            steering,
            follow_up,
        } = self.waiting();
        let texts = |messages: Vec<Message>| messages.iter().map(Message::text).collect();
        self.modes().announced = (texts(steering), texts(follow_up));
    }
}

/// What waits, as a running turn asks for it.
pub(super) struct SessionInbox<'a> {
    session: &'a Session,
    /// Whether the turn has just begun with what waited, so that its first call says no more.
    has_begun_with: AtomicBool,
}

impl<'a> SessionInbox<'a> {
    pub(super) const fn new(session: &'a Session, has_begun_with: bool) -> Self {
        Self {
            session,
            has_begun_with: AtomicBool::new(has_begun_with),
        }
    }
}

impl Inbox for SessionInbox<'_> {
    fn take(&self) -> Vec<QueuedMessage> {
        if self.has_begun_with.swap(false, Ordering::Relaxed) {
            return Vec::new();
        }
        let mode = self.session.steering_mode();
        self.session
            .record
            .update_queue(|waiting| take(waiting, QueueKind::Steering, mode))
    }
}

/// Takes all notes out, and of that place as many as are said at a time.
fn take(waiting: &mut Vec<QueuedMessage>, place: QueueKind, mode: DrainMode) -> Vec<QueuedMessage> {
    let mut left = match mode {
        DrainMode::All => usize::MAX,
        DrainMode::OneAtATime => 1,
    };
    let is_next = |letter: &mut QueuedMessage| {
        let is_there = letter.place == place && left > 0;
        left -= usize::from(is_there);
        is_there || letter.place == QueueKind::Note
    };
    waiting.extract_if(.., is_next).collect()
}

/// Takes all notes out.
pub(super) fn notes(waiting: &mut Vec<QueuedMessage>) -> Vec<QueuedMessage> {
    let is_note = |letter: &mut QueuedMessage| letter.place == QueueKind::Note;
    waiting.extract_if(.., is_note).collect()
}
