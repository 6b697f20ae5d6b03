//! The text rules: which topics together mean which cause. The last resort, in order; the first that applies decides.
//!
//! Invariant: a rule is only asked where its cause is among those that the facts leave open (see `Family`). So no
//! wording can turn a terminal refusal into a retry.

use super::wording::{Topic, Wording};
use crate::verdict::Cause;

/// A condition on a message, and what it means.
struct Rule {
    cause: Cause,
    /// Every one of these groups must be touched.
    all: &'static [&'static [Topic]],
    /// None of these may be touched.
    none: &'static [Topic],
    /// What the rule is called in the evidence.
    name: &'static str,
}

use Topic::{
    Auth, Bug, Bytes, Ceiling, Context, ContextFull, Credit, Cut, Exceeds, Filtered, Invalid,
    LargerThanBucket, LongWindow, Media, Missing, Miswired, Model, Network, NoProgram, NotInPlan,
    OutputCap, Overload, Permission, PlanOrBilling, Rate, Server, ShortWindow, Slow, Spend, Stall,
    Stopped, Tests, TlsConfig, Usage,
};

const RULES: &[Rule] = &[
    Rule {
        cause: Cause::Interrupted,
        all: &[&[Stopped]],
        none: &[Network, Rate],
        name: "somebody stopped it",
    },
    Rule {
        cause: Cause::ContentFilter,
        all: &[&[Filtered]],
        none: &[Rate, Usage],
        name: "a content filter",
    },
    Rule {
        cause: Cause::InvalidRequest,
        all: &[&[Media], &[Exceeds, Bytes]],
        none: &[Rate, Usage],
        name: "media too large",
    },
    Rule {
        cause: Cause::ContextOverflow,
        all: &[&[LargerThanBucket], &[Rate, Exceeds, ShortWindow]],
        none: &[],
        name: "larger than the rate's bucket",
    },
    Rule {
        cause: Cause::Billing,
        all: &[&[Spend]],
        none: &[],
        name: "a spending limit",
    },
    Rule {
        cause: Cause::Permission,
        all: &[&[NotInPlan]],
        none: &[],
        name: "not in the plan",
    },
    Rule {
        cause: Cause::ContextOverflow,
        all: &[&[ContextFull]],
        none: &[Rate, ShortWindow, Credit, OutputCap],
        name: "the context is full",
    },
    Rule {
        cause: Cause::ContextOverflow,
        all: &[&[Context], &[Exceeds]],
        none: &[
            Rate,
            ShortWindow,
            LongWindow,
            Credit,
            OutputCap,
            Usage,
            Slow,
        ],
        name: "more than the context holds",
    },
    Rule {
        cause: Cause::PayloadTooLarge,
        all: &[&[Bytes], &[Exceeds]],
        none: &[Rate, Usage],
        name: "too many bytes",
    },
    Rule {
        cause: Cause::UsageLimit,
        all: &[&[Usage], &[LongWindow]],
        none: &[ShortWindow],
        name: "a long window is used up",
    },
    Rule {
        cause: Cause::Billing,
        all: &[&[Credit]],
        none: &[Usage, Overload],
        name: "no credit",
    },
    Rule {
        cause: Cause::RateLimited,
        all: &[&[Usage, PlanOrBilling, Rate], &[ShortWindow]],
        none: &[],
        name: "a short window",
    },
    Rule {
        cause: Cause::UsageLimit,
        all: &[&[LongWindow], &[Rate, Exceeds]],
        none: &[],
        name: "a long window",
    },
    Rule {
        cause: Cause::Billing,
        all: &[&[PlanOrBilling]],
        none: &[],
        name: "plan and billing",
    },
    Rule {
        cause: Cause::Billing,
        all: &[&[Credit]],
        none: &[Overload],
        name: "no credit",
    },
    Rule {
        cause: Cause::UsageLimit,
        all: &[&[Usage]],
        none: &[Rate],
        name: "a usage limit",
    },
    Rule {
        cause: Cause::Overloaded,
        all: &[&[Overload]],
        none: &[Rate],
        name: "no capacity",
    },
    Rule {
        cause: Cause::RateLimited,
        all: &[&[Rate]],
        none: &[],
        name: "a rate limit",
    },
    Rule {
        cause: Cause::UsageLimit,
        all: &[&[Usage]],
        none: &[],
        name: "a usage limit",
    },
    Rule {
        cause: Cause::CeilingReached,
        all: &[&[Ceiling]],
        none: &[],
        name: "a ceiling of the run",
    },
    Rule {
        cause: Cause::MissingBinary,
        all: &[&[NoProgram]],
        none: &[],
        name: "a program is missing",
    },
    Rule {
        cause: Cause::Misconfigured,
        all: &[&[TlsConfig, Miswired]],
        none: &[],
        name: "the set-up",
    },
    Rule {
        cause: Cause::Internal,
        all: &[&[Bug]],
        none: &[Network, Cut, Slow, Stall],
        name: "a fault in a program",
    },
    Rule {
        cause: Cause::TestsFailed,
        all: &[&[Tests]],
        none: &[],
        name: "tests",
    },
    Rule {
        cause: Cause::Stalled,
        all: &[&[Stall]],
        none: &[],
        name: "silence",
    },
    Rule {
        cause: Cause::TruncatedStream,
        all: &[&[Cut]],
        none: &[Invalid],
        name: "a stream that was cut",
    },
    Rule {
        cause: Cause::Network,
        all: &[&[Network]],
        none: &[],
        name: "the connection",
    },
    Rule {
        cause: Cause::ModelNotFound,
        all: &[&[Model], &[Missing]],
        none: &[Server],
        name: "no such model",
    },
    Rule {
        cause: Cause::Auth,
        all: &[&[Auth]],
        none: &[],
        name: "the credential",
    },
    Rule {
        cause: Cause::Permission,
        all: &[&[Permission]],
        none: &[],
        name: "not permitted",
    },
    Rule {
        cause: Cause::InvalidRequest,
        all: &[&[Invalid]],
        none: &[],
        name: "the request",
    },
    Rule {
        cause: Cause::Timeout,
        all: &[&[Slow]],
        none: &[],
        name: "too slow",
    },
    Rule {
        cause: Cause::ServerError,
        all: &[&[Server]],
        none: &[],
        name: "the provider's own fault",
    },
];

/// The first rule that applies to the message and whose cause is open.
pub(super) fn judge(
    wording: &Wording,
    open: impl Fn(Cause) -> bool,
) -> Option<(Cause, &'static str)> {
    let touched = |topics: &[Topic]| topics.iter().any(|topic| wording.is_about(*topic));
    let applies = |rule: &&Rule| {
        open(rule.cause) && rule.all.iter().all(|group| touched(group)) && !touched(rule.none)
    };
    RULES
        .iter()
        .find(applies)
        .map(|rule| (rule.cause, rule.name))
}
