//! The table of clients: one row for each known client, and one for all others.
//!
//! Three kinds of evidence support the numbers, and each row's note says which. *Measured*: the released client was run
//! against a provider that makes it wait. *Read*: it is in the client's source. *Inferred*: it follows from the known
//! behaviour of the HTTP library. In words:
//!
//! - httpx (the Python SDKs) allows 600 s between any two reads, and a `102` is a read: measured.
//! - undici (Node) allows 300 s before the headers, which each `102` restarts, and 300 s between pieces of the body:
//!   measured. `100 Continue` makes it close the connection. The Node SDKs add a timer of 600 s until the headers that
//!   no `102` stops: measured, with a shorter one. So their headers go out at nine minutes.
//! - Bun (Claude Code, opencode) ignores a `102`: measured. Its headers have to go out early.
//! - Python's `http.client` (requests, urllib) takes a `102` for the response, and Go gives up after five of them:
//!   reported, and read. So only clients that are known to understand a `102` get one.
//! - Claude Code lets 30 heartbeats in a row restart its watchdog of 300 s, whatever they are, and gives up at 30 × T +
//!   300 s: measured for T = 15 s (761 s) and 60 s (2,111 s), served after 4,200 s with T = 150 s.
//! - Codex waits for headers without a limit, and after them 300 s for an event; comments are none: measured.
//! - A chat client fails at an event of an unknown type: measured; at an empty line after a comment: reported for
//!   openai-go. Gemini's parser fails at a comment, and accepts an empty line: measured.
//!
//! Invariant: no heartbeat comes more often than every 30 s, unless a timer of the client forces it: with thousands of
//! requests held, the heartbeats are the main work of the gateway.

use super::hold_plans::{
    ANTHROPIC_VERSION_HEADER, BUN, BUN_WHOLE, DEFAULT_FRAMES, EARLY_HEADERS, GEMINI, GOOSE,
    INTERIM_RESPONSES, MAX_JS_TIMER, NO_HEADER_LIMIT, NODE_SDK, seconds,
};
use super::profile::HeaderSign::{HeaderEquals, HeaderPresent, UserAgentContains, UserAgentPrefix};
use super::profile::{
    HeaderTiming, HeartbeatPlan, HoldPlan, KeepAliveFrames, Profile, RetryAfterSupport, StatedLimit,
};
use http::HeaderName;

/// The number of headers by which rows are told apart.
pub(super) const SIGNATURE_HEADER_COUNT: usize = 5;
/// The headers by which rows are told apart, beside the user agent.
pub(super) const SIGNATURE_HEADERS: [(&str, HeaderName); SIGNATURE_HEADER_COUNT] = [
    signature_header("anthropic-version"),
    signature_header("goose-session-id"),
    signature_header("originator"),
    signature_header("x-stainless-lang"),
    signature_header("x-stainless-runtime"),
];

const fn signature_header(name: &'static str) -> (&'static str, HeaderName) {
    (name, HeaderName::from_static(name))
}

