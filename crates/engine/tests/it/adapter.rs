//! The adapter over a scripted transport, on a paused clock.

use crate::scripted_transport::{
    Body, ScriptedTransport, collect_deltas, frames, pings, question, reset,
};
use crate::support::clock;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use outlast_dialect::{Delta, Dialect, StreamCursor};
use outlast_engine::credential::Credential;
use outlast_engine::provider::{Adapter, Timeouts};
use outlast_engine::transport::{self, Method, Response, Transport};
use outlast_engine::{BoxFuture, Provider};
use outlast_kernel::classify::classify;
use outlast_kernel::event::StopReason;
use outlast_kernel::failure::{Failure, IoKind, Phase};
use outlast_kernel::verdict::Cause;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;

const START: &str = r#"{"type":"message_start","message":{"usage":{"input_tokens":3}}}"#;
const HELLO: &str =
    r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hel"}}"#;
const STOP: &str = r#"{"type":"message_stop"}"#;
const CHAT: &str = r#"{"choices":[{"delta":{"content":"Hi"},"finish_reason":"stop"}]}"#;

/// A transport that never answers.
struct Silent;

impl Transport for Silent {
    fn send(
        &self,
        _: transport::Request,
    ) -> BoxFuture<'static, Result<Response, transport::Error>> {
        Box::pin(std::future::pending())
    }
}

