//! A transport with scripted responses.

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use outlast_dialect::{Delta, Message, Request};
use outlast_engine::provider::Adapter;
use outlast_engine::transport::{self, Response, Transport};
use outlast_engine::{BoxFuture, BoxStream, Provider};
use outlast_kernel::failure::{Failure, IoKind};
use std::time::Duration;

pub(crate) type Body = BoxStream<'static, Result<Bytes, transport::Error>>;

/// Answers each request with the status, the content type and the body that the closure makes.
pub(crate) struct ScriptedTransport {
    status: u16,
    kind: &'static str,
    body: Box<dyn Fn() -> Body + Send + Sync>,
}

impl ScriptedTransport {
    pub(crate) fn new(
        status: u16,
        kind: &'static str,
        body: impl Fn() -> Body + Send + Sync + 'static,
    ) -> Self {
        let body = Box::new(body);
        Self { status, kind, body }
    }

    pub(crate) fn events(body: impl Fn() -> Body + Send + Sync + 'static) -> Self {
        Self::new(200, "text/event-stream", body)
    }
}

impl Transport for ScriptedTransport {
    fn send(
        &self,
        _: transport::Request,
    ) -> BoxFuture<'static, Result<Response, transport::Error>> {
        let response = Response {
            status: self.status,
            headers: vec![("content-type".to_owned(), self.kind.to_owned())],
            body: (self.body)(),
        };
        Box::pin(std::future::ready(Ok(response)))
    }
}

/// Returns a body of these events.
pub(crate) fn frames(data: &[&str]) -> Body {
    let frames: Vec<_> = data
        .iter()
        .map(|data| Ok(Bytes::from(format!("data: {data}\n\n"))))
        .collect();
    stream::iter(frames).boxed()
}

/// Returns a body that repeats the same bytes forever, each after a pause.
pub(crate) fn pings(ping: &'static str, pause: Duration) -> Body {
    stream::repeat(ping)
        .then(move |ping| async move {
            tokio::time::sleep(pause).await;
            Ok(Bytes::from_static(ping.as_bytes()))
        })
        .boxed()
}

pub(crate) fn reset() -> transport::Error {
    transport::Error {
        io: IoKind::Reset,
        message: "connection reset by peer".to_owned(),
    }
}

pub(crate) fn question() -> Request {
    Request {
        model: "m".to_owned(),
        messages: vec![Message::user("hi")],
        ..Request::default()
    }
}

/// Returns the deltas of a request, and its failure if it failed.
pub(crate) async fn collect_deltas(adapter: &Adapter) -> (Vec<Delta>, Option<Failure>) {
    let mut deltas = Vec::new();
    let mut stream = adapter.stream(&question(), None);
    while let Some(item) = stream.next().await {
        match item {
            Ok(delta) => deltas.push(delta),
            Err(failure) => return (deltas, Some(*failure)),
        }
    }
    (deltas, None)
}
