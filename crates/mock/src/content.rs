//! The content of completions: the deltas of each kind, derived from the request.

mod agent;
mod continuation;
mod invalid_completion;

use crate::reply::AnswerKind;
use crate::request_facts::RequestFacts;
use outlast_dialect::{Delta, Dialect};
use outlast_kernel::event::{Proof, Reasoning, StopReason, ToolCall, Usage};
use outlast_kernel::text;
use serde_json::{Map, Value, json};

/// The maximum number of bytes of the prompt that are echoed.
const MAX_ECHO_BYTES: usize = 200;
const LONG_ANSWER_WORDS: usize = 3000;
const REASONING_TEXT: &str = "The user said something. A greeting is a fitting answer.";

/// Returns the deltas of a completion of that kind.
pub(crate) fn deltas(kind: AnswerKind, dialect: Dialect, facts: &RequestFacts) -> Vec<Delta> {
    let begun = &facts.conversation.partial_answer_texts;
    let mut deltas = continuation::remaining_deltas(content_deltas(kind, dialect, facts), begun);
    if kind == AnswerKind::Length {
        deltas.truncate(deltas.len().div_ceil(2));
    }
    let is_call = |delta: &Delta| matches!(delta, Delta::ToolCall(_));
    let called = deltas.iter().any(is_call);
    let output = match kind {
        AnswerKind::BilledEmpty => invalid_completion::BILLED_OUTPUT_TOKENS,
        _ => u64::try_from(deltas.len()).unwrap_or(u64::MAX),
    };
    if facts.wants_usage || !facts.is_streamed {
        deltas.push(Delta::Usage(Usage {
            input: facts.tokens,
            output,
            ..Usage::default()
        }));
    }
    deltas.push(Delta::Stopped(match kind {
        _ if kind.hits_output_limit() => StopReason::Length,
        _ if called => StopReason::ToolUse,
        AnswerKind::ToolStop => StopReason::ToolUse,
        AnswerKind::Refusal => StopReason::Refusal,
        _ => StopReason::EndTurn,
    }));
    deltas
}

/// Returns the content of the completion.
fn content_deltas(kind: AnswerKind, dialect: Dialect, facts: &RequestFacts) -> Vec<Delta> {
    let greeting = || text_deltas(&greeting(facts));
    match kind {
        AnswerKind::Text | AnswerKind::Length | AnswerKind::UnknownFrames => greeting(),
        AnswerKind::Reasoning => {
            [reasoning_deltas(REASONING_TEXT, proof(dialect)), greeting()].concat()
        }
        AnswerKind::ReasoningOnly => reasoning_deltas(REASONING_TEXT, proof(dialect)),
        AnswerKind::ReasoningLoop => {
            [invalid_completion::reasoning_loop(dialect), greeting()].concat()
        }
        AnswerKind::LengthReasoning => reasoning_deltas(REASONING_TEXT, None),
        AnswerKind::Tool => tool_call_deltas(facts, 1),
        AnswerKind::Tools => tool_call_deltas(facts, 2),
        AnswerKind::Mixed => {
            let mut deltas = reasoning_deltas(REASONING_TEXT, proof(dialect));
            deltas.extend(tool_call_deltas(facts, 2));
            deltas
        }
        AnswerKind::LengthCall => invalid_completion::truncated_call(facts),
        AnswerKind::BlankArguments => invalid_completion::blank_arguments_call(facts),
        AnswerKind::Nameless => invalid_completion::nameless_call(),
        AnswerKind::Announced => text_deltas("I will now run the tests:"),
        AnswerKind::TextCall => text_deltas(invalid_completion::CALL_AS_TEXT),
        AnswerKind::ToolStop => text_deltas("Let me look."),
        AnswerKind::Refusal => text_deltas("I'm sorry, but I can't help with that."),
        AnswerKind::Empty | AnswerKind::BilledEmpty | AnswerKind::LengthEmpty => Vec::new(),
        AnswerKind::ImageSeen => text_deltas(&describe_images(facts)),
        AnswerKind::Escapes => text_deltas(
            "Plain, \u{1b}[31mred\u{1b}[0m, \u{1b}]0;a new title\u{7}and a \u{202e}turn \u{9b}2J of \u{8}words.",
        ),
        AnswerKind::Long => (1..=LONG_ANSWER_WORDS)
            .map(|number| Delta::Text(format!("word {number}, ")))
            .collect(),
        AnswerKind::LongSummary => text_deltas(&[facts.conversation.prompt.as_str(); 2].join("\n")),
        AnswerKind::Agent => agent::next_step(facts),
        AnswerKind::ThinkingAgent => [
            reasoning_deltas(REASONING_TEXT, proof(dialect)),
            agent::next_step(facts),
        ]
        .concat(),
    }
}

fn greeting(facts: &RequestFacts) -> String {
    let prompt = text::bounded(&facts.conversation.prompt, MAX_ECHO_BYTES);
    format!("Hello from the scripted provider: no network, no key, no cost. You said: {prompt}")
}

