//! The Anthropic adapter over a transport that says what it is told, on a paused clock.

use crate::support::clock;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use outlast_dialect::anthropic::write;
use outlast_dialect::{Delta, Message, Request};
use outlast_engine::provider::Anthropic;
use outlast_engine::transport::{self, Response, Transport};
use outlast_engine::{BoxFuture, BoxStream, Provider};
use outlast_kernel::event::Usage;
use outlast_kernel::failure::{Failure, IoKind, Phase};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

type Body = BoxStream<'static, Result<Bytes, transport::Error>>;

/// Answers with this status and body.
struct Says(u16, fn() -> Body);

impl Transport for Says {
    fn send(
        &self,
        _: transport::Request,
    ) -> BoxFuture<'static, Result<Response, transport::Error>> {
        let (status, body) = (self.0, (self.1)());
        Box::pin(async move {
            Ok(Response {
                status,
                headers: vec![],
                body,
            })
        })
    }
}

/// Never answers.
struct Silent;

impl Transport for Silent {
    fn send(
        &self,
        _: transport::Request,
    ) -> BoxFuture<'static, Result<Response, transport::Error>> {
        Box::pin(std::future::pending())
    }
}

async fn ask(transport: impl Transport + 'static) -> (Vec<Result<Delta, Box<Failure>>>, Duration) {
    let provider = Anthropic::new("p", Arc::new(transport), clock());
    let request = Request {
        model: "m".to_owned(),
        messages: vec![Message::user("hi")],
        max_tokens: 1,
    };
    let start = Instant::now();
    let items = provider.stream(&request).collect().await;
    (items, start.elapsed())
}

fn failure(items: Vec<Result<Delta, Box<Failure>>>) -> Failure {
    *items.into_iter().last().unwrap().unwrap_err()
}

fn frames(frames: Vec<String>) -> Body {
    stream::iter(frames.into_iter().map(|frame| Ok(Bytes::from(frame)))).boxed()
}

fn opening() -> String {
    write::start("m", Usage::default())
}

#[tokio::test(start_paused = true)]
async fn no_response_is_a_timeout_before_headers() {
    let (items, took) = ask(Silent).await;
    let failure = failure(items);
    assert_eq!(
        (failure.io, failure.phase),
        (Some(IoKind::Timeout), Phase::BeforeHeaders)
    );
    assert_eq!(took, Duration::from_secs(300));
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_falls_silent_is_idle_after_two_minutes() {
    let texts: [fn() -> Body; 2] = [
        || frames(vec![opening()]).chain(stream::pending()).boxed(),
        || {
            frames(vec![opening(), write::text("Hel")])
                .chain(stream::pending())
                .boxed()
        },
    ];
    for (body, phase) in texts
        .into_iter()
        .zip([Phase::BeforeContent, Phase::AfterContent])
    {
        let (items, took) = ask(Says(200, body)).await;
        let failure = failure(items);
        assert_eq!((failure.io, failure.phase), (Some(IoKind::Idle), phase));
        assert_eq!(took, Duration::from_secs(120));
    }
}

#[tokio::test(start_paused = true)]
async fn headers_and_the_first_frame_share_one_limit() {
    let (items, took) = ask(Says(200, || stream::pending().boxed())).await;
    assert_eq!(
        (failure(items).io, took),
        (Some(IoKind::Idle), Duration::from_secs(300))
    );
}

#[tokio::test(start_paused = true)]
async fn a_stream_without_its_end_was_truncated() {
    let (items, _) = ask(Says(200, || frames(vec![opening(), write::text("Hel")]))).await;
    let failure = failure(items);
    assert_eq!(
        (failure.io, failure.phase),
        (Some(IoKind::Truncated), Phase::AfterContent)
    );
}

#[tokio::test(start_paused = true)]
async fn a_slow_or_endless_error_body_does_not_hide_the_status() {
    let bodies: [fn() -> Body; 2] = [
        || {
            frames(vec!["{\"error\"".to_owned()])
                .chain(stream::pending())
                .boxed()
        },
        || stream::repeat_with(|| Ok(Bytes::from_static(&[b'x'; 4096]))).boxed(),
    ];
    for body in bodies {
        let (items, took) = ask(Says(529, body)).await;
        assert_eq!(failure(items).status, Some(529));
        assert!(took <= Duration::from_secs(5), "{took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_without_a_message_keeps_its_code() {
    let body = || {
        frames(vec![
            "{\"error\":{\"type\":\"invalid_request_error\"}}".to_owned(),
        ])
    };
    let (items, _) = ask(Says(400, body)).await;
    assert_eq!(
        failure(items).code.as_deref(),
        Some("invalid_request_error")
    );
}
