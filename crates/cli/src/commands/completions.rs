//! `outlast completions`: prints a shell completion script.

use crate::args::{Arguments, CompletionsArguments};
use crate::output::print;
use crate::platform::exit::Exit;
use clap::CommandFactory;

pub(crate) fn run(arguments: &CompletionsArguments) -> anyhow::Result<Exit> {
    let mut script = Vec::new();
    let mut command = Arguments::command();
    clap_complete::generate(arguments.shell, &mut command, "outlast", &mut script);
    print(&String::from_utf8(script)?)
}
