//! Unusual completions as a client reads them, in every dialect, streamed and whole.

use bytes::Bytes;
use futures_util::StreamExt;
use outlast_dialect::{Delivery, Delta, Dialect, Message, Part, Request, Role, sse};
use outlast_engine::clock::TimerClock;
use outlast_engine::transport::{self, Method, Transport};
use outlast_kernel::event::StopReason;
use outlast_mock::ScriptedTransport;
use serde_json::Value;
use std::sync::Arc;

use crate::client::START;

/// The content of a completion, as far as it matters here.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct CollectedAnswer {
    pub(crate) text: String,
    pub(crate) reasoning: String,
    pub(crate) calls: Vec<(String, String)>,
    pub(crate) output: u64,
    pub(crate) stop: Option<StopReason>,
}

impl CollectedAnswer {
    fn collect(deltas: Vec<Delta>) -> Self {
        let mut answered = Self::default();
        for delta in deltas {
            match delta {
                Delta::Text(text) => answered.text.push_str(&text),
                Delta::Reasoning(text) => answered.reasoning.push_str(&text),
                Delta::ToolCall(call) => answered.calls.push((call.name, call.arguments)),
                Delta::Usage(usage) => answered.output = usage.output,
                Delta::Stopped(reason) => answered.stop = Some(reason),
                _ => {}
            }
        }
        answered
    }
}

/// Returns an in-process provider at the beginning of its script.
pub(crate) fn provider(script: &str) -> ScriptedTransport {
    ScriptedTransport::new(script.parse().unwrap(), Arc::new(TimerClock::new(START)))
}

/// Returns the status and the body of the response to a request.
pub(crate) async fn send(
    provider: &ScriptedTransport,
    dialect: Dialect,
    request: &Request,
) -> (u16, String) {
    let response = provider.send(transport::Request {
        method: Method::Post,
        path: dialect.path().to_owned(),
        headers: Vec::new(),
        body: dialect.encode_request(request).into(),
    });
    let response = response.await.unwrap();
    let pieces: Vec<Bytes> = response.body.map(Result::unwrap).collect().await;
    (response.status, String::from_utf8(pieces.concat()).unwrap())
}

/// Sends a request and decodes the response as a client does.
pub(crate) async fn ask(
    provider: &ScriptedTransport,
    dialect: Dialect,
    request: &Request,
) -> CollectedAnswer {
    let (status, body) = send(provider, dialect, request).await;
    assert_eq!(status, 200, "{dialect:?}: {body}");
    if request.delivery == Delivery::Whole {
        return CollectedAnswer::collect(dialect.decode_response("p", &body, START).unwrap());
    }
    let (mut decoder, mut reader) = (sse::Decoder::new(1 << 20), dialect.decoder("p"));
    let mut deltas = Vec::new();
    decoder.push(body.as_bytes());
    while let Some(event) = decoder.next_event().unwrap() {
        reader.decode(&event, START, &mut deltas).unwrap();
    }
    CollectedAnswer::collect(deltas)
}

/// Returns every combination of dialect and delivery.
fn ways() -> impl Iterator<Item = (Dialect, Delivery)> {
    let deliveries = [Delivery::Streamed, Delivery::Whole];
    Dialect::ALL
        .into_iter()
        .flat_map(move |dialect| deliveries.map(|delivery| (dialect, delivery)))
}

async fn ask_of_kind(kind: &str, dialect: Dialect, delivery: Delivery) -> CollectedAnswer {
    let request = Request {
        messages: vec![Message::user("Say hello")],
        delivery,
        ..Request::default()
    };
    ask(&provider(&format!("ok:{kind}")), dialect, &request).await
}

const GREETING: &str =
    "Hello from the scripted provider: no network, no key, no cost. You said: Say hello";
const THOUGHT: &str = "The user said something. A greeting is a fitting answer.";

