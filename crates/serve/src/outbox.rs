//! What waits to be written to one client, in order.
//!
//! Whoever sends never waits; who makes more than is read asks for room before it makes more. Invariants: order is kept;
//! pieces of one text are put together while they wait, so that a client that reads slowly costs little more than the text;
//! nothing is lost but to a client that is gone. No lock is held while something is awaited.
//! Not here: what is said of an event (see `voice`).

use crate::event_encoder::{EventEncoder, JsonLines, written};
use outlast_kernel::event::{Body, Event};
use serde_json::value::RawValue;
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// How many bytes may wait before there is no more room, about.
pub const MAX_QUEUED_BYTES: usize = 8 << 20;
/// How many things may wait, however small they are.
const MAX_QUEUED_ITEMS: usize = 1 << 14;
/// How much is written in a second when it is the same text over and over, each time a little longer.
const MAX_REPEATED_BYTES_PER_SECOND: usize = 10 << 20;
/// How much is written at a time, about.
const BATCH: usize = 64 << 10;
/// What an item costs beside its text, about.
const OVERHEAD: usize = size_of::<QueuedItem>();

/// One thing to be said to the client.
#[derive(Debug)]
pub enum Item {
    /// Something happened; the voice says it.
    Event(Event),
    /// A whole frame, said as it is.
    Reply(Box<RawValue>),
    /// Everything that followed from what was asked is over; the voice says it.
    RunEnded {
        /// Whether by a person's will.
        aborted: bool,
    },
}

/// Takes what is to be written. The last one that is dropped closes it.
#[derive(Clone)]
pub struct Outbox {
    end: Arc<SenderGuard>,
}

/// Writes it.
pub struct Writer {
    shared: Arc<Shared>,
    /// When the next piece of a text is written that could become longer until then.
    next_piece: Instant,
}

/// Closes the outbox when nobody is left who could send.
struct SenderGuard {
    shared: Arc<Shared>,
}

struct Shared {
    queue: Mutex<Queue>,
    merges_above: usize,
    /// Told to the writer: there is something to do.
    arrived: Notify,
    /// Told to who waits for room: there is less than before.
    left: Notify,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<QueuedItem>,
    /// The weight of what waits and of what is being written.
    weight: usize,
    /// Nothing is taken any more.
    closed: bool,
}

struct QueuedItem {
    item: Item,
    weight: usize,
}

impl Outbox {
    /// An empty one, and what writes it. Pieces of a text are put together when more bytes wait than that.
    pub fn new(merges_above: usize) -> (Self, Writer) {
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            merges_above,
            arrived: Notify::new(),
            left: Notify::new(),
        });
        let writer = Writer {
            shared: shared.clone(),
            next_piece: Instant::now(),
        };
        let end = Arc::new(SenderGuard { shared });
        (Self { end }, writer)
    }

    /// Has that written after everything that was sent before. What is sent after the end is dropped.
    pub fn send(&self, item: Item) {
        let shared = &self.end.shared;
        shared.queue().push(item, shared.merges_above);
        shared.arrived.notify_one();
    }

    /// Whether so much waits that no more should be made.
    pub fn is_full(&self) -> bool {
        self.end.shared.queue().weight > MAX_QUEUED_BYTES
    }

    /// Waits until there is room, also when that is because the client is gone. May be dropped; many may wait.
    pub async fn room(&self) {
        self.until(|queue| queue.weight <= MAX_QUEUED_BYTES).await;
    }

    /// Waits until few enough things wait, however large they are: for what is small, and should not wait for anything.
    pub async fn wait_for_item_slot(&self) {
        self.until(|queue| queue.waiting.len() <= MAX_QUEUED_ITEMS)
            .await;
    }

    async fn until(&self, is_so: impl Fn(&Queue) -> bool) {
        loop {
            // Listens before it looks, so that nothing is missed in between.
            let left = self.end.shared.left.notified();
            if is_so(&self.end.shared.queue()) {
                return;
            }
            left.await;
        }
    }

    /// Nothing is taken any more. What waits is still written, then the writer ends.
    pub fn close(&self) {
        self.end.shared.close();
    }
}

impl Drop for SenderGuard {
    fn drop(&mut self) {
        self.shared.close();
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close(&self) {
        self.queue().closed = true;
        self.arrived.notify_one();
    }

    /// That much has been written.
    fn release(&self, weight: usize) {
        self.queue().weight -= weight;
        self.left.notify_waiters();
    }
}

impl Queue {
    fn push(&mut self, item: Item, merges_above: usize) {
        if self.closed {
            return;
        }
        if self.weight > merges_above
            && let Some(last) = self.waiting.back_mut()
            && let Some(more) = merge(&mut last.item, &item)
        {
            last.weight += more;
            self.weight += more;
            return;
        }
        let weight = OVERHEAD + weight(&item);
        self.weight += weight;
        self.waiting.push_back(QueuedItem { item, weight });
    }

