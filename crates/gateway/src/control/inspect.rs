//! The implementation of [`GatewayControl`] by a running gateway.

use crate::auth::{Exposure, Token};
use crate::control::{
    Account, AccountState, Gate, GatewayControl, GatewaySummary, Upstream, WaitingRequest,
};
use crate::observe::metrics::Metrics;
use crate::observe::request_log::RequestLog;
use crate::shared::Shared;
use outlast_dialect::Dialect;
use std::net::SocketAddr;

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

    fn summary(&self) -> GatewaySummary {
        let upstreams = self.upstreams();
        let shown = |dialect: Dialect| {
            let upstream = match dialect {
                Dialect::Anthropic => &upstreams.anthropic,
                Dialect::OpenaiChat | Dialect::OpenaiResponses => &upstreams.openai,
            };
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
            let accounts = upstream.accounts.iter();
            for name in accounts.flat_map(|accounts| accounts.names()) {
                let of_account = blocks.iter().filter(|block| block.account == name);
                let active = of_account.filter(|block| block.until > now);
                let block = active.max_by_key(|block| block.until);
                shown.push(Account {
                    name: name.to_owned(),
                    provider: upstream.name.clone(),
                    state: match block {
                        Some(_) => AccountState::Blocked,
                        None => AccountState::Free,
                    },
                    model: block.and_then(|block| block.model.clone()),
                    cause: block.map(|block| block.cause),
                    until: block.map(|block| block.until),
                });
            }
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
