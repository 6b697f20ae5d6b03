//! The configuration: `outlast.toml` of the user and of the project, the environment, flags.
//!
//! A later layer overrides an earlier one: defaults, user file, project file, environment, flags. The settings are
//! described in `table`, once.
//! Invariant: no secret is in an error, in shown settings, or in the `Debug` of anything here.

pub(crate) mod duration;
mod file;
pub(crate) mod file_locations;
#[cfg(test)]
mod gateway_tests;
mod key;
mod kind;
mod layers;
pub(crate) mod placeholder;
mod problem;
mod renamed;
pub(crate) mod schema;
mod sections;
pub(crate) mod settings;
#[cfg(test)]
mod settings_tests;
mod size;
mod table;
pub(crate) mod url;
pub(crate) mod value;

use crate::commands::trust;
use crate::platform::exit::UsageError;
use crate::print_diagnostic;
pub(crate) use key::{Key, closest_word};
pub(crate) use layers::{Layers, Origin, SourcedValue, Trust};
pub(crate) use problem::Problems;
pub(crate) use sections::accounts::{AccountSettings, KeyLocation};
pub(crate) use sections::fallback_chain::ModelEntry as ModelName;
pub(crate) use sections::gateway::{BodyStore, GatewaySettings, Upstream};
#[cfg(all(unix, feature = "mcp"))]
pub(crate) use sections::mcp_servers::McpServerSettings;
pub(crate) use sections::serve::ServeSettings;
pub(crate) use settings::{LimitSettings, Provider, Settings};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
pub(crate) use table::settings;
pub(crate) use value::{ProxyUrl, SEPARATOR, Value};

/// The largest number of settings that a warning names; further ones are counted.
const MAX_NAMED_SETTINGS: usize = 20;

/// The layers, and the files they were read from.
pub(crate) struct LoadedLayers {
    pub(crate) layers: Layers,
    pub(crate) user: Option<ConfigFile>,
    pub(crate) project: Option<ConfigFile>,
}

/// A file and its problems.
pub(crate) struct ConfigFile {
    pub(crate) file: PathBuf,
    pub(crate) problems: Problems,
}

/// Whether warnings are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Warnings {
    Print,
    /// The warnings were printed before.
    Suppress,
}

/// Loads the effective settings. Settings that a project may not set are ignored with a warning on stderr.
///
/// A flag is given by the path of its setting, such as `("retry.policy", "overnight")`.
pub(crate) fn load(flags: &[(&str, impl AsRef<str>)]) -> anyhow::Result<Settings> {
    load_in(std::env::current_dir().ok().as_deref(), flags)
}

/// Loads the effective settings in the given folder.
pub(crate) fn load_in(
    folder: Option<&Path>,
    flags: &[(&str, impl AsRef<str>)],
) -> anyhow::Result<Settings> {
    let gathered = load_layers_in(folder, flags)?;
    gathered.print_warnings();
    let layers = gathered.without_problems()?;
    Ok(Settings::from_layers(&layers)?)
}

/// Loads the settings in the given folder without warnings, for repeated calls: the first call has printed them.
pub(crate) fn load_quietly(
    folder: &Path,
    flags: &[(&str, impl AsRef<str>)],
) -> anyhow::Result<Settings> {
    let layers = load_layers_in(Some(folder), flags)?.without_problems()?;
    Ok(Settings::from_layers(&layers)?)
}

/// Loads the settings in the given folder for a server, which has defaults of its own for the policy and `after_content`.
pub(crate) fn load_for_server(
    folder: &Path,
    flags: &[(&str, impl AsRef<str>)],
) -> anyhow::Result<Settings> {
    let mut layers = load_layers_in(Some(folder), flags)?.without_problems()?;
    layers.apply_default_from("retry.policy", "serve.policy");
    layers.apply_default_from("after_content", "serve.after_content");
    Ok(Settings::from_layers(&layers)?)
}

/// Prints the notices about old names of settings in the given folder.
pub(crate) fn print_notices(folder: &Path) -> anyhow::Result<()> {
    load_layers_in(Some(folder), &[("", ""); 0])?.print_notices();
    Ok(())
}

/// Loads the settings of the two providers that a gateway knows, Anthropic and OpenAI, in that order; and returns the files
/// that they were read from.
pub(crate) fn load_for_gateway(
    flags: &[(&str, impl AsRef<str>)],
    warn: Warnings,
) -> anyhow::Result<([Settings; 2], Vec<PathBuf>)> {
    let gathered = load_layers(flags)?;
    if warn == Warnings::Print {
        gathered.print_warnings();
    }
    let project = gathered.project.as_ref().map(|source| source.file.clone());
    let files = file_locations::user_file()
        .into_iter()
        .chain(project)
        .collect();
    let layers = gathered.without_problems()?;
    let both =
        [Provider::Anthropic, Provider::OpenAi].map(|one| Settings::for_provider(&layers, one));
    let [anthropic, openai] = both;
    Ok(([anthropic?, openai?], files))
}

