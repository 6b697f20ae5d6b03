//! The phrases that identify topics and retry times. Data: a new wording of a known condition goes here.
//!
//! Phrases are in lower case, with spaces for underscores; one that ends in `*` may continue with more letters. None is
//! shorter than three bytes.

macro_rules! topics {
    ($($(#[$doc:meta])* $name:ident: [$($phrase:literal),* $(,)?];)*) => {
        /// A topic of a message.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub(super) enum Topic {
            $($(#[$doc])* $name,)*
        }

        /// All phrases, each with its topic.
        pub(super) const PHRASES: &[(&str, Topic)] = &[$($(($phrase, Topic::$name),)*)*];
    };
}

topics! {
    /// The work was stopped.
    Stopped: [

        "canceled", "cancelled",
        "aborterror", "operation was aborted", "request was aborted", "request aborted", "aborted by", "user aborted",
        "was canceled", "was cancelled", "request canceled", "request cancelled", "retry cancelled", "retry canceled",
        "canceled by", "cancelled by", "context canceled", "interrupted by user", "user interrupt", "keyboardinterrupt",
        "cancellederror",
    ];
    /// A person or the system stopped it, in so many words.
    Killed: ["rejected by the user", "by sigint", "by sigterm", "sigint", "code=-999"];
    /// A safety system refused.
    Filtered: [
        "matched public code",
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
    /// The space for a conversation.
    Context: [
        "context length", "context window", "context size", "context limit", "context budget", "input token*",
        "prompt token*", "prompt length", "input length", "token count", "tokens in request", "max tokens allowed",
        "maximum number of tokens", "maximum tokens", "max prompt tokens", "number of tokens", "token limit", "prompt contains",
        "prompt is", "the prompt", "input is", "the input", "your input", "messages length", "too many messages",
        "too many tokens", "total tokens", "sequence length", "model length", "n ctx", "conversation is",
        "number of messages", "message count", "messages in a request", "messages in one request", "messages array",
    ];
    /// An excess.
    Exceeds: [
        "only supports up to", "supports at most", "keep it under",
        "less than",
        "exceed*", "too long", "too large", "longer than", "greater than", "more than", "larger than", "over the limit",
        "overflow*", "must be less than", "must be at most", "surpass*", "reached the limit",
        "reduce the length", "shorten",
    ];
    /// Wordings of a full context, topic and excess in one.
    ContextFull: [
        "content length exceeds", "上下文长度", "prompt has too many tokens",
        "ran out of room", "out of room in", "must have less than", "tokens +", "range of input length",
        "prompt exceeds", "input exceeds", "exceeds max length", "max length exceeded", "exceeds the model", "messages exceed", "conversation exceeds", "exceeds the maximum length",
        "maximum context length", "prompt is too long", "prompt too long", "input is too long", "input too long",
        "context length exceeded", "context window exceeded", "exceeds context", "exceed context", "context overflow*",
        "ran out of context", "out of context window", "context window is full", "conversation is too long",
        "reduce the length of the messages", "reduce the length of your", "maximum prompt length",
        "too many tokens in", "exceeds the available context", "larger than the context", "context length is only",
        "400 status code (no body)", "413 status code (no body)", "400 (no body)", "413 (no body)",
        "too many messages:", "too many messages in", "too many messages (", "messages may be sent in a request",
        "maximum number of messages", "message limit exceeded",
        "maximum input length", "string too long", "too many input tokens", "model max prompt tokens",
    ];
    /// A limit on the output, not on the input.
    OutputCap: [
        "output token maximum", "output token limit", "output tokens maximum","number of output tokens", "max tokens:", "output tokens for", "max output tokens", "maximum output", "completion tokens limit"];
    /// A spending limit.
    Spend: [
        "monthly cycle", "monthly request*",
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
    /// Wording that is about money for some providers and about a rate for others.
    PlanOrBilling: ["check your plan and billing", "plan and billing details", "billing details"];
    /// A feature that is missing from the plan.
    NotInPlan: [
        "not part of your",
        "usage is required", "credits are required", "does not yet include", "include access to", "limit: 0", "plan, upgrade", "plan doesn't", "plan does not",
        "credits are required for", "credits required for", "usage not included", "not included in your", "not available on your plan",
        "not available in your plan", "requires a paid", "requires a subscription", "upgrade your plan to", "upgrade to use", "not entitled",
        "does not include", "doesn't include", "plan does not support",
    ];
    /// A plan's window.
    Usage: [
        "request allowance", "usage allowance", "allotment", "cap reached", "window is used up", "gpu quota", "message cap", "premium request*",
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
        "zu viele anfragen", "trop de requêtes", "demasiadas solicitudes",
        "rate limit*", "rate-limit*", "ratelimit*", "too many requests", "too many request", "throttl*", "per minute", "per min", "per-minute",
        "per second", "per hour", "perminute", "requests per", "tokens per", "tpm", "rpm", "qps", "concurrency limit*", "concurrent request*",
        "too many concurrent", "max concurrency", "maximum concurrency", "request rate", "please wait", "requests rate", "request limit",
        "too quickly", "too fast", "too frequent*", "slow down", "请求过于频繁", "限流", "速率限制",
    ];
    /// A short time, by name.
    ShortWindow: [
        "-per-min*", "-per-second","per minute", "per min", "per-minute", "per second", "perminute", "persecond", "tpm", "rpm", "qps"];
    /// No capacity at the provider.
    Overload: [
        "high volume of", "负载", "容量",
        "overload*", "over capacity", "at capacity", "no capacity", "capacity available", "capacity exceeded", "capacity exhausted",
        "insufficient capacity", "not enough capacity", "capacity constraint*", "capacity issue", "capacity limit*", "capacity is",
        "high demand", "heavy load", "high load", "high traffic", "heavy traffic", "server busy", "server is busy",
        "servers are busy", "service is busy", "system is busy", "site is busy", "too busy", "is busy", "no slot*",
        "slots available", "no available", "no healthy", "no more data centers", "not ready yet", "pending requests", "queue is full",
        "queue full", "temporarily unavailable", "service unavailable", "服务繁忙", "繁忙", "过载",
    ];
    /// Certificates and the like, whose failures do not pass.
    TlsConfig: [
        "pkix", "certification path", "wrong version number", "altnames", "does not match certificate",
        "certificate", "self signed", "self-signed", "issuer cert*", "unable to verify", "cert authority", "hostname mismatch",
        "cert has expired", "err tls cert*", "unknown ca", "depth zero",
    ];
    /// Wrong wiring.
    Miswired: [
        "invalidurl", "invalid port", "url is missing", "proxy rejected", "env var", "environment variable", "hostname mismatch",
        "relative url", "url without a base", "builder error", "invalid uri", "empty host",
        "proxy authentication", "invalid url", "unsupported protocol", "unsupported scheme", "expected application*", "content-type",
        "content type", "no space left", "enospc", "eacces", "permission denied (os error", "more system memory", "out of memory",
        "cuda error", "no such host is configured", "method not allowed", "base url",
    ];
    /// A bug in a program.
    Bug: [
        "rangeerror",
        "typeerror", "referenceerror", "attributeerror", "keyerror", "nullpointerexception", "index out of range", "index out of bounds", "cannot read propert*", "undefined is not", "is not defined","panic:", "panicked at", "nil pointer", "null pointer", "segmentation fault", "stack overflow", "assertion failed", "is not a function"];
    /// A credential that could not be obtained at all.
    NoCredential: [
        "reauthentication", "refresherror", "sso session", "client secret", "authentication method", "aadsts*", "retrieve a token", "credential failed",
        "invalid grant", "session has expired", "session expired", "no api key", "missing api key", "default credentials",
    ];
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
    /// Something is missing.
    Missing: [
        "not found", "does not exist", "doesn't exist", "no such", "unknown", "not available", "not supported", "isn't supported", "isn’t supported",
        "unsupported", "is invalid", "not deployed", "decommissioned", "deprecated", "retired", "not a valid model", "invalid model", "no endpoints found",
    ];
    /// A program that is not installed.
    NoProgram: ["command not found", "not found in path", "executable file not found", "enoent", "no such file or directory", "missing binary"];
    /// The request is wrong.
    Invalid: [
        "not supported", "unsupported*", "not implemented", "no longer supported", "method not found", "does not accept", "may be provided", "invalid type", "invalid input", "invalid tool", "required but missing", "failed to parse grammar", "zoderror", "validationerror", "no such tool", "unavailable tool", "nosuchtool*", "nosuchmodel*", "unsupportedfunctionality*",
        "invalid request", "bad request", "invalid param*", "invalid argument", "invalid value", "invalid schema", "invalid json", "unknown parameter",
        "unrecognized", "missing required", "required field", "must be", "must alternate", "must have", "malformed request", "validation error",
        "validationexception", "not a valid", "schema depth", "expected a", "unprocessable", "must not", "invalid content", "ids were found without",
    ];
    /// Silence on an open stream.
    Stall: [
        "stalled", "idle timeout", "no data received", "no activity", "waiting for the first event", "waiting for first", "timed out while waiting",
        "timed out waiting", "no response from", "stream timed out", "inactivity", "stream idle",
    ];
    /// A stream that ended too early.
    Cut: [
        "stream ended", "stream closed", "stream disconnected", "disconnected before", "closed before", "premature close", "premature end", "prematurely",
        "unexpected end of", "unexpected eof", "unexpectedeof", "incomplete json", "unterminated string", "unterminated json", "incomplete chunked",
        "incomplete message", "incomplete response", "incomplete read", "incompleteread", "message body", "before message completed", "before completion", "truncated",
        "could not parse", "error decoding response", "decompression failed", "unexpected end of json", "json parse error", "failed to parse stream",
        "before message stop", "without a finish reason", "connection closed mid",
    ];
    /// The connection to the provider.
    Network: [
        "empty reply", "urlopen error", "max retries exceeded", "clientpayloaderror", "clientoserror", "clientconnectorerror", "serverdisconnectederror", "pooltimeout", "nodename nor servname", "end of file reached", "received no bytes", "nsurlerrordomain", "err network*", "err connection*", "err internet*", "err name*", "idle connection", "transporterror", "remotedisconnected", "unknownhostexception", "server misbehaving", "sockettimeoutexception", "socketexception", "connection pool", "i/o timeout", "apiconnectionerror",
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
    /// A limit of our own.
    Ceiling: [
        "maximum number of turns", "recursion limit", "maximum iterations", "max steps",
        "budget has been exceeded", "over budget", "exceeded the budget", "exceeds the budget","budget exceeded", "budget ceiling", "budget exhausted", "cost ceiling", "cost limit", "token budget", "max turns", "maximum turns", "maximum budget", "max budget"];
    /// A test suite.
    Tests: ["--- fail:", "tests failed", "test failed", "failing tests", "test suite failed"];
}

/// The kind of phrase that introduces a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cue {
    /// A duration, with its unit.
    In,
    /// A duration, in seconds where no unit follows.
    After,
    /// A number of milliseconds.
    AfterMillis,
    /// A moment.
    At,
}

/// All wordings that introduce a time.
pub(super) const CUES: &[(&str, Cue)] = &[
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
    ("come back in", Cue::In),
    ("refreshes in", Cue::In),
    ("renews in", Cue::In),
    ("refresh in", Cue::In),
    ("renewed on", Cue::At),
    ("renews on", Cue::At),
    ("resumes at", Cue::At),
];
