//! A file that may be lost: the process goes on without it, and joins it again when it can.
//!
//! Invariants: the listener learns of each loss and of each return once; a closed connection stays closed.

use crate::Error;
use outlast_kernel::Timestamp;
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// An event of a file, for the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreEvent {
    /// The process continues without it.
    Disconnected {
        /// The reason.
        why: String,
    },
    /// It is there again.
    Connected,
    /// It was damaged; a new one was made.
    Replaced {
        /// The path of the damaged file.
        backup_path: PathBuf,
    },
}

/// The receiver of the events of a file.
pub type Listener = Arc<dyn Fn(StoreEvent) + Send + Sync>;

/// The connection to a file that may be lost.
pub struct Reconnecting<T> {
    path: Option<PathBuf>,
    retry_interval: Duration,
    listener: Listener,
    link: Mutex<Link<T>>,
}

enum Link<T> {
    /// It was not opened yet.
    Opening,
    Connected(T),
    /// It is not available, which was reported.
    Lost {
        is_damaged: bool,
        retry_at: Timestamp,
    },
    Closed,
}

impl<T: Clone> Reconnecting<T> {
    /// Creates a connection that is not open yet; without a path it never will be.
    pub fn new(path: Option<PathBuf>, retry_interval: Duration, listener: Listener) -> Self {
        let link = path.as_ref().map_or(Link::Closed, |_| Link::Opening);
        Self {
            path,
            retry_interval,
            listener,
            link: Mutex::new(link),
        }
    }

    /// Returns the file, while it is open.
    pub fn file(&self) -> Option<T> {
        match &*self.link.lock() {
            Link::Connected(file) => Some(file.clone()),
            Link::Opening | Link::Lost { .. } | Link::Closed => None,
        }
    }

    /// Tells the listener.
    pub fn announce(&self, event: StoreEvent) {
        (self.listener)(event);
    }

    /// The file failed: the process goes on without it.
    pub fn lose(&self, why: &str, is_damaged: bool, now: Timestamp) {
        let mut link = self.link.lock();
        let is_news = matches!(*link, Link::Opening | Link::Connected(_));
        if !matches!(*link, Link::Closed) {
            let retry_at = now + self.retry_interval;
            *link = Link::Lost {
                is_damaged,
                retry_at,
            };
        }
        drop(link);
        if is_news {
            let why = why.to_owned();
            self.announce(StoreEvent::Disconnected { why });
        }
    }

    /// Returns whether a lost file is to be opened again now, which the caller then does.
    pub fn is_due(&self, now: Timestamp) -> bool {
        match &mut *self.link.lock() {
            Link::Lost { retry_at, .. } if *retry_at <= now => {
                *retry_at = now + self.retry_interval;
                true
            }
            _ => false,
        }
    }

    /// Opens the file, for [`Reconnecting::connect`]. `open` is told the path, and whether the file is known to be damaged.
    pub async fn open<R: Send + 'static>(
        &self,
        open: impl FnOnce(&Path, bool) -> Result<R, Error> + Send + 'static,
        now: Timestamp,
    ) -> Option<R> {
        let path = self.path.clone()?;
        let is_damaged = match &*self.link.lock() {
            Link::Lost { is_damaged, .. } => *is_damaged,
            Link::Opening | Link::Connected(_) | Link::Closed => false,
        };
        let opening = tokio::task::spawn_blocking(move || open(&path, is_damaged));
        let why = match opening.await {
            Ok(Ok(opened)) => return Some(opened),
            Ok(Err(error)) => error.to_string(),
            Err(error) => error.to_string(),
        };
        self.lose(&why, is_damaged, now);
        None
    }

    /// Connects an open file, lets the caller adopt it, and reports its return and the path of a damaged one.
    pub fn connect(&self, file: T, replaced: Option<PathBuf>, adopt: impl FnOnce()) {
        let was_lost = {
            let mut link = self.link.lock();
            if let Link::Closed = *link {
                return;
            }
            let before = std::mem::replace(&mut *link, Link::Connected(file));
            matches!(before, Link::Lost { .. })
        };
        adopt();
        if let Some(backup_path) = replaced {
            self.announce(StoreEvent::Replaced { backup_path });
        }
        if was_lost {
            self.announce(StoreEvent::Connected);
        }
    }

    /// Closes the connection; returns the file, if it is open.
    pub fn close(&self) -> Option<T> {
        match std::mem::replace(&mut *self.link.lock(), Link::Closed) {
            Link::Connected(file) => Some(file),
            Link::Opening | Link::Lost { .. } | Link::Closed => None,
        }
    }
}
