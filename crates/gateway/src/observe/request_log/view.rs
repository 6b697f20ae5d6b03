//! The published form of the most recent requests.
//!
//! Invariant: names, times and cleaned texts only; no key, no body, no content of a conversation.

use crate::observe::log::Outcome;
use outlast_kernel::Timestamp;
use outlast_kernel::verdict::Cause;
use schemars::JsonSchema;
use serde::Serialize;

/// What changed, and how far that goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "Traffic")]
pub struct Changes {
    /// The number of the last change: what comes later has a higher one.
    pub seq: u64,
    /// What time it is at the gateway.
    pub now: Timestamp,
    /// Those that changed, in the order of their last changes.
    pub requests: Vec<Request>,
}

/// A request, as far as it has come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "TrafficRequest")]
pub struct Request {
    /// The number of its last change.
    pub seq: u64,
    /// Its id, by which it can be retried or cancelled while it waits.
    pub id: Box<str>,
    /// The name of its client.
    pub client: &'static str,
    /// The name of its dialect, if it asks a model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dialect: Option<&'static str>,
    /// The model that it asks for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<Box<str>>,
    /// The stored account that it was last asked with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub account: Option<Box<str>>,
    /// The path, without a query.
    pub path: Box<str>,
    /// When it came.
    pub begun: Timestamp,
    /// How often its client has sent it again, if it goes on where an earlier one was left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resent: Option<u32>,
    /// When the trouble of that earlier one began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Its attempts in order. Of many, those in the middle are left out.
    pub attempts: Vec<Attempt>,
    /// When it was over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<Timestamp>,
    /// How it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    /// The status that the client got.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
}

/// One attempt, and the wait behind it. The request waits while its last one has failed, or was not made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "TrafficAttempt")]
pub struct Attempt {
    /// Which one; 1 is the first, and 0 stands for a wait before it.
    pub attempt: u32,
    /// When it was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub began: Option<Timestamp>,
    /// When it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_at: Option<Timestamp>,
    /// Why it failed, or why the request waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    /// The status that the provider answered with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// What the provider said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<Box<str>>,
    /// When the next one is made, as far as is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wake: Option<Timestamp>,
}
