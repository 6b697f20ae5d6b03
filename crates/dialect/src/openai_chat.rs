//! The OpenAI Chat Completions API, in the form of OpenAI and many compatible providers.
//!
//! `decode` turns a provider's bytes into deltas and failures; `encode` and `encode_response` make those bytes, for
//! requests and for the scripted provider.
//! Invariants: unknown parts of a chunk are skipped, never fatal; a stream without a finish reason ended well only if
//! it sends `[DONE]` after content.

mod decode;
pub mod encode;
pub(crate) mod encode_response;
mod tool_calls;

pub(crate) use decode::has_finish_reason;
pub use decode::{Decoder, decode_response};

/// The path of the inference endpoint.
pub const PATH: &str = "/v1/chat/completions";
/// The data of the last frame.
pub const DONE: &str = "[DONE]";
