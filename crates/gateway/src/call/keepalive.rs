//! Keeps a client alive during an attempt or a wait.

use crate::clients::{HoldEnding, KeepAliveAction, KeepAliveSchedule};
use crate::server::response_writer::ResponseWriter;
use crate::shared::Shared;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use std::io;
use std::pin::Pin;
use std::time::Duration;

const ATTEMPTS: HeaderName = HeaderName::from_static("x-outlast-attempts");
const WAITED: HeaderName = HeaderName::from_static("x-outlast-waited-ms");
const REQUEST_ID: HeaderName = HeaderName::from_static("x-outlast-request-id");
const ACCOUNT: HeaderName = HeaderName::from_static("x-outlast-account");

/// What happened to a request so far, for the headers of its response. They are made when they are sent: most requests
/// wait for long, or not at all.
#[derive(Clone, Copy)]
pub(crate) struct ResponseMetadata<'a> {
    pub(crate) id: &'a str,
    pub(crate) attempts: u32,
    pub(crate) waited: Duration,
    /// The name of the account that was asked with.
    pub(crate) account: Option<&'a str>,
}

impl ResponseMetadata<'_> {
    pub(crate) fn headers(self) -> HeaderMap {
        let mut headers = HeaderMap::with_capacity(12);
        self.add_to(&mut headers);
        headers
    }

    pub(crate) fn add_to(self, headers: &mut HeaderMap) {
        let waited = outlast_kernel::time::millis(self.waited);
        headers.insert(ATTEMPTS, self.attempts.into());
        headers.insert(WAITED, waited.into());
        for (header, value) in [(REQUEST_ID, Some(self.id)), (ACCOUNT, self.account)] {
            // A name that no header can hold is left out.
            if let Some(value) = value.and_then(|value| HeaderValue::from_str(value).ok()) {
                headers.insert(header, value);
            }
        }
    }
}

/// How it ended.
pub(crate) enum KeepAliveResult<T> {
    /// The work is done.
    Done(T),
    /// The client has hung up.
    Gone,
    /// The client cannot be kept any longer, and this makes it come back.
    Ended(HoldEnding),
}

/// A client that is being kept.
pub(crate) struct KeepAlive<'a> {
    pub(crate) reply: &'a mut ResponseWriter,
    pub(crate) keeping: &'a mut KeepAliveSchedule,
    /// What the head says of this request when it has to be sent early.
    pub(crate) happened: ResponseMetadata<'a>,
    pub(crate) is_streamed: bool,
    pub(crate) shared: &'a Shared,
}

impl KeepAlive<'_> {
    /// Does what keeps the client until the work is done. The work comes pinned: moved in here, it would take its room
    /// twice in every request that is held.
    pub(crate) async fn keep<T>(
        &mut self,
        mut work: Pin<&mut impl Future<Output = T>>,
    ) -> KeepAliveResult<T> {
        loop {
            let next = self.keeping.next().map(|(at, _)| at);
            tokio::select! {
                biased;
                done = work.as_mut() => return KeepAliveResult::Done(done),
                () = self.reply.gone() => return KeepAliveResult::Gone,
                () = self.shared.alarms.at(next) => {}
            }
            let Some(act) = self.keeping.due(self.shared.now()) else {
                continue;
            };
            match Box::pin(self.act(act)).await {
                Ok(None) => {}
                Ok(Some(ending)) => return KeepAliveResult::Ended(ending),
                Err(_) => return KeepAliveResult::Gone,
            }
        }
    }

    async fn act(&mut self, act: KeepAliveAction) -> io::Result<Option<HoldEnding>> {
        match act {
            KeepAliveAction::Interim => {
                self.shared.metrics.interim();
                self.reply.interim().await?;
            }
            KeepAliveAction::Commit => {
                let headers = early_headers(self.happened, self.is_streamed);
                self.reply.head(StatusCode::OK, &headers, None);
                self.reply.flush().await?;
            }
            KeepAliveAction::Beat(bytes) => {
                self.shared.metrics.beat();
                self.reply.data(&[Bytes::from_static(bytes)]).await?;
            }
            KeepAliveAction::End(ending) => return Ok(Some(ending)),
        }
        Ok(None)
    }
}

/// The head of a response of which nothing is known yet but its form.
fn early_headers(happened: ResponseMetadata<'_>, is_streamed: bool) -> HeaderMap {
    let mut headers = happened.headers();
    let form = match is_streamed {
        true => "text/event-stream; charset=utf-8",
        false => "application/json",
    };
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(form));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    headers
}
