//! One request over HTTP: reads it, sends the scripted response, and logs the outcome.

use super::connection::DisconnectSignal;
use super::{Shared, control};
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
use std::sync::Arc;

const MAX_BODY_BYTES: usize = 32 << 20;
/// The header that names the script of a request.
const SCRIPT_HEADER: &str = "x-outlast-script";

pub(super) type Body = StreamBody<BoxStream<'static, Result<Frame<Bytes>, ResponseAborted>>>;

/// The error that aborts a response. HTTP/2 reports it to the client and keeps the connection.
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
    Disconnected,
}

pub(super) async fn handle(
    shared: Arc<Shared>,
    fate: Arc<DisconnectSignal>,
    request: Request<Incoming>,
) -> Result<Response<Body>, ResponseAborted> {
    let (parts, body) = request.into_parts();
    let body = read_body(body).await;
    if let Some(path) = parts.uri.path().strip_prefix(control::PREFIX) {
        let body = body.unwrap_or_default();
        return Ok(control::handle(&shared, &parts, path, &body));
    }
    let headers = headers(&parts);
    let (plan, entry) = shared.plan_response(&parts, &ReceivedRequest { headers, body });
    let ending = OutcomeReporter {
        // Other responses share an HTTP/2 connection, so only this one is aborted.
        signal: (parts.version < Version::HTTP_2).then_some(fate),
        entry,
    };
    shared.send_plan(plan, ending).await
}

async fn read_body(mut body: Incoming) -> Result<Bytes, BodyError> {
    let mut bytes = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let data = frame.map_err(|_| BodyError::Disconnected)?.into_data();
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
    /// Logs the request and decides on the response.
    fn plan_response(&self, parts: &Parts, read: &ReceivedRequest) -> (Plan, EntryHandle) {
        let bytes = read.body.as_deref().unwrap_or_default();
        let json = serde_json::from_slice::<Value>(bytes).ok();
        let body = json.clone().unwrap_or_default();
        let (now, path) = (self.clock.now(), parts.uri.path());
        let note = self.log.record_request(&LoggedRequest {
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
        let dialect = route::dialect_of(route, &read.headers);
        let facts = RequestFacts::parse(dialect, &read.headers, &body, bytes.len());
        let ask = RequestContext {
            dialect,
            facts: &facts,
            now,
            number: note.number,
            stored_pieces: None,
        };
        let plan = match (route, &read.body) {
            (_, Err(BodyError::TooLong)) => {
                ask.invalid_request(413, "The request is longer than 32 MiB.")
            }
            (_, Err(BodyError::Disconnected)) => ask.invalid_request(400, "The request broke off."),
            (Route::Models, _) => route::models(ask),
            (Route::WrongMethod, _) => ask.invalid_request(405, "Method not allowed."),
            (Route::Unknown, _) => ask.invalid_request(404, "There is no such endpoint."),
            (Route::Completion(_), _) if !json.is_some_and(|json| json.is_object()) => {
                ask.invalid_request(400, "We could not parse the JSON body of your request.")
            }
            (Route::Completion(_), _) => self.plan_answer(ask, &note, read),
            (Route::StoredResponse, _) => self.plan_stored_response(ask, &note, read, target),
        };
        (plan, note)
    }

    fn plan_answer(
        &self,
        ask: RequestContext<'_>,
        note: &EntryHandle,
        read: &ReceivedRequest,
    ) -> Plan {
        match self.next_reply(note, read, &ask.facts.model) {
            Ok(reply) => self.background_responses.lock().plan(&reply, ask),
            Err(error) => ask.invalid_request(400, &error.to_string()),
        }
    }

    /// Returns the plan for the rest of a stored response, according to the script of its model.
    fn plan_stored_response(
        &self,
        ask: RequestContext<'_>,
        note: &EntryHandle,
        read: &ReceivedRequest,
        target: &str,
    ) -> Plan {
        let rest = self.background_responses.lock().remaining(target);
        let rest = match rest {
            Ok(rest) => rest,
            Err(missing) => return missing.plan(ask),
        };
        match self.next_reply(note, read, &rest.model) {
            Ok(reply) => rest.plan(&reply, ask),
            Err(error) => ask.invalid_request(400, &error.to_string()),
        }
    }

    /// Returns the reply of the script that applies to the request.
    fn next_reply(
        &self,
        note: &EntryHandle,
        read: &ReceivedRequest,
        model: &str,
    ) -> Result<Reply, script::Error> {
        let named = header(&read.headers, SCRIPT_HEADER);
        let body = read.body.as_deref().unwrap_or_default();
        let mut book = self.scripts.lock();
        let script = book.select(named, model)?;
        let reply = script.next_reply(self.clock.now(), body);
        note.record_fault(script.text(), &reply.fault);
        Ok(reply)
    }

    /// Executes the plan.
    async fn send_plan(
        &self,
        mut plan: Plan,
        mut ending: OutcomeReporter,
    ) -> Result<Response<Body>, ResponseAborted> {
        playback::wait(&*self.clock, plan.hold).await;
        let Some(head) = plan.head.take() else {
            if let BodyEnd::Disconnect(how) = plan.end {
                ending.hang_up(how).await;
            }
            return Err(ResponseAborted);
        };
        ending.entry.record_status(head.status);
        let mut response = Response::builder().status(head.status);
        for (name, value) in head.headers {
            response = response.header(name, value);
        }
        let body = response_body(plan, Arc::clone(&self.clock), ending);
        // A script can put any text into a header, such as the target of a redirect.
        Ok(response
            .body(body)
            .unwrap_or_else(|_| invalid_header_response()))
    }
}

fn invalid_header_response() -> Response<Body> {
    let message = Bytes::from_static(b"a header of this reply cannot be sent");
    let body = stream::iter([Ok(Frame::data(message))]).boxed();
    let mut response = Response::new(StreamBody::new(body));
    *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
    response
}

/// Reports the end of a response to the log and the connection.
struct OutcomeReporter {
    signal: Option<Arc<DisconnectSignal>>,
    entry: EntryHandle,
}

impl OutcomeReporter {
    /// Ends the connection before a response.
    async fn hang_up(&mut self, how: Disconnect) {
        self.entry.record_outcome(how.into());
        if let Some(fate) = &self.signal {
            fate.trigger(how);
            std::future::pending::<()>().await;
        }
    }

    /// Ends the connection within a response, after the part before was sent.
    async fn break_off(&mut self, how: Disconnect) -> ResponseAborted {
        self.entry.record_outcome(how.into());
        if let Some(fate) = &self.signal {
            fate.trigger_after_flush(how);
            std::future::pending::<()>().await;
        }
        // The pieces before are still in transit through the connection's task.
        for _ in 0..16 {
            tokio::task::yield_now().await;
        }
        ResponseAborted
    }
}

/// Returns the body of a plan. The last piece completes the log entry.
fn response_body(
    plan: Plan,
    clock: Arc<dyn outlast_engine::Clock>,
    ending: OutcomeReporter,
) -> Body {
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
                ending.entry.record_outcome(Outcome::Answered);
                return None;
            }
        };
        if finishes && left == 0 {
            ending.entry.record_outcome(Outcome::Answered);
        }
        Some((item, (body, left, ending)))
    });
    StreamBody::new(frames.boxed())
}
