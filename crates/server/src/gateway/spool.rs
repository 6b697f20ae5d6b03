//! Bodies of requests that wait: in memory while they are small or young, else in files that nobody else can open.
//!
//! Invariant: a file has no name any more once it is written, so that nothing is left of it when the process ends,
//! however that happens. Where no file can be had the body stays in memory: a full disk stops no request.

use bytes::Bytes;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Smaller ones are not worth a file.
const SMALL: usize = 4 << 10;
/// Writing is the disk's work: more at once would only cost threads.
const AT_ONCE: usize = 4;

/// Where bodies are put.
#[derive(Clone, Debug)]
pub(super) struct Spool {
    folder: Option<PathBuf>,
    places: Arc<Semaphore>,
}

/// The body of a request.
#[derive(Debug)]
pub(super) enum Body {
    /// In memory.
    Memory(Bytes),
    /// In a file without a name.
    File { file: Arc<File>, length: usize },
}

impl Spool {
    /// A spool in that folder, which is made private to the user; without one bodies stay in memory.
    pub(super) fn new(folder: Option<PathBuf>) -> Self {
        let folder = folder.filter(|folder| make(folder).is_ok());
        let places = Arc::new(Semaphore::new(AT_ONCE));
        Self { folder, places }
    }

    /// Writes a piece of a body that is still coming to the end of its file, which is made for the first one. `None` when
    /// that cannot be done.
    pub(super) async fn append(&self, file: Option<File>, piece: Bytes) -> Option<File> {
        let folder = self.folder.clone()?;
        let _place = self.places.acquire().await.ok()?;
        let written = tokio::task::spawn_blocking(move || match file {
            Some(mut file) => file.write_all(&piece).map(|()| file),
            None => write(&folder, &piece),
        });
        written.await.ok()?.ok()
    }

    /// The same body, in a file if it is large enough and one can be had.
    pub(super) async fn put(&self, body: Body) -> Body {
        let (Body::Memory(bytes), Some(folder)) = (&body, &self.folder) else {
            return body;
        };
        if bytes.len() < SMALL {
            // It may be a piece of something larger.
            return Body::Memory(Bytes::copy_from_slice(bytes));
        }
        let (bytes, folder) = (bytes.clone(), folder.clone());
        let Ok(_place) = self.places.acquire().await else {
            return body;
        };
        let written = tokio::task::spawn_blocking(move || write(&folder, &bytes)).await;
        match written {
            Ok(Ok(file)) => {
                let length = body.len();
                let file = Arc::new(file);
                Body::File { file, length }
            }
            Ok(Err(_)) | Err(_) => body,
        }
    }
}

impl Body {
    /// How long it is.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Memory(bytes) => bytes.len(),
            Self::File { length, .. } => *length,
        }
    }

    /// All of it.
    pub(super) async fn bytes(&self) -> io::Result<Bytes> {
        match self {
            Self::Memory(bytes) => Ok(bytes.clone()),
            Self::File { file, length } => {
                let (file, length) = (Arc::clone(file), *length);
                let read = tokio::task::spawn_blocking(move || read(&file, length)).await;
                read.map_err(io::Error::other)?
            }
        }
    }
}

fn make(folder: &Path) -> io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

fn write(folder: &Path, bytes: &[u8]) -> io::Result<File> {
    let path = folder.join(uuid::Uuid::now_v7().to_string());
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(&path)?;
    // On systems that keep the names of open files this fails, and the folder is emptied at the next start.
    std::fs::remove_file(&path).ok();
    file.write_all(bytes)?;
    Ok(file)
}

/// One reader at a time has a file: its request.
fn read(mut file: &File, length: usize) -> io::Result<Bytes> {
    let mut bytes = Vec::with_capacity(length);
    file.seek(SeekFrom::Start(0))?;
    file.read_to_end(&mut bytes)?;
    if bytes.len() == length {
        Ok(bytes.into())
    } else {
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_large_body_leaves_memory_and_comes_back_as_it_was() {
        let folder = tempfile::TempDir::new().unwrap();
        let spool = Spool::new(Some(folder.path().to_owned()));
        let bytes = Bytes::from(vec![7_u8; 64 << 10]);
        let body = spool.put(Body::Memory(bytes.clone())).await;
        assert!(matches!(body, Body::File { .. }));
        assert_eq!(body.bytes().await.unwrap(), bytes);
        assert_eq!(body.bytes().await.unwrap(), bytes);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn where_no_file_can_be_had_the_body_stays_in_memory() {
        let gone = Spool::new(Some(PathBuf::from("/dev/null/spool")));
        let bytes = Bytes::from(vec![7_u8; 64 << 10]);
        for spool in [gone, Spool::new(None)] {
            let body = spool.put(Body::Memory(bytes.clone())).await;
            assert_eq!(body.bytes().await.unwrap(), bytes);
        }
    }
}
