use super::*;
use crate::Timestamp;
use crate::failure::Phase;
use proptest::prelude::*;

const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

fn http(status: u16) -> Failure {
    Failure::http("p", status, "whatever", NOW)
}

fn thrown(message: &str) -> Failure {
    Failure::thrown("p", message, NOW)
}

fn cause(failure: &Failure) -> Cause {
    classify(failure).cause
}

#[test]
fn http_statuses_map_to_classes() {
    for status in [
        408, 409, 424, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529,
    ] {
        assert_eq!(
            classify(&http(status)).class(),
            Class::Transient,
            "{status}"
        );
    }
    for status in [400, 401, 402, 403, 404, 405, 407, 413, 418, 422, 501, 505] {
        assert_eq!(
            classify(&http(status)).class(),
            Class::Deterministic,
            "{status}"
        );
    }
    assert_eq!(classify(&http(499)).class(), Class::Canceled);
}

#[test]
fn error_code_outweighs_status() {
    // Some endpoints send an overload as 429.
    assert_eq!(
        cause(&http(429).with_code("overloaded_error")),
        Cause::Overloaded
    );
    assert_eq!(
        cause(&http(429).with_code("insufficient_quota")),
        Cause::Billing
    );
    assert_eq!(
        cause(&http(400).with_code("ThrottlingException")),
        Cause::RateLimited
    );
    let window = http(429).with_code("rate_limit_error");
    let window = window.with_headers([("anthropic-ratelimit-unified-status", "rejected")]);
    assert_eq!(cause(&window), Cause::UsageLimit);
}

#[test]
fn rate_limit_code_keeps_terminal_status_terminal() {
    for status in [401, 402, 404, 413] {
        let failure = http(status).with_code("rate_limit_exceeded");
        assert_ne!(classify(&failure).class(), Class::Transient, "{status}");
    }
    let in_flight = http(402).with_headers([("retry-after", "3")]);
    assert_eq!(cause(&in_flight), Cause::RateLimited);
}

#[test]
fn preset_verdict_is_returned_unchanged() {
    let verdict = Verdict::new(Cause::ContextOverflow, Scope::Request);
    assert_eq!(classify(&http(529).with_verdict(verdict.clone())), verdict);
}

#[test]
fn factless_error_is_transient_if_thrown_not_if_emitted() {
    assert_eq!(classify(&thrown("?")).class(), Class::Transient);
    assert_eq!(
        classify(&Failure::emitted("p", "?", NOW)).class(),
        Class::Deterministic
    );
}

#[test]
fn every_verdict_has_evidence() {
    let table = [
        (http(529), "status: 529"),
        (http(429).with_code("slow_down"), "code: slow_down"),
        (thrown("x").with_io(IoKind::Reset), "io: reset"),
        (thrown("read ECONNRESET"), "text: the connection"),
        (thrown("?"), "transport: no facts"),
    ];
    for (failure, expected) in table {
        let verdict = classify(&failure);
        let found: Vec<String> = verdict
            .evidence
            .iter()
            .map(|seen| format!("{}: {}", seen.source, seen.found))
            .collect();
        assert_eq!(found, [expected]);
    }
}

/// The wordings that every agent retries, as texts of errors that a client raised.
#[test]
fn common_transient_messages_are_classified_transient() {
    let texts = [
        "overloaded",
        "Overloaded",
        "overloaded_error",
        "rate limit",
        "rate_limit_error",
        "rate-limited",
        "usage limit reached",
        "too many requests",
        "429",
        "500",
        "502",
        "503",
        "504",
        "429 status code",
        "500 internal",
        "502 Bad Gateway",
        "error 503",
        "status 504",
        "service unavailable",
        "Service Unavailable",
        "server error",
        "internal error",
        "Internal Server Error",
        "connection error",
        "Connection error.",
        "fetch failed",
        "TypeError: fetch failed",
        "retry delay 5s",
        "please retry after 10s",
        "try again in 5s",
    ];
    for text in texts {
        assert_eq!(classify(&thrown(text)).class(), Class::Transient, "{text}");
    }
}

