//! Delivers the frames of the server to the tasks that wait for them.
//!
//! Invariants: a reply goes to its request; no request waits for a server that is gone; a slow listener loses the
//! oldest events and is told so, the follower of a run loses none.

use super::error::{ClientError, Lagged};
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::{broadcast, mpsc, oneshot};

/// Maximum number of events that wait for one listener.
const MAX_QUEUED_EVENTS: usize = 1024;
/// Kinds of events that are deltas: their whole comes after them.
const DELTA_KINDS: [&str; 2] = ["message_update", "tool_execution_update"];

/// All frames without deltas, in order.
pub(super) type RunEvents = mpsc::UnboundedReceiver<Arc<Value>>;

/// The place where all frames of the server arrive.
pub(super) struct Inbox {
    state: Mutex<State>,
}

struct State {
    /// The reason why no more frames come.
    closed_by: Option<ClientError>,
    pending_replies: HashMap<u64, oneshot::Sender<Arc<Value>>>,
    /// `None` once the connection is over, so that listeners notice.
    events: Option<broadcast::Sender<Arc<Value>>>,
    run_subscribers: Vec<mpsc::UnboundedSender<Arc<Value>>>,
}

impl Inbox {
    pub(super) fn new() -> Self {
        let (events, _) = broadcast::channel(MAX_QUEUED_EVENTS);
        Self {
            state: Mutex::new(State {
                closed_by: None,
                pending_replies: HashMap::new(),
                events: Some(events),
                run_subscribers: Vec::new(),
            }),
        }
    }

    /// Registers a request whose reply has this number.
    pub(super) fn register_request(&self, id: u64) -> Result<PendingReply<'_>, ClientError> {
        let mut state = self.state.lock();
        if let Some(why) = &state.closed_by {
            return Err(why.clone());
        }
        let (sender, receiver) = oneshot::channel();
        state.pending_replies.insert(id, sender);
        let inbox = self;
        Ok(PendingReply {
            inbox,
            id,
            receiver,
        })
    }

    /// Subscribes to the events from now on.
    pub(super) fn subscribe(&self) -> EventStream {
        let state = self.state.lock();
        let receiver = match &state.events {
            Some(events) => events.subscribe(),
            None => broadcast::channel(1).1,
        };
        EventStream { receiver }
    }

    /// Follows all frames from now on, without deltas.
    pub(super) fn subscribe_run(&self) -> RunEvents {
        let (sender, following) = mpsc::unbounded_channel();
        let mut state = self.state.lock();
        if state.closed_by.is_none() {
            state.run_subscribers.push(sender);
        }
        following
    }

    /// Delivers a frame of the server.
    pub(super) fn dispatch(&self, frame: Value) {
        let frame = Arc::new(frame);
        let kind = frame["type"].as_str().unwrap_or_default();
        let mut state = self.state.lock();
        if !DELTA_KINDS.contains(&kind) {
            let said = |follower: &mpsc::UnboundedSender<_>| follower.send(frame.clone()).is_ok();
            state.run_subscribers.retain(said);
        }
        // A reply to a cancelled request is not an event.
        if kind == "response"
            && let Some(id) = reply_id(&frame)
        {
            if let Some(asking) = state.pending_replies.remove(&id) {
                asking.send(frame).ok();
            }
        } else if let Some(events) = &state.events {
            events.send(frame).ok();
        }
    }

    /// Ends all waits: no more frames come.
    pub(super) fn end(&self, why: &ClientError) {
        let mut state = self.state.lock();
        state.closed_by.get_or_insert_with(|| why.clone());
        state.events = None;
        state.run_subscribers.clear();
        state.pending_replies.clear();
    }

    /// Returns the reason why no more frames come.
    pub(super) fn closed_error(&self) -> ClientError {
        self.state
            .lock()
            .closed_by
            .clone()
            .unwrap_or(ClientError::Closed)
    }

    /// Returns the number of pending requests and of followers.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.pending_replies.len(), state.run_subscribers.len())
    }
}

/// Returns the number that matches a reply to its request.
pub(super) fn reply_id(frame: &Value) -> Option<u64> {
    frame["id"].as_str()?.parse().ok()
}

/// A pending request. Cancelled on drop.
pub(super) struct PendingReply<'a> {
    inbox: &'a Inbox,
    id: u64,
    receiver: oneshot::Receiver<Arc<Value>>,
}

impl PendingReply<'_> {
    /// Waits for the reply.
    pub(super) async fn wait(mut self) -> Result<Arc<Value>, ClientError> {
        let answer = (&mut self.receiver).await;
        answer.map_err(|_| self.inbox.closed_error())
    }
}

impl Drop for PendingReply<'_> {
    fn drop(&mut self) {
        self.inbox.state.lock().pending_replies.remove(&self.id);
    }
}

/// The events of the server: all frames that are not replies.
pub struct EventStream {
    receiver: broadcast::Receiver<Arc<Value>>,
}

impl EventStream {
    /// Returns the next event, or `None` when the server is gone. A slow listener gets the number of dropped events,
    /// and continues with the oldest one left.
    pub async fn next(&mut self) -> Option<Result<Arc<Value>, Lagged>> {
        match self.receiver.recv().await {
            Ok(event) => Some(Ok(event)),
            Err(broadcast::error::RecvError::Lagged(missed)) => Some(Err(Lagged { missed })),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }
}
