//! The waits of a gateway, in a file of its own: whoever starts it again finds what every request had spent.
//!
//! Nobody waits for the file: changes are handed in and carried out in groups, by one thread, soon after. A file that is
//! damaged or gone is replaced while work goes on; one that cannot be written is tried again, and said once.
//!
//! Invariants: the file has one owner, proven by a lock that the system gives back when the process dies; of changes to one
//! row the last counts; what is kept for a disk that takes nothing is bounded.
//! Not here: what a row means (it is text), and who may take up what (see the server).

mod file;
mod write_buffer;

use crate::Error;
use file::HoldsFile;
use outlast_kernel::Timestamp;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::oneshot;
use write_buffer::{RowContent, WriteBuffer};

/// The file, as this process owns it. When this is dropped what was handed in is still written, unless the process ends
/// first.
#[derive(Debug)]
pub struct Holds {
    desk: Arc<WriteBuffer>,
    /// Closed when the thread has ended and the file is free.
    ended: oneshot::Receiver<()>,
}

/// A file that was opened, or made.
#[derive(Debug)]
pub struct OpenedHolds {
    /// It.
    pub holds: Holds,
    /// What is in it, in the order of their ends.
    pub rows: Vec<Row>,
    /// Where a file that could not be read was put, if one was there.
    pub replaced: Option<PathBuf>,
}

/// What is kept of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// What it is known by.
    pub key: String,
    /// All that is known of it.
    pub value: String,
    /// Until when it is of use.
    pub until: Timestamp,
}

/// What happened to the file meanwhile.
#[derive(Debug)]
pub enum HoldsEvent {
    /// It cannot be written; what was handed in is tried again.
    Failing(Error),
    /// It is written again.
    Again,
    /// There is a new one, with none of the rows that were not just handed in; what could not be read is kept there.
    Replaced(Option<PathBuf>),
}

/// Who is told, on the file's own thread.
pub type Listener = Box<dyn Fn(HoldsEvent) + Send>;

impl Holds {
    /// Opens the file at that path, or makes it. Blocks for as long as the disk takes.
    pub fn open(path: &Path, listener: Listener) -> Result<OpenedHolds, Error> {
        let (mut file, rows, replaced) = HoldsFile::open(path)?;
        let desk = Arc::new(WriteBuffer::default());
        let (ends, ended) = oneshot::channel();
        let of_thread = Arc::clone(&desk);
        std::thread::Builder::new()
            .name("outlast-holds".to_owned())
            .spawn(move || {
                of_thread.serve(|group| file.write(group), &*listener);
                drop((file, ends));
            })
            .map_err(Error::Thread)?;
        let holds = Self { desk, ended };
        Ok(OpenedHolds {
            holds,
            rows,
            replaced,
        })
    }

    /// Has a row written, soon, in the place of what its key had before.
    pub fn put(&self, key: &str, value: String, until: Timestamp) {
        self.desk.hand_in(key, Some(RowContent { value, until }));
    }

    /// Has a row removed, soon.
    pub fn remove(&self, key: &str) {
        self.desk.hand_in(key, None);
    }

    /// Has the rows removed, soon, that were of use until before then.
    pub fn prune(&self, before: Timestamp) {
        self.desk.prune(before);
    }

    /// Has everything written at once that was handed in so far; whether it is on the disk now.
    pub fn settle(&self) -> impl Future<Output = bool> + Send + 'static {
        let settled = self.desk.settle();
        async { settled.await.is_ok() }
    }

    /// Writes everything that was handed in and lets go of the file.
    pub async fn close(mut self) {
        self.desk.close();
        // It is an error by intention: the other end is dropped when there is nothing more to wait for.
        (&mut self.ended).await.ok();
    }
}

impl Drop for Holds {
    fn drop(&mut self) {
        self.desk.close();
    }
}

#[cfg(test)]
#[path = "holds_tests.rs"]
mod tests;
