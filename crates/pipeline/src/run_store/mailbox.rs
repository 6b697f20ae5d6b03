//! The mailbox of a run: requests from other processes to answer a gate, retry now or cancel.
//!
//! Each request is a file in the folder of its run; the process that executes the run takes it, now or after a resume.
//! Invariants: a request is complete or absent; requests are taken in order of posting, at most once (a repeated answer
//! might approve a later question). An unreadable request is reported and removed, so that it blocks no other. Blocks
//! on disk I/O.

use outlast_store::private;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use uuid::Uuid;

/// Maximum number of queued requests for a run.
const MAX_QUEUED_REQUESTS: usize = 100;
/// Maximum length of a request in bytes.
const MAX_REQUEST_BYTES: usize = 64 * 1024;
/// Name of the lock file, locked while posting or taking.
const LOCK: &str = "lock";
/// Name of the file of the request that is being written; there is only one at a time.
const DRAFT: &str = "draft";

/// A request to a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum RunRequest {
    /// Answers a gate.
    Answer {
        /// The step; `None` if only one gate is open.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        step: Option<String>,
        /// The key of the choice; `None` for the first one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        choice: Option<String>,
    },
    /// Retries waiting steps now.
    RetryNow {
        /// The step; `None` for all of them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        step: Option<String>,
    },
    /// Ends the run.
    Cancel {},
}

/// The error of posting or taking requests.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The id is not the id of a run.
    #[error("`{run}` is not the id of a run; list the runs to see what there is")]
    InvalidRunId {
        /// The given id.
        run: String,
    },
    /// The queue is full: no process takes the requests of the run.
    #[error(
        "{MAX_QUEUED_REQUESTS} letters wait for run {run} already; resume it, so that they are read"
    )]
    Full {
        /// The run.
        run: String,
    },
    /// The request is too long.
    #[error("a letter has at most {MAX_REQUEST_BYTES} bytes, and this one {length}")]
    TooLong {
        /// Its length in bytes.
        length: usize,
    },
    /// The request could not be read; it was removed.
    #[error("the letter {path} could not be read and was removed: {what}")]
    Unreadable {
        /// The path of its file.
        path: PathBuf,
        /// The reason.
        what: String,
    },
    /// The folder could not be accessed.
    #[error("cannot reach {path}: {error}")]
    File {
        /// The file or folder.
        path: PathBuf,
        /// The I/O error.
        error: io::Error,
    },
}

/// The folder of all queued requests.
#[derive(Clone, Debug)]
pub struct Mailbox {
    folder: PathBuf,
}

