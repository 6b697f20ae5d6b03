//! The modelled clients, with their own numbers.

use super::{ActivityUnit, ClientModel, DisconnectReaction, ExcessRetryAfter};
use crate::clients::ResponseFormat;
use outlast_dialect::Dialect::{Anthropic, OpenaiChat, OpenaiResponses};

const MESSAGES: ResponseFormat = ResponseFormat::Streamed(Anthropic);
const CHAT: ResponseFormat = ResponseFormat::Streamed(OpenaiChat);
const RESPONSES: ResponseFormat = ResponseFormat::Streamed(OpenaiResponses);

pub(in super::super) const CLAUDE_CODE: ClientModel = ClientModel {
    name: "Claude Code",
    profile: "claude-code",
    form: MESSAGES,
    before_headers: Some(361),
    interim: Ok(false),
    until_headers: None,
    idle: Some(300),
    activity_unit: ActivityUnit::Bytes,
    budget: Some(30),
    total: None,
    resends: 10,
    // 0.5 s doubling up to 32 s, and a quarter more.
    backoff: |n| (500 << n.min(7)).min(32_000) * 5 / 4,
    max_retry_after: 60,
    on_excess_retry_after: ExcessRetryAfter::Fatal,
    on_disconnect: DisconnectReaction::StopsStreaming,
    rejects_bytes: |_| false,
    max_outage: None,
};

/// httpx, and the retries of a generated SDK.
const PYTHON: ClientModel = ClientModel {
    name: "anthropic SDK, Python",
    profile: "anthropic-sdk-python",
    form: MESSAGES,
    before_headers: Some(600),
    interim: Ok(true),
    idle: Some(600),
    budget: None,
    resends: 2,
    backoff: |n| (500 << n).min(8_000),
    on_excess_retry_after: ExcessRetryAfter::Ignored,
    on_disconnect: DisconnectReaction::Fails,
    ..CLAUDE_CODE
};

/// undici, and the timer of a generated SDK.
const NODE: ClientModel = ClientModel {
    name: "anthropic SDK, TypeScript",
    profile: "anthropic-sdk-ts",
    before_headers: Some(300),
    until_headers: Some(600),
    idle: Some(300),
    max_retry_after: u64::MAX,
    ..PYTHON
};

const AI_SDK: ClientModel = ClientModel {
    name: "AI SDK",
    profile: "ai-sdk",
    before_headers: Some(300),
    idle: Some(300),
    backoff: |n| 1000 << n,
    max_retry_after: 59,
    on_disconnect: DisconnectReaction::Resends,
    rejects_bytes: is_unknown_event,
    ..PYTHON
};

const OPENCODE: ClientModel = ClientModel {
    name: "opencode",
    profile: "opencode",
    interim: Ok(false),
    resends: 5,
    backoff: |n| (1000 << n).min(30_000) * 5 / 4,
    max_retry_after: 24 * 86_400,
    ..AI_SDK
};

const PI: ClientModel = ClientModel {
    name: "pi",
    profile: "pi",
    before_headers: None,
    idle: None,
    ..NODE
};

const CODEX: ClientModel = ClientModel {
    name: "Codex",
    profile: "codex",
    form: RESPONSES,
    before_headers: None,
    idle: Some(300),
    activity_unit: ActivityUnit::Events,
    resends: 5,
    max_retry_after: 120,
    on_excess_retry_after: ExcessRetryAfter::Fatal,
    on_disconnect: DisconnectReaction::Resends,
    ..PYTHON
};

const GEMINI: ClientModel = ClientModel {
    name: "Gemini CLI",
    profile: "gemini-cli",
    form: ResponseFormat::Gemini,
    before_headers: Some(60),
    idle: Some(300),
    resends: 10,
    backoff: |n| (2_500 << n.min(4)).min(30_000),
    on_disconnect: DisconnectReaction::Resends,
    rejects_bytes: |bytes| bytes.iter().any(|byte| !b"\r\n".contains(byte)),
    ..PYTHON
};

const GOOSE: ClientModel = ClientModel {
    name: "goose",
    profile: "goose",
    form: CHAT,
    before_headers: None,
    interim: Ok(false),
    idle: None,
    total: Some(600),
    resends: 3,
    backoff: |n| (500 << n).min(30_000),
    max_retry_after: 0,
    max_outage: Some(38 * 60),
    ..PYTHON
};

