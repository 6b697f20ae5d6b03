//! The next request of a connection: its head and its body, within limits of size and time (invariant).
//!
//! hyper reads the request. When all of it has arrived, the connection is taken back from hyper, and `response_writer`
//! writes the response: a held request must be able to send a `102`, to send keep-alives at its own pace and to end
//! without a clean end, and may not keep the buffers of a connection that is being read.

use crate::body_store::{Body, BodyWriter};
use crate::problem::Problem;
use crate::server::socket::Socket;
use crate::shared::Shared;
use bytes::Bytes;
use http::StatusCode;
use http::request::Parts;
use http_body_util::{BodyExt, Empty};
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use std::convert::Infallible;
use std::future::poll_fn;
use std::time::Duration;
use tokio::sync::oneshot;

/// Maximum size of a request head, and the size of the buffer, in bytes.
const MAX_HEAD_BYTES: usize = 64 << 10;
const MAX_HEADERS: usize = 128;

/// A request that has arrived.
pub(crate) struct ReceivedRequest {
    pub(crate) parts: Parts,
    pub(crate) body: Result<Body, Problem>,
}

/// Reads the next request; `None` if there is none, or none that could be answered: then hyper has sent an error.
pub(crate) async fn read_request(
    socket: Socket,
    shared: &Shared,
) -> Option<(ReceivedRequest, Socket)> {
    let (sender, received) = oneshot::channel();
    let sender = Mutex::new(Some(sender));
    let service = service_fn(|request: Request<Incoming>| {
        let sender = sender.lock().take();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let body = match shared.check_access(&parts) {
                Ok(()) => read_body(body, shared).await,
                Err(refused) => Err(refused.into()),
            };
            if let Some(sender) = sender {
                sender.send(ReceivedRequest { parts, body }).ok();
            }
            // hyper must not write the response.
            std::future::pending::<Result<Response<Empty<Bytes>>, Infallible>>().await
        })
    });
    let mut connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(shared.limits.head_timeout)
        .max_buf_size(MAX_HEAD_BYTES)
        .max_headers(MAX_HEADERS)
        .serve_connection(TokioIo::new(socket), service);
    let received = tokio::select! {
        biased;
        received = received => received.ok(),
        _ = poll_fn(|context| connection.poll_without_shutdown(context)) => None,
    };
    let rest = connection.into_parts();
    let socket = rest.io.into_inner().with_read_ahead(&rest.read_buf);
    let Some(received) = received else {
        socket.close().await;
        return None;
    };
    Some((received, socket))
}

/// Reads a body within all limits.
async fn read_body(body: Incoming, shared: &Shared) -> Result<Body, Problem> {
    let limits = &shared.limits;
    let announced = body.size_hint().upper();
    let is_too_long =
        |length| usize::try_from(length).map_or(true, |length| length > limits.max_body_bytes);
    if announced.is_some_and(is_too_long) {
        return Err(too_large());
    }
    let reading = tokio::time::timeout(limits.body_timeout, read_body_pieces(body, shared));
    reading.await.map_err(|_| too_slow())?
}

async fn read_body_pieces(mut body: Incoming, shared: &Shared) -> Result<Body, Problem> {
    let limits = &shared.limits;
    let mut coming = BodyWriter::new(&shared.body_store);
    while let Some(piece) = next_piece(&mut body, limits.body_idle_timeout).await? {
        if coming.len() + piece.len() > limits.max_body_bytes {
            return Err(too_large());
        }
        if coming.len() == 0 && body.is_end_stream() {
            return Ok(Body::Memory(piece));
        }
        let added = coming.add(&piece).await;
        added.map_err(|_| incomplete())?;
    }
    coming.finish().await.map_err(|_| incomplete())
}

async fn next_piece(body: &mut Incoming, pause: Duration) -> Result<Option<Bytes>, Problem> {
    let frame = tokio::time::timeout(pause, body.frame()).await;
    let Some(frame) = frame.map_err(|_| too_slow())? else {
        return Ok(None);
    };
    let frame = frame.map_err(|_| incomplete())?;
    Ok(Some(frame.into_data().unwrap_or_default()))
}

fn too_large() -> Problem {
    let message = "the request is longer than gateway.max_body allows";
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "request_too_large", message)
}

fn too_slow() -> Problem {
    let message = "the request took too long to come";
    Problem::new(StatusCode::REQUEST_TIMEOUT, "timeout_error", message)
}

fn incomplete() -> Problem {
    invalid("the request could not be read to its end")
}

/// Returns the problem of a request that is invalid wherever it goes.
pub(super) fn invalid(message: impl AsRef<str>) -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, "invalid_request_error", message)
}
