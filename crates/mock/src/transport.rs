//! A script, played as an HTTP server in process would: statuses, headers and frames of the Anthropic API.

use crate::script::{Reply, Script};
use bytes::Bytes;
use futures_util::{StreamExt, future, stream};
use outlast_dialect::anthropic::write;
use outlast_engine::transport::{Error, Request, Response, Transport};
use outlast_engine::{BoxFuture, BoxStream, Clock};
use outlast_kernel::event::Usage;
use outlast_kernel::failure::IoKind;
use outlast_kernel::text;
use serde_json::Value;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The most of a prompt that is said back.
const ECHO_LIMIT: usize = 200;

/// The scripted provider's transport.
pub struct Scripted {
    script: Mutex<Script>,
    clock: Arc<dyn Clock>,
}

impl Scripted {
    /// Plays that script by that clock.
    pub fn new(script: Script, clock: Arc<dyn Clock>) -> Self {
        Self {
            script: Mutex::new(script),
            clock,
        }
    }
}

impl Transport for Scripted {
    fn send(&self, request: Request) -> BoxFuture<'static, Result<Response, Error>> {
        let now = self.clock.now();
        let reply = self
            .script
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .reply(now, request.body.len());
        Box::pin(future::ready(respond(reply, &request.body)))
    }
}

fn respond(reply: Reply, body: &[u8]) -> Result<Response, Error> {
    Ok(match reply {
        Reply::Answer => streamed(answer(body), After::End),
        Reply::DropAfter { pieces } => {
            let frames = answer(body);
            // The first frames open the message; the pieces of the answer follow.
            let kept = 1 + usize::try_from(pieces)
                .unwrap_or(usize::MAX)
                .min(frames.len() - 2);
            streamed(frames.into_iter().take(kept).collect(), After::Reset)
        }
        Reply::Stall => streamed(answer(body).into_iter().take(1).collect(), After::Silence),
        Reply::Overloaded => refused(529, "overloaded_error", "Overloaded", vec![]),
        Reply::ServerError => refused(500, "api_error", "Internal server error", vec![]),
        Reply::RateLimited { wait } => {
            let message =
                "This request would exceed your account's rate limit. Please try again later.";
            refused(429, "rate_limit_error", message, vec![retry_after(wait)])
        }
        Reply::UsageLimit { reset, wait } => {
            let reset_seconds = (reset.as_millis() / 1000).to_string();
            let headers = vec![
                retry_after(wait),
                (
                    "anthropic-ratelimit-unified-status".to_owned(),
                    "rejected".to_owned(),
                ),
                (
                    "anthropic-ratelimit-unified-reset".to_owned(),
                    reset_seconds,
                ),
            ];
            refused(
                429,
                "rate_limit_error",
                "This request would exceed your account's rate limit.",
                headers,
            )
        }
        Reply::Overflow => refused(
            400,
            "invalid_request_error",
            "prompt is too long: 210000 tokens > 200000 maximum",
            vec![],
        ),
        Reply::Reset => return Err(reset()),
    })
}

/// Seconds, rounded up: a client that waits that long does not come too early.
fn retry_after(wait: Duration) -> (String, String) {
    let seconds = wait.as_millis().div_ceil(1000);
    ("retry-after".to_owned(), seconds.to_string())
}

fn refused(status: u16, kind: &str, message: &str, mut headers: Vec<(String, String)>) -> Response {
    headers.push(("content-type".to_owned(), "application/json".to_owned()));
    let body = Bytes::from(write::error_body(kind, message));
    Response {
        status,
        headers,
        body: stream::iter([Ok(body)]).boxed(),
    }
}

enum After {
    End,
    Reset,
    Silence,
}

fn streamed(frames: Vec<String>, after: After) -> Response {
    let rest: BoxStream<'static, Result<Bytes, Error>> = match after {
        After::End => stream::empty().boxed(),
        After::Reset => stream::iter([Err(reset())]).boxed(),
        After::Silence => stream::pending().boxed(),
    };
    let frames = stream::iter(frames.into_iter().map(|frame| Ok(Bytes::from(frame))));
    let headers = vec![("content-type".to_owned(), "text/event-stream".to_owned())];
    Response {
        status: 200,
        headers,
        body: frames.chain(rest).boxed(),
    }
}

fn reset() -> Error {
    Error {
        io: IoKind::Reset,
        message: "connection reset by peer".to_owned(),
    }
}

/// The frames of an answer: its opening, one for each word, its end.
fn answer(body: &[u8]) -> Vec<String> {
    let request: Value = serde_json::from_slice(body).unwrap_or_default();
    let prompt = request["messages"]
        .as_array()
        .and_then(|messages| messages.last()?["content"].as_str());
    let prompt = text::bounded(prompt.unwrap_or_default(), ECHO_LIMIT);
    let answer = format!(
        "Hello from the scripted provider: no network, no key, no cost. You said: {prompt}"
    );
    let words: Vec<&str> = answer.split_inclusive(' ').collect();
    let usage = Usage {
        input: count(body.len() / 4),
        output: 1,
        ..Usage::default()
    };
    let opening = write::start(request["model"].as_str().unwrap_or_default(), usage);
    let end = write::stop(count(words.len()));
    std::iter::once(opening)
        .chain(words.into_iter().map(write::text))
        .chain([end])
        .collect()
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
