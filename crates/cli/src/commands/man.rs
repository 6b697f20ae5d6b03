//! `outlast man`: the manual, generated from the texts of `--help`.
//!
//! The text below the options of a command becomes sections of its page. The sections that hold for all commands are on
//! every page. Not here: the texts (see `args`).

mod sections;

use crate::args::{Arguments, ManArguments, help};
use crate::output::print;
use crate::platform::exit::{Exit, UsageError};
use anyhow::Context;
use clap::builder::Resettable;
use clap::{Command, CommandFactory};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use sections::Section;
use std::path::Path;

/// The section of the manual for commands.
const MANUAL_SECTION: &str = "1";

pub(crate) fn run(arguments: &ManArguments) -> anyhow::Result<Exit> {
    let all = pages(&command_tree(), None);
    if let Some(folder) = &arguments.out {
        return write(&all, folder);
    }
    let mut names = vec!["outlast"];
    names.extend(arguments.command.iter().map(String::as_str));
    let name = names.join("-");
    match all.iter().find(|page| page.name == name) {
        Some(page) => print(&page.text()?),
        None => Err(UsageError(format!(
            "there is no command `{}`; `outlast --help` lists all",
            names.join(" ")
        ))
        .into()),
    }
}

/// Returns all commands but `help`, which describes only the others.
fn command_tree() -> Command {
    let mut tree = Arguments::command().disable_help_subcommand(true);
    tree.build();
    tree
}

/// The page of a command, with its parent command.
struct Page {
    /// The name of the page, such as `outlast-gateway-run`.
    name: String,
    command: Command,
    parent: Option<String>,
}

fn pages(command: &Command, parent: Option<&str>) -> Vec<Page> {
    let name = match parent {
        Some(parent) => format!("{parent}-{}", command.get_name()),
        None => command.get_name().to_owned(),
    };
    let below = command.get_subcommands().filter(|one| !one.is_hide_set());
    let below: Vec<Page> = below.flat_map(|one| pages(one, Some(&name))).collect();
    let page = Page {
        command: command.clone(),
        parent: parent.map(str::to_owned),
        name,
    };
    std::iter::once(page).chain(below).collect()
}

fn write(pages: &[Page], folder: &Path) -> anyhow::Result<Exit> {
    let remedy = "name a folder that you can write to";
    std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot make the folder {}; {remedy}", folder.display()))?;
    for page in pages {
        let file = folder.join(format!("{}.{MANUAL_SECTION}", page.name));
        std::fs::write(&file, page.text()?)
            .with_context(|| format!("cannot write {}; {remedy}", file.display()))?;
    }
    Ok(Exit::Success)
}

impl Page {
    fn text(&self) -> anyhow::Result<String> {
        let below = self.command.get_after_help().map(ToString::to_string);
        let own = sections::parse(&below.unwrap_or_default());
        let mut bare = self.command.clone().after_help(Resettable::Reset);
        // Every page has a version; none says more than that of the first page.
        bare = bare.version(env!("CARGO_PKG_VERSION"));
        let manual = Man::new(bare)
            .title(self.name.to_uppercase())
            .section(MANUAL_SECTION)
            .source(concat!("outlast ", env!("CARGO_PKG_VERSION")))
            .manual("Outlast");
        let mut text = Vec::new();
        manual.render(&mut text)?;
        let mut roff = Roff::new();
        for section in self.sections(own) {
            section.render(&mut roff);
        }
        self.see_also(&mut roff);
        // The rendered text begins with lines about quotation marks that the page has already.
        let more = roff.render();
        let begin = more.find(".SH").unwrap_or_default();
        Ok(String::from_utf8(text)? + &more[begin..])
    }

    /// Returns the command's own sections and the shared ones, in the order of manuals.
    fn sections(&self, own: Vec<Section>) -> Vec<Section> {
        let shared = [help::EXIT_CODES, help::ENVIRONMENT, help::FILES];
        let mut all: Vec<Section> = shared.into_iter().flat_map(sections::parse).collect();
        let is_shared = |section: &Section| all.iter().any(|one| one.title == section.title);
        let own: Vec<Section> = own
            .into_iter()
            .filter(|section| !is_shared(section))
            .collect();
        let (examples, notes): (Vec<Section>, Vec<Section>) =
            own.into_iter().partition(Section::is_examples);
        all.splice(0..0, notes);
        all.extend(examples);
        all
    }

    fn see_also(&self, roff: &mut Roff) {
        let below = self.command.get_subcommands();
        let below = below.map(|one| format!("{}-{}", self.name, one.get_name()));
        let names: Vec<String> = self.parent.iter().cloned().chain(below).collect();
        if names.is_empty() {
            return;
        }
        roff.control("SH", ["SEE ALSO"]);
        roff.control("nh", []);
        let last = names.len() - 1;
        for (index, name) in names.iter().enumerate() {
            let comma = if index == last { "" } else { "," };
            roff.text([
                bold(name.as_str()),
                roman(format!("({MANUAL_SECTION}){comma}")),
            ]);
        }
    }
}
