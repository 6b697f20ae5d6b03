//! Tests of the gateway with a real provider, a real gateway, real sockets, and a clock that may run fast.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    clippy::too_many_lines,
    reason = "a test may stop at once, and its tables are long"
)]

mod accounts;
mod after_content;
mod clock;
mod dice;
mod endings;
mod exact;
mod hang_up;
mod hostile;
mod kept_alive;
mod limits;
mod matrix;
mod outage;
mod partial_failure;
mod raw;
mod responses;
mod rig;
mod upstream;
mod watched;
mod wire;

use outlast_dialect::Dialect;

/// One response as each dialect sends it.
const RECORDED: [(Dialect, &str); 3] = [
    (
        Dialect::Anthropic,
        include_str!("../../../../corpus/streams/anthropic.sse"),
    ),
    (
        Dialect::OpenaiChat,
        include_str!("../../../../corpus/streams/openai_chat.sse"),
    ),
    (
        Dialect::OpenaiResponses,
        include_str!("../../../../corpus/streams/openai_responses.sse"),
    ),
];

/// Returns the frames of a stream, without the empty lines behind them.
fn frames(stream: &str) -> Vec<&str> {
    let frames = stream.split("\n\n").filter(|frame| !frame.is_empty());
    frames.collect()
}
