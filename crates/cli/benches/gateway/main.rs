//! What the gateway costs, beside others and while ten thousand requests wait in it.
//!
//! `compare` fails when Outlast costs more than twice what nginx does; `hold` when waiting costs more than it may, when a request
//! is lost or when the provider is asked too fast afterwards. Both are run by `scripts/bench-gateway`, which says how.
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

/// What a process used is read where only Linux says it.
#[cfg(not(target_os = "linux"))]
fn main() {
    println!("the gateway is measured on Linux only");
}
