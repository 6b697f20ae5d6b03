//! Serves any number of sessions over one WebSocket: requests in, replies and `chat.delta` envelopes out.
//!
//! Invariants: a subscription that is not read holds up only itself; a request is carried out even while its client
//! does not read; everything that a client may send or subscribe to is bounded.

mod frame_writer;

use super::access_control::{self, Peer};
use super::app_state::{AppState, run_to_completion};
use super::problems::HttpError;
use super::session_events::{Dialect, SessionEvents, StreamItem};
use super::turns::{DeliveryMode, Disposition, Picture, Prompt, run_turn_command};
use crate::live_sessions::EventCursor;
use axum::Extension;
use axum::extract::State;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::response::Response;
use frame_writer::{Frame, FrameSender};
use futures_util::StreamExt;
use futures_util::stream::SplitStream;
use http::{HeaderMap, StatusCode};
use outlast_gateway::problem::Problem;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

/// Maximum number of sessions that one socket may follow.
const MAX_SUBSCRIPTIONS: usize = 256;
/// Maximum number of replies that wait to be written.
const MAX_QUEUED_REPLIES: usize = 64;
/// Time to write the queued frames when a socket closes.
const FLUSH_TIMEOUT: Duration = Duration::from_millis(200);
/// Maximum length of a request id that the reply repeats, in bytes.
const MAX_ID_BYTES: usize = 256;
/// Interval between pings, and the silence of the client after which the socket is closed.
const PING_INTERVAL: Duration = Duration::from_secs(30);
const MAX_SILENCE: Duration = Duration::from_secs(100);
/// Size of the read buffer, in bytes: requests are short.
const READ_BUFFER: usize = 4 << 10;
/// Size of the write buffer, in bytes.
const WRITE_BUFFER: usize = 16 << 10;

/// A request of a client.
#[derive(Debug, Deserialize)]
struct Request {
    #[serde(rename = "type")]
    kind: String,
    #[serde(rename = "conversationId", default)]
    conversation: String,
    after: Option<String>,
    #[serde(default)]
    dialect: Dialect,
    text: Option<String>,
    #[serde(default)]
    images: Vec<Picture>,
    deliver: Option<DeliveryMode>,
}

/// The id of a request, readable even if the rest of the request is not.
#[derive(Deserialize)]
struct RequestId<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
}

