//! A following as the body of an answer: lines of JSON, or server-sent events.

use super::following::{Following, Next};
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use http::header;
use serde::Serialize;
use serde_json::value::RawValue;

/// How a body says what happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Each event is a line.
    Lines,
    /// Each line has an event and its place.
    Envelopes,
    /// Server-sent events.
    Sse,
}

impl Form {
    const fn content_type(self) -> &'static str {
        match self {
            Self::Lines | Self::Envelopes => "application/x-ndjson",
            Self::Sse => "text/event-stream",
        }
    }

    /// What is written; nothing when there is nothing to write.
    fn write(self, next: Next) -> Option<Bytes> {
        let text = match (self, next) {
            (Self::Sse, Next::Beat) => ": \n\n".to_owned(),
            (Self::Sse, Next::Event(place, event)) => format!("id: {place}\ndata: {event}\n\n"),
            (Self::Sse, Next::Snapshot(snapshot)) => {
                let data = serde_json::to_string(&snapshot).ok()?;
                format!("id: {}\nevent: snapshot\ndata: {data}\n\n", snapshot.place)
            }
            (Self::Lines, Next::Event(_, event)) => format!("{event}\n"),
            (Self::Envelopes, Next::Event(place, event)) => {
                let envelope = Envelope {
                    place: place.to_string(),
                    seq: place.seq,
                    event: &event,
                };
                serde_json::to_string(&envelope).ok()? + "\n"
            }
            (Self::Lines | Self::Envelopes, Next::Beat | Next::Snapshot(_)) => return None,
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

/// The answer that follows.
pub(super) fn body(following: Following, form: Form) -> Response {
    let frames = stream::unfold(following, move |mut following| async move {
        loop {
            let next = match following.next().await? {
                Ok(next) => next,
                // It is cut, and does not look like an end; whoever comes back is told why.
                Err(error) => return Some((Err(error), following)),
            };
            if let Some(bytes) = form.write(next) {
                return Some((Ok(bytes), following));
            }
        }
    });
    let headers = [
        (header::CONTENT_TYPE, form.content_type()),
        (header::CACHE_CONTROL, "no-store"),
    ];
    (headers, Body::from_stream(Box::pin(frames))).into_response()
}
