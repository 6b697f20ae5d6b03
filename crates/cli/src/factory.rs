//! Builds sessions, providers, tools and hooks from settings.

pub(crate) mod hooks;
pub(crate) mod image;
pub(crate) mod journal;
pub(crate) mod keys;
pub(crate) mod mcp;
pub(crate) mod options;
pub(crate) mod provider;
pub(crate) mod run_host;
pub(crate) mod run_start;
pub(crate) mod session;
pub(crate) mod session_host;
pub(crate) mod session_lookup;
pub(crate) mod shared_state;
