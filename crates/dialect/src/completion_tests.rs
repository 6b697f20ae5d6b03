use super::*;
use crate::{StreamActivity, StreamCursor, StreamDecoder};
use outlast_kernel::Timestamp;
use outlast_kernel::classify::classify;
use outlast_kernel::event::Proof;
use outlast_kernel::failure::Failure;
use outlast_kernel::verdict::Cause;
use proptest::prelude::*;

const NOW: Timestamp = Timestamp::from_millis(1);

fn events(pieces: &[String]) -> Vec<sse::Event> {
    let mut decoder = sse::Decoder::new(1 << 20);
    decoder.push(pieces.concat().as_bytes());
    std::iter::from_fn(|| decoder.next_event().unwrap()).collect()
}

fn read(dialect: Dialect, pieces: &[String]) -> Result<Vec<Delta>, Box<Failure>> {
    let mut reader: StreamDecoder = dialect.decoder("p");
    let mut deltas = Vec::new();
    for event in events(pieces) {
        reader.decode(&event, NOW, &mut deltas)?;
    }
    Ok(deltas)
}

/// Splits off the reports of usage, of which the last is returned.
fn apart(deltas: Vec<Delta>) -> (Vec<Delta>, Option<Delta>) {
    let is_usage = |delta: &Delta| matches!(delta, Delta::Usage(_));
    let (usage, rest): (Vec<_>, Vec<_>) = deltas.into_iter().partition(is_usage);
    (rest, usage.into_iter().next_back())
}

/// Joins the pieces of one text, as in a response that comes as a whole.
fn joined(deltas: Vec<Delta>) -> Vec<Delta> {
    let mut out: Vec<Delta> = Vec::new();
    for delta in deltas {
        match (out.last_mut(), &delta) {
            (Some(Delta::Text(text)), Delta::Text(more))
            | (Some(Delta::Reasoning(text)), Delta::Reasoning(more)) => text.push_str(more),
            _ => out.push(delta),
        }
    }
    out
}

fn proof(dialect: Dialect) -> BoxedStrategy<Option<Proof>> {
    let signature = "[a-zA-Z0-9+/=]{1,40}".prop_map(|signature| Proof::Signature { signature });
    let encrypted = ("rs_[a-z0-9]{1,9}", prop::option::of("[a-zA-Z0-9]{1,40}"));
    let encrypted = encrypted.prop_map(|(id, content)| Proof::Encrypted { id, content });
    match dialect {
        Dialect::Anthropic => prop::option::of(signature).boxed(),
        Dialect::OpenaiChat => Just(None).boxed(),
        Dialect::OpenaiResponses => encrypted.prop_map(Some).boxed(),
    }
}

fn call() -> impl Strategy<Value = ToolCall> {
    let arguments = prop::collection::btree_map("[a-zé]{1,8}", "[\\PC\n\"]{0,20}", 0..4);
    ("[a-z_]{1,12}", arguments).prop_map(|(name, arguments)| ToolCall {
        id: String::new(),
        name,
        arguments: serde_json::to_string(&arguments).unwrap(),
    })
}

/// Completions that this dialect can express: at most one thought, then text, then calls.
fn answer(dialect: Dialect) -> impl Strategy<Value = Vec<Delta>> {
    let texts = || prop::collection::vec("[\\PC\n\r\u{1b}]{1,20}", 0..4);
    let stops = [
        StopReason::EndTurn,
        StopReason::Length,
        StopReason::Refusal,
        StopReason::Other,
    ];
    (
        (texts(), proof(dialect)),
        texts(),
        prop::collection::vec(call(), 0..3),
        (0..9_u64, 0..9_u64, 0..9_u64),
        prop::sample::select(stops.to_vec()),
    )
        .prop_map(|((thoughts, proof), texts, mut calls, used, stop)| {
            let mut deltas: Vec<Delta> = Vec::new();
            if !thoughts.is_empty() {
                let text = thoughts.concat();
                deltas.extend(thoughts.into_iter().map(Delta::Reasoning));
                deltas.push(Delta::ReasoningDone(Reasoning {
                    text,
                    proof,
                    ..Reasoning::default()
                }));
            }
            deltas.extend(texts.into_iter().map(Delta::Text));
            let stop = match calls.is_empty() {
                true => stop,
                false => StopReason::ToolUse,
            };
            for (number, call) in calls.iter_mut().enumerate() {
                call.id = format!("call_{number}");
            }
            deltas.extend(calls.into_iter().map(Delta::ToolCall));
            let (input, output, cache_read) = used;
            deltas.push(Delta::Usage(Usage {
                input,
                output,
                cache_read,
                cache_write: 0,
            }));
            deltas.push(Delta::Stopped(stop));
            deltas
        })
}

