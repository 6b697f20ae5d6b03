//! Works: everything that is longer than a turn.
#![warn(missing_docs)]

pub mod compaction;
pub mod hooks;
pub mod pipeline;
pub mod session;
pub mod tools;
pub mod transcript;

pub use session::Session;
