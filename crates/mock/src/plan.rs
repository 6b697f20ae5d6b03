//! The plan of a response: its bytes in the request's dialect, and their times.
//!
//! Pure: the reply, the request's facts and the time come in, the plan comes out. The in-process transport and the
//! server both execute plans, so they cannot differ.

mod damage;
mod document;

use crate::content;
use crate::error_response::{self, ErrorResponse, http_date};
use crate::reply::{Action, AnswerKind, Disconnect, Reply};
use crate::request_facts::RequestFacts;
use bytes::Bytes;
use outlast_dialect::{Delta, Dialect, StreamCursor};
use outlast_kernel::Timestamp;
use std::time::Duration;

/// The complete response to one request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plan {
    /// The wait before anything is sent.
    pub(crate) hold: Duration,
    /// The status and the headers; `None` when there is no response at all.
    pub(crate) head: Option<Head>,
    pub(crate) pieces: Vec<Piece>,
    pub(crate) end: BodyEnd,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Head {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
}

/// A part of the body, and the wait before it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Piece {
    pub(crate) wait: Duration,
    pub(crate) bytes: Bytes,
}

/// The event after the last piece.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum BodyEnd {
    /// The body ends as HTTP requires.
    Finish,
    /// The connection breaks.
    Disconnect(Disconnect),
    /// Nothing more is sent, forever.
    Silence,
    /// The same bytes are sent repeatedly, forever.
    Repeat {
        /// The bytes.
        bytes: Bytes,
        /// The wait before each repetition.
        every: Duration,
    },
}

/// A request that needs a response.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestContext<'a> {
    pub(crate) dialect: Dialect,
    pub(crate) facts: &'a RequestFacts,
    pub(crate) now: Timestamp,
    /// The request's number, from which the response's id is made.
    pub(crate) number: u64,
    /// The remaining pieces of a stored completion, if the request fetches one.
    pub(crate) stored_pieces: Option<&'a [String]>,
}

const EVENTS: &str = "text/event-stream; charset=utf-8";
const JSON: &str = "application/json";
const HTML: &str = "text/html; charset=utf-8";

/// Returns the plan for a reply.
pub(crate) fn plan(reply: &Reply, ask: RequestContext<'_>) -> Plan {
    let (dialect, now) = (ask.dialect, ask.now);
    let answer = || ask.answer_plan(reply.answer_kind);
    let provider_error = |error| error_response::for_provider_error(error, dialect, now);
    match &reply.action {
        Action::Answer => answer(),
        Action::Hold { delay } => Plan {
            hold: *delay,
            ..answer()
        },
        Action::Drip { delay } => answer().with_delay(*delay),
        Action::Cut { bytes, clean } => answer().truncated_to_bytes(*bytes, *clean),
        Action::DropAfter { pieces } => {
            answer().truncated_to_pieces(*pieces, BodyEnd::Disconnect(Disconnect::Reset))
        }
        Action::Stall { pieces } => answer().truncated_to_pieces(*pieces, BodyEnd::Silence),
        Action::Pings { pieces, every } => answer().with_keepalives(*pieces, *every, ask),
        Action::Malformed { pieces } => answer().with_malformed_frame(*pieces),
        Action::Linger => answer().without_length(BodyEnd::Silence),
        Action::Gzip { always } if *always || ask.facts.accepts_gzip => answer().compressed(),
        Action::Gzip { .. } => answer(),
        Action::NoFinish => ask.answer_without_end(reply.answer_kind),
        Action::StreamError {
            trouble,
            after,
            form,
        } => ask.interrupted(answer(), &provider_error(*trouble), *after, *form),
        Action::ProviderError(trouble) => ask.error_response(&provider_error(*trouble)),
        Action::RateLimit { wait, until, form } => {
            ask.error_response(&error_response::rate_limit(dialect, *wait, *until, *form))
        }
        Action::UsageLimit { wait, until } => {
            ask.error_response(&error_response::usage_limit(dialect, *wait, *until))
        }
        Action::Error { status, code } => ask.error_response(&error_response::with_status(
            dialect,
            *status,
            code.as_deref(),
        )),
        Action::Window { .. }
        | Action::TooLarge { .. }
        | Action::BodyTimeout
        | Action::NoPrefill => match error_response::for_request(&reply.action, dialect, ask.facts)
        {
            Some(refusal) => ask.error_response(&refusal),
            None => answer(),
        },
        Action::SlowError { status } => ask.slow_error(*status),
        Action::EndlessError { status } => ask.endless_error(*status),
        Action::EchoKey => ask.echo_key(),
        Action::Redirect { to } => ask.redirect(to),
        Action::Disconnect(how) => Plan::disconnected(*how),
        Action::Garbage => ask.garbage(),
        Action::Page { status, form } => ask.page(*status, *form),
        Action::JsonError(trouble) => ask.document(
            200,
            JSON,
            dialect.encode_error(&provider_error(*trouble).error),
        ),
        Action::Bomb => ask.bomb(),
    }
}

