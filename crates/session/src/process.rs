//! Commands run for tools, hooks and pipeline steps: the running process, and the bounded buffer of its output.

#[cfg(unix)]
pub mod command;
pub mod output;
#[cfg(unix)]
pub(crate) mod text_decoder;
