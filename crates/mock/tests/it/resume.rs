//! Completions that are cut off and resumed on the server: each delta is received once, wherever the cut is.

use crate::answers::{provider, send};
use crate::client::{START, TestServer, request};
use futures_util::StreamExt;
use outlast_dialect::{Delta, Dialect, Message, Request, StreamCursor};
use outlast_engine::clock::{TimerClock, WallClock};
use outlast_engine::provider::Adapter;
use outlast_engine::transport::{Http, HttpSettings};
use outlast_engine::{BoxStream, Clock, Provider};
use outlast_kernel::classify::classify;
use outlast_kernel::failure::{Failure, IoKind};
use outlast_kernel::verdict::{Cause, Class};
use outlast_mock::ScriptedTransport;
use std::sync::Arc;

/// Returns a provider of its own that plays the script.
fn scripted(dialect: Dialect, script: &str) -> Adapter {
    let clock: Arc<dyn Clock> = Arc::new(TimerClock::new(START));
    let transport = ScriptedTransport::new(script.parse().unwrap(), Arc::clone(&clock));
    Adapter::new(dialect, Arc::new(transport), clock)
}

fn responses(script: &str) -> Adapter {
    scripted(Dialect::OpenaiResponses, script)
}

fn question(model: &str, resumable: bool) -> Request {
    Request {
        model: model.to_owned(),
        messages: vec![Message::user("Say hello")],
        resumable,
        ..Request::default()
    }
}

/// The result of one request.
struct StreamResult {
    deltas: Vec<Delta>,
    /// The cursor, if it was the last delta.
    cursor: Option<StreamCursor>,
    failure: Option<Failure>,
}

async fn collect_stream(
    mut stream: BoxStream<'static, Result<Delta, Box<Failure>>>,
) -> StreamResult {
    let mut heard = StreamResult {
        deltas: Vec::new(),
        cursor: None,
        failure: None,
    };
    while let Some(item) = stream.next().await {
        match item {
            Ok(Delta::Cursor(place)) => heard.cursor = Some(place),
            Ok(delta) => {
                heard.deltas.push(delta);
                heard.cursor = None;
            }
            Err(failure) => heard.failure = Some(*failure),
        }
    }
    heard
}

async fn ask(adapter: &Adapter, request: &Request) -> StreamResult {
    collect_stream(adapter.stream(request, None)).await
}

async fn resume(adapter: &Adapter, place: &StreamCursor) -> StreamResult {
    collect_stream(adapter.resume(place, None).unwrap()).await
}

/// Returns all deltas until the completion is complete, and the number of requests.
async fn outlast(adapter: &Adapter, request: &Request) -> (Vec<Delta>, usize) {
    let (mut said, mut place) = (Vec::new(), None::<StreamCursor>);
    for requests in 1..100 {
        let heard = match &place {
            Some(place) => resume(adapter, place).await,
            None => ask(adapter, request).await,
        };
        let is_silent = heard.deltas.is_empty();
        said.extend(heard.deltas);
        if heard.failure.is_none() {
            return (said, requests);
        }
        assert!(is_silent || heard.cursor.is_some(), "no place: {said:?}");
        place = heard.cursor.or(place);
    }
    panic!("no end: {said:?}");
}

async fn uncut(kind: &str) -> Vec<Delta> {
    let heard = ask(&responses(&format!("ok:{kind}")), &question("m", true)).await;
    assert_eq!((heard.failure, heard.cursor), (None, None));
    heard.deltas
}

/// Returns every end of a frame, the positions right before and after it, and some bytes in between.
fn cuts(frames: &[usize]) -> impl Iterator<Item = usize> {
    let ends: Vec<usize> = frames
        .iter()
        .scan(0, |end, length| {
            *end += length;
            Some(*end)
        })
        .collect();
    let length = ends.last().copied().unwrap();
    (0..length).filter(move |cut| {
        let near = |end: &usize| end.abs_diff(*cut) <= 1;
        cut % 11 == 0 || ends.iter().any(near)
    })
}

#[tokio::test(start_paused = true)]
async fn stream_cut_at_any_byte_resumes_exactly_once() {
    let whole = uncut("mixed").await;
    let request = question("m", true);
    let (_, body) = send(&provider("ok:mixed"), Dialect::OpenaiResponses, &request).await;
    let frames: Vec<usize> = body.split_inclusive("\n\n").map(str::len).collect();
    assert!(frames.len() > 30, "{frames:?}");
    for bytes in cuts(&frames) {
        let clean = if bytes % 2 == 0 { "" } else { ",clean" };
        let adapter = responses(&format!("cut:{bytes}{clean},of=mixed+ok:mixed"));
        let (said, requests) = outlast(&adapter, &request).await;
        assert_eq!((&said, requests), (&whole, 2), "cut at {bytes}");
    }
}

