//! What a message talks about: topics, found by their phrases in one pass.
//!
//! This is data for the text rules, the last resort of the classifier. What stands in quotes is not read: it is most
//! often the user's own text, sent back. Invariant: the work is linear in the message.

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
        "canceled", "cancelled",
        "aborterror", "operation was aborted", "request was aborted", "request aborted", "aborted by", "user aborted",
        "was canceled", "was cancelled", "request canceled", "request cancelled", "retry cancelled", "retry canceled",
        "canceled by", "cancelled by", "context canceled", "interrupted by user", "user interrupt", "keyboardinterrupt",
        "cancellederror",
    ];
    /// A safety system refused.
    Filtered: [
        "usage guidelines", "safety check*", "content exists risk", "new sensitive", "sensitive content", "敏感", "不安全",
        "content filter*", "content policy", "content management policy", "content safety", "content moderation",
        "usage policy", "usage policies", "violate our", "violates our", "responsible ai*", "flagged", "moderation",
        "safety filter*", "safety system*", "safety settings", "blocked by safety", "prohibited content",
        "blocked by content", "cyber policy", "harmful content", "recitation", "guardrail*", "data inspection failed",
    ];
    /// Pictures and other media.
    Media: ["image*", "video*", "audio*", "pdf*", "document pages", "media", "attachment*", "file size"];
    /// Bytes rather than tokens.
    Bytes: [
        "message larger than",
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
        "less than",
        "exceed*", "too long", "too large", "longer than", "greater than", "more than", "larger than", "over the limit",
        "overflow*", "must be less than", "must be at most", "surpass*", "reached the limit",
        "reduce the length", "shorten",
    ];
    /// Wordings that say both at once.
    ContextFull: [
        "ran out of room", "out of room in", "must have less than", "tokens +", "range of input length",
        "prompt exceeds", "input exceeds", "exceeds max length", "max length exceeded", "exceeds the model", "messages exceed", "conversation exceeds", "exceeds the maximum length",
        "maximum context length", "prompt is too long", "prompt too long", "input is too long", "input too long",
        "context length exceeded", "context window exceeded", "exceeds context", "exceed context", "context overflow*",
        "ran out of context", "out of context window", "context window is full", "conversation is too long",
        "reduce the length of the messages", "reduce the length of your", "maximum prompt length",
        "too many tokens in", "exceeds the available context", "larger than the context", "context length is only",
        "maximum input length", "string too long", "too many input tokens", "model max prompt tokens",
    ];
    /// A limit on what is written, not on what is read.
    OutputCap: [
        "output token maximum", "output token limit", "output tokens maximum","number of output tokens", "max tokens:", "output tokens for", "max output tokens", "maximum output", "completion tokens limit"];
    /// A ceiling on money.
    Spend: [
        "/ month", "/month", "a month",
        "spend limit", "spending limit", "spend cap", "spending cap", "monthly limit", "monthly usage", "monthly quota", "monthly spend",
        "monthly budget", "billing cycle", "billing period", "next cycle", "next month", "per month", "this month", "hard limit",
        "billing hard limit", "credit limit",
    ];
    /// No money left.
    Credit: [
        "service has been paused", "subscription was cancel*", "subscription has been cancel*", "subscription is cancel*", "specified api usage",
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
        "usage is required", "credits are required", "does not yet include", "include access to", "limit: 0", "plan, upgrade", "plan doesn't", "plan does not",
        "credits are required for", "credits required for", "usage not included", "not included in your", "not available on your plan",
        "not available in your plan", "requires a paid", "requires a subscription", "upgrade your plan to", "upgrade to use", "not entitled",
        "does not include", "doesn't include", "plan does not support",
    ];
    /// A plan's window.
    Usage: [
        "free tier of", "has been exhausted", "volume quota", "out of extra usage", "extra usage", "out of usage", "使用上限", "上限",
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
        "too many concurrent", "max concurrency", "maximum concurrency", "request rate", "please wait", "requests rate", "request limit",
        "too quickly", "too fast", "too frequent*", "slow down", "请求过于频繁", "限流", "速率限制",
    ];
    /// A short time, by name.
    ShortWindow: [
        "#token-limit",
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
        "pkix", "certification path", "wrong version number", "altnames", "does not match certificate",
        "certificate", "self signed", "self-signed", "issuer cert*", "unable to verify", "cert authority", "hostname mismatch",
        "cert has expired", "err tls cert*", "unknown ca", "depth zero",
    ];
    /// The wiring is wrong.
    Miswired: [
        "relative url", "url without a base", "builder error", "invalid uri", "empty host",
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

/// A set of topics.
#[derive(Clone, Copy)]
pub(super) struct Topics(u64);

impl Topics {
    pub(super) const fn of(topics: &[Topic]) -> Self {
        let mut set = 0;
        let mut index = 0;
        while index < topics.len() {
            set |= 1 << topics[index] as u8;
            index += 1;
        }
        Self(set)
    }
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
    ("regain access on", Cue::At),
    ("将在", Cue::At),
    ("replenished in", Cue::In),
];

/// More cues than this are not looked at.
const MOST_CUES: usize = 16;

/// A message, read once.
#[derive(Clone, Debug)]
pub(crate) struct Wording {
    text: Vec<u8>,
    topics: u64,
    cues: ArrayVec<(Cue, usize), MOST_CUES>,
}

impl Wording {
    /// Reads a message.
    pub(crate) fn read(message: &str) -> Self {
        let text = unquoted(message);
        let (mut topics, mut cues) = (0, ArrayVec::new());
        let index = &*INDEX;
        let mut at = 0;
        while let Some(kind) = text.get(at).map(|byte| KINDS[usize::from(*byte)]) {
            if kind == Kind::Space {
                at += 1;
                continue;
            }
            for phrase in index.beginning(&text[at..]) {
                match phrase.meaning {
                    Meaning::About(topic) => topics |= 1 << topic as u8,
                    // Beyond the limit nothing more is looked at.
                    Meaning::Leads(cue) => drop(cues.try_push((cue, at + phrase.text.len()))),
                }
            }
            at += 1;
            // No phrase begins inside of a word, or after a dash that joins two.
            let joins = matches!(kind, Kind::Letter | Kind::Dash);
            while joins
                && text
                    .get(at)
                    .is_some_and(|byte| KINDS[usize::from(*byte)] == Kind::Letter)
            {
                at += 1;
            }
        }
        Self { text, topics, cues }
    }

    /// Whether the message is about any of these.
    pub(super) const fn is_about(&self, topics: Topics) -> bool {
        self.topics & topics.0 != 0
    }

    /// What follows each cue, in lower case.
    pub(crate) fn after_cues(&self) -> impl Iterator<Item = (Cue, &str)> {
        // Cues are ASCII, so what follows one is whole characters.
        self.cues
            .iter()
            .filter_map(|(cue, end)| Some((*cue, std::str::from_utf8(&self.text[*end..]).ok()?)))
    }
}

/// What a byte is to a reader of words.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Space,
    Letter,
    Dash,
    /// A mark that `unquoted` looks at.
    Special,
    Other,
}

