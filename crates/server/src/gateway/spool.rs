//! Bodies of requests that wait: in memory while they are small or young, else in files that nobody else can open.
//!
//! Invariant: a file has no name any more once it is written, so that nothing is left of it when the process ends,
//! however that happens. Where no file can be had the body stays in memory: a full disk stops no request.

use bytes::{Bytes, BytesMut};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Smaller ones are not worth a file.
const SMALL: usize = 4 << 10;
/// More than this of a body goes to a file while it comes.
const YOUNG: usize = 1 << 20;
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

/// A body that is still coming: in memory while it is young, then in a file as long as one takes it.
pub(super) struct Coming<'a> {
    spool: &'a Spool,
    kept: BytesMut,
    file: Option<File>,
    /// How much of it is in the file.
    written: usize,
    /// No file takes it.
    stays: bool,
}

impl<'a> Coming<'a> {
    /// Nothing has come yet.
    pub(super) fn new(spool: &'a Spool) -> Self {
        Self {
            spool,
            kept: BytesMut::new(),
            file: None,
            written: 0,
            stays: spool.folder.is_none(),
        }
    }

    /// How much has come.
    pub(super) fn len(&self) -> usize {
        self.written + self.kept.len()
    }

    /// Another piece; an error when what is in the file cannot be had back.
    pub(super) async fn add(&mut self, piece: &[u8]) -> io::Result<()> {
        self.kept.extend_from_slice(piece);
        if self.kept.len() > YOUNG && !self.stays {
            self.write_out().await?;
        }
        Ok(())
    }

    /// All of it has come.
    pub(super) async fn end(mut self) -> io::Result<Body> {
        if self.file.is_some() && !self.kept.is_empty() {
            self.write_out().await?;
        }
        Ok(match self.file {
            Some(file) => Body::File {
                file: file.into(),
                length: self.written,
            },
            None => Body::Memory(self.kept.freeze()),
        })
    }

    /// Moves to the file what has come since; what the disk does not take stays in memory, with all that came before.
    async fn write_out(&mut self) -> io::Result<()> {
        let (Some(folder), Ok(_place)) = (&self.spool.folder, self.spool.places.acquire().await)
        else {
            return Ok(());
        };
        let (folder, file, written) = (folder.clone(), self.file.take(), self.written);
        let piece = self.kept.split().freeze();
        let length = piece.len();
        let work = move || append(&folder, (file, written), &piece);
        match tokio::task::spawn_blocking(work).await? {
            Appended::Yes(file) => {
                self.file = Some(file);
                self.written += length;
            }
            Appended::No(all) => {
                self.kept = BytesMut::from(Bytes::from(all?));
                (self.written, self.stays) = (0, true);
            }
        }
        Ok(())
    }
}

enum Appended {
    Yes(File),
    /// It takes no more; all that is not in a file any more, as far as it could be had back.
    No(io::Result<Vec<u8>>),
}

fn append(folder: &Path, (file, written): (Option<File>, usize), piece: &[u8]) -> Appended {
    let Some(mut file) = file else {
        return match write(folder, piece) {
            Ok(file) => Appended::Yes(file),
            Err(_) => Appended::No(Ok(piece.to_vec())),
        };
    };
    if file.write_all(piece).is_ok() {
        return Appended::Yes(file);
    }
    let before = read(&file, written);
    Appended::No(before.map(|before| [&before, piece].concat()))
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
    // What a full disk took only a part of does not count.
    let most = u64::try_from(length).unwrap_or(u64::MAX);
    file.take(most).read_to_end(&mut bytes)?;
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

    async fn come(spool: &Spool, pieces: &[&[u8]]) -> Body {
        let mut coming = Coming::new(spool);
        for piece in pieces {
            coming.add(piece).await.unwrap();
        }
        coming.end().await.unwrap()
    }

    #[tokio::test]
    async fn a_body_that_comes_in_pieces_is_whole_wherever_it_is_kept() {
        let folder = tempfile::TempDir::new().unwrap();
        let (one, other) = (vec![1_u8; YOUNG - 1], vec![2_u8; YOUNG / 2]);
        let pieces = [&one[..], &other, &one, &other, b"end"];
        let spool = Spool::new(Some(folder.path().to_owned()));
        let body = come(&spool, &pieces).await;
        assert!(matches!(body, Body::File { .. }));
        assert!(body.bytes().await.unwrap() == pieces.concat());
        // The folder goes away after the spool was made.
        drop(folder);
        for spool in [spool, Spool::new(None)] {
            let body = come(&spool, &pieces).await;
            assert!(matches!(body, Body::Memory(_)));
            assert!(body.bytes().await.unwrap() == pieces.concat());
        }
    }

    #[test]
    fn what_a_full_disk_does_not_take_comes_back_with_all_before_it() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("body");
        // The last letter is what it took of a piece before it said that it is full.
        std::fs::write(&path, b"beforex").unwrap();
        let full = File::open(&path).unwrap();
        let Appended::No(all) = append(folder.path(), (Some(full), 6), b" and after") else {
            panic!("it was written");
        };
        assert_eq!(all.unwrap(), b"before and after");
    }
}
