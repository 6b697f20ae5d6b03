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
    ticket: RequestKey,
    pub(super) upstreams: Arc<Upstreams>,
    pub(super) asked: InboundRequest,
    pub(super) reply: ResponseWriter,
    pub(super) keeping: KeepAliveSchedule,
    pub(super) strategy: PolicyRetry,
    pub(super) state: State,
    /// The stored account in use, if the client's own key is not.
    pub(super) account: Option<SelectedAccount>,
    pub(super) left: Vec<String>,
    pub(super) refreshed: Vec<String>,
    pub(super) hold: Option<Hold>,
    /// Gauges for the waiting request and for its body on the disk.
    pub(super) counted: Vec<GaugeGuard>,
    pub(super) trouble: FailureState,
    /// The permit of an account with a limit of concurrent calls.
    pub(super) seat: Option<Permit>,
    /// Whether the last bytes sent are an incomplete frame: the gateway may insert nothing after them.
    pub(super) is_mid_frame: bool,
    /// The time until the first byte of the provider's response.
    pub(super) first_byte: Option<Duration>,
}

/// The failures so far.
#[derive(Default)]
pub(super) struct FailureState {
    /// The time of the first failure, over all resends.
    pub(super) since: Option<Timestamp>,
    /// The time of the last failure.
    pub(super) failed: Option<Timestamp>,
    pub(super) attempts: u32,
    pub(super) resent: u32,
    pub(super) waited: Duration,
    pub(super) last: Option<Box<FailedAttempt>>,
    pub(super) cause: Option<Cause>,
    /// The scheduled end of the current wait, without the gate.
    pub(super) wake: Option<Timestamp>,
    /// Whether other requests meet the same failure, so that this one waits for the gate.
    pub(super) is_shared: bool,
}

/// The reason why a request ends without a response of the provider.
pub(super) enum EndReason {
    /// The client has disconnected.
    Gone,
    /// The client is made to come back.
    Back(HoldEnding),
    /// The failure is final.
    Final(GiveUp),
    /// A person ended it.
    Cancelled,
    /// Too many requests wait already.
    Full,
}

impl Call {
    pub(super) fn new(
        shared: Arc<Shared>,
        upstreams: Arc<Upstreams>,
        asked: InboundRequest,
        reply: ResponseWriter,
    ) -> Box<Self> {
        let headers = asked.headers();
        let stated = stated_timeout(asked.profile, &headers);
        let resent = headers.get("x-stainless-retry-count");
        if resent.is_some_and(|count| count != "0") {
            shared.metrics.resent(asked.profile.name);
        }
        let keeping = KeepAliveSchedule::new(asked.profile, asked.form(), asked.begun)
            .with_stated_timeout(stated);
        let strategy = PolicyRetry::new(Arc::clone(&asked.policy), Arc::clone(&shared.clock));
        let rules = match asked.route.is_retried() {
            true => strategy.rules(),
            false => RetryRules::NONE,
        };
        let mut state = State::new(rules, Prompt::new(Limits::default()));
        step(&mut state, Event::Started);
        let ticket = shared.traffic.begun(&NewRequest {
            id: &asked.id,
            at: asked.begun,
            client: asked.profile.name,
            dialect: asked.is_model_request().then(|| asked.dialect()),
            model: &asked.model,
            path: asked.path(),
        });
        Box::new(Self {
            shared,
            ticket,
            upstreams,
            asked,
            reply,
            keeping,
            strategy,
            state,
            account: None,
            left: Vec::new(),
            refreshed: Vec::new(),
            hold: None,
            counted: Vec::new(),
            trouble: FailureState::default(),
            seat: None,
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
                Ok(GateReply::Again) => continue,
                Err(end) => return Box::pin(self.end(end)).await,
            };
            let begun = self.shared.now();
            // Bound to a name, so that the memory of its future is free for the code below.
            let outcome = self.attempt().await;
            match outcome {
                Ok(Ok(answer)) => {
                    self.accepted(admission, begun).await;
                    return Box::pin(self.pass_on(answer)).await;
                }
                Ok(Err(failed)) => {
                    if let Some(end) = Box::pin(self.failed(failed, admission)).await {
                        return Box::pin(self.end(end)).await;
                    }
                }
                Err(end) => {
                    drop(admission);
                    self.save_progress();
                    return Box::pin(self.end(end)).await;
                }
            }
        }
    }

