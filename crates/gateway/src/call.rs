//! One request from its arrival to its end: attempts, waits, and the response to the client.
//!
//! The engine's attempt driver carries the request out; this module says how an attempt is made and what happens to the client
//! meanwhile. Invariants: one budget for each request, over all its resends; no retry after content was sent; a wait is
//! recorded before it begins; a waiting client is kept alive, and the request to the provider is dropped as soon as the
//! client disconnects. Not here: one attempt (see `attempt`), the driver's questions (see `driven`), the record of a wait
//! (see `waiting`), the response from its first content on (see `relay`), and the end without a response (see `finish`).

pub(crate) mod attempt;
mod driven;
mod waiting;

use super::clients::{HoldEnding, KeepAliveSchedule, stated_timeout};
use super::holds::{Command, Hold};
use super::inbound_request::InboundRequest;
use super::shared::Shared;
use super::upstreams::Upstreams;
use crate::call::attempt::{Attempt, AttemptResult, ErrorResponse, UpstreamResponse};
use crate::call::driven::{KeepAlive, ResponseMetadata};
use crate::observe::log::{Event as LogEvent, EventKind, RequestRef, Sink, WaitReason};
use crate::observe::metrics::GaugeGuard;
use crate::server::response_writer::ResponseWriter;
use crate::server::socket::Socket;
use http::HeaderName;
use outlast_dialect::Dialect;
use outlast_engine::attempt::{self as engine, Driver, Ended, Permit};
use outlast_engine::{RetryStrategy, strategy::PolicyRetry};
use outlast_kernel::Timestamp;
use outlast_kernel::attempt::{Event, Outcome, State, step};
use outlast_kernel::budget::{Limits, Prompt};
use outlast_kernel::decision::{GiveUp, RetryRules};
use outlast_kernel::failure::ClassifiedFailure;
use outlast_kernel::verdict::Cause;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The header in which SDKs count their own retries of a request.
const RETRY_COUNT_HEADER: HeaderName = HeaderName::from_static("x-stainless-retry-count");
/// The shortest limit of a hold: however short a policy's waits are, the gate may need this long.
const MIN_HOLD: Duration = Duration::from_secs(120);

/// A request that is being answered.
pub(super) struct Call {
    pub(super) shared: Arc<Shared>,
    /// The key of the request in its events.
    key: u64,
    pub(super) upstreams: Arc<Upstreams>,
    pub(super) request: InboundRequest,
    pub(super) response: ResponseWriter,
    pub(super) keepalive: KeepAliveSchedule,
    strategy: PolicyRetry,
    pub(super) driver: Driver,
    hold: Option<Hold>,
    /// Gauges for the waiting request and for its body on the disk.
    gauge_guards: Vec<GaugeGuard>,
    pub(super) failure_state: FailureState,
    /// The response of the attempt that succeeded.
    upstream_response: Option<Box<UpstreamResponse>>,
    /// The permit of that attempt: the account has a limit of concurrent calls.
    permit: Option<Permit>,
    /// The reason for which the call has ended itself.
    end: Option<Box<EndReason>>,
    /// Whether the last bytes sent are an incomplete frame: the gateway may insert nothing after them.
    pub(super) is_mid_frame: bool,
    /// The time until the first byte of the provider's response.
    pub(super) first_byte: Option<Duration>,
}

/// The failures and waits so far.
#[derive(Default)]
pub(super) struct FailureState {
    /// The time of the first failure, over all resends.
    pub(super) failing_since: Option<Timestamp>,
    pub(super) attempts: u32,
    pub(super) resent: u32,
    pub(super) waited: Duration,
    /// The time since which it waits, and the reason that was logged.
    pub(super) waiting_since: Option<Timestamp>,
    pub(super) logged_reason: Option<WaitReason>,
    pub(super) last_failure: Option<Arc<ClassifiedFailure>>,
    /// The reported failure of a request that has not failed itself: it was held for too long.
    pub(super) hold_failure: Option<Arc<ClassifiedFailure>>,
    /// The provider's error response to the last attempt, if there was one.
    pub(super) error_response: Option<Box<ErrorResponse>>,
    pub(super) last_cause: Option<Cause>,
}

/// The reason why a request ends without a response of the provider.
pub(super) enum EndReason {
    /// The client has disconnected.
    ClientDisconnected,
    /// The client is made to come back.
    SentBack(HoldEnding),
    /// The gateway stops: the client is made to come back.
    Stopping,
    /// The failure is final.
    GaveUp(GiveUp),
    /// A person ended it.
    Cancelled,
    /// Too many requests wait already.
    TooManyWaiting,
}

impl Call {
    pub(super) fn new(
        shared: Arc<Shared>,
        upstreams: Arc<Upstreams>,
        request: InboundRequest,
        response: ResponseWriter,
    ) -> Box<Self> {
        let headers = request.headers();
        let stated = stated_timeout(request.profile, &headers);
        let resent = headers.get(RETRY_COUNT_HEADER);
        let is_resent = resent.is_some_and(|count| count != "0");
        let keepalive = KeepAliveSchedule::new(
            request.profile,
            request.response_format(),
            request.received_at,
        )
        .with_stated_timeout(stated);
        let strategy = PolicyRetry::new(Arc::clone(&request.policy), Arc::clone(&shared.clock));
        let state = State::new(rules(&request, &strategy), Prompt::new(Limits::default()));
        let driver = Driver::new(state, Some(shared.shared_state.clone()));
        let key = shared.request_count.fetch_add(1, Ordering::Relaxed);
        let call = Box::new(Self {
            shared,
            key,
            upstreams,
            request,
            response,
            keepalive,
            strategy,
            driver,
            hold: None,
            gauge_guards: Vec::new(),
            failure_state: FailureState::default(),
            upstream_response: None,
            permit: None,
            end: None,
            is_mid_frame: false,
            first_byte: None,
        });
        let received = EventKind::Received {
            model: &call.request.model,
            path: call.request.path(),
            is_resent,
        };
        call.emit_at(call.request.received_at, received);
        call
    }

