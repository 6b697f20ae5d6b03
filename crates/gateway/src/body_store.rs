//! Storage for request bodies: in memory while they are small or recent, else in files that nobody else can open.
//!
//! Invariants: many bodies share a file, because each file takes a descriptor, and connections need those. If no file
//! is available, the body stays in memory: a full disk stops no request. A long body is never in memory as a whole
//! while it is sent.

use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt, stream};
use outlast_engine::transport::Payload;
use outlast_store::private;
use parking_lot::Mutex;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::Semaphore;

/// Minimum size of a body for a file, in bytes.
const MIN_FILE_BYTES: usize = 4 << 10;
/// Maximum size of a body in memory, in bytes: a longer one is written to a file while it arrives, and sent from there
/// piece by piece.
const MAX_MEMORY_BYTES: usize = 1 << 20;
/// The part of a long body that is in memory while it is sent, in bytes.
const PIECE: usize = 256 << 10;
/// The size from which a file takes no more bodies, in bytes: its space is free again only when all its bodies are
/// gone.
const MAX_VOLUME_BYTES: u64 = 8 << 20;
/// Maximum number of concurrent writes. Writing is the disk's work: more would only cost threads.
const MAX_CONCURRENT_WRITES: usize = 4;

/// The body store. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct BodyStore {
    folder: Option<PathBuf>,
    write_permits: Arc<Semaphore>,
    open: Arc<Mutex<Option<OpenVolume>>>,
}

/// The file that takes the next body.
#[derive(Debug)]
struct OpenVolume {
    volume: Arc<Volume>,
    end: u64,
}

/// The body of a request.
#[derive(Debug)]
pub(super) enum Body {
    /// A body in memory.
    Memory(Bytes),
    /// A body in a file without a name.
    File(FileRange),
}

/// The range of a file that holds a body.
#[derive(Clone, Debug)]
pub(super) struct FileRange {
    volume: Arc<Volume>,
    offset: u64,
    length: usize,
}

impl BodyStore {
    /// Creates a store in the given folder, which is made private to the user; without a folder, bodies stay in memory.
    pub(super) fn new(folder: Option<PathBuf>) -> Self {
        Self {
            folder: folder.filter(|folder| private::create_folder(folder).is_ok()),
            write_permits: Arc::new(Semaphore::new(MAX_CONCURRENT_WRITES)),
            open: Arc::default(),
        }
    }

    /// Moves the body to a file if it is large enough and a file is available; else returns it in memory.
    pub(super) async fn store(&self, body: Body) -> Body {
        let (Body::Memory(bytes), Some(folder)) = (&body, &self.folder) else {
            return body;
        };
        if bytes.len() < MIN_FILE_BYTES {
            // The bytes may be a slice of a larger buffer.
            return Body::Memory(Bytes::copy_from_slice(bytes));
        }
        let (bytes, folder, open) = (bytes.clone(), folder.clone(), Arc::clone(&self.open));
        let Ok(_place) = self.write_permits.acquire().await else {
            return body;
        };
        let written = tokio::task::spawn_blocking(move || write(&folder, &open, &bytes)).await;
        match written {
            Ok(Ok(place)) => Body::File(place),
            Ok(Err(_)) | Err(_) => body,
        }
    }
}

/// Appends a body to the open file.
fn write(folder: &Path, open: &Mutex<Option<OpenVolume>>, bytes: &[u8]) -> io::Result<FileRange> {
    let mut open = open.lock();
    let is_alone = |open: &OpenVolume| Arc::strong_count(&open.volume) == 1;
    let (volume, offset) = match open.take() {
        Some(open) if is_alone(&open) => {
            open.volume.clear()?;
            (open.volume, 0)
        }
        Some(OpenVolume { volume, end }) if end < MAX_VOLUME_BYTES => (volume, end),
        Some(_) | None => (Arc::new(Volume::new(folder)?), 0),
    };
    volume.write(offset, bytes)?;
    let end = offset + bytes.len() as u64;
    let place = FileRange {
        volume: Arc::clone(&volume),
        offset,
        length: bytes.len(),
    };
    *open = Some(OpenVolume { volume, end });
    Ok(place)
}

impl Body {
    /// Returns the length of the body in bytes.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Memory(bytes) => bytes.len(),
            Self::File(place) => place.length,
        }
    }

    /// Returns the whole body.
    pub(super) async fn bytes(&self) -> io::Result<Bytes> {
        match self {
            Self::Memory(bytes) => Ok(bytes.clone()),
            Self::File(place) => place.read(0, place.length).await,
        }
    }

    /// Returns the body as a payload to be sent.
    pub(super) async fn payload(&self) -> io::Result<Payload> {
        match self {
            Self::File(place) if place.length > MAX_MEMORY_BYTES => Ok(Payload::Pieces {
                length: place.length as u64,
                pieces: place.clone().pieces().boxed(),
            }),
            _ => self.bytes().await.map(Payload::Whole),
        }
    }
}

