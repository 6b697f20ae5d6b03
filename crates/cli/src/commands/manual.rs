//! `outlast man` and `outlast completions`: manual pages and shell completion scripts, made from the texts of `--help`.

use crate::args::{Arguments, CompletionsArguments, ManArguments};
use crate::output::print;
use crate::platform::exit::{Exit, UsageError};
use anyhow::Context;
use clap::{Command, CommandFactory};
use clap_mangen::Man;
use std::path::Path;

pub(crate) fn completions(arguments: &CompletionsArguments) -> anyhow::Result<Exit> {
    let mut script = Vec::new();
    let mut command = Arguments::command();
    clap_complete::generate(arguments.shell, &mut command, "outlast", &mut script);
    print(&String::from_utf8(script)?)
}

pub(crate) fn man(arguments: &ManArguments) -> anyhow::Result<Exit> {
    // All commands but `help`, which describes only the others.
    let mut tree = Arguments::command().disable_help_subcommand(true);
    tree.build();
    if let Some(folder) = &arguments.out {
        let remedy = "name a folder that you can write to";
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot make the folder {}; {remedy}", folder.display()))?;
        write_pages(&tree, folder)
            .with_context(|| format!("cannot write to {}; {remedy}", folder.display()))?;
        return Ok(Exit::Success);
    }
    let names = &arguments.command;
    let command = names
        .iter()
        .try_fold(&tree, |command, name| command.find_subcommand(name));
    let Some(command) = command else {
        return Err(UsageError(format!(
            "there is no command `outlast {}`; `outlast --help` lists all",
            names.join(" ")
        ))
        .into());
    };
    let mut text = Vec::new();
    page(command).render(&mut text)?;
    print(&String::from_utf8(text)?)
}

fn write_pages(command: &Command, folder: &Path) -> std::io::Result<()> {
    page(command).generate_to(folder)?;
    let mut below = command.get_subcommands().filter(|one| !one.is_hide_set());
    below.try_for_each(|one| write_pages(one, folder))
}

fn page(command: &Command) -> Man {
    let name = command.get_display_name();
    Man::new(command.clone())
        .title(name.unwrap_or(command.get_name()).to_uppercase())
        .source(concat!("outlast ", env!("CARGO_PKG_VERSION")))
        .manual("Outlast")
}