impl Mailbox {
    /// Creates a mailbox for the folder; the first post creates it, private to the user.
    pub fn new(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
        }
    }

    /// Posts a request to a run, whether or not a process is executing it.
    pub fn post(&self, run: &str, letter: &RunRequest) -> Result<(), Error> {
        let folder = self.run_folder(run)?;
        let failed = |error: io::Error| file_error(&folder, error);
        let text = serde_json::to_vec(letter).map_err(|error| failed(error.into()))?;
        if text.len() > MAX_REQUEST_BYTES {
            return Err(Error::TooLong { length: text.len() });
        }
        private::make_folder(&self.folder).map_err(|error| file_error(&self.folder, error))?;
        let _lock = self.lock()?;
        private::make_folder(&folder).map_err(failed)?;
        let waiting = queued_numbers(&folder)?;
        if waiting.len() >= MAX_QUEUED_REQUESTS {
            let run = run.to_owned();
            return Err(Error::Full { run });
        }
        let number = waiting.last().map_or(1, |last| last.saturating_add(1));
        let draft = folder.join(DRAFT);
        write(&draft, &text).map_err(failed)?;
        fs::rename(&draft, folder.join(file_name(number))).map_err(failed)?;
        // A posted request must survive a power loss; not every system can sync a folder.
        File::open(&folder).and_then(|it| it.sync_all()).ok();
        Ok(())
    }

    /// Takes the queued requests of a run, in the order in which they were posted.
    pub fn take(&self, run: &str) -> Result<Vec<Result<RunRequest, Error>>, Error> {
        let folder = self.run_folder(run)?;
        // This is polled often, and nearly always there is nothing.
        match folder.try_exists() {
            Ok(true) => {}
            Ok(false) => return Ok(Vec::new()),
            Err(error) => return Err(file_error(&folder, error)),
        }
        let _lock = self.lock()?;
        let mut letters = Vec::new();
        for number in queued_numbers(&folder)? {
            let path = folder.join(file_name(number));
            // Removed before it is handed on, so that no request is taken twice.
            match read(&path).and_then(|letter| remove(&path).map(|()| letter)) {
                Ok(letter) => {
                    letters.push(letter.map_err(|what| Error::Unreadable { path, what }));
                }
                // The request and all later ones stay in the queue, so that the requests taken so far are not lost.
                Err(error) => {
                    letters.push(Err(file_error(&path, error)));
                    return Ok(letters);
                }
            }
        }
        fs::remove_dir_all(&folder).ok();
        Ok(letters)
    }

    /// Returns the folder of a run. The id of a run is a UUID; any other text is refused.
    fn run_folder(&self, run: &str) -> Result<PathBuf, Error> {
        match Uuid::try_parse(run) {
            Ok(id) if id.hyphenated().to_string() == run => Ok(self.folder.join(run)),
            _ => {
                let run = outlast_kernel::text::bounded(run, 64).into_owned();
                Err(Error::InvalidRunId { run })
            }
        }
    }

    /// Locks the mailbox until the file is dropped or the process dies.
    fn lock(&self) -> Result<File, Error> {
        let path = self.folder.join(LOCK);
        let mut options = private::options();
        options.read(true).append(true).create(true);
        let locked = options.open(&path).and_then(|file| {
            file.lock()?;
            Ok(file)
        });
        locked.map_err(|error| file_error(&path, error))
    }
}

fn file_error(path: &Path, error: io::Error) -> Error {
    let path = path.to_owned();
    Error::File { path, error }
}

/// Returns a file name with enough digits that names sort like numbers.
fn file_name(number: u64) -> String {
    format!("{number:020}.json")
}

/// Returns the numbers of the queued requests, in order.
fn queued_numbers(folder: &Path) -> Result<Vec<u64>, Error> {
    let failed = |error| file_error(folder, error);
    let mut numbers = Vec::new();
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(numbers),
        Err(error) => return Err(failed(error)),
    };
    for entry in entries {
        let found = entry.map_err(failed)?.file_name();
        let digits = found.to_str().and_then(|name| name.strip_suffix(".json"));
        let number = digits.and_then(|digits| digits.parse().ok());
        numbers.extend(number.filter(|number| found.to_str() == Some(&file_name(*number))));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// Reads a request; the inner error states why it is invalid, the outer one is a disk error.
fn read(path: &Path) -> io::Result<Result<RunRequest, String>> {
    if !fs::symlink_metadata(path)?.is_file() {
        return Ok(Err("it is not a regular file".to_owned()));
    }
    let mut text = Vec::new();
    let limit = MAX_REQUEST_BYTES as u64 + 1;
    let read = File::open(path).and_then(|file| file.take(limit).read_to_end(&mut text));
    match read {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            return Ok(Err(error.to_string()));
        }
        read => read?,
    };
    if text.len() > MAX_REQUEST_BYTES {
        return Ok(Err(format!("it has more than {MAX_REQUEST_BYTES} bytes")));
    }
    Ok(serde_json::from_slice(&text).map_err(|error| error.to_string()))
}

fn write(path: &Path, text: &[u8]) -> io::Result<()> {
    let mut options = private::options();
    options.write(true).create(true).truncate(true);
    let mut file = options.open(path)?;
    file.write_all(text)?;
    file.sync_all()
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path)?.is_dir() {
        true => fs::remove_dir_all(path),
        false => fs::remove_file(path),
    }
}

#[cfg(test)]
#[path = "mailbox_tests.rs"]
mod tests;
