//! Endpoints for turns: send prompts, steer, abort, resume, and follow the events of a session.

use super::api::{Api, Operation};
use super::app_state::{ExtractState, JsonResult};
use super::extract::{Body, PathId, QueryParams};
use super::problems::HttpError;
use super::session_events::{Dialect, SessionEvents};
use super::stream_body::{self, StreamFormat};
use crate::live_sessions::{Error, EventBatch, EventCursor, LiveSession, SnapshotView};
use crate::turn_stream::TurnEvent;
use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use http::{HeaderMap, StatusCode, header};
use outlast_dialect::{Image, Message, Part, Role};
use outlast_gateway::problem::Problem;
use outlast_kernel::event::Event;
use outlast_session::{Accepted, Delivery};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

pub(super) fn add_routes(api: &mut Api) {
    let about = "A session's transcript as events, and the cursor from which to follow";
    let snapshot = Operation::get("/api/sessions/{id}/snapshot", "snapshot_session", about);
    api.add(
        snapshot.query::<DialectQuery>().response::<SnapshotView>(),
        get(snapshot_session),
    );
    let about = "The events of a session after a cursor: server-sent events or lines of JSON";
    let events = Operation::get("/api/sessions/{id}/events", "follow_session", about);
    api.add(
        events.query::<EventsQuery>().streams::<AnyEvent>(),
        get(follow_session),
    );
    let prompt = Operation::post(
        "/api/sessions/{id}/prompt",
        "prompt",
        "Sends a prompt to the model",
    );
    api.add(
        prompt
            .body::<Prompt>()
            .accepted::<Disposition>()
            .streams::<TurnEvent>(),
        post(post_prompt),
    );
    let about = "Sends a message with the next call of the running turn";
    let steer = Operation::post("/api/sessions/{id}/steer", "steer", about);
    api.add(
        steer.body::<Steering>().accepted::<Disposition>(),
        post(post_steering),
    );
    let orders = [
        ("abort", "Cancels the turn"),
        (
            "abort_retry",
            "Cancels the retry: the turn fails with the error that caused it",
        ),
        ("retry_now", "Retries at once, without waiting any longer"),
        (
            "resume",
            "Resumes an interrupted turn, or retries the last failed one",
        ),
    ];
    for (name, about) in orders {
        let path = format!("/api/sessions/{{id}}/{name}");
        let operation = Operation::post(&path, name, about).no_content();
        let order = move |state: ExtractState, id: PathId| post_turn_command(name, state, id);
        api.add(operation, post(order));
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct DialectQuery {
    /// The vocabulary of the events.
    #[serde(default)]
    dialect: Dialect,
}

async fn snapshot_session(
    State(shared): ExtractState,
    PathId(id): PathId,
    QueryParams(asked): QueryParams<DialectQuery>,
) -> JsonResult<SnapshotView> {
    let room = shared.sessions.find(&id).await?;
    let snapshot = room.snapshot(asked.dialect == Dialect::Native).await?;
    Ok(Json(snapshot))
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct EventsQuery {
    /// The vocabulary of the events.
    #[serde(default)]
    dialect: Dialect,
    /// The cursor after which events are sent.
    after: Option<String>,
    /// Whether each line also contains the cursor of its event.
    #[serde(default)]
    envelope: bool,
}

/// An event in one of two vocabularies.
#[derive(JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "it is there to be described")]
enum AnyEvent {
    /// An event of the turn stream.
    Turn(TurnEvent),
    /// A native event.
    Native(Event),
}

async fn follow_session(
    State(shared): ExtractState,
    PathId(id): PathId,
    QueryParams(asked): QueryParams<EventsQuery>,
    headers: HeaderMap,
) -> Result<Response, HttpError> {
    let room = shared.sessions.find(&id).await?;
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok());
    let form = match (accepts(&headers, "text/event-stream"), asked.envelope) {
        (true, _) => StreamFormat::Sse,
        (false, true) => StreamFormat::Envelopes,
        (false, false) => StreamFormat::Lines,
    };
    let after = last
        .or(asked.after.as_deref())
        .map(str::parse::<EventCursor>);
    let after = match (form, after) {
        // A browser that reconnects with an unreadable cursor is better served with a snapshot than with an error.
        (StreamFormat::Sse, after) => after.and_then(Result::ok),
        (_, Some(after)) => {
            let place = after.map_err(|error| Problem::unreadable(error.to_string()))?;
            if room.events_after(place) == EventBatch::Stale {
                return Err(Error::Stale.into());
            }
            Some(place)
        }
        (_, None) => Some(room.cursor()),
    };
    let stop = shared.sessions.stop_token().clone();
    let following = SessionEvents::new(room, asked.dialect, after, stop);
    match form {
        StreamFormat::Sse => Ok(stream_body::body_with_snapshots(following).await?),
        StreamFormat::Lines | StreamFormat::Envelopes => Ok(stream_body::body(following, form)),
    }
}

/// Returns whether the client's `Accept` header names that media type.
fn accepts(headers: &HeaderMap, kind: &str) -> bool {
    let accepted = headers.get_all(header::ACCEPT).iter();
    let mut accepted = accepted.filter_map(|accept| accept.to_str().ok());
    accepted.any(|accept| accept.to_ascii_lowercase().contains(kind))
}

/// A message for the model.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Prompt {
    /// The text of the message.
    pub(super) text: String,
    /// The pictures of the message.
    #[serde(default)]
    pub(super) images: Vec<Picture>,
    /// The delivery mode while a turn runs; if absent, the message is sent after that turn.
    pub(super) deliver: Option<DeliveryMode>,
}

/// A message that is sent with the next call to the model.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Steering {
    /// The text of the message.
    text: String,
    /// The pictures of the message.
    #[serde(default)]
    images: Vec<Picture>,
}

