//! The queue of a session: messages for the model, and notes that are only added to the conversation.
//!
//! Invariants: a message is in the journal before its sender gets `Ok`, and is sent exactly once, even if the process dies in
//! between; an abort leaves the queue alone; every change of the queue is an event.
//! Not here: when a running turn takes messages (see the engine's `turn`).

use super::{Error, Session};
use outlast_dialect::Message;
use outlast_engine::inbox::{Inbox, QueueKind, QueuedMessage};
use outlast_engine::journal::{AppendError, Entry, Journal};
use outlast_kernel::event::Body;
use std::sync::atomic::{AtomicBool, Ordering};

/// How many queued messages of one kind are sent at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DrainMode {
    /// All of them.
    All,
    /// The oldest one.
    #[default]
    OneAtATime,
}

/// The queued messages, the oldest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Queued {
    /// Messages for the next call of the running turn.
    pub steering: Vec<Message>,
    /// Messages for a turn of their own, after the running one.
    pub follow_up: Vec<Message>,
}

impl Queued {
    /// Returns whether the queue is empty.
    pub fn is_empty(&self) -> bool {
        self.steering.is_empty() && self.follow_up.is_empty()
    }

    fn from_messages<'a>(letters: impl IntoIterator<Item = &'a QueuedMessage>) -> Self {
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

/// The drain modes, and the queue as last announced to listeners.
#[derive(Debug, Default)]
pub(super) struct QueueState {
    steering: DrainMode,
    follow_up: DrainMode,
    announced: (Vec<String>, Vec<String>),
}

impl Session {
    /// Queues a message for the model. After `Ok` the message is in the journal and survives a crash; after an error it is
    /// not queued.
    pub async fn enqueue(&self, place: QueueKind, message: Message) -> Result<(), Error> {
        let id = uuid::Uuid::now_v7().to_string();
        let entry = Entry::Queued {
            id: id.clone(),
            place,
            message,
        };
        if let Err(error) = self.journal.append_entry(entry).await {
            let place =
                |waiting: &[QueuedMessage]| waiting.iter().position(|letter| letter.id == id);
            let taken_back = self
                .journal
                .update_queue(|waiting| place(waiting).map(|place| waiting.remove(place)));
            // If a turn has sent the message meanwhile, queueing it has succeeded.
            return taken_back.map_or(Ok(()), |_| Err(error));
        }
        self.publish_queue();
        Ok(())
    }

    /// Returns the queued messages, without notes.
    pub fn queued_messages(&self) -> Queued {
        self.journal
            .with_state(|standing| Queued::from_messages(&standing.queued))
    }

    /// Removes all queued messages and returns them. Notes stay.
    pub async fn clear_queue(&self) -> Result<Queued, Error> {
        let is_note = |letter: &QueuedMessage| letter.place == QueueKind::Note;
        let taken: Vec<QueuedMessage> = self
            .journal
            .update_queue(|waiting| waiting.extract_if(.., |it| !is_note(it)).collect());
        if taken.is_empty() {
            return Ok(Queued::default());
        }
        let ids = taken.iter().map(|letter| letter.id.clone()).collect();
        if let Err(error) = self.journal.append_entry(Entry::Unqueued { ids }).await {
            self.journal
                .update_queue(|waiting| drop(waiting.splice(..0, taken)));
            return Err(error);
        }
        self.publish_queue();
        Ok(Queued::from_messages(&taken))
    }

    /// Adds a message to the conversation without a request to the model: now, or with the next call of the running turn.
    pub async fn add_note(&self, message: Message) -> Result<(), Error> {
        if self.is_running() {
            return self.enqueue(QueueKind::Note, message).await;
        }
        let _others_wait = self.compaction_lock.lock().await;
        let _running = match self.acquire_run() {
            Err(Error::Busy) => return self.enqueue(QueueKind::Note, message).await,
            entered => entered?,
        };
        if self.unfinished_turn().is_some() {
            return self.enqueue(QueueKind::Note, message).await;
        }
        let entry = Entry::Delivered {
            ids: Vec::new(),
            messages: vec![message],
            note: true,
        };
        self.write_between_turns(vec![entry]).await
    }

    /// Writes entries that belong to no turn. Entries that cannot be written now are written with the next ones.
    pub(super) async fn write_between_turns(&self, entries: Vec<Entry>) -> Result<(), Error> {
        let turn = self.journal.with_state(|standing| standing.turns);
        self.journal.begin_turn(turn);
        match self.journal.append(&entries).await {
            Ok(()) => Ok(()),
            Err(AppendError::Failed(message)) => {
                self.publish(Body::Unrecorded { message });
                Ok(())
            }
            Err(AppendError::OwnershipLost(why)) => Err(Error::NotWritten { why }),
        }
    }

    /// Adds notes that came too late for the last call of a turn to the conversation, once the turn is over.
    pub(super) async fn write_late_notes(&self) {
        let notes = self.journal.update_queue(take_notes);
        if !notes.is_empty() {
            // If another process has taken the session over, the turn has already reported it.
            self.write_between_turns(Entry::delivered(notes)).await.ok();
        }
    }

    /// Returns how many steering messages are sent with one call of a running turn.
    pub fn steering_mode(&self) -> DrainMode {
        self.queue_state.lock().steering
    }

    /// Returns how many follow-ups begin a turn together.
    pub fn follow_up_mode(&self) -> DrainMode {
        self.queue_state.lock().follow_up
    }

    /// Sets how many steering messages are sent with one call of a running turn.
    pub fn set_steering_mode(&self, mode: DrainMode) {
        self.queue_state.lock().steering = mode;
    }

    /// Sets how many follow-ups begin a turn together.
    pub fn set_follow_up_mode(&self, mode: DrainMode) {
        self.queue_state.lock().follow_up = mode;
    }

    /// Removes and returns the messages that begin a turn of their own: steering before follow-ups.
    pub(super) fn take_for_turn(&self) -> Vec<QueuedMessage> {
        let (steering, follow_up) = (self.steering_mode(), self.follow_up_mode());
        self.journal.update_queue(|waiting| {
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
            take_next(waiting, place, mode)
        })
    }

    /// Announces the queue to listeners, if it has changed since the last announcement.
    pub(super) fn publish_queue(&self) {
        {
            let mut queue = self.queue_state.lock();
            let Queued {
                steering,
                follow_up,
            } = self.queued_messages();
            let texts = |messages: Vec<Message>| messages.iter().map(Message::text).collect();
            let now: (Vec<String>, Vec<String>) = (texts(steering), texts(follow_up));
            if queue.announced == now {
                return;
            }
            queue.announced.clone_from(&now);
            let (steering, follow_up) = now;
            // Enqueue the event before the lock on the announced queue is released, deliver it afterwards.
            self.event_hub.enqueue(self.event(Body::QueueChanged {
                steering,
                follow_up,
            }));
        }
        self.event_hub.deliver_pending();
    }

    /// Marks the current queue as announced: the process that opened the session knows it.
    pub(super) fn mark_queue_announced(&self) {
        let Queued {
            steering,
            follow_up,
        } = self.queued_messages();
        let texts = |messages: Vec<Message>| messages.iter().map(Message::text).collect();
        self.queue_state.lock().announced = (texts(steering), texts(follow_up));
    }
}

/// The queue as a running turn sees it.
pub(super) struct SessionInbox<'a> {
    session: &'a Session,
    /// Whether the turn began with queued messages, so that its first call takes no more.
    began_with_queued: AtomicBool,
}

impl<'a> SessionInbox<'a> {
    pub(super) const fn new(session: &'a Session, has_begun_with: bool) -> Self {
        Self {
            session,
            began_with_queued: AtomicBool::new(has_begun_with),
        }
    }
}

impl Inbox for SessionInbox<'_> {
    fn take(&self) -> Vec<QueuedMessage> {
        if self.began_with_queued.swap(false, Ordering::Relaxed) {
            return Vec::new();
        }
        let mode = self.session.steering_mode();
        self.session
            .journal
            .update_queue(|waiting| take_next(waiting, QueueKind::Steering, mode))
    }
}

/// Removes and returns all notes, and as many messages of that kind as the mode allows.
fn take_next(
    waiting: &mut Vec<QueuedMessage>,
    place: QueueKind,
    mode: DrainMode,
) -> Vec<QueuedMessage> {
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

/// Removes and returns all notes.
pub(super) fn take_notes(waiting: &mut Vec<QueuedMessage>) -> Vec<QueuedMessage> {
    let is_note = |letter: &mut QueuedMessage| letter.place == QueueKind::Note;
    waiting.extract_if(.., is_note).collect()
}
