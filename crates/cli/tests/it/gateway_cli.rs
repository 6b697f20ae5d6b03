//! `outlast gateway` from outside: its output, the agents that it starts, its controls and its end.

use crate::mock_server::wait_for;
use crate::support::{CommandResult, Outlast};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

const SETTINGS: &str = "home/outlast.toml";
pub(crate) const REQUEST_BODY: &str =
    r#"{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"hi"}]}"#;

/// A running gateway; dropping it ends the process.
pub(crate) struct Gateway<'a> {
    outlast: &'a Outlast,
    pub(crate) address: String,
    child: Child,
}

impl<'a> Gateway<'a> {
    pub(crate) fn start(outlast: &'a Outlast, arguments: &[&str]) -> Self {
        let arguments = [&["gateway", "--listen", "127.0.0.1:0"], arguments].concat();
        let mut child = outlast
            .command(&arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let stdout = BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line);
        stdout.unwrap();
        let address = line.trim().strip_prefix("listening on http://");
        let Some(address) = address.map(str::to_owned) else {
            let mut said = String::new();
            child
                .stderr
                .take()
                .unwrap()
                .read_to_string(&mut said)
                .unwrap();
            panic!("{line:?} {said}");
        };
        Self {
            outlast,
            address,
            child,
        }
    }

    /// Sends a request.
    pub(crate) fn send(&self, body: &str) -> TcpStream {
        let mut socket = TcpStream::connect(&self.address).unwrap();
        let head = format!(
            "POST /v1/messages HTTP/1.1\r\nhost: {}\r\nconnection: close\r\nx-api-key: k\r\ncontent-length: {}\r\n\r\n",
            self.address,
            body.len()
        );
        socket.write_all((head + body).as_bytes()).unwrap();
        socket
    }

    /// Sends a request and returns its whole response.
    fn ask(&self) -> String {
        answer(self.send(REQUEST_BODY))
    }

    fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args([name, &id]).status().unwrap();
        assert!(sent.success());
    }

    fn status(&self) -> Value {
        let ran = self.outlast.run(&["gateway", "status", "--json"]);
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
        serde_json::from_str(&ran.stdout).unwrap()
    }

    pub(crate) fn wait_for_waiter(&self) -> String {
        wait_for("request that waits", || self.waiting().is_some());
        self.waiting().unwrap()
    }

    /// Returns the id of a held request.
    fn waiting(&self) -> Option<String> {
        let id = &self.status()["waiting"][0]["id"];
        id.as_str().map(str::to_owned)
    }

    /// Returns the exit code and stderr.
    fn ended(mut self) -> (i32, String) {
        let mut said = String::new();
        let stderr = self.child.stderr.take();
        stderr.unwrap().read_to_string(&mut said).unwrap();
        (self.child.wait().unwrap().code().unwrap_or(-1), said)
    }
}

impl Drop for Gateway<'_> {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn answer(mut socket: TcpStream) -> String {
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    answer
}

fn run(outlast: &Outlast, program: &[&str]) -> CommandResult {
    let before = ["gateway", "run", "--upstream", "mock:ok", "--"];
    outlast.run(&[&before, program].concat())
}

// --- serving ---

#[test]
fn gateway_publishes_address_serves_and_stops_cleanly() {
    let outlast = Outlast::new();
    let gateway = Gateway::start(&outlast, &["--upstream", "mock:overloaded:2"]);
    let port = gateway.address.split_once(':').unwrap().1.to_owned();
    let place = outlast.home().join(format!("gateway-{port}.json"));
    let left: Value = serde_json::from_slice(&std::fs::read(&place).unwrap()).unwrap();
    assert_eq!(left["address"], gateway.address);
    let answered = gateway.ask();
    assert!(answered.starts_with("HTTP/1.1 200"), "{answered}");
    assert!(answered.contains("x-outlast-attempts: "), "{answered}");
    gateway.signal("-TERM");
    let (code, said) = gateway.ended();
    assert_eq!(code, 0, "{said}");
    assert!(
        said.contains("Server overloaded (attempt 1), next try in"),
        "{said}"
    );
    assert!(said.contains("unknown m answered ("), "{said}");
    assert!(!place.exists());
}

