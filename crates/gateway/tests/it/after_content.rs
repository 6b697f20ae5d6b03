//! Tests of failures after content: nothing is retried, and the client sees each received byte once, and then one
//! error.

use super::rig::{NO_TIMEOUTS, Plan, Rig, limited};
use super::upstream::{EVENTS, ReceivedRequest, ScriptedResponse, Then, Upstream};
use super::wire::{TestRequest, TestResponse};
use super::{RECORDED, frames};
use futures_util::future::join_all;
use outlast_dialect::Dialect;
use outlast_engine::provider::Timeouts;
use serde_json::Value;
use std::collections::HashSet;
use std::sync::Mutex;
use std::time::Duration;

const SCALE: u32 = 20;
/// Two and a half seconds on the wall clock: only a deliberate silence lasts so long.
const IDLE: Duration = Duration::from_secs(50);

/// Returns the text of the frame that marks the end of a response.
fn last_frame(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Anthropic => "message_stop",
        Dialect::OpenaiChat => "[DONE]",
        Dialect::OpenaiResponses => "response.completed",
    }
}

/// Returns the message of the error that follows these bytes; asserts that nothing else follows them.
fn error_behind(dialect: Dialect, sent: &str, answer: &TestResponse) -> String {
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(answer.is_whole, "{answer:?}");
    let text = answer.text();
    let Some(rest) = text.strip_prefix(sent) else {
        panic!("{dialect:?}: not what came:\n{sent}\nbut: {answer:?}");
    };
    assert!(!rest.contains(last_frame(dialect)), "{answer:?}");
    let data = |frame: &str| -> Value {
        let data = frame.split_once("data: ").unwrap().1;
        serde_json::from_str(data).unwrap()
    };
    let message = match (dialect, frames(rest).as_slice()) {
        (Dialect::Anthropic, [frame]) => {
            assert!(frame.starts_with("event: error\n"), "{frame}");
            assert_eq!(data(frame)["type"], "error", "{frame}");
            data(frame)["error"]["message"].clone()
        }
        (Dialect::OpenaiChat, [frame]) => data(frame)["error"]["message"].clone(),
        // One for clients that look for errors, one for clients that look for the end of the response.
        (Dialect::OpenaiResponses, [event, end]) => {
            assert!(event.starts_with("event: error\n"), "{event}");
            assert!(end.starts_with("event: response.failed\n"), "{end}");
            let message = data(event)["message"].clone();
            assert_eq!(data(end)["response"]["status"], "failed", "{end}");
            assert_eq!(data(end)["response"]["error"]["message"], message, "{end}");
            message
        }
        _ => panic!("{dialect:?}: not one error: {rest}"),
    };
    message.as_str().unwrap().to_owned()
}

/// Returns the whole frames among these bytes.
fn whole_frames(text: &str) -> &str {
    text.rfind("\n\n").map_or("", |end| &text[..end + 2])
}

async fn rig(script: &str) -> Rig {
    let mut plan = Plan::new(script, SCALE);
    plan.timeouts = Timeouts {
        first_event: IDLE,
        idle: IDLE,
        ..NO_TIMEOUTS
    };
    plan.start().await
}