impl FileRange {
    async fn read(&self, from: usize, length: usize) -> io::Result<Bytes> {
        let (volume, at) = (Arc::clone(&self.volume), self.offset + from as u64);
        let read = tokio::task::spawn_blocking(move || volume.read(at, length)).await;
        read.map_err(io::Error::other)?
    }

    fn pieces(self) -> impl Stream<Item = io::Result<Bytes>> {
        stream::try_unfold((self, 0), |(place, sent)| async move {
            let length = PIECE.min(place.length - sent);
            if length == 0 {
                return Ok(None);
            }
            let piece = place.read(sent, length).await?;
            Ok(Some((piece, (place, sent + length))))
        })
    }
}

/// A file without a name that stores bodies one after the other. Nothing is left of it when the process ends, however that
/// happens; its space is free again when the last reference is dropped.
#[derive(Debug)]
struct Volume(Mutex<File>);

impl Volume {
    /// Creates an empty file in the given folder, which nobody else can open.
    fn new(folder: &Path) -> io::Result<Self> {
        let path = folder.join(uuid::Uuid::now_v7().to_string());
        let mut options = private::options();
        options.read(true).write(true).create_new(true);
        let file = options.open(&path)?;
        // On systems that keep the names of open files this fails, and the folder is emptied at the next start.
        std::fs::remove_file(&path).ok();
        Ok(Self(Mutex::new(file)))
    }

    #[cfg(test)]
    fn of(file: File) -> Self {
        Self(Mutex::new(file))
    }

    /// Truncates the file, which frees its space.
    fn clear(&self) -> io::Result<()> {
        self.0.lock().set_len(0)
    }

    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let mut file = self.0.lock();
        file.seek(SeekFrom::Start(at))?;
        file.write_all(bytes)
    }

    /// Reads `length` bytes from the given offset. Fails if a full disk took only a part of them.
    fn read(&self, at: u64, length: usize) -> io::Result<Bytes> {
        let mut bytes = vec![0; length];
        let mut file = self.0.lock();
        file.seek(SeekFrom::Start(at))?;
        file.read_exact(&mut bytes)?;
        Ok(bytes.into())
    }
}

/// The part of a body that has arrived.
pub(super) struct BodyWriter<'a> {
    spool: &'a BodyStore,
    buffered: BytesMut,
    file: Option<Volume>,
    /// Number of bytes in the file.
    written: usize,
    /// Whether the body stays in memory because no file takes it.
    is_memory_only: bool,
}

impl<'a> BodyWriter<'a> {
    /// Creates a writer for a body of which nothing has arrived yet.
    pub(super) fn new(spool: &'a BodyStore) -> Self {
        Self {
            spool,
            buffered: BytesMut::new(),
            file: None,
            written: 0,
            is_memory_only: spool.folder.is_none(),
        }
    }

    /// Returns the number of bytes that have arrived.
    pub(super) fn len(&self) -> usize {
        self.written + self.buffered.len()
    }

    /// Adds a piece. Fails if bytes that are in the file cannot be read back.
    pub(super) async fn add(&mut self, piece: &[u8]) -> io::Result<()> {
        self.buffered.extend_from_slice(piece);
        if self.buffered.len() > MAX_MEMORY_BYTES && !self.is_memory_only {
            self.flush_to_file().await?;
        }
        Ok(())
    }

    /// Completes the body.
    pub(super) async fn finish(mut self) -> io::Result<Body> {
        if self.file.is_some() && !self.buffered.is_empty() {
            self.flush_to_file().await?;
        }
        Ok(match self.file {
            Some(file) => Body::File(FileRange {
                volume: Arc::new(file),
                offset: 0,
                length: self.written,
            }),
            None => Body::Memory(self.buffered.freeze()),
        })
    }

    /// Moves the bytes in memory to the file; if the disk does not take them, they stay in memory, with all earlier
    /// ones.
    async fn flush_to_file(&mut self) -> io::Result<()> {
        let (Some(folder), Ok(_place)) =
            (&self.spool.folder, self.spool.write_permits.acquire().await)
        else {
            return Ok(());
        };
        let (folder, file, written) = (folder.clone(), self.file.take(), self.written);
        let piece = self.buffered.split().freeze();
        let length = piece.len();
        let work = move || append(&folder, file, written, &piece);
        match tokio::task::spawn_blocking(work).await? {
            Ok(file) => {
                self.file = Some(file);
                self.written += length;
            }
            Err(all) => {
                self.buffered = BytesMut::from(Bytes::from(all?));
                (self.written, self.is_memory_only) = (0, true);
            }
        }
        Ok(())
    }
}

