//! The queue of everything that waits to be written to one client, in order.
//!
//! Sending never waits; a producer that may outpace the client waits for [`Outbox::wait_for_space`] before it produces more.
//! Invariants: order is kept; deltas of one text are merged while they wait, so a slow client costs little more than
//! the text; nothing is lost unless the client is gone; no lock is held across an await. Not here: encoding (see
//! `event_encoder`).

use crate::event_encoder::{EventEncoder, JsonLines};
use outlast_kernel::event::{Body, Event};
use outlast_session::event_log::encoded_len;
use parking_lot::Mutex;
use serde_json::value::RawValue;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until};

/// Approximate number of bytes that may wait before the outbox counts as full.
pub const MAX_QUEUED_BYTES: usize = 8 << 20;
/// Maximum number of items that may wait, however small they are.
const MAX_QUEUED_ITEMS: usize = 1 << 14;
/// Maximum bytes per second while the encoder repeats the same text, each time a little longer.
const MAX_REPEATED_BYTES_PER_SECOND: usize = 10 << 20;
/// Approximate size of one write, in bytes.
const BATCH: usize = 64 << 10;
/// Approximate memory of an item beside its text, in bytes.
const OVERHEAD: usize = size_of::<QueuedItem>();

/// One item to write to the client.
#[derive(Debug)]
pub enum Item {
    /// An event, for the encoder to write.
    Event(Event),
    /// A complete frame, written as it is.
    Reply(Box<RawValue>),
    /// The end of a run: no turn is running, and none follows by itself. The encoder writes it.
    RunEnded {
        /// Whether the user aborted the run.
        aborted: bool,
    },
}

/// The sending half. The outbox closes when its last clone is dropped.
#[derive(Clone)]
pub struct Outbox {
    sender: Arc<SenderGuard>,
}

/// The writing half.
pub struct Writer {
    shared: Arc<Shared>,
    /// The earliest time to write a lone delta; until then it may grow.
    next_delta_at: Instant,
}

/// Closes the outbox when the last sender is dropped.
struct SenderGuard {
    shared: Arc<Shared>,
}

struct Shared {
    queue: Mutex<Queue>,
    merge_threshold: usize,
    /// Notifies the writer of new items.
    item_added: Notify,
    /// Notifies waiting senders of freed room.
    space_freed: Notify,
    /// Whether so many bytes wait that producers should pause.
    full: watch::Sender<bool>,
}

#[derive(Default)]
struct Queue {
    items: VecDeque<QueuedItem>,
    /// The weight of the items that wait or are being written, in bytes.
    weight: usize,
    /// Whether new items are dropped.
    closed: bool,
}

struct QueuedItem {
    item: Item,
    weight: usize,
}

impl Outbox {
    /// Creates an empty outbox and its writer. Deltas of a text are merged while more than `merges_above` bytes wait.
    pub fn new(merge_threshold: usize) -> (Self, Writer) {
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            merge_threshold,
            item_added: Notify::new(),
            space_freed: Notify::new(),
            full: watch::Sender::default(),
        });
        let writer = Writer {
            shared: shared.clone(),
            next_delta_at: Instant::now(),
        };
        let sender = Arc::new(SenderGuard { shared });
        (Self { sender }, writer)
    }

    /// Queues an item. After the outbox is closed, items are dropped.
    pub fn send(&self, item: Item) {
        let shared = &self.sender.shared;
        let mut queue = shared.queue.lock();
        queue.push(item, shared.merge_threshold);
        shared.update_full(&queue);
        drop(queue);
        shared.item_added.notify_one();
    }

    /// Returns whether so many bytes wait that producers should pause.
    pub fn is_full(&self) -> bool {
        *self.sender.shared.full.borrow()
    }

    /// Returns whether producers should pause, and its changes.
    pub fn watch_full(&self) -> watch::Receiver<bool> {
        self.sender.shared.full.subscribe()
    }

    /// Waits until there is room, or the client is gone. Cancel safe; any number of callers may wait.
    pub async fn wait_for_space(&self) {
        drop(self.watch_full().wait_for(|is_full| !is_full).await);
    }

    /// Waits until the number of items is within its limit, regardless of bytes: for small items, such as replies, that
    /// should not wait for large ones.
    pub async fn wait_for_item_slot(&self) {
        loop {
            // Registers before it checks, so that no notification is missed in between.
            let left = self.sender.shared.space_freed.notified();
            if self.sender.shared.queue.lock().items.len() <= MAX_QUEUED_ITEMS {
                return;
            }
            left.await;
        }
    }

    /// Closes the outbox. The writer still writes the queued items, then ends.
    pub fn close(&self) {
        self.sender.shared.close();
    }
}

impl Drop for SenderGuard {
    fn drop(&mut self) {
        self.shared.close();
    }
}