/// Messages that rules of text and number misjudge, with the correct class.
const MISJUDGED: &[(&str, Class)] = &[
    (
        "401 Invalid key; request id req_5003 internal error",
        Class::Deterministic,
    ),
    (
        "400 invalid: max_tokens must be <= 4096, got 50000",
        Class::Deterministic,
    ),
    (
        "403 Your account was terminated for policy violation",
        Class::Deterministic,
    ),
    (
        "429 You exceeded your current quota, insufficient_quota",
        Class::Deterministic,
    ),
    (
        "You have hit your ChatGPT usage limit (plus plan). Try again in ~4500 min.",
        Class::Transient,
    ),
    (
        "model_not_found: The model `x-20500101` does not exist",
        Class::Deterministic,
    ),
    (
        "402 This request requires more credits. You requested up to 65500 tokens",
        Class::Deterministic,
    ),
    (
        "Anthropic stream ended before message_stop",
        Class::Transient,
    ),
    ("read ECONNRESET", Class::Transient),
    ("connect ECONNREFUSED 127.0.0.1:443", Class::Transient),
    ("ETIMEDOUT", Class::Transient),
    ("write EPIPE", Class::Transient),
    ("Premature close", Class::Transient),
    ("UND_ERR_SOCKET", Class::Transient),
    ("getaddrinfo ENOTFOUND api.anthropic.com", Class::Transient),
    ("getaddrinfo EAI_AGAIN api.anthropic.com", Class::Transient),
    ("522 status code (no body)", Class::Transient),
    ("529 Site is busy", Class::Transient),
    ("409 conflict", Class::Transient),
    ("425 too early", Class::Transient),
    (
        "Throttling error: Too many tokens, please wait before trying again.",
        Class::Transient,
    ),
    (
        "ThrottlingException: Too many tokens, please wait before trying again.",
        Class::Transient,
    ),
    ("429 Too many tokens per minute", Class::Transient),
    (
        "Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 31000",
        Class::BudgetExhausted,
    ),
    (
        "413 Payload Too Large: image exceeds 5 MB",
        Class::Deterministic,
    ),
    (
        "image exceeds the limit of 5242880 bytes",
        Class::Deterministic,
    ),
    // Some servers refuse a conversation that is too long without a word.
    ("400 status code (no body)", Class::BudgetExhausted),
    ("413 status code (no body)", Class::BudgetExhausted),
    (
        "Error from inference backend: 400 status code (no body)",
        Class::BudgetExhausted,
    ),
    (
        "400 Too many messages: 2100, the maximum is 2048",
        Class::BudgetExhausted,
    ),
    (
        "400 The number of messages exceeds the limit of 500",
        Class::BudgetExhausted,
    ),
    (
        "400 messages: at most 100000 messages may be sent in a request",
        Class::BudgetExhausted,
    ),
    (
        "Message count 1200 exceeds the maximum of 1000",
        Class::BudgetExhausted,
    ),
    ("429 Too many messages. Please slow down.", Class::Transient),
    (
        "429 Too many messages sent, please try again later",
        Class::Transient,
    ),
    ("Could not parse Anthropic SSE event", Class::Transient),
    ("Unexpected end of JSON input", Class::Transient),
    ("400 Unknown parameter: 'timeout'.", Class::Deterministic),
    (
        "400 messages.3: invalid content: 'please explain the rate limit header'",
        Class::Deterministic,
    ),
    ("404 model not found (request 503)", Class::Deterministic),
    ("400 string must be null-terminated", Class::Deterministic),
    (
        "529 overloaded_error, see docs/authentication",
        Class::Transient,
    ),
    ("HTTP 401: invalid x-api-key", Class::Deterministic),
    ("credit balance is too low", Class::Deterministic),
    ("insufficient_quota", Class::Deterministic),
    ("model not found", Class::Deterministic),
    ("write /data/x: ENOSPC", Class::Deterministic),
    (
        "panic: runtime error: nil pointer dereference",
        Class::Deterministic,
    ),
    (
        "maximum context length is 128000 tokens",
        Class::BudgetExhausted,
    ),
    ("budget exceeded: 5.02 of 5.00 USD", Class::BudgetExhausted),
    ("rate limit: unauthorized burst", Class::Transient),
    (
        "rate limit exceeded while running npm test x",
        Class::Transient,
    ),
];