    /// Answers the request; returns the connection, if it can take another request.
    pub(super) async fn run(mut self: Box<Self>) -> Option<Socket> {
        let resumed = match self.may_resume() {
            true => Box::pin(self.resume()).await,
            false => None,
        };
        let effects = resumed.unwrap_or_else(|| step(self.driver.state_mut(), Event::Started));
        let outcome = engine::run(&mut *self, effects).await;
        self.end_wait();
        let end = match outcome {
            Ok(Outcome::Completed) => match self.upstream_response.take() {
                Some(response) => return Box::pin(self.relay_response(*response)).await,
                None => EndReason::GaveUp(GiveUp::NotRetryable),
            },
            Ok(Outcome::Failed(why)) => EndReason::GaveUp(why),
            Ok(Outcome::Aborted) => EndReason::Cancelled,
            Err(Ended) => self.end.take().map_or(EndReason::Cancelled, |end| *end),
        };
        Box::pin(self.finish(end)).await
    }

    /// Ends the call without an outcome of the driver.
    fn end_with(&mut self, end: EndReason) -> Ended {
        self.end = Some(Box::new(end));
        Ended
    }

    /// Makes one attempt while the client is kept alive.
    async fn send(&mut self) -> Result<AttemptResult, EndReason> {
        self.end_wait();
        self.failure_state.logged_reason = None;
        self.failure_state.attempts += 1;
        self.emit(EventKind::AttemptStarted {
            attempt: self.failure_state.attempts,
            body_bytes: self.request.body.len() as u64,
        });
        let shared = Arc::clone(&self.shared);
        let attempt = Attempt {
            request: &self.request,
            upstreams: &self.upstreams,
            credential: self.driver.account().map(|account| &account.credential),
            timers: &shared.timers,
        };
        let mut keeper = KeepAlive {
            metadata: response_metadata(&self.request.id, &self.failure_state, &self.driver),
            response: &mut self.response,
            schedule: &mut self.keepalive,
            is_streamed: self.request.is_streamed,
            shared: &shared,
        };
        let hold = self.hold.as_ref();
        let sending = Box::pin(attempt.send());
        let work = pin!(async {
            tokio::select! {
                biased;
                result = sending => Some(result),
                () = wait_for_cancel(hold) => None,
            }
        });
        keeper.run(work).await?.ok_or(EndReason::Cancelled)
    }

    /// Returns the attempts and waits so far.
    pub(super) fn response_metadata(&self) -> ResponseMetadata<'_> {
        response_metadata(&self.request.id, &self.failure_state, &self.driver)
    }

    /// Returns the name of the stored account in use, if the client's own key is not.
    pub(super) fn account_name(&self) -> Option<&str> {
        self.driver.account().map(|account| account.name.as_str())
    }

    /// Returns the name of the provider.
    pub(super) fn provider(&self) -> &str {
        &self.upstreams.for_route(self.request.route).name
    }
}

/// Returns the rules of a request.
fn rules(request: &InboundRequest, strategy: &PolicyRetry) -> RetryRules {
    match request.route.is_retried() {
        true => RetryRules {
            min_hold: MIN_HOLD,
            ..strategy.rules()
        },
        false => RetryRules::NONE,
    }
}

/// Waits until a person cancels the request. A retry-now command has no effect during an attempt.
async fn wait_for_cancel(hold: Option<&Hold>) {
    while driven::command(hold).await != Command::Cancel {}
}

/// Returns the attempts and waits so far, without borrowing all of a call.
fn response_metadata<'a>(
    id: &'a str,
    failure_state: &FailureState,
    driver: &'a Driver,
) -> ResponseMetadata<'a> {
    ResponseMetadata {
        id,
        attempts: failure_state.attempts,
        waited: failure_state.waited,
        account: driver.account().map(|account| account.name.as_str()),
    }
}

impl Call {
    /// Tells all observers about an event of the request.
    pub(super) fn emit(&self, kind: EventKind<'_>) {
        self.emit_at(self.shared.now(), kind);
    }

    fn emit_at(&self, at: Timestamp, kind: EventKind<'_>) {
        let request = Some(RequestRef {
            key: self.key,
            id: &self.request.id,
            client: self.request.profile.name,
            dialect: self.model_dialect(),
        });
        self.shared.observers.emit(&LogEvent { at, request, kind });
    }

    /// Returns the dialect, if the request is for a model.
    pub(super) fn model_dialect(&self) -> Option<Dialect> {
        let is_for_model = self.request.route.is_retried();
        is_for_model.then(|| self.request.dialect())
    }

    /// Ends the hold for good: no resend resumes it.
    pub(super) fn discard_hold(&mut self) {
        if let Some(hold) = self.hold.take() {
            hold.finish();
        }
    }

    /// Records that the client has left or is told to come back: its resend resumes the request.
    pub(super) fn abandon_hold(&mut self) {
        self.hold = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn future_size<Argument, Made: Future>(_: fn(Argument) -> Made) -> usize {
        size_of::<Made>()
    }

    /// Ten thousand of them wait at once.
    #[test]
    fn held_request_size_is_bounded() {
        let call = size_of::<Call>() + future_size(Call::run);
        // While it is held, the driver boxes the future that looks after the client, the sleep of the retry and one timer.
        let boxed = driven::held_future_size() + 2 * size_of::<crate::timers::Timer>();
        let all = call + boxed;
        assert!(all <= 4096, "{call} + {boxed} bytes");
    }
}
