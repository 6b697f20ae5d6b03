//! A turn and the limit on calls that an account may have under way, over all processes.

use super::Runner;
use super::control::Command;
use super::wait::until;
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
    pub(super) async fn take_seat(&mut self) -> Result<bool, Effects> {
        let (Some(accounts), Some(account)) = (self.turn.accounts, &self.account) else {
            return Ok(true);
        };
        let (Some(most), Some(knowledge)) =
            (accounts.most_in_flight(&account.name), self.turn.knowledge)
        else {
            return Ok(true);
        };
        let (name, holder) = (account.name.clone(), uuid::Uuid::now_v7().to_string());
        let mut changes = knowledge.changes();
        let now = self.turn.clock.now();
        if knowledge.take_seat(&name, &holder, most).await {
            let renew_at = now + PERMIT_RENEW_INTERVAL;
            self.seat = Some(Permit { holder, renew_at });
            return Ok(true);
        }
        // Nobody may wait for a call that waits for others.
        if let Some(gate) = &mut self.gate {
            gate.leave().await;
        }
        if self
            .turn
            .budget
            .deadline()
            .is_some_and(|deadline| now >= deadline)
        {
            return Err(self.fail(self.too_late()).await);
        }
        let next = now + PERMIT_POLL_INTERVAL;
        if self.said_held.is_none() {
            self.emit_hold(next);
        }
        tokio::select! {
            biased;
            command = self.turn.control.next() => match command {
                Command::Abort => return Err(self.abort()),
                Command::AbortRetry if self.state.is_retrying() => return Err(self.abort_held_retry()),
                Command::AbortRetry | Command::RetryNow => {}
            },
            () = until(self.turn.clock, Some(next)) => {}
            _ = changes.changed() => {}
        }
        Ok(false)
    }

    pub(super) async fn leave_seat(&mut self) {
        if let (Some(seat), Some(knowledge)) = (self.seat.take(), self.turn.knowledge) {
            knowledge.leave_seat(&seat.holder).await;
        }
    }

    /// When somebody must be shown that this call is alive.
    pub(super) fn renew_at(&self) -> Option<Timestamp> {
        let gate = self.gate.as_ref().and_then(super::TurnGate::renew_at);
        let seat = self.seat.as_ref().map(|seat| seat.renew_at);
        gate.into_iter().chain(seat).min()
    }

    pub(super) async fn renew(&mut self) {
        let now = self.turn.clock.now();
        if let Some(gate) = &mut self.gate {
            gate.renew().await;
        }
        let (Some(seat), Some(accounts)) = (&mut self.seat, self.turn.accounts) else {
            return;
        };
        seat.renew_at = now + PERMIT_RENEW_INTERVAL;
        let (Some(account), Some(knowledge)) = (&self.account, self.turn.knowledge) else {
            return;
        };
        if let Some(most) = accounts.most_in_flight(&account.name) {
            knowledge.take_seat(&account.name, &seat.holder, most).await;
        }
    }
}
