//! The waits of a turn: for its own time, and for its turn at the gate.
//!
//! Invariants: an abort is noticed in each of them; the turn's own time is kept exactly, whatever the gate says; a wait
//! at the gate is said before it begins, and again when its end moves.

use super::Runner;
use super::control::Command;
use super::gate::TurnGate;
use crate::shared_state::SharedState;
use crate::{CancellationToken, Clock};
use futures_util::FutureExt;
use outlast_kernel::Timestamp;
use outlast_kernel::attempt::{Effects, Event};
use outlast_kernel::event::Body;
use outlast_kernel::failure::Failure;
use outlast_kernel::gate::GateReply;
use outlast_kernel::verdict::{Cause, Scope, Verdict};
use std::time::Duration;
use tokio::sync::watch;

impl Runner<'_> {
    /// A delay of its own schedule. Where others cannot be seen, chance keeps all from coming at once.
    pub(super) fn add_jitter(&self, delay: Duration) -> Duration {
        let cut_off = self
            .turn
            .shared_state
            .is_some_and(SharedState::is_store_unavailable);
        if cut_off {
            delay.mul_f64(fastrand::f64())
        } else {
            delay
        }
    }

    /// Chooses an account, waits for the gate and for a seat; what else may happen meanwhile ends the call.
    pub(super) async fn acquire_admission(&mut self) -> Result<(), Effects> {
        loop {
            let abort = self.turn.control.token();
            let chosen = tokio::select! {
                biased;
                () = abort.cancelled() => return Err(self.abort()),
                chosen = self.choose_account() => chosen,
            };
            if let Err(problem) = chosen {
                return Err(self.handle_failure(self.no_usable_key(&problem)).await);
            }
            if !self.pass_gate().await? {
                continue;
            }
            if self.acquire_permit().await? {
                return Ok(());
            }
        }
    }

    /// Waits until the gate lets the call pass; `false` when it is time to choose an account anew.
    async fn pass_gate(&mut self) -> Result<bool, Effects> {
        let now = self.turn.clock.now();
        let is_hurried = std::mem::take(&mut self.retry_now_requested);
        let Some(gate) = self.gate.as_mut().filter(|gate| !gate.is_admitted()) else {
            return Ok(true);
        };
        match gate.request_pass(now).await {
            GateReply::Proceed(_) | GateReply::Probe(_) => Ok(true),
            GateReply::Hold(_) if is_hurried => Ok(true),
            GateReply::DeadlineExceeded => Err(self.handle_failure(self.deadline_passed()).await),
            // Whoever will not wait that long asks for itself, and hears it from the provider.
            GateReply::Hold(until) if !self.accepts_hold(until) => {
                if let Some(gate) = &mut self.gate {
                    gate.leave_queue().await;
                }
                Ok(true)
            }
            GateReply::Hold(until) if self.switches_model_at_gate(until).await => Ok(false),
            GateReply::Hold(until) => match self.wait_at_gate(until).await {
                None => Ok(false),
                Some(Command::RetryNow) => Ok(true),
                Some(Command::AbortRetry) => Err(self.abort_held_retry()),
                Some(Command::Abort) => Err(self.abort()),
            },
        }
    }

    /// Whether the call asks another model, having been held for so long.
    async fn switches_model_at_gate(&mut self, until: Timestamp) -> bool {
        let now = self.turn.clock.now();
        let since = *self.held_since.get_or_insert(now);
        if self.hold_switch_time(since).is_none_or(|at| now < at) {
            return false;
        }
        if let Some(gate) = &mut self.gate {
            gate.leave_queue().await;
        }
        self.abandon_held_model(until).await;
        true
    }

    /// Whether the policy would wait that long, all that the call was held before included.
    fn accepts_hold(&mut self, until: Timestamp) -> bool {
        let since = *self.held_since.get_or_insert(self.turn.clock.now());
        let rules = &self.rules;
        let slept = self.state.chain().scheduled_sleep();
        let left = rules
            .sleep_budget
            .map(|budget| budget.saturating_sub(slept));
        let longest = rules.max_stated_wait.or(left);
        let short = longest.is_none_or(|longest| until.since(since) <= longest);
        rules.retries != Some(0) && (short || rules.wait_for_reset)
    }

    /// Waits at the gate until it is time to ask again, or until somebody wants something else.
    async fn wait_at_gate(&mut self, mut until_time: Timestamp) -> Option<Command> {
        let mut changes = self.gate.as_ref()?.shared_state.changes();
        let since = self.held_since;
        let another = since.and_then(|since| self.hold_switch_time(since));
        loop {
            self.emit_hold(until_time);
            tokio::select! {
                biased;
                command = self.turn.control.next_command() => match command {
                    Command::AbortRetry if !self.state.is_retrying() => {}
                    command => return Some(command),
                },
                () = sleep_until(self.turn.clock, Some(until_time)) => return None,
                () = sleep_until(self.turn.clock, another) => return None,
                _ = changes.changed() => {
                    until_time = self.gate.as_ref()?.wake_time()?;
                    if !self.accepts_hold(until_time) || self.has_better_account().await {
                        return None;
                    }
                }
            }
        }
    }

    /// Says until when the gate holds the call; small changes are not worth a word.
    pub(super) fn emit_hold(&mut self, until: Timestamp) {
        const WORTH_SAYING: Duration = Duration::from_secs(1);
        let moved = |said: Timestamp| said.since(until).max(until.since(said)) >= WORTH_SAYING;
        if self.last_announced_hold.is_none_or(moved) {
            self.last_announced_hold = Some(until);
            let cause = self.gate.as_ref().and_then(TurnGate::cause);
            self.emitter.emit(Body::Held { until, cause });
        }
    }

    /// Waits, and says how the wait ended.
    pub(super) async fn wait_for_retry(&mut self, at: Timestamp) -> Event {
        let cancel = CancellationToken::new();
        let mut own = match self.turn.retry {
            Some(retry) => retry.sleep(at.since(self.turn.clock.now()), &cancel),
            // A wait that an earlier process began, when there were retries.
            None => Box::pin(self.turn.clock.sleep_until(at).map(Ok)),
        };
        let mut changes = self.gate.as_ref().map(|gate| gate.shared_state.changes());
        let mut asked_in_vain = None;
        let command = loop {
            let turn = self.early_gate_time(at, asked_in_vain);
            if let Some(turn) = turn {
                self.emit_hold(turn);
            }
            tokio::select! {
                biased;
                command = self.turn.control.next_command() => {
                    self.retry_now_requested = command == Command::RetryNow;
                    break command;
                }
                slept = &mut own => break match slept {
                    Ok(()) => Command::RetryNow,
                    Err(_) => Command::Abort,
                },
                () = sleep_until(self.turn.clock, turn) => match self.request_early_pass(at).await {
                    Ok(()) => {
                        cancel.cancel();
                        return Event::AdmittedEarly { now: self.turn.clock.now() };
                    }
                    Err(not_before) => asked_in_vain = Some(not_before),
                },
                // What was said before may not hold any more.
                () = wait_for_change(changes.as_mut()) => asked_in_vain = None,
            }
        };
        cancel.cancel();
        let now = self.turn.clock.now();
        match command {
            Command::RetryNow => Event::Woke { now },
            Command::AbortRetry => Event::RetryAborted { now },
            Command::Abort => Event::Aborted { now },
        }
    }

    /// When the gate would have the call try before its own time.
    fn early_gate_time(
        &self,
        own: Timestamp,
        asked_in_vain: Option<Timestamp>,
    ) -> Option<Timestamp> {
        let gate = self.gate.as_ref().filter(|gate| gate.is_queued())?;
        let turn = gate.wake_time().unwrap_or_else(|| self.turn.clock.now());
        let turn = turn.max(asked_in_vain.unwrap_or_default());
        (turn < own).then_some(turn)
    }

    /// Asks the gate before the call's own time; when it says no, it says until when.
    async fn request_early_pass(&mut self, own: Timestamp) -> Result<(), Timestamp> {
        let Some(gate) = &mut self.gate else {
            return Err(own);
        };
        match gate.request_pass(own).await {
            GateReply::Proceed(_) | GateReply::Probe(_) => Ok(()),
            GateReply::Hold(until) => Err(until),
            GateReply::DeadlineExceeded => Err(own),
        }
    }

    /// The prompt's time ran out: that is nobody's fault but its own.
    pub(super) fn deadline_passed(&self) -> Failure {
        let message = "the time for this prompt is over";
        let failure = Failure::thrown(self.turn.provider.name(), message, self.turn.clock.now());
        failure.with_verdict(Verdict::new(Cause::DeadlinePassed, Scope::Request))
    }
}

/// Comes at that time, or never.
pub(super) async fn sleep_until(clock: &dyn Clock, time: Option<Timestamp>) {
    match time {
        Some(time) => clock.sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// Comes when something was learnt, or never.
async fn wait_for_change(changes: Option<&mut watch::Receiver<u64>>) {
    let known = match changes {
        Some(changes) => changes.changed().await.is_ok(),
        None => false,
    };
    if !known {
        std::future::pending::<()>().await;
    }
}
