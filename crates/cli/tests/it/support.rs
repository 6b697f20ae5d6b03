//! Runs the real binary in a home of its own.

use assert_cmd::cargo::cargo_bin;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;
use tempfile::TempDir;

/// Ends a test that would hang; no assertion depends on it.
pub(crate) const HANG_TIMEOUT: Duration = Duration::from_secs(120);
/// Settings of a prompt to a provider in another process: with a scaled clock, the default timeouts are half a second,
/// which a busy machine needs for a response.
pub(crate) const NO_TIMEOUTS: &str = "[timeouts]\nheaders = 0\nfirst_event = 0\nidle = 0\n";

pub(crate) struct Outlast {
    pub(crate) folder: TempDir,
    pub(crate) scale: &'static str,
}

pub(crate) struct CommandResult {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Outlast {
    /// Creates a command whose clock runs six hundred times as fast as real time.
    pub(crate) fn new() -> Self {
        Self {
            folder: TempDir::new().unwrap(),
            scale: "600",
        }
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(cargo_bin("outlast"));
        command
            .args(arguments)
            .current_dir(self.folder.path())
            .env_clear();
        command
            .env("OUTLAST_HOME", self.home())
            .env("OUTLAST_TIME_SCALE", self.scale)
            .env("TZ", "UTC");
        command
    }

    pub(crate) fn run_with_stdin(&self, arguments: &[&str], input: &str) -> CommandResult {
        let mut command = self.command(arguments);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child
            .stdin
            .take()
            .unwrap()
            .write_all(input.as_bytes())
            .unwrap();
        CommandResult::ended(child)
    }

    /// Writes a file, creating its folder if needed.
    pub(crate) fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    /// Replaces the name of this folder, so that the text is the same in every run.
    pub(crate) fn anonymous(&self, text: &str) -> String {
        let real = self.folder.path().canonicalize().unwrap();
        text.replace(real.to_str().unwrap(), "FOLDER")
            .replace(self.folder.path().to_str().unwrap(), "FOLDER")
    }

    pub(crate) fn run_with(
        &self,
        arguments: &[&str],
        environment: &[(&str, &str)],
    ) -> CommandResult {
        let mut command = self.command(arguments);
        command.envs(environment.iter().copied());
        CommandResult::from(command.output().unwrap())
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> CommandResult {
        CommandResult::of(&mut self.command(arguments))
    }
}

/// Returns the command, run by a shell after the script.
pub(crate) fn run_script_before(script: &str, inner: &Command) -> Command {
    let mut shell = Command::new("sh");
    shell
        .args(["-c", &format!("{script}; exec \"$0\" \"$@\"")])
        .arg(inner.get_program())
        .args(inner.get_args())
        .current_dir(inner.get_current_dir().unwrap())
        .env_clear();
    let variables = inner.get_envs();
    shell.envs(variables.filter_map(|(name, value)| Some((name, value?))));
    shell
}

impl CommandResult {
    /// Runs a command to its end, up to the hang timeout.
    pub(crate) fn of(command: &mut Command) -> Self {
        let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Self::ended(piped.spawn().unwrap())
    }

    /// Waits for the end of a process, up to the hang timeout, and reads its output. The longest is a demo of 90 s.
    pub(crate) fn ended(child: Child) -> Self {
        let id = child.id();
        let (sender, ended) = mpsc::channel();
        std::thread::spawn(move || sender.send(child.wait_with_output()));
        let Ok(output) = ended.recv_timeout(3 * HANG_TIMEOUT) else {
            Command::new("kill")
                .args(["-9", &id.to_string()])
                .status()
                .ok();
            panic!("process {id} does not end");
        };
        Self::from(output.unwrap())
    }
}

impl From<Output> for CommandResult {
    fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }
}
