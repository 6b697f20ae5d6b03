//! The subcommands: one module for each, named like the subcommand.

pub(crate) mod accounts;
pub(crate) mod compact;
pub(crate) mod config;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod explain;
pub(crate) mod gateway;
pub(crate) mod manual;
pub(crate) mod mock;
pub(crate) mod plot;
pub(crate) mod policy;
pub(crate) mod prompt;
pub(crate) mod resume;
pub(crate) mod rpc;
pub(crate) mod run;
pub(crate) mod runs;
pub(crate) mod serve;
pub(crate) mod sessions;
pub(crate) mod simulate;
pub(crate) mod trust;
