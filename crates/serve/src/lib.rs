//! Serves sessions, pipeline runs and gateways to other programs, over RPC, HTTP and WebSocket.
#![warn(missing_docs)]

pub mod event_encoder;
pub mod http;
pub mod lines;
pub mod live_sessions;
pub mod native;
pub mod outbox;
pub mod pi_rpc;
pub mod replay;
pub mod rpc;
pub mod runs;
pub mod schema;
pub mod turn_stream;
