//! Letters from other processes to a run: an answer at a gate, a wait cut short, an end.
//!
//! One file for each, in a folder for each run; whoever runs it takes them, now or when it is resumed.
//! Invariants: a letter is there in whole or not at all; letters are taken in the order in which they were posted, each
//! at most once: an answer that came twice might approve what was not asked yet. What cannot be read is said and
//! removed, so that it does not stand in the way. Blocks for as long as the disk takes.

use crate::step::input_files::make_private;
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use uuid::Uuid;

/// How many letters may wait for one run.
const MAX_QUEUED_REQUESTS: usize = 100;
/// The longest letter, in bytes.
const MAX_REQUEST_BYTES: usize = 64 * 1024;
/// Held by whoever posts or takes.
const LOCK: &str = "lock";
/// A letter that is being written; only one is at a time.
const DRAFT: &str = "draft";

/// What a run is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum RunRequest {
    /// What a person answers at a gate.
    Answer {
        /// The step; nothing when only one asks.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        step: Option<String>,
        /// The key of the choice; nothing for the first one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        choice: Option<String>,
    },
    /// What waits is tried again now.
    RetryNow {
        /// The step; nothing for all of them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        step: Option<String>,
    },
    /// The run is to end.
    Cancel {},
}

/// What went wrong with a letter.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// That is no run.
    #[error("`{run}` is not the id of a run; list the runs to see what there is")]
    NoRun {
        /// What was given.
        run: String,
    },
    /// Nobody takes the letters of that run.
    #[error(
        "{MAX_QUEUED_REQUESTS} letters wait for run {run} already; resume it, so that they are read"
    )]
    Full {
        /// The run.
        run: String,
    },
    /// The letter is too long.
    #[error("a letter has at most {MAX_REQUEST_BYTES} bytes, and this one {length}")]
    TooLong {
        /// Its length in bytes.
        length: usize,
    },
    /// A letter that cannot be read; it was removed.
    #[error("the letter {path} could not be read and was removed: {what}")]
    Unreadable {
        /// Where it was.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// The folder could not be reached.
    #[error("cannot reach {path}: {error}")]
    File {
        /// Which file or folder.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

/// The folder of all letters.
#[derive(Clone, Debug)]
pub struct Mailbox {
    folder: PathBuf,
}

impl Mailbox {
    /// The letters in that folder, which is made, private to the user, when the first one is posted.
    pub fn new(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
        }
    }

    /// Leaves a letter for a run, whether anybody runs it now or not.
    pub fn post(&self, run: &str, letter: &RunRequest) -> Result<(), Error> {
        let folder = self.of(run)?;
        let failed = |error: io::Error| file(&folder, error);
        let text = serde_json::to_vec(letter).map_err(|error| failed(error.into()))?;
        if text.len() > MAX_REQUEST_BYTES {
            return Err(Error::TooLong { length: text.len() });
        }
        make_private(&self.folder).map_err(|error| file(&self.folder, error))?;
        let _lock = self.lock()?;
        make_private(&folder).map_err(failed)?;
        let waiting = waiting(&folder)?;
        if waiting.len() >= MAX_QUEUED_REQUESTS {
            let run = run.to_owned();
            return Err(Error::Full { run });
        }
        let number = waiting.last().map_or(1, |last| last.saturating_add(1));
        let draft = folder.join(DRAFT);
        write(&draft, &text).map_err(failed)?;
        fs::rename(&draft, folder.join(name(number))).map_err(failed)?;
        // What is said to be posted must be there after a loss of power; not every system can sync a folder.
        File::open(&folder).and_then(|it| it.sync_all()).ok();
        Ok(())
    }

    /// Takes the letters that wait for a run, in the order in which they were posted.
    pub fn take(&self, run: &str) -> Result<Vec<Result<RunRequest, Error>>, Error> {
        let folder = self.of(run)?;
        // Asked often, and nearly always in vain.
        match folder.try_exists() {
            Ok(true) => {}
            Ok(false) => return Ok(Vec::new()),
            Err(error) => return Err(file(&folder, error)),
        }
        let _lock = self.lock()?;
        let mut letters = Vec::new();
        for number in waiting(&folder)? {
            let path = folder.join(name(number));
            // Removed before anybody reads it, so that it never comes twice.
            match read(&path).and_then(|letter| remove(&path).map(|()| letter)) {
                Ok(letter) => {
                    letters.push(letter.map_err(|what| Error::Unreadable { path, what }));
                }
                // It stays where it is, as do those after it: what was taken already must not be lost over it.
                Err(error) => {
                    letters.push(Err(file(&path, error)));
                    return Ok(letters);
                }
            }
        }
        fs::remove_dir_all(&folder).ok();
        Ok(letters)
    }

    /// The folder of one run. The id of a run is a UUID, and nothing else leads anywhere.
    fn of(&self, run: &str) -> Result<PathBuf, Error> {
        match Uuid::try_parse(run) {
            Ok(id) if id.hyphenated().to_string() == run => Ok(self.folder.join(run)),
            _ => {
                let run = outlast_kernel::text::bounded(run, 64).into_owned();
                Err(Error::NoRun { run })
            }
        }
    }

    /// Held until it is dropped, or its process dies.
    fn lock(&self) -> Result<File, Error> {
        let path = self.folder.join(LOCK);
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let locked = options.open(&path).and_then(|file| {
            file.lock()?;
            Ok(file)
        });
        locked.map_err(|error| file(&path, error))
    }
}

fn file(path: &Path, error: io::Error) -> Error {
    let path = path.to_owned();
    Error::File { path, error }
}

/// So many digits that the order of names is that of numbers.
fn name(number: u64) -> String {
    format!("{number:020}.json")
}

/// The numbers of the letters that are there, in order.
fn waiting(folder: &Path) -> Result<Vec<u64>, Error> {
    let failed = |error| file(folder, error);
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
        numbers.extend(number.filter(|number| found.to_str() == Some(&name(*number))));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// A letter, or what is wrong with it; an error when that is not known because of the disk.
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
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
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
