//! A script, played in process: what the server would send, without a network.

use crate::book::Book;
use crate::facts::Facts;
use crate::kept::Kept;
use crate::plan::{Ask, Plan};
use crate::play;
use crate::reply::Broken;
use crate::route::{self, Route};
use crate::script::Script;
use futures_util::TryStreamExt;
use outlast_engine::transport::{Error, Request, Response, Transport};
use outlast_engine::{BoxFuture, Clock};
use outlast_kernel::failure::IoKind;
use serde_json::Value;
use std::sync::{Arc, Mutex, PoisonError};

/// The scripted provider's transport. It speaks the dialect of the path that it is asked at.
pub struct Scripted {
    playing: Mutex<Playing>,
    clock: Arc<dyn Clock>,
}

struct Playing {
    book: Book,
    kept: Kept,
    requests: u64,
}

impl Scripted {
    /// Plays that script by that clock, whatever the model is.
    pub fn new(script: Script, clock: Arc<dyn Clock>) -> Self {
        let mut book = Book::new(script.clone());
        book.set(None, script);
        Self::playing(book, clock)
    }

    /// Plays for each model the script that it is named after, and that script for a model that is named after none.
    pub fn by_model(script: Script, clock: Arc<dyn Clock>) -> Self {
        Self::playing(Book::new(script), clock)
    }

    fn playing(book: Book, clock: Arc<dyn Clock>) -> Self {
        let playing = Playing {
            book,
            kept: Kept::default(),
            requests: 0,
        };
        Self {
            playing: Mutex::new(playing),
            clock,
        }
    }

    fn plan(&self, request: &Request) -> Plan {
        let mut playing = self.playing.lock().unwrap_or_else(PoisonError::into_inner);
        let playing = &mut *playing;
        playing.requests += 1;
        let route = route::route(request.method, &request.path);
        let dialect = route::spoken(route, &request.headers);
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let facts = Facts::read(dialect, &request.headers, &body, request.body.len());
        let ask = Ask {
            dialect,
            facts: &facts,
            now: self.clock.now(),
            number: playing.requests,
            rest: None,
        };
        match route {
            Route::Inference(_) => match playing.book.choose(None, &facts.model) {
                Ok(script) => {
                    let reply = script.reply(ask.now, request.body.len());
                    playing.kept.plan(&reply, ask)
                }
                Err(error) => ask.invalid_request(400, &error.to_string()),
            },
            Route::Rest => match playing.kept.rest(&request.path) {
                Ok(rest) => match playing.book.choose(None, &rest.model) {
                    Ok(script) => rest.plan(&script.reply(ask.now, 0), ask),
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

impl Transport for Scripted {
    fn send(&self, request: Request) -> BoxFuture<'static, Result<Response, Error>> {
        let mut plan = self.plan(&request);
        let clock = Arc::clone(&self.clock);
        Box::pin(async move {
            play::wait(&*clock, plan.hold).await;
            let head = plan.head.take();
            let mut body = play::body(plan, clock);
            match head {
                Some(head) => Ok(Response {
                    status: head.status,
                    headers: head.headers,
                    body: Box::pin(body.map_err(|how| broken(how, IoKind::Truncated))),
                }),
                None => match body.try_next().await {
                    Err(how) => Err(broken(how, IoKind::Reset)),
                    Ok(_) => std::future::pending().await,
                },
            }
        })
    }
}

/// What a client sees. A connection that is closed looks different before and within a response.
fn broken(how: Broken, closed: IoKind) -> Error {
    let (io, message) = match how {
        Broken::Reset => (IoKind::Reset, "connection reset by peer"),
        Broken::Closed => (closed, "connection closed before message completed"),
    };
    let message = message.to_owned();
    Error { io, message }
}
