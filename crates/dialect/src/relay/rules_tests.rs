//! Tables: what is content, what ends an answer, what a glance tells, and how much is held.

use crate::relay::{HELD_BYTES, JUDGED_BYTES, Looks, Relay, TAIL_BYTES, looks_like};
use crate::test_support::{NOW, read_all, wire};
use crate::{Dialect, ErrorForm, Interruption, Problem, Sign};
use bytes::Bytes;
use outlast_kernel::classify::classify;
use outlast_kernel::failure::{Failure, IoKind, Phase};
use outlast_kernel::verdict::Cause;
use serde_json::Value;

fn push(relay: &mut Relay, text: &str) -> (Result<Sign, Box<Failure>>, Vec<Bytes>) {
    let mut out = Vec::new();
    let result = relay.push(Bytes::copy_from_slice(text.as_bytes()), NOW, &mut out);
    (result, out)
}

fn end(relay: &mut Relay) -> (Result<(), Box<Failure>>, Vec<Bytes>) {
    let mut out = Vec::new();
    let result = relay.end(NOW, &mut out);
    (result, out)
}

/// Whether a frame is the first content of an answer; a frame without a name, and one that its type names.
fn is_content(dialect: Dialect, data: &str) -> bool {
    let mut relay = dialect.relay("p");
    let (result, out) = push(&mut relay, &wire(&[data]));
    result.unwrap();
    assert_eq!(out.is_empty(), !relay.has_content(), "{data}");
    relay.has_content()
}

/// A relay that has seen content.
fn begun(dialect: Dialect) -> Relay {
    let mut relay = dialect.relay("p");
    let (result, out) = push(&mut relay, &wire(&[CONTENT[place(dialect)]]));
    result.unwrap();
    assert!(relay.has_content() && out.len() == 1);
    relay
}

fn place(dialect: Dialect) -> usize {
    Dialect::ALL.iter().position(|one| *one == dialect).unwrap()
}

const CONTENT: [&str; 3] = [
    r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hi"}}"#,
    r#"{"choices":[{"index":0,"delta":{"content":"Hi"},"finish_reason":null}]}"#,
    r#"{"type":"response.output_text.delta","delta":"Hi"}"#,
];
const LAST: [&str; 3] = [
    r#"{"type":"message_stop"}"#,
    "[DONE]",
    r#"{"type":"response.completed","response":{"status":"completed","output":[]}}"#,
];

// --- content ---

#[test]
fn what_opens_or_keeps_the_line_warm_is_held_back() {
    let table = [
        (
            Dialect::Anthropic,
            &[
                r#"{"type":"message_start","message":{"content":[],"usage":{"input_tokens":5}}}"#,
                r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
                r#"{"type":"content_block_start","content_block":{"type":"thinking","thinking":"","signature":""}}"#,
                r#"{"type":"content_block_start","content_block":{"type":"tool_use","id":"t","name":"x","input":{}}}"#,
                r#"{"type":"content_block_delta","delta":{"type":"text_delta","text":""}}"#,
                r#"{"type":"content_block_delta","delta":{"type":"input_json_delta","partial_json":""}}"#,
                r#"{"type":"content_block_stop","index":0}"#,
                r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#,
                r#"{"type":"ping"}"#,
                r#"{"type":"weather_report","delta":{"text":"cloudy"}}"#,
            ][..],
        ),
        (
            Dialect::OpenaiChat,
            &[
                r#"{"choices":[{"delta":{"role":"assistant"}}]}"#,
                r#"{"choices":[{"delta":{"role":"assistant","content":"","refusal":null,"tool_calls":[]}}]}"#,
                r#"{"choices":[{"delta":{"content":null}}]}"#,
                r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#,
                r#"{"choices":[],"usage":{"prompt_tokens":5}}"#,
                r#"{"choices":[],"weather_report":[{"cloud":"..."}]}"#,
            ],
        ),
        (
            Dialect::OpenaiResponses,
            &[
                r#"{"type":"response.created","response":{"status":"in_progress","instructions":"..."}}"#,
                r#"{"type":"response.queued","response":{"status":"queued"}}"#,
                r#"{"type":"response.in_progress","response":{"status":"in_progress"}}"#,
                r#"{"type":"response.output_item.added","item":{"type":"function_call","name":"x"}}"#,
                r#"{"type":"response.content_part.added","part":{"type":"output_text","text":""}}"#,
                r#"{"type":"response.reasoning_summary_part.added","part":{"type":"summary_text"}}"#,
                r#"{"type":"response.output_text.delta","delta":""}"#,
                r#"{"type":"response.output_text.done","text":""}"#,
                r#"{"type":"response.web_search_call.searching","item_id":"ws"}"#,
                r#"{"type":"keepalive"}"#,
                r#"{"type":"ping"}"#,
                "[DONE]",
            ],
        ),
    ];
    for (dialect, frames) in table {
        for data in frames {
            assert!(!is_content(dialect, data), "{data}");
        }
    }
}