static KINDS: [Kind; 256] = {
    let mut kinds = [Kind::Other; 256];
    let mut byte = 0_u8;
    while byte < 128 {
        kinds[byte as usize] = match byte {
            b' ' => Kind::Space,
            b'-' => Kind::Dash,
            b'_' | b'"' | b'`' | b'\'' => Kind::Special,
            byte if byte.is_ascii_alphanumeric() => Kind::Letter,
            _ => Kind::Other,
        };
        byte += 1;
    }
    kinds
};

#[derive(Clone, Copy)]
enum Meaning {
    About(Topic),
    Leads(Cue),
}

#[derive(Clone, Copy)]
struct Phrase {
    text: &'static [u8],
    /// Its fifth to twelfth byte as one number, and which of them there are: what tells the phrases of a bucket apart.
    middle: u64,
    mask: u64,
    /// Whether more letters may not follow.
    ends_in_word: bool,
    meaning: Meaning,
}

impl Phrase {
    fn new(text: &'static str, meaning: Meaning) -> Self {
        let ends_in_word = text.ends_with(|c: char| c.is_ascii_alphanumeric());
        let text = text.trim_end_matches('*').as_bytes();
        let bytes = text.len().saturating_sub(4).min(8);
        let mask = u64::MAX
            .checked_shr(64 - 8 * u32::try_from(bytes).unwrap_or(8))
            .unwrap_or(0);
        Self {
            text,
            middle: Head::of(text).middle,
            mask,
            ends_in_word,
            meaning,
        }
    }

    /// Whether the text begins with it, as whole words: `500` is not in `5000`.
    fn begins(&self, middle: u64, text: &[u8]) -> bool {
        middle & self.mask == self.middle
            && text.starts_with(self.text)
            && !(self.ends_in_word
                && text
                    .get(self.text.len())
                    .is_some_and(u8::is_ascii_alphanumeric))
    }
}

/// The first twelve bytes of a text, with zeros for those that are missing.
struct Head {
    first: [u8; 4],
    middle: u64,
}

impl Head {
    fn of(text: &[u8]) -> Self {
        let mut padded = [0; 12];
        let bytes = text.first_chunk().unwrap_or_else(|| {
            padded[..text.len()].copy_from_slice(text);
            &padded
        });
        let [a, b, c, d, middle @ ..] = *bytes;
        Self {
            first: [a, b, c, d],
            middle: u64::from_le_bytes(middle),
        }
    }

