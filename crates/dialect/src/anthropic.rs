//! The Anthropic Messages API.
//!
//! `decode` turns a provider's bytes into deltas and failures; `encode` and `encode_response` make those bytes, for
//! requests and for the scripted provider.
//! Invariant: unknown parts of a frame are skipped, never fatal.

mod decode;
pub mod encode;
pub(crate) mod encode_response;

pub use decode::{Decoder, decode_response};

/// The version of the API.
pub const VERSION: &str = "2023-06-01";
/// The path of the inference endpoint.
pub const PATH: &str = "/v1/messages";