#[test]
fn text_reasoning_calls_and_refusals_are_content() {
    let table = [
        (
            Dialect::Anthropic,
            &[
                r#"{"type":"content_block_delta","delta":{"type":"text_delta","text":"x"}}"#,
                r#"{"type":"content_block_delta","delta":{"type":"thinking_delta","thinking":"x"}}"#,
                r#"{"type":"content_block_delta","delta":{"type":"signature_delta","signature":"x"}}"#,
                r#"{"type":"content_block_delta","delta":{"type":"input_json_delta","partial_json":"{"}}"#,
                r#"{"type":"content_block_delta","delta":{"type":"citations_delta","citation":{"url":"x"}}}"#,
                r#"{"type":"content_block_start","content_block":{"type":"text","text":"x"}}"#,
                r#"{"type":"content_block_start","content_block":{"type":"thinking","thinking":"x"}}"#,
                r#"{"type":"content_block_start","content_block":{"type":"redacted_thinking"}}"#,
                r#"{"type":"content_block_start","content_block":{"type":"tool_use","name":"x","input":{"a":1}}}"#,
            ][..],
        ),
        (
            Dialect::OpenaiChat,
            &[
                r#"{"choices":[{"delta":{"content":"x"}}]}"#,
                r#"{"choices":[{"delta":{"role":"assistant","content":" "}}]}"#,
                r#"{"choices":[{"delta":{"content":[{"type":"text","text":"x"}]}}]}"#,
                r#"{"choices":[{"delta":{"reasoning":"x"}}]}"#,
                r#"{"choices":[{"delta":{"reasoning_content":"x"}}]}"#,
                r#"{"choices":[{"delta":{"refusal":"x"}}]}"#,
                r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"name":"x","arguments":""}}]}}]}"#,
                r#"{"choices":[{"delta":{"function_call":{"name":"x"}}}]}"#,
                r#"{"choices":[{"delta":{"audio":{"id":"x"}}}]}"#,
                r#"{"choices":[{"index":1,"delta":{"content":"x"}}]}"#,
                r#"{"choices":[{"message":{"content":"x"}}]}"#,
            ],
        ),
        (
            Dialect::OpenaiResponses,
            &[
                r#"{"type":"response.output_text.delta","delta":"x"}"#,
                r#"{"type":"response.refusal.delta","delta":"x"}"#,
                r#"{"type":"response.reasoning_summary_text.delta","delta":"x"}"#,
                r#"{"type":"response.reasoning_text.delta","delta":"x"}"#,
                r#"{"type":"response.function_call_arguments.delta","delta":"x"}"#,
                r#"{"type":"response.function_call_arguments.done","arguments":"{}"}"#,
                r#"{"type":"response.output_text.done","text":"x"}"#,
                r#"{"type":"response.refusal.done","refusal":"x"}"#,
                r#"{"type":"response.output_item.done","item":{"type":"reasoning","summary":[]}}"#,
            ],
        ),
    ];
    for (dialect, frames) in table {
        for data in frames {
            assert!(is_content(dialect, data), "{data}");
        }
    }
}

#[test]
fn an_event_is_known_by_its_name_where_its_data_has_none() {
    let mut relay = Dialect::Anthropic.relay("p");
    let named = "event: content_block_delta\ndata: {\"delta\":{\"type\":\"text_delta\",\"text\":\"x\"}}\n\n";
    push(&mut relay, named).0.unwrap();
    assert!(relay.has_content());
    let (sign, _) = push(&mut relay, "event: message_stop\ndata: {}\n\n");
    assert_eq!(sign.unwrap(), Sign::Progress);
    assert!(relay.is_complete());
}

// --- the end ---

