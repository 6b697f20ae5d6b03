//! The published state of a running gateway: written by the gateway, read by its clients.
//!
//! Invariant: names and times only; no key, no body, no content of a conversation.

use super::GatewayControl;
use super::policies::PolicyView;
use crate::auth::{Exposure, Token};
use crate::observe::metrics::{Counters, Metrics};
use crate::observe::request_log::RequestLog;
use crate::shared::Shared;
use outlast_dialect::Dialect;
use outlast_engine::shared_state::GateStatus;
use outlast_kernel::Timestamp;
use outlast_kernel::account::{Block, Blocks};
use outlast_kernel::gate::Mode;
use outlast_kernel::verdict::Cause;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// The full status, as `status` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "GatewayStatus")]
pub struct Status {
    /// The version of the program.
    pub version: String,
    /// The state of the gateway itself.
    #[serde(flatten)]
    pub about: GatewaySummary,
    /// The accounts that are configured.
    pub accounts: Vec<Account>,
    /// The gates at which calls fail.
    pub gates: Vec<Gate>,
    /// The waiting requests, the oldest first.
    pub waiting: Vec<WaitingRequest>,
    /// The counters of the gateway.
    pub counters: Counters,
}

/// The state of the gateway itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GatewaySummary {
    /// The gateway's current time, so that a reader can compute remaining waits.
    pub now: Timestamp,
    /// The time since which the gateway accepts requests.
    pub listening_since: Timestamp,
    /// The address that the gateway listens on.
    pub address: String,
    /// Whether the gateway is shutting down and accepts no new requests.
    pub draining: bool,
    /// The upstream of each dialect.
    pub upstreams: Vec<Upstream>,
}

/// The upstream that receives the requests of a dialect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Upstream {
    /// The name of the dialect.
    pub dialect: String,
    /// The name of the provider.
    pub provider: String,
    /// The address of the provider, without credentials.
    pub url: String,
    /// The policy by which failures of the provider are retried.
    pub policy: String,
}

/// An account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Account {
    /// The name of the account.
    pub name: String,
    /// The name of the provider that the account belongs to.
    pub provider: String,
    /// Whether the account may be used.
    pub state: AccountState,
    /// The model that the account is blocked for; if absent, it is blocked for all models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The cause of the block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    /// The time at which the block ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

impl Account {
    /// Returns the account of that name: blocked as long as any of the blocks that name it lasts.
    pub fn new(name: &str, provider: &str, blocks: &Blocks, now: Timestamp) -> Self {
        let lasts = |block: &&Block| block.account == name && block.until > now;
        let longest = blocks.iter().filter(lasts).max_by_key(|block| block.until);
        Self {
            name: name.to_owned(),
            provider: provider.to_owned(),
            state: match longest {
                Some(_) => AccountState::Blocked,
                None => AccountState::Free,
            },
            model: longest.and_then(|block| block.model.clone()),
            cause: longest.map(|block| block.cause),
            until: longest.map(|block| block.until),
        }
    }
}

/// Whether an account may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AccountState {
    /// The account may be used.
    Free,
    /// Requests with the account would fail for now.
    Blocked,
}

/// A gate at which calls fail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Gate {
    /// The name of the gate: its provider, account and model.
    pub name: String,
    /// The calls that the gate allows: all, one probe at a time, or those of the queue at a rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// The cause of the last failure, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    /// The time of the next probe, if the gate is down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// The number of requests that wait at the gate.
    pub waiting: u64,
    /// The state of the gate in one sentence.
    #[serde(default)]
    pub state: String,
}

impl Gate {
    /// Returns a gate of the shared state as it is shown.
    pub fn new(known: GateStatus, now: Timestamp) -> Self {
        let probe_at = known.gate.outage().map(|(_, probe_at)| probe_at);
        Self {
            name: known.name,
            mode: Some(known.gate.mode()),
            cause: known.cause,
            until: probe_at.filter(|at| *at > now),
            waiting: known.waiting,
            state: known.summary,
        }
    }
}