/// A program on `requests`, which sets no limit and takes an interim response for the final one.
const REQUESTS: ClientModel = ClientModel {
    name: "requests",
    profile: "unknown",
    form: CHAT,
    before_headers: None,
    interim: Err(()),
    idle: None,
    resends: 0,
    rejects_bytes: is_event,
    ..PYTHON
};

/// An unknown client that tolerates a minute and breaks at everything that can be avoided.
const IMPATIENT: ClientModel = ClientModel {
    name: "something with a minute of patience",
    before_headers: Some(60),
    idle: Some(60),
    ..REQUESTS
};

/// All clients, in each form that they request.
pub(in super::super) const ALL: &[ClientModel] = &[
    CLAUDE_CODE,
    ClientModel {
        name: "Claude Code, whole",
        form: ResponseFormat::Whole,
        total: Some(300),
        max_outage: Some(3_600),
        ..CLAUDE_CODE
    },
    PYTHON,
    whole("anthropic SDK, Python, whole", PYTHON),
    NODE,
    whole("anthropic SDK, TypeScript, whole", NODE),
    ClientModel {
        name: "openai SDK, Python (Chat)",
        form: CHAT,
        rejects_bytes: is_event,
        ..OPENAI_PYTHON
    },
    OPENAI_PYTHON,
    whole("openai SDK, Python, whole", OPENAI_PYTHON),
    ClientModel {
        name: "openai SDK, Node",
        profile: "openai-sdk-node",
        form: CHAT,
        max_retry_after: 60,
        rejects_bytes: is_event,
        ..NODE
    },
    ClientModel {
        name: "openai SDK, Node, whole",
        profile: "openai-sdk-node",
        form: ResponseFormat::Whole,
        total: Some(600),
        max_retry_after: 60,
        max_outage: Some(1_800),
        ..NODE
    },
    ClientModel {
        name: "openai SDK, Bun, whole",
        profile: "openai-sdk-bun",
        form: ResponseFormat::Whole,
        interim: Ok(false),
        total: Some(600),
        max_retry_after: 60,
        max_outage: Some(900),
        ..NODE
    },
    CODEX,
    whole("Codex, whole", CODEX),
    OPENCODE,
    ClientModel {
        name: "opencode (Chat)",
        form: CHAT,
        rejects_bytes: is_event,
        ..OPENCODE
    },
    whole("opencode, whole", OPENCODE),
    AI_SDK,
    ClientModel {
        name: "AI SDK (Chat)",
        form: CHAT,
        rejects_bytes: is_event,
        ..AI_SDK
    },
    ClientModel {
        name: "AI SDK (Responses)",
        form: RESPONSES,
        rejects_bytes: |_| false,
        ..AI_SDK
    },
    whole("AI SDK, whole", AI_SDK),
    ClientModel {
        name: "AI SDK on Bun",
        profile: "ai-sdk-bun",
        interim: Ok(false),
        ..AI_SDK
    },
    PI,
    whole("pi, whole", PI),
    ClientModel {
        name: "aider",
        profile: "aider",
        form: CHAT,
        interim: Ok(false),
        rejects_bytes: is_event,
        ..PYTHON
    },
    GEMINI,
    whole("Gemini CLI, whole", GEMINI),
    GOOSE,
    whole("goose, whole", GOOSE),
    REQUESTS,
    whole("requests, whole", REQUESTS),
    IMPATIENT,
];

const OPENAI_PYTHON: ClientModel = ClientModel {
    name: "openai SDK, Python (Responses)",
    profile: "openai-sdk-python",
    form: RESPONSES,
    max_retry_after: 120,
    on_excess_retry_after: ExcessRetryAfter::Fatal,
    ..PYTHON
};

pub(in super::super) fn by_name(name: &str) -> ClientModel {
    let found = ALL.iter().find(|model| model.name == name);
    *found.expect("a client of that name")
}

const fn whole(name: &'static str, model: ClientModel) -> ClientModel {
    ClientModel {
        name,
        form: ResponseFormat::Whole,
        // Before a JSON document there may be white space and nothing else.
        rejects_bytes: |bytes| bytes.iter().any(|byte| !byte.is_ascii_whitespace()),
        ..model
    }
}

/// Returns whether a chat client would read the bytes as an event: it accepts comments, and fails at an unknown or
/// empty event.
fn is_event(bytes: &[u8]) -> bool {
    !(bytes.starts_with(b":") && bytes.ends_with(b"\n") && !bytes.ends_with(b"\n\n"))
}

fn is_unknown_event(bytes: &[u8]) -> bool {
    bytes.starts_with(b"event: ") && !bytes.starts_with(b"event: ping\n")
}