impl Shared {
    fn close(&self) {
        self.queue.lock().closed = true;
        self.item_added.notify_one();
    }

    /// Frees the room of written items.
    fn release(&self, weight: usize) {
        let mut queue = self.queue.lock();
        queue.weight -= weight;
        self.update_full(&queue);
        drop(queue);
        self.space_freed.notify_waiters();
    }

    fn update_full(&self, queue: &Queue) {
        let now = queue.weight > MAX_QUEUED_BYTES;
        self.full
            .send_if_modified(|is_full| std::mem::replace(is_full, now) != now);
    }
}

impl Queue {
    fn push(&mut self, item: Item, merges_above: usize) {
        if self.closed {
            return;
        }
        if self.weight > merges_above
            && let Some(last) = self.items.back_mut()
            && let Some(more) = merge(&mut last.item, &item)
        {
            last.weight += more;
            self.weight += more;
            return;
        }
        let weight = OVERHEAD + weight(&item);
        self.weight += weight;
        self.items.push_back(QueuedItem { item, weight });
    }

    /// Returns whether the queue is empty and will stay empty.
    fn is_drained(&self) -> bool {
        self.closed && self.items.is_empty()
    }
}

impl Writer {
    /// Writes until the outbox is closed and empty, or writing fails.
    pub async fn run(
        mut self,
        mut out: impl AsyncWrite + Unpin,
        mut voice: Box<dyn EventEncoder>,
    ) -> io::Result<()> {
        let mut lines = JsonLines::default();
        loop {
            let weight = self.encode_batch(&mut *voice, &mut lines);
            if weight > 0 {
                out.write_all(lines.as_bytes()).await?;
                out.flush().await?;
                lines.clear();
                self.shared.release(weight);
            } else if self.shared.queue.lock().is_drained() {
                return Ok(());
            } else {
                // An item that arrived in the meantime is remembered, and ends this wait at once.
                let arrived = self.shared.item_added.notified();
                tokio::select! {
                    () = arrived => {}
                    () = sleep_until(self.next_delta_at), if self.has_only_delta() => {}
                }
            }
        }
    }

    /// Encodes waiting items until there is enough for one write. Returns their weight.
    fn encode_batch(&mut self, voice: &mut dyn EventEncoder, lines: &mut JsonLines) -> usize {
        let mut weight = 0;
        while lines.as_bytes().len() < BATCH {
            if self.has_only_delta() && Instant::now() < self.next_delta_at {
                break;
            }
            let Some(next) = self.shared.queue.lock().items.pop_front() else {
                break;
            };
            weight += next.weight;
            let (before, is_piece) = (lines.as_bytes().len(), next.item.is_delta());
            match next.item {
                Item::Event(event) => voice.encode(event, lines),
                Item::Reply(frame) => lines.push(&frame),
                Item::RunEnded { aborted } => voice.encode_run_end(aborted, lines),
            }
            if is_piece {
                self.next_delta_at = Instant::now() + delta_delay(lines.as_bytes().len() - before);
            }
        }
        weight
    }

    /// Returns whether the only waiting item is a delta, which may still grow.
    fn has_only_delta(&self) -> bool {
        let queue = self.shared.queue.lock();
        let first = queue.items.front();
        let is_piece = first.is_some_and(|first| first.item.is_delta());
        is_piece && queue.items.len() == 1 && !queue.closed
    }
}

impl Item {
    fn is_delta(&self) -> bool {
        let Self::Event(event) = self else {
            return false;
        };
        matches!(
            event.body,
            Body::TextDelta { .. } | Body::ReasoningDelta { .. }
        )
    }
}

/// Returns the pause after a delta of that many encoded bytes. An encoder may repeat the whole text with each delta:
/// the pause then makes deltas larger and fewer.
fn delta_delay(bytes: usize) -> Duration {
    let millis = bytes.saturating_mul(1000) / MAX_REPEATED_BYTES_PER_SECOND;
    Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX))
}

impl Drop for Writer {
    /// Without a writer nothing is kept, and no sender waits for room.
    fn drop(&mut self) {
        let mut queue = self.shared.queue.lock();
        *queue = Queue {
            closed: true,
            ..Queue::default()
        };
        self.shared.update_full(&queue);
        drop(queue);
        self.shared.space_freed.notify_waiters();
    }
}

/// Appends a delta to the one before it, if both belong to the same attempt. Returns the number of bytes added.
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

/// Returns the approximate number of bytes that an item occupies while it waits.
fn weight(item: &Item) -> usize {
    match item {
        Item::Event(event) => encoded_len(event),
        Item::Reply(frame) => frame.get().len(),
        Item::RunEnded { .. } => 0,
    }
}

#[cfg(test)]
#[path = "outbox_tests.rs"]
mod tests;
