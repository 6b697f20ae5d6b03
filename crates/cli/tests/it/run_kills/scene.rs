//! A run in a home of its own, and every process that works on it until it has ended.

use super::proof::{Attempted, Result};
use crate::recorder::{Counted, Moment, Recorder};
use crate::support::HANG_TIMEOUT;
use assert_cmd::cargo::cargo_bin;
use outlast_pipeline::entry::Entry;
use outlast_pipeline::history::{self, RecordedEntry};
use outlast_pipeline::state::Run;
use outlast_store::Journal;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Speed of the clock: the longest wait is shorter than the shortest command.
const SCALE: &str = "400";
const PIPELINE: &str = include_str!("twelve.yaml");
const MARK: &str = include_str!("mark.sh");
/// A file system in memory: a kill has the same effect there, and nothing waits for a disk.
const FAST: &str = "/dev/shm";
/// More resumes than this mean that there is no progress.
const MAX_RESUMES: usize = 3;

/// The time at which a process is killed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kill {
    /// After this many milliseconds.
    After(u64),
    /// At this recorded call.
    At(u64, Moment),
}

/// The duration and number of calls of an undisturbed run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measured {
    pub(super) milliseconds: u64,
    pub(super) calls: u64,
}

pub(super) struct Scene {
    label: String,
    folder: Option<TempDir>,
    runtime: tokio::runtime::Runtime,
    /// The id of the run, once it is in the journal.
    run: Option<String>,
    /// Attempts that had ended in the journal at a kill, and how often their commands had begun.
    settled: BTreeMap<Attempted, usize>,
}

impl Scene {
    pub(super) fn new(label: &str) -> Self {
        let folder = match Path::new(FAST).is_dir() {
            true => TempDir::new_in(FAST),
            false => TempDir::new(),
        };
        let scene = Self {
            label: label.to_owned(),
            folder: folder.ok(),
            runtime: tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap(),
            run: None,
            settled: BTreeMap::new(),
        };
        fs::create_dir(scene.work()).unwrap();
        fs::write(scene.work().join("twelve.yaml"), PIPELINE).unwrap();
        fs::write(scene.work().join("mark.sh"), MARK).unwrap();
        scene
    }

    pub(super) fn path(&self) -> &Path {
        self.folder.as_ref().unwrap().path()
    }

    fn home(&self) -> PathBuf {
        self.path().join("home")
    }

    fn work(&self) -> PathBuf {
        self.path().join("work")
    }

    /// Fails unless the check holds, and keeps the folder for inspection.
    pub(super) fn check(&self, holds: bool, what: &str) {
        if !holds {
            let said = self.lines("said").join("\n");
            let path = self.path();
            panic!("{}: {what}\n{said}\nsee {}", self.label, path.display());
        }
    }

    pub(super) fn remove(mut self) {
        drop(self.folder.take());
    }

    // --- Running commands ---

