//! `outlast man`: the manual, generated from the texts of `--help`.
//!
//! Every command has a page; the text below its options keeps its form, and exit codes, environment and files are on
//! every page. Not here: the texts (see `args`).

use crate::args::{Arguments, ManArguments, help};
use crate::output::print;
use crate::platform::exit::{Exit, UsageError};
use anyhow::Context;
use clap::builder::Resettable;
use clap::{Command, CommandFactory};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};
use std::path::Path;

/// The section of the manual for commands.
const MANUAL_SECTION: &str = "1";

pub(crate) fn run(arguments: &ManArguments) -> anyhow::Result<Exit> {
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
    match command {
        Some(command) => print(&page(command)?),
        None => Err(UsageError(format!(
            "there is no command `outlast {}`; `outlast --help` lists all",
            names.join(" ")
        ))
        .into()),
    }
}

fn write_pages(command: &Command, folder: &Path) -> anyhow::Result<()> {
    let file = folder.join(format!("{}.{MANUAL_SECTION}", name(command)));
    std::fs::write(file, page(command)?)?;
    let below = command.get_subcommands().filter(|one| !one.is_hide_set());
    below
        .into_iter()
        .try_for_each(|one| write_pages(one, folder))
}

/// Returns the name of a command's page, such as `outlast-gateway-run`.
fn name(command: &Command) -> &str {
    command
        .get_display_name()
        .unwrap_or_else(|| command.get_name())
}

fn page(command: &Command) -> anyhow::Result<String> {
    let bare = command.clone().after_help(Resettable::Reset);
    let manual = Man::new(bare.version(env!("CARGO_PKG_VERSION")))
        .title(name(command).to_uppercase())
        .section(MANUAL_SECTION)
        .source(concat!("outlast ", env!("CARGO_PKG_VERSION")))
        .manual("Outlast");
    let mut text = Vec::new();
    manual.render(&mut text)?;
    let own = command.get_after_help().map(ToString::to_string);
    let own = own.unwrap_or_default();
    let mut roff = Roff::new();
    render_notes(&own, &mut roff);
    let shared = [help::EXIT_CODES, help::ENVIRONMENT, help::FILES];
    for section in shared.into_iter().filter(|section| !own.contains(section)) {
        render_notes(section, &mut roff);
    }
    // The rendered text begins with lines about quotation marks that the page has already.
    let notes = roff.render();
    let begin = notes.find(".SH").unwrap_or_default();
    Ok(String::from_utf8(text)? + &notes[begin..])
}

/// Renders text in its form. A line that is not indented and ends with a colon is the title of a section.
fn render_notes(text: &str, roff: &mut Roff) {
    let mut has_section = false;
    for line in text.lines() {
        let title = line.strip_suffix(':').filter(|_| !line.starts_with(' '));
        if title.is_some() || !has_section {
            has_section = true;
            let title = match title {
                Some("Exit codes") => "EXIT STATUS".to_owned(),
                title => title.unwrap_or("Notes").to_uppercase(),
            };
            roff.control("fi", []);
            roff.control("SH", [title.as_str()]);
            roff.control("nf", []);
        }
        if title.is_none() && !line.is_empty() {
            roff.text([roman(line.strip_prefix("  ").unwrap_or(line))]);
        }
    }
    roff.control("fi", []);
}