#[test]
fn ambiguous_messages_are_classified_correctly() {
    for (text, class) in MISJUDGED {
        assert_eq!(classify(&thrown(text)).class(), *class, "{text}");
    }
}

#[test]
fn overflow_is_distinguished_from_similar_limits() {
    let table = [
        (
            "prompt is too long: 210000 tokens > 200000 maximum",
            Cause::ContextOverflow,
        ),
        (
            "Prompt is too long · the rest is tool definitions and attachment content",
            Cause::ContextOverflow,
        ),
        ("Too many tokens, please wait", Cause::RateLimited),
        ("tokens per minute limit exceeded", Cause::RateLimited),
        (
            "payload size exceeds the limit: 20000000 bytes",
            Cause::PayloadTooLarge,
        ),
        (
            "Prompt tokens limit exceeded: 230799 > 91442. create a key with a higher monthly limit",
            Cause::Billing,
        ),
        ("context deadline exceeded", Cause::Timeout),
        ("maximum schema depth exceeded", Cause::InvalidRequest),
    ];
    for (text, expected) in table {
        assert_eq!(cause(&thrown(text)), expected, "{text}");
    }
    let output = Failure::http(
        "p",
        400,
        "max_tokens: 64000 > 8192, the maximum allowed number of output tokens",
        NOW,
    );
    assert_eq!(cause(&output), Cause::InvalidRequest);
}

#[test]
fn seconds_long_retry_delay_on_daily_quota_is_ignored() {
    let mut failure = http(429).with_code("RESOURCE_EXHAUSTED");
    failure.fields = vec![
        (
            "quotaid".to_owned(),
            "GenerateRequestsPerDayPerProject".to_owned(),
        ),
        ("retrydelay".to_owned(), "10s".to_owned()),
    ];
    assert_eq!(classify(&failure).hint, None);
    failure.fields[1].1 = "3600s".to_owned();
    assert!(classify(&failure).hint.is_some());
}

const TERMINAL: [u16; 11] = [400, 401, 402, 403, 404, 405, 406, 410, 413, 415, 422];
const PHRASES: [&str; 16] = [
    "overloaded",
    "rate limit exceeded",
    "please retry",
    "try again in 5s",
    "429",
    "503 service unavailable",
    "ECONNRESET",
    "connection refused",
    "timed out",
    "usage limit reached, resets at 5am",
    "server error",
    "stream disconnected",
    "throttled",
    "too many requests",
    "stalled",
    "internal error",
];

fn any_text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        any::<String>(),
        prop::sample::select(&PHRASES).prop_map(str::to_owned)
    ];
    prop::collection::vec(piece, 0..4).prop_map(|pieces| pieces.join(" "))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_text_makes_a_terminal_4xx_retryable(
        status in prop::sample::select(&TERMINAL),
        code in prop::option::of(prop::sample::select(vec!["invalid_request_error", "api_error", "whatever", "not_found_error"])),
        (before, after) in (any_text(), any_text()),
    ) {
        let mut failure = Failure::http("p", status, &format!("{before}refused{after}"), NOW);
        failure.code = code.map(str::to_owned);
        prop_assert_ne!(classify(&failure).class(), Class::Transient);
    }

    #[test]
    fn message_text_never_overrides_exact_code(
        status in prop::sample::select(vec![200_u16, 400, 403, 429, 500]),
        code in prop::sample::select(vec!["overloaded_error", "insufficient_quota", "context_length_exceeded", "invalid_api_key", "model_not_found"]),
        text in any_text(),
    ) {
        let bare = Failure { message: String::new(), ..http(status).with_code(code) };
        let talking = Failure { message: text, ..bare.clone() };
        prop_assert_eq!(classify(&bare).cause, classify(&talking).cause);
    }

    #[test]
    fn any_failure_is_classified_without_panic(
        message in any::<String>(),
        status in prop::option::of(any::<u16>()),
        code in prop::option::of(any::<String>()),
        headers in prop::collection::vec((any::<String>(), any::<String>()), 0..4),
        offset in any::<i16>(),
        at in any::<u64>(),
    ) {
        let failure = Failure {
            message,
            status,
            code,
            headers,
            local_offset_minutes: offset,
            at: Timestamp::from_millis(at),
            phase: Phase::BeforeContent,
            ..thrown("")
        };
        classify(&failure);
    }
}
