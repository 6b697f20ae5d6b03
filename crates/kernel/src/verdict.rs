//! The verdict on a failure: its cause, class, scope and hint.
//!
//! Invariant: the class follows from the cause, so the two can never disagree.

use crate::Timestamp;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

/// The class of a failure, which says how to respond to it: one of the six classes of step policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// The failure can pass by itself: try again.
    Transient,
    /// The failure is the same every time: a retry does not help.
    Deterministic,
    /// A context window or a ceiling of cost or tokens is spent: make it smaller or fall back.
    BudgetExhausted,
    /// The output broke its contract: rework it.
    ContractFailure,
    /// Tests failed: fix and run them again.
    TestFailure,
    /// A person or the run's own deadline ended it.
    Canceled,
}

impl Class {
    /// All classes, in the order of the documentation.
    pub const ALL: [Self; 6] = [
        Self::Transient,
        Self::Deterministic,
        Self::BudgetExhausted,
        Self::ContractFailure,
        Self::TestFailure,
        Self::Canceled,
    ];

    /// Returns the name of the class, as pipelines and JSON spell it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Transient => "transient",
            Self::Deterministic => "deterministic",
            Self::BudgetExhausted => "budget_exhausted",
            Self::ContractFailure => "contract_failure",
            Self::TestFailure => "test_failure",
            Self::Canceled => "canceled",
        }
    }
}

macro_rules! causes {
    ($($(#[$doc:meta])* $name:ident => $class:ident, $word:literal, $phrase:literal;)*) => {
        /// The cause of a failure.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[non_exhaustive]
        pub enum Cause {
            $($(#[$doc])* #[serde(rename = $word)] $name,)*
        }

        impl Cause {
            /// All causes.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// Returns the class of this cause.
            pub const fn class(self) -> Class {
                match self { $(Self::$name => Class::$class,)* }
            }

            /// Returns the name of the cause in events and configuration.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $word,)* }
            }

            /// Returns the cause with that name.
            pub fn named(word: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|cause| cause.as_str() == word)
            }

            /// Returns the cause in words for a person.
            pub const fn phrase(self) -> &'static str {
                match self { $(Self::$name => $phrase,)* }
            }
        }
    };
}

causes! {
    /// The provider has no capacity just now.
    Overloaded => Transient, "overloaded", "Server overloaded";
    /// Too many requests or tokens in a short window.
    RateLimited => Transient, "rate_limited", "Rate limited";
    /// A plan's window (hours, days) is used up.
    UsageLimit => Transient, "usage_limit", "Usage limit reached";
    /// The provider failed internally.
    ServerError => Transient, "server_error", "Server error";
    /// The connection could not be made or was lost.
    Network => Transient, "network", "Connection failed";
    /// A request or step took too long.
    Timeout => Transient, "timeout", "Request timed out";
    /// No data arrived for longer than the idle limit.
    Stalled => Transient, "stalled", "Stream stalled";
    /// A stream ended without its terminal event.
    TruncatedStream => Transient, "truncated_stream", "Stream cut off";
    /// The answer was empty.
    EmptyOutput => Transient, "empty_output", "Empty answer";
    /// A command failed in a way that may pass, according to the command itself or to the step's author.
    CommandFailed => Transient, "command_failed", "Command failed";
    /// The credential was refused.
    Auth => Deterministic, "auth", "Credential refused";
    /// The credential has no permission for the request.
    Permission => Deterministic, "permission", "Permission denied";
    /// An empty balance or a spend cap.
    Billing => Deterministic, "billing", "Out of credit";
    /// The request can never be accepted as it is.
    InvalidRequest => Deterministic, "invalid_request", "Request refused";
    /// Too many bytes, whatever the tokens.
    PayloadTooLarge => Deterministic, "payload_too_large", "Request too large";
    /// No such model, or not for this account.
    ModelNotFound => Deterministic, "model_not_found", "Model not found";
    /// A safety filter refused the input or the output.
    ContentFilter => Deterministic, "content_filter", "Refused by a content filter";
    /// A program that a step needs is not installed.
    MissingBinary => Deterministic, "missing_binary", "Program not found";
    /// The set-up is wrong: a certificate, a proxy, a full disk, too little memory.
    Misconfigured => Deterministic, "misconfigured", "Set-up is wrong";
    /// A bug in Outlast.
    Internal => Deterministic, "internal", "Internal error";
    /// An error of unknown cause.
    Unknown => Deterministic, "unknown", "Unknown error";
    /// The conversation does not fit the model's window.
    ContextOverflow => BudgetExhausted, "context_overflow", "Context window exceeded";
    /// A ceiling on cost or tokens is reached.
    CeilingReached => BudgetExhausted, "ceiling_reached", "Budget ceiling reached";
    /// Output that does not match its schema.
    SchemaMismatch => ContractFailure, "schema_mismatch", "Output does not match its schema";
    /// Output that cannot be read at all.
    MalformedOutput => ContractFailure, "malformed_output", "Output is malformed";
    /// Any other contract that the output broke.
    ContractBroken => ContractFailure, "contract_broken", "Contract broken";
    /// A test suite failed.
    TestsFailed => TestFailure, "tests_failed", "Tests failed";
    /// A person interrupted it.
    Interrupted => Canceled, "interrupted", "Cancelled";
    /// The run's own deadline passed.
    DeadlinePassed => Canceled, "deadline_passed", "Deadline passed";
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The scope of a failure: the other requests that will meet it, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// This request alone.
    Request,
    /// All requests with this credential.
    Credential,
    /// All requests to this model.
    Model,
    /// All requests to this provider.
    Provider,
    /// All requests of this process or machine.
    Process,
}

/// The reliability of a stated time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Authority {
    /// Our own estimate; never authorises a long sleep.
    Guessed,
    /// Read from a report about usage, not from this response.
    Reported,
    /// Stated by the server about this very request.
    Stated,
}

/// The time from which a retry makes sense, according to the failure's source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hint {
    /// The earliest time of a retry.
    pub not_before: Timestamp,
    /// The header, body field or wording that it was read from.
    pub source: String,
    /// The reliability of the time.
    pub authority: Authority,
}

impl Hint {
    /// Returns the time from `now` until the hint allows a retry.
    pub fn wait(&self, now: Timestamp) -> Duration {
        self.not_before.since(now)
    }
}

/// One fact that led to a verdict, so that the verdict can be explained.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// The source of the fact: `status`, `code`, a header's or field's name, `io`, `text`, `transport`.
    pub source: Cow<'static, str>,
    /// The value that was found there.
    pub found: Cow<'static, str>,
}

/// The judgement of one failure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// The cause.
    pub cause: Cause,
    /// The scope.
    pub scope: Scope,
    /// The stated time of a retry, if any.
    pub hint: Option<Hint>,
    /// The facts that decided.
    pub evidence: Vec<Evidence>,
}

impl Verdict {
    /// Creates a verdict without hint or evidence.
    pub const fn new(cause: Cause, scope: Scope) -> Self {
        Self {
            cause,
            scope,
            hint: None,
            evidence: Vec::new(),
        }
    }

    /// Returns the class of the cause.
    pub const fn class(&self) -> Class {
        self.cause.class()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wire_name_of_a_cause_is_its_serialized_form() {
        for cause in Cause::ALL {
            assert_eq!(
                serde_json::to_string(cause).unwrap(),
                format!("\"{cause}\"")
            );
        }
    }

    #[test]
    fn every_class_has_a_cause() {
        for class in Class::ALL {
            assert!(
                Cause::ALL.iter().any(|cause| cause.class() == class),
                "{class:?}"
            );
        }
    }
}
