//! Drafts: content that is being written, before it has its final path.
//!
//! Invariant: an unfinished draft leaves no file behind, unless its process dies.

use super::DRAFTS;
use crate::Error;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use uuid::Uuid;

/// A file that nobody else knows of; dropping it removes the file unless it was finished.
pub(super) struct Draft {
    path: PathBuf,
    file: File,
}

impl Draft {
    /// Creates an empty draft on the same disk as its final path.
    pub(super) fn new(folder: &Path) -> Result<Self, Error> {
        let path = folder.join(DRAFTS).join(Uuid::now_v7().to_string());
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        match options.open(&path) {
            Ok(file) => Ok(Self { path, file }),
            Err(error) => Err(Error::file(&path, error)),
        }
    }

    /// Appends bytes.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let written = self.file.write_all(bytes);
        written.map_err(|error| Error::file(&self.path, error))
    }

    /// Moves the draft to its final path, complete, on the disk and read-only.
    pub(super) fn finish(self, place: &Path) -> Result<(), Error> {
        #[cfg(unix)]
        self.make_read_only()?;
        let synced = self.file.sync_all();
        synced.map_err(|error| Error::file(&self.path, error))?;
        fs::rename(&self.path, place).map_err(|error| Error::file(place, error))
    }

    #[cfg(unix)]
    fn make_read_only(&self) -> Result<(), Error> {
        use std::os::unix::fs::PermissionsExt;
        let closed = self.file.set_permissions(fs::Permissions::from_mode(0o400));
        closed.map_err(|error| Error::file(&self.path, error))
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // A finished draft is gone from here already.
        fs::remove_file(&self.path).ok();
    }
}
