//! Sections of the settings with a type of their own.

pub(crate) mod accounts;
pub(crate) mod fallback_chain;
pub(crate) mod gateway;
pub(crate) mod mcp_servers;
pub(crate) mod serve;
