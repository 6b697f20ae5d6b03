//! One request over HTTP: read, answered as the script says, noted.

use super::connection::DisconnectSignal;
use super::{Shared, control};
use crate::background_responses::BackgroundResponses;
use crate::log::{EntryHandle, LoggedRequest, Outcome};
use crate::plan::{BodyEnd, Plan, RequestContext};
use crate::playback;
use crate::reply::{Disconnect, Reply};
use crate::request_facts::{RequestFacts, header};
use crate::route::{self, Route};
use crate::script;
use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt, stream};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, StatusCode, Version};
use outlast_engine::BoxStream;
use outlast_engine::transport::Method as Verb;
use serde_json::Value;
use std::sync::{Arc, MutexGuard, PoisonError};

const MAX_BODY_BYTES: usize = 32 << 20;
/// Names the script that a request wants.
const SCRIPT_HEADER: &str = "x-outlast-script";

pub(super) type Body = StreamBody<BoxStream<'static, Result<Frame<Bytes>, ResponseAborted>>>;

/// A response that breaks off. Version 2 of HTTP says so to the client and keeps the connection.
#[derive(Debug, thiserror::Error)]
#[error("the scripted provider breaks off")]
pub(super) struct ResponseAborted;

/// A request that was read.
struct ReceivedRequest {
    headers: Vec<(String, String)>,
    body: Result<Bytes, BodyError>,
}

enum BodyError {
    TooLong,
    Gone,
}

pub(super) async fn handle(
    shared: Arc<Shared>,
    fate: Arc<DisconnectSignal>,
    request: Request<Incoming>,
) -> Result<Response<Body>, ResponseAborted> {
    let (parts, body) = request.into_parts();
    let body = read(body).await;
    if let Some(path) = parts.uri.path().strip_prefix(control::PREFIX) {
        let body = body.unwrap_or_default();
        return Ok(control::handle(&shared, &parts, path, &body));
    }
    let headers = headers(&parts);
    let (plan, note) = shared.decide(&parts, &ReceivedRequest { headers, body });
    let ending = OutcomeReporter {
        // Other answers share a connection of version 2, so that only the one breaks off.
        fate: (parts.version < Version::HTTP_2).then_some(fate),
        note,
    };
    shared.play(plan, ending).await
}

async fn read(mut body: Incoming) -> Result<Bytes, BodyError> {
    let mut bytes = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let data = frame.map_err(|_| BodyError::Gone)?.into_data();
        bytes.extend_from_slice(&data.unwrap_or_default());
        if bytes.len() > MAX_BODY_BYTES {
            return Err(BodyError::TooLong);
        }
    }
    Ok(bytes.freeze())
}

pub(super) fn headers(parts: &Parts) -> Vec<(String, String)> {
    let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
    let headers = parts.headers.iter();
    headers
        .map(|(name, value)| (name.as_str().to_owned(), text(value.as_bytes())))
        .collect()
}

impl Shared {
    /// Notes the request and decides what it gets.
    fn decide(&self, parts: &Parts, read: &ReceivedRequest) -> (Plan, EntryHandle) {
        let bytes = read.body.as_deref().unwrap_or_default();
        let json = serde_json::from_slice::<Value>(bytes).ok();
        let body = json.clone().unwrap_or_default();
        let (now, path) = (self.clock.now(), parts.uri.path());
        let note = self.log.note(&LoggedRequest {
            time: now,
            method: parts.method.as_str(),
            path,
            headers: &read.headers,
            body: &body,
            size: bytes.len(),
        });
        let target = parts.uri.path_and_query();
        let target = target.map_or(path, |target| target.as_str());
        let route = match parts.method {
            Method::GET => route::route(Verb::Get, path),
            Method::POST => route::route(Verb::Post, path),
            _ => Route::WrongMethod,
        };
        let dialect = route::spoken(route, &read.headers);
        let facts = RequestFacts::read(dialect, &read.headers, &body, bytes.len());
        let ask = RequestContext {
            dialect,
            facts: &facts,
            now,
            number: note.number,
            rest: None,
        };
        let plan = match (route, &read.body) {
            (_, Err(BodyError::TooLong)) => {
                ask.invalid_request(413, "The request is longer than 32 MiB.")
            }
            (_, Err(BodyError::Gone)) => ask.invalid_request(400, "The request broke off."),
            (Route::Models, _) => route::models(ask),
            (Route::WrongMethod, _) => ask.invalid_request(405, "Method not allowed."),
            (Route::Unknown, _) => ask.invalid_request(404, "There is no such endpoint."),
            (Route::Inference(_), _) if !json.is_some_and(|json| json.is_object()) => {
                ask.invalid_request(400, "We could not parse the JSON body of your request.")
            }
            (Route::Inference(_), _) => self.answer(ask, &note, read),
            (Route::Rest, _) => self.rest(ask, &note, read, target),
        };
        (plan, note)
    }

