//! The `outlast` command: reads arguments and environment, runs the subcommand, exits with its code.

pub(crate) mod args;
mod commands;
mod config;
mod factory;
mod output;
mod platform;
pub(crate) mod tui;

use output::diagnostics::print_diagnostic;
use platform::exit::Exit;
use std::process::ExitCode;

fn main() -> ExitCode {
    disable_memory_dumps();
    std::panic::set_hook(Box::new(report_panic));
    let arguments = args::Arguments::from_command_line();
    if arguments.quiet {
        output::diagnostics::set_quiet();
    }
    let exit = match run(arguments) {
        Ok(exit) => exit,
        Err(error) => {
            print_diagnostic(&format!("error: {}", platform::exit::error_chain(&error)));
            if error.is::<platform::exit::UsageError>() {
                Exit::Usage
            } else {
                Exit::Failed
            }
        }
    };
    exit.into()
}

/// Keeps other processes of this user, such as commands of a model, from reading our memory and environment, which hold
/// keys. Without effect for root, or where the system cannot do it.
fn disable_memory_dumps() {
    #[cfg(target_os = "linux")]
    nix::sys::prctl::set_dumpable(false).ok();
}

/// Reports a panic as a bug, after restoring the terminal.
fn report_panic(panic: &std::panic::PanicHookInfo<'_>) {
    // A panic in a task of a chat does not end the chat.
    if tui::is_owned_by_this_thread() {
        tui::restore_terminal();
        output::diagnostics::release_capture();
    }
    print_diagnostic(&panic_message(panic));
}

/// Formats the report of a panic. Its message may hold anything, so secrets are removed from it.
fn panic_message(panic: &std::panic::PanicHookInfo<'_>) -> String {
    let message = panic.payload_as_str().unwrap_or_default();
    let place = panic
        .location()
        .map_or(String::new(), |at| format!(" at {at}"));
    let message = outlast_kernel::text::sanitized_message(message);
    format!("error: this is a bug in outlast{place}: {message}")
}

fn run(arguments: args::Arguments) -> anyhow::Result<Exit> {
    let prompt = arguments.prompt;
    let Some(command) = arguments.command else {
        return run_without_command(prompt);
    };
    match command {
        args::Command::Demo(arguments) => commands::demo::run(&arguments),
        args::Command::Policy(command) => commands::policy::run(command),
        args::Command::Explain(arguments) => commands::explain::run(arguments),
        args::Command::Simulate(arguments) => commands::simulate::run(arguments),
        args::Command::Config(command) => commands::config::run(command),
        args::Command::Mock(arguments) => commands::mock::run(&arguments),
        args::Command::Gateway(arguments) => commands::gateway::run(*arguments),
        args::Command::Rpc(arguments) if arguments.schema => commands::rpc::schema(),
        args::Command::Rpc(arguments) => {
            commands::rpc::run(arguments.mode, &arguments.session_arguments)
        }
        args::Command::Serve(arguments) => commands::serve::run(&arguments),
        args::Command::Run(arguments) => commands::run::run(&arguments),
        args::Command::Resume(arguments) => commands::resume::run(&arguments),
        args::Command::Sessions(command) => commands::sessions::run(command),
        args::Command::Runs(arguments) => commands::runs::run(arguments),
        args::Command::Accounts(arguments) => commands::accounts::run(&arguments),
        args::Command::Doctor(arguments) => commands::doctor::run(&arguments),
        args::Command::Trust(arguments) => commands::trust::run(arguments),
        args::Command::Completions(arguments) => commands::manual::completions(&arguments),
        args::Command::Man(arguments) => commands::manual::man(&arguments),
    }
}

fn run_without_command(prompt: args::PromptArguments) -> anyhow::Result<Exit> {
    match (prompt.mode, prompt.prompt.is_some()) {
        (Some(mode), _) => commands::rpc::run(mode, &prompt.session_arguments),
        (None, true) => commands::prompt::run(&prompt),
        (None, false) => tui::run(&prompt),
    }
}
