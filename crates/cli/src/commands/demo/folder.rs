//! The temporary folder of a demo: a home, and a place to work in. It is gone when this is dropped.

use anyhow::Context;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Nobody else takes so many names.
const MAX_NAMES: u32 = 100;

/// Disables the timeouts of requests: in the fastest scene, five minutes are a few milliseconds, which a busy machine needs
/// for a response.
const NO_TIMEOUTS: &str = "[timeouts]\nheaders = 0\nfirst_event = 0\nidle = 0\n";

pub(super) struct Folder(PathBuf);

impl Folder {
    pub(super) fn make() -> anyhow::Result<Self> {
        let place = std::env::temp_dir();
        let remedy = "set TMPDIR to a folder that you can write to";
        let problem = || {
            let place = place.display();
            format!("cannot make a temporary folder in {place}; {remedy}")
        };
        let folder = Self(make_in(&place).with_context(problem)?);
        for inner in [folder.home(), folder.work()] {
            std::fs::create_dir(inner).with_context(problem)?;
        }
        std::fs::write(folder.home().join("outlast.toml"), NO_TIMEOUTS).with_context(problem)?;
        Ok(folder)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Where the children keep what Outlast keeps.
    pub(super) fn home(&self) -> PathBuf {
        self.0.join("home")
    }

    /// Where their tools work.
    pub(super) fn work(&self) -> PathBuf {
        self.0.join("work")
    }

    /// Removes it; whoever does not ask for it is not told that it failed.
    pub(super) fn remove(&self) -> std::io::Result<()> {
        match std::fs::remove_dir_all(&self.0) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        self.remove().ok();
    }
}

/// A new folder, private to the user. One that is there is somebody else's.
fn make_in(place: &Path) -> std::io::Result<PathBuf> {
    // Programs that start in it must find it from anywhere.
    let place = std::path::absolute(place)?;
    let process = std::process::id();
    let mut number = 0;
    loop {
        let path = place.join(format!("outlast-demo-{process}-{number}"));
        match create_private(&path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == ErrorKind::AlreadyExists && number < MAX_NAMES => {
                number += 1;
            }
            Err(error) => return Err(error),
        }
    }
}

#[cfg(unix)]
fn create_private(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().mode(0o700).create(path)
}

#[cfg(not(unix))]
fn create_private(path: &Path) -> std::io::Result<()> {
    std::fs::create_dir(path)
}
