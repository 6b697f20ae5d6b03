//! The held requests of a gateway, in a file of its own: after a restart it knows the spending of every request.
//!
//! No caller waits for the file: changes are buffered and written in groups, by one thread, soon after. A file that is
//! damaged or gone is replaced while work continues; a failed write is retried, and reported once.
//!
//! Invariants: the file has one owner, proven by a lock that the system releases when the process dies; of several
//! changes to one row the last counts; the memory for a disk that takes nothing is bounded.
//! Not here: the meaning of a row (it is text), and the permission to resume a request (see the server).

mod file;
mod write_buffer;

use crate::Error;
use file::HoldsFile;
use outlast_kernel::Timestamp;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::oneshot;
use write_buffer::{RowContent, WriteBuffer};

/// The file, as this process owns it. On drop, buffered changes are still written, unless the process ends first.
#[derive(Debug)]
pub struct Holds {
    buffer: Arc<WriteBuffer>,
    /// Closed when the thread has ended and the file is free.
    thread_ended: oneshot::Receiver<()>,
}

/// A file that was opened or created.
#[derive(Debug)]
pub struct OpenedHolds {
    /// The holds.
    pub holds: Holds,
    /// The rows, in the order of their ends.
    pub rows: Vec<Row>,
    /// The new path of a file that could not be read, if there was one.
    pub replaced: Option<PathBuf>,
}

/// The row of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The key of the request.
    pub key: String,
    /// All other facts, as text.
    pub value: String,
    /// The time until which the row is of use.
    pub until: Timestamp,
}

/// An event of the file.
#[derive(Debug)]
pub enum HoldsEvent {
    /// It cannot be written; buffered changes are retried.
    WriteFailed(Error),
    /// It can be written again.
    WriteRecovered,
    /// It was replaced by a new one, without any rows but the buffered ones; the path is that of an old file that
    /// could not be read.
    Replaced(Option<PathBuf>),
}

/// A listener, called on the file's own thread.
pub type Listener = Box<dyn Fn(HoldsEvent) + Send>;

impl Holds {
    /// Opens the file at that path, or creates it. Blocks for as long as the disk takes.
    pub fn open(path: &Path, listener: Listener) -> Result<OpenedHolds, Error> {
        let (mut file, rows, replaced) = HoldsFile::open(path)?;
        let buffer = Arc::new(WriteBuffer::default());
        let (ends, thread_ended) = oneshot::channel();
        let of_thread = Arc::clone(&buffer);
        std::thread::Builder::new()
            .name("outlast-holds".to_owned())
            .spawn(move || {
                of_thread.run(|group| file.write(group), &*listener);
                drop((file, ends));
            })
            .map_err(Error::Thread)?;
        let holds = Self {
            buffer,
            thread_ended,
        };
        Ok(OpenedHolds {
            holds,
            rows,
            replaced,
        })
    }

    /// Writes a row, soon, in place of its key's previous one.
    pub fn put(&self, key: &str, value: String, until: Timestamp) {
        self.buffer.push(key, Some(RowContent { value, until }));
    }

    /// Removes a row, soon.
    pub fn remove(&self, key: &str) {
        self.buffer.push(key, None);
    }

    /// Removes the rows, soon, whose use ended before that time.
    pub fn prune(&self, before: Timestamp) {
        self.buffer.prune(before);
    }

    /// Writes all buffered changes at once, and returns whether they are on the disk now.
    pub fn flush(&self) -> impl Future<Output = bool> + Send + 'static {
        let settled = self.buffer.flush();
        async { settled.await.is_ok() }
    }

    /// Writes all buffered changes and releases the file.
    pub async fn close(mut self) {
        self.buffer.close();
        // It is an error by intention: the other end is dropped when there is nothing more to wait for.
        (&mut self.thread_ended).await.ok();
    }
}

impl Drop for Holds {
    fn drop(&mut self) {
        self.buffer.close();
    }
}

#[cfg(test)]
#[path = "holds_tests.rs"]
mod tests;
