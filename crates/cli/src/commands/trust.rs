//! `outlast trust`: the folders whose `outlast.toml` may set everything.
//!
//! Kept in `trusted.json` in the home folder. Invariant: the file is replaced atomically, by one process at a time that has
//! read its predecessor's version. Trust covers one folder, not those below it: a dependency that was copied into a
//! project is not the project.

use crate::args::TrustArguments;
use crate::config::{self, Trust};
use crate::output::print;
use crate::platform::exit::{Exit, UsageError};
use crate::platform::home;
use anyhow::{Context, bail};
use outlast_kernel::text;
use outlast_store::private;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

const FILE: &str = "trusted.json";
const LOCK: &str = "trusted.lock";
const DRAFT: &str = "trusted.draft";
const MAX_FILE_BYTES: u64 = 1 << 20;
const VERSION: u32 = 1;

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Trusted {
    version: u32,
    folders: BTreeSet<PathBuf>,
}

pub(crate) fn run(arguments: TrustArguments) -> anyhow::Result<Exit> {
    if arguments.list {
        let folders = read(&home::path()?)?.folders;
        let lines: String = folders
            .iter()
            .map(|folder| format!("{}\n", folder.display()))
            .collect();
        return print(&text::plain(&lines));
    }
    let folder = match arguments.folder {
        Some(folder) => folder,
        None => default_folder()?,
    };
    let said = if arguments.remove {
        remove(&folder)?
    } else {
        add(&folder)?
    };
    print(&text::plain(&(said + "\n")))
}

/// Reports whether the file in the given folder may set everything.
pub(crate) fn trust_in(folder: &Path) -> anyhow::Result<Trust> {
    let Ok(home) = home::path() else {
        return Ok(Trust::Untrusted);
    };
    let trusted = read(&home)?;
    let is_trusted = folder
        .canonicalize()
        .is_ok_and(|folder| trusted.folders.contains(&folder));
    Ok(if is_trusted {
        Trust::Trusted
    } else {
        Trust::Untrusted
    })
}

fn default_folder() -> anyhow::Result<PathBuf> {
    match config::project_file() {
        Some(file) => Ok(file.parent().unwrap_or(Path::new("/")).to_owned()),
        None => std::env::current_dir().context("cannot tell the current folder"),
    }
}

fn add(folder: &Path) -> anyhow::Result<String> {
    let real = folder.canonicalize().map_err(|error| {
        UsageError(format!(
            "cannot trust {}: {error}; name the folder of the project",
            folder.display()
        ))
    })?;
    if !real.is_dir() {
        return Err(UsageError(format!(
            "cannot trust {}: it is not a folder; name the one that holds it",
            folder.display()
        ))
        .into());
    }
    if real.to_str().is_none() {
        return Err(UsageError(format!(
            "cannot trust {}: its name is not UTF-8",
            folder.display()
        ))
        .into());
    }
    let is_new = change(|folders| folders.insert(real.clone()))?;
    let said = if is_new {
        "is trusted now"
    } else {
        "was trusted already"
    };
    Ok(format!("{} {said}", real.display()))
}

fn remove(folder: &Path) -> anyhow::Result<String> {
    // A folder that is gone can still be taken off the list.
    let real = folder
        .canonicalize()
        .or_else(|_| std::path::absolute(folder))?;
    let was = change(|folders| folders.remove(&real))?;
    let said = if was {
        "is trusted no longer"
    } else {
        "was not trusted"
    };
    Ok(format!("{} {said}", real.display()))
}

/// Reads, changes and writes the file under a lock. Returns whether there was something to change.
fn change(edit: impl FnOnce(&mut BTreeSet<PathBuf>) -> bool) -> anyhow::Result<bool> {
    let home = home::prepare()?;
    let lock_path = home.join(LOCK);
    let lock = private::options()
        .write(true)
        .create(true)
        .open(&lock_path)
        .with_context(|| format!("cannot open {}", lock_path.display()))?;
    lock.lock()
        .with_context(|| format!("cannot lock {}", lock_path.display()))?;
    let mut trusted = read(&home)?;
    let changed = edit(&mut trusted.folders);
    if changed {
        write(&home, &trusted)
            .with_context(|| format!("cannot write {}", home.join(FILE).display()))?;
    }
    Ok(changed)
}

fn read(home: &Path) -> anyhow::Result<Trusted> {
    let path = home.join(FILE);
    let mut bytes = Vec::new();
    let read = fs::File::open(&path)
        .and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes));
    match read {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Ok(Trusted {
                version: VERSION,
                folders: BTreeSet::new(),
            });
        }
        result => result.with_context(|| format!("cannot read {}", path.display()))?,
    };
    let remedy = "remove it and trust your projects again with `outlast trust`";
    if bytes.len() as u64 > MAX_FILE_BYTES {
        bail!(
            "{} is larger than {} MiB; {remedy}",
            path.display(),
            MAX_FILE_BYTES >> 20
        );
    }
    let trusted: Trusted = serde_json::from_slice(&bytes)
        .with_context(|| format!("{} is damaged; {remedy}", path.display()))?;
    if trusted.version != VERSION {
        bail!(
            "{} was written by another version of outlast; {remedy}",
            path.display()
        );
    }
    Ok(trusted)
}

fn write(home: &Path, trusted: &Trusted) -> std::io::Result<()> {
    let draft = home.join(DRAFT);
    // A crash may have left a draft; the lock guarantees that nobody is writing it.
    fs::remove_file(&draft).or_else(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    })?;
    let mut file = private::options()
        .write(true)
        .create_new(true)
        .open(&draft)?;
    file.write_all(&serde_json::to_vec_pretty(trusted)?)?;
    file.write_all(b"\n")?;
    file.sync_all()?;
    fs::rename(&draft, home.join(FILE))
}
