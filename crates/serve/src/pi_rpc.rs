//! The pi RPC protocol: its frames for events and history, and a client.
//!
//! The frames keep the field names and types that released clients read; our own fields are under `outlast`. Invariant:
//! nothing here calls or changes a session. Not here: carrying out commands (see `rpc`).

pub mod bash_message;
pub mod client;
pub mod history;
pub mod message;
pub mod models;
pub mod translate;
