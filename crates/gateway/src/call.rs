//! One request from its arrival to its end: attempts, waits, and the response to the client.
//!
//! The kernel decides about a failure; this module carries the decision out. Invariants: one budget for each request,
//! over all its resends; no retry after content was sent; a wait is recorded before it begins; a waiting client is kept
//! alive, and the request to the provider is dropped as soon as the client disconnects. Not here: one attempt (see
//! `attempt`), the response from its first content on (see `relay`), the steps before and after an attempt (see
//! `waiting` and `on_failure`), and the end without a response (see `finish`).

pub(crate) mod attempt;
pub(crate) mod keepalive;
pub(crate) mod on_failure;
pub(crate) mod waiting;

use super::clients::{HoldEnding, KeepAliveSchedule, stated_timeout};
use super::holds::{Command, Hold};
use super::inbound_request::InboundRequest;
use super::shared::Shared;
use super::upstreams::Upstreams;
use crate::call::attempt::{Attempt, FailedAttempt, UpstreamResponse};
use crate::call::keepalive::{KeepAlive, KeepAliveResult, ResponseMetadata};
use crate::call::waiting::GateReply;
use crate::observe::log::{Event as Said, EventKind};
use crate::observe::metrics::GaugeGuard;
use crate::observe::request_log::{NewRequest, RequestKey};
use crate::server::response_writer::ResponseWriter;
use crate::server::socket::Socket;
use outlast_engine::accounts::SelectedAccount;
use outlast_engine::admission::Permit;
use outlast_engine::{RetryStrategy, strategy::PolicyRetry};
use outlast_kernel::Timestamp;
use outlast_kernel::attempt::{Event, State, step};
use outlast_kernel::budget::{Limits, Prompt};
use outlast_kernel::decision::{GiveUp, RetryRules};
use outlast_kernel::verdict::Cause;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

/// A request that is being answered.
pub(super) struct Call {
    pub(super) shared: Arc<Shared>,
    /// The key of the request in the log of recent requests.
    log_entry: RequestKey,
    pub(super) upstreams: Arc<Upstreams>,
    pub(super) request: InboundRequest,
    pub(super) response: ResponseWriter,
    pub(super) keepalive: KeepAliveSchedule,
    pub(super) strategy: PolicyRetry,
    pub(super) state: State,
    /// The stored account in use, if the client's own key is not.
    pub(super) account: Option<SelectedAccount>,
    pub(super) excluded_accounts: Vec<String>,
    pub(super) refreshed_accounts: Vec<String>,
    pub(super) hold: Option<Hold>,
    /// Gauges for the waiting request and for its body on the disk.
    pub(super) gauge_guards: Vec<GaugeGuard>,
    pub(super) failure_state: FailureState,
    /// The permit of an account with a limit of concurrent calls.
    pub(super) permit: Option<Permit>,
    /// Whether the last bytes sent are an incomplete frame: the gateway may insert nothing after them.
    pub(super) is_mid_frame: bool,
    /// The time until the first byte of the provider's response.
    pub(super) first_byte: Option<Duration>,
}

/// The failures so far.
#[derive(Default)]
pub(super) struct FailureState {
    /// The time of the first failure, over all resends.
    pub(super) failing_since: Option<Timestamp>,
    /// The time of the last failure.
    pub(super) last_failed_at: Option<Timestamp>,
    pub(super) attempts: u32,
    pub(super) resent: u32,
    pub(super) waited: Duration,
    pub(super) last_failure: Option<Box<FailedAttempt>>,
    pub(super) last_cause: Option<Cause>,
    /// The scheduled end of the current wait, without the gate.
    pub(super) retry_at: Option<Timestamp>,
    /// Whether other requests meet the same failure, so that this one waits for the gate.
    pub(super) is_shared: bool,
}