pub(super) async fn upgrade(
    State(shared): State<Arc<AppState>>,
    peer: Option<Extension<Peer>>,
    headers: HeaderMap,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, HttpError> {
    let upgrade = upgrade.map_err(|error| {
        let detail = format!("this is a WebSocket: {}", error.body_text());
        Problem::new(StatusCode::UPGRADE_REQUIRED, "upgrade_required", detail)
    })?;
    let limit = shared.limits.body;
    let upgrade = upgrade
        .max_message_size(limit)
        .max_frame_size(limit)
        .read_buffer_size(READ_BUFFER)
        .write_buffer_size(WRITE_BUFFER);
    let upgrade = match access_control::token_protocol(&headers) {
        Some(protocol) => upgrade.protocols([protocol]),
        None => upgrade,
    };
    let peer = peer.map(|Extension(peer)| peer);
    let sockets = shared.sockets.clone();
    Ok(upgrade
        .on_upgrade(move |socket| Box::pin(sockets.track_future(run_socket(shared, socket, peer)))))
}

async fn run_socket(shared: Arc<AppState>, socket: WebSocket, peer: Option<Peer>) {
    let (sink, stream) = socket.split();
    let ((out, waiting), (replies, answers)) =
        (FrameSender::channel(), mpsc::channel(MAX_QUEUED_REPLIES));
    let stop = shared.sessions.stop_token().clone();
    let client = Client {
        shared,
        out,
        replies,
        peer,
        subscriptions: HashMap::new(),
    };
    let mut writing =
        AbortOnDropHandle::new(tokio::spawn(frame_writer::write(sink, waiting, answers)));
    tokio::select! {
        () = Box::pin(client.read(stream)) => {}
        _ = &mut writing => return,
        () = stop.cancelled() => {}
    }
    // Writes the queued frames, then closes: the client reconnects when the server is back.
    tokio::time::timeout(FLUSH_TIMEOUT, writing).await.ok();
}

struct Client {
    shared: Arc<AppState>,
    out: FrameSender,
    /// Replies have their own channel, so that they do not wait behind events. A client that reads no replies is
    /// disconnected.
    replies: mpsc::Sender<Message>,
    peer: Option<Peer>,
    subscriptions: HashMap<String, AbortOnDropHandle<()>>,
}

impl Client {
    async fn read(mut self, mut stream: SplitStream<WebSocket>) {
        let mut silent_since = tokio::time::Instant::now();
        loop {
            let message = match tokio::time::timeout(PING_INTERVAL, stream.next()).await {
                Ok(Some(Ok(message))) => message,
                Ok(None | Some(Err(_))) => return,
                Err(_) if silent_since.elapsed() > MAX_SILENCE => return,
                Err(_) => {
                    // A ping that does not fit is not needed: other frames wait already.
                    self.replies
                        .try_send(Message::Ping(bytes::Bytes::new()))
                        .ok();
                    continue;
                }
            };
            silent_since = tokio::time::Instant::now();
            match message {
                Message::Text(text) => {
                    let reply = self.handle_request(text.as_bytes()).await;
                    if self.reply(&reply).is_err() {
                        return;
                    }
                }
                Message::Binary(_) => {
                    let problem = Problem::unreadable("requests are texts of JSON");
                    if self.reply(&error_reply(&Value::Null, &problem)).is_err() {
                        return;
                    }
                }
                Message::Close(_) => return,
                Message::Ping(_) | Message::Pong(_) => {}
            }
        }
    }

    fn reply(&self, reply: &Value) -> Result<(), mpsc::error::TrySendError<Message>> {
        self.replies.try_send(Message::text(reply.to_string()))
    }

    async fn handle_request(&mut self, text: &[u8]) -> Value {
        // A refusal names its request, as far as the id can be read.
        let named = serde_json::from_slice::<RequestId<'_>>(text);
        let id = named.ok().and_then(|named| named.id);
        let id = id.filter(|id| id.get().len() <= MAX_ID_BYTES);
        let id = json!(id);
        if let Some(peer) = &self.peer
            && let Err(problem) = self.shared.check_rate(peer.address)
        {
            return error_reply(&id, &problem);
        }
        let request: Request = match super::extract::read_json(text) {
            Ok(request) => request,
            Err(HttpError(problem)) => return error_reply(&id, &problem),
        };
        match self.dispatch(request).await {
            Ok(data) => json!({ "type": "reply", "id": id, "ok": true, "data": data }),
            Err(HttpError(problem)) => error_reply(&id, &problem),
        }
    }

    async fn dispatch(&mut self, request: Request) -> Result<Value, HttpError> {
        if request.kind == "chat.unsubscribe" {
            // The session may be gone while its subscription still exists, and the client may use an abbreviated id.
            let room = self.shared.sessions.find(&request.conversation).await;
            let id = room.map_or(request.conversation, |room| room.id().to_owned());
            self.subscriptions.remove(&id);
            return Ok(Value::Null);
        }
        if request.kind == "chat.subscribe" {
            let room = self.shared.sessions.find(&request.conversation).await?;
            self.subscribe(&request, room)?;
            return Ok(Value::Null);
        }
        run_to_completion(execute_request(Arc::clone(&self.shared), request)).await?
    }

    fn subscribe(
        &mut self,
        request: &Request,
        room: Arc<crate::live_sessions::LiveSession>,
    ) -> Result<(), HttpError> {
        let id = room.id().to_owned();
        self.subscriptions
            .retain(|_, following| !following.is_finished());
        if self.subscriptions.len() >= MAX_SUBSCRIPTIONS && !self.subscriptions.contains_key(&id) {
            let detail = format!("one socket follows at most {MAX_SUBSCRIPTIONS} sessions");
            return Err(Problem::conflict("too_many_subscriptions", detail).into());
        }
        let after = request.after.as_deref().map(str::parse::<EventCursor>);
        let after = after.transpose();
        let after = after.map_err(|error| Problem::unreadable(format!("after: {error}")))?;
        let stop = self.shared.sessions.stop_token().clone();
        let following = SessionEvents::new(room, request.dialect, after, stop);
        let task = tokio::spawn(forward_events(following, id.clone(), self.out.clone()));
        self.subscriptions.insert(id, AbortOnDropHandle::new(task));
        Ok(())
    }
}

async fn execute_request(shared: Arc<AppState>, request: Request) -> Result<Value, HttpError> {
    let room = shared.sessions.find(&request.conversation).await?;
    match request.kind.as_str() {
        "chat.send" => {
            let said = Prompt {
                text: request.text.unwrap_or_default(),
                images: request.images,
                deliver: request.deliver,
            };
            let accepted = said.send(&room).await?;
            Ok(json!(Disposition::from(&accepted)))
        }
        order @ ("chat.abort" | "chat.abort_retry" | "chat.retry_now" | "chat.resume") => {
            run_turn_command(&room, order.trim_start_matches("chat.")).await?;
            Ok(Value::Null)
        }
        kind => Err(Problem::unreadable(format!("there is no request `{kind}`")).into()),
    }
}

fn error_reply(id: &Value, problem: &Problem) -> Value {
    json!({ "type": "reply", "id": id, "ok": false, "problem": problem.body() })
}

/// Sends the events of a live session until the client unsubscribes or disconnects.
async fn forward_events(mut following: SessionEvents, conversation_id: String, out: FrameSender) {
    let conversation_id = &*conversation_id;
    while let Some(next) = following.next().await {
        let mut _turn = None;
        let frame = match next {
            StreamItem::KeepAlive => continue,
            StreamItem::Event(place, event) => Frame::Delta {
                conversation_id,
                place: place.to_string(),
                seq: place.seq,
                event,
            },
            StreamItem::Lagged => {
                _turn = out.snapshot_permit.acquire().await.ok();
                match following.snapshot().await {
                    Ok(snapshot) => Frame::Snapshot {
                        conversation_id,
                        place: snapshot.place.clone(),
                        seq: snapshot.seq,
                        snapshot: Box::new(snapshot),
                    },
                    Err(error) => {
                        let HttpError(problem) = error.into();
                        let problem = problem.body();
                        let ended = Frame::Ended {
                            conversation_id,
                            problem,
                        };
                        out.send(&ended).await;
                        return;
                    }
                }
            }
        };
        if !out.send(&frame).await {
            return;
        }
    }
}
