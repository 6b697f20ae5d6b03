//! The OpenAI Chat Completions API, as OpenAI and many others speak it.
//!
//! `read` turns a provider's bytes into deltas and failures; `write` makes those bytes, for requests and for the
//! scripted provider. Invariants: what is unknown in a chunk is skipped, never fatal; a stream without a finish reason
//! ended well only if it says `[DONE]` after content.

mod decode;
pub mod encode;
pub(crate) mod encode_response;
mod tool_calls;

pub(crate) use decode::finishes;
pub use decode::{Decoder, read_whole};

/// The path of the inference endpoint.
pub const PATH: &str = "/v1/chat/completions";
/// The data of the last frame.
pub const DONE: &str = "[DONE]";
