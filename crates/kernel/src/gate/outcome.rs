//! The meaning of a failed call for its gate.

use super::{Call, GateFailure, Pass, ProcessQueue, RequestRecord};
use crate::Timestamp;
use crate::verdict::{Authority, Cause, Class, Verdict};

/// The result of a call, as far as it concerns the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallOutcome {
    /// The provider works, whatever was wrong with this request.
    Succeeded,
    /// Other callers may meet the same failure.
    Failed(GateFailure),
    /// The result says nothing about the provider.
    Unknown,
}

impl CallOutcome {
    /// Returns what a failure means for the gate. Everybody waits for a probe, so it also counts as failed if the
    /// provider began an answer and did not go on.
    pub fn of_failure(verdict: &Verdict, is_probe: bool) -> Self {
        let class = verdict.class();
        if concerns_others(verdict.cause) || (is_probe && class == Class::Transient) {
            let hint = verdict.hint.as_ref();
            let stated = hint.filter(|hint| hint.authority == Authority::Stated);
            let stated = stated.map(|hint| hint.not_before);
            return Self::Failed(GateFailure {
                is_refusal: matches!(verdict.cause, Cause::RateLimited | Cause::UsageLimit),
                stated,
                binds_account: verdict.cause == Cause::UsageLimit && stated.is_some(),
            });
        }
        let is_ours = matches!(
            verdict.cause,
            Cause::Misconfigured | Cause::Internal | Cause::Unknown
        );
        match class {
            Class::Transient | Class::Canceled => Self::Unknown,
            _ if is_ours => Self::Unknown,
            _ => Self::Succeeded,
        }
    }
}

impl Call {
    /// Returns whether it probes for all: its failure costs its request nothing.
    pub const fn is_probe_for_all(&self) -> bool {
        matches!(self.pass, Pass::Probe { is_lone: false, .. })
    }
}

impl ProcessQueue {
    /// Reports the failure of a call; returns what it means for the gate.
    pub fn report_failure(
        &mut self,
        call: &Call,
        record: &mut RequestRecord,
        verdict: &Verdict,
        now: Timestamp,
    ) -> CallOutcome {
        let is_probe = matches!(call.pass, Pass::Probe { .. });
        let outcome = CallOutcome::of_failure(verdict, is_probe);
        match &outcome {
            CallOutcome::Failed(failure) => self.failed(call, record, failure, now),
            CallOutcome::Succeeded => self.succeeded(call, now),
            CallOutcome::Unknown => self.abandoned(call, now),
        }
        outcome
    }
}

/// Returns whether other callers of the gate may meet a failure with this cause.
pub const fn concerns_others(cause: Cause) -> bool {
    matches!(
        cause,
        Cause::Overloaded
            | Cause::RateLimited
            | Cause::UsageLimit
            | Cause::ServerError
            | Cause::Network
            | Cause::Timeout
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::{Hint, Scope};

    fn verdict(cause: Cause, stated: Option<u64>) -> Verdict {
        Verdict {
            hint: stated.map(|seconds| Hint {
                not_before: Timestamp::from_millis(seconds * 1000),
                source: "retry-after".to_owned(),
                authority: Authority::Stated,
            }),
            ..Verdict::new(cause, Scope::Provider)
        }
    }

    #[test]
    fn failure_means_to_the_gate_what_it_means_to_others() {
        let failed = |is_refusal, stated: Option<u64>, binds_account| {
            CallOutcome::Failed(GateFailure {
                is_refusal,
                stated: stated.map(|seconds| Timestamp::from_millis(seconds * 1000)),
                binds_account,
            })
        };
        for (cause, stated, is_probe, outcome) in [
            (Cause::Overloaded, None, false, failed(false, None, false)),
            (
                Cause::RateLimited,
                Some(5),
                false,
                failed(true, Some(5), false),
            ),
            (
                Cause::UsageLimit,
                Some(60),
                false,
                failed(true, Some(60), true),
            ),
            (Cause::UsageLimit, None, false, failed(true, None, false)),
            (Cause::Stalled, None, false, CallOutcome::Unknown),
            (Cause::Stalled, None, true, failed(false, None, false)),
            (Cause::Interrupted, None, true, CallOutcome::Unknown),
            (Cause::InvalidRequest, None, true, CallOutcome::Succeeded),
            (Cause::Auth, None, false, CallOutcome::Succeeded),
            (Cause::Misconfigured, None, true, CallOutcome::Unknown),
        ] {
            let seen = CallOutcome::of_failure(&verdict(cause, stated), is_probe);
            assert_eq!(seen, outcome, "{cause:?}");
        }
    }
}
