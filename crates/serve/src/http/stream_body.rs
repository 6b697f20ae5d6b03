//! A following as the body of an answer: lines of JSON, or server-sent events.

use super::session_events::{SessionEvents, StreamItem};
use crate::live_sessions::{Error, SnapshotView};
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use http::header;
use serde::Serialize;
use serde_json::value::RawValue;

/// How a body says what happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamFormat {
    /// Each event is a line.
    Lines,
    /// Each line has an event and its place.
    Envelopes,
    /// Server-sent events.
    Sse,
}

impl StreamFormat {
    const fn content_type(self) -> &'static str {
        match self {
            Self::Lines | Self::Envelopes => "application/x-ndjson",
            Self::Sse => "text/event-stream",
        }
    }

    /// What is written; nothing when there is nothing to write.
    fn write(self, next: StreamItem) -> Option<Bytes> {
        let text = match (self, next) {
            (Self::Sse, StreamItem::Beat) => ": \n\n".to_owned(),
            (Self::Sse, StreamItem::Event(place, event)) => {
                format!("id: {place}\ndata: {event}\n\n")
            }
            (Self::Lines, StreamItem::Event(_, event)) => format!("{event}\n"),
            (Self::Envelopes, StreamItem::Event(place, event)) => {
                let envelope = Envelope {
                    place: place.to_string(),
                    seq: place.seq,
                    event: &event,
                };
                serde_json::to_string(&envelope).ok()? + "\n"
            }
            (Self::Lines | Self::Envelopes, StreamItem::Beat) | (_, StreamItem::Behind) => {
                return None;
            }
        };
        Some(Bytes::from(text))
    }
}

#[derive(Serialize)]
struct Envelope<'a> {
    place: String,
    seq: u64,
    event: &'a RawValue,
}

/// The answer that follows one turn, or everything, without snapshots: whoever falls behind is cut off.
pub(super) fn body(following: SessionEvents, form: StreamFormat) -> Response {
    answer(following, None, false, form)
}

/// The answer that follows everything, with snapshots wherever one is needed. What stands against the first of them is
/// told instead.
pub(super) async fn body_with_snapshots(mut following: SessionEvents) -> Result<Response, Error> {
    let first = match following.is_behind() {
        true => Some(written(&following.snapshot().await?)),
        false => None,
    };
    Ok(answer(following, first, true, StreamFormat::Sse))
}

/// `first` comes before everything else.
fn answer(
    following: SessionEvents,
    first: Option<Bytes>,
    takes_snapshots: bool,
    form: StreamFormat,
) -> Response {
    let frames = stream::unfold(
        (following, first),
        move |(mut following, first)| async move {
            if first.is_some() {
                return Some((Ok(first?), (following, None)));
            }
            loop {
                let frame = match following.next().await? {
                    StreamItem::Behind if takes_snapshots => {
                        following.snapshot().await.map(|it| written(&it))
                    }
                    StreamItem::Behind => Err(Error::Behind),
                    next => match form.write(next) {
                        Some(bytes) => Ok(bytes),
                        None => continue,
                    },
                };
                // One that fails is cut, and does not look like an end.
                return Some((frame, (following, None)));
            }
        },
    );
    let headers = [
        (header::CONTENT_TYPE, form.content_type()),
        (header::CACHE_CONTROL, "no-store"),
    ];
    (headers, Body::from_stream(Box::pin(frames))).into_response()
}

fn written(snapshot: &SnapshotView) -> Bytes {
    let data = serde_json::to_string(snapshot).unwrap_or_default();
    let text = format!("id: {}\nevent: snapshot\ndata: {data}\n\n", snapshot.place);
    Bytes::from(text)
}
