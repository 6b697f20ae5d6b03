//! Refusals of what a request is: too long, too many bytes, too slow, or ending with the wrong words.

use super::Refusal;
use crate::facts::Facts;
use crate::reply::Act;
use outlast_dialect::{Dialect, Problem};

/// What is said against a request, or `None` when there is nothing against it.
pub(crate) fn for_request(act: &Act, dialect: Dialect, facts: &Facts) -> Option<Refusal> {
    match *act {
        Act::Window { limit } => {
            (facts.tokens > limit).then(|| window(dialect, facts.tokens, limit))
        }
        Act::TooLarge { limit } => {
            (facts.bytes > limit).then(|| too_large(dialect, facts.bytes, limit))
        }
        Act::BodyTimeout => Some(body_timeout(dialect)),
        Act::NoPrefill => facts.conversation.is_prefilled.then(no_prefill),
        _ => None,
    }
}

fn window(dialect: Dialect, tokens: u64, limit: u64) -> Refusal {
    let message = match dialect {
        Dialect::Anthropic => format!("prompt is too long: {tokens} tokens > {limit} maximum"),
        Dialect::OpenaiChat => format!(
            "This model's maximum context length is {limit} tokens. However, your messages resulted in {tokens} \
             tokens. Please reduce the length of the messages."
        ),
        Dialect::OpenaiResponses => format!(
            "Input tokens exceed the configured limit of {limit} tokens. Your messages resulted in {tokens} tokens. \
             Please reduce the length of the messages."
        ),
    };
    let problem = Problem::new("invalid_request_error", &message);
    Refusal::new(
        400,
        match dialect {
            Dialect::Anthropic => problem,
            _ => problem.with_code("context_length_exceeded"),
        },
    )
}

fn too_large(dialect: Dialect, bytes: usize, limit: usize) -> Refusal {
    let problem = match dialect {
        Dialect::Anthropic => Problem::new(
            "request_too_large",
            "Request exceeds the maximum allowed number of bytes.",
        ),
        Dialect::OpenaiChat | Dialect::OpenaiResponses => {
            let message =
                format!("Maximum request body size {limit} exceeded, actual body size {bytes}");
            Problem::new("invalid_request_error", &message)
        }
    };
    Refusal::new(413, problem)
}

fn body_timeout(dialect: Dialect) -> Refusal {
    let message = "Timed out reading request body. Try again, or use a smaller request size.";
    let problem = match dialect {
        Dialect::Anthropic => Problem::new("timeout_error", message),
        Dialect::OpenaiChat | Dialect::OpenaiResponses => {
            Problem::new("invalid_request_error", message).with_code("user_request_timeout")
        }
    };
    Refusal::new(408, problem)
}

fn no_prefill() -> Refusal {
    let message = "This model does not support assistant message prefill. The conversation must end with a user \
                   message.";
    Refusal::new(400, Problem::new("invalid_request_error", message))
}