impl RequestContext<'_> {
    /// Returns the undamaged completion.
    fn answer_plan(self, kind: AnswerKind) -> Plan {
        if let Some(rest) = self.stored_pieces {
            return self.event_stream(rest.to_vec());
        }
        let deltas = self.deltas(kind);
        let model = self.facts.model.as_str();
        if !self.facts.is_streamed {
            return self.json_body(self.dialect.encode_response(model, &deltas));
        }
        let mut frames = self.dialect.encode_stream(model, &deltas);
        if kind == AnswerKind::UnknownFrames {
            let unknown = self.dialect.unknown_frame(model);
            for frame in frames.iter_mut().rev().skip(1) {
                frame.push_str(&unknown);
            }
        }
        self.event_stream(frames)
    }

    /// Returns a completion without its end.
    fn answer_without_end(self, kind: AnswerKind) -> Plan {
        if let Some((_, rest)) = self.stored_pieces.and_then(<[String]>::split_last) {
            return self.event_stream(rest.to_vec());
        }
        let mut deltas = self.deltas(kind);
        deltas.retain(|delta| !matches!(delta, Delta::Stopped(_)));
        let model = self.facts.model.as_str();
        if !self.facts.is_streamed {
            return self.json_body(self.dialect.encode_response(model, &deltas));
        }
        let mut frames = self.dialect.encode_stream(model, &deltas);
        if self.dialect == Dialect::OpenaiChat {
            frames.push(format!("data: {}\n\n", outlast_dialect::openai_chat::DONE));
        }
        self.event_stream(frames)
    }

    fn deltas(self, kind: AnswerKind) -> Vec<Delta> {
        let mut deltas = content::deltas(kind, self.dialect, self.facts);
        let id = match self.dialect {
            _ if self.facts.is_background => Some(self.stored_response_id()),
            Dialect::Anthropic => Some(self.message_id()),
            Dialect::OpenaiChat | Dialect::OpenaiResponses => None,
        };
        deltas.splice(
            0..0,
            id.map(|response| Delta::Cursor(StreamCursor { response, after: 0 })),
        );
        deltas
    }

    /// Returns an id that is unique in the conversation: clients take two completions with the same id for one.
    fn message_id(self) -> String {
        let conversation = &self.facts.conversation;
        format!(
            "msg_scripted_{}_{}",
            conversation.prompts, conversation.answers
        )
    }

    /// Returns the id of a stored completion.
    pub(crate) fn stored_response_id(self) -> String {
        format!("resp_scripted_{:06}", self.number)
    }

    fn event_stream(self, frames: Vec<String>) -> Plan {
        let mut headers = self.headers(EVENTS);
        headers.push(("cache-control".to_owned(), "no-cache".to_owned()));
        Plan {
            hold: Duration::ZERO,
            head: Some(Head {
                status: 200,
                headers,
            }),
            pieces: frames.into_iter().map(Piece::from).collect(),
            end: BodyEnd::Finish,
        }
    }

    /// Splits a one-body completion in two pieces: like a streamed one, its beginning or its end can be missing.
    fn json_body(self, body: String) -> Plan {
        let mut middle = body.len() / 2;
        while !body.is_char_boundary(middle) {
            middle += 1;
        }
        let mut plan = self.document(200, JSON, body);
        if let [piece] = plan.pieces.as_mut_slice() {
            let rest = piece.bytes.split_off(middle);
            plan.pieces.push(Piece::from(rest));
        }
        plan
    }

    pub(crate) fn error_response(self, refusal: &ErrorResponse) -> Plan {
        let mut problem = refusal.error.clone();
        problem.request_id = Some(self.request_id());
        let mut plan = self.document(refusal.status, JSON, self.dialect.encode_error(&problem));
        plan.add_headers(&refusal.headers);
        plan
    }

    fn request_id(self) -> String {
        format!("req_scripted_{:06}", self.number)
    }

    /// Returns the headers of every response of this dialect.
    fn headers(self, content_type: &str) -> Vec<(String, String)> {
        let id = match self.dialect {
            Dialect::Anthropic => "request-id",
            Dialect::OpenaiChat | Dialect::OpenaiResponses => "x-request-id",
        };
        vec![
            ("content-type".to_owned(), content_type.to_owned()),
            ("date".to_owned(), http_date(self.now)),
            (id.to_owned(), self.request_id()),
        ]
    }
}

impl<T: Into<Bytes>> From<T> for Piece {
    fn from(bytes: T) -> Self {
        Self {
            wait: Duration::ZERO,
            bytes: bytes.into(),
        }
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
