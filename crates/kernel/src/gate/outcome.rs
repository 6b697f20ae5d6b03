//! The meaning of a failed call for its gate.

use super::GateFailure;
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
    use crate::Timestamp;
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