#[tokio::test(start_paused = true)]
async fn unusual_completion_kinds_have_expected_content() {
    use StopReason::{EndTurn, Length};
    let call = r#"<tool_call>{"name": "read", "arguments": {"path": "README.md"}}</tool_call>"#;
    let table = [
        ("announced", "I will now run the tests:", "", EndTurn),
        ("text-call", call, "", EndTurn),
        ("reasoning-only", "", THOUGHT, EndTurn),
        ("length-reasoning", "", THOUGHT, Length),
        ("length-empty", "", "", Length),
        ("billed-empty", "", "", EndTurn),
        ("long-summary", "Say hello\nSay hello", "", EndTurn),
    ];
    for way in ways() {
        for (kind, text, reasoning, stop) in table {
            let answered = ask_of_kind(kind, way.0, way.1).await;
            let expected = CollectedAnswer {
                text: text.to_owned(),
                reasoning: reasoning.to_owned(),
                stop: Some(stop),
                output: answered.output,
                ..CollectedAnswer::default()
            };
            assert_eq!(answered, expected, "{way:?} {kind}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn billed_empty_completion_reports_output_tokens() {
    for way in ways() {
        assert_eq!(
            ask_of_kind("billed-empty", way.0, way.1).await.output,
            50,
            "{way:?}"
        );
        assert_eq!(
            ask_of_kind("empty", way.0, way.1).await.output,
            0,
            "{way:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn tool_stop_ends_with_tool_use_without_a_call() {
    for way in ways() {
        let answered = ask_of_kind("tool-stop", way.0, way.1).await;
        let stop = match way.0 {
            Dialect::OpenaiResponses => StopReason::EndTurn,
            _ => StopReason::ToolUse,
        };
        assert_eq!(answered.stop, Some(stop), "{way:?}");
        assert_eq!(answered.calls, [], "{way:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn reasoning_loop_repeats_one_paragraph_before_text() {
    for way in ways() {
        let answered = ask_of_kind("reasoning-loop", way.0, way.1).await;
        let paragraphs: Vec<&str> = answered.reasoning.trim_end().split("\n\n").collect();
        assert_eq!(paragraphs.len(), 400, "{way:?}");
        assert!(paragraphs.windows(2).all(|two| two[0] == two[1]), "{way:?}");
        assert_eq!(answered.text, GREETING, "{way:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn length_call_truncates_only_the_last_tool_call() {
    for way in ways() {
        let answered = ask_of_kind("length-call", way.0, way.1).await;
        assert_eq!(answered.text, "Let me look. ", "{way:?}");
        assert_eq!(answered.stop, Some(StopReason::Length), "{way:?}");
        // In a dialect without an end marker for each call, no call counts as complete.
        let whole = usize::from(way.0 != Dialect::OpenaiChat);
        assert_eq!(answered.calls.len(), whole, "{way:?}: {answered:?}");
    }
}

/// Returns the frames of a completion as JSON.
async fn frames(kind: &str, dialect: Dialect) -> Vec<Value> {
    let request = Request {
        messages: vec![Message::user("Say hello")],
        ..Request::default()
    };
    let provider = provider(&format!("ok:{kind}"));
    let (_, body) = send(&provider, dialect, &request).await;
    let frames = body.lines().filter_map(|line| line.strip_prefix("data: "));
    frames
        .filter_map(|data| serde_json::from_str(data).ok())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn nameless_call_has_empty_name_and_id() {
    for (dialect, call, id) in [
        (Dialect::Anthropic, "/content_block", "id"),
        (Dialect::OpenaiChat, "/choices/0/delta/tool_calls/0", "id"),
        (Dialect::OpenaiResponses, "/item", "call_id"),
    ] {
        let frames = frames("nameless", dialect).await;
        let begun = frames.iter().find_map(|frame| frame.pointer(call)).unwrap();
        let name = begun.pointer("/function/name").unwrap_or(&begun["name"]);
        assert_eq!((name, &begun[id]), (&"".into(), &"".into()), "{begun}");
    }
}

#[tokio::test(start_paused = true)]
async fn blank_arguments_stream_as_many_blank_pieces() {
    for (dialect, piece) in [
        (Dialect::Anthropic, "/delta/partial_json"),
        (
            Dialect::OpenaiChat,
            "/choices/0/delta/tool_calls/0/function/arguments",
        ),
        (Dialect::OpenaiResponses, "/delta"),
    ] {
        let frames = frames("blank-arguments", dialect).await;
        let pieces = frames.iter().filter_map(|frame| frame.pointer(piece));
        let pieces: Vec<&str> = pieces.filter_map(Value::as_str).collect();
        let blanks = pieces.iter().filter(|piece| piece.trim().is_empty());
        assert!(blanks.clone().count() > 100, "{dialect:?}");
        assert_eq!(blanks.map(|piece| piece.len()).sum::<usize>(), 100_000);
    }
}

fn text_message(role: Role, text: &str) -> Message {
    let text = text.to_owned();
    Message {
        role,
        parts: vec![Part::Text { text }],
    }
}

/// Returns a conversation in which a completion was begun.
fn with_partial_answer(said: &[Message]) -> Request {
    Request {
        messages: [&[Message::user("Say hello")], said].concat(),
        ..Request::default()
    }
}

#[tokio::test(start_paused = true)]
async fn partial_completion_is_continued_in_every_dialect() {
    let remark = Message::user("Your last answer was cut off. Go on right after its last word.");
    let hello = text_message(Role::Assistant, "Hello from the");
    let rest = GREETING.strip_prefix("Hello from the").unwrap();
    for dialect in Dialect::ALL {
        let ok = provider("ok");
        let prefilled = ask(
            &ok,
            dialect,
            &with_partial_answer(std::slice::from_ref(&hello)),
        )
        .await;
        assert_eq!(prefilled.text, rest, "{dialect:?}");
        let asked = ask(
            &ok,
            dialect,
            &with_partial_answer(&[hello.clone(), remark.clone()]),
        )
        .await;
        assert_eq!(asked.text, rest, "{dialect:?}");
        let other = ask(
            &ok,
            dialect,
            &with_partial_answer(&[text_message(Role::Assistant, "Well,")]),
        )
        .await;
        assert_eq!(other.text, GREETING, "{dialect:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn length_limited_completion_can_be_continued_to_the_end() {
    for way in ways() {
        let (dialect, delivery) = way;
        let model = provider("ok:length,times=3+ok");
        let mut request = with_partial_answer(&[]);
        request.delivery = delivery;
        let mut text = String::new();
        let mut stops = Vec::new();
        for _ in 0..4 {
            let answered = ask(&model, dialect, &request).await;
            assert!(!answered.text.is_empty(), "{way:?}: {text}");
            text.push_str(&answered.text);
            stops.extend(answered.stop);
            request.messages.truncate(1);
            request.messages.push(text_message(Role::Assistant, &text));
        }
        use StopReason::{EndTurn, Length};
        assert_eq!(stops, [Length, Length, Length, EndTurn], "{way:?}");
        assert_eq!(text, GREETING, "{way:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn no_prefill_model_refuses_prefill_but_takes_prompt() {
    let remark = Message::user("Your last answer was cut off.");
    let hello = text_message(Role::Assistant, "Hello ");
    for dialect in Dialect::ALL {
        let model = provider("no-prefill");
        let prefill = with_partial_answer(std::slice::from_ref(&hello));
        for _ in 0..2 {
            let (status, body) = send(&model, dialect, &prefill).await;
            assert_eq!(status, 400, "{dialect:?}: {body}");
            let part = "The conversation must end with a user message.";
            assert!(body.contains(part), "{dialect:?}: {body}");
        }
        let answered = ask(
            &model,
            dialect,
            &with_partial_answer(&[hello.clone(), remark.clone()]),
        )
        .await;
        assert!(answered.text.starts_with("from "), "{answered:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn window_refuses_conversation_beyond_its_tokens() {
    for dialect in Dialect::ALL {
        let model = provider("window:1000,of=agent");
        let short = with_partial_answer(&[]);
        let long = with_partial_answer(&[
            text_message(Role::Assistant, &"word ".repeat(1000)),
            Message::user("Go on"),
        ]);
        assert_eq!(send(&model, dialect, &short).await.0, 200, "{dialect:?}");
        let (status, body) = send(&model, dialect, &long).await;
        assert_eq!(status, 400, "{dialect:?}: {body}");
        // About four bytes are one token.
        let tokens = dialect.encode_request(&long).len() / 4;
        assert!(body.contains(&tokens.to_string()), "{tokens}: {body}");
        assert!(body.contains("1000 "), "{dialect:?}: {body}");
        assert_eq!(send(&model, dialect, &short).await.0, 200, "{dialect:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn oversized_request_is_refused_and_smaller_one_accepted() {
    for dialect in Dialect::ALL {
        let model = provider("too-large:1000");
        let long = with_partial_answer(&[Message::user("word ".repeat(200))]);
        assert_eq!(send(&model, dialect, &long).await.0, 413, "{dialect:?}");
        assert_eq!(
            send(&model, dialect, &with_partial_answer(&[])).await.0,
            200
        );
        let (status, body) = send(&provider("body-timeout"), dialect, &long).await;
        assert_eq!(status, 408, "{dialect:?}");
        assert!(body.contains("Timed out reading request body"), "{body}");
    }
}

#[tokio::test(start_paused = true)]
async fn in_process_model_name_selects_its_script() {
    let clock = Arc::new(TimerClock::new(START));
    let provider = ScriptedTransport::by_model("error:418".parse().unwrap(), clock);
    let mut statuses = Vec::new();
    for model in ["overloaded:1", "ok", "overloaded:1", "m", "error:999"] {
        let request = Request {
            model: model.to_owned(),
            ..with_partial_answer(&[])
        };
        statuses.push(send(&provider, Dialect::Anthropic, &request).await.0);
    }
    assert_eq!(statuses, [529, 200, 200, 418, 400]);
}