/// A picture.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Picture {
    /// The media type, such as `image/png`.
    media_type: String,
    /// The bytes of the picture, in base64.
    data: String,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum DeliveryMode {
    Steer,
    FollowUp,
}

/// The disposition of a message.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) struct Disposition {
    /// Whether the message started a turn or was queued.
    pub(super) disposition: DispositionKind,
}

/// The disposition of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum DispositionKind {
    /// The message started a turn.
    Started,
    /// The message is queued.
    Queued,
}

fn user_message(text: String, images: Vec<Picture>) -> Result<Message, HttpError> {
    if text.trim().is_empty() && images.is_empty() {
        return Err(Problem::wrong("text: there is nothing to say").into());
    }
    if images.iter().any(|image| !is_base64(&image.data)) {
        return Err(Problem::wrong("images: their data are in base 64").into());
    }
    let pictures = images.into_iter().map(|picture| {
        Part::Image(Image {
            media_type: picture.media_type,
            data: picture.data,
        })
    });
    Ok(Message {
        role: Role::User,
        parts: std::iter::once(Part::Text { text })
            .chain(pictures)
            .collect(),
    })
}

/// Returns whether a provider can decode it. It would refuse an invalid picture with every later call.
fn is_base64(data: &str) -> bool {
    let digits = data.trim_end_matches('=');
    let is_digit = |byte: u8| byte.is_ascii_alphanumeric() || b"+/".contains(&byte);
    let is_padded = data.len().is_multiple_of(4) && data.len() - digits.len() <= 2;
    !digits.is_empty() && digits.bytes().all(is_digit) && is_padded
}

impl Prompt {
    /// Sends the prompt.
    pub(super) async fn send(self, room: &Arc<LiveSession>) -> Result<Accepted, HttpError> {
        let delivery = match self.deliver {
            None => Delivery::NextTurn,
            Some(DeliveryMode::Steer) => Delivery::Steer,
            Some(DeliveryMode::FollowUp) => Delivery::FollowUp,
        };
        let message = user_message(self.text, self.images)?;
        Ok(room.prompt(message, delivery).await?)
    }
}

impl From<&Accepted> for Disposition {
    fn from(accepted: &Accepted) -> Self {
        let disposition = match accepted {
            Accepted::Started(_) => DispositionKind::Started,
            Accepted::Queued => DispositionKind::Queued,
        };
        Self { disposition }
    }
}

async fn post_prompt(
    State(shared): ExtractState,
    PathId(id): PathId,
    headers: HeaderMap,
    Body(prompt): Body<Prompt>,
) -> Result<Response, HttpError> {
    let room = shared.sessions.find(&id).await?;
    let accepted = prompt.send(&room).await?;
    let form = match accepts(&headers, "text/event-stream") {
        true => Some(StreamFormat::Sse),
        false => accepts(&headers, "application/x-ndjson").then_some(StreamFormat::Lines),
    };
    let disposition = Json(Disposition::from(&accepted));
    // A queued message has no turn yet that could be followed.
    let (Some(form), Accepted::Started(started)) = (form, accepted) else {
        return Ok((StatusCode::ACCEPTED, disposition).into_response());
    };
    let stop = shared.sessions.stop_token().clone();
    let place = room.cursor_at(started.after);
    let following = SessionEvents::new(room, Dialect::Turn, Some(place), stop);
    Ok(stream_body::body(
        following.only_turn(started.turn_id),
        form,
    ))
}

async fn post_steering(
    State(shared): ExtractState,
    PathId(id): PathId,
    Body(steering): Body<Steering>,
) -> Result<(StatusCode, Json<Disposition>), HttpError> {
    let room = shared.sessions.find(&id).await?;
    let said = user_message(steering.text, steering.images)?;
    let accepted = room.steer(said).await?;
    Ok((StatusCode::ACCEPTED, Json(Disposition::from(&accepted))))
}

async fn post_turn_command(
    order: &'static str,
    State(shared): ExtractState,
    PathId(id): PathId,
) -> Result<StatusCode, HttpError> {
    let room = shared.sessions.find(&id).await?;
    run_turn_command(&room, order).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Applies a command such as `abort` or `retry_now` to the turn of a live session.
pub(super) async fn run_turn_command(
    room: &Arc<LiveSession>,
    order: &str,
) -> Result<(), HttpError> {
    match order {
        "abort" => room.abort().await?,
        "abort_retry" => room.abort_retry().await?,
        "retry_now" => room.retry_now().await?,
        _ => room.resume().await?,
    }
    Ok(())
}
