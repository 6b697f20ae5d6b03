//! The pi RPC protocol: what it says of events and of history, and a client of it.
//!
//! Its frames keep the names and types of fields that released clients read; what is ours beside them stands under
//! `outlast`. Invariant: nothing here asks or changes a session. Not here: what becomes of commands (see `rpc`).

pub mod bash_message;
pub mod client;
pub mod history;
pub mod message;
pub mod models;
pub mod translate;
