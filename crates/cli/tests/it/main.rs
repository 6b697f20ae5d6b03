//! Tests the `outlast` command from outside: real processes, real files, a scaled clock.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::too_many_lines,
    reason = "a test may stop at once, and its tables are long"
)]

mod architecture;
mod command_line;
#[cfg(unix)]
mod compactions;
mod config;
mod crowd;
mod demo;
mod doctor;
mod documents;
#[cfg(unix)]
mod examples;
mod explain;
#[cfg(unix)]
mod frozen_sample;
#[cfg(unix)]
mod gateway_cli;
#[cfg(target_os = "linux")]
mod gateway_kills;
mod gateway_page;
#[cfg(target_os = "linux")]
mod hooks_door;
mod interrupts;
#[cfg(target_os = "linux")]
mod kills;
#[cfg(target_os = "linux")]
mod long_session;
#[cfg(target_os = "linux")]
mod manners;
#[cfg(target_os = "linux")]
mod mcp_door;
mod mock_server;
mod plain_chat;
mod plain_language;
mod policies;
#[cfg(target_os = "linux")]
mod power_loss;
mod providers;
#[cfg(target_os = "linux")]
mod recorder;
mod recovery;
mod recovery_cases;
mod recovery_limits;
#[cfg(unix)]
mod released_home;
#[cfg(unix)]
mod resume;
#[cfg(unix)]
mod rpc_commands;
#[cfg(unix)]
mod rpc_driver;
#[cfg(unix)]
mod rpc_golden;
#[cfg(unix)]
mod rpc_native;
#[cfg(unix)]
mod rpc_queue;
#[cfg(unix)]
mod rpc_random;
#[cfg(unix)]
mod rpc_retry;
mod rpc_sessions;
#[cfg(target_os = "linux")]
mod rpc_streams;
#[cfg(unix)]
mod run_agents;
#[cfg(unix)]
mod run_breaker;
#[cfg(unix)]
mod run_classes;
#[cfg(unix)]
mod run_driver;
#[cfg(unix)]
mod run_durable;
#[cfg(unix)]
mod run_graph;
#[cfg(unix)]
mod run_input;
#[cfg(target_os = "linux")]
mod run_kills;
#[cfg(unix)]
mod run_policies;
#[cfg(unix)]
mod run_requests;
#[cfg(unix)]
mod run_watchdog;
mod runs;
#[cfg(unix)]
mod runs_served;
#[cfg(unix)]
mod serve_crowd;
#[cfg(unix)]
mod serve_driver;
#[cfg(unix)]
mod serve_guard;
#[cfg(unix)]
mod serve_leaving;
#[cfg(unix)]
mod serve_limits;
#[cfg(unix)]
mod serve_moments;
#[cfg(unix)]
mod serve_openapi;
#[cfg(unix)]
mod serve_queue;
#[cfg(unix)]
mod serve_requests;
#[cfg(unix)]
mod serve_restarts;
#[cfg(unix)]
mod serve_runs;
#[cfg(unix)]
mod serve_sessions;
#[cfg(unix)]
mod serve_settings;
#[cfg(unix)]
mod serve_socket;
#[cfg(unix)]
mod serve_streams;
#[cfg(unix)]
mod serve_token;
#[cfg(unix)]
mod serve_transcripts;
#[cfg(unix)]
mod serve_turns;
mod sessions;
mod shared;
mod simulate;
mod support;
#[cfg(unix)]
mod ten_sessions;
#[cfg(target_os = "linux")]
mod terminal_commands;
#[cfg(target_os = "linux")]
mod terminal_driver;
#[cfg(target_os = "linux")]
mod terminal_input;
#[cfg(target_os = "linux")]
mod terminal_leaving;
#[cfg(target_os = "linux")]
mod terminal_opening;
#[cfg(target_os = "linux")]
mod terminal_plain;
#[cfg(target_os = "linux")]
mod terminal_questions;
#[cfg(target_os = "linux")]
mod terminal_resize;
#[cfg(target_os = "linux")]
mod terminal_retry;
#[cfg(target_os = "linux")]
mod terminal_text;
#[cfg(target_os = "linux")]
mod terminal_waits;
#[cfg(unix)]
mod tools_door;
mod trust;
#[cfg(target_os = "linux")]
mod unattended;
mod written;
