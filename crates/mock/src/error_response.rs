//! The errors of real providers: their statuses, codes, messages and headers, in each dialect.

mod request;

use crate::reply::{HintForm, ProviderError};
use outlast_dialect::{ApiError, Dialect};
use outlast_kernel::Timestamp;
use outlast_kernel::time::millis;
pub(crate) use request::for_request;
use serde_json::{Value, json};
use std::time::Duration;

/// The default duration of a rate limit.
pub(crate) const DEFAULT_RATE_LIMIT_WAIT: Duration = Duration::from_secs(2);
/// The length of a plan's window.
pub(crate) const USAGE_WINDOW: Duration = Duration::from_secs(5 * 3600);

/// A response with an error status.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ErrorResponse {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) error: ApiError,
}

impl ErrorResponse {
    pub(crate) fn new(status: u16, error: ApiError) -> Self {
        Self {
            status,
            headers: Vec::new(),
            error,
        }
    }

    fn with_header(mut self, name: &str, value: impl ToString) -> Self {
        self.headers.push((name.to_owned(), value.to_string()));
        self
    }

    fn with_field(mut self, name: &str, value: Value) -> Self {
        self.error.fields.insert(name.to_owned(), value);
        self
    }
}

/// Returns the error as the providers of that dialect word it.
pub(crate) fn for_provider_error(
    trouble: ProviderError,
    dialect: Dialect,
    now: Timestamp,
) -> ErrorResponse {
    let (status, problem) = match (trouble, dialect) {
        (ProviderError::RateLimited, _) => {
            let form = match dialect {
                Dialect::Anthropic => HintForm::Seconds,
                _ => HintForm::Text,
            };
            return rate_limit(
                dialect,
                DEFAULT_RATE_LIMIT_WAIT,
                now + DEFAULT_RATE_LIMIT_WAIT,
                form,
            );
        }
        (ProviderError::UsageLimit, _) => {
            return usage_limit(dialect, USAGE_WINDOW, now + USAGE_WINDOW);
        }
        (_, Dialect::Anthropic) => anthropic(trouble),
        (ProviderError::Overloaded, Dialect::OpenaiResponses) => {
            let message = "Our servers are currently overloaded. Please try again later.";
            let problem = ApiError::new("service_unavailable_error", message);
            (503, problem.with_code("server_is_overloaded"))
        }
        (ProviderError::Overflow, Dialect::OpenaiResponses) => {
            let message = "Your input exceeds the context window of this model. Please adjust your input and try \
                           again.";
            let problem = ApiError::new("invalid_request_error", message);
            (400, problem.with_code("context_length_exceeded"))
        }
        (_, Dialect::OpenaiChat | Dialect::OpenaiResponses) => openai(trouble),
    };
    ErrorResponse::new(status, problem)
}

fn anthropic(trouble: ProviderError) -> (u16, ApiError) {
    let (status, kind, message) = match trouble {
        ProviderError::Overloaded => (529, "overloaded_error", "Overloaded"),
        ProviderError::ServerError => (500, "api_error", "Internal server error"),
        ProviderError::Overflow => (
            400,
            "invalid_request_error",
            "prompt is too long: 210000 tokens > 200000 maximum",
        ),
        ProviderError::Auth => (401, "authentication_error", "invalid x-api-key"),
        ProviderError::Billing => (
            400,
            "invalid_request_error",
            "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade or \
             purchase credits.",
        ),
        ProviderError::RateLimited | ProviderError::UsageLimit => {
            (429, "rate_limit_error", "Too many requests")
        }
    };
    (status, ApiError::new(kind, message))
}

