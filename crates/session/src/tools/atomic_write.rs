//! Replaces a file atomically.
//!
//! Invariant: a reader sees either the old content or all of the new content. An unfinished write leaves no file behind.

use outlast_engine::CancellationToken;
use parking_lot::{Mutex, MutexGuard};
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// Maximum length of a written file, in bytes.
pub(super) const MAX_FILE_BYTES: usize = 16 * 1024 * 1024;

/// Held during a change of a file: of two concurrent changes, the second must see the result of the first.
static WRITE_LOCK: Mutex<()> = Mutex::new(());

/// Waits until no other thread of this process is changing a file.
pub(super) fn lock_writes() -> MutexGuard<'static, ()> {
    WRITE_LOCK.lock()
}

/// Writes the file at its resolved path: links have been followed.
pub(super) fn write_atomically(
    place: &Path,
    content: &[u8],
    cancel: &CancellationToken,
) -> io::Result<()> {
    if content.len() > MAX_FILE_BYTES {
        return Err(io::Error::other(format!(
            "longer than {MAX_FILE_BYTES} bytes"
        )));
    }
    let before = existing(place)?;
    let (Some(folder), Some(name)) = (place.parent(), place.file_name()) else {
        return Err(io::Error::other("is a folder, not a file"));
    };
    fs::create_dir_all(folder)?;
    let id = uuid::Uuid::now_v7().simple();
    // Shortened: with the id a long name would be too long for the file system.
    let mut beside: String = name.to_string_lossy().chars().take(40).collect();
    beside = format!(".{beside}.{id}.tmp");
    let unfinished = TempFile(folder.join(beside));
    let mut file = create(&unfinished.0, before.as_ref())?;
    file.write_all(content)?;
    file.sync_all()?;
    if cancel.is_cancelled() {
        return Err(io::ErrorKind::Interrupted.into());
    }
    fs::rename(&unfinished.0, place)?;
    // The write must survive a loss of power once it is reported; not every system can sync a folder.
    File::open(folder).and_then(|folder| folder.sync_all()).ok();
    Ok(())
}

/// Returns the metadata of the existing file, if it can be replaced.
fn existing(place: &Path) -> io::Result<Option<Metadata>> {
    let found = match fs::metadata(place) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    if found.is_dir() {
        return Err(io::Error::other("is a folder, not a file"));
    }
    if !found.is_file() {
        return Err(io::Error::other("is not a regular file"));
    }
    if found.permissions().readonly() {
        return Err(io::Error::other("is read-only"));
    }
    Ok(Some(found))
}

/// Creates a file that grants no access beyond that of the existing one, not even while it is written.
fn create(path: &Path, before: Option<&Metadata>) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    if before.is_some() {
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    }
    let file = options.open(path)?;
    if let Some(before) = before {
        keep_owner(&file, before);
        file.set_permissions(before.permissions())?;
    }
    Ok(file)
}

#[cfg(unix)]
fn keep_owner(file: &File, before: &Metadata) {
    use std::os::unix::fs::{MetadataExt, fchown};
    // Only the superuser can give files away; for all other users the new file is their own.
    fchown(file, Some(before.uid()), Some(before.gid())).ok();
}

#[cfg(not(unix))]
fn keep_owner(_file: &File, _before: &Metadata) {}

/// A temporary file, removed on drop unless it was renamed.
struct TempFile(PathBuf);

impl Drop for TempFile {
    fn drop(&mut self) {
        fs::remove_file(&self.0).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cancelled_atomic_write_leaves_file_unchanged() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "old").unwrap();
        let cancel = CancellationToken::new();
        cancel.cancel();
        let error = write_atomically(&file, b"new", &cancel).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Interrupted);
        assert_eq!(fs::read_to_string(&file).unwrap(), "old");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
