//! The end of a request without a response of a model: the provider's own error, an error of the gateway, or an ending
//! after which the client sends the request again.

use super::call::{Call, EndReason};
use super::clients::{HoldEnding, rewrite_retry_headers};
use crate::call::attempt::ErrorResponse;
use crate::observe::log::{EventKind, Outcome, Record};
use crate::server::socket::Socket;
use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use outlast_kernel::decision::GiveUp;
use outlast_kernel::failure::{Failure, IoKind};
use outlast_kernel::verdict::{Cause, Verdict};
use std::io;
use std::time::Duration;

/// The time after which a client is to come back when too many requests wait.
const CAPACITY_RETRY_AFTER: Duration = Duration::from_secs(30);

/// Whether the client may send a request again that has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClientRetry {
    /// It is to come back after that time.
    After(Duration),
    /// All that could help was tried here.
    Discouraged,
    /// Nothing was tried here: it is the client's own business.
    Unspecified,
}

impl Call {
    /// Ends the request; returns the connection, if it can take another request.
    pub(super) async fn finish(mut self: Box<Self>, end: EndReason) -> Option<Socket> {
        match &end {
            EndReason::ClientDisconnected | EndReason::SentBack(_) | EndReason::Stopping => {
                self.abandon_hold();
            }
            // A client that sends the request again all the same has nothing left to spend.
            EndReason::GaveUp(why) if why.is_budget_exhausted() => self.abandon_hold(),
            EndReason::TooManyWaiting | EndReason::Cancelled | EndReason::GaveUp(_) => {
                self.discard_hold();
            }
        }
        let finished = match end {
            EndReason::ClientDisconnected => {
                self.record_finish(Outcome::Left, None);
                return None;
            }
            EndReason::SentBack(ending) => self.send_back(ending).await,
            EndReason::Stopping => {
                let ending = self.keepalive.hold_ending(self.shared.now());
                self.send_back(ending).await
            }
            EndReason::TooManyWaiting => {
                let message =
                    "too many requests wait already; raise gateway.max_waiting or come back later";
                let resend = ClientRetry::After(CAPACITY_RETRY_AFTER);
                let (ended, status) = (Outcome::SentBack, StatusCode::SERVICE_UNAVAILABLE);
                self.respond_error(ended, resend, status, message).await
            }
            EndReason::Cancelled => {
                let message = "the request was cancelled at the gateway";
                let (ended, status) = (Outcome::Cancelled, StatusCode::SERVICE_UNAVAILABLE);
                self.respond_error(ended, ClientRetry::Discouraged, status, message)
                    .await
            }
            EndReason::GaveUp(why) => self.respond_failure(why).await,
        };
        finished.ok()?
    }

    /// Ends a hold so that its client comes back by itself.
    async fn send_back(mut self: Box<Self>, ending: HoldEnding) -> io::Result<Option<Socket>> {
        match ending {
            HoldEnding::Disconnect => {
                self.record_finish(Outcome::SentBack, None);
                self.response.reset();
                Ok(None)
            }
            HoldEnding::ErrorFrame(frame) => {
                self.record_finish(Outcome::SentBack, Some(200));
                self.response.data(&[Bytes::from(frame)]).await?;
                self.response.finish().await
            }
            HoldEnding::Status {
                status,
                retry_after,
            } => {
                let cause = self.failure_state.last_cause.unwrap_or(Cause::Overloaded);
                let message = format!("{}; please try again", cause.phrase());
                let status = StatusCode::from_u16(status);
                let status = status.unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
                let resend = ClientRetry::After(retry_after);
                self.respond_error(Outcome::SentBack, resend, status, &message)
                    .await
            }
        }
    }

    /// Responds with an error of the gateway.
    async fn respond_error(
        self: Box<Self>,
        outcome: Outcome,
        resend: ClientRetry,
        status: StatusCode,
        message: &str,
    ) -> io::Result<Option<Socket>> {
        if self.response.has_started() {
            self.record_finish(outcome, Some(200));
            if let ClientRetry::After(_) = resend {
                self.response.reset();
                return Ok(None);
            }
            return self.finish_started_response(status, message, None).await;
        }
        let mut headers = self.response_metadata().to_headers();
        let json = HeaderValue::from_static("application/json");
        headers.insert(header::CONTENT_TYPE, json);
        match resend {
            ClientRetry::After(wait) => {
                rewrite_retry_headers(self.request.profile, &mut headers, Some(wait), true);
            }
            ClientRetry::Discouraged => {
                headers.insert("x-should-retry", HeaderValue::from_static("false"));
            }
            ClientRetry::Unspecified => {}
        }
        self.record_finish(outcome, Some(status.as_u16()));
        let dialect = self.request.dialect();
        let body = Bytes::from(dialect.error_body(error_type(status), message));
        self.response.whole(status, &headers, body).await
    }

