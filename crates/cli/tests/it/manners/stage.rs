//! A folder, a home and programs in which a shell can run the examples unchanged.

use crate::gateway_cli::{Gateway, REQUEST_BODY};
use crate::mock_server::{MockServer, wait_for};
use crate::support::{CommandResult, HANG_TIMEOUT, NO_TIMEOUTS, Outlast};
use assert_cmd::cargo::cargo_bin;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;

const SETTINGS: &str = r#"
[accounts.work]
provider = "anthropic"
api_key_env = "WORK_ACCOUNT"
[gateway]
listen = "127.0.0.1:0"
[serve]
listen = "127.0.0.1:0"
"#;

/// Its steps have the names that examples use.
const PIPELINE: &str = "
name: notes
inputs: {topic: {default: outages}}
provider: mock
model: ok
steps:
  - id: plan
    command: echo what to do | tee notes.md
    outputs: [{name: notes, path: notes.md}]
";

/// A pipeline that waits for its provider and for a person.
const WAITING: &str = "
name: waiting
provider: mock
model: overloaded:99
steps:
  - {id: plan, prompt: Plan it, retry: {policy: overnight}}
  - id: review
    gate: {type: approval, message: Publish it?, choices: [{key: y, label: Yes}, {key: n, label: No}]}
";

/// A pipeline whose first attempt is slow.
const SLOW: &str = "
steps:
  - {id: plan, command: 'test -e begun || { touch begun; sleep 60; }'}
";

