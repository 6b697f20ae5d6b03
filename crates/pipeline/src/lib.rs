//! Pipelines: steps that are run in order of their needs, each by a session, a command or an agent program.
//!
//! A run is a journal: what happens is written down before it counts, and every process that takes it up finds it where
//! it was. `graph` and `react` decide, purely; `runner` carries out.
//! Invariants: a step that has ended is not run again unless an edge or a loop leads to it; one failure is handled by
//! one layer: what a turn has waited for, its step does not wait for again.

mod agents;
mod contract;
pub mod definition;
pub mod entry;
mod failure;
pub mod file;
mod graph;
pub mod history;
pub mod host;
pub mod inputs;
pub mod plan;
mod process;
pub mod report;
pub mod run_store;
pub mod runner;
pub mod state;
pub mod status;
mod step;
mod template;
