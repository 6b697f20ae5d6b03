//! The typed settings of `outlast serve`.

use crate::config::layers::Layers;
use crate::config::sections::gateway::{count, texts};
use crate::config::value::Value;
use std::net::{Ipv4Addr, SocketAddr};

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
        Self {
            listen: match layers.value("serve.listen") {
                Some(Value::Address(address)) => *address,
                _ => SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            },
            require_token: matches!(layers.value("serve.require_token"), Some(Value::Flag(true))),
            host_names: texts(layers, "serve.allowed_hosts"),
            origins: texts(layers, "serve.origins"),
            max_body: match layers.value("serve.max_body") {
                Some(Value::Size(bytes)) => *bytes,
                _ => u64::MAX,
            },
            max_connections: count(layers, "serve.max_connections").unwrap_or(u32::MAX),
            max_requests_per_second: count(layers, "serve.max_requests_per_second")
                .unwrap_or(u32::MAX),
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
