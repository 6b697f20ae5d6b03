//! The one folder in which Outlast keeps everything, private to the user.
//!
//! Invariant: a folder that is not ours is never changed. Ours is one that we made, that was empty, or that holds our
//! mark.

use anyhow::{Context, bail};
use std::fs;
use std::path::{Path, PathBuf};

const MARK: &str = "VERSION";
const FORMAT: &str = "1\n";

/// Makes the folder, or makes sure that the one that is there is private.
pub(crate) fn prepare() -> anyhow::Result<PathBuf> {
    let home = path()?;
    let remedy = "set OUTLAST_HOME to a folder that is yours";
    create_private(&home)
        .with_context(|| format!("cannot make the folder {}; {remedy}", home.display()))?;
    let mark = home.join(MARK);
    let ours = mark.exists()
        || is_empty(&home).with_context(|| format!("cannot read {}", home.display()))?;
    if !ours {
        bail!("the folder {} holds other things; {remedy}", home.display());
    }
    make_private(&home, 0o700)
        .with_context(|| format!("cannot make {} private; {remedy}", home.display()))?;
    if !mark.exists() {
        fs::write(&mark, FORMAT)
            .with_context(|| format!("cannot write to {}; {remedy}", home.display()))?;
        make_private(&mark, 0o600)?;
    }
    Ok(home)
}

fn path() -> anyhow::Result<PathBuf> {
    let set = |name: &str| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    if let Some(home) = set("OUTLAST_HOME") {
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

fn is_empty(folder: &Path) -> std::io::Result<bool> {
    Ok(fs::read_dir(folder)?.next().is_none())
}

#[cfg(unix)]
fn create_private(folder: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
}

#[cfg(not(unix))]
fn create_private(folder: &Path) -> std::io::Result<()> {
    fs::create_dir_all(folder)
}

#[cfg(unix)]
fn make_private(path: &Path, mode: u32) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    if fs::metadata(path)?.permissions().mode() & 0o777 == mode {
        return Ok(());
    }
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

/// On Windows the user's data folder is private already.
#[cfg(not(unix))]
fn make_private(_: &Path, _: u32) -> std::io::Result<()> {
    Ok(())
}