fn openai(trouble: ProviderError) -> (u16, ApiError) {
    let (status, kind, code, message) = match trouble {
        ProviderError::Overloaded => {
            let message = "The engine is currently overloaded, please try again later";
            return (503, ApiError::new("server_error", message));
        }
        ProviderError::ServerError => (
            500,
            "server_error",
            "server_error",
            "The server had an error while processing your request. Sorry about that!",
        ),
        ProviderError::Overflow => (
            400,
            "invalid_request_error",
            "context_length_exceeded",
            "This model's maximum context length is 128000 tokens. However, your messages resulted in 150000 tokens. \
             Please reduce the length of the messages.",
        ),
        ProviderError::Auth => (
            401,
            "invalid_request_error",
            "invalid_api_key",
            "Incorrect API key provided.",
        ),
        ProviderError::Billing => (
            429,
            "insufficient_quota",
            "insufficient_quota",
            "You exceeded your current quota, please check your plan and billing details.",
        ),
        ProviderError::RateLimited | ProviderError::UsageLimit => {
            (429, "requests", "rate_limit_exceeded", "Too many requests")
        }
    };
    (status, ApiError::new(kind, message).with_code(code))
}

/// Returns a response with the given error status, as the dialect's providers would send it.
pub(crate) fn with_status(dialect: Dialect, status: u16, code: Option<&str>) -> ErrorResponse {
    let message = format!("The scripted provider answers with status {status}.");
    let kind = match (dialect, status) {
        (Dialect::Anthropic, 401) => "authentication_error",
        (Dialect::Anthropic, 402) => "billing_error",
        (Dialect::Anthropic, 403) => "permission_error",
        (Dialect::Anthropic, 404) => "not_found_error",
        (Dialect::Anthropic, 413) => "request_too_large",
        (Dialect::Anthropic, 429) => "rate_limit_error",
        (Dialect::Anthropic, 504) => "timeout_error",
        (Dialect::Anthropic, 529) => "overloaded_error",
        (Dialect::Anthropic, 500..) => "api_error",
        (_, 429) => "requests",
        (_, 500..) => "server_error",
        _ => "invalid_request_error",
    };
    let mut problem = ApiError::new(kind, &message);
    match (code, dialect) {
        // This dialect's errors have no code beside their type.
        (Some(code), Dialect::Anthropic) => code.clone_into(&mut problem.kind),
        (Some(code), _) => problem.code = Some(code.to_owned()),
        (None, Dialect::Anthropic) => {}
        (None, _) => problem.code = default_code(status).map(str::to_owned),
    }
    ErrorResponse::new(status, problem)
}

fn default_code(status: u16) -> Option<&'static str> {
    match status {
        401 => Some("invalid_api_key"),
        404 => Some("model_not_found"),
        429 => Some("rate_limit_exceeded"),
        _ => None,
    }
}

/// Returns a rate limit that states its end in the given form.
pub(crate) fn rate_limit(
    dialect: Dialect,
    wait: Duration,
    until: Timestamp,
    form: HintForm,
) -> ErrorResponse {
    let mut problem = match dialect {
        Dialect::Anthropic => ApiError::new(
            "rate_limit_error",
            "This request would exceed your account's rate limit. Please try again later.",
        ),
        _ => ApiError::new(
            "requests",
            "Rate limit reached for requests per min (RPM): Limit 3.",
        )
        .with_code("rate_limit_exceeded"),
    };
    if form == HintForm::Text {
        let sentence = format!(" Please try again in {}s.", decimal_seconds(wait));
        problem.message.push_str(&sentence);
    }
    let refusal = ErrorResponse::new(429, problem);
    let seconds = wait.as_millis().div_ceil(1000);
    let second = Timestamp::from_millis(until.as_millis().div_ceil(1000) * 1000);
    let bucket = match dialect {
        Dialect::Anthropic => "anthropic-ratelimit-requests",
        _ => "x-ratelimit",
    };
    match form {
        HintForm::Seconds => refusal.with_header("retry-after", seconds),
        HintForm::Millis => refusal.with_header("retry-after-ms", millis(wait)),
        HintForm::Date => refusal.with_header("retry-after", http_date(second)),
        HintForm::Reset if dialect != Dialect::Anthropic => refusal
            .with_header("x-ratelimit-remaining-requests", 0)
            .with_header("x-ratelimit-reset-requests", go_duration(wait)),
        HintForm::Reset | HintForm::Rfc3339 => {
            let second = second.to_string().replace(".000Z", "Z");
            refusal
                .with_header(&format!("{bucket}-remaining"), 0)
                .with_header(&format!("{bucket}-reset"), second)
        }
        HintForm::Epoch => refusal.with_header("x-ratelimit-remaining", 0).with_header(
            "x-ratelimit-reset",
            match dialect {
                Dialect::Anthropic => second.as_millis() / 1000,
                _ => until.as_millis(),
            },
        ),
        HintForm::Body => refusal.with_field("retry_after", json!(json_seconds(wait))),
        HintForm::Text | HintForm::Nowhere => refusal,
    }
}

