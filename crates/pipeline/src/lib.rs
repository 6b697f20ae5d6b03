//! Pipelines: steps that run in the order of their needs, each in a session, a command or an agent program.
//!
//! A run is a journal: each event is written before it counts, so every process can resume it where it stopped. `graph`
//! and `graph::react` decide, purely; `runner` executes. Invariants: an ended step runs again only if an edge or a loop
//! leads to it. One layer handles each failure: a step does not repeat waits that its turn has already made.

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
pub mod run_view;
pub mod runner;
pub mod state;
mod step;
mod template;
