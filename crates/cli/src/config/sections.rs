//! Sections of the settings with a type of their own.

pub(crate) mod accounts;
pub(crate) mod fallback_chain;
pub(crate) mod gateway;
pub(crate) mod hooks;
pub(crate) mod mcp_servers;
pub(crate) mod recovery;
pub(crate) mod serve;
