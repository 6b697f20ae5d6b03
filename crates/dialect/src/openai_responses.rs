//! The OpenAI Responses API.
//!
//! `read` turns a provider's bytes into deltas and failures; `write` makes those bytes, for requests and for the
//! scripted provider. Invariant: what is unknown in an event is skipped, never fatal.

pub mod ask;
mod item;
mod items;
mod place;
mod read;
pub(crate) mod write;

pub(crate) use place::resume_path;
pub use read::{Stream, read_whole};

/// The path of the inference endpoint.
pub const PATH: &str = "/v1/responses";
