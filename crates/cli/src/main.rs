//! The `outlast` command: reads arguments and environment, assembles the crates, answers with an exit code.

mod accounts_command;
mod approval;
mod assemble;
mod cli;
mod compact_command;
mod completions_command;
mod config;
mod config_command;
mod deliver;
mod demo_command;
mod doctor;
mod exit;
mod explain;
mod follow;
mod gateway_command;
mod home;
mod hooks;
mod image;
mod interrupt;
mod journal;
mod keys;
mod knowledge;
mod known;
mod man_command;
mod mock_command;
mod notice;
mod options;
mod output;
mod policy_command;
mod policy_plot;
mod progress;
mod prompt;
mod reach;
mod resume_command;
mod rpc_command;
mod run_command;
mod run_host;
mod run_start;
mod run_view;
mod runs_command;
mod runtime;
mod screen;
mod serve_command;
mod servers;
mod session_host;
mod sessions_command;
mod settings;
mod simulate_command;
mod simulate_plot;
mod terminal;
mod trust;
mod working;

use exit::Exit;
use notice::complain;
use std::process::ExitCode;

fn main() -> ExitCode {
    disable_memory_dumps();
    std::panic::set_hook(Box::new(report_panic));
    let arguments = cli::Arguments::typed();
    if arguments.quiet {
        notice::set_quiet();
    }
    let exit = match run(arguments) {
        Ok(exit) => exit,
        Err(error) => {
            complain(&format!("error: {}", exit::reason(&error)));
            if error.is::<exit::UsageError>() {
                Exit::Usage
            } else {
                Exit::Failed
            }
        }
    };
    exit.into()
}

/// Other processes of this user, such as commands of a model, may not read our memory and environment: keys are there.
/// Where it cannot be done, or for root, they can.
fn disable_memory_dumps() {
    #[cfg(target_os = "linux")]
    nix::sys::prctl::set_dumpable(false).ok();
}

/// Tells of a bug of ours, on a terminal that can be read.
fn report_panic(panic: &std::panic::PanicHookInfo<'_>) {
    // What goes wrong in tasks of a chat does not end it.
    if terminal::is_owned_by_this_thread() {
        terminal::give_back();
        notice::give_back();
    }
    complain(&bug(panic));
}

/// What is said of a bug of ours. Its message may hold anything, so it passes through what keeps secrets in.
fn bug(panic: &std::panic::PanicHookInfo<'_>) -> String {
    let message = panic.payload_as_str().unwrap_or_default();
    let place = panic
        .location()
        .map_or(String::new(), |at| format!(" at {at}"));
    let message = outlast_kernel::text::message(message);
    format!("error: this is a bug in outlast{place}: {message}")
}

fn run(arguments: cli::Arguments) -> anyhow::Result<Exit> {
    let prompt = arguments.prompt;
    let Some(command) = arguments.command else {
        return run_without_command(prompt);
    };
    match command {
        cli::Command::Demo(arguments) => demo_command::run(&arguments),
        cli::Command::Policy(command) => policy_command::run(command),
        cli::Command::Explain(arguments) => explain::run(arguments),
        cli::Command::Simulate(arguments) => simulate_command::run(arguments),
        cli::Command::Config(command) => config_command::run(command),
        cli::Command::Mock(arguments) => mock_command::run(&arguments),
        cli::Command::Gateway(arguments) => gateway_command::run(*arguments),
        cli::Command::Rpc(arguments) if arguments.schema => rpc_command::schema(),
        cli::Command::Rpc(arguments) => rpc_command::run(arguments.mode, &arguments.choice),
        cli::Command::Serve(arguments) => serve_command::run(&arguments),
        cli::Command::Run(arguments) => run_command::run(&arguments),
        cli::Command::Resume(arguments) => resume_command::run(&arguments),
        cli::Command::Sessions(command) => sessions_command::run(command),
        cli::Command::Runs(arguments) => runs_command::run(arguments),
        cli::Command::Accounts(arguments) => accounts_command::run(&arguments),
        cli::Command::Doctor(arguments) => doctor::run(&arguments),
        cli::Command::Trust(arguments) => trust::run(arguments),
        cli::Command::Completions(arguments) => completions_command::run(&arguments),
        cli::Command::Man(arguments) => man_command::run(&arguments),
    }
}

fn run_without_command(prompt: cli::PromptArguments) -> anyhow::Result<Exit> {
    match (prompt.mode, prompt.prompt.is_some()) {
        (Some(mode), _) => rpc_command::run(mode, &prompt.choice),
        (None, true) => prompt::run(&prompt),
        (None, false) => terminal::run(&prompt),
    }
}