    /// Performs all waits before the next attempt.
    async fn admit(&mut self) -> Result<GateReply, EndReason> {
        self.choose_account().await?;
        let mut admission = self.be_admitted().await?;
        match self.take_seat(&mut admission).await? {
            true => Ok(admission),
            false => Ok(GateReply::Again),
        }
    }

    /// Makes one attempt while the client is kept alive.
    async fn attempt(&mut self) -> Result<Result<UpstreamResponse, Box<FailedAttempt>>, EndReason> {
        self.trouble.attempts += 1;
        let shared = Arc::clone(&self.shared);
        let traffic = &shared.traffic;
        traffic.tried(self.ticket, self.trouble.attempts, shared.now());
        let dialect = Some(self.asked.dialect());
        if self.trouble.attempts > 1 {
            shared.metrics.retry(dialect);
        }
        shared.metrics.sent_upstream(self.asked.body.len() as u64);
        let upstreams = Arc::clone(&self.upstreams);
        let attempt = Attempt {
            asked: &self.asked,
            upstreams: &upstreams,
            credential: self.account.as_ref().map(|account| &account.credential),
            clock: &*shared.clock,
            alarms: &shared.alarms,
        };
        let happened = happened(&self.asked.id, &self.trouble, self.account.as_ref());
        let mut keeper = KeepAlive {
            reply: &mut self.reply,
            keeping: &mut self.keeping,
            happened,
            is_streamed: self.asked.is_streamed,
            shared: &shared,
        };
        let hold = self.hold.as_ref();
        let making = Box::pin(attempt.make());
        let work = pin!(async {
            tokio::select! {
                biased;
                outcome = making => Some(outcome),
                () = cancelled(hold) => None,
            }
        });
        match keeper.keep(work).await {
            KeepAliveResult::Done(Some(outcome)) => Ok(outcome),
            KeepAliveResult::Done(None) => Err(EndReason::Cancelled),
            KeepAliveResult::Gone => Err(EndReason::Gone),
            KeepAliveResult::Ended(ending) => Err(EndReason::Back(ending)),
        }
    }

    /// What happened so far.
    pub(super) fn happened(&self) -> ResponseMetadata<'_> {
        happened(&self.asked.id, &self.trouble, self.account.as_ref())
    }
}

/// Waits until a person cancels the request. A retry-now command has no effect during an attempt.
async fn cancelled(hold: Option<&Hold>) {
    while let Some(hold) = hold {
        if hold.command().await == Command::Cancel {
            return;
        }
    }
    std::future::pending().await
}

/// What happened so far, without borrowing all of a call.
pub(super) fn happened<'a>(
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
    pub(super) fn say(&self, what: EventKind<'_>) {
        let at = self.shared.now();
        self.shared.traffic.note(self.ticket, at, &what);
        self.shared.log.say(&Said {
            at,
            request: Some(&self.asked.id),
            what,
        });
    }

    /// Ends the hold for good: no resend resumes it.
    pub(super) fn settle(&mut self) {
        if let Some(hold) = self.hold.take() {
            hold.ended();
        }
    }

    /// Records that the client has left or is told to come back: its resend resumes the request.
    pub(super) fn leave(&mut self) {
        self.hold = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room<Argument, Made: Future>(_: fn(Argument) -> Made) -> usize {
        size_of::<Made>()
    }

    /// Ten thousand of them wait at once.
    #[test]
    fn a_request_that_is_held_takes_little_room() {
        let all = size_of::<Call>() + room(Call::run);
        assert!(all <= 3584, "{all} bytes");
    }
}
