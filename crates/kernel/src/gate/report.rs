//! What a gate is told.

use super::{Gate, Pass, Waiter};
use crate::Timestamp;
use crate::verdict::Cause;

/// What came of a call that a gate had let pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// It met the trouble that the gate is about; who made it waits in line from now on, if it does.
    Failed {
        /// The pass.
        pass: Pass,
        /// What went wrong.
        cause: Cause,
        /// When the provider says to come back.
        stated: Option<Timestamp>,
        /// Who waits.
        waiter: Option<Waiter>,
    },
    /// The provider accepted it.
    Succeeded(Pass),
    /// It is still under way.
    Alive(Pass),
    /// It was given up.
    Abandoned(Pass),
    /// The provider answered somebody who had not asked the gate.
    Recovered,
    /// So many calls were accepted while nothing was wrong.
    Accepted(u32),
    /// A failure that could not be reported when it happened.
    MissedFailure(Waiter),
}

impl Report {
    /// Who stands in line after this.
    pub fn queued_waiter(&self) -> Option<&Waiter> {
        match self {
            Self::Failed { waiter, .. } => waiter.as_ref(),
            Self::MissedFailure(waiter) => Some(waiter),
            _ => None,
        }
    }
}

impl Gate {
    /// Takes in what came of a call, while so many are in line.
    pub fn apply_report(&mut self, report: &Report, waiting: u32, now: Timestamp) {
        match report {
            Report::Failed { pass, stated, .. } => self.record_failure(*pass, *stated, now),
            Report::Succeeded(pass) => self.record_success(*pass, waiting, now),
            Report::Alive(pass) => {
                self.renew_lease(*pass, now);
            }
            Report::Abandoned(pass) => self.abandon_probe(*pass, now),
            Report::Recovered => self.record_recovery(waiting, now),
            Report::Accepted(calls) => self.record_accepted(*calls, now),
            Report::MissedFailure(_) => self.record_missed_failure(now),
        }
    }
}
