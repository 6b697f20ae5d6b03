//! Tools of MCP servers with a real server process.

use crate::support::{Fixture, TestJournal, answers, calls, describe_messages};
use crate::tools::{ScriptedApprover, call, run, standard};
use crate::tools_bash::{HANG_TIMEOUT, SOON, all_gone, hold_time_until, is_alive};
use outlast_engine::CancellationToken;
use outlast_kernel::event::TurnStatus;
use outlast_session::Setup;
use outlast_session::tools::mcp::{Error, ServerConfig};
use outlast_session::tools::{ApprovalDecision, Effect, Output, Toolbox, Tools};
use serde_json::json;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::time::{Instant, timeout};

/// A folder with a server that records its requests.
struct TestServer(TempDir);

impl TestServer {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn log(&self) -> PathBuf {
        self.path().join("log")
    }

    /// Returns the server's records, without its process ids.
    fn recorded(&self) -> Vec<String> {
        recorded_in(&self.log())
    }

    /// Waits until that is the server's last record.
    async fn wait_for_record(&self, line: &str) {
        let look = async {
            while self.recorded().last().is_none_or(|last| last != line) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(HANG_TIMEOUT, look).await.unwrap();
    }

    /// Returns the ids of the server's processes, in their order.
    fn pids(&self) -> Vec<String> {
        let log = fs::read_to_string(self.log()).unwrap_or_default();
        let pids = log.lines().filter_map(|line| line.strip_prefix("pid "));
        pids.map(str::to_owned).collect()
    }

    fn server(&self, mode: &str) -> ServerConfig {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/mcp_server.sh");
        let log = self.log().to_str().unwrap().to_owned();
        ServerConfig {
            name: "test".to_owned(),
            program: "sh".to_owned(),
            arguments: vec![script.to_owned(), mode.to_owned()],
            variables: BTreeMap::from([("LOG".to_owned(), log)]),
            timeout: Duration::from_secs(60),
            effects: BTreeMap::new(),
        }
    }

    /// Creates the tools of a working server, all of them allowed.
    async fn tools(&self) -> Tools {
        let tools = standard(self.path()).with_allowed(["mcp"]);
        let (tools, problems) = tools.with_servers(vec![self.server("")]).await;
        assert_eq!(messages(&problems), [SAME_NAME]);
        tools
    }
}

fn recorded_in(log: &Path) -> Vec<String> {
    let log = fs::read_to_string(log).unwrap_or_default();
    let lines = log.lines().filter(|line| !line.starts_with("pid "));
    lines.map(str::to_owned).collect()
}

/// Two of the test server's tools differ only in a character that no provider accepts.
const SAME_NAME: &str = "`mcp__test__a_b` would be the name of several MCP tools, and is given to none: `a.b` of `test`, `a_b` of `test`";

fn messages(problems: &[Error]) -> Vec<String> {
    problems.iter().map(Error::to_string).collect()
}

fn mcp_names(tools: &Tools) -> Vec<String> {
    let names = tools.definitions().into_iter().map(|tool| tool.name);
    names.filter(|name| name.starts_with("mcp__")).collect()
}

// --- Offered tools, and results of calls ---

#[tokio::test]
async fn mcp_tools_have_provider_safe_names_and_can_be_called() {
    let place = TestServer::new();
    let tools = place.tools().await;
    let expected = [
        "mcp__test__die",
        "mcp__test__echo",
        "mcp__test__endless",
        "mcp__test__env",
        "mcp__test__fail",
        "mcp__test__gr__e_",
        "mcp__test__hang",
        "mcp__test__huge",
        "mcp__test__once",
        "mcp__test__refuse",
    ];
    assert_eq!(mcp_names(&tools), expected);
    let offered = tools.definitions();
    let echo = offered
        .iter()
        .find(|tool| tool.name.ends_with("echo"))
        .unwrap();
    assert_eq!(echo.description, "says it again");
    let schema = json!({"type": "object", "properties": {"text": {"type": "string"}}});
    assert_eq!(echo.parameters, schema);
    let fail = offered
        .iter()
        .find(|tool| tool.name.ends_with("fail"))
        .unwrap();
    assert_eq!(fail.parameters, json!({"type": "object", "properties": {}}));
    let heard = run(&tools, "mcp__test__echo", json!({"text": "you"})).await;
    assert_eq!(heard, Output::ok("heard you"));
    let strange = run(&tools, "mcp__test__gr__e_", json!({})).await;
    assert_eq!(strange, Output::ok("strange"));
    assert_eq!(place.pids().len(), 1);
}

#[tokio::test]
async fn mcp_errors_are_errors_and_long_output_is_cut() {
    let tools = TestServer::new().tools().await;
    let fail = run(&tools, "mcp__test__fail", json!({})).await;
    assert_eq!(fail, Output::error("it does not work"));
    let refused = run(&tools, "mcp__test__refuse", json!({})).await;
    assert_eq!(refused, Output::error("wrong arguments"));
    let huge = run(&tools, "mcp__test__huge", json!({})).await;
    assert!(!huge.is_error && huge.text.len() <= 64 * 1024);
    assert!(huge.text.starts_with("first") && huge.text.ends_with("last"));
}

#[tokio::test]
async fn endless_mcp_response_fails_only_its_own_call() {
    let place = TestServer::new();
    let tools = place.tools().await;
    let endless = run(&tools, "mcp__test__endless", json!({})).await;
    assert!(endless.is_error);
    assert!(
        endless
            .text
            .contains("its answer is longer than 16777216 bytes"),
        "{}",
        endless.text
    );
    let heard = run(&tools, "mcp__test__echo", json!({"text": "you"})).await;
    assert_eq!(heard, Output::ok("heard you"));
    all_gone(&place.pids()[..1]).await;
}

#[tokio::test]
async fn mcp_server_gets_its_variables_and_no_hidden_ones() {
    let place = TestServer::new();
    // Cargo gives both of them to tests.
    let tools = standard(place.path())
        .with_allowed(["test"])
        .with_hidden_variables(["CARGO_PKG_NAME"]);
    let mut server = place.server("");
    server.variables.insert("OWN".to_owned(), "mine".to_owned());
    let (tools, _) = tools.with_servers(vec![server]).await;
    let seen = run(&tools, "mcp__test__env", json!({})).await;
    let folder = place.path().canonicalize().unwrap();
    let expected = format!("[] [there] [mine] [{}]", folder.display());
    assert_eq!(seen, Output::ok(expected));
}

// --- Permissions ---

#[tokio::test]
async fn mcp_tool_is_allowed_by_mcp_server_or_tool_name() {
    let table: [(&str, &[&str]); 5] = [
        ("mcp", &["mcp__test__echo", "mcp__test__fail"]),
        ("test", &["mcp__test__echo", "mcp__test__fail"]),
        ("mcp__test__echo", &["mcp__test__echo"]),
        ("bash", &[]),
        ("mcp__other__echo", &[]),
    ];
    for (allowed, expected) in table {
        let place = TestServer::new();
        let tools = standard(place.path()).with_allowed([allowed]);
        let mut server = place.server("");
        // Even a tool that the user calls pure needs a permission.
        let pure = |name: &str| (name.to_owned(), Effect::Pure);
        server.effects = BTreeMap::from(["echo", "fail"].map(pure));
        let (tools, _) = tools.with_servers(vec![server]).await;
        let mut ran = Vec::new();
        for name in ["mcp__test__echo", "mcp__test__fail"] {
            if tools.admit(&call(name, json!({}))).await.is_ok() {
                ran.push(name);
            }
        }
        assert_eq!(ran, expected, "{allowed}");
        let refused = tools.admit(&call("mcp__test__hang", json!({}))).await;
        let refusal = "`mcp__test__hang` was not run: it is not allowed here";
        let is_refused = refused == Err(refusal.to_owned());
        assert_eq!(is_refused, expected.len() < 2, "{allowed}: {refused:?}");
        // A server none of whose tools could run is not started.
        assert_eq!(place.pids().is_empty(), expected.is_empty(), "{allowed}");
    }
}

#[tokio::test]
async fn mcp_tool_call_can_be_refused_or_approved() {
    let place = TestServer::new();
    let tools = standard(place.path()).with_allowed(["mcp__test__fail"]);
    let (tools, _) = tools.with_servers(vec![place.server("")]).await;
    let refused = run(&tools, "mcp__test__echo", json!({"text": "a"})).await;
    assert_eq!(
        refused,
        Output::error("`mcp__test__echo` was not run: it is not allowed here")
    );
    let person =
        ScriptedApprover::deciding(&[ApprovalDecision::Deny, ApprovalDecision::AllowAlways]);
    let tools = standard(place.path()).with_approver(person.clone());
    let (tools, _) = tools.with_servers(vec![place.server("")]).await;
    let mut heard = Vec::new();
    for _ in 0..3 {
        heard.push(run(&tools, "mcp__test__echo", json!({"text": "a"})).await);
    }
    let refused = "`mcp__test__echo` was not run: the user did not allow it";
    let expected = [
        Output::error(refused),
        Output::ok("heard a"),
        Output::ok("heard a"),
    ];
    assert_eq!(heard, expected);
    let question = (
        "mcp__test__echo".to_owned(),
        "mcp__test__echo: {\"text\":\"a\"}".to_owned(),
    );
    assert_eq!(person.requests(), [question.clone(), question]);
}

#[tokio::test]
async fn mcp_tool_effect_comes_from_user_and_not_from_server() {
    let place = TestServer::new();
    let tools = standard(place.path()).with_allowed(["mcp"]);
    let mut server = place.server("");
    let set = [("fail", Effect::Idempotent), ("echos", Effect::Pure)];
    server.effects = set.map(|(name, effect)| (name.to_owned(), effect)).into();
    let (tools, problems) = tools.with_servers(vec![server]).await;
    let unknown = "the MCP server `test` has no tool `echos`, whose effect is set";
    assert_eq!(messages(&problems), [unknown, SAME_NAME]);
    for (name, effect) in [("echo", Effect::AtMostOnce), ("fail", Effect::Idempotent)] {
        let call = call(&format!("mcp__test__{name}"), json!({}));
        assert_eq!(tools.admit(&call).await, Ok(effect), "{name}");
    }
}

// --- Servers that break ---

#[tokio::test]
async fn dead_mcp_server_fails_its_call_and_restarts_for_next() {
    let place = TestServer::new();
    let tools = place.tools().await;
    let died = run(&tools, "mcp__test__die", json!({})).await;
    let expected = "its server `test` ended before it answered; the call may have partly run. The server said: out of memory";
    assert_eq!(died, Output::error(expected));
    let heard = run(&tools, "mcp__test__echo", json!({"text": "you"})).await;
    assert_eq!(heard, Output::ok("heard you"));
    assert_eq!(place.recorded(), ["die", "echo"], "nothing is asked twice");
    assert_eq!(place.pids().len(), 2);
}

#[tokio::test]
async fn mcp_server_is_given_up_after_three_starts() {
    let place = TestServer::new();
    let tools = place.tools().await;
    for _ in 0..3 {
        let died = run(&tools, "mcp__test__die", json!({})).await;
        assert!(died.text.contains("may have partly run"), "{}", died.text);
    }
    let given_up = run(&tools, "mcp__test__die", json!({})).await;
    let expected = "it was not run: its server `test` was started 3 times and has answered nothing; it is not started again";
    assert_eq!(given_up, Output::error(expected));
    assert_eq!(place.recorded(), ["die"; 3]);
}

#[tokio::test]
async fn mcp_server_that_died_between_calls_restarts_silently() {
    let place = TestServer::new();
    let tools = place.tools().await;
    let pid = place.pids().remove(0).parse().unwrap();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::SIGKILL).unwrap();
    all_gone(&place.pids()).await;
    // The server's output is closed, which is noticed as soon as the runtime has nothing else to do.
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let heard = run(&tools, "mcp__test__echo", json!({"text": "you"})).await;
    assert_eq!(heard, Output::ok("heard you"));
}

