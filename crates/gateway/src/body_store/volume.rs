//! A file that stores bodies one after the other.
//!
//! Invariant: the open file has no name, so that nothing is left of it when the process ends, however that happens.

use bytes::Bytes;
use parking_lot::Mutex;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

/// A file without a name. Its space is free again when the last reference is dropped.
#[derive(Debug)]
pub(super) struct Volume(Mutex<File>);

impl Volume {
    /// Creates an empty file in the given folder, which nobody else can open.
    pub(super) fn new(folder: &Path) -> io::Result<Self> {
        let path = folder.join(uuid::Uuid::now_v7().to_string());
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(&path)?;
        // On systems that keep the names of open files this fails, and the folder is emptied at the next start.
        std::fs::remove_file(&path).ok();
        Ok(Self(Mutex::new(file)))
    }

    #[cfg(test)]
    pub(super) fn of(file: File) -> Self {
        Self(Mutex::new(file))
    }

    /// Truncates the file, which frees its space.
    pub(super) fn clear(&self) -> io::Result<()> {
        self.0.lock().set_len(0)
    }

    pub(super) fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let mut file = self.0.lock();
        file.seek(SeekFrom::Start(at))?;
        file.write_all(bytes)
    }

    /// Reads `length` bytes from the given offset. Fails if a full disk took only a part of them.
    pub(super) fn read(&self, at: u64, length: usize) -> io::Result<Bytes> {
        let mut bytes = vec![0; length];
        let mut file = self.0.lock();
        file.seek(SeekFrom::Start(at))?;
        file.read_exact(&mut bytes)?;
        Ok(bytes.into())
    }
}
