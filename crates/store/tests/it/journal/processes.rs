//! Several processes, some of them stopped or killed in the middle of something.
//!
//! The others are this program once more, running only `child_process_with_journal`: it takes commands from its standard
//! input and answers each with one line on standard error (the test harness writes to standard output).

use super::{ALL, TestFolder, append, begin, line, told};
use crate::HANG_TIMEOUT;
use outlast_store::Error;
use outlast_store::journal::{Availability, Journal, RawEntry, SessionLock};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdin, Command, Stdio};

const PLACE: &str = "OUTLAST_TEST_JOURNAL";

// --- The other process ---

#[tokio::test]
#[allow(
    clippy::disallowed_methods,
    reason = "it is told by its parent where to work"
)]
async fn child_process_with_journal() {
    // In the run of all tests there is nothing to do.
    let Some(path) = std::env::var_os(PLACE) else {
        return;
    };
    let journal = Journal::open(Path::new(&path)).unwrap().journal;
    let mut hold = None;
    for command in std::io::stdin().lines() {
        let done = obey(&journal, &mut hold, &command.unwrap()).await;
        answer(&match done {
            Ok(()) => "done".to_owned(),
            Err(error) => format!("{error:?}"),
        });
    }
}

async fn obey(
    journal: &Journal,
    hold: &mut Option<SessionLock>,
    command: &str,
) -> Result<(), Error> {
    match *command.split(' ').collect::<Vec<_>>() {
        ["begin", id] => *hold = Some(begin(journal, id).await),
        ["claim", id] => *hold = Some(journal.claim(id).await?),
        ["release"] => journal.release(hold.take().unwrap()).await?,
        ["append", kind] => {
            let lines = vec![line(1, kind)];
            journal.append(hold.as_ref().unwrap(), lines).await?;
        }
        ["write"] => write_on(journal, hold.as_ref().unwrap()).await?,
        ["contend", id, name, rounds] => {
            for _ in 0..rounds.parse().unwrap() {
                take_part(journal, id, name).await?;
            }
        }
        _ => panic!("what is `{command}`?"),
    }
    Ok(())
}

/// Writes turn after turn without end, and reports each that was acknowledged.
async fn write_on(journal: &Journal, hold: &SessionLock) -> Result<(), Error> {
    for turn in 1.. {
        let lines = ["prompt", "message", "settled"].map(|kind| line(turn, kind));
        journal.append(hold, lines.to_vec()).await?;
        answer(&turn.to_string());
    }
    Ok(())
}

/// Claims the session, writes that it came and that it goes, and releases it.
async fn take_part(journal: &Journal, id: &str, name: &str) -> Result<(), Error> {
    let claim = async {
        loop {
            match journal.claim(id).await {
                Err(Error::InUse { .. }) => tokio::task::yield_now().await,
                claimed => break claimed,
            }
        }
    };
    let hold = tokio::time::timeout(HANG_TIMEOUT, claim).await.unwrap()?;
    for kind in ["came", "went"] {
        let line = RawEntry {
            body: name.to_owned(),
            ..line(1, kind)
        };
        journal.append(&hold, vec![line]).await?;
        answer(kind);
    }
    journal.release(hold).await
}

#[allow(clippy::print_stderr, reason = "it is how its parent hears of it")]
fn answer(line: &str) {
    eprintln!("{line}");
}

// --- The view of the parent ---

struct Process {
    child: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStderr>,
}

