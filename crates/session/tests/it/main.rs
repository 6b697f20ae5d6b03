//! The session crate from outside: sessions on a paused clock, tools with real files and real processes.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    clippy::too_many_lines,
    reason = "a test may stop at once, and its tables are long"
)]

mod compaction;
mod conversation;
mod cut_answers;
#[cfg(target_os = "linux")]
mod hooks;
mod notes;
mod pieces;
mod queue_prefixes;
mod remedy_prefixes;
mod routes;
mod session_after_all;
mod session_again;
mod session_compaction;
mod session_copy;
mod session_cuts;
mod session_fallback;
mod session_fallback_cooldown;
mod session_fallback_outage;
mod session_fallback_retries;
mod session_fallback_shared;
mod session_flow;
mod session_invalid_completion;
mod session_invalid_completion_limits;
mod session_limits;
mod session_loops;
mod session_overflow;
mod session_owners;
mod session_partial;
mod session_partial_limits;
mod session_prefixes;
mod session_queue;
mod session_resume;
mod session_retry;
mod session_steering;
#[cfg(target_os = "linux")]
mod shell;
mod support;
mod tools;
// These tests look for processes in /proc.
#[cfg(target_os = "linux")]
mod tools_bash;
#[cfg(unix)]
mod tools_files;
mod tools_grep;
#[cfg(all(target_os = "linux", feature = "mcp"))]
mod tools_mcp;
