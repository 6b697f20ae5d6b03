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
    pub(crate) fn to_headers(self) -> HeaderMap {
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
    ClientDisconnected,
    /// The client cannot be kept any longer, and this makes it come back.
    HoldEnded(HoldEnding),
}

/// A client that is being kept.
pub(crate) struct KeepAlive<'a> {
    pub(crate) response: &'a mut ResponseWriter,
    pub(crate) schedule: &'a mut KeepAliveSchedule,
    /// What the head says of this request when it has to be sent early.
    pub(crate) metadata: ResponseMetadata<'a>,
    pub(crate) is_streamed: bool,
    pub(crate) shared: &'a Shared,
}

impl KeepAlive<'_> {
    /// Does what keeps the client until the work is done. The work comes pinned: moved in here, it would take its room
    /// twice in every request that is held.
    pub(crate) async fn run<T>(
        &mut self,
        mut work: Pin<&mut impl Future<Output = T>>,
    ) -> KeepAliveResult<T> {
        loop {
            let next = self.schedule.next_action().map(|(at, _)| at);
            tokio::select! {
                biased;
                done = work.as_mut() => return KeepAliveResult::Done(done),
                () = self.response.disconnected() => return KeepAliveResult::ClientDisconnected,
                () = self.shared.timers.sleep_until(next) => {}
            }
            let Some(act) = self.schedule.take_due(self.shared.now()) else {
                continue;
            };
            match Box::pin(self.perform(act)).await {
                Ok(None) => {}
                Ok(Some(ending)) => return KeepAliveResult::HoldEnded(ending),
                Err(_) => return KeepAliveResult::ClientDisconnected,
            }
        }
    }

    async fn perform(&mut self, act: KeepAliveAction) -> io::Result<Option<HoldEnding>> {
        match act {
            KeepAliveAction::SendInterim => {
                self.shared.metrics.interim_responses.inc();
                self.response.interim().await?;
            }
            KeepAliveAction::SendHeaders => {
                let headers = early_headers(self.metadata, self.is_streamed);
                self.response.head(StatusCode::OK, &headers, None);
                self.response.flush().await?;
            }
            KeepAliveAction::SendHeartbeat(bytes) => {
                self.shared.metrics.keepalives.inc();
                self.response.data(&[Bytes::from_static(bytes)]).await?;
            }
            KeepAliveAction::EndHold(ending) => return Ok(Some(ending)),
        }
        Ok(None)
    }
}

/// The head of a response of which nothing is known yet but its form.
fn early_headers(happened: ResponseMetadata<'_>, is_streamed: bool) -> HeaderMap {
    let mut headers = happened.to_headers();
    let form = match is_streamed {
        true => "text/event-stream; charset=utf-8",
        false => "application/json",
    };
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(form));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    headers
}
