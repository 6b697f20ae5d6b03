//! A turn before the gate that its calls share with those of others.
//!
//! Not here: the rules (see the kernel's `gate`) and the events (see `turn`).

use crate::Clock;
use crate::shared_state::{Report, SharedState, affects_other_callers};
use outlast_kernel::Timestamp;
use outlast_kernel::attempt::Wait;
use outlast_kernel::failure::ClassifiedFailure;
use outlast_kernel::gate::{GateReply, Pass, Waiter, WaiterId};
use outlast_kernel::verdict::{Authority, Cause, Class};
use std::time::Duration;

/// How often the holder of a probe shows that it lives: well within its lease.
const PROBE_RENEW_INTERVAL: Duration = Duration::from_secs(20);
/// A turn that ends is not kept longer by what others should know.
const LEAVE_TIMEOUT: Duration = Duration::from_millis(150);

pub(super) struct TurnGate<'a> {
    pub(super) shared_state: &'a SharedState,
    clock: &'a dyn Clock,
    key: String,
    waiter: Waiter,
    is_queued: bool,
    /// Whether something went wrong since a call was last accepted.
    is_failing: bool,
    ticket: Option<Ticket>,
}

/// The right to make one call.
#[derive(Clone, Copy)]
struct Ticket {
    pass: Pass,
    /// When its holder must show that it lives, if everyone waits for its result.
    renew_at: Option<Timestamp>,
}

impl<'a> TurnGate<'a> {
    /// Before the gate of that name, for a turn: whoever carries it on stands in its place.
    pub(super) fn new(
        shared_state: &'a SharedState,
        clock: &'a dyn Clock,
        key: String,
        turn: &str,
    ) -> Self {
        let now = clock.now();
        let waiter = Waiter {
            id: WaiterId(turn.to_owned()),
            since: now,
            own_wake: now,
            deadline: None,
            batch: None,
        };
        Self {
            shared_state,
            clock,
            key,
            waiter,
            is_queued: false,
            is_failing: false,
            ticket: None,
        }
    }

    pub(super) fn with_deadline(mut self, deadline: Option<Timestamp>) -> Self {
        self.waiter.deadline = deadline;
        self
    }

    /// Whether it is the gate of that name.
    pub(super) fn has_key(&self, key: &str) -> bool {
        self.key == key
    }

    pub(super) fn is_admitted(&self) -> bool {
        self.ticket.is_some()
    }

    /// Asks to make a call whose own time is `own_wake`.
    pub(super) async fn request_pass(&mut self, own_wake: Timestamp) -> GateReply {
        self.mark_failing();
        self.waiter.own_wake = own_wake;
        let answer = self
            .shared_state
            .request_pass(&self.key, &self.waiter)
            .await;
        self.is_queued = matches!(answer, GateReply::Hold(_));
        let renew_at = self.clock.now() + PROBE_RENEW_INTERVAL;
        self.ticket = match answer {
            GateReply::Proceed(pass) => Some(Ticket {
                pass,
                renew_at: None,
            }),
            GateReply::Probe(pass) => Some(Ticket {
                pass,
                renew_at: Some(renew_at),
            }),
            GateReply::Hold(_) | GateReply::DeadlineExceeded => None,
        };
        answer
    }

    /// A call's place in line is that of when its trouble began, which a call that was accepted has ended.
    fn mark_failing(&mut self) {
        if !std::mem::replace(&mut self.is_failing, true) {
            self.waiter.since = self.clock.now();
        }
    }

    /// When to ask, while in line; `None` means now.
    pub(super) fn wake_time(&self) -> Option<Timestamp> {
        self.shared_state.wake_time(&self.key, &self.waiter)
    }

    pub(super) fn is_queued(&self) -> bool {
        self.is_queued
    }

    pub(super) fn cause(&self) -> Option<Cause> {
        self.shared_state.last_cause(&self.key)
    }

    /// When the holder of a probe must show that it lives.
    pub(super) fn renew_at(&self) -> Option<Timestamp> {
        self.ticket?.renew_at
    }

    pub(super) async fn renew(&mut self) {
        if let Some(admission) = &mut self.ticket
            && admission.renew_at.is_some()
        {
            admission.renew_at = Some(self.clock.now() + PROBE_RENEW_INTERVAL);
            let alive = Report::Alive(admission.pass);
            self.shared_state.report(&self.key, alive).await;
        }
    }

    /// The provider took the call; everyone may know.
    pub(super) async fn report_success(&mut self) {
        self.is_failing = false;
        let report = match self.ticket.take() {
            Some(admission) => Report::Succeeded(admission.pass),
            None => Report::Recovered,
        };
        self.shared_state.report(&self.key, report).await;
    }

    /// The call failed. `waits_until` is when its own schedule would have it try again.
    pub(super) async fn report_failure(
        &mut self,
        judged: &ClassifiedFailure,
        waits_until: Option<Timestamp>,
    ) {
        if !affects_other_callers(judged.verdict.cause) {
            // Whatever was wrong with it, the provider was there, unless nothing came of it.
            let nothing_came = matches!(judged.verdict.class(), Class::Transient | Class::Canceled);
            if nothing_came || self.ticket.is_none() {
                return self.abandon_ticket().await;
            }
            return self.report_success().await;
        }
        if let Some(own_wake) = waits_until {
            self.mark_failing();
            self.waiter.own_wake = own_wake;
            self.is_queued = true;
        }
        let waiter = waits_until.map(|_| self.waiter.clone());
        let hint = judged.verdict.hint.as_ref();
        let stated = hint.filter(|hint| hint.authority == Authority::Stated);
        let report = match (self.ticket.take(), waiter) {
            (Some(admission), waiter) => Report::Failed {
                pass: admission.pass,
                cause: judged.verdict.cause,
                stated: stated.map(|hint| hint.not_before),
                waiter,
            },
            (None, Some(waiter)) => Report::MissedFailure(waiter),
            (None, None) => return,
        };
        self.shared_state.report(&self.key, report).await;
    }

    /// Someone waits who did not fail here, if something is wrong here at all.
    pub(super) async fn rejoin_queue(&mut self, wait: &Wait) {
        if self.cause().is_some() {
            self.shared_state
                .forget_waiter(&self.key, &self.waiter.id)
                .await;
            (self.waiter.since, self.waiter.own_wake) = (wait.since, wait.until);
            (self.is_failing, self.is_queued) = (true, true);
            let missed = Report::MissedFailure(self.waiter.clone());
            self.shared_state.report(&self.key, missed).await;
        }
    }

    /// The turn ends or the call is given up: nobody may wait for it. A store that is slow to hear of it is not waited
    /// for either.
    pub(super) async fn leave_queue(&mut self) {
        let leaving = async {
            self.abandon_ticket().await;
            if std::mem::take(&mut self.is_queued) {
                self.shared_state.leave_queue(&self.key, &self.waiter).await;
            }
        };
        tokio::time::timeout(LEAVE_TIMEOUT, leaving).await.ok();
    }

    async fn abandon_ticket(&mut self) {
        if let Some(admission) = self.ticket.take() {
            let abandoned = Report::Abandoned(admission.pass);
            self.shared_state.report(&self.key, abandoned).await;
        }
    }
}
