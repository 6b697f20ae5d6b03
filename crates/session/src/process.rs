//! Commands run for tools, hooks and pipeline steps: the process under way, and what is kept of its output.

#[cfg(unix)]
pub mod command;
pub mod output;
#[cfg(unix)]
pub(crate) mod text_decoder;