fn text_deltas(text: &str) -> Vec<Delta> {
    let words = text.split_inclusive(' ');
    words.map(|word| Delta::Text(word.to_owned())).collect()
}

/// Returns reasoning; with a proof it is complete.
fn reasoning_deltas(text: &str, proof: Option<Proof>) -> Vec<Delta> {
    let words = text.split_inclusive(' ');
    let mut deltas: Vec<Delta> = words
        .map(|word| Delta::Reasoning(word.to_owned()))
        .collect();
    let text = text.to_owned();
    deltas.push(Delta::ReasoningDone(Reasoning {
        text,
        proof,
        ..Reasoning::default()
    }));
    deltas
}

/// Returns the proof that this dialect's providers expect back with reasoning.
fn proof(dialect: Dialect) -> Option<Proof> {
    match dialect {
        Dialect::Anthropic => Some(Proof::Signature {
            signature: "c2NyaXB0ZWQgc2lnbmF0dXJl".to_owned(),
        }),
        Dialect::OpenaiChat => None,
        Dialect::OpenaiResponses => Some(Proof::Encrypted {
            id: "rs_scripted".to_owned(),
            content: Some("c2NyaXB0ZWQgcmVhc29uaW5n".to_owned()),
        }),
    }
}

fn describe_images(facts: &RequestFacts) -> String {
    let seen = facts.images.iter();
    let seen = seen.map(|image| format!("{} of {} bytes", image.media_type, image.bytes));
    match facts.images.len() {
        0 => "I see no image.".to_owned(),
        count => format!("I see {count}: {}.", seen.collect::<Vec<_>>().join(", ")),
    }
}

/// Returns calls of the offered tools, in turn; without any, of an invented one.
fn tool_call_deltas(facts: &RequestFacts, count: usize) -> Vec<Delta> {
    let made_up = (
        "get_weather".to_owned(),
        json!({ "type": "object", "properties": { "city": { "enum": ["Paris"] } } }),
    );
    let offered = match facts.tools.as_slice() {
        [] => std::slice::from_ref(&made_up),
        tools => tools,
    };
    let mut deltas = text_deltas("Let me look. ");
    let tools = offered.iter().cycle().take(count);
    deltas.extend(tools.zip(1..).map(|((name, schema), number)| {
        Delta::ToolCall(ToolCall {
            id: format!("call_scripted_{number}"),
            name: name.clone(),
            arguments: example_value(schema, 0).to_string(),
        })
    }));
    deltas
}

/// Returns a value that matches a simple schema.
fn example_value(schema: &Value, depth: usize) -> Value {
    const MAX_DEPTH: usize = 5;
    if let Some(value) = schema["enum"].get(0).or(schema.get("const")) {
        return value.clone();
    }
    let kind = match &schema["type"] {
        Value::Array(kinds) => kinds.first().unwrap_or(&Value::Null),
        kind => kind,
    };
    match kind.as_str() {
        Some("string") => json!("scripted"),
        Some("integer" | "number") => schema.get("minimum").cloned().unwrap_or(json!(1)),
        Some("boolean") => json!(true),
        Some("array") if depth < MAX_DEPTH => json!([example_value(&schema["items"], depth + 1)]),
        Some("array") => json!([]),
        Some("null") => Value::Null,
        _ if depth >= MAX_DEPTH => json!({}),
        _ => {
            let properties = schema["properties"].as_object().into_iter().flatten();
            let values =
                properties.map(|(name, schema)| (name.clone(), example_value(schema, depth + 1)));
            Value::Object(values.collect::<Map<_, _>>())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tool_call_arguments_match_schema() {
        let schema = json!({
            "type": "object",
            "properties": {
                "path": { "type": "string" },
                "lines": { "type": "array", "items": { "type": "integer", "minimum": 3 } },
                "mode": { "enum": ["fast", "slow"] },
                "deep": { "type": "object", "properties": { "yes": { "type": ["boolean", "null"] } } },
            },
        });
        let facts = RequestFacts {
            tools: vec![("run".to_owned(), schema)],
            ..RequestFacts::default()
        };
        let Some(Delta::ToolCall(call)) = deltas(AnswerKind::Tool, Dialect::Anthropic, &facts)
            .into_iter()
            .find(|delta| matches!(delta, Delta::ToolCall(_)))
        else {
            panic!("there is no call");
        };
        let arguments: Value = serde_json::from_str(&call.arguments).unwrap();
        let expected =
            json!({ "path": "scripted", "lines": [3], "mode": "fast", "deep": { "yes": true } });
        assert_eq!((call.name.as_str(), arguments), ("run", expected));
    }

    #[test]
    fn deeply_nested_schema_is_truncated() {
        let mut schema = json!({ "type": "string" });
        for _ in 0..50 {
            schema = json!({ "type": "array", "items": schema });
        }
        assert_eq!(example_value(&schema, 0).to_string(), "[[[[[[]]]]]]");
    }
}
