//! The context windows that the overflow errors of the corpus state.

use outlast_dialect::error_body::{RawError, parse};
use outlast_kernel::Timestamp;
use outlast_kernel::classify::classify;
use outlast_kernel::failure::{Failure, Transport};
use outlast_kernel::model_info::overflow::stated_window;
use outlast_kernel::verdict::Cause;
use serde_json::Value;

/// Returns the lines of the corpus that are primarily an overflow, as failures.
fn overflows(corpus: &str) -> Vec<(String, Failure)> {
    let lines = corpus.lines().map(serde_json::from_str);
    let lines = lines.map(Result::<Value, _>::unwrap);
    let is_overflow = |line: &Value| line["expect"]["class"] == "context_overflow";
    let failure = |line: Value| {
        let failure = parse(RawError {
            provider: line["provider"].as_str().unwrap(),
            transport: match line["transport"].as_str() {
                Some("http") => Transport::Http,
                Some("sse") => Transport::Stream,
                _ => Transport::Thrown,
            },
            status: line["status"]
                .as_u64()
                .map(|status| status.try_into().unwrap()),
            headers: &[],
            body: line["body"].as_str().unwrap(),
            at: Timestamp::default(),
        });
        (line["id"].as_str().unwrap().to_owned(), failure)
    };
    lines.filter(is_overflow).map(failure).collect()
}

/// Returns the ids of the lines that state a window, with the window.
fn stated(corpus: &str) -> Vec<(String, u64)> {
    let all = overflows(corpus).into_iter();
    all.filter_map(|(id, failure)| Some((id, stated_window(&failure)?)))
        .collect()
}

#[test]
fn corpus_overflow_errors_state_expected_windows() {
    let corpus = include_str!("../../../../corpus/errors.jsonl");
    let expected = [
        ("anthropic-400-input-plus-max-tokens", 200_000),
        ("compat-context-1", 131_072),
        ("compat-context-4", 262_144),
        ("copilot-context", 128_000),
        ("gemini-400-tokens", 131_072),
        ("gemini-400-tokens-noparen", 1_048_576),
        ("groq-413-tpm", 12_000),
        ("mistral-context", 131_072),
        ("openai-400-context-functions", 8_192),
        ("openai-429-request-too-large", 30_000),
        ("vllm-400-context", 4_096),
        ("vllm-400-input-length", 262_144),
    ];
    let expected = expected.map(|(id, window)| (id.to_owned(), window));
    assert_eq!(stated(corpus), expected);
    assert_eq!(overflows(corpus).len(), 25);
}

#[test]
fn error_without_body_is_overflow_even_when_wrapped() {
    let corpus = include_str!("../../../../corpus/errors.jsonl");
    let all = overflows(corpus);
    for wanted in ["nobody-400", "gw-wrapped-nobody"] {
        let (_, failure) = all.iter().find(|(id, _)| id == wanted).unwrap();
        assert_eq!(classify(failure).cause, Cause::ContextOverflow, "{wanted}");
    }
}

#[test]
fn conditions_corpus_overflows_state_expected_windows() {
    let corpus = include_str!("../../../../corpus/conditions.jsonl");
    let expected = [
        ("anthropic-a4", 200_000),
        ("openai-o5", 128_000),
        ("openrouter-r6", 32_768),
        ("xai-x1", 131_072),
        ("deepseek-d3", 65_536),
        ("vllm-v1", 8_192),
        ("llama.cpp-c1", 8_192),
        ("openai-compatible-t13", 128_000),
        ("litellm-h17", 8_192),
    ];
    let expected = expected.map(|(id, window)| (id.to_owned(), window));
    assert_eq!(stated(corpus), expected);
}
