//! Errors that depend on the request: too many tokens, too many bytes, too slow, or ending with an assistant message.

use super::ErrorResponse;
use crate::reply::Action;
use crate::request_facts::RequestFacts;
use outlast_dialect::{ApiError, Dialect};

/// Returns the error for a request, or `None` when the request is acceptable.
pub(crate) fn for_request(
    act: &Action,
    dialect: Dialect,
    facts: &RequestFacts,
) -> Option<ErrorResponse> {
    match *act {
        Action::Window { limit } => {
            (facts.tokens > limit).then(|| context_window_exceeded(dialect, facts.tokens, limit))
        }
        Action::TooLarge { limit } => {
            (facts.bytes > limit).then(|| body_too_large(dialect, facts.bytes, limit))
        }
        Action::BodyTimeout => Some(body_timeout(dialect)),
        Action::NoPrefill => facts.conversation.is_prefilled.then(no_prefill),
        _ => None,
    }
}

fn context_window_exceeded(dialect: Dialect, tokens: u64, limit: u64) -> ErrorResponse {
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
    let problem = ApiError::new("invalid_request_error", &message);
    ErrorResponse::new(
        400,
        match dialect {
            Dialect::Anthropic => problem,
            _ => problem.with_code("context_length_exceeded"),
        },
    )
}

fn body_too_large(dialect: Dialect, bytes: usize, limit: usize) -> ErrorResponse {
    let problem = match dialect {
        Dialect::Anthropic => ApiError::new(
            "request_too_large",
            "Request exceeds the maximum allowed number of bytes.",
        ),
        Dialect::OpenaiChat | Dialect::OpenaiResponses => {
            let message =
                format!("Maximum request body size {limit} exceeded, actual body size {bytes}");
            ApiError::new("invalid_request_error", &message)
        }
    };
    ErrorResponse::new(413, problem)
}

fn body_timeout(dialect: Dialect) -> ErrorResponse {
    let message = "Timed out reading request body. Try again, or use a smaller request size.";
    let problem = match dialect {
        Dialect::Anthropic => ApiError::new("timeout_error", message),
        Dialect::OpenaiChat | Dialect::OpenaiResponses => {
            ApiError::new("invalid_request_error", message).with_code("user_request_timeout")
        }
    };
    ErrorResponse::new(408, problem)
}

fn no_prefill() -> ErrorResponse {
    let message = "This model does not support assistant message prefill. The conversation must end with a user \
                   message.";
    ErrorResponse::new(400, ApiError::new("invalid_request_error", message))
}
