//! The providers behind a gateway, and the treatment of requests to them. All of it can change while the gateway runs.

use super::route::Route;
use outlast_dialect::Dialect;
use outlast_engine::accounts::Accounts;
use outlast_engine::provider::Timeouts;
use outlast_engine::transport::Forwarder;
use outlast_kernel::policy::Policy;
use std::sync::Arc;

/// The providers, and the treatment of requests to them.
pub struct Upstreams {
    /// The provider of the Messages dialect.
    pub anthropic: Upstream,
    /// The provider of the Chat Completions and Responses dialects.
    pub openai: Upstream,
    /// The policy of requests for which no other is named.
    pub policy: Arc<Policy>,
    /// The policies by path prefix; the longest matching prefix counts.
    pub policies: Vec<(String, Arc<Policy>)>,
    /// The client that is assumed for all requests, instead of the recognised one.
    pub client: Option<String>,
    /// The timeouts of attempts.
    pub timeouts: Timeouts,
    /// Minimum throughput of a stream in bytes per second, over a minute; zero switches the check off.
    pub min_throughput: u32,
}

/// One provider.
pub struct Upstream {
    /// The name, as failures carry it.
    pub name: String,
    /// Tells the provider from others of the same name; empty at its usual address.
    pub address: String,
    /// The forwarder of requests to it.
    pub forward: Forwarder,
    /// The accounts that replace the client's own key, on the paths that are for a model.
    pub accounts: Option<Arc<Accounts>>,
}

impl Upstreams {
    /// Returns the provider of that dialect.
    pub(super) fn for_dialect(&self, dialect: Dialect) -> &Upstream {
        match dialect {
            Dialect::Anthropic => &self.anthropic,
            Dialect::OpenaiChat | Dialect::OpenaiResponses => &self.openai,
        }
    }

    /// Returns the provider of that route.
    pub(super) fn for_route(&self, route: Route) -> &Upstream {
        self.for_dialect(route.dialect)
    }

    /// Returns the policy of requests for that path.
    pub(super) fn policy_for(&self, path: &str) -> &Arc<Policy> {
        let named = self.policies.iter();
        named
            .filter(|(prefix, _)| path.starts_with(prefix.as_str()))
            .max_by_key(|(prefix, _)| prefix.len())
            .map_or(&self.policy, |(_, policy)| policy)
    }
}
