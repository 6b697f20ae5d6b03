//! Translates between provider bytes and deltas or failures.
//!
//! Pure: no sockets, no clock. Bytes go in, [`Delta`]s and [`Failure`](outlast_kernel::failure::Failure)s come out.
//! There are three dialects, see [`Dialect`]; none is translated into another.
//! Not here: making requests (see the engine) and judging failures (see the kernel).
#![warn(missing_docs)]

pub mod anthropic;
mod completion;
mod delta;
mod dialect;
pub mod error_body;
mod lenient_json;
pub mod openai_chat;
pub mod openai_responses;
pub mod relay;
mod request;
pub mod sse;
pub mod stream_error;
#[cfg(test)]
mod test_support;
mod tool_arguments;
mod tool_call_ids;
mod usage;

pub use completion::{ApiError, ErrorForm, Interruption};
pub use delta::{Delta, StreamCursor};
pub use dialect::{Dialect, StreamActivity, StreamDecoder};
pub use request::{Delivery, Image, Message, Part, Request, Role, Tool, ToolResult};