    fn command(&self) -> Command {
        let mut command = Command::new(cargo_bin("outlast"));
        command.arg("run");
        match &self.run {
            Some(run) => command.args(["--resume", run]),
            None => command.arg("twelve.yaml"),
        };
        let mut options = File::options();
        let said = options
            .append(true)
            .create(true)
            .open(self.path().join("said"));
        let said = said.unwrap();
        command
            .current_dir(self.work())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.path())
            .env("OUTLAST_HOME", self.home())
            .env("OUTLAST_TIME_SCALE", SCALE)
            .stdin(Stdio::null())
            .stdout(said.try_clone().unwrap())
            .stderr(said);
        command
    }

    /// Waits for a process up to the limit; returns its exit code if it has ended.
    fn wait(&self, child: &mut Child, limit: Duration) -> Option<Option<i32>> {
        let begun = Instant::now();
        while begun.elapsed() < limit {
            if let Some(status) = child.try_wait().unwrap() {
                return Some(status.code());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        None
    }

    /// Runs the pipeline undisturbed and measures it.
    pub(super) fn measure(&mut self) -> Measured {
        let recorder = Recorder::new(Counted::Everything);
        let begun = Instant::now();
        let mut child = recorder.record(&mut self.command()).spawn().unwrap();
        let code = self.wait(&mut child, HANG_TIMEOUT);
        self.check(code == Some(Some(0)), &format!("it ended with {code:?}"));
        let milliseconds = u64::try_from(begun.elapsed().as_millis()).unwrap();
        self.look();
        Measured {
            milliseconds,
            calls: recorder.counted(),
        }
    }

    /// Starts or resumes the run, and kills the process; returns whether it lived long enough.
    pub(super) fn killed(&mut self, kill: Kill) -> bool {
        let recorder = Recorder::new(Counted::Everything);
        let code = match kill {
            Kill::At(at, moment) => {
                let mut command = self.command();
                let mut child = recorder.kill(&mut command, at, moment).spawn().unwrap();
                self.wait(&mut child, HANG_TIMEOUT)
            }
            Kill::After(milliseconds) => {
                let mut child = self.command().spawn().unwrap();
                let limit = Duration::from_millis(milliseconds);
                let ended = self.wait(&mut child, limit);
                ended.or_else(|| {
                    child.kill().unwrap();
                    Some(child.wait().unwrap().code())
                })
            }
        };
        // Resuming a finished run starts it again, with nothing left to do.
        self.check(
            matches!(code, Some(None | Some(0))),
            &format!("{code:?} after {kill:?}"),
        );
        self.look();
        code == Some(None)
    }

    /// Resumes the run until it has ended.
    pub(super) fn finish(&mut self) {
        for _ in 0..MAX_RESUMES {
            if self.has_ended() {
                return;
            }
            let mut child = self.command().spawn().unwrap();
            let code = self.wait(&mut child, HANG_TIMEOUT);
            if code.is_none() {
                child.kill().unwrap();
            }
            self.check(code == Some(Some(0)), &format!("it ended with {code:?}"));
            self.look();
        }
        self.check(self.has_ended(), "it does not end");
    }

    // --- Results ---

    fn journal(&self, name: &str) -> Option<Journal> {
        Journal::open_existing(&self.home().join(name)).unwrap()
    }

    /// Finds the run, and records the attempts that must not be repeated.
    fn look(&mut self) {
        let Some(runs) = self.journal("runs.db") else {
            return;
        };
        let all = self.runtime.block_on(runs.sessions()).unwrap();
        let begun: Vec<_> = all.iter().filter(|run| run.entries > 0).collect();
        self.check(begun.len() <= 1, &format!("{begun:?}"));
        self.run = begun.first().map(|run| run.id.clone());
        drop(runs);
        for (_, _, entry) in self.written().1 {
            if let Entry::AttemptEnded {
                step,
                visit,
                attempt,
                ..
            } = entry
            {
                let attempt = (step, visit, attempt);
                let begun = self.begun(&attempt);
                self.settled.entry(attempt).or_insert(begun);
            }
        }
    }

    fn has_ended(&self) -> bool {
        self.written().0.ended.is_some()
    }

    pub(super) fn written(&self) -> (Run, Vec<RecordedEntry>) {
        let (Some(run), Some(runs)) = (&self.run, self.journal("runs.db")) else {
            return (Run::default(), Vec::new());
        };
        self.runtime
            .block_on(history::read(&runs, None, run))
            .unwrap()
    }

    pub(super) fn result(&self) -> Result {
        Result::of(&self.written().0)
    }

    /// Returns the entries of the given types in a session of a step.
    pub(super) fn of_session(&self, session: &str, kinds: &'static [&'static str]) -> Vec<String> {
        let page = outlast_store::journal::Page {
            after: 0,
            limit: 1000,
            kinds: Some(kinds),
        };
        let steps = self.journal("steps.db").unwrap();
        let read = self.runtime.block_on(steps.read(session, page)).unwrap();
        read.into_iter().map(|stored| stored.entry.body).collect()
    }

    /// Returns the lines of a file that the commands or this test write.
    pub(super) fn lines(&self, name: &str) -> Vec<String> {
        let found = [self.work(), self.path().to_owned()].map(|folder| folder.join(name));
        let text = found.iter().find_map(|path| fs::read_to_string(path).ok());
        text.unwrap_or_default()
            .lines()
            .map(str::to_owned)
            .collect()
    }

    /// Returns how often the commands of an attempt have begun.
    pub(super) fn begun(&self, (step, visit, attempt): &Attempted) -> usize {
        let mark = format!("begin {step} {visit} {attempt}");
        self.lines("log")
            .iter()
            .filter(|line| **line == mark)
            .count()
    }

    /// Returns the attempts that had ended in the journal at a kill, and how often their commands had begun then.
    pub(super) const fn settled(&self) -> &BTreeMap<Attempted, usize> {
        &self.settled
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        // The folder of a failed test is kept.
        if let Some(folder) = self.folder.take() {
            drop(folder.keep());
        }
    }
}
