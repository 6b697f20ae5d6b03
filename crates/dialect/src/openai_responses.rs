//! The OpenAI Responses API.
//!
//! `decode` turns a provider's bytes into deltas and failures; `encode` and `encode_response` make those bytes, for
//! requests and for the scripted provider.
//! Invariant: unknown parts of an event are skipped, never fatal.

mod cursor;
mod decode;
pub mod encode;
pub(crate) mod encode_response;
mod item;
mod items;

pub(crate) use cursor::resume_path;
pub use decode::{Decoder, decode_response};

/// The path of the inference endpoint.
pub const PATH: &str = "/v1/responses";