#[test]
fn gateway_log_can_be_json_or_off() {
    let outlast = Outlast::new();
    for (form, lines) in [("json", true), ("off", false)] {
        let gateway = Gateway::start(&outlast, &["--upstream", "mock:ok", "--log", form]);
        gateway.ask();
        gateway.signal("-INT");
        let (code, said) = gateway.ended();
        assert_eq!((code, !said.is_empty()), (0, lines), "{said}");
        let events = said
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        let finished = events.filter(|event| event["event"] == "finished").count();
        assert_eq!(finished, usize::from(lines));
    }
}

#[test]
fn gateway_refuses_to_start_with_invalid_settings() {
    let outlast = Outlast::new();
    let table = [
        (
            &["--upstream", "host"][..],
            "gateway.upstream: expected an address",
        ),
        (
            &["--upstream", "mock:nonsense"],
            "gateway.upstream: expected an address",
        ),
        (&["--policy", "overnite"], "did you mean `overnight`?"),
        (
            &["--listen", "localhost"],
            "gateway.listen: expected an address and a port",
        ),
        (
            &["--client", "cladue"],
            "there is no client `cladue`; there are claude-code,",
        ),
        (
            &[
                "--listen",
                "127.0.0.1:4999",
                "--upstream",
                "http://localhost:4999/v1",
            ],
            "is this gateway itself",
        ),
    ];
    for (arguments, problem) in table {
        let ran = outlast.run(&[&["gateway"], arguments].concat());
        assert_eq!(ran.code, 2, "{arguments:?} {}", ran.stderr);
        assert!(ran.stderr.contains(problem), "{}", ran.stderr);
    }
    outlast.write(SETTINGS, "[gateway]\nuse_accounts = true\n");
    let ran = outlast.run(&["gateway", "--listen", "127.0.0.1:0"]);
    assert!(
        ran.stderr.contains("there is no account and no key to use"),
        "{}",
        ran.stderr
    );
}

#[test]
fn gateway_reports_address_in_use() {
    let outlast = Outlast::new();
    let gateway = Gateway::start(&outlast, &["--upstream", "mock:ok"]);
    let ran = outlast.run(&["gateway", "--listen", &gateway.address]);
    assert_eq!(ran.code, 1);
    assert!(
        ran.stderr.contains("cannot listen on 127.0.0.1:"),
        "{}",
        ran.stderr
    );
    assert!(gateway.ask().starts_with("HTTP/1.1 200"));
}

#[test]
fn untrusted_project_cannot_set_gateway_upstream() {
    let outlast = Outlast::new();
    outlast.write(
        "outlast.toml",
        "[gateway]\nupstream = \"https://evil.example\"\n",
    );
    let ran = outlast.run(&["gateway", "env", "claude"]);
    assert_eq!(ran.code, 0);
    assert!(
        ran.stderr.contains("ignoring gateway.upstream"),
        "{}",
        ran.stderr
    );
}

// --- reloading settings ---

#[test]
fn gateway_reloads_settings_on_file_change_or_sighup() {
    let outlast = Outlast::new();
    let upstream =
        |script: &str| format!("[gateway]\nupstream = \"mock:{script}\"\npolicy = \"none\"\n");
    outlast.write(SETTINGS, upstream("ok"));
    let gateway = Gateway::start(&outlast, &[]);
    assert!(gateway.ask().starts_with("HTTP/1.1 200"));
    outlast.write(SETTINGS, upstream("error:404,times=always"));
    wait_for("change", || gateway.ask().starts_with("HTTP/1.1 404"));
    outlast.write(SETTINGS, upstream("error:403,times=always"));
    gateway.signal("-HUP");
    wait_for("change", || gateway.ask().starts_with("HTTP/1.1 403"));
    outlast.write(SETTINGS, "[gateway]\nupstream = \"nowhere\"\n");
    gateway.signal("-HUP");
    gateway.signal("-HUP");
    assert!(
        gateway.ask().starts_with("HTTP/1.1 403"),
        "the old ones stay"
    );
    gateway.signal("-TERM");
    let (_, said) = gateway.ended();
    assert!(said.contains("● the settings are read again"), "{said}");
}