/// A waiting request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WaitingRequest {
    /// The id of the request, by which it can be retried or cancelled.
    pub id: String,
    /// The name of the client.
    pub client: String,
    /// The name of the dialect.
    pub dialect: String,
    /// The requested model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The account that the request was sent with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// The path of the request.
    pub path: String,
    /// The time of the first failure of the request.
    pub since: Timestamp,
    /// The cause of the wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    /// The number of attempts so far.
    pub attempts: u32,
    /// How many times the client has sent the request again.
    pub resent: u32,
    /// The time of the next attempt, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wake: Option<Timestamp>,
    /// The time at which the client disconnected; `None` while it is connected. The client may come back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<Timestamp>,
}

/// The server that the page came from.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct About {
    /// The version of the program.
    pub version: String,
    /// The gateway's current time.
    pub now: Timestamp,
    /// The names of the views that the page can show.
    pub views: Vec<&'static str>,
}

/// The known gateways.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Gateways")]
pub struct ListedGateways {
    /// The gateway's current time.
    pub now: Timestamp,
    /// The status of each known gateway.
    pub gateways: Vec<ListedGateway>,
}

/// A gateway.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(rename = "Gateway")]
pub struct ListedGateway {
    /// The port that the gateway listens on; it identifies the gateway.
    pub port: u16,
    /// The address that the gateway listens on.
    pub address: String,
    /// The full status of the gateway.
    pub status: Status,
}

/// The shared state of the providers: accounts and gates.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SharedState {
    /// The gateway's current time.
    pub now: Timestamp,
    /// The accounts that are configured.
    pub accounts: Vec<Account>,
    /// The gates at which calls fail.
    pub gates: Vec<Gate>,
}

/// The retry policies.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Policies {
    /// All retry policies.
    pub policies: Vec<PolicyView>,
}

// --- the state of this gateway ---

impl GatewayControl for Shared {
    fn token(&self) -> Option<&Token> {
        self.access.token.as_ref()
    }

    fn exposure(&self) -> Exposure {
        self.access.exposure
    }

    fn address(&self) -> SocketAddr {
        self.address
    }

    fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    fn request_log(&self) -> &RequestLog {
        &self.request_log
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn summary(&self) -> GatewaySummary {
        let upstreams = self.upstreams();
        let shown = |dialect: Dialect| {
            let upstream = upstreams.for_dialect(dialect);
            Upstream {
                dialect: dialect.name().to_owned(),
                provider: upstream.name.clone(),
                url: upstream.address.clone(),
                policy: upstreams.policy_for(dialect.path()).name.to_string(),
            }
        };
        GatewaySummary {
            now: self.now(),
            listening_since: self.started_at,
            address: self.address.to_string(),
            draining: self.stopping.is_cancelled(),
            upstreams: Dialect::ALL.map(shown).into(),
        }
    }

    fn accounts(&self) -> Vec<Account> {
        let (upstreams, now) = (self.upstreams(), self.now());
        let blocks = self.shared_state.blocks();
        let mut shown = Vec::new();
        for upstream in [&upstreams.anthropic, &upstreams.openai] {
            let names = upstream.accounts.iter().flat_map(|all| all.names());
            shown.extend(names.map(|name| Account::new(name, &upstream.name, &blocks, now)));
        }
        shown
    }

    fn gates(&self) -> Vec<Gate> {
        let (failing, now) = (self.shared_state.failing_gates(), self.now());
        failing
            .into_iter()
            .map(|gate| Gate::new(gate, now))
            .collect()
    }

    fn waiting(&self) -> Vec<WaitingRequest> {
        self.holds.list()
    }

    fn retry_now(&self, id: Option<&str>) -> usize {
        self.holds.retry_now(id)
    }

    fn cancel(&self, id: &str) -> bool {
        self.holds.cancel(id)
    }

    fn reload(&self) -> Result<(), String> {
        self.reload_requested.notify_one();
        Ok(())
    }
}
