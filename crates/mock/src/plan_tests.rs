use super::*;
use crate::conversation::Conversation;
use crate::script::{FAULTS, Script};
use outlast_dialect::sse;
use outlast_kernel::classify::classify;
use outlast_kernel::event::StopReason;
use outlast_kernel::failure::{Failure, IoKind};
use outlast_kernel::verdict::Cause;
use proptest::prelude::*;

const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

fn facts(is_streamed: bool) -> RequestFacts {
    let prompt = "Say hello".to_owned();
    RequestFacts {
        model: "m".to_owned(),
        is_streamed,
        conversation: Conversation {
            prompts: 1,
            prompt,
            ..Conversation::default()
        },
        wants_usage: true,
        ..RequestFacts::default()
    }
}

fn plan_of(script: &str, dialect: Dialect, facts: &RequestFacts) -> Plan {
    let mut script: Script = script.parse().unwrap();
    let reply = script.next_reply(NOW, &[0; 100]);
    plan(
        &reply,
        RequestContext {
            dialect,
            facts,
            now: NOW,
            number: 1,
            stored_pieces: None,
        },
    )
}

fn body(plan: &Plan) -> Vec<u8> {
    let pieces: Vec<&[u8]> = plan.pieces.iter().map(|piece| &*piece.bytes).collect();
    pieces.concat()
}

/// Returns the deltas that a client of that dialect decodes from a streamed plan.
fn read(script: &str, dialect: Dialect) -> Result<Vec<Delta>, Box<Failure>> {
    let plan = plan_of(script, dialect, &facts(true));
    let mut decoder = sse::Decoder::new(1 << 20);
    let (mut reader, mut deltas) = (dialect.decoder("p"), Vec::new());
    decoder.push(&body(&plan));
    while let Some(event) = decoder.next_event().unwrap() {
        reader.decode(&event, NOW, &mut deltas)?;
    }
    Ok(deltas)
}

#[test]
fn every_kind_is_equal_streamed_and_non_streamed() {
    let content = |deltas: Vec<Delta>| {
        let text = |delta: &Delta| match delta {
            Delta::Text(text) | Delta::Reasoning(text) => text.clone(),
            Delta::Usage(_) => String::new(),
            other => format!("{other:?}"),
        };
        deltas.iter().map(text).collect::<String>()
    };
    for dialect in Dialect::ALL {
        for (word, ..) in AnswerKind::KEYWORDS {
            let script = format!("ok:{word}");
            // The decoder does not read endless blanks to their end.
            let Ok(streamed) = read(&script, dialect) else {
                assert_eq!(word, "blank-arguments", "{dialect:?}");
                continue;
            };
            let streamed = content(streamed);
            let whole = body(&plan_of(&script, dialect, &facts(false)));
            let whole = dialect.decode_response("p", &String::from_utf8_lossy(&whole), NOW);
            assert_eq!(streamed, content(whole.unwrap()), "{dialect:?} {word}");
        }
    }
}

#[test]
fn in_band_errors_are_classified_as_scripted() {
    let table = [
        ("overloaded", Cause::Overloaded),
        ("server-error", Cause::ServerError),
        ("overflow", Cause::ContextOverflow),
        ("auth", Cause::Auth),
        ("billing", Cause::Billing),
        ("rate-limited", Cause::RateLimited),
    ];
    for dialect in Dialect::ALL {
        for (trouble, cause) in table {
            for form in ["usual", "event", "end"] {
                for after in ["", ",after=0", ",after=2"] {
                    let script = format!("in-band:{trouble},as={form}{after}");
                    let failure = read(&script, dialect).unwrap_err();
                    assert_eq!(classify(&failure).cause, cause, "{dialect:?} {script}");
                }
            }
        }
    }
}

#[test]
fn in_band_usage_limit_states_reset_in_headers() {
    let plan = plan_of("in-band:usage-limit", Dialect::Anthropic, &facts(true));
    let head = plan.head.unwrap();
    let named = |name: &str| head.headers.iter().any(|(known, _)| known == name);
    assert_eq!(head.status, 200);
    assert!(named("anthropic-ratelimit-unified-reset") && !named("retry-after"));
}

