//! Keeps a client alive during an attempt or a wait.

use super::EndReason;
use crate::clients::{HoldEnding, KeepAliveAction, KeepAliveSchedule};
use crate::observe::log::EventKind;
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

/// The attempts and waits of a request so far, for the headers of its response. The headers are made when they are sent:
/// most requests wait for long, or not at all.
#[derive(Clone, Copy)]
pub(crate) struct ResponseMetadata<'a> {
    pub(crate) id: &'a str,
    pub(crate) attempts: u32,
    pub(crate) waited: Duration,
    /// The name of the stored account that was used.
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

/// A client that is kept alive.
pub(crate) struct KeepAlive<'a> {
    pub(crate) response: &'a mut ResponseWriter,
    pub(crate) schedule: &'a mut KeepAliveSchedule,
    /// For the head, if it has to be sent before there is a response.
    pub(crate) metadata: ResponseMetadata<'a>,
    pub(crate) is_streamed: bool,
    pub(crate) shared: &'a Shared,
}

impl KeepAlive<'_> {
    /// Keeps the client alive until the work is done. Fails if the client disconnects, or cannot be kept any longer. The work
    /// comes pinned: moved in here, it would take its room twice in every request that is held.
    pub(crate) async fn run<T>(
        &mut self,
        mut work: Pin<&mut impl Future<Output = T>>,
    ) -> Result<T, EndReason> {
        loop {
            let next = self.schedule.next_action().map(|(at, _)| at);
            tokio::select! {
                biased;
                done = work.as_mut() => return Ok(done),
                () = self.response.disconnected() => return Err(EndReason::ClientDisconnected),
                () = self.shared.timers.sleep_until(next) => {}
            }
            let Some(act) = self.schedule.take_due(self.shared.now()) else {
                continue;
            };
            match Box::pin(self.perform(act)).await {
                Ok(None) => {}
                Ok(Some(ending)) => return Err(EndReason::SentBack(ending)),
                Err(_) => return Err(EndReason::ClientDisconnected),
            }
        }
    }

    async fn perform(&mut self, act: KeepAliveAction) -> io::Result<Option<HoldEnding>> {
        match act {
            KeepAliveAction::SendInterim => {
                self.shared.emit(EventKind::InterimResponse);
                self.response.interim().await?;
            }
            KeepAliveAction::SendHeaders => {
                let headers = early_headers(self.metadata, self.is_streamed);
                self.response.head(StatusCode::OK, &headers, None);
                self.response.flush().await?;
            }
            KeepAliveAction::SendHeartbeat(bytes) => {
                self.shared.emit(EventKind::Heartbeat);
                self.response.data(&[Bytes::from_static(bytes)]).await?;
            }
            KeepAliveAction::EndHold(ending) => return Ok(Some(ending)),
        }
        Ok(None)
    }
}

/// Returns the headers of a response that is not known yet, except for its form.
fn early_headers(metadata: ResponseMetadata<'_>, is_streamed: bool) -> HeaderMap {
    let mut headers = metadata.to_headers();
    let form = match is_streamed {
        true => "text/event-stream; charset=utf-8",
        false => "application/json",
    };
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(form));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    headers
}
