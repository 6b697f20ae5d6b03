//! Artifacts: the outputs of steps, stored by content, in one file each that is named by its SHA-256.
//!
//! Invariants: a file is there completely or not at all, even after a loss of power; a read returns the written bytes
//! or an error. Many processes may write the same content at once: all put the same file there. Every call blocks while
//! the disk works.
//! Not here: which artifacts are still in use (the caller knows, see `remove_unused`).

use crate::{Error, private};
use sha2::{Digest, Sha256};
use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use uuid::Uuid;

/// The maximum size of one artifact, in bytes.
pub const MAX_BYTES: u64 = 1024 * 1024 * 1024;
/// The folder for incomplete files.
const DRAFTS: &str = "drafts";
/// The lock file: writers hold it shared, cleanup holds it exclusively.
const LOCK: &str = "lock";
const HASH_LENGTH: usize = 64;

/// A folder of artifacts.
#[derive(Clone, Debug)]
pub struct Artifacts {
    folder: PathBuf,
}

impl Artifacts {
    /// Opens the folder, or creates it; it is private to the user.
    pub fn open(folder: &Path) -> Result<Self, Error> {
        make_private_folder(folder)?;
        make_private_folder(&folder.join(DRAFTS))?;
        Ok(Self {
            folder: folder.to_owned(),
        })
    }

    /// Stores the content and returns its hash and its size in bytes.
    pub fn put(&self, bytes: &[u8]) -> Result<(String, u64), Error> {
        let size = bytes.len() as u64;
        if size > MAX_BYTES {
            return Err(too_large("what is to be kept"));
        }
        let hash = hexadecimal(&Sha256::digest(bytes));
        let _lock = self.lock(File::lock_shared)?;
        if !self.touch_if_stored(&hash, size)? {
            let mut draft = Draft::new(&self.folder)?;
            draft.write(bytes)?;
            self.store_draft(draft, &hash)?;
        }
        Ok((hash, size))
    }

    /// Returns the content with that hash.
    pub fn get(&self, hash: &str) -> Result<Vec<u8>, Error> {
        let path = self.path(hash)?;
        let mut bytes = Vec::new();
        // A damaged file may have any size.
        let read =
            open_regular(&path).and_then(|it| it.take(MAX_BYTES + 1).read_to_end(&mut bytes));
        read.map_err(|error| Error::file(&path, error))?;
        let found = hexadecimal(&Sha256::digest(&bytes));
        if found == hash {
            return Ok(bytes);
        }
        let what = format!("its content is that of {found}");
        Err(Error::Damaged { path, what })
    }

    /// Returns the path of the content with that hash, whether it exists or not.
    pub fn path(&self, hash: &str) -> Result<PathBuf, Error> {
        if !is_hash(hash) {
            let text = outlast_kernel::text::bounded(hash, 2 * HASH_LENGTH);
            return Err(Error::InvalidHash(text.into_owned()));
        }
        let (first, rest) = hash.split_at(2);
        Ok(self.folder.join(first).join(rest))
    }

    /// Removes artifacts that are not in `used` and were not stored, or stored again, within the grace period. Returns
    /// the number removed.
    ///
    /// The grace period is for callers that have stored an artifact and not recorded it yet.
    pub fn remove_unused(&self, used: &HashSet<String>, grace: Duration) -> Result<u64, Error> {
        let _lock = self.lock(File::lock)?;
        // The exclusive lock means that no writer is active: the processes that wrote these drafts have died.
        for draft in names(&self.folder.join(DRAFTS))? {
            remove(&self.folder.join(DRAFTS).join(draft))?;
        }
        let mut removed = 0;
        for first in names(&self.folder)? {
            let folder = self.folder.join(&first);
            // Files of other programs are left alone.
            if first.len() != 2 || !folder.is_dir() {
                continue;
            }
            for rest in names(&folder)? {
                let (hash, path) = (format!("{first}{rest}"), folder.join(rest));
                if is_hash(&hash) && !used.contains(&hash) && is_older(&path, grace) {
                    remove(&path)?;
                    removed += 1;
                }
            }
        }
        Ok(removed)
    }

