//! The mock provider in process: the same responses as the server's, without a network.

use crate::background_responses::BackgroundResponses;
use crate::plan::{Plan, RequestContext};
use crate::playback;
use crate::reply::Disconnect;
use crate::request_facts::RequestFacts;
use crate::route::{self, Route};
use crate::script::Script;
use crate::script_registry::ScriptRegistry;
use futures_util::TryStreamExt;
use outlast_engine::transport::{Error, Request, Response, Transport};
use outlast_engine::{BoxFuture, Clock};
use outlast_kernel::failure::IoKind;
use parking_lot::Mutex;
use serde_json::Value;
use std::sync::Arc;

/// The mock provider as a transport. It uses the dialect of the requested path.
pub struct ScriptedTransport {
    state: Mutex<State>,
    clock: Arc<dyn Clock>,
}

struct State {
    scripts: ScriptRegistry,
    background_responses: BackgroundResponses,
    request_count: u64,
}

impl ScriptedTransport {
    /// Creates a transport that plays the script for every model.
    pub fn new(script: Script, clock: Arc<dyn Clock>) -> Self {
        let mut book = ScriptRegistry::new(script.clone());
        book.set_override(None, script);
        Self::with_registry(book, clock)
    }

    /// Creates a transport that plays the script named by the request's model, or `script` if the name is not a script.
    pub fn by_model(script: Script, clock: Arc<dyn Clock>) -> Self {
        Self::with_registry(ScriptRegistry::new(script), clock)
    }

    fn with_registry(scripts: ScriptRegistry, clock: Arc<dyn Clock>) -> Self {
        let playing = State {
            scripts,
            background_responses: BackgroundResponses::default(),
            request_count: 0,
        };
        Self {
            state: Mutex::new(playing),
            clock,
        }
    }

    fn plan(&self, request: &Request) -> Plan {
        let mut playing = self.state.lock();
        let playing = &mut *playing;
        playing.request_count += 1;
        let route = route::route(request.method, &request.path);
        let dialect = route::dialect_of(route, &request.headers);
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let facts = RequestFacts::parse(dialect, &request.headers, &body, request.body.len());
        let ask = RequestContext {
            dialect,
            facts: &facts,
            now: self.clock.now(),
            number: playing.request_count,
            stored_pieces: None,
        };
        match route {
            Route::Completion(_) => match playing.scripts.select(None, &facts.model) {
                Ok(script) => {
                    let reply = script.next_reply(ask.now, &request.body);
                    playing.background_responses.plan(&reply, ask)
                }
                Err(error) => ask.invalid_request(400, &error.to_string()),
            },
            Route::StoredResponse => match playing.background_responses.remaining(&request.path) {
                Ok(rest) => match playing.scripts.select(None, &rest.model) {
                    Ok(script) => rest.plan(&script.next_reply(ask.now, &[]), ask),
                    Err(error) => ask.invalid_request(400, &error.to_string()),
                },
                Err(missing) => missing.plan(ask),
            },
            Route::Models => route::models(ask),
            Route::WrongMethod => ask.invalid_request(405, "Method not allowed."),
            Route::Unknown => ask.invalid_request(404, "There is no such endpoint."),
        }
    }
}

impl Transport for ScriptedTransport {
    fn send(&self, request: Request) -> BoxFuture<'static, Result<Response, Error>> {
        let mut plan = self.plan(&request);
        let clock = Arc::clone(&self.clock);
        Box::pin(async move {
            playback::wait(&*clock, plan.hold).await;
            let head = plan.head.take();
            let mut body = playback::body(plan, clock);
            match head {
                Some(head) => Ok(Response {
                    status: head.status,
                    headers: head.headers,
                    body: Box::pin(body.map_err(|how| transport_error(how, IoKind::Truncated))),
                }),
                None => match body.try_next().await {
                    Err(how) => Err(transport_error(how, IoKind::Reset)),
                    Ok(_) => std::future::pending().await,
                },
            }
        })
    }
}

/// Returns the error that a client sees. A closed connection is a different error before and within a response.
fn transport_error(how: Disconnect, closed: IoKind) -> Error {
    let (io, message) = match how {
        Disconnect::Reset => (IoKind::Reset, "connection reset by peer"),
        Disconnect::Closed => (closed, "connection closed before message completed"),
    };
    let message = message.to_owned();
    Error { io, message }
}