#[tokio::test(start_paused = true)]
async fn stream_resumes_exactly_once_after_any_connection_fault() {
    let mut faults = vec![("no-finish:".to_owned(), 2), ("linger:".to_owned(), 1)];
    for pieces in (0..25).step_by(3) {
        for name in ["drop-after", "stall", "pings", "malformed"] {
            faults.push((format!("{name}:{pieces},"), 2));
        }
    }
    for kind in ["reasoning", "tools", "refusal", "unknown-frames"] {
        let whole = uncut(kind).await;
        for (fault, expected) in &faults {
            let script = format!("{fault}of={kind}+ok:{kind}");
            let (said, requests) = outlast(&responses(&script), &question("m", true)).await;
            assert_eq!((&said, requests), (&whole, *expected), "{script}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn resumed_request_plays_the_next_fault() {
    let whole = uncut("mixed").await;
    for (script, expected) in [
        (
            "drop-after:3,of=mixed+drop-after:2+stall:1+cut:700+no-finish+overloaded:2",
            8,
        ),
        ("drop-after:2,of=mixed,times=12", 13),
    ] {
        let (said, requests) = outlast(&responses(script), &question("m", true)).await;
        assert_eq!((&said, requests), (&whole, expected), "{script}");
    }
}

#[tokio::test(start_paused = true)]
async fn resuming_lost_or_unstored_response_is_404() {
    let adapter = responses("drop-after:3,of=mixed+error:404");
    let place = ask(&adapter, &question("m", true)).await.cursor.unwrap();
    let never = StreamCursor {
        response: "resp_scripted".to_owned(),
        after: 5,
    };
    for place in [&place, &never] {
        let failure = resume(&adapter, place).await.failure.unwrap();
        let id = &place.response;
        assert_eq!(failure.status, Some(404));
        assert_eq!(
            failure.message,
            format!("Response with id '{id}' not found.")
        );
        let verdict = classify(&failure);
        assert_eq!(verdict.class(), Class::Deterministic, "{verdict:?}");
    }
    assert_eq!(resume(&adapter, &place).await.failure, None);

    let adapter = responses("drop-after:3,of=mixed");
    ask(&adapter, &question("m", false)).await;
    let failure = resume(&adapter, &place).await.failure.unwrap();
    assert_eq!(failure.status, Some(404));
}

#[tokio::test(start_paused = true)]
async fn failed_response_fails_again_on_resume() {
    let adapter = responses("in-band:server-error,after=3,of=mixed+ok");
    let heard = ask(&adapter, &question("m", true)).await;
    assert_eq!(classify(&heard.failure.unwrap()).cause, Cause::ServerError);
    let heard = resume(&adapter, &heard.cursor.unwrap()).await;
    assert_eq!(classify(&heard.failure.unwrap()).cause, Cause::ServerError);
    assert_eq!(heard.deltas, []);
}

#[tokio::test(start_paused = true)]
async fn only_resumable_openai_responses_have_a_cursor() {
    for dialect in Dialect::ALL {
        for resumable in [false, true] {
            let adapter = scripted(dialect, "drop-after:3,of=mixed");
            let heard = ask(&adapter, &question("m", resumable)).await;
            assert_eq!(heard.failure.unwrap().io, Some(IoKind::Reset));
            let is_kept = resumable && dialect == Dialect::OpenaiResponses;
            assert_eq!(heard.cursor.is_some(), is_kept, "{dialect:?} {resumable}");
        }
    }
}

#[tokio::test]
async fn stream_resumes_exactly_once_over_real_sockets() {
    // The usage includes the tokens of the model's name, which is that of the script.
    let without_usage = |mut deltas: Vec<Delta>| {
        deltas.retain(|delta| !matches!(delta, Delta::Usage(_)));
        deltas
    };
    let whole = without_usage(uncut("mixed").await);
    let server = TestServer::start().await;
    let settings = HttpSettings {
        base_url: format!("http://{}/v1", server.address),
        ..HttpSettings::default()
    };
    let transport = Arc::new(Http::new(&settings).unwrap());
    let clock = Arc::new(WallClock::default());
    let adapter = Adapter::new(Dialect::OpenaiResponses, transport, clock);
    for pieces in 0..20 {
        let model = format!("drop-after:{pieces},of=mixed+cut:{pieces}00+ok:mixed");
        let (said, requests) = outlast(&adapter, &question(&model, true)).await;
        assert_eq!(without_usage(said), whole, "{model}");
        assert!(requests == 3 || pieces > 10, "{model}: {requests}");
    }
    let path = "/v1/responses/resp_scripted?stream=true&starting_after=1";
    let unknown = server.send(&request("GET", path, &[], "")).await;
    let body: serde_json::Value = serde_json::from_str(&unknown.body()).unwrap();
    let message = "Response with id 'resp_scripted' not found.";
    assert_eq!(
        (unknown.status(), &body["error"]["message"]),
        (404, &message.into())
    );
}