    /// Returns whether the artifact exists with that size, and renews its time. A file of another size is to be written
    /// anew.
    fn touch_if_stored(&self, hash: &str, size: u64) -> Result<bool, Error> {
        let path = self.path(hash)?;
        let found = match fs::symlink_metadata(&path) {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(Error::file(&path, error)),
        };
        Ok(found.is_file() && found.len() == size && touch(&path).is_ok())
    }

    /// Moves a draft to its final path, where it survives a loss of power.
    fn store_draft(&self, draft: Draft, hash: &str) -> Result<(), Error> {
        let path = self.path(hash)?;
        let folder = path.parent().unwrap_or(&self.folder);
        make_private_folder(folder)?;
        draft.finish(&path)?;
        sync_folder(folder);
        sync_folder(&self.folder);
        Ok(())
    }

    /// Takes a lock that is held until it is dropped, or its process dies.
    fn lock(&self, lock: fn(&File) -> io::Result<()>) -> Result<File, Error> {
        let path = self.folder.join(LOCK);
        let mut options = private::options();
        options.read(true).append(true).create(true);
        let locked = options.open(&path).and_then(|file| {
            lock(&file)?;
            Ok(file)
        });
        locked.map_err(|error| Error::file(&path, error))
    }
}

fn too_large(what: &str) -> Error {
    Error::TooLarge {
        what: what.to_owned(),
        limit: MAX_BYTES,
    }
}

/// Opens a regular file only: reading a pipe would block, and a device might have no end.
fn open_regular(path: &Path) -> io::Result<File> {
    let is_file = |found: &fs::Metadata| match found.is_file() {
        true => Ok(()),
        false => Err(io::Error::other("it is not a regular file")),
    };
    is_file(&fs::metadata(path)?)?;
    let file = File::open(path)?;
    is_file(&file.metadata()?)?;
    Ok(file)
}

#[expect(
    clippy::disallowed_methods,
    reason = "it is compared with the times of files, which are the machine's"
)]
fn touch(path: &Path) -> io::Result<()> {
    File::open(path)?.set_modified(SystemTime::now())
}

/// Returns whether a file was written at least that long ago.
fn is_older(path: &Path, grace: Duration) -> bool {
    let written = fs::metadata(path).and_then(|found| found.modified());
    // A time in the future is no age.
    let age = written.ok().and_then(|written| written.elapsed().ok());
    age.is_some_and(|age| age >= grace)
}

fn remove(path: &Path) -> Result<(), Error> {
    fs::remove_file(path).map_err(|error| Error::file(path, error))
}

/// Returns the names in a folder; those that are not text are not ours.
fn names(folder: &Path) -> Result<Vec<String>, Error> {
    let failed = |error| Error::file(folder, error);
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        names.extend(entry.map_err(failed)?.file_name().into_string().ok());
    }
    Ok(names)
}

fn is_hash(text: &str) -> bool {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    text.len() == HASH_LENGTH && text.bytes().all(is_digit)
}

fn hexadecimal(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from_digit(u32::from(value), 16).unwrap_or('0');
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.map(digit).collect()
}

fn make_private_folder(path: &Path) -> Result<(), Error> {
    private::make_folder(path).map_err(|error| Error::file(path, error))
}

/// Syncs a folder, where the system can.
fn sync_folder(folder: &Path) {
    File::open(folder).and_then(|folder| folder.sync_all()).ok();
}

// --- Drafts ---

/// A file that nobody else knows of; dropping it removes the file unless it was finished.
struct Draft {
    path: PathBuf,
    file: File,
}

impl Draft {
    /// Creates an empty draft on the same disk as its final path.
    fn new(folder: &Path) -> Result<Self, Error> {
        let path = folder.join(DRAFTS).join(Uuid::now_v7().to_string());
        let opened = private::options().write(true).create_new(true).open(&path);
        match opened {
            Ok(file) => Ok(Self { path, file }),
            Err(error) => Err(Error::file(&path, error)),
        }
    }

    /// Appends bytes.
    fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let written = self.file.write_all(bytes);
        written.map_err(|error| Error::file(&self.path, error))
    }

    /// Moves the draft to its final path, complete, on the disk and read-only.
    fn finish(self, place: &Path) -> Result<(), Error> {
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
