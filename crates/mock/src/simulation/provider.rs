//! The provider: latencies, a capacity, and faults.

use fastrand::Rng;
use outlast_kernel::Timestamp;
use outlast_kernel::failure::{ClassifiedFailure, Failure};
use outlast_kernel::verdict::{Authority, Cause, Hint, Scope, Verdict};
use std::ops::Range;
use std::sync::Arc;

/// The kind of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The provider is overloaded or broken.
    Failure,
    /// The provider refuses the request because of its rate.
    Refusal,
}

/// A failed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Its kind.
    pub kind: FaultKind,
    /// The time before which the provider wants no call, in milliseconds.
    pub stated: Option<u64>,
    /// Whether the stated time binds the account.
    pub binds_account: bool,
}

impl Fault {
    /// Returns an overload that states nothing.
    pub const fn failure() -> Self {
        Self {
            kind: FaultKind::Failure,
            stated: None,
            binds_account: false,
        }
    }

    /// Returns a refusal, perhaps with a stated time.
    pub const fn refusal(stated: Option<u64>) -> Self {
        Self {
            kind: FaultKind::Refusal,
            stated,
            binds_account: false,
        }
    }
}

impl Fault {
    /// Returns a usage limit that ends at that time, for everybody who shares the account.
    pub const fn usage_limit(reset: u64) -> Self {
        Self {
            kind: FaultKind::Refusal,
            stated: Some(reset),
            binds_account: true,
        }
    }

    /// Returns the failure as the classifier hands it on.
    pub(super) fn classified(self, now: Timestamp) -> Arc<ClassifiedFailure> {
        let (cause, scope, status) = match (self.kind, self.binds_account) {
            (FaultKind::Failure, _) => (Cause::Overloaded, Scope::Provider, 529),
            (FaultKind::Refusal, false) => (Cause::RateLimited, Scope::Credential, 429),
            (FaultKind::Refusal, true) => (Cause::UsageLimit, Scope::Credential, 429),
        };
        let hint = self.stated.map(|stated| Hint {
            not_before: Timestamp::from_millis(stated),
            source: String::new(),
            authority: Authority::Stated,
        });
        let verdict = Verdict {
            hint,
            ..Verdict::new(cause, scope)
        };
        Arc::new(ClassifiedFailure {
            failure: Failure::http("", status, "", now),
            verdict,
        })
    }
}

/// The treatment of a call by a script of faults.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Treatment {
    /// The provider serves it if it has the capacity.
    Serve,
    /// The provider serves it so many milliseconds later.
    Late(u64),
    /// It fails.
    Fail(Fault),
    /// It fails after so many milliseconds.
    FailAfter(u64, Fault),
}

/// The call for which a fault is decided.
#[derive(Clone, Copy, Debug)]
pub struct FaultContext {
    /// The time, in milliseconds.
    pub now: u64,
    /// The label of the request.
    pub label: u32,
    /// The earlier calls of the request.
    pub earlier_calls: u32,
}

type Script = Box<dyn FnMut(FaultContext, &mut Rng) -> Treatment>;

/// A provider with a token bucket of one second as capacity. Latencies are in milliseconds, uniform in their range.
pub struct Provider {
    /// The time to the first byte of a success.
    pub first_byte: Range<f64>,
    /// The duration of a success; that of its first byte if there is none.
    pub duration: Option<Range<f64>>,
    /// The latency of a failure.
    pub failure: Range<f64>,
    /// Units per second; unlimited if there is none.
    pub capacity: Option<f64>,
    /// Whether a call over the capacity is refused (429) or fails (529).
    pub over_capacity: FaultKind,
    /// Whether a refusal for lack of capacity states when to come back, in whole seconds.
    pub states_retry: bool,
    /// Decides about faults.
    pub script: Script,
    /// Units that are left, and the time of that number in milliseconds.
    pub units: f64,
    /// The time of that number.
    pub at: u64,
}

/// The reply to a call, with times relative to it, in milliseconds.
pub(super) enum Reply {
    Success { first_byte: u64, end: u64 },
    Failure(u64, Fault),
}

impl Provider {
    /// Creates a provider that streams: the first byte after 0.3 to 1.5 s, the end after 4.5 to 13.5 s.
    pub fn streaming(script: impl FnMut(FaultContext, &mut Rng) -> Treatment + 'static) -> Self {
        Self {
            first_byte: 300.0..1500.0,
            duration: Some(4500.0..13_500.0),
            failure: 50.0..150.0,
            capacity: None,
            over_capacity: FaultKind::Refusal,
            states_retry: false,
            script: Box::new(script),
            units: 0.0,
            at: 0,
        }
    }

    /// Limits it to so many units per second, with a burst of one second.
    #[must_use]
    pub fn with_capacity(self, capacity: f64) -> Self {
        Self {
            capacity: Some(capacity),
            units: capacity,
            ..self
        }
    }

    pub(super) fn call(&mut self, context: FaultContext, size: f64, rng: &mut Rng) -> Reply {
        let late = match (self.script)(context, rng) {
            Treatment::Serve => 0,
            Treatment::Late(by) => by,
            Treatment::Fail(fault) => return Reply::Failure(pick(&self.failure, rng), fault),
            Treatment::FailAfter(after, fault) => return Reply::Failure(after, fault),
        };
        if let Some(fault) = self.lack(size, context.now) {
            return Reply::Failure(pick(&self.failure, rng), fault);
        }
        let first_byte = late + pick(&self.first_byte, rng);
        let end = self.duration.as_ref().map_or(first_byte, |duration| {
            (late + pick(duration, rng)).max(first_byte)
        });
        Reply::Success { first_byte, end }
    }

    fn lack(&mut self, size: f64, now: u64) -> Option<Fault> {
        let capacity = self.capacity?;
        let refilled = capacity * seconds(now - self.at);
        self.units = (self.units + refilled).min(capacity);
        self.at = now;
        if self.units >= size {
            self.units -= size;
            return None;
        }
        let wait = ((size - self.units) / capacity).ceil();
        let stated = self.states_retry.then(|| now + in_millis(wait));
        Some(Fault {
            kind: self.over_capacity,
            stated,
            binds_account: false,
        })
    }
}

fn pick(range: &Range<f64>, rng: &mut Rng) -> u64 {
    let at = range.start + (range.end - range.start) * rng.f64();
    in_millis(at / 1000.0)
}

pub(super) fn in_millis(seconds: f64) -> u64 {
    outlast_kernel::time::millis(std::time::Duration::from_secs_f64(seconds))
}

pub(super) fn seconds(millis: u64) -> f64 {
    std::time::Duration::from_millis(millis).as_secs_f64()
}