impl Process {
    fn start(place: &TestFolder) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "journal::processes::child_process_with_journal"])
            .args(["--nocapture", "--test-threads=1"])
            .env(PLACE, place.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let commands = child.stdin.take().unwrap();
        let answers = BufReader::new(child.stderr.take().unwrap());
        Self {
            child,
            commands,
            answers,
        }
    }

    fn tell(&mut self, command: &str) {
        writeln!(self.commands, "{command}").unwrap();
    }

    fn hear(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        assert!(line.ends_with('\n'), "it ended: {line}");
        line.trim_end().to_owned()
    }

    fn ask(&mut self, command: &str) -> String {
        self.tell(command);
        self.hear()
    }

    /// Reads its output until it has obeyed.
    fn wait(&mut self) {
        loop {
            match self.hear().as_str() {
                "came" | "went" => {}
                last => break assert_eq!(last, "done"),
            }
        }
    }

    /// Kills it without a chance to react, and returns its remaining output.
    fn kill(&mut self) -> Vec<String> {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        let said = self.answers.by_ref().lines();
        said.map(Result::unwrap).collect()
    }

    /// Stops it where it is, and returns when all of its threads stand still.
    #[cfg(target_os = "linux")]
    fn stop(&self) {
        self.signal("STOP");
        let threads = format!("/proc/{}/task", self.child.id());
        let stands_still = |thread: std::io::Result<std::fs::DirEntry>| {
            let status = std::fs::read_to_string(thread.unwrap().path().join("status"));
            status.unwrap().contains("State:\tT")
        };
        while !std::fs::read_dir(&threads).unwrap().all(stands_still) {
            std::thread::yield_now();
        }
    }

    #[cfg(target_os = "linux")]
    fn signal(&self, name: &str) {
        let command = format!("kill -{name} {}", self.child.id());
        let sent = Command::new("sh").args(["-c", &command]).status();
        assert!(sent.unwrap().success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A test that fails leaves no process behind; one that was killed before is killed already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

// --- Tests ---

#[tokio::test]
async fn a_killed_process_frees_its_sessions_at_once() {
    let place = TestFolder::new();
    let journal = place.open();
    let mut other = Process::start(&place);
    assert_eq!(other.ask("begin s"), "done");
    assert_eq!(other.ask("append prompt"), "done");
    assert!(matches!(journal.claim("s").await, Err(Error::InUse { .. })));
    assert_eq!(
        journal.summary("s").await.unwrap().availability,
        Availability::InUse
    );
    let left_behind = place.owners();
    other.kill();
    // A process that checks whether the owner lives is not taken for the owner.
    let looking = std::fs::File::open(&left_behind[0]).unwrap();
    looking.try_lock_shared().unwrap();
    let left = journal.unfinished().await.unwrap();
    assert_eq!(left[0].availability, Availability::Abandoned);
    assert_eq!((left[0].id.as_str(), left[0].open_turn), ("s", Some(1)));
    assert_eq!(place.owners(), left_behind);
    let hold = journal.claim("s").await.unwrap();
    append(&journal, &hold, &[(1, "settled")]).await;
    // Its lock file went with it; the one that is there is ours.
    let now = place.owners();
    assert!(now.len() == 1 && now != left_behind, "{now:?}");
    assert!(Process::start(&place).ask("claim s").starts_with("InUse"));
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_stopped_process_keeps_its_sessions() {
    let place = TestFolder::new();
    let journal = place.open();
    let mut other = Process::start(&place);
    assert_eq!(other.ask("begin s"), "done");
    other.stop();
    other.tell("append prompt");
    for _ in 0..100 {
        assert!(matches!(journal.claim("s").await, Err(Error::InUse { .. })));
    }
    assert_eq!(journal.summary("s").await.unwrap().entries, 0);
    other.signal("CONT");
    assert_eq!(other.hear(), "done");
    assert_eq!(other.ask("append settled"), "done");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn process_presumed_dead_cannot_write_on_wakeup() {
    let place = TestFolder::new();
    let journal = place.open();
    let mut other = Process::start(&place);
    assert_eq!(other.ask("begin s"), "done");
    other.stop();
    other.tell("append prompt");
    std::fs::remove_file(&place.owners()[0]).unwrap();
    let hold = journal.claim("s").await.unwrap();
    append(&journal, &hold, &[(1, "prompt")]).await;
    other.signal("CONT");
    assert!(other.hear().starts_with("Fenced"));
    let all = told(&journal.read("s", ALL).await.unwrap());
    assert_eq!(all, ["1 1 prompt"]);
}

#[tokio::test]
async fn acknowledged_writes_survive_kill_and_none_is_partial() {
    for least in [1, 7, 20] {
        let place = TestFolder::new();
        let mut other = Process::start(&place);
        assert_eq!(other.ask("begin s"), "done");
        other.tell("write");
        let mut acknowledged = 0;
        while acknowledged < least {
            acknowledged = other.hear().parse().unwrap();
        }
        if let Some(last) = other.kill().last() {
            acknowledged = last.parse().unwrap();
        }
        let journal = place.open();
        let all = journal.read("s", ALL).await.unwrap();
        assert!(
            all.len() >= acknowledged * 3,
            "{acknowledged}: {}",
            all.len()
        );
        assert_eq!(all.len() % 3, 0);
        assert!(all.iter().zip(1..).all(|(entry, seq)| entry.seq == seq));
        let summary = journal.summary("s").await.unwrap();
        assert_eq!(summary.entries, all.len() as u64);
        assert_eq!(
            (summary.turns, summary.open_turn),
            (summary.entries / 3, None)
        );
        journal.check_integrity().await.unwrap();
    }
}

#[tokio::test]
async fn contended_session_has_one_owner_at_a_time() {
    const ROUNDS: usize = 20;
    let names = ["a", "b", "c"];
    let place = TestFolder::new();
    let journal = place.open();
    drop(begin(&journal, "s").await);
    let mut victim = Process::start(&place);
    victim.tell("contend s victim 1000000");
    let mut others = names.map(|name| {
        let mut other = Process::start(&place);
        other.tell(&format!("contend s {name} {ROUNDS}"));
        other
    });
    // It dies while it has the session, or just after.
    for expected in ["came", "went", "came"] {
        assert_eq!(victim.hear(), expected);
    }
    victim.kill();
    others.iter_mut().for_each(Process::wait);

    let all = journal.read("s", ALL).await.unwrap();
    let mut inside: Option<&str> = None;
    for entry in &all {
        let name = entry.entry.body.as_str();
        if entry.entry.kind == "came" {
            assert!(
                matches!(inside, None | Some("victim")),
                "{inside:?} and {name}"
            );
            inside = Some(name);
        } else {
            assert_eq!(inside.take(), Some(name));
        }
    }
    for name in names {
        let went = |entry: &&outlast_store::journal::StoredEntry| {
            (entry.entry.kind.as_str(), entry.entry.body.as_str()) == ("went", name)
        };
        assert_eq!(all.iter().filter(went).count(), ROUNDS);
    }
}

#[tokio::test]
async fn owner_files_are_removed_on_exit_and_after_kill() {
    let place = TestFolder::new();
    {
        let journal = place.open();
        assert_eq!(place.owners().len(), 0);
        let hold = begin(&journal, "r").await;
        assert_eq!(place.owners().len(), 1);
        journal.release(hold).await.unwrap();
    }
    assert_eq!(place.owners().len(), 0);
    let mut other = Process::start(&place);
    assert_eq!(other.ask("begin s"), "done");
    assert_eq!(other.ask("release"), "done");
    other.kill();
    let left_behind = place.owners();
    assert_eq!(left_behind.len(), 1);
    let journal = place.open();
    let _hold = journal.claim("r").await.unwrap();
    assert_eq!(place.owners().len(), 1);
    assert_ne!(place.owners(), left_behind);
}
