//! Runs the command with its writes recorded, and kills it at any of them.
//!
//! The recorder is a library that is preloaded before libc (`tests/crash/recorder.c`), compiled once for each run of
//! the tests. `disk` computes the files that a crash would have left.

pub(crate) mod disk;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use tempfile::TempDir;

/// The folder for one recording.
pub(crate) struct Recorder {
    folder: TempDir,
    counted: Counted,
}

/// The calls that are counted.
#[derive(Clone, Copy)]
pub(crate) enum Counted {
    /// Every recorded call.
    Everything,
    /// Calls that change or sync a file whose name ends in one of these, joined by commas.
    Changes(&'static str),
    /// Calls that sync a file whose name ends in one of these, joined by commas.
    Syncs(&'static str),
}

/// Whether the process is killed before or after the call takes effect.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Moment {
    Before,
    After,
}

/// One recorded call that changed something.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Record {
    /// The path relative to the home; empty for stdout.
    pub(crate) path: PathBuf,
    pub(crate) call: Call,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Call {
    Create,
    Write {
        offset: usize,
        data: Vec<u8>,
    },
    Truncate {
        length: usize,
    },
    /// A sync of a file or a folder.
    Sync,
    Remove,
    Rename {
        to: PathBuf,
    },
    /// A write to stdout.
    Output {
        data: Vec<u8>,
    },
}

impl Recorder {
    pub(crate) fn new(counted: Counted) -> Self {
        let folder = TempDir::new().unwrap();
        Self { folder, counted }
    }

    /// Sets up the command to be recorded, appending to the earlier records.
    pub(crate) fn record<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command
            .env("LD_PRELOAD", library())
            .env("RECORDER_LOG", self.log_file())
            .env("RECORDER_COUNT_FILE", self.count_file());
        match self.counted {
            Counted::Everything => command.env("RECORDER_COUNT", "all"),
            Counted::Changes(files) => command
                .env("RECORDER_COUNT", "files")
                .env("RECORDER_FILES", files),
            Counted::Syncs(files) => command.env("RECORDER_FILES", files),
        }
    }

    /// Sets up the command to be recorded and killed at the given counted call, the first being 1.
    pub(crate) fn kill<'a>(
        &self,
        command: &'a mut Command,
        at: u64,
        moment: Moment,
    ) -> &'a mut Command {
        let moment = match moment {
            Moment::Before => "before",
            Moment::After => "after",
        };
        self.record(command)
            .env("RECORDER_KILL", format!("{at},{moment}"))
    }

    /// Returns how many calls of the last command were counted.
    pub(crate) fn counted(&self) -> u64 {
        let text = fs::read_to_string(self.count_file()).unwrap();
        // The count file does not exist before the first counted call.
        text.trim().parse().unwrap_or(0)
    }

    /// Returns the recorded calls, in order.
    pub(crate) fn log(&self) -> Vec<Record> {
        let bytes = fs::read(self.log_file()).unwrap_or_default();
        let mut rest = bytes.as_slice();
        std::iter::from_fn(|| record(&mut rest)).collect()
    }

    fn log_file(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    fn count_file(&self) -> PathBuf {
        self.folder.path().join("count")
    }
}

/// Parses the next record: four numbers, the path, the data.
fn record(rest: &mut &[u8]) -> Option<Record> {
    let kind = number(rest)?;
    let (path_length, offset, length) = (number(rest)?, number(rest)?, number(rest)?);
    let path = name(rest.split_off(..path_length)?);
    let data = rest.split_off(..length)?;
    let call = match u8::try_from(kind).unwrap() {
        b'c' => Call::Create,
        b'w' => Call::Write {
            offset,
            data: data.to_vec(),
        },
        b't' => Call::Truncate { length: offset },
        b's' => Call::Sync,
        b'u' => Call::Remove,
        b'r' => Call::Rename { to: name(data) },
        b'o' => Call::Output {
            data: data.to_vec(),
        },
        kind => panic!("there is no kind {kind}"),
    };
    Some(Record { path, call })
}

