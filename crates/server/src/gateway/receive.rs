//! The next request of a connection: its head and its body, within limits.
//!
//! A library made for it reads the request. When all of it has come, the connection is taken back from the library, and
//! the response is written here (see `reply`): a held request must be able to say `102`, to breathe at its own pace and
//! to end without an end, and may not keep the buffers of a connection that is being read.
//! Invariant: everything that is read is bounded in size and time.

use super::socket::Socket;
use super::spool::{Body, Spool};
use bytes::{Bytes, BytesMut};
use http::request::Parts;
use http_body_util::{BodyExt, Empty};
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::future::poll_fn;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;

/// A head that takes longer is that of nobody who means it.
const HEAD_TIME: Duration = Duration::from_secs(15);
/// How long a body may stand still.
const BODY_PAUSE: Duration = Duration::from_secs(30);
/// The most that a head may have, and the size of the buffer.
const LONGEST_HEAD: usize = 64 << 10;
const MOST_HEADERS: usize = 128;
/// More than this of a body goes to a file while it comes.
const IN_MEMORY: usize = 1 << 20;

/// A request that has come.
pub(super) struct Received {
    pub(super) parts: Parts,
    pub(super) body: Result<Body, Unreadable>,
}

/// Why a body was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unreadable {
    TooLarge,
    TooSlow,
    Broken,
}

/// Reads the next request; `None` when there is none, or nothing that could be answered: then the library has said so.
pub(super) async fn next(
    socket: Socket,
    most_bytes: usize,
    spool: &Spool,
) -> Option<(Received, Socket)> {
    let (sender, received) = oneshot::channel();
    let sender = Mutex::new(Some(sender));
    let service = service_fn(|request: Request<Incoming>| {
        let sender = sender.lock().unwrap_or_else(PoisonError::into_inner).take();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let body = read(body, most_bytes, spool).await;
            if let Some(sender) = sender {
                sender.send(Received { parts, body }).ok();
            }
            // The response is not the library's to write.
            std::future::pending::<Result<Response<Empty<Bytes>>, Infallible>>().await
        })
    });
    let mut connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .max_buf_size(LONGEST_HEAD)
        .max_headers(MOST_HEADERS)
        .serve_connection(TokioIo::new(socket), service);
    let received = tokio::select! {
        biased;
        received = received => received.ok()?,
        _ = poll_fn(|context| connection.poll_without_shutdown(context)) => return None,
    };
    let rest = connection.into_parts();
    let socket = rest.io.into_inner().with_ahead(rest.read_buf);
    Some((received, socket))
}

async fn read(mut body: Incoming, most: usize, spool: &Spool) -> Result<Body, Unreadable> {
    let announced = body.size_hint().upper();
    if announced.is_some_and(|length| usize::try_from(length).map_or(true, |length| length > most))
    {
        return Err(Unreadable::TooLarge);
    }
    let mut kept = BytesMut::new();
    let mut file = None;
    let mut length = 0;
    while let Some(piece) = next_piece(&mut body).await? {
        length += piece.len();
        if length > most {
            return Err(Unreadable::TooLarge);
        }
        if kept.is_empty() && file.is_none() && body.is_end_stream() {
            return Ok(Body::Memory(piece));
        }
        kept.extend_from_slice(&piece);
        if kept.len() > IN_MEMORY {
            file = spool.append(file, kept.split().freeze()).await;
        }
    }
    match file {
        None => Ok(Body::Memory(kept.freeze())),
        file => match spool.append(file, kept.freeze()).await {
            Some(file) => Ok(Body::File {
                file: file.into(),
                length,
            }),
            None => Err(Unreadable::Broken),
        },
    }
}

async fn next_piece(body: &mut Incoming) -> Result<Option<Bytes>, Unreadable> {
    let frame = tokio::time::timeout(BODY_PAUSE, body.frame()).await;
    let Some(frame) = frame.map_err(|_| Unreadable::TooSlow)? else {
        return Ok(None);
    };
    let frame = frame.map_err(|_| Unreadable::Broken)?;
    Ok(Some(frame.into_data().unwrap_or_default()))
}