/// The reason why a request ends without a response of the provider.
pub(super) enum EndReason {
    /// The client has disconnected.
    ClientDisconnected,
    /// The client is made to come back.
    SentBack(HoldEnding),
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
        let resent = headers.get("x-stainless-retry-count");
        if resent.is_some_and(|count| count != "0") {
            shared.metrics.resent(request.profile.name);
        }
        let keepalive = KeepAliveSchedule::new(
            request.profile,
            request.response_format(),
            request.received_at,
        )
        .with_stated_timeout(stated);
        let strategy = PolicyRetry::new(Arc::clone(&request.policy), Arc::clone(&shared.clock));
        let rules = match request.route.is_retried() {
            true => strategy.rules(),
            false => RetryRules::NONE,
        };
        let mut state = State::new(rules, Prompt::new(Limits::default()));
        step(&mut state, Event::Started);
        let log_entry = shared.request_log.record_start(&NewRequest {
            id: &request.id,
            received_at: request.received_at,
            client: request.profile.name,
            dialect: request.is_model_request().then(|| request.dialect()),
            model: &request.model,
            path: request.path(),
        });
        Box::new(Self {
            shared,
            log_entry,
            upstreams,
            request,
            response,
            keepalive,
            strategy,
            state,
            account: None,
            excluded_accounts: Vec::new(),
            refreshed_accounts: Vec::new(),
            hold: None,
            gauge_guards: Vec::new(),
            failure_state: FailureState::default(),
            permit: None,
            is_mid_frame: false,
            first_byte: None,
        })
    }

    /// Answers the request; returns the connection, if it can take another request.
    pub(super) async fn run(mut self: Box<Self>) -> Option<Socket> {
        self.resume().await;
        loop {
            // A request that has waited for hours continues with the current settings.
            self.upstreams = self.shared.upstreams();
            let admitted = self.admit().await;
            let admission = match admitted {
                Ok(GateReply::Gated(admission)) => Some(admission),
                Ok(GateReply::Ungated) => None,
                Ok(GateReply::Restart) => continue,
                Err(end) => return Box::pin(self.finish(end)).await,
            };
            let begun = self.shared.now();
            // Bound to a name, so that the memory of its future is free for the code below.
            let outcome = self.attempt().await;
            match outcome {
                Ok(Ok(answer)) => {
                    self.on_success(admission, begun).await;
                    return Box::pin(self.relay_response(answer)).await;
                }
                Ok(Err(failed)) => {
                    if let Some(end) = Box::pin(self.on_failure(failed, admission)).await {
                        return Box::pin(self.finish(end)).await;
                    }
                }
                Err(end) => {
                    drop(admission);
                    self.save_progress();
                    return Box::pin(self.finish(end)).await;
                }
            }
        }
    }

    /// Performs all waits before the next attempt.
    async fn admit(&mut self) -> Result<GateReply, EndReason> {
        self.choose_account().await?;
        let mut admission = self.wait_for_gate().await?;
        match self.acquire_permit(&mut admission).await? {
            true => Ok(admission),
            false => Ok(GateReply::Restart),
        }
    }

    /// Makes one attempt while the client is kept alive.
    async fn attempt(&mut self) -> Result<Result<UpstreamResponse, Box<FailedAttempt>>, EndReason> {
        self.failure_state.attempts += 1;
        let shared = Arc::clone(&self.shared);
        let traffic = &shared.request_log;
        traffic.record_attempt(self.log_entry, self.failure_state.attempts, shared.now());
        let dialect = Some(self.request.dialect());
        if self.failure_state.attempts > 1 {
            shared.metrics.retry(dialect);
        }
        shared.metrics.sent_upstream(self.request.body.len() as u64);
        let upstreams = Arc::clone(&self.upstreams);
        let attempt = Attempt {
            request: &self.request,
            upstreams: &upstreams,
            credential: self.account.as_ref().map(|account| &account.credential),
            clock: &*shared.clock,
            timers: &shared.timers,
        };
        let metadata =
            response_metadata(&self.request.id, &self.failure_state, self.account.as_ref());
        let mut keeper = KeepAlive {
            response: &mut self.response,
            schedule: &mut self.keepalive,
            metadata,
            is_streamed: self.request.is_streamed,
            shared: &shared,
        };
        let hold = self.hold.as_ref();
        let making = Box::pin(attempt.send());
        let work = pin!(async {
            tokio::select! {
                biased;
                outcome = making => Some(outcome),
                () = wait_for_cancel(hold) => None,
            }
        });
        match keeper.run(work).await {
            KeepAliveResult::Done(Some(outcome)) => Ok(outcome),
            KeepAliveResult::Done(None) => Err(EndReason::Cancelled),
            KeepAliveResult::ClientDisconnected => Err(EndReason::ClientDisconnected),
            KeepAliveResult::HoldEnded(ending) => Err(EndReason::SentBack(ending)),
        }
    }

    /// What happened so far.
    pub(super) fn response_metadata(&self) -> ResponseMetadata<'_> {
        response_metadata(&self.request.id, &self.failure_state, self.account.as_ref())
    }
}

/// Waits until a person cancels the request. A retry-now command has no effect during an attempt.
async fn wait_for_cancel(hold: Option<&Hold>) {
    while let Some(hold) = hold {
        if hold.command().await == Command::Cancel {
            return;
        }
    }
    std::future::pending().await
}

/// What happened so far, without borrowing all of a call.
pub(super) fn response_metadata<'a>(
    id: &'a str,
    trouble: &FailureState,
    account: Option<&'a SelectedAccount>,
) -> ResponseMetadata<'a> {
    ResponseMetadata {
        id,
        attempts: trouble.attempts,
        waited: trouble.waited,
        account: account.map(|account| account.name.as_str()),
    }
}

impl Call {
    pub(super) fn log_event(&self, kind: EventKind<'_>) {
        let at = self.shared.now();
        self.shared
            .request_log
            .record_event(self.log_entry, at, &kind);
        self.shared.log.emit(&Said {
            at,
            request: Some(&self.request.id),
            kind,
        });
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
        let all = size_of::<Call>() + future_size(Call::run);
        assert!(all <= 3584, "{all} bytes");
    }
}
