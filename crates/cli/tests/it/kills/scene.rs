//! One prompt in a home of its own, and every process that works on it until it is finished.

use super::crew::server;
use super::plan::Plan;
use crate::mock_server::{MockServer, PLANTED};
use crate::support::CommandResult;
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;
use tempfile::TempDir;

/// Speed of the clock: a wait of twenty seconds is longer than the start of a process.
pub(crate) const SCALE: &str = "100";
/// The code that `CommandResult` has for a process that a signal ended.
pub(crate) const KILLED: i32 = -1;

/// More resumes than this mean that there is no progress.
const MAX_RESUMES: usize = 4;

pub(crate) struct Scene<'a> {
    pub(crate) mock: &'a MockServer,
    pub(crate) plan: &'a Plan,
    folder: TempDir,
    /// The stdout and stderr of all processes together.
    pub(crate) said: String,
    pub(crate) complained: String,
    pub(crate) kills: usize,
}

impl<'a> Scene<'a> {
    /// Creates a scene before its prompt, and resets the scripts of the mock server.
    pub(crate) fn new(mock: &'a MockServer, plan: &'a Plan) -> Self {
        mock.control("DELETE", "/_outlast/script", "");
        let mut scene = Self {
            mock,
            plan,
            folder: TempDir::new().unwrap(),
            said: String::new(),
            complained: String::new(),
            kills: 0,
        };
        scene.forget();
        scene
    }

    /// Starts again with empty folders, and resets the failures that the mock server has played.
    pub(crate) fn forget(&mut self) {
        self.mock.control("DELETE", "/_outlast/requests", "");
        for folder in [self.home(), self.work()] {
            std::fs::remove_dir_all(folder).ok();
        }
        std::fs::create_dir(self.work()).unwrap();
        std::fs::write(self.work().join("note.txt"), "remember\n").unwrap();
        self.said.clear();
        self.complained.clear();
    }

    /// Plays a scene with a mock server of its own.
    pub(crate) fn alone<Found>(plan: &Plan, play: impl FnOnce(&mut Scene<'_>) -> Found) -> Found {
        let mock = server();
        play(&mut Scene::new(&mock, plan))
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    /// Returns the working folder of the tools.
    pub(crate) fn work(&self) -> PathBuf {
        self.folder.path().join("work")
    }

    // --- Running commands ---

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.mock.outlast.command(arguments);
        command
            .current_dir(self.work())
            .env("OUTLAST_HOME", self.home())
            .env("ANTHROPIC_API_KEY", PLANTED)
            .env("OPENAI_API_KEY", PLANTED)
            .env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command
    }

    pub(crate) fn prompt(&self) -> Command {
        let (url, plan) = (self.mock.url(), self.plan);
        let mut command = self.command(&["-p", &plan.prompt, "--provider", plan.dialect]);
        command.args(["--base-url", &url, "--model", &plan.script]);
        command.args(["--allow", "bash,write"]);
        command
    }

    pub(crate) fn resume(&self) -> Command {
        self.command(&["resume"])
    }

    /// Runs a command to its end and keeps its output.
    pub(crate) fn run(&mut self, command: &mut Command) -> CommandResult {
        let ran = CommandResult::of(command);
        self.said += &ran.stdout;
        self.complained += &ran.stderr;
        self.kills += usize::from(ran.code == KILLED);
        ran
    }

    /// Resumes until no turn is open.
    pub(crate) fn resume_all(&mut self) {
        for _ in 0..MAX_RESUMES {
            let ran = self.run(&mut self.resume());
            if ran.stderr.contains("Nothing to resume.") {
                return;
            }
        }
        panic!("there is always something to resume:\n{}", self.complained);
    }

    /// Deletes the shared state of providers.
    pub(crate) fn lose_knowledge(&self) {
        for name in ["outlast.db", "outlast.db-wal", "outlast.db-shm"] {
            std::fs::remove_file(self.home().join(name)).ok();
        }
    }

    // --- Results ---

    /// Returns the listed sessions.
    pub(crate) fn sessions(&self) -> Vec<Value> {
        let ran = CommandResult::of(&mut self.command(&["sessions", "list", "--json"]));
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        serde_json::from_str(&ran.stdout).unwrap()
    }

    /// Returns the journal entries of the prompt.
    pub(crate) fn entries(&self) -> Vec<Value> {
        let sessions = self.sessions();
        let begun = sessions.iter().filter(|session| session["turns"] != 0);
        let begun: Vec<&Value> = begun.collect();
        let Some(session) = begun.first() else {
            return Vec::new();
        };
        assert_eq!(begun.len(), 1, "{sessions:?}");
        let id = session["id"].as_str().unwrap();
        let export = ["sessions", "export", id, "--format", "jsonl"];
        let ran = CommandResult::of(&mut self.command(&export));
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        // The first line describes the session itself.
        let lines = ran.stdout.lines().skip(1);
        lines
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// Returns the lines that commands have appended.
    pub(crate) fn lines(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.work().join("lines.txt")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}