/// Appends a piece to the file, or to a new one. If no file takes it, returns all bytes that are no longer in a file, as
/// far as they could be read back.
fn append(
    folder: &Path,
    file: Option<Volume>,
    written: usize,
    piece: &[u8],
) -> Result<Volume, io::Result<Vec<u8>>> {
    let file = file.map_or_else(|| Volume::new(folder), Ok);
    let file = file.map_err(|_| Ok(piece.to_vec()))?;
    match file.write(written as u64, piece) {
        Ok(()) => Ok(file),
        Err(_) => Err(file
            .read(0, written)
            .map(|before| [&before, piece].concat())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(number: u8) -> Bytes {
        Bytes::from(vec![number; 64 << 10])
    }

    #[tokio::test]
    async fn bodies_share_files_and_read_back_unchanged() {
        let folder = tempfile::TempDir::new().unwrap();
        let spool = BodyStore::new(Some(folder.path().to_owned()));
        let mut kept = Vec::new();
        for number in 0..200 {
            kept.push(spool.store(Body::Memory(body(number))).await);
        }
        for (number, kept) in (0..200).zip(&kept) {
            assert_eq!(kept.bytes().await.unwrap(), body(number));
        }
        let volumes = kept.iter().map(|kept| match kept {
            Body::File(place) => Arc::as_ptr(&place.volume),
            Body::Memory(_) => panic!("it is in memory"),
        });
        let volumes: std::collections::HashSet<_> = volumes.collect();
        assert_eq!(volumes.len(), 2);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn file_space_is_reused_after_body_is_dropped() {
        let folder = tempfile::TempDir::new().unwrap();
        let spool = BodyStore::new(Some(folder.path().to_owned()));
        for number in 0..=255 {
            let Body::File(place) = spool.store(Body::Memory(body(number))).await else {
                panic!("it is in memory");
            };
            assert_eq!(place.offset, 0);
        }
    }

    #[tokio::test]
    async fn large_body_is_sent_in_pieces() {
        let folder = tempfile::TempDir::new().unwrap();
        let spool = BodyStore::new(Some(folder.path().to_owned()));
        let bytes: Bytes = (0..=250).cycle().take(MAX_MEMORY_BYTES + 5).collect();
        let body = spool.store(Body::Memory(bytes.clone())).await;
        let Payload::Pieces { length, pieces } = body.payload().await.unwrap() else {
            panic!("it comes as a whole");
        };
        let pieces: Vec<_> = pieces.map(Result::unwrap).collect().await;
        assert!(pieces.iter().all(|piece| piece.len() <= PIECE));
        assert_eq!(length, bytes.len() as u64);
        assert!(pieces.concat() == bytes);
    }

    #[tokio::test]
    async fn body_stays_in_memory_when_no_file_is_available() {
        let gone = BodyStore::new(Some(PathBuf::from("/dev/null/spool")));
        for spool in [gone, BodyStore::new(None)] {
            let kept = spool.store(Body::Memory(body(7))).await;
            assert_eq!(kept.bytes().await.unwrap(), body(7));
        }
    }

    // --- a body that is still arriving ---

    async fn write_pieces(spool: &BodyStore, pieces: &[&[u8]]) -> Body {
        let mut coming = BodyWriter::new(spool);
        for piece in pieces {
            coming.add(piece).await.unwrap();
        }
        coming.finish().await.unwrap()
    }

    #[tokio::test]
    async fn body_in_pieces_is_complete_in_file_or_memory() {
        let folder = tempfile::TempDir::new().unwrap();
        let (one, other) = (
            vec![1_u8; MAX_MEMORY_BYTES - 1],
            vec![2_u8; MAX_MEMORY_BYTES / 2],
        );
        let pieces = [&one[..], &other, &one, &other, b"end"];
        let spool = BodyStore::new(Some(folder.path().to_owned()));
        let body = write_pieces(&spool, &pieces).await;
        assert!(matches!(body, Body::File(_)));
        assert!(body.bytes().await.unwrap() == pieces.concat());
        // The folder disappears after the store was created.
        drop(folder);
        for spool in [spool, BodyStore::new(None)] {
            let body = write_pieces(&spool, &pieces).await;
            assert!(matches!(body, Body::Memory(_)));
            assert!(body.bytes().await.unwrap() == pieces.concat());
        }
    }

    #[test]
    fn failed_file_append_returns_all_bytes() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("body");
        // The last letter is the part of a piece that the disk took before it reported that it is full.
        std::fs::write(&path, b"beforex").unwrap();
        let full = Volume::of(File::open(&path).unwrap());
        let Err(all) = append(folder.path(), Some(full), 6, b" and after") else {
            panic!("it was written");
        };
        assert_eq!(all.unwrap(), b"before and after");
    }
}
