//! Reads the lines of a text file.
//!
//! Invariants: memory is bounded for any file and line length, and only regular files are opened: a pipe or a device could
//! block for ever. Reading ends soon after it is cancelled.

use outlast_engine::CancellationToken;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

/// The lines of a file; only the beginning of each is kept.
pub(super) struct Lines<'a> {
    source: BufReader<File>,
    cancel: &'a CancellationToken,
    line: Vec<u8>,
}

impl<'a> Lines<'a> {
    /// Opens the file at its resolved path.
    pub(super) fn open(place: &Path, cancel: &'a CancellationToken) -> io::Result<Self> {
        Ok(Self {
            source: BufReader::with_capacity(64 * 1024, open_regular(place)?),
            cancel,
            line: Vec::new(),
        })
    }

    /// Reads the next line with its end, keeps at most `keep` bytes of it and returns its length.
    pub(super) fn next(&mut self, keep: usize) -> io::Result<Option<usize>> {
        self.line.clear();
        let mut length = 0;
        loop {
            if self.cancel.is_cancelled() {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let available = self.source.fill_buf()?;
            if available.is_empty() {
                return Ok((length > 0).then_some(length));
            }
            let end = memchr::memchr(b'\n', available);
            let piece = &available[..end.map_or(available.len(), |at| at + 1)];
            if memchr::memchr(0, piece).is_some() {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "is not text"));
            }
            let room = keep.saturating_sub(self.line.len()).min(piece.len());
            self.line.extend_from_slice(&piece[..room]);
            length += piece.len();
            let consumed = piece.len();
            self.source.consume(consumed);
            if end.is_some() {
                return Ok(Some(length));
            }
        }
    }

    /// Returns the kept part of the last line.
    pub(super) fn line_prefix(&self) -> &[u8] {
        &self.line
    }
}

/// Opens the file if it is a regular one, which can be read to its end.
pub(super) fn open_regular(place: &Path) -> io::Result<File> {
    // Checked before, as opening a pipe waits for its other end, and after, as the file may have been replaced by then.
    regular(&std::fs::metadata(place)?)?;
    let file = File::open(place)?;
    regular(&file.metadata()?)?;
    Ok(file)
}

fn regular(found: &std::fs::Metadata) -> io::Result<()> {
    if found.is_dir() {
        return Err(io::Error::other("is a folder, not a file"));
    }
    if !found.is_file() {
        return Err(io::Error::other("is not a regular file"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_prefix_of_long_line_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, format!("{}\nnext", "x".repeat(1_000_000))).unwrap();
        let cancel = CancellationToken::new();
        let mut lines = Lines::open(&file, &cancel).unwrap();
        assert_eq!(lines.next(70_000).unwrap(), Some(1_000_001));
        assert_eq!(lines.line_prefix().len(), 70_000);
        assert_eq!(lines.next(70_000).unwrap(), Some(4));
        assert_eq!(lines.line_prefix(), b"next");
        assert_eq!(lines.next(70_000).unwrap(), None);
    }
}
