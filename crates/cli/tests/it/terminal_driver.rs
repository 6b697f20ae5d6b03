//! A terminal for the chat: a tmux pane with key presses and a screen to read.
//!
//! Each pane has a tmux server of its own, with its socket in a folder of its own; dropping it removes both. Tests wait
//! for a named condition, and a timeout shows the last screen.

use crate::support::{HANG_TIMEOUT, Outlast};
use std::cell::RefCell;
use std::ffi::OsStr;
use std::io::Write;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The full path: with a bare name and a `PATH` of its own, a command forks this whole process instead of only spawning.
static TMUX: LazyLock<PathBuf> = LazyLock::new(|| {
    let path = std::env::var_os("PATH").unwrap();
    let mut files = std::env::split_paths(&path).map(|folder| folder.join("tmux"));
    files.find(|file| file.is_file()).unwrap()
});
const POLL_INTERVAL: Duration = Duration::from_millis(20);
pub(crate) const DEFAULT_SIZE: (u16, u16) = (80, 24);

pub(crate) struct Pane {
    socket: TempDir,
    /// The folder, which is replaced in screens.
    folder: PathBuf,
}

impl Pane {
    /// Starts a chat on a screen of the default size.
    pub(crate) fn chat(outlast: &Outlast, arguments: &[&str]) -> Self {
        Self::of(&outlast.command(arguments), DEFAULT_SIZE)
    }