fn any_answer() -> impl Strategy<Value = (Dialect, Vec<Delta>)> {
    prop::sample::select(Dialect::ALL.to_vec())
        .prop_flat_map(|dialect| answer(dialect).prop_map(move |deltas| (dialect, deltas)))
}

proptest! {
    #[test]
    fn encoded_stream_decodes_to_same_deltas((dialect, deltas) in any_answer()) {
        let pieces = dialect.encode_stream("m", &deltas);
        prop_assert!(pieces.iter().all(|piece| piece.ends_with("\n\n")), "{pieces:?}");
        prop_assert_eq!(apart(read(dialect, &pieces).unwrap()), apart(deltas));
    }

    #[test]
    fn encoded_response_decodes_to_same_content((dialect, deltas) in any_answer()) {
        let whole = dialect.decode_response("p", &dialect.encode_response("m", &deltas), NOW).unwrap();
        let (said, usage) = apart(deltas);
        prop_assert_eq!(apart(whole), (joined(said), usage));
    }

    #[test]
    fn truncated_stream_never_yields_stop((dialect, deltas) in any_answer(), cut in 0_usize..99) {
        let pieces = dialect.encode_stream("m", &deltas);
        let read = read(dialect, &pieces[..cut % pieces.len()]).unwrap();
        let is_end = |delta: &Delta| matches!(delta, Delta::Stopped(_));
        prop_assert!(!read.iter().any(is_end), "{read:?}");
    }

    #[test]
    fn stored_stream_cut_anywhere_resumes_each_delta_once(
        deltas in answer(Dialect::OpenaiResponses),
        cut in 0_usize..99,
    ) {
        let dialect = Dialect::OpenaiResponses;
        let response = "resp_1".to_owned();
        let kept = Delta::Cursor(StreamCursor { response, after: 0 });
        let pieces = dialect.encode_stream("m", &[&[kept], &deltas[..]].concat());
        let events = events(&pieces);
        let mut heard = Vec::new();
        let mut reader = dialect.decoder("p");
        for event in &events[..1 + cut % (events.len() - 1)] {
            reader.decode(event, NOW, &mut heard).unwrap();
        }
        let Some(Delta::Cursor(place)) = heard.last().cloned() else {
            panic!("no place: {heard:?}");
        };
        let mut reader = dialect.decoder_after("p", &place);
        for event in &events[usize::try_from(place.after).unwrap() + 1..] {
            reader.decode(event, NOW, &mut heard).unwrap();
        }
        heard.retain(|delta| !matches!(delta, Delta::Cursor(_)));
        prop_assert_eq!(apart(heard), apart(deltas));
    }

    #[test]
    fn only_stored_openai_responses_yield_cursors((dialect, deltas) in any_answer()) {
        let is_place = |delta: &Delta| matches!(delta, Delta::Cursor(_));
        let pieces = dialect.encode_stream("m", &deltas);
        prop_assert!(!read(dialect, &pieces).unwrap().iter().any(is_place));
        let response = "resp_1".to_owned();
        let kept = Delta::Cursor(StreamCursor { response, after: 0 });
        let pieces = dialect.encode_stream("m", &[&[kept], &deltas[..]].concat());
        let has_places = read(dialect, &pieces).unwrap().iter().any(is_place);
        prop_assert_eq!(has_places, dialect == Dialect::OpenaiResponses);
    }
}

fn text(text: &str) -> Delta {
    Delta::Text(text.to_owned())
}