    /// Responds with a final failure: the provider's own error, if there is one.
    async fn respond_failure(mut self: Box<Self>, why: GiveUp) -> io::Result<Option<Socket>> {
        let Some(failure) = self.failure_state.last_failure.take() else {
            // It waited for others and never failed itself.
            let reported = self.failure_state.hold_failure.take();
            let message = reported.map_or(String::new(), |failure| failure.failure.message.clone());
            let message = format!("{message} ({why})");
            let (ended, status) = (Outcome::Failed, StatusCode::SERVICE_UNAVAILABLE);
            return self
                .respond_error(ended, ClientRetry::Discouraged, status, &message)
                .await;
        };
        let Some(refusal) = self.failure_state.error_response.take() else {
            let failure = &failure.failure;
            let message = self.failure_message(failure, why);
            let resend = match why {
                GiveUp::RetriesExhausted { retries: 0 } => ClientRetry::Unspecified,
                _ => ClientRetry::Discouraged,
            };
            return self
                .respond_error(Outcome::Failed, resend, status_for(failure), &message)
                .await;
        };
        if self.response.has_started() {
            self.record_finish(Outcome::Failed, Some(200));
            let message = self.failure_message(&failure.failure, why);
            return self
                .finish_started_response(refusal.status, &message, Some(refusal.body))
                .await;
        }
        self.relay_error_response(*refusal, &failure.verdict, why)
            .await
    }

    /// Relays the provider's own status and body; the time to come back is written as this client reads it.
    async fn relay_error_response(
        mut self: Box<Self>,
        refusal: ErrorResponse,
        verdict: &Verdict,
        why: GiveUp,
    ) -> io::Result<Option<Socket>> {
        let mut headers = refusal.headers;
        if why.is_budget_exhausted() {
            let now = self.shared.now();
            let wait = verdict.hint.as_ref().map(|hint| hint.wait(now));
            rewrite_retry_headers(self.request.profile, &mut headers, wait, false);
        }
        self.response_metadata().add_to(&mut headers);
        if let (true, Ok(why)) = (
            why.is_budget_exhausted(),
            HeaderValue::from_str(&why.to_string()),
        ) {
            headers.insert("x-outlast-gave-up", why);
        }
        self.record_finish(Outcome::Failed, Some(refusal.status.as_u16()));
        let length = refusal.body.len() as u64;
        let length = refusal.rest.is_none().then_some(length);
        self.response.head(refusal.status, &headers, length);
        let passed = match refusal.rest {
            Some(rest) => {
                self.relay_opaque(vec![refusal.body], Box::new(rest))
                    .await?
            }
            None => Ok(self.response.data(&[refusal.body]).await?),
        };
        if passed.is_err() {
            self.response.reset();
            return Ok(None);
        }
        self.response.finish().await
    }

    /// Ends a response whose status has been sent: the error comes in the body.
    async fn finish_started_response(
        mut self: Box<Self>,
        status: StatusCode,
        message: &str,
        body: Option<Bytes>,
    ) -> io::Result<Option<Socket>> {
        let (dialect, kind) = (self.request.dialect(), error_type(status));
        let body = match (self.request.is_streamed, body) {
            (true, _) => Bytes::from(dialect.final_error_frame(kind, status.as_u16(), message)),
            (false, Some(body)) => body,
            (false, None) => Bytes::from(dialect.error_body(kind, message)),
        };
        self.response.data(&[body]).await?;
        self.response.finish().await
    }

    fn failure_message(&self, failure: &Failure, why: GiveUp) -> String {
        match why {
            GiveUp::NotRetryable | GiveUp::ContentSent => failure.message.clone(),
            why => format!("{} ({why})", failure.message),
        }
    }

    /// Tells the observers about the request's end.
    pub(super) fn record_finish(&self, outcome: Outcome, status: Option<u16>) {
        let now = self.shared.now();
        let record = Record {
            received_at: self.request.received_at,
            client: self.request.profile.name,
            dialect: self.model_dialect(),
            model: Some(&*self.request.model).filter(|model| !model.is_empty()),
            account: self.account_name(),
            method: self.request.method.as_str(),
            path: self.request.path(),
            status,
            attempts: self.failure_state.attempts,
            waited: self.failure_state.waited,
            duration: now.since(self.request.received_at),
            first_byte: self.first_byte,
            bytes_in: self.request.body.len() as u64,
            bytes_out: self.response.body_bytes_sent(),
            outcome,
            cause: self
                .failure_state
                .last_cause
                .filter(|_| outcome != Outcome::Answered),
        };
        self.emit(EventKind::Finished(&record));
    }
}

/// Returns the status for a failed connection.
fn status_for(failure: &Failure) -> StatusCode {
    match failure.io {
        Some(IoKind::Timeout | IoKind::Idle) => StatusCode::GATEWAY_TIMEOUT,
        _ => StatusCode::BAD_GATEWAY,
    }
}

/// Returns the error type that clients know for a status.
fn error_type(status: StatusCode) -> &'static str {
    match status.as_u16() {
        429 => "rate_limit_error",
        529 | 503 => "overloaded_error",
        504 => "timeout_error",
        400 => "invalid_request_error",
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        _ => "api_error",
    }
}
