//! Commands run for tools, hooks and pipeline steps: the process under way, and what is kept of its output.

pub mod output;
#[cfg(unix)]
pub(crate) mod printed;
#[cfg(unix)]
pub mod running;