/// Asserts that a response that breaks off ends with one error. `quick` sends the same as the script without delay;
/// MIDDLE is a place amid the words.
async fn breaks_off(dialect: Dialect, script: &str, quick: &str) {
    let ask = TestRequest::new(dialect, true);
    let whole = rig("ok").await.ask_provider(&ask, "ok").await.text();
    let middle = whole.find("cost.").unwrap().to_string();
    let [script, quick] = [script, quick].map(|script| script.replace("MIDDLE", &middle));
    let rig = rig(&script).await;
    let sent = rig.ask_provider(&ask, &quick).await.text();
    let answer = rig.ask(&ask).await;
    let message = error_behind(dialect, whole_frames(&sent), &answer);
    assert!(message.contains("broke off"), "{script}: {message}");
    assert_eq!(
        rig.provider_requests().await.len(),
        1,
        "{script} {dialect:?}"
    );
    assert_eq!(answer.header("x-outlast-attempts"), Some("1"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interrupted_stream_ends_with_one_error() {
    let scripts = [
        ("drop-after:2", "drop-after:2"),
        ("stall:2", "drop-after:2"),
        ("cut:MIDDLE", "cut:MIDDLE"),
        ("cut:MIDDLE,clean", "cut:MIDDLE,clean"),
    ];
    let asking = Dialect::ALL.into_iter().flat_map(|dialect| {
        scripts.map(|(script, quick)| Box::pin(breaks_off(dialect, script, quick)))
    });
    limited(join_all(asking)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stream_without_final_event_ends_with_one_error() {
    limited(async {
        // In the dialect of Chat Completions the last line is there all the same.
        for dialect in [Dialect::Anthropic, Dialect::OpenaiResponses] {
            breaks_off(dialect, "no-finish", "no-finish").await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stream_of_only_pings_ends_with_one_error() {
    limited(async {
        let dialect = Dialect::Anthropic;
        let rig = rig("pings:2,every=10").await;
        let ask = TestRequest::new(dialect, true);
        let sent = rig.ask_provider(&ask, "drop-after:2").await.text();
        let answer = rig.ask(&ask).await;
        let ping = dialect.keepalive_frame();
        let without_pings = answer.text().replace(&ping, "");
        assert_ne!(
            without_pings,
            answer.text(),
            "what the provider breathes is passed on"
        );
        let rest = without_pings.strip_prefix(&sent).unwrap();
        assert!(rest.starts_with("event: error\n"), "{rest}");
        assert_eq!(frames(rest).len(), 1, "{rest}");
        assert_eq!(rig.provider_requests().await.len(), 1);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_stream_provider_error_is_relayed_unchanged() {
    let scripts = [
        "in-band:overloaded,after=2",
        "in-band:server-error,after=2,as=event",
        "in-band:rate-limited,after=2,as=end",
        "malformed:2",
    ];
    limited(async {
        for (dialect, script) in Dialect::ALL
            .into_iter()
            .flat_map(|dialect| scripts.map(|script| (dialect, script)))
        {
            let rig = Plan::new(script, SCALE).start().await;
            let ask = TestRequest::new(dialect, true);
            let sent = rig.ask_provider(&ask, script).await;
            let answer = rig.ask(&ask).await;
            assert_eq!(answer.text(), sent.text(), "{script} {dialect:?}");
            assert!(answer.is_whole && answer.status == 200, "{answer:?}");
            assert_eq!(
                rig.provider_requests().await.len(),
                1,
                "{script} {dialect:?}"
            );
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn complete_response_ends_while_connection_lingers() {
    let kinds = Dialect::ALL
        .into_iter()
        .flat_map(|dialect| [(dialect, true), (dialect, false)]);
    let asking = kinds.map(|(dialect, streamed)| async move {
        let rig = rig("linger").await;
        let ask = TestRequest::new(dialect, streamed);
        let sent = rig.ask_provider(&ask, "ok").await;
        let answer = rig.ask(&ask).await;
        // A document is complete when its connection says so; without its length it is requested again.
        assert_eq!(answer.text(), sent.text(), "{dialect:?} {streamed}");
        assert!(answer.is_whole, "{answer:?}");
    });
    limited(join_all(asking)).await;
}

// --- recorded streams, cut anywhere ---

/// The ways in which the connection ends where the stream is cut.
const ENDS: [Then; 2] = [Then::Close, Then::Reset];

/// The offsets at which the first frame with content ends, the frame that marks the response as finished ends, and the
/// last frame ends.
struct CutPoints {
    content: usize,
    content_end: usize,
    end: usize,
}

fn cut_points(dialect: Dialect, stream: &str) -> CutPoints {
    let content = match dialect {
        Dialect::Anthropic => "content_block_delta",
        Dialect::OpenaiChat => "\"reasoning_content\":\"T",
        Dialect::OpenaiResponses => ".delta\"",
    };
    let said = match dialect {
        Dialect::OpenaiChat => "\"finish_reason\":\"",
        Dialect::Anthropic | Dialect::OpenaiResponses => last_frame(dialect),
    };
    let end_of = |text: &str| {
        let begin = stream.find(text).unwrap();
        begin + stream[begin..].find("\n\n").unwrap() + 2
    };
    CutPoints {
        content: end_of(content),
        content_end: end_of(said),
        end: end_of(last_frame(dialect)),
    }
}

/// Starts a provider whose first response for each model is cut at the place that the model names, and the second is
/// not.
async fn cutting(stream: &'static str) -> Upstream {
    let seen = Mutex::new(HashSet::new());
    Upstream::start(move |asked: &ReceivedRequest| {
        let body: Value = serde_json::from_slice(&asked.body).unwrap();
        let model = body["model"].as_str().unwrap().to_owned();
        let (place, end) = model.split_once('-').unwrap();
        let place: usize = place.parse().unwrap();
        let then = ENDS[end.parse::<usize>().unwrap()];
        let is_first = seen.lock().unwrap().insert(model.clone());
        let (cut, then) = match is_first {
            true => (&stream[..place], then),
            false => (stream, Then::Close),
        };
        ScriptedResponse::in_pieces(vec![EVENTS.into(), cut.into()], then)
    })
    .await
}

fn check_cut(dialect: Dialect, stream: &str, place: usize, answer: &TestResponse) -> usize {
    let places = cut_points(dialect, stream);
    let what = format!("{dialect:?} cut at {place} of {}: {answer:?}", stream.len());
    if place < places.content {
        assert_eq!(answer.text(), stream, "{what}");
        assert!(answer.is_whole, "{what}");
        return 2;
    }
    let sent = &stream[..place];
    if place < places.content_end {
        error_behind(dialect, whole_frames(sent), answer);
    } else if place < places.end {
        // The model has sent all its content; only a trailer is missing.
        assert!(sent.starts_with(&answer.text()), "{what}");
        assert!(answer.text().starts_with(whole_frames(sent)), "{what}");
        assert!(answer.is_whole, "{what}");
    } else {
        assert_eq!(answer.text(), sent, "{what}");
        assert!(answer.is_whole, "{what}");
    }
    1
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stream_cut_anywhere_has_no_duplicate_or_false_end() {
    limited(async {
        for (dialect, stream) in RECORDED {
            let upstream = cutting(stream).await;
            let rig = Plan::before(upstream.address, SCALE).start().await;
            let cuts = (0..stream.len()).step_by(53).chain([stream.len() - 1]);
            let cuts: Vec<(usize, usize)> = cuts.flat_map(|cut| [(cut, 0), (cut, 1)]).collect();
            let asks = cuts.iter().map(|(place, end)| {
                let ask = TestRequest::new(dialect, true);
                let ask = ask.model(&format!("{place}-{end}"));
                let rig = &rig;
                async move { rig.ask(&ask).await }
            });
            let answers = join_all(asks).await;
            let checked = cuts.iter().zip(&answers);
            let asked =
                checked.map(|((place, _), answer)| check_cut(dialect, stream, *place, answer));
            let asked: usize = asked.sum();
            assert_eq!(upstream.counts().requests, asked, "{dialect:?}");
        }
    })
    .await;
}
