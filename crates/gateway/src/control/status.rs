//! The status of a running gateway: written by the gateway, read by its clients.
//!
//! Invariant: names and times only; no key, no body, no content of a conversation.

use crate::observe::metrics::Counters;
use outlast_kernel::Timestamp;
use outlast_kernel::verdict::Cause;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Everything that `status` shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "GatewayStatus")]
pub struct Status {
    /// Which program.
    pub version: String,
    /// The gateway itself.
    #[serde(flatten)]
    pub about: GatewaySummary,
    /// The accounts that are configured.
    pub accounts: Vec<Account>,
    /// The gates that are not closed.
    pub gates: Vec<Gate>,
    /// The requests that wait, the oldest first.
    pub waiting: Vec<WaitingRequest>,
    /// A few numbers.
    pub counters: Counters,
}

/// The gateway itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "About")]
pub struct GatewaySummary {
    /// What time it is there, so that whoever reads can count down.
    pub now: Timestamp,
    /// Since when it takes requests.
    pub listening_since: Timestamp,
    /// Where it takes them.
    pub address: String,
    /// Whether it takes no more.
    pub draining: bool,
    /// Where requests go.
    pub upstreams: Vec<Upstream>,
}

/// Where requests of a dialect go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Upstream {
    /// The name of the dialect.
    pub dialect: String,
    /// The name of the provider.
    pub provider: String,
    /// Its address, without credentials.
    pub url: String,
    /// The policy by which its failures are retried.
    pub policy: String,
}

/// An account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Account {
    /// Its name.
    pub name: String,
    /// Whose it is.
    pub provider: String,
    /// Whether it may be used.
    pub state: AccountState,
    /// The model that it is blocked for; without one it is blocked for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Why it is blocked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    /// Until when it is blocked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

/// Whether an account may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AccountState {
    /// Nothing is known against it.
    Free,
    /// Asking with it is pointless for now.
    Blocked,
}

/// A gate that is not closed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Gate {
    /// What it is before: a provider, an account and a model.
    pub name: String,
    /// Why it opened, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    /// When the next one may try.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// How many wait before it.
    pub waiting: u64,
}

/// A request that waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Waiting")]
pub struct WaitingRequest {
    /// Its id, by which it can be retried or cancelled.
    pub id: String,
    /// The name of its client.
    pub client: String,
    /// The name of its dialect.
    pub dialect: String,
    /// The model that it asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The account that it was asked with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// The path.
    pub path: String,
    /// When its trouble began.
    pub since: Timestamp,
    /// What is wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    /// How often it was tried.
    pub attempts: u32,
    /// How often its client has sent it again.
    pub resent: u32,
    /// When it is tried again, as far as is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wake: Option<Timestamp>,
    /// When its client left, which may come back; `None` while it is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<Timestamp>,
}