fn number(rest: &mut &[u8]) -> Option<usize> {
    let bytes = rest.split_off(..8)?.try_into().unwrap();
    Some(usize::try_from(u64::from_ne_bytes(bytes)).unwrap())
}

fn name(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}

/// Returns the path of the compiled recorder.
fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let library = folder.join("recorder.so");
        let made = folder.join(format!("recorder-{}.so", std::process::id()));
        compile("recorder.c", &["-shared", "-fPIC"], &made);
        // Another run of the tests may have the old file open.
        fs::rename(made, &library).unwrap();
        library
    })
}

/// Compiles a file of `tests/crash`.
fn compile(source: &str, options: &[&str], made: &Path) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/crash");
    let compiled = Command::new("cc")
        .args(["-O1", "-Wall", "-Wextra", "-Werror"])
        .args(options)
        .arg("-o")
        .args([made, &folder.join(source)])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&compiled.stderr);
    assert!(compiled.status.success(), "{said}");
}

mod tests {
    use super::disk::{self, Disk};
    use super::*;
    use crate::mock_server::MockServer;
    use crate::support::CommandResult;

    /// The code that `CommandResult` has for a process that a signal ended.
    const KILLED: i32 = -1;

    /// Creates a prompt in that home that fails once, so that the store is written.
    fn prompt(mock: &MockServer, home: &Path) -> Command {
        mock.control("DELETE", "/_outlast/script", "");
        let mut command = mock.command("openai", &["--model", "overloaded:1"]);
        command.env("OUTLAST_HOME", home);
        command
    }

    fn replayed(mut disk: Disk, log: &[Record]) -> Disk {
        log.iter().for_each(|record| disk.apply(record));
        disk
    }

    #[test]
    fn recording_replays_to_final_files_and_stdout() {
        let (mock, home) = (MockServer::start(), TempDir::new().unwrap());
        // The second prompt reads the state that the first one left.
        for round in ["first", "second"] {
            let before = Disk::of(&disk::read(home.path()));
            let recorder = Recorder::new(Counted::Everything);
            let ran = CommandResult::of(recorder.record(&mut prompt(&mock, home.path())));
            assert_eq!(ran.code, 0, "{}", ran.stderr);
            let log = recorder.log();
            assert_eq!(recorder.counted(), log.len() as u64, "{round}");
            let said = log.iter().filter_map(|record| match &record.call {
                Call::Output { data } => Some(data.as_slice()),
                _ => None,
            });
            let said = said.collect::<Vec<_>>().concat();
            assert_eq!(String::from_utf8(said).unwrap(), ran.stdout, "{round}");
            let (expected, found) = (replayed(before, &log).files(), disk::read(home.path()));
            assert!(found.contains_key(Path::new("outlast.db")), "{round}");
            assert!(found == expected, "{round}: {log:?}");
        }
    }

    #[test]
    fn command_is_killed_before_or_after_chosen_call() {
        let mock = MockServer::start();
        let recorder = Recorder::new(Counted::Everything);
        let home = TempDir::new().unwrap();
        let ran = CommandResult::of(recorder.record(&mut prompt(&mock, home.path())));
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        let count = recorder.counted();
        // The last calls are made while the process ends, and differ between runs.
        for at in [1, 2, count / 3, count / 2] {
            for moment in [Moment::Before, Moment::After] {
                let (recorder, home) =
                    (Recorder::new(Counted::Everything), TempDir::new().unwrap());
                let mut command = prompt(&mock, home.path());
                let ran = CommandResult::of(recorder.kill(&mut command, at, moment));
                assert_eq!(ran.code, KILLED, "{at} {moment:?}: {}", ran.stderr);
                assert_eq!(recorder.counted(), at, "{moment:?}");
                let log = recorder.log();
                let done = at - u64::from(moment == Moment::Before);
                assert_eq!(log.len() as u64, done, "{at} {moment:?}");
                let expected = replayed(Disk::default(), &log).files();
                assert!(
                    disk::read(home.path()) == expected,
                    "{at} {moment:?}: {log:?}"
                );
            }
        }
    }

