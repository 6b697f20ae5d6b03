//! The home folder of Outlast: the one folder for all of its files, private to the user.
//!
//! Invariant: a folder that is not ours is never changed. Ours is a folder that we made, that was empty (but for the user's
//! settings), or that holds our marker file.

use crate::platform::exit::UsageError;
use anyhow::{Context, bail};
use outlast_store::private;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The name of the user's settings file.
pub(crate) const SETTINGS_FILE: &str = "outlast.toml";
const MARKER_FILE: &str = "VERSION";
const MARKER_CONTENT: &str = "1\n";

/// Creates the folder, or makes an existing one of ours private.
pub(crate) fn prepare() -> anyhow::Result<PathBuf> {
    let home = path()?;
    let remedy = "set OUTLAST_HOME to a folder that is yours";
    private::create_folder(&home)
        .with_context(|| format!("cannot make the folder {}; {remedy}", home.display()))?;
    let mark = home.join(MARKER_FILE);
    let empty = is_empty(&home).with_context(|| format!("cannot read {}", home.display()))?;
    // In this order: another process may be writing its marker just now.
    if !empty && !mark.exists() {
        bail!("the folder {} holds other things; {remedy}", home.display());
    }
    private::make_folder(&home)
        .with_context(|| format!("cannot make {} private; {remedy}", home.display()))?;
    if empty {
        write_marker(&mark)
            .with_context(|| format!("cannot write to {}; {remedy}", home.display()))?;
    }
    Ok(home)
}

/// Writes the marker atomically, so that no process reads half of one.
fn write_marker(mark: &Path) -> std::io::Result<()> {
    let draft = mark.with_extension(std::process::id().to_string());
    let mut options = private::options();
    options.write(true).create(true).truncate(true);
    options.open(&draft)?.write_all(MARKER_CONTENT.as_bytes())?;
    fs::rename(&draft, mark)
}

/// Returns the path of the folder, whether or not it exists.
pub(crate) fn path() -> anyhow::Result<PathBuf> {
    let set = |name: &str| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    if let Some(home) = set("OUTLAST_HOME") {
        // A relative path would be another folder in each directory, and a project could bring its own.
        if home.is_relative() {
            let found = home.display();
            let problem = format!(
                "OUTLAST_HOME is an absolute path, such as /home/me/.outlast; it is `{found}`"
            );
            return Err(UsageError(problem).into());
        }
        return Ok(home);
    }
    let user = || std::env::home_dir().context("there is no home folder; set OUTLAST_HOME");
    let data = if cfg!(target_os = "macos") {
        user()?.join("Library/Application Support")
    } else if cfg!(windows) {
        set("LOCALAPPDATA").context("LOCALAPPDATA is not set; set OUTLAST_HOME")?
    } else {
        match set("XDG_DATA_HOME").filter(|path| path.is_absolute()) {
            Some(data) => data,
            None => user()?.join(".local/share"),
        }
    };
    Ok(data.join("outlast"))
}

/// Reports whether the folder holds only files that may precede our marker: the user's settings, and marker drafts.
fn is_empty(folder: &Path) -> std::io::Result<bool> {
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        if name != SETTINGS_FILE && !is_marker_draft(&name.to_string_lossy()) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Reports whether the file is a marker draft: another process is writing it just now, or died doing so.
fn is_marker_draft(name: &str) -> bool {
    let number = name
        .strip_prefix(MARKER_FILE)
        .and_then(|rest| rest.strip_prefix('.'));
    number.is_some_and(|number| number.parse::<u32>().is_ok())
}