#[tokio::test]
async fn failed_mcp_servers_are_named_and_others_still_work() {
    let place = TestServer::new();
    let tools = standard(place.path()).with_allowed(["mcp"]);
    let named = |name: &str, server: ServerConfig| {
        let name = name.to_owned();
        ServerConfig { name, ..server }
    };
    let program = "/no/such/program".to_owned();
    let missing = ServerConfig {
        program,
        ..place.server("")
    };
    let servers = vec![
        named("missing", missing),
        named("broken", place.server("broken")),
        place.server(""),
    ];
    let (tools, problems) = tools.with_servers(servers).await;
    let [missing, broken, same] = &messages(&problems)[..] else {
        panic!("{problems:?}");
    };
    let expected = "the MCP server `missing` could not be started: /no/such/program: No such file or directory (os error 2)";
    assert_eq!(missing, expected);
    let expected =
        "the MCP server `broken` does not work: it ended before it had introduced itself; ";
    assert!(broken.starts_with(expected), "{broken}");
    assert!(
        broken.contains("it said: there is no such database"),
        "{broken}"
    );
    assert!(
        !broken.contains("0123456789abcdef"),
        "a key is repeated: {broken}"
    );
    assert_eq!(same, SAME_NAME);
    let heard = run(&tools, "mcp__test__echo", json!({"text": "you"})).await;
    assert_eq!(heard, Output::ok("heard you"));
}

