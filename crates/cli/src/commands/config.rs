//! `outlast config`: checks and shows the settings, and prints their JSON Schema.

use crate::args::{ConfigCommand, SettingFlags};
use crate::config::{
    self, ConfigFile, Key, Layers, LoadedLayers, Origin, Problems, SourcedValue, Value, settings,
};
use crate::output::{print, print_json};
use crate::platform::exit::Exit;
use outlast_kernel::text;
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::path::Path;

pub(crate) fn run(command: ConfigCommand) -> anyhow::Result<Exit> {
    match command {
        ConfigCommand::Check { file: Some(file) } => check_file(&file),
        ConfigCommand::Check { file: None } => check_all(),
        ConfigCommand::Show { flags, json } => show(&flags, json),
        ConfigCommand::Schema => print_json(&config::schema::schema()),
    }
}

// --- check ---

fn check_file(file: &Path) -> anyhow::Result<Exit> {
    let name = format!("file {}", file.display());
    let (notices, problems) = match config::check(file) {
        Ok(notices) => (notices, Problems::default()),
        Err(problems) => (Vec::new(), problems),
    };
    let mut all = report(&name, &problems);
    all.add_warnings(&notices);
    all.print()
}

fn check_all() -> anyhow::Result<Exit> {
    let gathered = config::load_layers(&[("", ""); 0])?;
    let mut all = source_report("user file", gathered.user.as_ref());
    all.add(source_report("project file", gathered.project.as_ref()));
    let environment = Problems(gathered.layers.problems.clone());
    all.add(report("environment", &environment));
    all.add_warnings(gathered.untrusted_warning().as_slice());
    all.add_warnings(gathered.notices());
    // A conflict between settings belongs to no single line.
    if let Some(problem) = gathered.check_consistency().err() {
        all.lines.push(format!("error: {problem}"));
        all.exit = Exit::Failed;
    }
    all.print()
}

/// The lines of a check, and its exit code.
struct Report {
    lines: Vec<String>,
    exit: Exit,
}

fn source_report(name: &str, source: Option<&ConfigFile>) -> Report {
    match source {
        Some(source) => report(
            &format!("{name} {}", source.file.display()),
            &source.problems,
        ),
        None => Report {
            lines: vec![format!("{name}: none")],
            exit: Exit::Success,
        },
    }
}

fn report(name: &str, problems: &Problems) -> Report {
    if problems.0.is_empty() {
        return Report {
            lines: vec![format!("{name}: ok")],
            exit: Exit::Success,
        };
    }
    Report {
        lines: problems
            .lines()
            .iter()
            .map(|line| format!("error: {line}"))
            .collect(),
        exit: Exit::Failed,
    }
}

impl Report {
    fn add(&mut self, other: Self) {
        self.lines.extend(other.lines);
        if other.exit != Exit::Success {
            self.exit = other.exit;
        }
    }

    fn add_warnings(&mut self, warnings: &[String]) {
        let lines = warnings.iter().map(|warning| format!("warning: {warning}"));
        self.lines.extend(lines);
    }

    fn print(&self) -> anyhow::Result<Exit> {
        print(&text::plain(&(self.lines.join("\n") + "\n")))?;
        Ok(self.exit)
    }
}

// --- show ---

/// One line of `config show`.
struct Row<'a> {
    setting: String,
    found: Option<&'a SourcedValue>,
    ignored: bool,
}

fn show(flags: &SettingFlags, as_json: bool) -> anyhow::Result<Exit> {
    let gathered: LoadedLayers = config::load_layers(&flags.overrides())?;
    gathered.print_notices();
    let layers = gathered.without_problems()?;
    let rows = rows(&layers);
    if as_json {
        return print_json(&rows.iter().map(Row::json).collect::<Json>());
    }
    print(&text::plain(&table(&rows)))
}

/// Returns the rows in the order of the table: for each setting its values in effect, or else its pattern; then ignored ones.
fn rows(layers: &Layers) -> Vec<Row<'_>> {
    let mut rows = Vec::new();
    for setting in settings() {
        let effective = rows_of(setting.path, &layers.effective, false);
        if effective.is_empty() {
            rows.push(Row {
                setting: setting.path.to_owned(),
                found: None,
                ignored: false,
            });
        }
        rows.extend(effective);
        rows.extend(rows_of(setting.path, &layers.ignored, true));
    }
    rows
}

fn rows_of<'a>(path: &str, values: &'a BTreeMap<Key, SourcedValue>, ignored: bool) -> Vec<Row<'a>> {
    let is_its = |key: &Key| key.setting().is_some_and(|its| its.path == path);
    let own = values.iter().filter(|(key, _)| is_its(key));
    own.map(|(key, found)| Row {
        setting: key.to_string(),
        found: Some(found),
        ignored,
    })
    .collect()
}

impl Row<'_> {
    fn value(&self) -> String {
        self.found
            .map_or("-".to_owned(), |found| found.value.redacted())
    }

    fn origin(&self) -> String {
        match self.found {
            None => "not set".to_owned(),
            Some(found) if self.ignored => {
                format!("ignored, the project is not trusted: {}", found.origin)
            }
            Some(found) => found.origin.to_string(),
        }
    }

    fn json(&self) -> Json {
        json!({
            "setting": self.setting,
            "set": self.found.is_some(),
            "value": self.found.map(|found| found.value.json()),
            "hidden": matches!(self.found.map(|found| &found.value), Some(Value::Secret(_))),
            "ignored": self.ignored,
            "origin": self.found.map(|found| origin_json(&found.origin)),
        })
    }
}

fn origin_json(origin: &Origin) -> Json {
    match origin {
        Origin::Default => json!({ "layer": "default" }),
        Origin::User { file, line } => json!({ "layer": "user", "file": file, "line": line }),
        Origin::Project { file, line } => json!({ "layer": "project", "file": file, "line": line }),
        Origin::Environment(name) => json!({ "layer": "environment", "variable": name }),
        Origin::Flag(name) => json!({ "layer": "flag", "flag": name }),
    }
}

fn table(rows: &[Row<'_>]) -> String {
    let cells: Vec<[String; 3]> = rows
        .iter()
        .map(|row| [row.setting.clone(), row.value(), row.origin()])
        .collect();
    let width = |column: usize| {
        cells
            .iter()
            .map(|row| row[column].chars().count())
            .max()
            .unwrap_or(0)
    };
    let (first, second) = (width(0), width(1));
    let lines = cells
        .iter()
        .map(|[setting, value, origin]| format!("{setting:<first$}  {value:<second$}  {origin}\n"));
    lines.collect()
}
