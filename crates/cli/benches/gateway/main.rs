//! The cost of the gateway, compared with others and while it holds ten thousand requests.
//!
//! `partial` fails when a promise about partial failure is broken; `scripts/bench-partial` runs it.
//!
//! `compare` fails when Outlast costs more than twice what nginx does; `hold` when holding costs more than the limit, a
//! request is lost or the provider is called too fast afterwards. `scripts/bench-gateway` runs both and explains how.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it is a benchmark"
)]

#[cfg(target_os = "linux")]
mod answers;
#[cfg(target_os = "linux")]
mod clients;
#[cfg(target_os = "linux")]
mod command;
#[cfg(target_os = "linux")]
mod compare;
#[cfg(target_os = "linux")]
mod hold;
#[cfg(target_os = "linux")]
mod load;
#[cfg(target_os = "linux")]
mod outage;
#[cfg(target_os = "linux")]
mod partial;
#[cfg(target_os = "linux")]
mod process;
#[cfg(target_os = "linux")]
mod report;
#[cfg(target_os = "linux")]
mod systems;
#[cfg(target_os = "linux")]
mod table;
#[cfg(target_os = "linux")]
mod upstream;
#[cfg(target_os = "linux")]
mod wire;

#[cfg(target_os = "linux")]
fn main() -> std::process::ExitCode {
    match command::run() {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            std::process::ExitCode::FAILURE
        }
    }
}

/// The resource usage of a process is read from Linux's `/proc`.
#[cfg(not(target_os = "linux"))]
fn main() {
    println!("the gateway is measured on Linux only");
}