fn tool_call(id: &str, arguments: &str) -> Delta {
    Delta::ToolCall(ToolCall {
        id: id.to_owned(),
        name: "run".to_owned(),
        arguments: arguments.to_owned(),
    })
}

#[test]
fn stream_encodes_as_opening_one_piece_per_text_and_end() {
    let deltas = [text("Hel"), text("lo"), Delta::Stopped(StopReason::EndTurn)];
    for dialect in Dialect::ALL {
        let pieces = dialect.encode_stream("m", &deltas);
        assert_eq!(pieces.len(), 4, "{dialect:?}");
        for (piece, part) in pieces[1..3].iter().zip(["Hel", "lo"]) {
            assert!(piece.contains(part), "{dialect:?}: {piece}");
        }
        let unended = dialect.encode_stream("m", &deltas[..2]);
        assert_eq!(unended, pieces[..3], "{dialect:?}");
    }
}

#[test]
fn arguments_of_two_tool_calls_are_interleaved() {
    let deltas = [
        tool_call("a", r#"{"one":1,"x":2}"#),
        tool_call("b", r#"{"two":1,"x":2}"#),
        Delta::Stopped(StopReason::ToolUse),
    ];
    for dialect in Dialect::ALL {
        let pieces = dialect.encode_stream("m", &deltas);
        let places: Vec<usize> = ["one", "two"]
            .iter()
            .map(|word| pieces.iter().position(|piece| piece.contains(word)))
            .map(Option::unwrap)
            .collect();
        assert_eq!(places[0] + 1, places[1], "{dialect:?}: {pieces:#?}");
        assert!(pieces.len() >= 9, "{dialect:?}: {}", pieces.len());
        let read = read(dialect, &pieces).unwrap();
        assert_eq!(apart(read).0, deltas, "{dialect:?}");
    }
}

#[test]
fn responses_sequence_numbers_have_no_gaps() {
    let deltas = [
        Delta::ReasoningDone(Reasoning {
            text: "Hm.".to_owned(),
            ..Reasoning::default()
        }),
        text("Hello"),
        tool_call("a", "{}"),
        Delta::Stopped(StopReason::ToolUse),
    ];
    let dialect = Dialect::OpenaiResponses;
    let pieces = dialect.encode_stream("m", &deltas);
    let number = |event: &sse::Event| {
        let data: Value = serde_json::from_str(&event.data).unwrap();
        assert_eq!(data["type"], event.name.as_str());
        data["sequence_number"].as_u64().unwrap()
    };
    let numbers: Vec<u64> = events(&pieces).iter().map(number).collect();
    assert_eq!(numbers, (0..numbers.len() as u64).collect::<Vec<_>>());
}

#[test]
fn redacted_reasoning_round_trips_unchanged() {
    let data = "b3V0bGFzdA==".to_owned();
    let deltas = [
        Delta::ReasoningDone(Reasoning {
            proof: Some(Proof::Redacted { data }),
            ..Reasoning::default()
        }),
        Delta::Stopped(StopReason::EndTurn),
    ];
    let dialect = Dialect::Anthropic;
    let streamed = read(dialect, &dialect.encode_stream("m", &deltas)).unwrap();
    let whole = dialect.decode_response("p", &dialect.encode_response("m", &deltas), NOW);
    assert_eq!(apart(streamed).0, deltas);
    assert_eq!(apart(whole.unwrap()).0, deltas);
}

#[test]
fn errors_in_a_stream_are_read_in_every_form() {
    let problem = ApiError::new("server_error", "Our servers are currently overloaded")
        .with_code("server_is_overloaded");
    let anthropic = ApiError::new("overloaded_error", "Overloaded");
    for dialect in Dialect::ALL {
        let problem = match dialect {
            Dialect::Anthropic => &anthropic,
            _ => &problem,
        };
        for form in [ErrorForm::Standard, ErrorForm::Event, ErrorForm::End] {
            let mut pieces = dialect.encode_stream("m", &[text("Hel")]);
            let interruption = Interruption {
                model: "m",
                frames_before: events(&pieces).len(),
                form,
            };
            pieces.push(dialect.encode_error_frame(problem, &interruption));
            let failure = read(dialect, &pieces).unwrap_err();
            let cause = classify(&failure).cause;
            assert_eq!(cause, Cause::Overloaded, "{dialect:?} {form:?}");
        }
    }
}

#[test]
fn keepalive_and_unknown_frames_yield_no_deltas() {
    for dialect in Dialect::ALL {
        let mut reader = dialect.decoder("p");
        let mut deltas = Vec::new();
        for event in events(&[dialect.keepalive_frame()]) {
            let sign = reader.decode(&event, NOW, &mut deltas).unwrap();
            assert_eq!(sign, StreamActivity::KeepAlive, "{dialect:?}");
        }
        for event in events(&[dialect.unknown_frame("m")]) {
            reader.decode(&event, NOW, &mut deltas).unwrap();
        }
        assert_eq!(deltas, [], "{dialect:?}");
    }
}

#[test]
fn truncated_call_is_encoded_last_and_read_as_incomplete() {
    let deltas = [
        text("Let me look."),
        tool_call("a", r#"{"path":"one.txt"}"#),
        tool_call("b", r#"{"path":"two"#),
        Delta::Stopped(StopReason::Length),
    ];
    for dialect in Dialect::ALL {
        let pieces = dialect.encode_stream("m", &deltas);
        let place = |word: &str| pieces.iter().position(|piece| piece.contains(word));
        let (ended, begun) = (place(".txt").unwrap(), place(r#""b""#).unwrap());
        assert!(ended < begun, "{dialect:?}: {pieces:#?}");
        let streamed = read(dialect, &pieces).unwrap();
        let whole = dialect.decode_response("p", &dialect.encode_response("m", &deltas), NOW);
        // One dialect tells only at the end which calls are complete, and then none is trusted.
        let expected = match dialect {
            Dialect::OpenaiChat => vec![deltas[0].clone(), deltas[3].clone()],
            _ => vec![deltas[0].clone(), deltas[1].clone(), deltas[3].clone()],
        };
        for read in [streamed, whole.unwrap()] {
            let is_cut = |delta: &Delta| matches!(delta, Delta::IncompleteToolCall { .. });
            let (cut, others): (Vec<_>, Vec<_>) = apart(read).0.into_iter().partition(is_cut);
            assert_eq!(others, expected, "{dialect:?}");
            assert!(!cut.is_empty(), "{dialect:?}");
        }
    }
}

#[test]
fn only_last_output_item_is_incomplete() {
    let deltas = [
        text("Let me look."),
        tool_call("a", "{}"),
        tool_call("b", "{"),
        Delta::Stopped(StopReason::Length),
    ];
    let whole: Value =
        serde_json::from_str(&Dialect::OpenaiResponses.encode_response("m", &deltas)).unwrap();
    let items = whole["output"].as_array().unwrap().iter();
    let statuses: Vec<&Value> = items.map(|item| &item["status"]).collect();
    assert_eq!(statuses, ["completed", "completed", "incomplete"]);
}

#[test]
fn truncated_reasoning_has_no_signature() {
    let done = Delta::ReasoningDone(Reasoning {
        model: None,
        text: "Hm.".to_owned(),
        proof: None,
    });
    let deltas = [
        Delta::Reasoning("Hm.".to_owned()),
        done,
        Delta::Stopped(StopReason::Length),
    ];
    let dialect = Dialect::Anthropic;
    let pieces = dialect.encode_stream("m", &deltas);
    assert!(!pieces.concat().contains("signature_delta"), "{pieces:?}");
    assert_eq!(apart(read(dialect, &pieces).unwrap()).0, deltas);
}

#[test]
fn long_arguments_come_in_many_pieces() {
    let blank = " ".repeat(10_000);
    let deltas = [tool_call("a", &blank), Delta::Stopped(StopReason::ToolUse)];
    for dialect in Dialect::ALL {
        let pieces = dialect.encode_stream("m", &deltas).len();
        assert!(pieces > 20, "{dialect:?}: {pieces}");
    }
}