    /// A number for the first four bytes, of which the last counts only if it is a letter: the shortest phrases have
    /// three.
    fn bucket(&self) -> usize {
        let [first, second, third, fourth] = self.first;
        let fourth = if KINDS[usize::from(fourth)] == Kind::Letter {
            fourth
        } else {
            0
        };
        let key = u32::from_le_bytes([first, second, third, fourth]);
        let mixed = key.wrapping_mul(0x9E37_79B1) >> (32 - BUCKETS.ilog2());
        usize::try_from(mixed).unwrap_or_default()
    }
}

/// All phrases, in buckets by their first bytes.
struct Index {
    phrases: Vec<Phrase>,
    /// Where each bucket begins.
    starts: Box<[u16; BUCKETS + 1]>,
}

const BUCKETS: usize = 4096;

static INDEX: LazyLock<Index> = LazyLock::new(|| {
    let about = PHRASES
        .iter()
        .map(|(text, topic)| Phrase::new(text, Meaning::About(*topic)));
    let leads = CUES
        .iter()
        .map(|(text, cue)| Phrase::new(text, Meaning::Leads(*cue)));
    let mut phrases: Vec<Phrase> = about.chain(leads).collect();
    phrases.sort_by_key(|phrase| Head::of(phrase.text).bucket());
    let before = |number| phrases.partition_point(|phrase| Head::of(phrase.text).bucket() < number);
    let mut starts = Box::new([0; BUCKETS + 1]);
    for (number, start) in starts.iter_mut().enumerate() {
        *start = u16::try_from(before(number)).unwrap_or(u16::MAX);
    }
    Index { phrases, starts }
});

impl Index {
    /// The phrases that a text begins with.
    fn beginning<'a>(&'a self, text: &'a [u8]) -> impl Iterator<Item = &'a Phrase> {
        let head = Head::of(text);
        let bucket = head.bucket();
        let (start, end) = (
            usize::from(self.starts[bucket]),
            usize::from(self.starts[bucket + 1]),
        );
        self.phrases[start..end]
            .iter()
            .filter(move |phrase| phrase.begins(head.middle, text))
    }
}

/// The message in lower case, with spaces for underscores and for everything in quotes.
fn unquoted(message: &str) -> Vec<u8> {
    let mut bytes = message.to_ascii_lowercase().into_bytes();
    if memchr::memchr3(b'_', b'"', b'`', &bytes).is_none()
        && memchr::memchr(b'\'', &bytes).is_none()
    {
        return bytes;
    }
    let mut at = 0;
    let is_special = |byte: &u8| KINDS[usize::from(*byte)] == Kind::Special;
    while let Some(next) = bytes[at..].iter().position(is_special) {
        at += next;
        let in_word = at > 0 && bytes[at - 1].is_ascii_alphanumeric();
        let end = match bytes[at] {
            b'_' => Some(at + 1),
            b'\'' if in_word => None,
            _ => quotation_end(&bytes, at),
        };
        bytes[at..end.unwrap_or(at)].fill(b' ');
        at = end.unwrap_or(at + 1);
    }
    bytes
}

/// Where the quotation that begins at `start` is over; `None` when it does not close soon.
fn quotation_end(bytes: &[u8], start: usize) -> Option<usize> {
    const LONGEST_QUOTATION: usize = 2000;
    let mark = bytes[start];
    let inside = &bytes[start + 1..bytes.len().min(start + LONGEST_QUOTATION)];
    let closes = |at: usize| {
        let escaped = at > 0 && inside[at - 1] == b'\\';
        let apostrophe = mark == b'\'' && inside.get(at + 1).is_some_and(u8::is_ascii_alphanumeric);
        inside[at] == mark && !escaped && !apostrophe
    };
    (0..inside.len())
        .find(|at| closes(*at))
        .map(|at| start + at + 2)
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
            assert!(
                !Wording::read(message).is_about(Topics::of(&[topic])),
                "{message}"
            );
        }
        assert!(
            Wording::read("You've hit your usage limit, it's over")
                .is_about(Topics::of(&[Topic::Usage]))
        );
        assert!(
            Wording::read("isn't the server overloaded? it isn't")
                .is_about(Topics::of(&[Topic::Overload]))
        );
    }

    #[test]
    fn phrases_are_whole_words() {
        assert!(
            !Wording::read("string must be null-terminated")
                .is_about(Topics::of(&[Topic::Network]))
        );
        assert!(Wording::read("TypeError: terminated").is_about(Topics::of(&[Topic::Network])));
        assert!(Wording::read("overloaded_error").is_about(Topics::of(&[Topic::Overload])));
        assert!(!Wording::read("unexceeded").is_about(Topics::of(&[Topic::Exceeds])));
    }

    #[test]
    fn there_are_at_most_sixty_four_topics() {
        assert!((Topic::Tests as u8) < 64);
        assert!(INDEX.phrases.iter().all(|phrase| phrase.text.len() >= 3));
        let starred = PHRASES
            .iter()
            .filter(|(phrase, _)| phrase.trim_end_matches('*').is_empty());
        assert_eq!(starred.count(), 0);
    }
}