#[test]
fn invalid_settings_on_reload_are_reported_and_ignored() {
    let outlast = Outlast::new();
    let mut gateway = Gateway::start(&outlast, &["--upstream", "mock:ok"]);
    outlast.write(SETTINGS, "[gateway]\nzebra = 1\n");
    gateway.signal("-HUP");
    let mut line = String::new();
    let mut said = BufReader::new(gateway.child.stderr.take().unwrap());
    said.read_line(&mut line).unwrap();
    assert!(line.contains("✗ the settings are not taken: "), "{line}");
    assert!(line.contains("outlast.toml:2:1: gateway.zebra"), "{line}");
    assert!(gateway.ask().starts_with("HTTP/1.1 200"));
}

// --- an agent and a gateway together ---

#[test]
fn gateway_run_sets_base_urls_in_environment() {
    let outlast = Outlast::new();
    let script = "echo \"$ANTHROPIC_BASE_URL $OPENAI_BASE_URL $OPENAI_API_BASE\"";
    let ran = run(&outlast, &["sh", "-c", script]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    let urls: Vec<&str> = ran.stdout.split_whitespace().collect();
    assert!(urls[0].starts_with("http://127.0.0.1:"), "{urls:?}");
    let with_version = format!("{}/v1", urls[0]);
    assert_eq!(urls[1..], [&with_version; 2]);
}

#[test]
fn gateway_run_returns_exit_code_of_program() {
    let outlast = Outlast::new();
    assert_eq!(run(&outlast, &["sh", "-c", "exit 7"]).code, 7);
    assert_eq!(run(&outlast, &["sh", "-c", "kill -KILL $$"]).code, 137);
    let ran = run(&outlast, &["no-such-program"]);
    assert_eq!(ran.code, 1);
    assert!(
        ran.stderr.contains("cannot start `no-such-program`"),
        "{}",
        ran.stderr
    );
    let left = std::fs::read_dir(outlast.home()).unwrap();
    let left = left.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let left: Vec<String> = left.filter(|name| name.starts_with("gateway-")).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn gateway_run_forwards_signals_to_program() {
    let outlast = Outlast::new();
    let script = "trap 'exit 9' INT TERM HUP; echo ready; while :; do sleep 0.05; done";
    for signal in ["-INT", "-TERM", "-HUP"] {
        let mut child = outlast
            .command(&[
                "gateway",
                "run",
                "--upstream",
                "mock:ok",
                "--",
                "sh",
                "-c",
                script,
            ])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        stdout.read_line(&mut line).unwrap();
        let id = child.id().to_string();
        Command::new("kill").args([signal, &id]).status().unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(9), "{signal}");
    }
}

#[test]
fn gateway_run_configures_each_known_agent() {
    let outlast = Outlast::new();
    let show = "#!/bin/sh\nfor word; do echo \"$word\"; done\nenv | grep -E '^(ANTHROPIC|CLAUDE|OPENAI|OPENCODE|API)_' | sort\n";
    let show = format!("{show}case \"$1\" in -e) cat \"$2\";; esac\n");
    let mut all = String::new();
    for agent in ["claude", "codex", "opencode", "aider", "pi"] {
        let path = format!("bin/{agent}");
        outlast.write(&path, &show);
        let path = outlast.folder.path().join(path);
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&path, mode).unwrap();
        let ran = run(&outlast, &[path.to_str().unwrap(), "typed"]);
        assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{agent}");
        all += &format!("== {agent}\n{}", outlast.anonymous(&ran.stdout));
    }
    insta::assert_snapshot!(without_ports(&all));
}

/// Replaces ports, which differ between runs.
fn without_ports(text: &str) -> String {
    let mut rest = text;
    let mut result = String::new();
    while let Some(at) = ["127.0.0.1:", "gateway-"]
        .iter()
        .filter_map(|before| Some(rest.find(before)? + before.len()))
        .min()
    {
        let (before, after) = rest.split_at(at);
        let digits = after.bytes().take_while(u8::is_ascii_digit).count();
        result += before;
        result += "PORT";
        rest = &after[digits..];
    }
    result + rest
}

// --- client settings ---

