//! Writes the frames of a WebSocket from a bounded queue, replies first.

use super::MAX_SILENCE;
use crate::live_sessions::SnapshotView;
use axum::extract::ws::{CloseFrame, Message, WebSocket, close_code};
use futures_util::SinkExt;
use futures_util::stream::SplitSink;
use outlast_gateway::problem;
use serde::Serialize;
use serde_json::value::RawValue;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

/// Maximum number of frames that wait to be written.
const MAX_QUEUED_FRAMES: usize = 64;
/// Maximum size of those frames, in bytes.
const MAX_QUEUED_BYTES: usize = 32 << 20;
/// Minimum reading speed, in bytes per second; a slower client counts as gone.
const MIN_BYTES_PER_SECOND: u64 = 8 << 10;
/// Number of bytes to write before the writer looks for replies again.
const BATCH_BYTES: usize = 256 << 10;

#[derive(Serialize)]
#[serde(tag = "type")]
pub(super) enum Frame<'a> {
    #[serde(rename = "chat.delta", rename_all = "camelCase")]
    Delta {
        conversation_id: &'a str,
        place: String,
        seq: u64,
        event: Box<RawValue>,
    },
    #[serde(rename = "chat.snapshot", rename_all = "camelCase")]
    Snapshot {
        conversation_id: &'a str,
        place: String,
        seq: u64,
        snapshot: Box<SnapshotView>,
    },
    /// A subscription has ended.
    #[serde(rename = "chat.ended", rename_all = "camelCase")]
    Ended {
        conversation_id: &'a str,
        problem: problem::ProblemBody<'a>,
    },
}

/// Writes queued frames until no more can come.
pub(super) async fn write(
    mut sink: SplitSink<WebSocket, Message>,
    mut waiting: mpsc::Receiver<QueuedFrame>,
    mut answers: mpsc::Receiver<Message>,
) {
    loop {
        let QueuedFrame(first, room) = tokio::select! {
            biased;
            Some(answer) = answers.recv() => QueuedFrame(answer, None),
            Some(next) = waiting.recv() => next,
            else => break,
        };
        let mut bytes = length(&first);
        let (mut messages, mut _rooms) = (vec![first], vec![room]);
        // Batches the frames that wait already.
        while bytes < BATCH_BYTES
            && let Ok(QueuedFrame(message, room)) = waiting.try_recv()
        {
            bytes += length(&message);
            messages.push(message);
            _rooms.push(room);
        }
        let written = async {
            for message in messages {
                sink.feed(message).await?;
            }
            sink.flush().await
        };
        let slowest = u64::try_from(bytes).unwrap_or(u64::MAX) / MIN_BYTES_PER_SECOND;
        let longest = MAX_SILENCE + Duration::from_secs(slowest);
        let written = tokio::time::timeout(longest, written).await;
        if !matches!(written, Ok(Ok(()))) {
            return;
        }
    }
    let close = CloseFrame {
        code: close_code::AWAY,
        reason: "".into(),
    };
    sink.send(Message::Close(Some(close))).await.ok();
}

/// A frame that waits to be written, and its share of the byte limit.
pub(super) struct QueuedFrame(Message, Option<OwnedSemaphorePermit>);

fn length(message: &Message) -> usize {
    match message {
        Message::Text(text) => text.len(),
        _ => 0,
    }
}

/// Puts frames into the queue.
#[derive(Clone)]
pub(super) struct FrameSender {
    queue: mpsc::Sender<QueuedFrame>,
    /// Remaining bytes of the queue.
    byte_permits: Arc<Semaphore>,
    /// Lets one subscription at a time make a snapshot and hold it until the queue has room for it.
    pub(super) snapshot_permit: Arc<Semaphore>,
}

impl FrameSender {
    /// Creates a queue: its sender and its receiver.
    pub(super) fn channel() -> (Self, mpsc::Receiver<QueuedFrame>) {
        let (queue, waiting) = mpsc::channel(MAX_QUEUED_FRAMES);
        let out = Self {
            queue,
            byte_permits: Arc::new(Semaphore::new(MAX_QUEUED_BYTES)),
            snapshot_permit: Arc::new(Semaphore::new(1)),
        };
        (out, waiting)
    }

    /// Queues a frame once there is room for it. Returns whether the queue is still open.
    pub(super) async fn send(&self, frame: &Frame<'_>) -> bool {
        let text = serde_json::to_string(frame).unwrap_or_default();
        let bytes = text.len().clamp(1, MAX_QUEUED_BYTES);
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let permit = Arc::clone(&self.byte_permits)
            .acquire_many_owned(bytes)
            .await;
        let waiting = QueuedFrame(Message::text(text), permit.ok());
        self.queue.send(waiting).await.is_ok()
    }
}
