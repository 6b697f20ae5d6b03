//! The constant responses of the simulated provider, in the form of each dialect.
//!
//! Invariant: a stream has exactly `FRAMES` frames and ends with its dialect's own terminal event.

use std::fmt::Write as _;

pub(crate) const FRAMES: usize = 200;
/// The end of every response's text, which identifies a response that was rewritten.
pub(crate) const LAST_WORDS: &str = "and that was all of it.";
const CHAT_TAIL: &str = "\"finish_reason\":null}]}\n\n";

/// The two dialects that are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Dialect {
    Chat,
    Messages,
}

impl Dialect {
    pub(crate) const ALL: [Self; 2] = [Self::Chat, Self::Messages];

    pub(crate) const fn path(self) -> &'static str {
        match self {
            Self::Chat => "/v1/chat/completions",
            Self::Messages => "/v1/messages",
        }
    }

    pub(crate) const fn model(self) -> &'static str {
        match self {
            Self::Chat => "gpt-bench",
            Self::Messages => "claude-bench",
        }
    }

    pub(crate) fn of(path: &str) -> Self {
        match path.ends_with("/messages") {
            true => Self::Messages,
            false => Self::Chat,
        }
    }
}

/// Returns a complete response of about a KiB.
pub(crate) fn json(dialect: Dialect) -> String {
    let text = format!("{}{LAST_WORDS}", "A sentence of usual length. ".repeat(24));
    match dialect {
        Dialect::Chat => format!(
            "{{\"id\":\"chatcmpl-0001\",\"object\":\"chat.completion\",\"created\":1700000000,\"model\":\"gpt-bench\",\
             \"choices\":[{{\"index\":0,\"message\":{{\"role\":\"assistant\",\"content\":\"{text}\",\"refusal\":null}},\
             \"logprobs\":null,\"finish_reason\":\"stop\"}}],\"usage\":{{\"prompt_tokens\":240,\"completion_tokens\":150,\
             \"total_tokens\":390}},\"system_fingerprint\":\"fp_0001\"}}"
        ),
        Dialect::Messages => format!(
            "{{\"id\":\"msg_0001\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"claude-bench\",\
             \"content\":[{{\"type\":\"text\",\"text\":\"{text}\"}}],\"stop_reason\":\"end_turn\",\"stop_sequence\":null,\
             \"usage\":{{\"input_tokens\":240,\"output_tokens\":150}}}}"
        ),
    }
}

/// Returns a stream, frame by frame.
pub(crate) fn stream(dialect: Dialect) -> Vec<String> {
    match dialect {
        Dialect::Chat => chat(),
        Dialect::Messages => messages(),
    }
}

/// Returns one frame of text.
pub(crate) fn text_frame(dialect: Dialect, text: &str) -> String {
    match dialect {
        Dialect::Chat => format!(
            "{}{{\"index\":0,\"delta\":{{\"content\":\"{text}\"}},{CHAT_TAIL}",
            chat_start()
        ),
        Dialect::Messages => event(
            "content_block_delta",
            &format!("\"index\":0,\"delta\":{{\"type\":\"text_delta\",\"text\":\"{text}\"}}"),
        ),
    }
}

fn words(number: usize) -> String {
    format!("some words of a long answer {number:03} ")
}

fn chat_start() -> &'static str {
    "data: {\"id\":\"chatcmpl-0001\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,\
     \"model\":\"gpt-bench\",\"choices\":["
}

fn chat() -> Vec<String> {
    let start = chat_start();
    let role = "{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},";
    let mut frames = vec![format!("{start}{role}{CHAT_TAIL}")];
    frames.extend((0..FRAMES - 4).map(|number| text_frame(Dialect::Chat, &words(number))));
    frames.push(text_frame(Dialect::Chat, LAST_WORDS));
    frames.push(format!(
        "{start}{{\"index\":0,\"delta\":{{}},\"finish_reason\":\"stop\"}}]}}\n\n"
    ));
    frames.push("data: [DONE]\n\n".to_owned());
    frames
}

fn messages() -> Vec<String> {
    let mut frames = vec![
        event(
            "message_start",
            "\"message\":{\"id\":\"msg_0001\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"claude-bench\",\
             \"content\":[],\"stop_reason\":null,\"stop_sequence\":null,\"usage\":{\"input_tokens\":240,\"output_tokens\":1}}",
        ),
        event(
            "content_block_start",
            "\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}",
        ),
        event("ping", ""),
    ];
    frames.extend((0..FRAMES - 7).map(|number| text_frame(Dialect::Messages, &words(number))));
    frames.push(text_frame(Dialect::Messages, LAST_WORDS));
    frames.push(event("content_block_stop", "\"index\":0"));
    frames.push(event(
        "message_delta",
        "\"delta\":{\"stop_reason\":\"end_turn\",\"stop_sequence\":null},\"usage\":{\"output_tokens\":150}",
    ));
    frames.push(event("message_stop", ""));
    frames
}

fn event(name: &str, fields: &str) -> String {
    let comma = if fields.is_empty() { "" } else { "," };
    format!("event: {name}\ndata: {{\"type\":\"{name}\"{comma}{fields}}}\n\n")
}

// --- HTTP responses ---

/// Returns the head of a response, with as many headers as providers send.
pub(crate) fn head(status: &str, content_type: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\ndate: Tue, 14 Nov 2023 22:13:20 GMT\r\ncontent-type: {content_type}\r\n{body}\r\n\
         x-request-id: req_0123456789abcdef\r\nx-ratelimit-limit-requests: 10000\r\nx-ratelimit-remaining-requests: 9999\r\n\
         strict-transport-security: max-age=31536000; includeSubDomains; preload\r\nserver: bench\r\n\r\n"
    )
}

/// Returns a complete response of known length.
pub(crate) fn response(status: &str, body: &str) -> Vec<u8> {
    let length = format!("content-length: {}", body.len());
    let mut response = head(status, "application/json", &length);
    response.push_str(body);
    response.into_bytes()
}

/// Returns the head of a stream, and each of its frames as a chunk; the last chunk is the end.
pub(crate) fn streamed(frames: &[String]) -> Vec<Vec<u8>> {
    let head = head(
        "200 OK",
        "text/event-stream; charset=utf-8",
        "transfer-encoding: chunked",
    );
    let mut parts = vec![head.into_bytes()];
    parts.extend(frames.iter().map(|frame| {
        let mut chunk = String::new();
        write!(chunk, "{:x}\r\n{frame}\r\n", frame.len()).unwrap();
        chunk.into_bytes()
    }));
    parts.push(b"0\r\n\r\n".to_vec());
    parts
}
