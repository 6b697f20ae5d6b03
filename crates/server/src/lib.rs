//! Serves: a session to programs, over the protocols that they speak.
#![warn(missing_docs)]

pub mod gateway;
pub mod guard;
pub mod host;
pub mod lines;
pub mod native;
pub mod outbox;
pub mod pi_rpc;
pub mod rpc;
pub mod schema;
pub mod voice;
