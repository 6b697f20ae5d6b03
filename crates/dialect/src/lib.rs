//! Translates: provider bytes to facts and events, and back.
//!
//! Pure: no sockets, no clock. Bytes go in, [`Delta`]s and [`Failure`](outlast_kernel::failure::Failure)s come out.
//! Three dialects are spoken, see [`Dialect`]; none is translated into another.
//! Not here: making requests (see the engine) and judging failures (see the kernel).
#![warn(missing_docs)]

mod answer;
pub mod anthropic;
mod arguments;
mod delta;
mod dialect;
pub mod error_body;
mod ids;
pub mod in_band;
mod lenient;
pub mod openai_chat;
pub mod openai_responses;
pub mod relay;
mod request;
pub mod sse;
#[cfg(test)]
mod test_support;
mod usage;

pub use answer::{ErrorForm, Interruption, Problem};
pub use delta::{Delta, Place};
pub use dialect::{Dialect, Reader, Sign};
pub use request::{Delivery, Image, Message, Part, Request, Role, Tool, ToolResult};