// The clock jumps ahead while the server says nothing.
#[tokio::test(start_paused = true)]
async fn silent_mcp_server_times_out_at_start() {
    let place = TestServer::new();
    let tools = standard(place.path()).with_allowed(["mcp"]);
    let (tools, problems) = tools.with_servers(vec![place.server("mute")]).await;
    let expected = "the MCP server `test` does not work: it has not introduced itself within 60s";
    assert_eq!(messages(&problems), [expected]);
    assert_eq!(mcp_names(&tools), [""; 0]);
    tokio::time::resume();
    all_gone(&place.pids()).await;
}

// --- Closing ---

#[tokio::test]
async fn hanging_mcp_call_is_cancelled_and_server_is_notified() {
    for mode in ["", "stubborn"] {
        let place = TestServer::new();
        let tools = standard(place.path()).with_allowed(["mcp"]);
        let (tools, _) = tools.with_servers(vec![place.server(mode)]).await;
        let cancel = CancellationToken::new();
        let hang = call("mcp__test__hang", json!({}));
        let stop = async {
            place.wait_for_record("hang").await;
            tokio::time::pause();
            let start = Instant::now();
            let log = place.log();
            let is_told = move || {
                recorded_in(&log)
                    .last()
                    .is_some_and(|last| last == "cancelled")
            };
            let told = hold_time_until(is_told);
            cancel.cancel();
            told.await.unwrap();
            start
        };
        let ended = async {
            let output = tools.run(&hang, cancel.clone()).await;
            (output, Instant::now())
        };
        let ((output, end), start) = tokio::join!(ended, stop);
        tokio::time::resume();
        assert!(end - start <= SOON, "{mode}: {:?}", end - start);
        let expected = "`mcp__test__hang` was interrupted; it may have partly run";
        assert_eq!(output, Output::error(expected), "{mode}");
        all_gone(&place.pids()).await;
        assert_eq!(place.recorded(), ["hang", "cancelled"], "{mode}");
        let heard = run(&tools, "mcp__test__echo", json!({"text": "you"})).await;
        assert_eq!(heard, Output::ok("heard you"), "{mode}");
    }
}