/// Reads all layers; their problems are part of the result.
pub(crate) fn load_layers(flags: &[(&str, impl AsRef<str>)]) -> anyhow::Result<LoadedLayers> {
    load_layers_in(std::env::current_dir().ok().as_deref(), flags)
}

fn load_layers_in(
    folder: Option<&Path>,
    flags: &[(&str, impl AsRef<str>)],
) -> anyhow::Result<LoadedLayers> {
    let mut layers = Layers::defaults();
    let mut user = None;
    if let Some(path) = file_locations::user_file().filter(|file| file_locations::exists(file)) {
        let (entries, source) = read(path);
        layers.user(&source.file, entries);
        user = Some(source);
    }
    let mut project = None;
    let mut trust = Trust::Trusted;
    if let Some(path) = folder.and_then(file_locations::project_file) {
        let (entries, source) = read(path);
        if entries
            .keys()
            .any(|key| key.setting().is_some_and(table::Setting::is_restricted))
        {
            trust = trust::trust_in(source.file.parent().unwrap_or(Path::new("/")))?;
        }
        layers.project(&source.file, entries, trust);
        project = Some(source);
    }
    layers.environment(&environment_variable);
    for (path, text) in flags {
        layers.flag(path, text.as_ref());
    }
    Ok(LoadedLayers {
        layers,
        user,
        project,
    })
}

/// Returns the file of this project, if it has one. A folder that was removed has none.
pub(crate) fn project_file() -> Option<PathBuf> {
    file_locations::project_file(&std::env::current_dir().ok()?)
}

/// Checks one file. Returns the notices about old names of settings.
pub(crate) fn check(path: &Path) -> Result<Vec<String>, Problems> {
    let entries = file::read(path)?;
    let notices = entries.values().filter_map(|entry| entry.notice(path));
    Ok(notices.collect())
}

fn read(file: PathBuf) -> (file::Entries, ConfigFile) {
    let (entries, problems) = match file::read(&file) {
        Ok(entries) => (entries, Problems::default()),
        Err(problems) => (file::Entries::new(), problems),
    };
    (entries, ConfigFile { file, problems })
}

/// Reads a variable. A web server that runs a program passes a request's `Proxy:` header on as `HTTP_PROXY`; there it is
/// ignored.
fn environment_variable(name: &str) -> Option<OsString> {
    let from_request = name == "HTTP_PROXY" && std::env::var_os("REQUEST_METHOD").is_some();
    std::env::var_os(name).filter(|_| !from_request)
}

impl LoadedLayers {
    /// Returns the layers, or an error with the problems of all of them.
    pub(crate) fn without_problems(self) -> Result<Layers, UsageError> {
        let of_files = [self.user, self.project].into_iter().flatten();
        let mut all: Vec<_> = of_files.flat_map(|source| source.problems.0).collect();
        all.extend_from_slice(&self.layers.problems);
        if all.is_empty() {
            Ok(self.layers)
        } else {
            Err(UsageError(Problems(all).to_string()))
        }
    }

    /// Checks for settings that are valid by themselves and conflict with each other.
    pub(crate) fn check_consistency(self) -> Result<(), UsageError> {
        match self.without_problems() {
            Ok(layers) => Settings::from_layers(&layers).map(drop),
            // Problems of single settings are reported elsewhere.
            Err(_) => Ok(()),
        }
    }

    /// Prints all warnings on stderr.
    fn print_warnings(&self) {
        if let Some(warning) = self.untrusted_warning() {
            print_diagnostic(&format!("warning: {warning}"));
        }
        self.print_notices();
    }

    /// Prints the notices about old names of settings on stderr.
    pub(crate) fn print_notices(&self) {
        for notice in self.notices() {
            print_diagnostic(&format!("warning: {notice}"));
        }
    }

    /// Returns the notices about old names of settings.
    pub(crate) fn notices(&self) -> &[String] {
        &self.layers.notices
    }

    /// Returns the warning about settings that are ignored because the project is not trusted.
    pub(crate) fn untrusted_warning(&self) -> Option<String> {
        let source = self
            .project
            .as_ref()
            .filter(|_| !self.layers.ignored.is_empty())?;
        let keys = self.layers.ignored.keys();
        let named: Vec<String> = keys.take(MAX_NAMED_SETTINGS).map(Key::to_string).collect();
        let more = match self.layers.ignored.len() - named.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        Some(format!(
            "ignoring {}{more} in {}: the project is not trusted; `outlast trust` changes that",
            named.join(", "),
            source.file.display()
        ))
    }
}
