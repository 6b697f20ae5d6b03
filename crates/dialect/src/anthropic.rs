//! The Anthropic Messages API.
//!
//! `read` turns a provider's bytes into deltas and failures; `write` makes those bytes, for requests and for the
//! scripted provider. Invariant: what is unknown in a frame is skipped, never fatal.

mod decode;
pub mod encode;
pub(crate) mod encode_response;

pub use decode::{Decoder, read_whole};

/// The version of the API that is spoken.
pub const VERSION: &str = "2023-06-01";
/// The path of the inference endpoint.
pub const PATH: &str = "/v1/messages";
