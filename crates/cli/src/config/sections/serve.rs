//! The settings of `outlast serve`: their rows of the table, and their types.
//!
//! All rows are restricted: no project says who may use the user's sessions.

use crate::config::layers::Layers;
use crate::config::table::{AFTER_CONTENT, Kind, Setting, setting};
use outlast_kernel::policy::Policy;
use std::net::{Ipv4Addr, SocketAddr};

pub(in crate::config) const SERVE: &[Setting] = &[
    setting("serve.listen", Kind::Address, "Address on which `outlast serve` listens.")
        .default("127.0.0.1:4190")
        .flag("--listen"),
    setting(
        "serve.policy",
        Kind::Choice(&Policy::NAMES),
        "Retry policy of the server's sessions, if retry.policy is not set.",
    )
    .default("overnight"),
    setting(
        "serve.after_content",
        Kind::Choice(&AFTER_CONTENT),
        "Treatment of a response that breaks off in a session of the server, if after_content is not set.",
    )
    .default("fail"),
    setting(
        "serve.require_token",
        Kind::Flag,
        "Requires the token on this machine, too. It is always required from other machines, and if serve.allowed_hosts or serve.origins is set.",
    )
    .default("false"),
    setting(
        "serve.allowed_hosts",
        Kind::List(&Kind::Name),
        "Host names that requests may address, in addition to addresses and localhost.",
    ),
    setting(
        "serve.origins",
        Kind::List(&Kind::Name),
        "Origins of other web pages that may send requests, such as \"https://app.example.com\"; none by default.",
    ),
    setting("serve.max_body", Kind::Size, "Maximum size of a request body.")
        .default("32MiB"),
    setting("serve.max_connections", Kind::COUNT, "Maximum number of concurrent connections.")
        .default("4096"),
    setting(
        "serve.max_requests_per_second",
        Kind::COUNT,
        "Maximum number of requests per second from one address, averaged over five seconds.",
    )
    .default("1000"),
];

/// The settings of a server.
#[derive(Clone, Debug)]
pub(crate) struct ServeSettings {
    pub(crate) listen: SocketAddr,
    pub(crate) require_token: bool,
    /// Additional host names under which the server responds.
    pub(crate) host_names: Vec<String>,
    /// Origins of web pages that may send requests.
    pub(crate) origins: Vec<String>,
    pub(crate) max_body: u64,
    pub(crate) max_connections: u32,
    pub(crate) max_requests_per_second: u32,
}

impl ServeSettings {
    pub(in crate::config) fn from_layers(layers: &Layers) -> Self {
        let own = layers.table("serve");
        Self {
            listen: own
                .get("listen")
                .unwrap_or(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))),
            require_token: own.value("require_token"),
            host_names: own.value("allowed_hosts"),
            origins: own.value("origins"),
            max_body: own.value("max_body"),
            max_connections: own.value("max_connections"),
            max_requests_per_second: own.value("max_requests_per_second"),
        }
    }

    /// Reports whether others than this user's programs may reach the server: from other machines, through a proxy, or from
    /// pages elsewhere.
    pub(crate) fn requires_token(&self) -> bool {
        let is_open = !self.host_names.is_empty() || !self.origins.is_empty();
        self.require_token || is_open || !self.is_local()
    }

    /// Reports whether only this machine can reach the server.
    pub(crate) fn is_local(&self) -> bool {
        self.listen.ip().is_loopback()
    }
}