/// All rows but the one for unknown clients; more specific rows come first.
pub static ALL: &[Profile] = &[
    Profile {
        name: "claude-code",
        note: "2.1.325, measured. 361 s until the headers; then 30 heartbeats in a row count (28 are used, in case two \
               come from elsewhere). A dropped connection is asked for again, streamed, up to 10 times: at 81 min a \
               hold that is 14 h. Without streaming 300 s for each of 11 requests: an hour in all. \
               `Retry-After` above 60 s ends the turn at once, three 529 do as well. It says that it waits after 45 s \
               without a byte. Before 2.1.196 there is no watchdog; from there to 2.1.221 no heartbeat counts for it, \
               and it asks again after each 300 s.",
        signatures: &[&[UserAgentPrefix("claude-cli/")]],
        streamed: HoldPlan {
            headers: EARLY_HEADERS,
            interim_interval: None,
            heartbeat: HeartbeatPlan {
                fast_count: 10,
                fast_interval: seconds(30),
                slow_interval: seconds(240),
                max_count: Some(28),
            },
            max_hold: None,
        },
        whole: HoldPlan {
            max_hold: Some(seconds(285)),
            ..NO_HEADER_LIMIT
        },
        frames: &DEFAULT_FRAMES,
        stated_limit: StatedLimit::Unstated,
        retry_status: 503,
        retry_after: RetryAfterSupport::UpTo(seconds(60)),
    },
    Profile {
        name: "claude-code-endless",
        note: "2.1.325, measured for 25 min: an undocumented event that counts as a real one, so that no budget is \
               used up. Only by name, for those who know their version.",
        signatures: &[],
        streamed: HoldPlan {
            headers: EARLY_HEADERS,
            interim_interval: None,
            heartbeat: HeartbeatPlan::every(seconds(120)),
            max_hold: None,
        },
        whole: HoldPlan {
            max_hold: Some(seconds(270)),
            ..NO_HEADER_LIMIT
        },
        frames: &KeepAliveFrames {
            messages:
                b"event: session.status_running\ndata: {\"type\":\"session.status_running\"}\n\n",
            ..DEFAULT_FRAMES
        },
        stated_limit: StatedLimit::Unstated,
        retry_status: 503,
        retry_after: RetryAfterSupport::UpTo(seconds(60)),
    },
    Profile {
        name: "claude-code-patient",
        note: "2.1.325 with CLAUDE_STREAM_IDLE_TIMEOUT_MS=43200000, measured: its watchdog is 12 h then, so that it does \
               not matter how many heartbeats it counts (served after 800 s with 80 of them; without, it gave up at \
               610 s). Bytes must come within 360 s all the same. Only by name: nothing else tells how it was started.",
        signatures: &[],
        streamed: HoldPlan {
            headers: EARLY_HEADERS,
            interim_interval: None,
            heartbeat: HeartbeatPlan::every(seconds(120)),
            max_hold: None,
        },
        whole: HoldPlan {
            max_hold: Some(seconds(285)),
            ..NO_HEADER_LIMIT
        },
        frames: &DEFAULT_FRAMES,
        stated_limit: StatedLimit::Unstated,
        retry_status: 503,
        retry_after: RetryAfterSupport::UpTo(seconds(60)),
    },
    Profile {
        name: "codex",
        note: "0.166.0, measured for an hour without headers. A 429 without `Retry-After` is final; one of 120 s was \
               obeyed, up to 5 times.",
        signatures: &[
            &[UserAgentPrefix("codex_")],
            &[UserAgentPrefix("codex-")],
            &[UserAgentPrefix("Codex ")],
        ],
        streamed: NO_HEADER_LIMIT,
        whole: NO_HEADER_LIMIT,
        frames: &DEFAULT_FRAMES,
        stated_limit: StatedLimit::Unstated,
        retry_status: 429,
        retry_after: RetryAfterSupport::RequiredUpTo(seconds(120)),
    },
    Profile {
        name: "opencode",
        note: "1.18.33, measured. 300 s until the headers and 300 s between bytes; a comment, `ping` or `keepalive` \
               each will do. Any `Retry-After` is obeyed and shown, up to what a JavaScript timer can hold.",
        signatures: &[&[UserAgentPrefix("opencode/")]],
        streamed: BUN,
        whole: BUN_WHOLE,
        frames: &DEFAULT_FRAMES,
        stated_limit: StatedLimit::Unstated,
        retry_status: 429,
        retry_after: RetryAfterSupport::UpTo(MAX_JS_TIMER),
    },
    Profile {
        name: "gemini-cli",
        note: "0.61.0, measured. 60 s until the headers, begun anew by each `102`; 300 s between pieces. When to come \
               back it reads in the body (RetryInfo).",
        signatures: &[&[UserAgentContains("GeminiCLI")]],
        streamed: GEMINI,
        whole: GEMINI,
        frames: &DEFAULT_FRAMES,
        stated_limit: StatedLimit::Unstated,
        retry_status: 429,
        retry_after: RetryAfterSupport::Ignored,
    },
    Profile {
        name: "google-genai-js",
        note: "1.30, measured: undici.",
        signatures: &[&[
            UserAgentContains("google-genai-sdk/"),
            UserAgentContains("gl-node/"),
        ]],
        streamed: INTERIM_RESPONSES,
        whole: INTERIM_RESPONSES,
        frames: &DEFAULT_FRAMES,
        stated_limit: StatedLimit::Unstated,
        retry_status: 429,
        retry_after: RetryAfterSupport::Ignored,
    },
    Profile {
        name: "goose",
        note: "April 2026, read: 600 s for the whole of each of 4 requests, whatever comes, so 38 min in all; more only \
               with a longer OPENAI_TIMEOUT. It has no user agent of its own.",
        signatures: &[
            &[HeaderPresent("goose-session-id")],
            &[UserAgentPrefix("goose/")],
        ],
        streamed: GOOSE,
        whole: GOOSE,
        frames: &DEFAULT_FRAMES,
        stated_limit: StatedLimit::Unstated,
        retry_status: 503,
        retry_after: RetryAfterSupport::Ignored,
    },
    Profile {
        name: "aider",
        note: "0.86, read: 600 s until the headers and between bytes (litellm); measured for an hour with comments. \
               With OpenAI's models it is seen as openai-sdk-python, which does for it.",
        signatures: &[
            &[UserAgentContains("aider")],
            &[UserAgentPrefix("litellm/")],
        ],
        streamed: HoldPlan {
            heartbeat: HeartbeatPlan::every(seconds(60)),
            ..BUN
        },
        whole: BUN_WHOLE,
        frames: &DEFAULT_FRAMES,
        stated_limit: StatedLimit::Unstated,
        retry_status: 429,
        retry_after: RetryAfterSupport::UpTo(seconds(60)),
    },
    Profile {
        name: "pi",
        note: "0.73.1, measured: no limit but the 600 s until the headers of the Node SDKs that it uses, and as one of \
               these it is mostly seen.",
        signatures: &[
            &[UserAgentPrefix("pi/")],
            &[UserAgentPrefix("pi (")],
            &[HeaderEquals("originator", "pi")],
        ],
        streamed: NODE_SDK,
        whole: NODE_SDK,
        frames: &DEFAULT_FRAMES,
        stated_limit: StatedLimit::UntilHeaders,
        retry_status: 503,
        retry_after: RetryAfterSupport::UpTo(seconds(60)),
    },
    Profile {
        name: "ai-sdk-bun",
        note: "As ai-sdk, on Bun: inferred from opencode, which is built on it.",
        signatures: &[
            &[UserAgentPrefix("ai-sdk"), UserAgentContains("runtime/bun")],
            &[UserAgentPrefix("ai-sdk"), UserAgentContains("runtime-bun")],
            &[
                UserAgentContains(" ai-sdk"),
                UserAgentContains("runtime/bun"),
            ],
            &[
                UserAgentContains(" ai-sdk"),
                UserAgentContains("runtime-bun"),
            ],
        ],
        streamed: BUN,
        whole: BUN_WHOLE,
        frames: &DEFAULT_FRAMES,
        stated_limit: StatedLimit::Unstated,
        retry_status: 429,
        retry_after: RetryAfterSupport::UpTo(seconds(59)),
    },
    Profile {
        name: "ai-sdk",
        note: "Measured: undici, and no timer of its own unless its user sets one. `Retry-After` below 60 s.",
        signatures: &[
            &[UserAgentPrefix("ai-sdk")],
            &[UserAgentContains(" ai-sdk")],
        ],
        streamed: INTERIM_RESPONSES,
        whole: INTERIM_RESPONSES,
        frames: &DEFAULT_FRAMES,
        stated_limit: StatedLimit::Unstated,
        retry_status: 429,
        retry_after: RetryAfterSupport::UpTo(seconds(59)),
    },
    Profile {
        name: "anthropic-sdk-bun",
        note: "As anthropic-sdk-ts, on Bun: inferred.",
        signatures: &[
            &[
                UserAgentContains("Anthropic/JS"),
                HeaderEquals("x-stainless-runtime", "bun"),
            ],
            &[
                ANTHROPIC_VERSION_HEADER,
                HeaderEquals("x-stainless-lang", "js"),
                HeaderEquals("x-stainless-runtime", "bun"),
            ],
        ],
        streamed: BUN,
        whole: BUN_WHOLE,
        frames: &DEFAULT_FRAMES,
        stated_limit: StatedLimit::Unstated,
        retry_status: 503,
        retry_after: RetryAfterSupport::UpTo(MAX_JS_TIMER),
    },
    Profile {
        name: "anthropic-sdk-ts",
        note: "Measured and read: undici, and 600 s until the headers. `Retry-After` is obeyed whatever it says.",
        signatures: &[
            &[UserAgentContains("Anthropic/JS")],
            &[
                ANTHROPIC_VERSION_HEADER,
                HeaderEquals("x-stainless-lang", "js"),
            ],
        ],
        streamed: NODE_SDK,
        whole: NODE_SDK,
        frames: &DEFAULT_FRAMES,
        stated_limit: StatedLimit::UntilHeaders,
        retry_status: 503,
        retry_after: RetryAfterSupport::UpTo(MAX_JS_TIMER),
    },
    Profile {
        name: "anthropic-sdk-python",
        note: "2.8, measured: httpx. `Retry-After` up to 60 s, above it waits in its own way.",
        signatures: &[
            &[UserAgentContains("Anthropic/Python")],
            &[
                ANTHROPIC_VERSION_HEADER,
                HeaderEquals("x-stainless-lang", "python"),
            ],
        ],
        streamed: INTERIM_RESPONSES,
        whole: INTERIM_RESPONSES,
        frames: &DEFAULT_FRAMES,
        stated_limit: StatedLimit::BetweenBytes,
        retry_status: 503,
        retry_after: RetryAfterSupport::UpTo(seconds(60)),
    },
    Profile {
        name: "openai-sdk-bun",
        note: "As openai-sdk-node, on Bun: inferred.",
        signatures: &[&[
            HeaderEquals("x-stainless-lang", "js"),
            HeaderEquals("x-stainless-runtime", "bun"),
        ]],
        streamed: BUN,
        whole: HoldPlan {
            max_hold: Some(seconds(270)),
            ..NO_HEADER_LIMIT
        },
        frames: &DEFAULT_FRAMES,
        stated_limit: StatedLimit::Unstated,
        retry_status: 429,
        retry_after: RetryAfterSupport::UpTo(seconds(60)),
    },
    Profile {
        name: "openai-sdk-node",
        note: "Measured and read: undici, and 600 s until the headers. A JSON answer has to be complete 600 s after it \
               was asked for, so 3 requests without streaming last half an hour. `Retry-After` up to 60 s.",
        signatures: &[
            &[UserAgentContains("OpenAI/JS")],
            &[HeaderEquals("x-stainless-lang", "js")],
        ],
        streamed: NODE_SDK,
        whole: HoldPlan {
            max_hold: Some(seconds(570)),
            ..INTERIM_RESPONSES
        },
        frames: &DEFAULT_FRAMES,
        stated_limit: StatedLimit::UntilHeaders,
        retry_status: 429,
        retry_after: RetryAfterSupport::UpTo(seconds(60)),
    },
    Profile {
        name: "openai-sdk-python",
        note: "3.49, measured: httpx. `Retry-After` up to 120 s; after a longer one it does not come back.",
        signatures: &[
            &[UserAgentContains("OpenAI/Python")],
            &[HeaderEquals("x-stainless-lang", "python")],
        ],
        streamed: INTERIM_RESPONSES,
        whole: INTERIM_RESPONSES,
        frames: &DEFAULT_FRAMES,
        stated_limit: StatedLimit::BetweenBytes,
        retry_status: 429,
        retry_after: RetryAfterSupport::UpTo(seconds(120)),
    },
];

/// Any other client: avoids everything that is known to break some client, and assumes that most tolerate a minute of
/// silence.
pub(super) static UNKNOWN: Profile = Profile {
    name: "unknown",
    note: "Inferred. The frames are those that every client measured takes in that dialect; a JSON answer is begun only \
           when an attempt has failed, or when most clients would leave.",
    signatures: &[],
    streamed: HoldPlan {
        headers: HeaderTiming::After {
            failed_attempt: seconds(20),
            pending_attempt: seconds(45),
        },
        interim_interval: None,
        heartbeat: HeartbeatPlan::every(seconds(30)),
        max_hold: None,
    },
    whole: HoldPlan {
        headers: HeaderTiming::After {
            failed_attempt: seconds(45),
            pending_attempt: seconds(240),
        },
        interim_interval: None,
        heartbeat: HeartbeatPlan::every(seconds(30)),
        max_hold: None,
    },
    frames: &DEFAULT_FRAMES,
    stated_limit: StatedLimit::BetweenBytes,
    retry_status: 503,
    retry_after: RetryAfterSupport::UpTo(seconds(60)),
};