#[test]
fn gateway_env_prints_address_of_running_gateway() {
    let outlast = Outlast::new();
    let env = |arguments: &[&str]| {
        outlast
            .run(&[&["gateway", "env"], arguments].concat())
            .stdout
    };
    assert_eq!(
        env(&["openai"]),
        "export OPENAI_BASE_URL=http://127.0.0.1:4180/v1\n"
    );
    let gateway = Gateway::start(&outlast, &["--upstream", "mock:ok"]);
    let url = format!("http://{}", gateway.address);
    assert_eq!(
        env(&["anthropic"]),
        format!("export ANTHROPIC_BASE_URL={url}\n")
    );
    assert_eq!(
        env(&["anthropic", "--shell", "fish", "--port", "7"]),
        "set -gx ANTHROPIC_BASE_URL http://127.0.0.1:7\n"
    );
}

// --- held requests ---

#[test]
fn gateway_commands_report_no_running_gateway() {
    let outlast = Outlast::new();
    for arguments in [&["status"][..], &["retry-now"], &["cancel", "x"]] {
        let ran = outlast.run(&[&["gateway"], arguments].concat());
        assert_eq!(ran.code, 2);
        assert_eq!(
            ran.stderr,
            "error: no gateway runs; `outlast gateway` starts one\n"
        );
    }
}

#[test]
fn status_shows_held_request_and_retry_now_retries_it() {
    let outlast = Outlast {
        scale: "1",
        ..Outlast::new()
    };
    let gateway = Gateway::start(
        &outlast,
        &["--upstream", "mock:rate-limited:retry-after=3600"],
    );
    let _asked = gateway.send(REQUEST_BODY);
    let id = gateway.wait_for_waiter();
    let shown = outlast.run(&["gateway", "status"]).stdout;
    assert!(shown.contains("1 waiting"), "{shown}");
    let words = [
        &id,
        "Usage limit reached",
        "attempt 1",
        "next try in ",
        ", at ",
    ];
    assert!(words.iter().all(|word| shown.contains(word)), "{shown}");
    let ran = outlast.run(&["gateway", "retry-now", &id[id.len() - 8..]]);
    assert_eq!(
        (ran.code, ran.stdout.as_str()),
        (0, "1 request tries again.\n"),
        "{}",
        ran.stderr
    );
    let attempts = || gateway.status()["waiting"][0]["attempts"].as_u64();
    wait_for("second attempt", || attempts() == Some(2));
    assert_eq!(
        outlast.run(&["gateway", "retry-now"]).stdout,
        "1 request tries again.\n"
    );
    wait_for("third attempt", || attempts() == Some(3));
}

#[test]
fn gateway_cancel_ends_held_request() {
    let outlast = Outlast {
        scale: "1",
        ..Outlast::new()
    };
    let gateway = Gateway::start(
        &outlast,
        &["--upstream", "mock:rate-limited:retry-after=3600"],
    );
    let asked = gateway.send(REQUEST_BODY);
    let id = gateway.wait_for_waiter();
    let ran = outlast.run(&["gateway", "cancel", "nonsense"]);
    assert_eq!(ran.code, 2);
    assert!(
        ran.stderr.contains("no request `nonsense` waits"),
        "{}",
        ran.stderr
    );
    let ran = outlast.run(&["gateway", "cancel", &id]);
    assert_eq!(
        (ran.code, ran.stdout.as_str()),
        (0, "It is cancelled.\n"),
        "{}",
        ran.stderr
    );
    let answered = answer(asked);
    assert!(!answered.starts_with("HTTP/1.1 200"), "{answered}");
}

#[test]
fn status_lists_all_gateways_or_one_by_port() {
    let outlast = Outlast::new();
    let one = Gateway::start(&outlast, &["--upstream", "mock:ok"]);
    let other = Gateway::start(&outlast, &["--upstream", "mock:ok"]);
    let shown = outlast.run(&["gateway", "status"]).stdout;
    assert!(
        shown.contains(&one.address) && shown.contains(&other.address),
        "{shown}"
    );
    let port = one.address.split_once(':').unwrap().1;
    let shown = outlast.run(&["gateway", "status", "--port", port]).stdout;
    assert!(
        shown.contains(&one.address) && !shown.contains(&other.address),
        "{shown}"
    );
}