    fn answer(&self, ask: RequestContext<'_>, note: &EntryHandle, read: &ReceivedRequest) -> Plan {
        match self.reply(note, read, &ask.facts.model) {
            Ok(reply) => self.kept().plan(&reply, ask),
            Err(error) => ask.invalid_request(400, &error.to_string()),
        }
    }

    /// The rest of an answer, as the script for its model has it.
    fn rest(
        &self,
        ask: RequestContext<'_>,
        note: &EntryHandle,
        read: &ReceivedRequest,
        target: &str,
    ) -> Plan {
        let rest = self.kept().rest(target);
        let rest = match rest {
            Ok(rest) => rest,
            Err(missing) => return missing.plan(ask),
        };
        match self.reply(note, read, &rest.model) {
            Ok(reply) => rest.plan(&reply, ask),
            Err(error) => ask.invalid_request(400, &error.to_string()),
        }
    }

    /// What the script that plays for the request has for it.
    fn reply(
        &self,
        note: &EntryHandle,
        read: &ReceivedRequest,
        model: &str,
    ) -> Result<Reply, script::Error> {
        let named = header(&read.headers, SCRIPT_HEADER);
        let size = read.body.as_ref().map_or(0, Bytes::len);
        let mut book = self.book.lock().unwrap_or_else(PoisonError::into_inner);
        let script = book.choose(named, model)?;
        let reply = script.reply(self.clock.now(), size);
        note.played(script.text(), &reply.fault);
        Ok(reply)
    }

    fn kept(&self) -> MutexGuard<'_, BackgroundResponses> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does what the plan says.
    async fn play(
        &self,
        mut plan: Plan,
        mut ending: OutcomeReporter,
    ) -> Result<Response<Body>, ResponseAborted> {
        playback::wait(&*self.clock, plan.hold).await;
        let Some(head) = plan.head.take() else {
            if let BodyEnd::Broken(how) = plan.end {
                ending.hang_up(how).await;
            }
            return Err(ResponseAborted);
        };
        ending.note.answers(head.status);
        let mut response = Response::builder().status(head.status);
        for (name, value) in head.headers {
            response = response.header(name, value);
        }
        let body = played(plan, Arc::clone(&self.clock), ending);
        // A script can put anything into a header, as the place of a redirect.
        Ok(response.body(body).unwrap_or_else(|_| unsendable()))
    }
}

fn unsendable() -> Response<Body> {
    let message = Bytes::from_static(b"a header of this reply cannot be sent");
    let body = stream::iter([Ok(Frame::data(message))]).boxed();
    let mut response = Response::new(StreamBody::new(body));
    *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
    response
}

/// Where the end of an answer is told.
struct OutcomeReporter {
    fate: Option<Arc<DisconnectSignal>>,
    note: EntryHandle,
}

impl OutcomeReporter {
    /// Ends the connection before a response.
    async fn hang_up(&mut self, how: Disconnect) {
        self.note.ended(how.into());
        if let Some(fate) = &self.fate {
            fate.seal(how);
            std::future::pending::<()>().await;
        }
    }

    /// Ends the connection within a response, when what was sent of it is on its way.
    async fn break_off(&mut self, how: Disconnect) -> ResponseAborted {
        self.note.ended(how.into());
        if let Some(fate) = &self.fate {
            fate.trigger_after_flush(how);
            std::future::pending::<()>().await;
        }
        // The pieces before are still on their way through the connection's task.
        for _ in 0..16 {
            tokio::task::yield_now().await;
        }
        ResponseAborted
    }
}

/// The body of that plan. The last piece that is handed on ends the note.
fn played(plan: Plan, clock: Arc<dyn outlast_engine::Clock>, ending: OutcomeReporter) -> Body {
    let finishes = plan.end == BodyEnd::Finish;
    let left = plan.pieces.len();
    let body = playback::body(plan, clock);
    let state = (body, left, ending);
    let frames = stream::unfold(state, move |(mut body, left, mut ending)| async move {
        let left = left.saturating_sub(1);
        let item = match body.next().await {
            Some(Ok(bytes)) => Ok(Frame::data(bytes)),
            Some(Err(how)) => Err(ending.break_off(how).await),
            None => {
                ending.note.ended(Outcome::Answered);
                return None;
            }
        };
        if finishes && left == 0 {
            ending.note.ended(Outcome::Answered);
        }
        Some((item, (body, left, ending)))
    });
    StreamBody::new(frames.boxed())
}