    #[test]
    fn chosen_syncs_are_counted_and_prompt_survives_power_loss() {
        let (mock, home) = (MockServer::start(), TempDir::new().unwrap());
        let recorder = Recorder::new(Counted::Syncs("outlast.db-wal,outlast.db"));
        let ran = CommandResult::of(recorder.record(&mut prompt(&mock, home.path())));
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        let log = recorder.log();
        let is_sync = |record: &&Record| {
            let names = ["outlast.db-wal", "outlast.db"];
            record.call == Call::Sync && names.iter().any(|name| record.path == Path::new(name))
        };
        assert_eq!(
            recorder.counted(),
            log.iter().filter(is_sync).count() as u64
        );
        assert_ne!(recorder.counted(), 0);

        // The next prompt must cope with any state of the home.
        let middle = replayed(Disk::default(), &log[..log.len() / 2]);
        for unsynced in [0, middle.unsynced() / 2, usize::MAX] {
            let home = TempDir::new().unwrap();
            disk::write(&middle.survivors(unsynced), home.path());
            let ran = CommandResult::of(&mut prompt(&mock, home.path()));
            assert_eq!(ran.code, 0, "{unsynced}: {}", ran.stderr);
        }

        let (recorder, home) = (Recorder::new(recorder.counted), TempDir::new().unwrap());
        let mut command = prompt(&mock, home.path());
        let ran = CommandResult::of(recorder.kill(&mut command, 1, Moment::After));
        assert_eq!(ran.code, KILLED, "{}", ran.stderr);
        assert_eq!(recorder.log().iter().filter(is_sync).count(), 1);
    }

    #[test]
    fn every_way_of_writing_is_recorded() {
        let (recorder, folder) = (Recorder::new(Counted::Everything), TempDir::new().unwrap());
        let (program, home) = (folder.path().join("outlast"), folder.path().join("home"));
        compile("exercise.c", &[], &program);
        fs::create_dir(&home).unwrap();
        let mut command = Command::new(program);
        let ran = CommandResult::of(recorder.record(command.env("OUTLAST_HOME", &home)));
        let said = (ran.stdout.as_str(), ran.stderr.as_str());
        assert_eq!((ran.code, said), (0, ("a child\ndone\n", "")));
        let (log, found) = (recorder.log(), disk::read(&home));
        let names: Vec<_> = found.keys().collect();
        assert_eq!(
            names,
            ["appended", "kept", "placed"]
                .map(Path::new)
                .iter()
                .collect::<Vec<_>>()
        );
        assert_eq!(replayed(Disk::default(), &log).files(), found, "{log:?}");
        let of = |call: Call| log.iter().filter(|record| record.call == call).count();
        let counts = [Call::Create, Call::Sync, Call::Remove].map(of);
        assert_eq!(counts, [7, 3, 3], "{log:?}");
        // Output of a child before its exec is not recorded.
        let data = b"done\n".to_vec();
        assert_eq!(log.last().unwrap().call, Call::Output { data });
        assert!(
            !log.iter().any(
                |record| matches!(&record.call, Call::Output { data } if data == b"a child\n")
            )
        );
    }

    #[test]
    fn other_programs_are_neither_recorded_nor_killed() {
        let (recorder, home) = (Recorder::new(Counted::Everything), TempDir::new().unwrap());
        let mut shell = Command::new("sh");
        shell
            .args(["-c", "echo said; echo written >\"$OUTLAST_HOME/file\""])
            .env("OUTLAST_HOME", home.path());
        let ran = CommandResult::of(recorder.kill(&mut shell, 1, Moment::Before));
        assert_eq!((ran.code, ran.stdout.as_str()), (0, "said\n"));
        assert_eq!(recorder.log(), []);
    }
}
