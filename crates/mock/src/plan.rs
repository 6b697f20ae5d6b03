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
    Broken(Disconnect),
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
    pub(crate) rest: Option<&'a [String]>,
}

const EVENTS: &str = "text/event-stream; charset=utf-8";
const JSON: &str = "application/json";
const HTML: &str = "text/html; charset=utf-8";

/// Returns the plan for a reply.
pub(crate) fn plan(reply: &Reply, ask: RequestContext<'_>) -> Plan {
    let (dialect, now) = (ask.dialect, ask.now);
    let answer = || ask.answer(reply.of);
    match &reply.act {
        Action::Answer => answer(),
        Action::Hold { delay } => Plan {
            hold: *delay,
            ..answer()
        },
        Action::Drip { delay } => answer().dripping(*delay),
        Action::Cut { bytes, clean } => answer().cut(*bytes, *clean),
        Action::DropAfter { pieces } => answer().kept(*pieces, BodyEnd::Broken(Disconnect::Reset)),
        Action::Stall { pieces } => answer().kept(*pieces, BodyEnd::Silence),
        Action::Pings { pieces, every } => answer().pinging(*pieces, *every, ask),
        Action::Malformed { pieces } => answer().malformed(*pieces),
        Action::Linger => answer().unmeasured(BodyEnd::Silence),
        Action::Gzip { always } if *always || ask.facts.accepts_gzip => answer().compressed(),
        Action::Gzip { .. } => answer(),
        Action::NoFinish => ask.unfinished(reply.of),
        Action::InBand {
            trouble,
            after,
            form,
        } => ask.interrupted(
            answer(),
            &error_response::of(*trouble, dialect, now),
            *after,
            *form,
        ),
        Action::Refuse(trouble) => ask.refused(&error_response::of(*trouble, dialect, now)),
        Action::RateLimit { wait, until, form } => {
            ask.refused(&error_response::rate_limit(dialect, *wait, *until, *form))
        }
        Action::UsageLimit { wait, until } => {
            ask.refused(&error_response::usage_limit(dialect, *wait, *until))
        }
        Action::Error { status, code } => ask.refused(&error_response::with_status(
            dialect,
            *status,
            code.as_deref(),
        )),
        Action::Window { .. }
        | Action::TooLarge { .. }
        | Action::BodyTimeout
        | Action::NoPrefill => match error_response::for_request(&reply.act, dialect, ask.facts) {
            Some(refusal) => ask.refused(&refusal),
            None => answer(),
        },
        Action::SlowError { status } => ask.slow_error(*status),
        Action::EndlessError { status } => ask.endless_error(*status),
        Action::EchoKey => ask.echo_key(),
        Action::Redirect { to } => ask.redirect(to),
        Action::HangUp(how) => Plan::broken(*how),
        Action::Garbage => ask.garbage(),
        Action::Page { status, form } => ask.page(*status, *form),
        Action::JsonError(trouble) => {
            let problem = error_response::of(*trouble, dialect, now).problem;
            ask.document(200, JSON, dialect.error(&problem))
        }
        Action::Bomb => ask.bomb(),
    }
}

impl RequestContext<'_> {
    /// Returns the undamaged completion.
    fn answer(self, kind: AnswerKind) -> Plan {
        if let Some(rest) = self.rest {
            return self.events(rest.to_vec());
        }
        let deltas = self.deltas(kind);
        let model = self.facts.model.as_str();
        if !self.facts.streamed {
            return self.whole(self.dialect.whole(model, &deltas));
        }
        let mut frames = self.dialect.frames(model, &deltas);
        if kind == AnswerKind::UnknownFrames {
            let unknown = self.dialect.unknown_frame(model);
            for frame in frames.iter_mut().rev().skip(1) {
                frame.push_str(&unknown);
            }
        }
        self.events(frames)
    }

    /// Returns a completion without its end.
    fn unfinished(self, kind: AnswerKind) -> Plan {
        if let Some((_, rest)) = self.rest.and_then(<[String]>::split_last) {
            return self.events(rest.to_vec());
        }
        let mut deltas = self.deltas(kind);
        deltas.retain(|delta| !matches!(delta, Delta::Stopped(_)));
        let model = self.facts.model.as_str();
        if !self.facts.streamed {
            return self.whole(self.dialect.whole(model, &deltas));
        }
        let mut frames = self.dialect.frames(model, &deltas);
        if self.dialect == Dialect::OpenaiChat {
            frames.push(format!("data: {}\n\n", outlast_dialect::openai_chat::DONE));
        }
        self.events(frames)
    }

    fn deltas(self, kind: AnswerKind) -> Vec<Delta> {
        let mut deltas = content::deltas(kind, self.dialect, self.facts);
        let id = match self.dialect {
            _ if self.facts.in_background => Some(self.kept_as()),
            Dialect::Anthropic => Some(self.message_id()),
            Dialect::OpenaiChat | Dialect::OpenaiResponses => None,
        };
        deltas.splice(
            0..0,
            id.map(|response| Delta::Place(StreamCursor { response, after: 0 })),
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
    pub(crate) fn kept_as(self) -> String {
        format!("resp_scripted_{:06}", self.number)
    }

    fn events(self, frames: Vec<String>) -> Plan {
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
    fn whole(self, body: String) -> Plan {
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

    pub(crate) fn refused(self, refusal: &ErrorResponse) -> Plan {
        let mut problem = refusal.problem.clone();
        problem.request_id = Some(self.request_id());
        let mut plan = self.document(refusal.status, JSON, self.dialect.error(&problem));
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
