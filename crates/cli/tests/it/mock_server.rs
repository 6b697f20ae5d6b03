//! Runs `outlast mock` as a process, and offers its control endpoints as methods.

use crate::support::{CommandResult, HANG_TIMEOUT, NO_TIMEOUTS, Outlast};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
#[cfg(unix)]
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// A key that must not appear anywhere.
pub(crate) const PLANTED: &str = "planted-key-7f3a9c1e5b";
pub(crate) const DIALECTS: [&str; 3] = ["anthropic", "openai", "openai-responses"];

/// A running mock server; dropping it ends the process.
pub(crate) struct MockServer {
    pub(crate) outlast: Outlast,
    pub(crate) address: String,
    child: Child,
}

impl MockServer {
    pub(crate) fn start() -> Self {
        Self::start_in(Outlast::new())
    }

    pub(crate) fn start_in(outlast: Outlast) -> Self {
        Self::start_with(outlast, &[])
    }

    /// Starts one with further arguments. With a scaled clock, prompts of its home have no
    /// timeouts.
    pub(crate) fn start_with(outlast: Outlast, arguments: &[&str]) -> Self {
        if outlast.scale != "1" {
            outlast.write("home/outlast.toml", NO_TIMEOUTS);
            #[cfg(unix)]
            keep_private(&outlast.home());
        }
        let mut child = outlast
            .command(&[&["mock", "--listen", "127.0.0.1:0"], arguments].concat())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let address = line.trim().strip_prefix("listening on http://");
        let address = address.unwrap_or_else(|| panic!("{line:?}")).to_owned();
        Self {
            outlast,
            address,
            child,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Creates a prompt to it, with a planted key.
    pub(crate) fn command(&self, dialect: &str, arguments: &[&str]) -> std::process::Command {
        let url = self.url();
        let mut all = vec!["-p", "Say hello", "--provider", dialect, "--base-url", &url];
        all.extend(arguments);
        let mut command = self.outlast.command(&all);
        command.env("ANTHROPIC_API_KEY", PLANTED);
        command.env("OPENAI_API_KEY", PLANTED);
        command
    }

    pub(crate) fn ask(&self, dialect: &str, arguments: &[&str]) -> CommandResult {
        CommandResult::of(&mut self.command(dialect, arguments))
    }

    /// Sends one request to its control endpoints, and returns the body.
    pub(crate) fn control(&self, method: &str, path: &str, body: &str) -> String {
        let mut socket = TcpStream::connect(&self.address).unwrap();
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.0\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n",
            self.address
        );
        socket.write_all((head + body).as_bytes()).unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        answer.split_once("\r\n\r\n").unwrap().1.to_owned()
    }

    /// Returns its log of requests.
    pub(crate) fn requests(&self) -> String {
        self.control("GET", "/_outlast/requests", "")
    }

    /// Waits until the log has a request in this state.
    pub(crate) fn wait_for_request(&self, ended: &str) {
        let wanted = format!(r#""ended":"{ended}""#);
        wait_for(ended, || self.requests().contains(&wanted));
    }

    /// Waits until that many requests have arrived.
    pub(crate) fn wait_for_requests(&self, count: usize) {
        wait_for("requests", || {
            self.requests().matches(r#""number":"#).count() >= count
        });
    }

    /// Stops it, and returns its stderr.
    pub(crate) fn stop(mut self) -> String {
        self.child.kill().unwrap();
        let mut said = String::new();
        self.child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut said)
            .unwrap();
        said
    }
}

impl Drop for MockServer {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Restricts a home and its settings to the user, as the commands do that create them.
#[cfg(unix)]
fn keep_private(home: &Path) {
    use std::fs::{Permissions, set_permissions};
    use std::os::unix::fs::PermissionsExt;
    set_permissions(home, Permissions::from_mode(0o700)).unwrap();
    set_permissions(home.join("outlast.toml"), Permissions::from_mode(0o600)).unwrap();
}

/// Waits until a condition holds, up to the hang timeout.
pub(crate) fn wait_for(what: &str, mut is_there: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_there() {
        assert!(start.elapsed() < HANG_TIMEOUT, "no {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
