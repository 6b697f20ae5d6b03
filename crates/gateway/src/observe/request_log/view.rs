//! The published form of the most recent requests.
//!
//! Invariant: names, times and cleaned texts only; no key, no body, no content of a conversation.

use crate::observe::log::Outcome;
use outlast_kernel::Timestamp;
use outlast_kernel::verdict::Cause;
use schemars::JsonSchema;
use serde::Serialize;

/// The requests that changed, and the sequence number of the last change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "Traffic")]
pub struct Changes {
    /// The sequence number of the last change; later changes have higher numbers.
    pub seq: u64,
    /// The gateway's current time.
    pub now: Timestamp,
    /// The requests that changed, in the order of their last changes.
    pub requests: Vec<Request>,
}

/// A request and its progress.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "TrafficRequest")]
pub struct Request {
    /// The sequence number of the request's last change.
    pub seq: u64,
    /// The id of the request, by which it can be retried or cancelled while it waits.
    pub id: Box<str>,
    /// The name of the client.
    pub client: &'static str,
    /// The name of the dialect, if the request is for a model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dialect: Option<&'static str>,
    /// The requested model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<Box<str>>,
    /// The stored account that the request was last sent with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub account: Option<Box<str>>,
    /// The path of the request, without its query.
    pub path: Box<str>,
    /// The time at which the request arrived.
    pub begun: Timestamp,
    /// How many times the client has sent the request again, if it resumes an earlier request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resent: Option<u32>,
    /// The time of the first failure of the earlier request that this one resumes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// The attempts in order. If there are many, those in the middle are left out.
    pub attempts: Vec<Attempt>,
    /// The time at which the request ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<Timestamp>,
    /// The outcome of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    /// The HTTP status that the client received.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
}

/// An attempt and the wait after it. The request waits while its last attempt has failed or was not made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "TrafficAttempt")]
pub struct Attempt {
    /// The number of the attempt, from 1; 0 stands for a wait before the first attempt.
    pub attempt: u32,
    /// The time at which the attempt was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub began: Option<Timestamp>,
    /// The time at which the attempt failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_at: Option<Timestamp>,
    /// The cause of the failure, or of the wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    /// The HTTP status of the provider's response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The provider's error message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<Box<str>>,
    /// The time of the next attempt, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wake: Option<Timestamp>,
}
