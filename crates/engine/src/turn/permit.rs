//! A turn and the limit on calls that an account may have under way, over all processes.

use super::Runner;
use super::control::Command;
use super::wait::sleep_until;
use outlast_kernel::Timestamp;
use outlast_kernel::attempt::Effects;
use std::time::Duration;

/// How often a holder shows that it lives: well within the life of a seat.
const PERMIT_RENEW_INTERVAL: Duration = Duration::from_secs(20);
/// How often a seat is asked for while all are taken.
const PERMIT_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// A call that is counted.
pub(super) struct Permit {
    holder: String,
    renew_at: Timestamp,
}

impl Runner<'_> {
    /// Takes a seat, where the account's are numbered. When all are taken, `false` after a while: by then the gate may
    /// have closed, and another account may be free.
    pub(super) async fn acquire_permit(&mut self) -> Result<bool, Effects> {
        let (Some(accounts), Some(account)) = (self.turn.accounts, &self.account) else {
            return Ok(true);
        };
        let (Some(most), Some(knowledge)) = (
            accounts.max_in_flight(&account.name),
            self.turn.shared_state,
        ) else {
            return Ok(true);
        };
        let (name, holder) = (account.name.clone(), uuid::Uuid::now_v7().to_string());
        let mut changes = knowledge.changes();
        let now = self.turn.clock.now();
        if knowledge.acquire_permit(&name, &holder, most).await {
            let renew_at = now + PERMIT_RENEW_INTERVAL;
            self.permit = Some(Permit { holder, renew_at });
            return Ok(true);
        }
        // Nobody may wait for a call that waits for others.
        if let Some(gate) = &mut self.gate {
            gate.leave_queue().await;
        }
        if self
            .turn
            .budget
            .deadline()
            .is_some_and(|deadline| now >= deadline)
        {
            return Err(self.handle_failure(self.deadline_passed()).await);
        }
        let next = now + PERMIT_POLL_INTERVAL;
        if self.last_announced_hold.is_none() {
            self.emit_hold(next);
        }
        tokio::select! {
            biased;
            command = self.turn.control.next_command() => match command {
                Command::Abort => return Err(self.abort()),
                Command::AbortRetry if self.state.is_retrying() => return Err(self.abort_held_retry()),
                Command::AbortRetry | Command::RetryNow => {}
            },
            () = sleep_until(self.turn.clock, Some(next)) => {}
            _ = changes.changed() => {}
        }
        Ok(false)
    }

    pub(super) async fn release_permit(&mut self) {
        if let (Some(seat), Some(knowledge)) = (self.permit.take(), self.turn.shared_state) {
            knowledge.release_permit(&seat.holder).await;
        }
    }

    /// When somebody must be shown that this call is alive.
    pub(super) fn next_lease_renewal(&self) -> Option<Timestamp> {
        let gate = self.gate.as_ref().and_then(super::TurnGate::renew_at);
        let seat = self.permit.as_ref().map(|seat| seat.renew_at);
        gate.into_iter().chain(seat).min()
    }

    pub(super) async fn renew_leases(&mut self) {
        let now = self.turn.clock.now();
        if let Some(gate) = &mut self.gate {
            gate.renew().await;
        }
        let (Some(seat), Some(accounts)) = (&mut self.permit, self.turn.accounts) else {
            return;
        };
        seat.renew_at = now + PERMIT_RENEW_INTERVAL;
        let (Some(account), Some(knowledge)) = (&self.account, self.turn.shared_state) else {
            return;
        };
        if let Some(most) = accounts.max_in_flight(&account.name) {
            knowledge
                .acquire_permit(&account.name, &seat.holder, most)
                .await;
        }
    }
}
