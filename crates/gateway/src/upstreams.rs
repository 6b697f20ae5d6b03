//! The providers behind a gateway, and what is asked of them. All of it can be changed while the gateway runs.

use super::route::Route;
use outlast_dialect::Dialect;
use outlast_engine::accounts::Accounts;
use outlast_engine::provider::Timeouts;
use outlast_engine::transport::Forwarder;
use outlast_kernel::policy::Policy;
use std::sync::Arc;

/// The providers, and how requests to them are treated.
pub struct Upstreams {
    /// Who is asked in the dialect of Messages.
    pub anthropic: Upstream,
    /// Who is asked in the dialects of Chat Completions and of Responses.
    pub openai: Upstream,
    /// The policy of requests for which no other is named.
    pub policy: Arc<Policy>,
    /// The policies of paths that begin like that; the longest counts.
    pub policies: Vec<(String, Arc<Policy>)>,
    /// The client that is assumed, whoever asks.
    pub client: Option<String>,
    /// How long signs of life are waited for.
    pub timeouts: Timeouts,
    /// The least bytes in a second that a stream may bring, over a minute; zero means that it may be as slow as it likes.
    pub least_throughput: u32,
}

/// One provider.
pub struct Upstream {
    /// Its name, as failures carry it.
    pub name: String,
    /// What tells it from others of the same name; empty at its usual place.
    pub place: String,
    /// The way to it.
    pub forward: Forwarder,
    /// The accounts that are used in the place of the client's own key, on the paths where a model is asked.
    pub accounts: Option<Arc<Accounts>>,
}

impl Upstreams {
    /// Who is asked on that route.
    pub(super) fn of(&self, route: Route) -> &Upstream {
        match route.dialect {
            Dialect::Anthropic => &self.anthropic,
            Dialect::OpenaiChat | Dialect::OpenaiResponses => &self.openai,
        }
    }

    /// The policy of requests for that path.
    pub(super) fn policy(&self, path: &str) -> &Arc<Policy> {
        let named = self.policies.iter();
        named
            .filter(|(prefix, _)| path.starts_with(prefix.as_str()))
            .max_by_key(|(prefix, _)| prefix.len())
            .map_or(&self.policy, |(_, policy)| policy)
    }
}