#[tokio::test]
async fn mcp_call_times_out_after_server_timeout() {
    let place = TestServer::new();
    let tools = standard(place.path()).with_allowed(["mcp"]);
    let mut server = place.server("");
    server.timeout = Duration::from_millis(300);
    let (tools, _) = tools.with_servers(vec![server]).await;
    let late = run(&tools, "mcp__test__hang", json!({})).await;
    let expected =
        "`mcp__test__hang` took longer than 300ms and was stopped; it may have partly run";
    assert_eq!(late, Output::error(expected));
    all_gone(&place.pids()).await;
}

#[tokio::test]
async fn mcp_servers_end_when_tools_are_closed_or_dropped() {
    for mode in ["", "stubborn"] {
        let place = TestServer::new();
        let tools = standard(place.path()).with_allowed(["mcp"]);
        let (tools, _) = tools.with_servers(vec![place.server(mode)]).await;
        assert!(is_alive(&place.pids()[0]));
        tools.close().await;
        // A killed process is gone as soon as the machine has reaped it.
        all_gone(&place.pids()).await;
        let (tools, _) = standard(place.path())
            .with_allowed(["mcp"])
            .with_servers(vec![place.server(mode)])
            .await;
        drop(tools);
        all_gone(&place.pids()).await;
    }
}

// --- Across a restart ---

/// Prompts for a call that hangs, dies in the middle of it and resumes in another process.
async fn after_a_restart(effect: Option<Effect>) -> (TestServer, Vec<String>) {
    let (place, kept) = (TestServer::new(), TestJournal::new());
    let scripts = [calls(&[("first", "mcp__test__once")]), answers("all done")];
    let world = Fixture::new(scripts);
    let setup = async || {
        let mut server = place.server("");
        server.effects = effect
            .map(|effect| ("once".to_owned(), effect))
            .into_iter()
            .collect();
        let tools = standard(place.path()).with_allowed(["mcp"]);
        let (tools, _) = tools.with_servers(vec![server]).await;
        Setup {
            tools: Some(Arc::new(tools)),
            ..world.setup()
        }
    };
    let session = kept.begin(setup().await).await;
    tokio::select! {
        _ = session.prompt("go on".into()) => panic!("the tool has no end"),
        () = place.wait_for_record("once") => {}
    }
    let id = session.id().to_owned();
    drop(session);
    all_gone(&place.pids()).await;
    let session = kept.open(&id, setup().await).await;
    let ended = session.resume().await.unwrap();
    assert_eq!(ended.seal, TurnStatus::Completed);
    let said = describe_messages(&session.messages());
    (place, said)
}

#[tokio::test]
async fn mcp_call_interrupted_by_restart_is_not_repeated() {
    let (place, said) = after_a_restart(None).await;
    assert_eq!(place.recorded(), ["once"]);
    let told = "first! it was interrupted by a restart and may have partly run, or may still be running; it was not run again";
    assert_eq!(said, ["go on", "mcp__test__once(first)", told, "all done"]);
}

#[tokio::test]
async fn idempotent_mcp_call_is_repeated_after_restart() {
    let (place, said) = after_a_restart(Some(Effect::Idempotent)).await;
    assert_eq!(place.recorded(), ["once", "once"]);
    assert_eq!(said[2], "first: done at last");
}
