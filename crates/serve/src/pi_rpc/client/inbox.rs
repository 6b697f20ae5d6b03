//! Who waits for what the server says.
//!
//! Invariants: a reply goes to who asked; nobody waits for a server that is gone; who listens slowly loses the oldest events
//! and is told so, who follows a run loses nothing.

use super::error::{ClientError, Lagged};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{broadcast, mpsc, oneshot};

/// How many events may wait for one listener.
const MAX_QUEUED_EVENTS: usize = 1024;
/// Events that are pieces of something whose whole comes after them.
const DELTA_KINDS: [&str; 2] = ["message_update", "tool_execution_update"];

/// Everything that is said, pieces left out, in order.
pub(super) type RunEvents = mpsc::UnboundedReceiver<Arc<Value>>;

/// Where everything that the server says arrives.
pub(super) struct Inbox {
    state: Mutex<State>,
}

struct State {
    /// Why nothing more comes.
    over: Option<ClientError>,
    asking: HashMap<u64, oneshot::Sender<Arc<Value>>>,
    /// Nothing once it is over, so that who listens learns of it.
    events: Option<broadcast::Sender<Arc<Value>>>,
    following: Vec<mpsc::UnboundedSender<Arc<Value>>>,
}

impl Inbox {
    pub(super) fn new() -> Self {
        let (events, _) = broadcast::channel(MAX_QUEUED_EVENTS);
        Self {
            state: Mutex::new(State {
                over: None,
                asking: HashMap::new(),
                events: Some(events),
                following: Vec::new(),
            }),
        }
    }

    /// Waits for the reply of that number.
    pub(super) fn ask(&self, id: u64) -> Result<PendingReply<'_>, ClientError> {
        let mut state = self.state();
        if let Some(why) = &state.over {
            return Err(why.clone());
        }
        let (sender, answer) = oneshot::channel();
        state.asking.insert(id, sender);
        let inbox = self;
        Ok(PendingReply { inbox, id, answer })
    }

    /// Listens to events from here on.
    pub(super) fn listen(&self) -> EventStream {
        let state = self.state();
        let receiver = match &state.events {
            Some(events) => events.subscribe(),
            None => broadcast::channel(1).1,
        };
        EventStream { receiver }
    }

    /// Everything from here on, pieces left out.
    pub(super) fn follow(&self) -> RunEvents {
        let (sender, following) = mpsc::unbounded_channel();
        let mut state = self.state();
        if state.over.is_none() {
            state.following.push(sender);
        }
        following
    }

    /// The server has said that.
    pub(super) fn hear(&self, frame: Value) {
        let frame = Arc::new(frame);
        let kind = frame["type"].as_str().unwrap_or_default();
        let mut state = self.state();
        if !DELTA_KINDS.contains(&kind) {
            let said = |follower: &mpsc::UnboundedSender<_>| follower.send(frame.clone()).is_ok();
            state.following.retain(said);
        }
        // A reply that nobody waits for any more is nothing that happened.
        if kind == "response"
            && let Some(id) = number(&frame)
        {
            if let Some(asking) = state.asking.remove(&id) {
                asking.send(frame).ok();
            }
        } else if let Some(events) = &state.events {
            events.send(frame).ok();
        }
    }

    /// Nothing more comes.
    pub(super) fn end(&self, why: &ClientError) {
        let mut state = self.state();
        state.over.get_or_insert_with(|| why.clone());
        state.events = None;
        state.following.clear();
        state.asking.clear();
    }

    /// Why nothing more comes.
    pub(super) fn over(&self) -> ClientError {
        self.state().over.clone().unwrap_or(ClientError::Closed)
    }

    /// How many requests are under way, and how many follow what is said.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> (usize, usize) {
        let state = self.state();
        (state.asking.len(), state.following.len())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The number by which a reply is matched.
pub(super) fn number(frame: &Value) -> Option<u64> {
    frame["id"].as_str()?.parse().ok()
}

/// A request that is under way. Given up when it is dropped.
pub(super) struct PendingReply<'a> {
    inbox: &'a Inbox,
    id: u64,
    answer: oneshot::Receiver<Arc<Value>>,
}

impl PendingReply<'_> {
    /// The reply.
    pub(super) async fn answer(mut self) -> Result<Arc<Value>, ClientError> {
        let answer = (&mut self.answer).await;
        answer.map_err(|_| self.inbox.over())
    }
}

impl Drop for PendingReply<'_> {
    fn drop(&mut self) {
        self.inbox.state().asking.remove(&self.id);
    }
}

/// What the server says that is no reply to a request.
pub struct EventStream {
    receiver: broadcast::Receiver<Arc<Value>>,
}

impl EventStream {
    /// The next event; nothing when the server is gone. Who is too slow is told how many events were dropped, and goes on
    /// with the oldest that is left.
    pub async fn next(&mut self) -> Option<Result<Arc<Value>, Lagged>> {
        match self.receiver.recv().await {
            Ok(event) => Some(Ok(event)),
            Err(broadcast::error::RecvError::Lagged(missed)) => Some(Err(Lagged { missed })),
            Err(broadcast::error::RecvError::Closed) => None,
        }
    }
}
