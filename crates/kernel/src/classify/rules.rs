//! The text rules: combinations of topics, each with its cause. The last resort, in order; the first that applies
//! decides.
//!
//! Invariant: a rule is only used where its cause is among those that the facts leave open (see `CauseFamily`), so no
//! wording can turn a terminal refusal into a retry.

use super::wording::{Topic, Topics, Wording};
use crate::verdict::Cause;

/// A condition on a message, and its cause.
struct Rule {
    cause: Cause,
    /// The message must touch one topic of each of these groups.
    all: &'static [Topics],
    /// The message must touch none of these topics.
    none: Topics,
    /// The name of the rule in the evidence.
    name: &'static str,
}

use Topic::{
    Auth, Bug, Bytes, Ceiling, Context, ContextFull, Credit, Cut, Exceeds, Filtered, Invalid,
    Killed, LargerThanBucket, LongWindow, Media, Missing, Miswired, Model, Network, NoCredential,
    NoProgram, NotInPlan, OutputCap, Overload, Permission, PlanOrBilling, Rate, Server,
    ShortWindow, Slow, Spend, Stall, Stopped, Tests, TlsConfig, Usage,
};

const fn any<const N: usize>(topics: [Topic; N]) -> Topics {
    Topics::new(&topics)
}

const RULES: &[Rule] = &[
    Rule {
        cause: Cause::Interrupted,
        all: &[any([Killed])],
        none: any([]),
        name: "somebody stopped it",
    },
    Rule {
        cause: Cause::Interrupted,
        all: &[any([Stopped])],
        none: any([Network, Rate, Slow, Credit, Cut, Stall]),
        name: "somebody stopped it",
    },
    Rule {
        cause: Cause::ContentFilter,
        all: &[any([Filtered])],
        none: any([Rate, Usage]),
        name: "a content filter",
    },
    Rule {
        cause: Cause::InvalidRequest,
        all: &[any([Media]), any([Exceeds, Bytes])],
        none: any([Rate, Usage, ContextFull]),
        name: "media too large",
    },
    Rule {
        cause: Cause::ContextOverflow,
        all: &[any([LargerThanBucket]), any([Rate, Exceeds, ShortWindow])],
        none: any([]),
        name: "larger than the rate's bucket",
    },
    Rule {
        cause: Cause::UsageLimit,
        all: &[any([Spend]), any([LongWindow])],
        none: any([]),
        name: "a long window of spending",
    },
    Rule {
        cause: Cause::Billing,
        all: &[any([Spend])],
        none: any([]),
        name: "a spending limit",
    },
    Rule {
        cause: Cause::Permission,
        all: &[any([NotInPlan])],
        none: any([]),
        name: "not in the plan",
    },
    Rule {
        cause: Cause::ContextOverflow,
        all: &[any([ContextFull])],
        none: any([Rate, ShortWindow, Credit, OutputCap]),
        name: "the context is full",
    },
    Rule {
        cause: Cause::ContextOverflow,
        all: &[any([Context]), any([Exceeds])],
        none: any([
            Rate,
            ShortWindow,
            LongWindow,
            Credit,
            OutputCap,
            Usage,
            Slow,
        ]),
        name: "more than the context holds",
    },
    Rule {
        cause: Cause::PayloadTooLarge,
        all: &[any([Bytes]), any([Exceeds])],
        none: any([Rate, Usage]),
        name: "too many bytes",
    },
    Rule {
        cause: Cause::InvalidRequest,
        all: &[any([OutputCap]), any([Exceeds])],
        none: any([Rate, Usage]),
        name: "more than may be written",
    },
    Rule {
        cause: Cause::UsageLimit,
        all: &[any([Usage]), any([LongWindow])],
        none: any([ShortWindow]),
        name: "a long window is used up",
    },
    Rule {
        cause: Cause::Billing,
        all: &[any([Credit])],
        none: any([Usage, Overload]),
        name: "no credit",
    },
    Rule {
        cause: Cause::RateLimited,
        all: &[any([Usage, PlanOrBilling, Rate]), any([ShortWindow])],
        none: any([]),
        name: "a short window",
    },
    Rule {
        cause: Cause::UsageLimit,
        all: &[any([LongWindow]), any([Rate, Exceeds])],
        none: any([]),
        name: "a long window",
    },
    Rule {
        cause: Cause::Billing,
        all: &[any([PlanOrBilling])],
        none: any([]),
        name: "plan and billing",
    },
    Rule {
        cause: Cause::Billing,
        all: &[any([Credit])],
        none: any([Overload]),
        name: "no credit",
    },
    Rule {
        cause: Cause::UsageLimit,
        all: &[any([Usage])],
        none: any([Rate, Overload]),
        name: "a usage limit",
    },
    Rule {
        cause: Cause::Overloaded,
        all: &[any([Overload])],
        none: any([Rate]),
        name: "no capacity",
    },
    Rule {
        cause: Cause::RateLimited,
        all: &[any([Rate])],
        none: any([]),
        name: "a rate limit",
    },
    Rule {
        cause: Cause::UsageLimit,
        all: &[any([Usage])],
        none: any([]),
        name: "a usage limit",
    },
    Rule {
        cause: Cause::CeilingReached,
        all: &[any([Ceiling])],
        none: any([]),
        name: "a ceiling of the run",
    },
    Rule {
        cause: Cause::MissingBinary,
        all: &[any([NoProgram])],
        none: any([]),
        name: "a program is missing",
    },
    Rule {
        cause: Cause::Misconfigured,
        all: &[any([TlsConfig, Miswired])],
        none: any([]),
        name: "the set-up",
    },
    Rule {
        cause: Cause::Auth,
        all: &[any([NoCredential])],
        none: any([]),
        name: "no credential",
    },
    Rule {
        cause: Cause::Internal,
        all: &[any([Bug])],
        none: any([Network, Cut, Slow, Stall]),
        name: "a fault in a program",
    },
    Rule {
        cause: Cause::TestsFailed,
        all: &[any([Tests])],
        none: any([]),
        name: "tests",
    },
    Rule {
        cause: Cause::Stalled,
        all: &[any([Stall])],
        none: any([]),
        name: "silence",
    },
    Rule {
        cause: Cause::TruncatedStream,
        all: &[any([Cut])],
        none: any([Invalid]),
        name: "a stream that was cut",
    },
    Rule {
        cause: Cause::Network,
        all: &[any([Network])],
        none: any([]),
        name: "the connection",
    },
    Rule {
        cause: Cause::ModelNotFound,
        all: &[any([Model]), any([Missing])],
        none: any([Server]),
        name: "no such model",
    },
    Rule {
        cause: Cause::Auth,
        all: &[any([Auth])],
        none: any([]),
        name: "the credential",
    },
    Rule {
        cause: Cause::Permission,
        all: &[any([Permission])],
        none: any([]),
        name: "not permitted",
    },
    Rule {
        cause: Cause::InvalidRequest,
        all: &[any([Invalid])],
        none: any([]),
        name: "the request",
    },
    Rule {
        cause: Cause::Timeout,
        all: &[any([Slow])],
        none: any([]),
        name: "too slow",
    },
    Rule {
        cause: Cause::ServerError,
        all: &[any([Server])],
        none: any([]),
        name: "the provider's own fault",
    },
];

/// Returns the first rule that applies to the message and whose cause is open.
pub(super) fn find_cause(
    wording: &Wording,
    open: impl Fn(Cause) -> bool,
) -> Option<(Cause, &'static str)> {
    let applies = |rule: &&Rule| {
        rule.all.iter().all(|group| wording.is_about(*group))
            && !wording.is_about(rule.none)
            && open(rule.cause)
    };
    RULES
        .iter()
        .find(applies)
        .map(|rule| (rule.cause, rule.name))
}