#[test]
fn an_answer_without_content_is_sent_at_its_end() {
    let answers = [
        &[r#"{"type":"message_start","message":{}}"#, LAST[0]][..],
        &[
            r#"{"choices":[{"delta":{"role":"assistant"}}]}"#,
            r#"{"choices":[{"delta":{},"finish_reason":"content_filter"}]}"#,
            LAST[1],
        ],
        &[
            r#"{"type":"response.created","response":{}}"#,
            r#"{"type":"response.incomplete","response":{"status":"incomplete","incomplete_details":{"reason":"content_filter"}}}"#,
        ],
    ];
    for (dialect, answer) in Dialect::ALL.into_iter().zip(answers) {
        let mut relay = dialect.relay("p");
        let (last, before) = answer.split_last().unwrap();
        for data in before {
            let (result, out) = push(&mut relay, &wire(&[data]));
            result.unwrap();
            assert!(out.is_empty() && !relay.is_complete());
        }
        let (sign, out) = push(&mut relay, &wire(&[last]));
        assert_eq!(sign.unwrap(), Sign::Progress);
        assert!(relay.is_complete() && !relay.has_content());
        assert_eq!(out.concat(), wire(answer).as_bytes());
        end(&mut relay).0.unwrap();
    }
}

#[test]
fn the_last_event_completes_an_answer_and_all_that_follows_is_sent_at_once() {
    for dialect in Dialect::ALL {
        let mut relay = begun(dialect);
        let last = wire(&[LAST[place(dialect)]]);
        let (_, out) = push(&mut relay, &last);
        assert_eq!(out.concat(), last.as_bytes());
        assert!(relay.is_complete() && relay.is_between_frames());
        let (_, out) = push(&mut relay, ": bye");
        assert_eq!(out.concat(), b": bye");
        assert!(!relay.is_between_frames());
        assert_eq!(push(&mut relay, "\n\n").1.concat(), b"\n\n");
        assert!(relay.is_between_frames() && end(&mut relay).0.is_ok());
    }
}

#[test]
fn a_chat_may_end_without_its_last_frame() {
    let finish = wire(&[r#"{"choices":[{"delta":{},"finish_reason": "stop"}]}"#]);
    let mut relay = begun(Dialect::OpenaiChat);
    assert!(!relay.is_answered());
    push(&mut relay, &finish).0.unwrap();
    assert!(relay.is_answered() && !relay.is_complete());
    let usage = wire(&[r#"{"choices":[],"usage":{"prompt_tokens":5}}"#]);
    assert_eq!(push(&mut relay, &usage).0.unwrap(), Sign::Progress);
    push(&mut relay, "data: [DO").0.unwrap();
    let (result, out) = end(&mut relay);
    assert!(result.is_ok() && relay.is_complete());
    assert_eq!(out.concat(), b"data: [DO");

    let mut relay = Dialect::OpenaiChat.relay("p");
    push(&mut relay, &(finish.clone() + ": b")).0.unwrap();
    let (result, out) = end(&mut relay);
    assert!(result.is_ok() && relay.is_complete() && !relay.has_content());
    assert_eq!(out.concat(), (finish + ": b").as_bytes());
}

#[test]
fn data_in_several_lines_is_read_as_one() {
    let mut relay = begun(Dialect::OpenaiChat);
    let lines = [
        "{\"choices\":[{\"delta\":{\"content\":\"x\"}",
        ",\"finish_reason\":\"stop\"}]}",
    ];
    let frame = format!("data: {}\r\ndata: {}\r\n\r\n", lines[0], lines[1]);
    assert_eq!(push(&mut relay, &frame).0.unwrap(), Sign::Progress);
    assert!(relay.is_answered());
}

#[test]
fn an_error_behind_the_end_of_an_answer_undoes_nothing() {
    let mut relay = begun(Dialect::OpenaiChat);
    let finish = r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#;
    push(
        &mut relay,
        &wire(&[finish, r#"{"error":{"message":"usage is not known"}}"#]),
    )
    .0
    .unwrap();
    assert!(relay.ended_with().is_none() && relay.is_answered());
    assert!(end(&mut relay).0.is_ok());
}

#[test]
fn content_after_a_finish_reason_takes_it_back() {
    let both = wire(&[r#"{"choices":[{"delta":{"content":"x"},"finish_reason":"stop"}]}"#]);
    let content = wire(&[CONTENT[1]]);
    for begin in [&both, &content] {
        let mut relay = Dialect::OpenaiChat.relay("p");
        push(&mut relay, begin).0.unwrap();
        push(&mut relay, &both).0.unwrap();
        push(&mut relay, &content).0.unwrap();
        assert!(!relay.is_answered());
        push(&mut relay, &both).0.unwrap();
        // The server's word that it is done means nothing any more, until it hangs up.
        assert!(!relay.is_answered());
        assert!(end(&mut relay).0.is_ok());
    }
    let mut relay = Dialect::OpenaiChat.relay("p");
    push(&mut relay, &both).0.unwrap();
    push(
        &mut relay,
        &format!("data: {}", "x".repeat(2 * JUDGED_BYTES)),
    )
    .0
    .unwrap();
    assert!(relay.is_answered());
    push(&mut relay, "\n\n").0.unwrap();
    assert!(!relay.is_answered() && end(&mut relay).0.is_err());
    let mut relay = Dialect::OpenaiChat.relay("p");
    push(&mut relay, &(both + &content)).0.unwrap();
    assert_eq!(end(&mut relay).0.unwrap_err().phase, Phase::AfterContent);
}

#[test]
fn the_end_of_one_choice_is_not_that_of_another() {
    let choice = |index: u8, rest: &str| format!(r#"{{"choices":[{{"index":{index},{rest}}}]}}"#);
    let (said, done) = (
        r#""delta":{"content":"x"}"#,
        r#""delta":{},"finish_reason":"stop""#,
    );
    let mut relay = begun(Dialect::OpenaiChat);
    push(&mut relay, &wire(&[&choice(0, done), &choice(1, said)]))
        .0
        .unwrap();
    assert!(end(&mut relay).0.is_err());
    push(&mut relay, &wire(&[&choice(1, done)])).0.unwrap();
    assert!(end(&mut relay).0.is_ok());
}

#[test]
fn a_stream_that_ends_too_early_is_cut_off() {
    for dialect in Dialect::ALL {
        let mut relay = begun(dialect);
        push(&mut relay, "data: {\"ty").0.unwrap();
        let (result, out) = end(&mut relay);
        let failure = result.unwrap_err();
        assert_eq!(failure.io, Some(IoKind::Truncated));
        assert_eq!(failure.phase, Phase::AfterContent);
        assert!(out.is_empty());

        let mut relay = dialect.relay("p");
        push(&mut relay, &dialect.ping()).0.unwrap();
        let failure = end(&mut relay).0.unwrap_err();
        assert_eq!(failure.io, Some(IoKind::Truncated));
        assert_eq!(failure.phase, Phase::BeforeContent);

        // What is strange behind an opening is not what came in place of a stream.
        let mut relay = dialect.relay("p");
        let opening = dialect.frames("m", &[]).concat();
        push(&mut relay, &(opening + "<html>502</html>")).0.unwrap();
        let failure = end(&mut relay).0.unwrap_err();
        assert_eq!(failure.io, Some(IoKind::Truncated));
    }
}

#[test]
fn what_comes_in_place_of_a_stream_says_why() {
    let table = [
        ("<html><h1>502 Bad Gateway</h1></html>", Cause::ServerError),
        (
            r#"{"error":{"type":"overloaded_error","message":"Overloaded"}}"#,
            Cause::Overloaded,
        ),
        (
            "upstream connect error or disconnect/reset before headers",
            Cause::Network,
        ),
    ];
    for dialect in Dialect::ALL {
        for (page, cause) in table {
            let mut relay = dialect.relay("p");
            push(&mut relay, page).0.unwrap();
            let failure = end(&mut relay).0.unwrap_err();
            assert_eq!(classify(&failure).cause, cause, "{page}");
        }
    }
}

// --- errors ---

fn problems() -> Vec<Problem> {
    let table = [
        ("overloaded_error", "Overloaded"),
        ("rate_limit_error", "Please try again in 20s."),
        ("server_error", "The server had an error"),
        ("insufficient_quota", "You exceeded your current quota"),
        ("authentication_error", "invalid x-api-key"),
        (
            "invalid_request_error",
            "prompt is too long: 210000 tokens > 200000 maximum",
        ),
        ("api_error", "Internal server error"),
    ];
    let problem = |(kind, message): &(&str, &str)| Problem::new(kind, message).with_code(kind);
    table.iter().map(problem).collect()
}

#[test]
fn an_error_before_content_is_the_failure_that_it_is_elsewhere() {
    let openings = [
        r#"{"type":"message_start","message":{}}"#,
        r#"{"choices":[{"delta":{"role":"assistant","content":""}}]}"#,
        r#"{"type":"response.created","response":{}}"#,
    ];
    for (dialect, opening) in Dialect::ALL.into_iter().zip(openings) {
        for (form, problem) in forms().zip(problems().into_iter().cycle()).take(21) {
            let here = Interruption {
                form,
                ..Interruption::default()
            };
            let error = dialect.error_frame(&problem, &here);
            for before in [String::new(), wire(&[opening]), dialect.ping()] {
                let stream = before + &error;
                let mut relay = dialect.relay("p");
                let (result, out) = push(&mut relay, &stream);
                let failure = result.unwrap_err();
                assert_eq!(Some(*failure), read_all(dialect, &stream).1, "{stream}");
                assert!(out.is_empty() && !relay.has_content());
            }
        }
    }
}

fn forms() -> impl Iterator<Item = ErrorForm> {
    [ErrorForm::Usual, ErrorForm::Event, ErrorForm::End]
        .into_iter()
        .cycle()
}

#[test]
fn odd_errors_before_content_are_seen_as_the_reader_sees_them() {
    let table = [
        (
            Dialect::Anthropic,
            "event: error\ndata: upstream timed out\n\n",
        ),
        (
            Dialect::Anthropic,
            "data: {\"error\":{\"message\":\"busy\"}}\n\n",
        ),
        (
            Dialect::Anthropic,
            "data: {\"type\":\"content_block_delta\",\"del\n\n",
        ),
        (
            Dialect::OpenaiChat,
            "data: {\"code\":529,\"message\":\"busy\"}\n\n",
        ),
        (
            Dialect::OpenaiChat,
            "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"error\"}]}\n\n",
        ),
        (Dialect::OpenaiChat, "data: {\"detail\":\"no room\"}\n\n"),
        (Dialect::OpenaiChat, "data: [DONE]\n\n"),
        (Dialect::OpenaiChat, "data: busy\n\n"),
        (
            Dialect::OpenaiResponses,
            "data: {\"type\":\"response.completed\",\"response\":{\"status\":\"failed\",\"error\":{\"code\":\"server_error\"}}}\n\n",
        ),
        (
            Dialect::OpenaiResponses,
            "data: {\"type\":\"response.cancelled\",\"response\":{}}\n\n",
        ),
        (
            Dialect::OpenaiResponses,
            "data: {\"type\":\"error\",\"code\":\"rate_limit_exceeded\",\"message\":\"slow down\"}\n\n",
        ),
    ];
    for (dialect, stream) in table {
        let mut relay = dialect.relay("p");
        let failure = push(&mut relay, stream).0.unwrap_err();
        assert_eq!(Some(*failure), read_all(dialect, stream).1, "{stream}");
    }
}

#[test]
fn an_error_after_content_is_passed_on_and_noted() {
    for dialect in Dialect::ALL {
        for (form, problem) in forms().zip(problems().into_iter().cycle()).take(21) {
            let here = Interruption {
                form,
                ..Interruption::default()
            };
            let error = dialect.error_frame(&problem, &here);
            let mut relay = begun(dialect);
            let (result, out) = push(&mut relay, &error);
            result.unwrap();
            assert_eq!(out.concat(), error.as_bytes());
            let mut told = read_all(dialect, &error).1.unwrap();
            told.phase = Phase::AfterContent;
            assert_eq!(relay.ended_with(), Some(&told), "{error}");
            let (_, out) = push(&mut relay, "data: cut");
            assert_eq!(out.is_empty(), !relay.is_complete(), "{error}");
            let (result, out) = end(&mut relay);
            assert!(result.is_ok() && out.is_empty());
        }
    }
}

#[test]
fn an_error_among_content_is_found() {
    let table = [
        (
            Dialect::Anthropic,
            "event: content_block_delta\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\"}}\n\n",
        ),
        (
            Dialect::OpenaiChat,
            "data: {\"error\": {\"message\":\"busy\"},\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\n",
        ),
        (
            Dialect::OpenaiChat,
            "data: {\"error\":null,\"choices\":[{\"delta\":{\"content\":\"x\"},\"error\":{\"message\":\"busy\"}}]}\n\n",
        ),
        (
            Dialect::OpenaiChat,
            "data: {\"choices\":[{\"delta\":{\"content\":\"x\"},\"finish_reason\":\"error\"}]}\n\n",
        ),
        (
            Dialect::OpenaiResponses,
            "event: response.output_text.delta\ndata: {\"type\":\"error\",\"message\":\"busy\"}\n\n",
        ),
    ];
    for (dialect, frame) in table {
        let mut relay = begun(dialect);
        push(&mut relay, frame).0.unwrap();
        assert!(relay.ended_with().is_some(), "{frame}");
    }
}

#[test]
fn words_of_the_model_are_no_errors_and_no_ends() {
    let words = r#"\"error\": {\"x\"} \"finish_reason\":\"stop\" \"type\":\"message_stop\" response.completed"#;
    let frames = [
        [
            format!(
                r#"{{"type":"content_block_delta","delta":{{"type":"text_delta","text":"{words}"}}}}"#
            ),
            r#"{"type":"content_block_delta","delta":{"type":"text_delta","text":"error"}}"#
                .to_owned(),
        ],
        [
            format!(r#"{{"choices":[{{"delta":{{"content":"{words}"}},"finish_reason":null}}]}}"#),
            r#"{"choices":[{"delta":{"content":"error","role":"finish_reason"}}],"error":null}"#
                .to_owned(),
        ],
        [
            format!(r#"{{"type":"response.output_text.delta","delta":"{words}"}}"#),
            r#"{"delta":"error","type":"response.output_text.delta"}"#.to_owned(),
        ],
    ];
    for (dialect, frames) in Dialect::ALL.into_iter().zip(frames) {
        for data in frames {
            let mut relay = begun(dialect);
            let (sign, _) = push(&mut relay, &wire(&[&data]));
            assert_eq!(sign.unwrap(), Sign::Progress, "{data}");
            assert!(
                relay.ended_with().is_none() && !relay.is_answered(),
                "{data}"
            );
        }
    }
}

#[test]
fn a_frame_that_cannot_be_read_after_content_is_left_to_the_client() {
    for dialect in Dialect::ALL {
        let mut relay = begun(dialect);
        let (sign, out) = push(&mut relay, "data: {\"type\":\"mess\n\n");
        assert_eq!(sign.unwrap(), Sign::Alive);
        assert_eq!(out.len(), 1);
        assert!(relay.ended_with().is_none() && end(&mut relay).0.is_err());
    }
    // And so is a call that nobody here would read on.
    let mut relay = begun(Dialect::OpenaiChat);
    let blanks = " ".repeat(5000);
    let call = format!(
        r#"{{"choices":[{{"delta":{{"content":null,"tool_calls":[{{"function":{{"arguments":"{blanks}"}}}}]}},"finish_reason":""}}]}}"#
    );
    assert!(read_all(Dialect::OpenaiChat, &wire(&[&call])).1.is_some());
    push(&mut relay, &wire(&[&call])).0.unwrap();
    assert_eq!(relay.ended_with(), None);
}

// --- signs ---

#[test]
fn signs_are_those_of_the_reader() {
    for dialect in Dialect::ALL {
        let mut relay = dialect.relay("p");
        let opening = dialect.frames("m", &[]).concat();
        assert_eq!(push(&mut relay, &opening).0.unwrap(), Sign::Opening);
        let content = wire(&[CONTENT[place(dialect)]]);
        let still = [
            dialect.ping(),
            dialect.unknown_frame("m"),
            ": x\n\n".to_owned(),
            "\n".to_owned(),
        ];
        for _ in 0..2 {
            for frame in &still {
                assert_eq!(push(&mut relay, frame).0.unwrap(), Sign::Alive, "{frame}");
            }
            assert_eq!(push(&mut relay, &content).0.unwrap(), Sign::Progress);
            assert_eq!(push(&mut relay, &content[..9]).0.unwrap(), Sign::Alive);
            assert_eq!(push(&mut relay, &content[9..]).0.unwrap(), Sign::Progress);
        }
    }
    let mut relay = begun(Dialect::OpenaiChat);
    let empty = wire(&[r#"{"choices":[{"delta":{"role":"assistant","content":""}}]}"#]);
    assert_eq!(push(&mut relay, &empty).0.unwrap(), Sign::Alive);
}

// --- how much is held ---

#[test]
fn whole_frames_are_passed_on_without_a_copy() {
    for dialect in Dialect::ALL {
        let mut relay = begun(dialect);
        let bytes = Bytes::from(wire(&[CONTENT[place(dialect)]; 5]));
        let mut out = Vec::new();
        relay.push(bytes.clone(), NOW, &mut out).unwrap();
        assert_eq!(out.concat(), bytes);
        assert_eq!(out.len(), 1);
        assert_eq!(out[0].as_ptr(), bytes.as_ptr());
    }
}

#[test]
fn more_than_can_be_held_counts_as_content() {
    for dialect in Dialect::ALL {
        let comment = format!(": {}\n\n", "x".repeat(HELD_BYTES / 4));
        let mut relay = dialect.relay("p");
        for _ in 0..3 {
            assert!(push(&mut relay, &comment).1.is_empty());
        }
        let (_, out) = push(&mut relay, &comment);
        assert_eq!(out.concat().len(), 4 * comment.len());
        assert!(relay.has_content() && relay.is_between_frames());
        push(&mut relay, &wire(&[LAST[place(dialect)]])).0.unwrap();
        assert!(relay.is_complete());
    }
}

#[test]
fn a_frame_that_cannot_be_held_is_content_however_it_comes() {
    let message = "x".repeat(HELD_BYTES);
    for dialect in Dialect::ALL {
        let error = dialect.error_frame(
            &Problem::new("api_error", &message),
            &Interruption::default(),
        );
        for size in [error.len(), 1 << 14] {
            let mut relay = dialect.relay("p");
            let mut sent = Vec::new();
            for piece in error.as_bytes().chunks(size) {
                relay
                    .push(Bytes::copy_from_slice(piece), NOW, &mut sent)
                    .unwrap();
            }
            assert_eq!(sent.concat(), error.as_bytes());
            assert!(relay.has_content() && relay.ended_with().is_some());
        }
    }
}

#[test]
fn a_long_frame_is_passed_on_as_it_comes_and_judged_at_its_end() {
    let filler = "x".repeat(TAIL_BYTES);
    let data = LAST[2].strip_suffix('}').unwrap();
    let head = format!("data: {data},\"filler\":\"{filler}");
    for count in [0, JUDGED_BYTES / TAIL_BYTES + 1] {
        for mut relay in [
            begun(Dialect::OpenaiResponses),
            Dialect::OpenaiResponses.relay("p"),
        ] {
            let mut sent = Vec::new();
            for piece in std::iter::once(&head).chain(std::iter::repeat_n(&filler, count + 4)) {
                sent.extend(push(&mut relay, piece).1);
            }
            assert!(relay.has_content() && !relay.is_between_frames());
            sent.extend(push(&mut relay, "\"}\n").1);
            assert!(!relay.is_complete());
            sent.extend(push(&mut relay, "\n").1);
            assert!(relay.is_complete() && relay.is_between_frames());
            let whole = format!("{head}{}\"}}\n\n", filler.repeat(count + 4));
            assert_eq!(sent.concat(), whole.as_bytes());
        }
    }
}

#[test]
fn a_frame_longer_than_anything_in_one_piece_is_sent_whole() {
    let mut relay = begun(Dialect::OpenaiChat);
    assert!(push(&mut relay, "data: ").1.is_empty());
    let begin = "x".repeat(2 * JUDGED_BYTES);
    assert_eq!(
        push(&mut relay, &begin).1.concat(),
        format!("data: {begin}").as_bytes()
    );
    assert!(!relay.is_between_frames());
    let (_, out) = push(&mut relay, "\n\ndata: [DO");
    assert_eq!(out.concat(), b"\n\n");
    assert!(relay.is_between_frames());
    assert_eq!(push(&mut relay, "NE]\n\n").1.concat(), b"data: [DONE]\n\n");
    assert!(relay.is_complete());
}

// --- what is not a stream ---

#[test]
fn the_first_bytes_say_what_a_body_is() {
    let table: [(&[u8], Option<Looks>); 8] = [
        (b"", None),
        (b" \r\n", None),
        (b"\n {\"a\":1}", Some(Looks::Json)),
        (b"[", Some(Looks::Json)),
        (b"\xef\xbb\xbf{", Some(Looks::Json)),
        (b"<!doctype html>", Some(Looks::Page)),
        (b"event: x", Some(Looks::Events)),
        (b": x", Some(Looks::Events)),
    ];
    for (bytes, looks) in table {
        assert_eq!(looks_like(bytes), looks, "{}", bytes.escape_ascii());
    }
}

#[test]
fn a_whole_answer_is_checked_and_an_error_in_its_place_found() {
    let deltas = [
        crate::test_support::text("Hi"),
        crate::Delta::Stopped(outlast_kernel::event::StopReason::EndTurn),
    ];
    for dialect in Dialect::ALL {
        let check = |body: &[u8]| dialect.check_whole("p", body, NOW);
        assert!(check(dialect.whole("m", &deltas).as_bytes()).is_ok());
        let error = dialect.error(&Problem::new("overloaded_error", "Overloaded"));
        let failure = check(error.as_bytes()).unwrap_err();
        assert_eq!(classify(&failure).cause, Cause::Overloaded);
        assert_eq!(failure.phase, Phase::BeforeContent);
        for body in [
            &b""[..],
            b"  ",
            b"<html>502</html>",
            b"{\"choi",
            b"\xff\xfe",
            b"{}",
            b"null",
        ] {
            assert!(check(body).is_err(), "{}", body.escape_ascii());
        }
    }
    let begun = |background: bool| {
        format!(
            r#"{{"object":"response","background":{background},"status":"queued","output":[]}}"#
        )
    };
    let check = |body: String| Dialect::OpenaiResponses.check_whole("p", body.as_bytes(), NOW);
    assert!(check(begun(true)).is_ok());
    assert!(check(begun(false)).is_err());
}

// --- requests ---

#[test]
fn a_request_says_its_model_and_whether_to_stream() {
    let table: [(&[u8], Option<&str>, bool); 14] = [
        (br#"{"model":"m","stream":true}"#, Some("m"), true),
        (
            br#" {"messages":[{"model":"x","stream":true}],"model":"m"}"#,
            Some("m"),
            false,
        ),
        (br#"{"stream":false,"model":"m"}"#, Some("m"), false),
        (br#"{"stream":"true","model":5}"#, None, false),
        (br#"{"stream":true,"model":null}"#, None, true),
        (br#"{"stream":[[true]],"model":{"a":1}}"#, None, false),
        (br#"{"model":"a\u0062c"}"#, Some("abc"), false),
        (
            br#"{"model":"a","model":"b","stream":true,"stream":false}"#,
            Some("b"),
            false,
        ),
        (b"{\"text\":\"\xff\xfe\",\"model\":\"m\"}", Some("m"), false),
        (b"{\"model\":\"\xff\"}", None, false),
        (br#"["m",true]"#, None, false),
        (br#"{"model":"m""#, None, false),
        (b"model=m&stream=true", None, false),
        (b"", None, false),
    ];
    for (body, model, stream) in table {
        let asked = Dialect::asked(body);
        assert_eq!(asked.model.as_deref(), model, "{}", body.escape_ascii());
        assert_eq!(asked.stream, stream, "{}", body.escape_ascii());
    }
}

#[test]
fn a_monstrous_request_is_looked_at_all_the_same() {
    let fields: String = (0..1_000_000)
        .map(|number| format!("\"f{number}\":1,"))
        .collect();
    let body = format!("{{{fields}\"model\":\"m\",\"stream\":true}}");
    assert_eq!(Dialect::asked(body.as_bytes()).model.as_deref(), Some("m"));
    let deep = ["[".repeat(1 << 20), "]".repeat(1 << 20)].concat();
    for name in ["deep", "stream", "model"] {
        let body = format!("{{\"{name}\":{deep},\"model\":\"m\"}}");
        assert_eq!(Dialect::asked(body.as_bytes()).model.as_deref(), Some("m"));
    }
    let open = format!("{{\"model\":{}", "[".repeat(1 << 20));
    assert_eq!(Dialect::asked(open.as_bytes()).model, None);
}

// --- what we say ourselves ---

#[test]
fn our_last_frame_is_an_error_to_every_reader() {
    for dialect in Dialect::ALL {
        let frame =
            dialect.final_error_frame("overloaded_error", 529, "the provider is overloaded");
        let failure = read_all(dialect, &frame).1.unwrap();
        assert_eq!(classify(&failure).cause, Cause::Overloaded, "{frame}");
        assert_eq!(failure.message, "the provider is overloaded");
        let mut relay = begun(dialect);
        push(&mut relay, &frame).0.unwrap();
        assert!(relay.ended_with().is_some());
    }
}

#[test]
fn our_last_frame_has_what_clients_look_for() {
    let frame = |dialect: Dialect| dialect.final_error_frame("overloaded_error", 529, "busy");
    insta::assert_snapshot!(frame(Dialect::Anthropic), @r#"
    event: error
    data: {"error":{"message":"busy","type":"overloaded_error"},"request_id":null,"type":"error"}
    "#);
    insta::assert_snapshot!(frame(Dialect::OpenaiChat), @r#"data: {"error":{"code":"529","message":"busy","param":null,"type":"overloaded_error"}}"#);
    let responses = frame(Dialect::OpenaiResponses);
    let (error, failed) = responses.split_once("\n\n").unwrap();
    insta::assert_snapshot!(error, @r#"
    event: error
    data: {"code":"overloaded_error","error":{"code":"overloaded_error","message":"busy","param":null,"type":"overloaded_error"},"message":"busy","param":null,"sequence_number":0,"type":"error"}
    "#);
    let failed = failed
        .strip_prefix("event: response.failed\ndata: ")
        .unwrap();
    let failed: Value = serde_json::from_str(failed).unwrap();
    assert_eq!(failed["response"]["status"], "failed");
    assert_eq!(failed["response"]["error"]["code"], "overloaded_error");
}

#[test]
fn our_errors_are_bodies_of_the_dialect() {
    let body = |dialect: Dialect| dialect.error_body("overloaded_error", "busy");
    insta::assert_snapshot!(body(Dialect::Anthropic), @r#"{"error":{"message":"busy","type":"overloaded_error"},"request_id":null,"type":"error"}"#);
    insta::assert_snapshot!(body(Dialect::OpenaiChat), @r#"{"error":{"code":null,"message":"busy","param":null,"type":"overloaded_error"}}"#);
    assert_eq!(body(Dialect::OpenaiChat), body(Dialect::OpenaiResponses));
}