fn anthropic(transport: impl Transport + 'static) -> Adapter {
    Adapter::new(Dialect::Anthropic, Arc::new(transport), clock())
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Returns the failure and the time that passed before it.
async fn failed(adapter: Adapter) -> (Failure, Duration) {
    let start = Instant::now();
    let items: Vec<_> = adapter.stream(&question(), None).collect().await;
    let failure = items.into_iter().last().unwrap().unwrap_err();
    (*failure, start.elapsed())
}

#[tokio::test(start_paused = true)]
async fn no_response_is_a_timeout_before_headers() {
    let (failure, took) = failed(anthropic(Silent)).await;
    let seen = (failure.io, failure.phase, took);
    // Ten seconds for the connection, five minutes for the headers.
    let expected = (Some(IoKind::Timeout), Phase::BeforeHeaders, seconds(310));
    assert_eq!(seen, expected);
}

#[tokio::test(start_paused = true)]
async fn first_event_and_idle_silence_have_own_limits() {
    let limits = Timeouts {
        connect: Duration::ZERO,
        headers: seconds(1),
        first_event: seconds(20),
        idle: seconds(7),
    };
    let table = [
        (vec![], Phase::BeforeContent, 20),
        // The announcement of a response is not its first event.
        (vec![START], Phase::BeforeContent, 20),
        (vec![START, HELLO], Phase::AfterContent, 7),
    ];
    for (events, phase, after) in table {
        let body = move || frames(&events).chain(stream::pending()).boxed();
        let (failure, took) =
            failed(anthropic(ScriptedTransport::events(body)).with_timeouts(limits)).await;
        let seen = (failure.io, failure.phase, took);
        assert_eq!(seen, (Some(IoKind::Idle), phase, seconds(after)));
        assert_eq!(classify(&failure).cause, Cause::Stalled);
    }
}

#[tokio::test(start_paused = true)]
async fn pings_keep_a_stream_alive_for_three_limits() {
    let limits = Timeouts {
        idle: seconds(60),
        ..Timeouts::default()
    };
    for ping in [
        "event: ping\ndata: {\"type\":\"ping\"}\n\n",
        ": comment\n\n",
        "\n",
    ] {
        let body = move || {
            frames(&[START, HELLO])
                .chain(pings(ping, seconds(20)))
                .boxed()
        };
        let (failure, took) =
            failed(anthropic(ScriptedTransport::events(body)).with_timeouts(limits)).await;
        assert_eq!(
            (failure.io, took),
            (Some(IoKind::Idle), seconds(180)),
            "{ping:?}"
        );
        assert_eq!(failure.message, "the stream stood still for 3m");
    }
}

#[tokio::test(start_paused = true)]
async fn zero_timeout_means_no_limit() {
    let off = Timeouts {
        connect: Duration::ZERO,
        headers: Duration::ZERO,
        first_event: Duration::ZERO,
        idle: Duration::ZERO,
    };
    let events = ScriptedTransport::events(|| frames(&[START]).chain(stream::pending()).boxed());
    for adapter in [anthropic(Silent), anthropic(events)] {
        let waiting = failed(adapter.with_timeouts(off));
        let week = tokio::time::timeout(seconds(7 * 86_400), waiting);
        assert!(week.await.is_err());
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_but_steady_stream_is_not_cut() {
    let body = || {
        let slow = stream::iter(vec![START, HELLO, STOP]).then(|event| async move {
            tokio::time::sleep(seconds(299)).await;
            Ok(Bytes::from(format!("data: {event}\n\n")))
        });
        slow.boxed()
    };
    let items: Vec<_> = anthropic(ScriptedTransport::events(body))
        .stream(&question(), None)
        .collect()
        .await;
    assert!(
        matches!(items.last(), Some(Ok(Delta::Stopped(_)))),
        "{items:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn stream_without_end_event_is_truncated() {
    let (failure, _) = failed(anthropic(ScriptedTransport::events(|| {
        frames(&[START, HELLO])
    })))
    .await;
    let seen = (failure.io, failure.phase);
    assert_eq!(seen, (Some(IoKind::Truncated), Phase::AfterContent));
    assert_eq!(classify(&failure).cause, Cause::TruncatedStream);
}

#[tokio::test(start_paused = true)]
async fn complete_response_does_not_wait_for_connection() {
    let ends: [fn() -> Body; 3] = [
        || stream::empty().boxed(),
        || stream::pending().boxed(),
        || stream::iter([Err(reset())]).boxed(),
    ];
    for end in ends {
        let body = move || frames(&[CHAT]).chain(end()).boxed();
        let adapter = Adapter::new(
            Dialect::OpenaiChat,
            Arc::new(ScriptedTransport::events(body)),
            clock(),
        );
        let start = Instant::now();
        let items: Vec<_> = adapter.stream(&question(), None).collect().await;
        let stopped = Delta::Stopped(StopReason::EndTurn);
        assert_eq!(items, [Ok(Delta::Text("Hi".to_owned())), Ok(stopped)]);
        assert!(start.elapsed() <= seconds(2));
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_or_endless_error_body_does_not_hide_the_status() {
    let bodies: [fn() -> Body; 2] = [
        || {
            stream::iter([Ok(Bytes::from("{\"error\""))])
                .chain(stream::pending())
                .boxed()
        },
        || stream::repeat_with(|| Ok(Bytes::from_static(&[b'x'; 4096]))).boxed(),
    ];
    for body in bodies {
        let says = ScriptedTransport::new(529, "application/json", body);
        let (failure, took) = failed(anthropic(says)).await;
        assert_eq!(failure.status, Some(529));
        assert!(took <= seconds(5), "{took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn non_stream_body_is_classified_by_content() {
    let error = r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
    let page = "<html><head><title>429 Too Many Requests</title></head></html>";
    let table = [
        ("application/json", error, Cause::Overloaded),
        ("text/html; charset=utf-8", page, Cause::RateLimited),
        ("text/event-stream", page, Cause::RateLimited),
        ("text/event-stream", error, Cause::Overloaded),
        (
            "text/plain",
            "upstream connect error or disconnect/reset before headers",
            Cause::Network,
        ),
        ("text/event-stream", "", Cause::TruncatedStream),
        ("application/json", "", Cause::TruncatedStream),
    ];
    for (kind, body, cause) in table {
        let says = ScriptedTransport::new(200, kind, move || {
            stream::iter([Ok(Bytes::from_static(body.as_bytes()))]).boxed()
        });
        let (failure, _) = failed(anthropic(says)).await;
        assert_eq!(classify(&failure).cause, cause, "{kind}: {body}");
        assert_eq!(failure.phase, Phase::BeforeContent);
    }
}

#[tokio::test(start_paused = true)]
async fn non_streamed_json_response_is_read() {
    let body = r#"{"content":[{"type":"text","text":"Hi"}],"stop_reason":"end_turn"}"#;
    let says = ScriptedTransport::new(200, "application/json", move || {
        stream::iter([Ok(Bytes::from_static(body.as_bytes()))]).boxed()
    });
    let items: Vec<_> = anthropic(says).stream(&question(), None).collect().await;
    let stopped = Delta::Stopped(StopReason::EndTurn);
    assert_eq!(items, [Ok(Delta::Text("Hi".to_owned())), Ok(stopped)]);
}

#[tokio::test(start_paused = true)]
async fn endless_response_fails_at_size_limit() {
    let line = Bytes::from(format!(": {}\n\n", "x".repeat(1 << 20)));
    let body = move || {
        let line = line.clone();
        frames(&[START])
            .chain(stream::repeat_with(move || Ok(line.clone())))
            .boxed()
    };
    let (failure, _) = failed(anthropic(ScriptedTransport::events(body))).await;
    assert_eq!(failure.message, "the answer is longer than 256 MiB");
}

#[tokio::test(start_paused = true)]
async fn echoed_key_is_scrubbed_from_failure() {
    let key = "planted-9f8e7d6c5b4a";
    let body = format!(r#"{{"error":{{"message":"bad key {key}","code":"{key}"}}}}"#);
    let says = ScriptedTransport::new(401, "application/json", move || {
        stream::iter([Ok(Bytes::from(body.clone()))]).boxed()
    });
    let adapter = anthropic(says).with_credential(Credential::new(key.to_owned()));
    let (failure, _) = failed(adapter).await;
    assert!(!format!("{failure:?}").contains(key), "{failure:?}");
    assert_eq!(failure.message, "bad key [secret]");
}

/// A transport that records its requests.
#[derive(Clone, Default)]
struct RecordingTransport(Arc<Mutex<Vec<transport::Request>>>);

impl Transport for RecordingTransport {
    fn send(
        &self,
        request: transport::Request,
    ) -> BoxFuture<'static, Result<Response, transport::Error>> {
        self.0.lock().unwrap().push(request);
        Box::pin(std::future::ready(Err(reset())))
    }
}

#[tokio::test(start_paused = true)]
async fn each_dialect_sends_one_request_with_path_and_key() {
    let table = [
        (Dialect::Anthropic, "/v1/messages", "x-api-key", "k-123456"),
        (
            Dialect::OpenaiChat,
            "/v1/chat/completions",
            "authorization",
            "Bearer k-123456",
        ),
        (
            Dialect::OpenaiResponses,
            "/v1/responses",
            "authorization",
            "Bearer k-123456",
        ),
    ];
    for (dialect, path, name, value) in table {
        let notes = RecordingTransport::default();
        let adapter = Adapter::new(dialect, Arc::new(notes.clone()), clock())
            .with_credential(Credential::new("k-123456".to_owned()));
        collect_deltas(&adapter).await;
        let sent = notes.0.lock().unwrap();
        assert_eq!((sent.len(), sent[0].path.as_str()), (1, path));
        let header = (name.to_owned(), value.to_owned());
        assert!(sent[0].headers.contains(&header));
        assert!(!format!("{sent:?}").contains("k-123456"));
    }
}

fn resume_token() -> StreamCursor {
    StreamCursor {
        response: "resp_1".to_owned(),
        after: 7,
    }
}

/// A piece of a text that began earlier.
const PIECE: &str =
    r#"{"type":"response.output_text.delta","output_index":0,"delta":"lo","sequence_number":8}"#;

fn responses(transport: impl Transport + 'static) -> Adapter {
    Adapter::new(Dialect::OpenaiResponses, Arc::new(transport), clock())
}

async fn resume_stream(adapter: Adapter) -> Vec<Result<Delta, Box<Failure>>> {
    adapter
        .resume(&resume_token(), None)
        .unwrap()
        .collect()
        .await
}

#[tokio::test(start_paused = true)]
async fn resume_sends_one_request_with_given_or_own_key() {
    let notes = RecordingTransport::default();
    let adapter = responses(notes.clone()).with_credential(Credential::new("k-123456".to_owned()));
    let other = Credential::new("k-654321".to_owned());
    for key in [None, Some(&other)] {
        let rest = adapter.resume(&resume_token(), key).unwrap();
        assert_eq!(rest.collect::<Vec<_>>().await.len(), 1);
    }
    let sent = notes.0.lock().unwrap();
    let keys = ["Bearer k-123456", "Bearer k-654321"];
    assert_eq!(sent.len(), keys.len());
    for (request, key) in sent.iter().zip(keys) {
        let path = "/v1/responses/resp_1?stream=true&starting_after=7";
        assert_eq!((request.method, request.path.as_str()), (Method::Get, path));
        let named = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert!(request.headers.contains(&named("authorization", key)));
        assert!(
            request
                .headers
                .contains(&named("accept", "text/event-stream"))
        );
        assert!(request.body.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn dialects_without_stored_responses_cannot_resume() {
    for dialect in [Dialect::Anthropic, Dialect::OpenaiChat] {
        let notes = RecordingTransport::default();
        let adapter = Adapter::new(dialect, Arc::new(notes.clone()), clock());
        assert!(
            adapter.resume(&resume_token(), None).is_none(),
            "{dialect:?}"
        );
        assert!(notes.0.lock().unwrap().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn resumed_stream_has_idle_and_truncation_checks() {
    let said = |delta: &str| Ok(Delta::Text(delta.to_owned()));
    let further = Delta::Cursor(StreamCursor {
        after: 8,
        ..resume_token()
    });
    let ends: [fn() -> Body; 2] = [|| stream::pending().boxed(), || stream::empty().boxed()];
    let expected = [(IoKind::Idle, 300), (IoKind::Truncated, 0)];
    for (end, (io, after)) in ends.into_iter().zip(expected) {
        let body = move || frames(&[PIECE]).chain(end()).boxed();
        let start = Instant::now();
        let mut items = resume_stream(responses(ScriptedTransport::events(body))).await;
        let failure = items.pop().unwrap().unwrap_err();
        let seen = (failure.io, failure.phase, start.elapsed());
        assert_eq!(seen, (Some(io), Phase::AfterContent, seconds(after)));
        assert_eq!(items, [said("lo"), Ok(further.clone())]);
    }
}

#[tokio::test(start_paused = true)]
async fn full_response_to_resume_is_a_protocol_error() {
    let whole = r#"{"object":"response","status":"completed","output":[{"type":"message","content":[{"type":"output_text","text":"Hello"}]}]}"#;
    let says = ScriptedTransport::new(200, "application/json", move || {
        stream::iter([Ok(Bytes::from_static(whole.as_bytes()))]).boxed()
    });
    let items = resume_stream(responses(says)).await;
    let [Err(failure)] = items.as_slice() else {
        panic!("{items:?}");
    };
    let seen = (failure.io, failure.retryable);
    assert_eq!(seen, (Some(IoKind::Protocol), Some(false)));
}

#[tokio::test(start_paused = true)]
async fn body_format_is_detected_from_bytes() {
    let stream = format!("\n\n: hello\n\ndata: {HELLO}\n\ndata: {STOP}\n\n");
    let whole = r#"{"content":[{"type":"text","text":"Hel"}],"stop_reason":"end_turn"}"#.to_owned();
    for body in [stream, whole] {
        for kind in [
            "text/event-stream",
            "application/json",
            "text/plain",
            "text/html",
            "application/octet-stream",
            "",
        ] {
            let bytes = Bytes::from(body.clone());
            let says = ScriptedTransport::new(200, kind, move || {
                stream::iter(
                    bytes
                        .chunks(5)
                        .map(|chunk| Ok(Bytes::copy_from_slice(chunk)))
                        .collect::<Vec<_>>(),
                )
                .boxed()
            });
            let items: Vec<_> = anthropic(says).stream(&question(), None).collect().await;
            assert_eq!(
                items.first(),
                Some(&Ok(Delta::Text("Hel".to_owned()))),
                "{kind}: {body}"
            );
            assert!(
                matches!(items.last(), Some(Ok(Delta::Stopped(_)))),
                "{kind}: {body}"
            );
        }
    }
}

#[tokio::test]
async fn flood_of_empty_frames_yields_to_cancellation() {
    const MAX_PIECES: usize = 1 << 12;
    let flood = Bytes::from("\n".repeat(1 << 16));
    let says = ScriptedTransport::events(move || {
        let (flood, mut pieces) = (flood.clone(), 0);
        let next_piece = move || {
            pieces += 1;
            assert!(pieces < MAX_PIECES, "the stream does not let go");
            Ok(flood.clone())
        };
        frames(&[START])
            .chain(stream::repeat_with(next_piece))
            .boxed()
    });
    let mut stream = anthropic(says).stream(&question(), None);
    let reading = async { while let Some(Ok(_)) = stream.next().await {} };
    // With one thread, the cancellation is only seen when the stream yields.
    let cancel = async {
        for _ in 0..5 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        biased;
        () = reading => panic!("the flood has no end"),
        () = cancel => {}
    }
}