/// Returns the error for a plan whose window is used up.
pub(crate) fn usage_limit(dialect: Dialect, wait: Duration, until: Timestamp) -> ErrorResponse {
    let seconds = wait.as_millis().div_ceil(1000);
    let second = Timestamp::from_millis(until.as_millis().div_ceil(1000) * 1000);
    let reset = second.as_millis() / 1000;
    if dialect == Dialect::Anthropic {
        let message = "This request would exceed your account's rate limit.";
        let refusal = ErrorResponse::new(429, ApiError::new("rate_limit_error", message));
        return with_unified_limit_headers(refusal.with_header("retry-after", seconds), second);
    }
    let message = "The usage limit has been reached";
    ErrorResponse::new(429, ApiError::new("usage_limit_reached", message))
        .with_field("plan_type", json!("plus"))
        .with_field("resets_at", json!(reset))
        .with_field(
            "resets_in_seconds",
            json!(u64::try_from(seconds).unwrap_or(u64::MAX)),
        )
        .with_header("x-codex-primary-used-percent", 100)
        .with_header("x-codex-primary-window-minutes", 300)
        .with_header("x-codex-primary-reset-after-seconds", seconds)
}

/// Adds the headers of a subscription whose window is used up.
fn with_unified_limit_headers(refusal: ErrorResponse, reset: Timestamp) -> ErrorResponse {
    let reset = reset.as_millis() / 1000;
    refusal
        .with_header("anthropic-ratelimit-unified-status", "rejected")
        .with_header("anthropic-ratelimit-unified-reset", reset)
        .with_header("anthropic-ratelimit-unified-5h-status", "rejected")
        .with_header("anthropic-ratelimit-unified-5h-reset", reset)
        .with_header(
            "anthropic-ratelimit-unified-representative-claim",
            "five_hour",
        )
}

/// Formats a time as HTTP does.
pub(crate) fn http_date(at: Timestamp) -> String {
    let millis = i64::try_from(at.as_millis()).unwrap_or(i64::MAX);
    let time = jiff::Timestamp::from_millisecond(millis).unwrap_or(jiff::Timestamp::MAX);
    time.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()
}

fn json_seconds(wait: Duration) -> Value {
    match wait.subsec_millis() {
        0 => json!(wait.as_secs()),
        _ => json!(wait.as_secs_f64()),
    }
}

/// Formats seconds, with as many decimals as are needed.
fn decimal_seconds(wait: Duration) -> String {
    match wait.subsec_millis() {
        0 => wait.as_secs().to_string(),
        millis => format!("{}.{millis:03}", wait.as_secs()),
    }
}

/// Formats a duration as programs in Go do: `28ms`, `1.5s`, `6m0s`, `1h0m0s`.
fn go_duration(wait: Duration) -> String {
    let (hours, minutes) = (wait.as_secs() / 3600, wait.as_secs() / 60 % 60);
    let rest = Duration::new(wait.as_secs() % 60, wait.subsec_nanos());
    match (hours, minutes) {
        (0, 0) if rest < Duration::from_secs(1) => format!("{}ms", millis(rest)),
        (0, 0) => format!("{}s", decimal_seconds(rest)),
        (0, minutes) => format!("{minutes}m{}s", decimal_seconds(rest)),
        (hours, minutes) => format!("{hours}h{minutes}m{}s", decimal_seconds(rest)),
    }
}

#[cfg(test)]
#[path = "error_response_tests.rs"]
mod tests;
