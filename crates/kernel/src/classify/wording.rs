//! What a message talks about: topics, found by their phrases in one pass.
//!
//! This is data for the text rules, the last resort of the classifier. What stands in quotes is not read: it is most
//! often the user's own text, sent back. Invariant: the work is linear in the message.

use aho_corasick::AhoCorasick;
use arrayvec::ArrayVec;
use std::sync::LazyLock;

macro_rules! topics {
    ($($(#[$doc:meta])* $name:ident: [$($phrase:literal),* $(,)?];)*) => {
        /// Something that a message can be about.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub(super) enum Topic {
            $($(#[$doc])* $name,)*
        }

        const PHRASES: &[(&str, Topic)] = &[$($(($phrase, Topic::$name),)*)*];
    };
}

// Phrases are in lower case, with spaces for underscores; one that ends in `*` may go on with more letters.
topics! {
    /// Somebody stopped it.
    Stopped: [
        "aborterror", "operation was aborted", "request was aborted", "request aborted", "aborted by", "user aborted",
        "was canceled", "was cancelled", "request canceled", "request cancelled", "retry cancelled", "retry canceled",
        "canceled by", "cancelled by", "context canceled", "interrupted by user", "user interrupt", "keyboardinterrupt",
        "cancellederror",
    ];
    /// A safety system refused.
    Filtered: [
        "content filter*", "content policy", "content management policy", "content safety", "content moderation",
        "usage policy", "usage policies", "violate our", "violates our", "responsible ai*", "flagged", "moderation",
        "safety filter*", "safety system*", "safety settings", "blocked by safety", "prohibited content",
        "blocked by content", "cyber policy", "harmful content", "recitation", "guardrail*", "data inspection failed",
    ];
    /// Pictures and other media.
    Media: ["image*", "video*", "audio*", "pdf*", "document pages", "media", "attachment*", "file size"];
    /// Bytes rather than tokens.
    Bytes: [
        "payload too large", "entity too large", "payload size", "request body", "request size", "body size", "content too large",
        "bytes", "body is too large", "request too large",
    ];
    /// More than one request's share of a rate.
    LargerThanBucket: ["request too large for", "tokens must be reduced", "reduce your message size", "request exceeds the rate limit"];
    /// The room that a conversation has.
    Context: [
        "context length", "context window", "context size", "context limit", "context budget", "input token*",
        "prompt token*", "prompt length", "input length", "token count", "tokens in request", "max tokens allowed",
        "maximum number of tokens", "maximum tokens", "max prompt tokens", "number of tokens", "token limit", "prompt contains",
        "prompt is", "the prompt", "input is", "the input", "your input", "messages length", "too many messages",
        "too many tokens", "total tokens", "sequence length", "model length", "n ctx", "conversation is",
    ];
    /// Too much of it.
    Exceeds: [
        "exceed*", "too long", "too large", "longer than", "greater than", "more than", "larger than", "over the limit",
        "overflow*", "must be less than", "must be at most", "surpass*", "reached the limit", "> ",
        "reduce the length", "shorten",
    ];
    /// Wordings that say both at once.
    ContextFull: [
        "prompt exceeds", "input exceeds", "exceeds max length", "max length exceeded", "exceeds the model", "messages exceed", "conversation exceeds", "exceeds the maximum length",
        "maximum context length", "prompt is too long", "prompt too long", "input is too long", "input too long",
        "context length exceeded", "context window exceeded", "exceeds context", "exceed context", "context overflow*",
        "ran out of context", "out of context window", "context window is full", "conversation is too long",
        "reduce the length of the messages", "reduce the length of your", "maximum prompt length",
        "too many tokens in", "exceeds the available context", "larger than the context", "context length is only",
        "maximum input length", "string too long", "too many input tokens", "model max prompt tokens",
    ];
    /// A limit on what is written, not on what is read.
    OutputCap: ["number of output tokens", "max tokens:", "output tokens for", "max output tokens", "maximum output", "completion tokens limit"];
    /// A ceiling on money.
    Spend: [
        "spend limit", "spending limit", "spend cap", "spending cap", "monthly limit", "monthly usage", "monthly quota", "monthly spend",
        "monthly budget", "billing cycle", "billing period", "next cycle", "next month", "per month", "this month", "hard limit",
        "billing hard limit", "credit limit",
    ];
    /// No money left.
    Credit: [
        "credits are depleted", "credits depleted", "credits exhausted", "credits are exhausted", "no remaining credits", "credits have been",
        "credit balance", "insufficient balance", "insufficient credit*", "insufficient funds", "insufficient quota", "out of credits",
        "run out of credits", "used all available credits", "no credits", "more credits", "add credits", "purchase credits",
        "buy credits", "not enough credits", "not enough balance", "balance is too low", "balance is insufficient", "balance is not enough",
        "can only afford", "payment required", "payment method", "overdue", "in arrears", "arrearage", "top up", "recharge", "prepaid",
        "account is suspended", "account has been suspended", "account suspended", "account status", "billing is not active",
        "billing not active", "billing issue", "enable billing", "no active subscription", "subscription has expired",
        "subscription expired", "trial has ended", "trial expired", "余额不足", "欠费",
    ];
    /// Wording that is about money for some and about a rate for others.
    PlanOrBilling: ["check your plan and billing", "plan and billing details", "billing details"];
    /// A feature that the plan does not have.
    NotInPlan: [
        "credits are required for", "credits required for", "usage not included", "not included in your", "not available on your plan",
        "not available in your plan", "requires a paid", "requires a subscription", "upgrade your plan to", "upgrade to use", "not entitled",
        "does not include", "doesn't include", "plan does not support",
    ];
    /// A plan's window.
    Usage: [
        "usage limit*", "hit your limit", "hit your usage", "reached your limit", "your limit", "session limit", "hour limit", "-hour limit", "-day limit", "-week limit", "-hour usage", "-hour quota",
        "weekly limit", "day limit", "daily limit", "plan limit", "free usage", "free tier limit", "free quota", "allocated quota",
        "quota exceeded", "exceeded quota", "exceeded your quota", "quota reached", "quota has been", "quota will",
        "quota exhausted", "exhausted your", "quota limit", "current quota", "your quota", "subscription quota", "subscription limit",
        "limit for this period", "used all the", "used up your", "rate limit window", "day rate limit", "额度", "用量", "配额",
    ];
    /// A window of a day or more.
    LongWindow: [
        "-per-day", "-per-week", "per week",
        "per day", "per-day", "perday", "daily", "weekly", "week quota", "1-week", "24-hour", "24 hour", "5-hour", "5 hour", "7-day", "7 day",
        "tpd", "rpd", "每日", "每周",
    ];
    /// Too much in a short time.
    Rate: [
        "rate limit*", "rate-limit*", "ratelimit*", "too many requests", "too many request", "throttl*", "per minute", "per min", "per-minute",
        "per second", "per hour", "perminute", "requests per", "tokens per", "tpm", "rpm", "qps", "concurrency limit*", "concurrent request*",
        "too many concurrent", "max concurrency", "maximum concurrency", "request rate", "please wait before", "requests rate", "request limit",
        "too quickly", "too fast", "too frequent*", "slow down", "请求过于频繁", "限流", "速率限制",
    ];
    /// A short time, by name.
    ShortWindow: [
        "-per-min*", "-per-second","per minute", "per min", "per-minute", "per second", "perminute", "persecond", "tpm", "rpm", "qps"];
    /// No room at the provider.
    Overload: [
        "overload*", "over capacity", "at capacity", "no capacity", "capacity available", "capacity exceeded", "capacity exhausted",
        "insufficient capacity", "not enough capacity", "capacity constraint*", "capacity issue", "capacity limit*", "capacity is",
        "high demand", "heavy load", "high load", "high traffic", "heavy traffic", "server busy", "server is busy",
        "servers are busy", "service is busy", "system is busy", "site is busy", "too busy", "is busy", "no slot*",
        "slots available", "no available", "no healthy", "no more data centers", "not ready yet", "pending requests", "queue is full",
        "queue full", "temporarily unavailable", "service unavailable", "服务繁忙", "繁忙", "过载",
    ];
    /// Certificates and the like, which do not heal.
    TlsConfig: [
        "certificate", "self signed", "self-signed", "issuer cert*", "unable to verify", "cert authority", "hostname mismatch",
        "cert has expired", "err tls cert*", "unknown ca", "depth zero",
    ];
    /// The wiring is wrong.
    Miswired: [
        "proxy authentication", "invalid url", "unsupported protocol", "unsupported scheme", "expected application*", "content-type",
        "content type", "no space left", "enospc", "eacces", "permission denied (os error", "more system memory", "out of memory",
        "cuda error", "no such host is configured", "method not allowed", "base url",
    ];
    /// A fault in a program.
    Bug: [
        "typeerror", "referenceerror", "attributeerror", "keyerror", "nullpointerexception", "index out of range", "index out of bounds", "cannot read propert*", "undefined is not", "is not defined","panic:", "panicked at", "nil pointer", "null pointer", "segmentation fault", "stack overflow", "assertion failed", "is not a function"];
    /// The credential.
    Auth: [
        "api key", "api-key", "apikey", "unauthorized", "unauthorised", "unauthenticated", "authentication", "authenticate", "oauth token",
        "access token", "token has expired", "token expired", "token is expired", "token revoked", "token is invalid", "invalid token",
        "security token", "credentials", "/login", "log in", "not logged in", "sign in", "invalid key", "invalid grant", "expired token",
        "signature", "bearer",
    ];
    /// The right to do it.
    Permission: [
        "permission", "forbidden", "not allowed", "access denied", "accessdenied*", "no access", "not authorized", "not permitted",
        "not supported for the api", "country, region", "unsupported country", "region", "you have been blocked", "organization has been disabled",
        "account was terminated", "account has been disabled", "must be a member",
    ];
    /// A model.
    Model: ["model", "models", "deployment", "inference profile", "engine"];
    /// It is not there.
    Missing: [
        "not found", "does not exist", "doesn't exist", "no such", "unknown", "not available", "not supported", "isn't supported", "isn’t supported",
        "unsupported", "is invalid", "not deployed", "decommissioned", "deprecated", "retired", "not a valid model", "invalid model", "no endpoints found",
    ];
    /// A program that is not installed.
    NoProgram: ["command not found", "not found in path", "executable file not found", "enoent", "no such file or directory", "missing binary"];
    /// The request is wrong.
    Invalid: [
        "invalid request", "bad request", "invalid param*", "invalid argument", "invalid value", "invalid schema", "invalid json", "unknown parameter",
        "unrecognized", "missing required", "required field", "must be", "must alternate", "must have", "malformed request", "validation error",
        "validationexception", "not a valid", "schema depth", "expected a", "unprocessable", "must not", "invalid content", "ids were found without",
    ];
    /// Silence on an open stream.
    Stall: [
        "stalled", "idle timeout", "no data received", "no activity", "waiting for the first event", "waiting for first", "timed out while waiting",
        "timed out waiting", "no response from", "stream timed out", "inactivity", "stream idle",
    ];
    /// A stream that ended before its time.
    Cut: [
        "stream ended", "stream closed", "stream disconnected", "disconnected before", "closed before", "premature close", "premature end", "prematurely",
        "unexpected end of", "unexpected eof", "unexpectedeof", "incomplete json", "unterminated string", "unterminated json", "incomplete chunked",
        "incomplete message", "incomplete response", "incomplete read", "incompleteread", "message body", "before message completed", "before completion", "truncated",
        "could not parse", "error decoding response", "decompression failed", "unexpected end of json", "json parse error", "failed to parse stream",
        "before message stop", "without a finish reason", "connection closed mid",
    ];
    /// The way to the provider.
    Network: [
        "econnreset", "econnrefused", "econnaborted", "etimedout", "epipe", "enotfound", "eai again", "enetunreach", "ehostunreach", "enetdown", "eproto",
        "socket hang up", "socket hangup", "socket connection", "socket closed", "socket disconnected", "socketerror", "other side closed", "und err*",
        "connection reset", "connection refused", "connection closed", "connection error", "connection lost", "connection aborted", "connection terminated",
        "connection timed out", "connection timeout", "connection failed", "connection was", "connection dropped", "connection interrupted", "connect timeout",
        "connecterror", "connecttimeout*", "readerror", "readtimeout*", "remoteprotocolerror", "protocolerror", "network error", "network connection", "network is unreachable",
        "network timeout", "network request failed", "networkerror", "fetch failed", "failed to fetch", "load failed", "getaddrinfo", "dns", "name resolution", "name or service not known",
        "could not resolve", "no such host", "failed to lookup", "host unreachable", "no route to host", "stream error", "stream reset", "stream was reset", "stream id", "goaway", "enhance your calm", "refused stream",
        "rst stream", "nghttp2*", "http2*", "h2 protocol", "err http2*", "broken pipe", "reset by peer", "peer closed", "error sending request", "upstream connect", "upstream request failed",
        "upstream connection", "reset before headers", "disconnect/reset", "tls handshake", "ssl handshake", "handshake failed", "handshake timeout", "bad record mac", "ssl error", "err ssl*", "terminated",
        "eof occurred", "remote end closed", "server disconnected", "remote disconnected", "can't reach", "cannot reach", "unable to connect", "failed to connect", "could not connect",
        "tunneling socket", "proxy error", "internet connection", "websocket closed", "websocket error", "unexpected disconnect",
    ];
    /// It took too long.
    Slow: ["timed out", "timeout", "time out", "deadline exceeded", "took too long", "gateway time-out"];
    /// The provider's own fault.
    Server: [
        "internal error", "internal server error", "internalservererror", "server error", "servererror", "bad gateway", "backend error", "upstream error",
        "unexpectedly stopped", "something went wrong", "error occurred while processing", "encountered an issue", "unexpected error",
        "provider returned error", "model is down", "invalid response from", "engine core", "enginecore", "loading model", "model is loading", "currently loading",
        "is starting", "is warming up", "temporary failure", "temporarily", "temporary issue", "try again later", "try again shortly", "retry your request",
        "retry the request", "please retry", "please try again", "retry delay",
    ];
    /// A ceiling of ours.
    Ceiling: [
        "budget has been exceeded", "over budget", "exceeded the budget", "exceeds the budget","budget exceeded", "budget ceiling", "budget exhausted", "cost ceiling", "cost limit", "token budget", "max turns", "maximum turns"];
    /// A test suite.
    Tests: ["--- fail:", "tests failed", "test failed", "failing tests", "test suite failed"];
}

/// What leads over to a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cue {
    /// A length of time, with its unit.
    In,
    /// A length of time, in seconds where no unit follows.
    After,
    /// A number of milliseconds.
    AfterMillis,
    /// A moment.
    At,
}

const CUES: &[(&str, Cue)] = &[
    ("again in", Cue::In),
    ("retry in", Cue::In),
    ("retrying in", Cue::In),
    ("retry after", Cue::After),
    ("retry-after:", Cue::After),
    ("retry-after=", Cue::After),
    ("retry-after ", Cue::After),
    ("retry-after-ms", Cue::AfterMillis),
    ("again after", Cue::In),
    ("wait", Cue::In),
    ("wait for", Cue::In),
    ("reset after", Cue::In),
    ("resets after", Cue::In),
    ("reset in", Cue::In),
    ("resets in", Cue::In),
    ("available in", Cue::In),
    ("available again in", Cue::In),
    ("again at", Cue::At),
    ("retry at", Cue::At),
    ("reset at", Cue::At),
    ("resets at", Cue::At),
    ("reset on", Cue::At),
    ("resets on", Cue::At),
    ("resets", Cue::At),
    ("available at", Cue::At),
    ("until", Cue::At),
    ("limit reached|", Cue::At),
];

/// More cues than this are not looked at.
const MOST_CUES: usize = 16;

/// A message, read once.
#[derive(Clone, Debug)]
pub(crate) struct Wording {
    text: String,
    topics: u64,
    cues: ArrayVec<(Cue, usize), MOST_CUES>,
}

impl Wording {
    /// Reads a message.
    pub(crate) fn read(message: &str) -> Self {
        let mut wording = Self {
            text: unquoted(message),
            topics: 0,
            cues: ArrayVec::new(),
        };
        let scanner = SCANNER.as_ref();
        for found in scanner
            .into_iter()
            .flat_map(|scanner| scanner.find_overlapping_iter(&wording.text))
        {
            let index = found.pattern().as_usize();
            let (stem, meaning) = meaning(index);
            if !stands_alone(wording.text.as_bytes(), (found.start(), found.end()), stem) {
                continue;
            }
            match meaning {
                Meaning::About(topic) => wording.topics |= 1 << topic as u8,
                Meaning::Leads(cue) => {
                    // Beyond the limit nothing more is looked at.
                    wording.cues.try_push((cue, found.end())).ok();
                }
            }
        }
        wording
    }

    /// Whether the message is about that.
    pub(super) fn is_about(&self, topic: Topic) -> bool {
        self.topics & (1 << topic as u8) != 0
    }

    /// What follows each cue, in lower case.
    pub(crate) fn after_cues(&self) -> impl Iterator<Item = (Cue, &str)> {
        self.cues
            .iter()
            .map(|(cue, end)| (*cue, &self.text[*end..]))
    }
}

enum Meaning {
    About(Topic),
    Leads(Cue),
}

fn meaning(index: usize) -> (bool, Meaning) {
    match index.checked_sub(PHRASES.len()) {
        None => (
            PHRASES[index].0.ends_with('*'),
            Meaning::About(PHRASES[index].1),
        ),
        Some(cue) => (false, Meaning::Leads(CUES[cue].1)),
    }
}

/// The phrases are ours, few and short, so it is always built.
static SCANNER: LazyLock<Option<AhoCorasick>> = LazyLock::new(|| {
    let phrases = PHRASES
        .iter()
        .map(|(phrase, _)| phrase.trim_end_matches('*'));
    AhoCorasick::new(phrases.chain(CUES.iter().map(|(cue, _)| *cue))).ok()
});

/// Whether a phrase is not part of longer words: `terminated` is not in `null-terminated`, nor `500` in `4500`.
fn stands_alone(text: &[u8], (start, end): (usize, usize), stem: bool) -> bool {
    let in_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    let joined = |left: u8, right: u8| in_word(left) && right.is_ascii_alphanumeric();
    let before = start
        .checked_sub(1)
        .is_some_and(|at| joined(text[at], text[start]));
    let after = text
        .get(end)
        .is_some_and(|byte| byte.is_ascii_alphanumeric() && text[end - 1].is_ascii_alphanumeric());
    !before && (stem || !after)
}

/// The message in lower case, with spaces for underscores and for everything in quotes.
fn unquoted(message: &str) -> String {
    let mut out = String::with_capacity(message.len());
    let mut rest = message;
    while let Some(c) = rest.chars().next() {
        let tail = &rest[c.len_utf8()..];
        let opens = matches!(c, '"' | '`' | '“')
            || (c == '\'' && !out.ends_with(|before: char| before.is_alphanumeric()));
        if let Some(length) = opens.then(|| quoted_length(c, tail)).flatten() {
            out.push(' ');
            rest = &tail[length..];
            continue;
        }
        out.push(if c == '_' {
            ' '
        } else {
            c.to_ascii_lowercase()
        });
        rest = tail;
    }
    out
}

/// How long a quotation is, with its closing mark; `None` when it does not close soon.
fn quoted_length(open: char, text: &str) -> Option<usize> {
    const LONGEST_QUOTATION: usize = 2000;
    let close = if open == '“' { '”' } else { open };
    let mut before = open;
    for (at, c) in text
        .char_indices()
        .take_while(|(at, _)| *at < LONGEST_QUOTATION)
    {
        let end = at + c.len_utf8();
        let apostrophe = close == '\'' && text[end..].starts_with(char::is_alphanumeric);
        if c == close && before != '\\' && !apostrophe {
            return Some(end);
        }
        before = c;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_in_quotes_is_not_read() {
        let table = [
            (
                "invalid content: 'please explain the rate limit header'",
                Topic::Rate,
            ),
            ("Unknown parameter: 'timeout'.", Topic::Slow),
            ("field `overloaded` is unknown", Topic::Overload),
            ("bad value \"it's overloaded\"", Topic::Overload),
        ];
        for (message, topic) in table {
            assert!(!Wording::read(message).is_about(topic), "{message}");
        }
        assert!(Wording::read("You've hit your usage limit, it's over").is_about(Topic::Usage));
        assert!(Wording::read("isn't the server overloaded? it isn't").is_about(Topic::Overload));
    }

    #[test]
    fn phrases_are_whole_words() {
        assert!(!Wording::read("string must be null-terminated").is_about(Topic::Network));
        assert!(Wording::read("TypeError: terminated").is_about(Topic::Network));
        assert!(Wording::read("overloaded_error").is_about(Topic::Overload));
        assert!(!Wording::read("unexceeded").is_about(Topic::Exceeds));
    }

    #[test]
    fn there_are_at_most_sixty_four_topics() {
        assert!((Topic::Tests as u8) < 64);
        let starred = PHRASES
            .iter()
            .filter(|(phrase, _)| phrase.trim_end_matches('*').is_empty());
        assert_eq!(starred.count(), 0);
    }
}
