//! What a gateway that runs shows of itself, and what it can be told.

use super::control::{About, Account, AccountState, Gate, Inspect, Upstream, Waiting};
use super::guard::{Reach, Token};
use super::metrics::Metrics;
use super::shared::Shared;
use outlast_dialect::Dialect;

impl Inspect for Shared {
    fn token(&self) -> Option<&Token> {
        self.guard.token.as_ref()
    }

    fn reach(&self) -> Reach {
        self.guard.reach
    }

    fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    fn about(&self) -> About {
        let upstreams = self.upstreams();
        let shown = |dialect: Dialect| {
            let upstream = match dialect {
                Dialect::Anthropic => &upstreams.anthropic,
                Dialect::OpenaiChat | Dialect::OpenaiResponses => &upstreams.openai,
            };
            Upstream {
                dialect: dialect.name().to_owned(),
                provider: upstream.name.clone(),
                url: upstream.place.clone(),
                policy: upstreams.policy(dialect.path()).name.to_string(),
            }
        };
        About {
            now: self.now(),
            listening_since: self.since,
            address: String::new(),
            draining: self.stopping.is_cancelled(),
            upstreams: Dialect::ALL.map(shown).into(),
        }
    }

    fn accounts(&self) -> Vec<Account> {
        let (upstreams, now) = (self.upstreams(), self.now());
        let blocks = self.desk.knowledge().blocks();
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
        let open = self.desk.knowledge().open_gates().into_iter();
        let shown = open.map(|open| Gate {
            name: open.name,
            cause: open.cause,
            until: Some(open.stated_end).filter(|end| *end > self.now()),
            waiting: open.waiting,
        });
        shown.collect()
    }

    fn waiting(&self) -> Vec<Waiting> {
        Vec::new()
    }

    fn retry_now(&self, _: Option<&str>) -> usize {
        0
    }

    fn cancel(&self, _: &str) -> bool {
        false
    }

    fn reload(&self) -> Result<(), String> {
        Err("this gateway cannot read its settings again".to_owned())
    }
}
