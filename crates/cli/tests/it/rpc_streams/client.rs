//! A client over two pipes that reads only on request.

use crate::support::Outlast;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::Duration;

/// Ends a test that would hang; longer than elsewhere, because it counts from the start of the process.
const HANG_TIMEOUT: Duration = Duration::from_secs(600);

pub(crate) struct Client {
    child: Child,
    input: Option<ChildStdin>,
    output: Option<BufReader<ChildStdout>>,
    _ends_it: Sender<()>,
}

/// The exit code and output of a server that has ended.
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) rest: String,
    pub(crate) stderr: String,
}

impl Client {
    pub(crate) fn start(outlast: &Outlast, arguments: &[&str]) -> Self {
        Self::of(&mut outlast.command(&[&["rpc"], arguments].concat()))
    }

    pub(crate) fn of(command: &mut Command) -> Self {
        let mut child = command
            .env("PATH", "/usr/bin:/bin")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (ends_it, ended) = mpsc::channel();
        let id = child.id();
        // A blocking read would otherwise hang the test without a failure.
        std::thread::spawn(move || {
            if ended.recv_timeout(HANG_TIMEOUT) == Err(RecvTimeoutError::Timeout) {
                kill("-9", id);
            }
        });
        Self {
            input: child.stdin.take(),
            output: child.stdout.take().map(BufReader::new),
            child,
            _ends_it: ends_it,
        }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    // --- Lines ---

    pub(crate) fn send(&mut self, line: &str) {
        self.send_bytes(format!("{line}\n").as_bytes());
    }

    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) {
        self.input.as_mut().unwrap().write_all(bytes).unwrap();
    }

    pub(crate) fn prompt(&mut self, message: &str) {
        let prompt = serde_json::json!({ "id": "p", "type": "prompt", "message": message });
        self.send(&prompt.to_string());
    }

    /// Sends bytes from a separate thread, for data that does not fit into a pipe. The counter is the
    /// number of bytes taken.
    pub(crate) fn send_beside(&mut self, bytes: Vec<u8>) -> Arc<AtomicUsize> {
        const PIECE: usize = 64 << 10;
        let input = self.input.as_ref().unwrap().as_fd();
        let mut input = fs::File::from(input.try_clone_to_owned().unwrap());
        let taken = Arc::new(AtomicUsize::new(0));
        let count = taken.clone();
        std::thread::spawn(move || {
            for piece in bytes.chunks(PIECE) {
                // The server has ended.
                if input.write_all(piece).is_err() {
                    return;
                }
                count.fetch_add(piece.len(), Ordering::Relaxed);
            }
        });
        taken
    }

    /// Returns the next line with its line end; an empty text after the last one.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.as_mut().unwrap().read_line(&mut line).unwrap();
        line
    }

    pub(crate) fn frame(&mut self) -> Value {
        let line = self.line();
        assert!(line.ends_with('\n'), "the end came after {line:?}");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    /// Reads up to the first matching frame, and returns it.
    pub(crate) fn until(&mut self, is_it: impl Fn(&Value) -> bool) -> Value {
        loop {
            let frame = self.frame();
            if is_it(&frame) {
                return frame;
            }
        }
    }

    pub(crate) fn until_kind(&mut self, kind: &str) -> Value {
        self.until(|frame| frame["type"] == kind)
    }

    /// Sends a command and returns its reply, skipping the events before it.
    pub(crate) fn ask(&mut self, command: &str) -> Value {
        self.send(command);
        self.until_kind("response")
    }

    pub(crate) fn state(&mut self) -> Value {
        self.ask(r#"{"type":"get_state"}"#)["data"].take()
    }

    // --- The process ---

    /// Returns the current and the peak memory, in bytes.
    pub(crate) fn memory(&self) -> (u64, u64) {
        let status = fs::read_to_string(format!("/proc/{}/status", self.id())).unwrap();
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let number = line.unwrap().trim().trim_end_matches(" kB");
            number.parse::<u64>().unwrap() << 10
        };
        (field("VmRSS:"), field("VmHWM:"))
    }

    pub(crate) fn signal(&self, signal: &str) {
        kill(signal, self.id());
    }

    pub(crate) fn close_input(&mut self) {
        self.input = None;
    }

    pub(crate) fn close_output(&mut self) {
        self.output = None;
    }

    /// Waits for its end, and only then reads the rest of its output.
    pub(crate) fn wait(mut self) -> Ended {
        let status = self.child.wait().unwrap();
        let (mut rest, mut stderr) = (String::new(), String::new());
        if let Some(mut output) = self.output.take() {
            output.read_to_string(&mut rest).unwrap();
        }
        let mut errors = self.child.stderr.take().unwrap();
        errors.read_to_string(&mut stderr).unwrap();
        Ended {
            code: status.code().unwrap_or(-1),
            rest,
            stderr,
        }
    }

    pub(crate) fn end(mut self) -> Ended {
        self.close_input();
        self.wait()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

pub(crate) fn kill(signal: &str, id: u32) {
    let id = id.to_string();
    Command::new("kill").args([signal, &id]).status().ok();
}

/// Whether a process exists and has not ended.
pub(crate) fn is_running(id: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z ")
}