    /// Starts a shell with a recognisable prompt.
    pub(crate) fn shell(outlast: &Outlast, shell: &[&str]) -> Self {
        let mut command = outlast.command(&[]);
        let variables: Vec<_> = command
            .get_envs()
            .filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())))
            .collect();
        command = Command::new(shell[0]);
        command.args(&shell[1..]).current_dir(outlast.folder.path());
        command.envs(variables).env("PS1", "ready> ");
        let pane = Self::of(&command, (120, 24));
        pane.wait_for("the shell", |screen| screen.contains("ready>"));
        pane
    }

    /// Starts any command with its own environment and the variables of a terminal.
    pub(crate) fn of(command: &Command, (width, height): (u16, u16)) -> Self {
        let folder = command.get_current_dir().unwrap().to_owned();
        let pane = Self {
            socket: TempDir::new().unwrap(),
            folder,
        };
        let size = [width.to_string(), height.to_string()];
        let mut start = pane.tmux(&["-f", "/dev/null"]);
        start.args(["set-option", "-g", "remain-on-exit", "on", ";"]);
        start.args(["set-option", "-g", "status", "off", ";"]);
        start.args(["new-session", "-d", "-x", &size[0], "-y", &size[1], "-c"]);
        start
            .arg(&pane.folder)
            .args(["env", "-i", "LC_ALL=C.UTF-8"]);
        let path = std::env::var("PATH").unwrap();
        start.args([format!("PATH={path}"), "TERM=screen-256color".to_owned()]);
        for (name, value) in command.get_envs() {
            let assigned = [name, value.unwrap_or_default()].join(OsStr::new("="));
            start.arg(assigned);
        }
        start.arg(command.get_program()).args(command.get_args());
        assert!(start.status().unwrap().success(), "tmux does not start");
        pane
    }

    fn tmux(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(TMUX.as_path());
        command.arg("-u").arg("-S");
        command.arg(self.socket.path().join("socket"));
        command.args(arguments).env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap());
        command.env("LC_ALL", "C.UTF-8").env("SHELL", "/bin/sh");
        command
    }

    fn asked(&self, arguments: &[&str]) -> String {
        let output = self.tmux(arguments).output().unwrap();
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {complaint}");
        String::from_utf8(output.stdout).unwrap()
    }

    // --- Input ---

    /// Presses keys, by their tmux names.
    pub(crate) fn press(&self, keys: &[&str]) {
        self.asked(&[&["send-keys"], keys].concat());
    }

    /// Types text.
    pub(crate) fn write(&self, text: &str) {
        // tmux takes a semicolon at the end of an argument as the end of the command.
        let text = match text.strip_suffix(';') {
            Some(rest) => format!("{rest}\\;"),
            None => text.to_owned(),
        };
        self.asked(&["send-keys", "-l", "--", &text]);
    }

    /// Types text, and presses Enter once it is on the screen.
    pub(crate) fn say(&self, text: &str) {
        self.write(text);
        self.press(&["Enter"]);
    }

    /// Pastes text as a terminal with bracketed paste does.
    pub(crate) fn paste(&self, text: &str) {
        let mut load = self.tmux(&["load-buffer", "-"]);
        let mut load = load.stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = load.stdin.take().unwrap();
        stdin.write_all(text.as_bytes()).unwrap();
        drop(stdin);
        assert!(load.wait().unwrap().success());
        self.asked(&["paste-buffer", "-p", "-d"]);
    }

    pub(crate) fn resize(&self, (width, height): (u16, u16)) {
        let size = [width.to_string(), height.to_string()];
        self.asked(&["resize-window", "-x", &size[0], "-y", &size[1]]);
    }

    /// Returns the process that the pane was made for.
    pub(crate) fn process(&self) -> String {
        self.tells("#{pane_pid}")
    }

    pub(crate) fn signal(&self, signal: &str) {
        let sent = Command::new("kill")
            .args([signal, &self.process()])
            .status();
        assert!(sent.unwrap().success());
    }

    // --- Screen ---

    pub(crate) fn screen(&self) -> String {
        self.asked(&["capture-pane", "-p"])
    }

    /// Returns the screen with its colours.
    pub(crate) fn coloured(&self) -> String {
        self.asked(&["capture-pane", "-p", "-e"])
    }

    /// Returns tmux's value of a format for the pane.
    pub(crate) fn tells(&self, format: &str) -> String {
        let told = self.asked(&["display-message", "-p", format]);
        told.trim_end().to_owned()
    }

    /// Waits until the screen satisfies the condition and is stable except for a countdown.
    pub(crate) fn wait_for(&self, what: &str, is_there: impl Fn(&str) -> bool) -> String {
        let before = RefCell::default();
        self.moving(what, |screen| {
            let before = before.replace(still(screen));
            is_there(screen) && before == still(screen)
        })
    }

    /// Waits until the screen satisfies the condition, even if it keeps changing.
    pub(crate) fn moving(&self, what: &str, is_there: impl Fn(&str) -> bool) -> String {
        let start = Instant::now();
        loop {
            let screen = self.screen();
            if is_there(&screen) {
                return screen;
            }
            let waited = start.elapsed();
            assert!(
                waited < HANG_TIMEOUT,
                "no {what} after {waited:?}:\n{screen}"
            );
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Waits until the screen shows the text, across any number of lines.
    pub(crate) fn sees(&self, text: &str) -> String {
        self.wait_for(text, |screen| flat(screen).contains(text))
    }

    /// Waits for the given retry with a countdown in the range: no second is on the screen for longer than a second.
    pub(crate) fn is_waiting(&self, number: &str, left: RangeInclusive<u64>) {
        let begin = format!("Retrying {number} in ");
        let screen = flat(&self.sees(&begin));
        let (_, rest) = screen.split_once(&begin).unwrap();
        let is_in_range = countdown(&format!("{begin}{rest}")).is_some_and(|it| left.contains(&it));
        assert!(is_in_range, "not {left:?}:\n{screen}");
    }

    /// Waits until the chat is idle and the editor is empty.
    pub(crate) fn is_ready(&self) -> String {
        self.wait_for("empty editor", is_ready)
    }

    /// Waits for the end of a scripted completion that repeats the message.
    pub(crate) fn is_answered(&self, said: &str) -> String {
        let end = format!("You said: {said}");
        self.wait_for(&end, |screen| {
            flat(screen).contains(&end) && !screen.contains("(esc to ")
        })
    }

    /// Waits for the end of the process; returns its exit code or signal.
    pub(crate) fn ended(&self) -> String {
        let format = "#{pane_dead_status}#{?pane_dead_signal,signal ,}#{pane_dead_signal}";
        let start = Instant::now();
        loop {
            let told = self.tells(format);
            if !told.is_empty() {
                return told;
            }
            assert!(start.elapsed() < HANG_TIMEOUT, "no end:\n{}", self.screen());
            // tmux may miss that a process has ended, and looks again when another one does.
            self.asked(&["run-shell", "-b", "true"]);
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Returns a reproducible screen: without the folder, which changes the size of a prompt, and without the number of
    /// a countdown.
    pub(crate) fn shown(&self, screen: &str) -> String {
        let folder = format!(" · {}", self.folder.display());
        let screen = still(screen).replace(&folder, "");
        let lines = screen
            .lines()
            .map(|line| match line.split_once(" tokens · ") {
                Some((before, after)) => {
                    let before = before.trim_end_matches(|c: char| c.is_ascii_digit());
                    format!("{before}N tokens · {after}")
                }
                None => line.to_owned(),
            });
        lines.collect::<Vec<_>>().join("\n").trim_end().to_owned()
    }
}

impl Drop for Pane {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]).output().ok();
    }
}

fn is_ready(screen: &str) -> bool {
    let busy = ["(esc to ", "Starting…", "run it? "];
    let is_busy = busy.iter().any(|words| screen.contains(words));
    !is_busy && screen.lines().any(|line| line == "›")
}

/// Joins the words of a screen, independently of its line ends.
pub(crate) fn flat(screen: &str) -> String {
    screen.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns the seconds of a countdown on the screen.
pub(crate) fn countdown(screen: &str) -> Option<u64> {
    let screen = flat(screen);
    let (_, rest) = screen.split_once("Retrying (")?;
    let (_, rest) = rest.split_once(") in ")?;
    let (seconds, _) = rest.split_once("s… (esc to cancel)")?;
    seconds.parse().ok()
}

/// Returns a screen without the number of its countdown.
fn still(screen: &str) -> String {
    match countdown(screen) {
        Some(seconds) => screen.replacen(&format!("{seconds}s…"), "Ns…", 1),
        None => screen.to_owned(),
    }
}
