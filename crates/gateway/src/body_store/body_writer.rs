//! A body that is still arriving: in memory while it is short, then in a file as long as one can be written.

use super::{Body, BodyStore, FileRange, MAX_MEMORY_BYTES, Volume};
use bytes::{Bytes, BytesMut};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// The part of a body that has arrived.
pub(in super::super) struct BodyWriter<'a> {
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
    pub(in super::super) fn new(spool: &'a BodyStore) -> Self {
        Self {
            spool,
            buffered: BytesMut::new(),
            file: None,
            written: 0,
            is_memory_only: spool.folder.is_none(),
        }
    }

    /// Returns the number of bytes that have arrived.
    pub(in super::super) fn len(&self) -> usize {
        self.written + self.buffered.len()
    }

    /// Adds a piece. Fails if bytes that are in the file cannot be read back.
    pub(in super::super) async fn add(&mut self, piece: &[u8]) -> io::Result<()> {
        self.buffered.extend_from_slice(piece);
        if self.buffered.len() > MAX_MEMORY_BYTES && !self.is_memory_only {
            self.flush_to_file().await?;
        }
        Ok(())
    }

    /// Completes the body.
    pub(in super::super) async fn finish(mut self) -> io::Result<Body> {
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
            AppendResult::Yes(file) => {
                self.file = Some(file);
                self.written += length;
            }
            AppendResult::No(all) => {
                self.buffered = BytesMut::from(Bytes::from(all?));
                (self.written, self.is_memory_only) = (0, true);
            }
        }
        Ok(())
    }
}

enum AppendResult {
    Yes(Volume),
    /// The file takes no more; holds all bytes that are no longer in a file, as far as they could be read back.
    No(io::Result<Vec<u8>>),
}

fn append(folder: &Path, file: Option<Volume>, written: usize, piece: &[u8]) -> AppendResult {
    let Ok(file) = file.map_or_else(|| Volume::new(folder), Ok) else {
        return AppendResult::No(Ok(piece.to_vec()));
    };
    if file.write(written as u64, piece).is_ok() {
        return AppendResult::Yes(file);
    }
    let before = file.read(0, written);
    AppendResult::No(before.map(|before| [&before, piece].concat()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    async fn come(spool: &BodyStore, pieces: &[&[u8]]) -> Body {
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
        let body = come(&spool, &pieces).await;
        assert!(matches!(body, Body::File(_)));
        assert!(body.bytes().await.unwrap() == pieces.concat());
        // The folder disappears after the store was created.
        drop(folder);
        for spool in [spool, BodyStore::new(None)] {
            let body = come(&spool, &pieces).await;
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
        let AppendResult::No(all) = append(folder.path(), Some(full), 6, b" and after") else {
            panic!("it was written");
        };
        assert_eq!(all.unwrap(), b"before and after");
    }
}