/// A replacement for `curl` that is sufficient for the examples: one request, and its response.
const CURL: &str = r#"#!/usr/bin/env bash
url=$2 body=${4-}
case $url in https:*) echo 'upstream connect error'; exit 0 ;; esac
place=${url#http://} host=${place%%/*}
method=GET; [ -z "$body" ] || method=POST
exec 3<>"/dev/tcp/${host%:*}/${host#*:}"
printf '%s /%s HTTP/1.1\r\nhost: %s\r\nconnection: close\r\ncontent-length: %s\r\n\r\n%s' \
  "$method" "${place#*/}" "$host" "${#body}" "$body" >&3
read -r _ status _ <&3; cat <&3
[ "$status" = 200 ] || { echo "status $status" >&2; exit 1; }
"#;

pub(super) struct Stage {
    pub(super) outlast: Outlast,
    /// The mock server behind the addresses of real providers.
    pub(super) provider: MockServer,
}

/// A process that is killed with the test.
pub(super) struct Running(pub(super) Child);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

impl Stage {
    pub(super) fn new() -> Self {
        let outlast = Outlast::new();
        outlast.write("home/outlast.toml", SETTINGS.to_owned() + NO_TIMEOUTS);
        let private = |path, mode| {
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(outlast.folder.path().join(path), mode).unwrap();
        };
        private("home", 0o700);
        private("home/outlast.toml", 0o600);
        outlast.write("outlast.toml", "model = \"ok\"\n");
        outlast.write("pipeline.yaml", PIPELINE);
        outlast.write("prompt.txt", "Say hello\n");
        outlast.write("errors.jsonl", "{\"status\":529,\"body\":\"Overloaded\"}\n");
        outlast.write("user/work/project/outlast.toml", "model = \"ok\"\n");
        let folders = [
            ".zfunc",
            ".config/fish/completions",
            ".local/share/bash-completion/completions",
        ];
        for folder in folders {
            let folder = outlast.folder.path().join("user").join(folder);
            std::fs::create_dir_all(folder).unwrap();
        }
        let stage = Self {
            outlast,
            provider: MockServer::start(),
        };
        // Agents and readers that print their arguments and input.
        stage.program(
            "claude",
            "#!/bin/sh\nexec test -n \"$ANTHROPIC_BASE_URL\"\n",
        );
        stage.program("codex", "#!/bin/sh\nexec test -n \"$*\"\n");
        stage.program("man", "#!/bin/sh\nexec grep -q '^.TH OUTLAST'\n");
        stage.program(
            "xdg-open",
            "#!/bin/sh\nexec test \"${1#http://127.0.0.1:*/_outlast/#token=}\" != \"$1\"\n",
        );
        stage.program("curl", CURL);
        let binary = stage.outlast.folder.path().join("bin/outlast");
        symlink(cargo_bin("outlast"), binary).unwrap();
        stage
    }

    fn program(&self, name: &str, text: &str) {
        let path = format!("bin/{name}");
        self.outlast.write(&path, text);
        let path = self.outlast.folder.path().join(path);
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Returns a shell that runs the line, with exec where it is to be signalled.
    pub(super) fn shell(&self, line: &str) -> Command {
        let path = std::env::var("PATH").unwrap_or_default();
        let bin = self.outlast.folder.path().join("bin");
        let url = self.provider.url();
        let mut command = Command::new("bash");
        command
            .args(["--norc", "-c", line])
            .current_dir(self.outlast.folder.path())
            .env_clear()
            .env("PATH", format!("{}:{path}", bin.display()))
            .env("HOME", self.outlast.folder.path().join("user"))
            .env("OUTLAST_HOME", self.outlast.home())
            .env("OUTLAST_TIME_SCALE", self.outlast.scale)
            .env("ANTHROPIC_BASE_URL", &url)
            .env("OPENAI_BASE_URL", format!("{url}/v1"))
            .env("ANTHROPIC_API_KEY", "none")
            .env("OPENAI_API_KEY", "none")
            .env("WORK_ACCOUNT", "none")
            .stdin(Stdio::null());
        command
    }

    pub(super) fn run(&self, line: &str) -> CommandResult {
        CommandResult::of(&mut self.shell(line))
    }

    /// Returns the id of the first item in a list.
    pub(super) fn newest(&self, list: &str) -> String {
        let ran = self.run(&format!("outlast {list} list --json"));
        let all: Value = serde_json::from_str(&ran.stdout).unwrap();
        let id = all[0]["id"].as_str();
        id.unwrap_or_else(|| panic!("there are no {list}"))
            .to_owned()
    }

    /// Creates a session with a conversation that can be compacted.
    pub(super) fn finished_session(&self) {
        for line in [
            "outlast -p \"$(printf 'a long story %.0s' {1..3000})\" --model ok",
            "outlast -p 'And then?' --continue",
        ] {
            let ran = self.run(line);
            assert_eq!(ran.code, 0, "{}", ran.stderr);
        }
    }

    /// Creates a session whose turn was interrupted while it waited.
    pub(super) fn interrupted_session(&self) {
        let line = "exec outlast -p hi --model overloaded:1 --policy overnight";
        let mut child = self.in_real_time(line, "retrying in");
        child.signal("-TERM");
        assert_eq!(child.0.wait().unwrap().code(), Some(143));
    }

    pub(super) fn finished_run(&self) {
        let ran = self.run("outlast run pipeline.yaml");
        assert_eq!(ran.code, 0, "{}", ran.stderr);
    }

    /// Starts a run with one waiting step and one that asks a question.
    pub(super) fn open_run(&self) -> Running {
        self.outlast.write("waiting.yaml", WAITING);
        let child = self.in_real_time("exec outlast run waiting.yaml", "plan: Server overloaded");
        let shows = || self.run("outlast runs show").stdout;
        wait_for("gate", || shows().contains("asks: Publish it?"));
        child
    }

    /// Creates an interrupted run.
    pub(super) fn interrupted_run(&self) {
        self.outlast.write("slow.yaml", SLOW);
        let mut child = self.in_real_time("exec outlast run slow.yaml", "▶ plan");
        child.signal("-TERM");
        assert_eq!(child.0.wait().unwrap().code(), Some(143));
    }

    /// Starts a gateway with a held request, and returns its id.
    pub(super) fn gateway(&self) -> (Gateway<'_>, String, std::net::TcpStream) {
        let gateway = Gateway::start(&self.outlast, &["--upstream", "mock:outage:90000"]);
        let request = gateway.send(REQUEST_BODY);
        let id = gateway.wait_for_waiter();
        (gateway, id, request)
    }

    /// Starts a line in real time, and waits until stderr has the text.
    fn in_real_time(&self, line: &str, says: &'static str) -> Running {
        let mut shell = self.shell(line);
        shell.env("OUTLAST_TIME_SCALE", "1");
        let mut child = shell.stderr(Stdio::piped()).spawn().unwrap();
        let stderr = child.stderr.take().unwrap();
        let child = Running(child);
        wait_for_line(stderr, says);
        child
    }
}

impl Running {
    pub(super) fn signal(&self, name: &str) {
        let id = self.0.id().to_string();
        assert!(
            Command::new("kill")
                .args([name, &id])
                .status()
                .unwrap()
                .success()
        );
    }

    /// Waits until stdout has the text.
    pub(super) fn wait_for_stdout(&mut self, says: &'static str) {
        wait_for_line(self.0.stdout.take().unwrap(), says);
    }
}

/// Waits until a line has the text. The rest is read as well, so that the process is not blocked by
/// a full pipe.
pub(super) fn wait_for_line(stream: impl Read + Send + 'static, says: &'static str) {
    let (sender, found) = mpsc::channel();
    std::thread::spawn(move || {
        let lines = BufReader::new(stream).lines().map_while(Result::ok);
        for _ in lines.filter(|line| line.contains(says)) {
            sender.send(()).ok();
        }
    });
    assert!(
        found.recv_timeout(HANG_TIMEOUT).is_ok(),
        "nobody says {says:?}"
    );
}