    /// Whether nothing waits and nothing will.
    fn is_over(&self) -> bool {
        self.closed && self.waiting.is_empty()
    }
}

impl Writer {
    /// Writes until the outbox is closed and empty, or nothing can be written any more.
    pub async fn run(
        mut self,
        mut out: impl AsyncWrite + Unpin,
        mut voice: Box<dyn EventEncoder>,
    ) -> io::Result<()> {
        let mut lines = JsonLines::default();
        loop {
            let weight = self.take(&mut *voice, &mut lines);
            if weight > 0 {
                out.write_all(lines.as_bytes()).await?;
                out.flush().await?;
                lines.clear();
                self.shared.release(weight);
            } else if self.shared.queue().is_over() {
                return Ok(());
            } else {
                // What has arrived since is remembered, and ends this at once.
                let arrived = self.shared.arrived.notified();
                tokio::select! {
                    () = arrived => {}
                    () = sleep_until(self.next_piece), if self.has_only_delta() => {}
                }
            }
        }
    }

    /// Has the voice say what waits, item by item, until there is enough to write. Says how much that weighed.
    fn take(&mut self, voice: &mut dyn EventEncoder, lines: &mut JsonLines) -> usize {
        let mut weight = 0;
        while lines.as_bytes().len() < BATCH {
            if self.has_only_delta() && Instant::now() < self.next_piece {
                break;
            }
            let Some(next) = self.shared.queue().waiting.pop_front() else {
                break;
            };
            weight += next.weight;
            let (before, is_piece) = (lines.as_bytes().len(), next.item.is_piece());
            match next.item {
                Item::Event(event) => voice.say(event, lines),
                Item::Reply(frame) => lines.push(&frame),
                Item::RunEnded { aborted } => voice.end_run(aborted, lines),
            }
            if is_piece {
                self.next_piece = Instant::now() + delta_delay(lines.as_bytes().len() - before);
            }
        }
        weight
    }

    /// Whether nothing waits but a piece of a text, which may become longer while it does.
    fn has_only_delta(&self) -> bool {
        let queue = self.shared.queue();
        let first = queue.waiting.front();
        let is_piece = first.is_some_and(|first| first.item.is_piece());
        is_piece && queue.waiting.len() == 1 && !queue.closed
    }
}

impl Item {
    fn is_piece(&self) -> bool {
        let Self::Event(event) = self else {
            return false;
        };
        matches!(
            event.body,
            Body::TextDelta { .. } | Body::ReasoningDelta { .. }
        )
    }
}

/// A voice may say the whole text with each piece of it: then the pieces become larger, and fewer.
fn delta_delay(bytes: usize) -> Duration {
    let millis = bytes.saturating_mul(1000) / MAX_REPEATED_BYTES_PER_SECOND;
    Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX))
}

impl Drop for Writer {
    /// Nobody writes any more: nothing is kept, and nobody waits for room.
    fn drop(&mut self) {
        let mut queue = self.shared.queue();
        *queue = Queue {
            closed: true,
            ..Queue::default()
        };
        drop(queue);
        self.shared.left.notify_waiters();
    }
}

/// Adds a piece of a text to the one before it, where both are of the same attempt. Says how much longer that one is.
fn merge(last: &mut Item, next: &Item) -> Option<usize> {
    let (Item::Event(last), Item::Event(next)) = (last, next) else {
        return None;
    };
    let same = last.v == next.v
        && last.session_id == next.session_id
        && last.turn_id == next.turn_id
        && last.attempt_id == next.attempt_id;
    let (text, more) = match (&mut last.body, &next.body) {
        (Body::TextDelta { text }, Body::TextDelta { text: more })
        | (Body::ReasoningDelta { text }, Body::ReasoningDelta { text: more })
            if same =>
        {
            (text, more)
        }
        _ => return None,
    };
    text.push_str(more);
    last.seq = next.seq;
    last.time = next.time;
    Some(more.len())
}

/// What an item takes while it waits, about.
fn weight(item: &Item) -> usize {
    match item {
        Item::Event(event) => written(event),
        Item::Reply(frame) => frame.get().len(),
        Item::RunEnded { .. } => 0,
    }
}

#[cfg(test)]
#[path = "outbox_tests.rs"]
mod tests;