#[test]
fn damaged_responses_never_decode_to_the_end() {
    for dialect in Dialect::ALL {
        for script in [
            "malformed",
            "malformed:3",
            "malformed:9999",
            "garbage",
            "page:429",
        ] {
            let stops = |deltas: &Vec<Delta>| matches!(deltas.last(), Some(Delta::Stopped(_)));
            let read = read(script, dialect);
            assert!(
                !read.as_ref().is_ok_and(stops),
                "{dialect:?} {script}: {read:?}"
            );
            if let (Err(failure), true) = (read, script.starts_with("malformed")) {
                assert_eq!(failure.io, Some(IoKind::Protocol), "{dialect:?} {script}");
            }
            let whole = body(&plan_of(script, dialect, &facts(false)));
            let whole = dialect.decode_response("p", &String::from_utf8_lossy(&whole), NOW);
            assert!(whole.is_err(), "{dialect:?} {script}");
        }
    }
}

#[test]
fn no_finish_completes_only_in_openai_chat() {
    for dialect in Dialect::ALL {
        let deltas = read("no-finish", dialect).unwrap();
        let expected = match dialect {
            Dialect::OpenaiChat => Some(Delta::Stopped(StopReason::EndTurn)),
            _ => None,
        };
        let end = deltas
            .into_iter()
            .find(|delta| matches!(delta, Delta::Stopped(_)));
        assert_eq!(end, expected, "{dialect:?}");
    }
}

#[test]
fn content_length_matches_body_length() {
    let examples = [
        "ok",
        "cut:50,clean",
        "malformed",
        "gzip:always",
        "garbage",
        "error:500",
        "page:503,as=status",
    ];
    for dialect in Dialect::ALL {
        for script in examples {
            let plan = plan_of(script, dialect, &facts(false));
            let head = plan.head.as_ref().unwrap();
            let lengths: Vec<&str> = head
                .headers
                .iter()
                .filter(|(name, _)| name == "content-length")
                .map(|(_, value)| value.as_str())
                .collect();
            assert_eq!(
                lengths,
                [body(&plan).len().to_string()],
                "{dialect:?} {script}"
            );
        }
    }
}

#[test]
fn rate_limit_responses_match_snapshot() {
    let mut heads = String::new();
    for dialect in Dialect::ALL {
        for (form, ..) in crate::reply::HintForm::KEYWORDS {
            let script = format!("rate-limited:retry-after=6.5,as={form}");
            let plan = plan_of(&script, dialect, &facts(true));
            let head = plan.head.as_ref().unwrap();
            heads.push_str(&format!("{} {form}: {}\n", dialect.name(), head.status));
            for (name, value) in &head.headers[4..] {
                heads.push_str(&format!("  {name}: {value}\n"));
            }
            heads.push_str(&format!("  {}\n", String::from_utf8_lossy(&body(&plan))));
        }
    }
    insta::assert_snapshot!(heads);
}

#[test]
fn script_help_matches_snapshot() {
    insta::assert_snapshot!(crate::script::help());
}

fn json() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<u32>().prop_map(Into::into),
        prop::sample::select(vec![
            "user",
            "image",
            "input_image",
            "text",
            "data:x;base64,===",
            "é",
            "assistant",
            "tool_result",
            "function_call",
            "call look {}\nand look",
        ])
        .prop_map(Into::into),
    ];
    let name = prop::sample::select(vec![
        "model",
        "messages",
        "input",
        "role",
        "content",
        "type",
        "text",
        "source",
        "data",
        "media_type",
        "image_url",
        "url",
        "tools",
        "function",
        "name",
        "parameters",
        "input_schema",
        "stream",
        "properties",
        "enum",
        "items",
    ]);
    leaf.prop_recursive(6, 60, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Into::into),
            prop::collection::btree_map(name.clone(), inner, 0..5).prop_map(|fields| {
                let fields = fields
                    .into_iter()
                    .map(|(name, value)| (name.to_owned(), value));
                serde_json::Value::Object(fields.collect())
            }),
        ]
    })
}

proptest! {
    #[test]
    fn every_request_has_a_plan(
        request in json(),
        row in 0..FAULTS.len(),
        kind in prop::sample::select(AnswerKind::KEYWORDS.map(|(word, ..)| word).to_vec()),
    ) {
        let name = FAULTS[row].name;
        prop_assume!(name != "bomb");
        let scripts = [name.to_owned(), format!("{name}:3"), format!("{name}:429"), format!("ok:{kind}")];
        for text in scripts {
            let Ok(mut script) = text.parse::<Script>() else { continue };
            let reply = script.next_reply(NOW, &[0; 100]);
            for dialect in Dialect::ALL {
                let facts = RequestFacts::parse(dialect, &[], &request, 100);
                plan(&reply, RequestContext { dialect, facts: &facts, now: NOW, number: 1, stored_pieces: None });
            }
        }
    }
}
