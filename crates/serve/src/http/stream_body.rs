//! A subscription as a response body: lines of JSON, or server-sent events.

use super::session_events::{SessionEvents, StreamItem};
use crate::live_sessions::{Error, SnapshotView};
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use http::header;
use serde::Serialize;
use serde_json::value::RawValue;

/// The format of a streamed body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamFormat {
    /// One event per line.
    Lines,
    /// One envelope per line: the event and its cursor.
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

    /// Encodes an item, or returns `None` if this format has nothing to write for it.
    fn write(self, next: StreamItem) -> Option<Bytes> {
        let text = match (self, next) {
            (Self::Sse, StreamItem::KeepAlive) => ": \n\n".to_owned(),
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
            (Self::Lines | Self::Envelopes, StreamItem::KeepAlive) | (_, StreamItem::Lagged) => {
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

/// Streams one turn or all events without snapshots: a reader that falls behind is cut off.
pub(super) fn body(following: SessionEvents, form: StreamFormat) -> Response {
    stream_response(following, None, false, form)
}

/// Streams all events, with a snapshot wherever the reader needs one. An error of the first snapshot becomes the error
/// of the request.
pub(super) async fn body_with_snapshots(mut following: SessionEvents) -> Result<Response, Error> {
    let first = match following.is_lagging() {
        true => Some(encode_snapshot(&following.snapshot().await?)),
        false => None,
    };
    Ok(stream_response(following, first, true, StreamFormat::Sse))
}

/// Builds the response; `first` is written before everything else.
fn stream_response(
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
                    StreamItem::Lagged if takes_snapshots => {
                        following.snapshot().await.map(|it| encode_snapshot(&it))
                    }
                    StreamItem::Lagged => Err(Error::Stale),
                    next => match form.write(next) {
                        Some(bytes) => Ok(bytes),
                        None => continue,
                    },
                };
                // A failed snapshot aborts the body, so that it does not look like a regular end.
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

fn encode_snapshot(snapshot: &SnapshotView) -> Bytes {
    let data = serde_json::to_string(snapshot).unwrap_or_default();
    let text = format!("id: {}\nevent: snapshot\ndata: {data}\n\n", snapshot.place);
    Bytes::from(text)
}
