//! Hooks, with real processes.

use crate::support::{Fixture, answers, calls, fails, overloaded, stop, text, usage, usage_delta};
use crate::tools_bash::{HANG_TIMEOUT, SOON, all_gone, written_pids};
use outlast_dialect::Message;
use outlast_engine::clock::WallClock;
use outlast_kernel::event::StopReason;
use outlast_kernel::policy::{Overrides, Policy};
use outlast_session::PromptRequest;
use outlast_session::Session;
use outlast_session::hooks::{ExitReason, Hook, HookEvent, Hooks, ProblemReporter};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;
use tokio::time::{Instant, timeout};

fn hook(on: &[HookEvent], command: &str) -> Hook {
    Hook {
        events: on.to_vec(),
        command: command.to_owned(),
        timeout: HANG_TIMEOUT,
    }
}

/// The reported problems.
#[derive(Clone, Default)]
struct ReportedProblems(Arc<Mutex<Vec<String>>>);

impl ReportedProblems {
    fn report(&self) -> ProblemReporter {
        let lines = self.0.clone();
        Arc::new(move |line| lines.lock().unwrap().push(line.to_owned()))
    }

    fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

fn hooks(folder: &TempDir, hooks: Vec<Hook>) -> (Hooks, ReportedProblems) {
    let reported = ReportedProblems::default();
    let folder = folder.path().to_owned();
    let hooks = Hooks::new(hooks, folder, Vec::new(), reported.report());
    (hooks, reported)
}

/// Returns the lines written by a hook that appends its input to `lines`.
fn lines(folder: &Path) -> Vec<Value> {
    let text = fs::read_to_string(folder.join("lines")).unwrap_or_default();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn kinds(lines: &[Value]) -> Vec<&str> {
    lines
        .iter()
        .map(|line| line["type"].as_str().unwrap())
        .collect()
}

/// Returns a policy that retries at once.
fn quick() -> Policy {
    let overrides = Overrides {
        base_delay: Some(Duration::from_millis(1)),
        max_delay: Some(Duration::from_millis(1)),
        ..Overrides::default()
    };
    Policy::named("session")
        .unwrap()
        .with_overrides(overrides)
        .unwrap()
}

fn fixture(calls: impl IntoIterator<Item = crate::support::Call>) -> Fixture {
    Fixture::by(Arc::new(WallClock::default()), calls)
}

async fn ask(session: &Session) {
    let ask = PromptRequest {
        message: Some(Message::user("go")),
        ..PromptRequest::default()
    };
    session.prompt(ask).await.unwrap();
}

#[tokio::test]
async fn hook_receives_events_in_order_one_at_a_time() {
    let folder = TempDir::new().unwrap();
    // If two ran at the same time, the first would be the last to write.
    let command =
        "read -r line; [ -e slow ] && sleep 0.3; rm -f slow; printf '%s\\n' \"$line\" >> lines";
    fs::write(folder.path().join("slow"), "").unwrap();
    let (hooks, reported) = hooks(&folder, vec![hook(&HookEvent::ALL, command)]);
    let world = fixture([
        fails(overloaded()),
        vec![
            usage_delta(7, 2),
            text("…"),
            Ok(outlast_dialect::Delta::ToolCall(crate::support::call(
                "a", "read",
            ))),
            stop(StopReason::ToolUse),
        ]
        .into(),
        calls(&[("b", "forbidden")]),
        vec![usage_delta(10, 3), text("done"), stop(StopReason::EndTurn)].into(),
    ]);
    let session = Session::in_memory(world.setup_by(quick()));
    let subscription = hooks.subscribe_to(&session);
    ask(&session).await;
    drop(subscription);
    hooks.session_stopped(&session, ExitReason::Ended);
    hooks.finish(HANG_TIMEOUT).await;

    let lines = lines(folder.path());
    let expected = [
        "auto_retry_start",
        "auto_retry_end",
        "tool_start",
        "tool_end",
        "tool_end",
        "turn_end",
        "session_stopped",
    ];
    assert_eq!(kinds(&lines), expected);
    let numbers: Vec<u64> = lines
        .iter()
        .map(|line| line["seq"].as_u64().unwrap())
        .collect();
    assert!(numbers.is_sorted(), "{numbers:?}");
    for line in &lines {
        assert_eq!(line["sessionId"], session.id());
        assert_eq!(line["folder"], folder.path().to_str().unwrap());
        assert!(line["time"].as_str().unwrap().ends_with('Z'));
        assert_eq!(
            line["turnId"].is_string(),
            line["type"] != "session_stopped"
        );
    }
    assert_eq!(reported.lines(), [""; 0]);
    let own = |line: &Value, names: &[&str]| {
        let fields = names
            .iter()
            .map(|name| ((*name).to_owned(), line[*name].clone()));
        Value::Object(fields.collect())
    };
    assert_eq!(
        own(
            &lines[0],
            &["attempt", "maxAttempts", "delayMs", "errorMessage", "cause"]
        ),
        json!({"attempt": 1, "maxAttempts": lines[0]["maxAttempts"].as_u64().unwrap(), "delayMs": 1, "errorMessage": "Overloaded", "cause": "overloaded"})
    );
    assert!(lines[0]["retryAt"].as_str().unwrap().ends_with('Z'));
    assert_eq!(
        own(&lines[1], &["success", "attempt", "finalError"]),
        json!({"success": true, "attempt": 1, "finalError": null})
    );
    assert_eq!(
        own(&lines[2], &["toolCallId", "toolName", "args"]),
        json!({"toolCallId": "a", "toolName": "read", "args": {}})
    );
    assert_eq!(
        own(&lines[3], &["toolCallId", "toolName", "isError", "output"]),
        json!({"toolCallId": "a", "toolName": "read", "isError": false, "output": "a is done"})
    );
    assert_eq!(
        own(&lines[4], &["toolName", "isError"]),
        json!({"toolName": "forbidden", "isError": true})
    );
    let total = usage(17, 5);
    assert_eq!(
        own(&lines[5], &["status", "error", "usage"]),
        json!({"status": "completed", "error": null, "usage": {"input": total.input, "output": total.output, "cacheRead": 0, "cacheWrite": 0}})
    );
    assert_eq!(lines[6]["reason"], "ended");
}

#[tokio::test]
async fn hook_receives_error_of_failed_turn() {
    let folder = TempDir::new().unwrap();
    let (hooks, _) = hooks(
        &folder,
        vec![hook(
            &[HookEvent::TurnEnd, HookEvent::AutoRetryEnd],
            "cat >> lines",
        )],
    );
    let world = fixture([fails(overloaded())]);
    let overrides = Overrides {
        max_attempts: std::num::NonZeroU32::new(2),
        ..Overrides::default()
    };
    let session = Session::in_memory(world.setup_by(quick().with_overrides(overrides).unwrap()));
    let _subscription = hooks.subscribe_to(&session);
    ask(&session).await;
    hooks.finish(HANG_TIMEOUT).await;
    let lines = lines(folder.path());
    assert_eq!(kinds(&lines), ["auto_retry_end", "turn_end"]);
    assert_eq!(lines[0]["success"], false);
    assert!(
        lines[0]["finalError"]
            .as_str()
            .unwrap()
            .contains("Overloaded")
    );
    assert_eq!(lines[1]["status"], "error");
    assert_eq!(lines[1]["error"], "Overloaded");
}

/// Waits until the worker of a hook has seen the end of each of these processes.
async fn all_reaped(pids: &[String]) {
    let is_there = |pid: &String| Path::new("/proc").join(pid).exists();
    let reaped = async {
        while pids.iter().any(is_there) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(HANG_TIMEOUT, reaped).await.unwrap();
}

#[tokio::test]
async fn hanging_hook_delays_neither_session_nor_other_hooks() {
    let folder = TempDir::new().unwrap();
    let moments = [HookEvent::TurnEnd];
    let all = vec![
        hook(&moments, "echo $$ >> pids; sleep 600"),
        hook(&moments, "cat >> lines; echo $$ >> others"),
    ];
    let (hooks, reported) = hooks(&folder, all);
    let world = fixture([answers("hello")]);
    let session = Session::in_memory(world.setup());
    let _subscription = hooks.subscribe_to(&session);
    for _ in 0..3 {
        ask(&session).await;
    }
    let pids = written_pids(&folder.path().join("pids"), 1).await;
    let others = written_pids(&folder.path().join("others"), 3).await;
    all_reaped(&others).await;
    tokio::time::pause();
    let begun = Instant::now();
    hooks.finish(Duration::from_millis(500)).await;
    assert!(
        begun.elapsed() < Duration::from_millis(500) + SOON,
        "{:?}",
        begun.elapsed()
    );
    tokio::time::resume();
    assert_eq!(lines(folder.path()).len(), 3);
    all_gone(&pids).await;
    assert_eq!(
        reported.lines(),
        ["hook `echo $$ >> pids; sleep 600` was stopped: it was not done 0.5 s after the end"]
    );
    // No hook runs after `finish`.
    ask(&session).await;
    hooks.finish(HANG_TIMEOUT).await;
    assert_eq!(lines(folder.path()).len(), 3);
}

#[tokio::test]
async fn hook_timeout_kills_all_its_processes() {
    let folder = TempDir::new().unwrap();
    let slow = Hook {
        timeout: Duration::from_secs(600),
        ..hook(
            &[HookEvent::TurnEnd],
            "trap '' TERM; echo waiting >&2; (trap '' TERM; echo $BASHPID >> pids; sleep 900) & echo $$ >> pids; wait",
        )
    };
    let (hooks, reported) = hooks(&folder, vec![slow]);
    let session = Session::in_memory(fixture([answers("hello")]).setup());
    let _subscription = hooks.subscribe_to(&session);
    ask(&session).await;
    let pids = written_pids(&folder.path().join("pids"), 2).await;
    // The clock jumps ahead to the limit.
    tokio::time::pause();
    hooks.finish(Duration::from_secs(3600)).await;
    tokio::time::resume();
    all_gone(&pids).await;
    let lines = reported.lines();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(
        lines[0].ends_with("on turn_end: killed, since it took longer than 600 s: waiting"),
        "{lines:?}"
    );
}

#[tokio::test]
async fn full_hook_queue_drops_and_counts_newest_events() {
    let folder = TempDir::new().unwrap();
    let command = "cat >> lines; while [ ! -e go ]; do sleep 0.01; done";
    let (hooks, reported) = hooks(&folder, vec![hook(&[HookEvent::SessionStopped], command)]);
    let session = Session::in_memory(fixture([answers("hello")]).setup());
    hooks.session_stopped(&session, ExitReason::Ended);
    let first_runs = async {
        while lines(folder.path()).is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(HANG_TIMEOUT, first_runs).await.unwrap();
    for _ in 0..64 + 5 {
        hooks.session_stopped(&session, ExitReason::HungUp);
    }
    assert_eq!(reported.lines().len(), 1, "{:?}", reported.lines());
    assert!(reported.lines()[0].contains("is too slow: 64 events wait"));
    fs::write(folder.path().join("go"), "").unwrap();
    let until_there_is_room = async {
        while lines(folder.path()).len() < 3 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(HANG_TIMEOUT, until_there_is_room).await.unwrap();
    hooks.session_stopped(&session, ExitReason::Interrupted);
    hooks.finish(HANG_TIMEOUT).await;
    let lines = lines(folder.path());
    assert_eq!(lines.len(), 1 + 64 + 1);
    let last = lines.last().unwrap();
    assert_eq!(
        (&last["reason"], &last["dropped"]),
        (&json!("interrupted"), &json!(5))
    );
    assert!(lines[..65].iter().all(|line| line.get("dropped").is_none()));
    assert_eq!(reported.lines().len(), 1);
}

#[tokio::test]
async fn hook_failure_is_reported_once_without_escapes() {
    let folder = TempDir::new().unwrap();
    let command = r"printf '\033[31mno such\033[0m server\n\033]0;title\007' >&2; exit 7";
    let broken = hook(&[HookEvent::TurnEnd], command);
    let (hooks, reported) = hooks(
        &folder,
        vec![broken, hook(&[HookEvent::TurnEnd], "cat >> lines")],
    );
    let session = Session::in_memory(fixture([answers("hello")]).setup());
    let _subscription = hooks.subscribe_to(&session);
    ask(&session).await;
    ask(&session).await;
    hooks.finish(HANG_TIMEOUT).await;
    let reports = reported.lines();
    assert_eq!(reports.len(), 1, "{reports:?}");
    assert!(
        reports[0].ends_with("` on turn_end: exit status 7: no such server"),
        "{reports:?}"
    );
    assert!(!reports[0].contains('\u{1b}'));
    assert_eq!(lines(folder.path()).len(), 2);
}

#[tokio::test]
async fn hook_that_ignores_long_input_is_not_a_failure() {
    let folder = TempDir::new().unwrap();
    let moments = [HookEvent::ToolStart];
    let all = vec![
        hook(&moments, "exec <&-; echo ran >> ran"),
        hook(&moments, "cat >> lines"),
    ];
    let (hooks, reported) = hooks(&folder, all);
    // Together with the rest, longer than a pipe's capacity.
    let words = "x".repeat(64 * 1024 - 10);
    let mut call = crate::support::call("a", "read");
    call.arguments = json!({"a": words}).to_string();
    let wants = vec![
        Ok(outlast_dialect::Delta::ToolCall(call)),
        stop(StopReason::ToolUse),
    ];
    let session = Session::in_memory(fixture([wants.into(), answers("done")]).setup());
    let _subscription = hooks.subscribe_to(&session);
    ask(&session).await;
    hooks.finish(HANG_TIMEOUT).await;
    assert_eq!(reported.lines(), [""; 0]);
    assert_eq!(
        fs::read_to_string(folder.path().join("ran")).unwrap(),
        "ran\n"
    );
    assert_eq!(lines(folder.path())[0]["args"]["a"], words);
}

#[tokio::test]
async fn a_hook_does_not_see_hidden_variables() {
    let folder = TempDir::new().unwrap();
    let all = vec![hook(
        &[HookEvent::SessionStopped],
        "export -p > variables; cat >> lines",
    )];
    let hidden = vec!["PATH".to_owned()];
    let reported = ReportedProblems::default();
    let hooks = Hooks::new(all, folder.path().to_owned(), hidden, reported.report());
    let session = Session::in_memory(fixture([answers("hello")]).setup());
    hooks.session_stopped(&session, ExitReason::Terminated);
    hooks.finish(HANG_TIMEOUT).await;
    let variables = fs::read_to_string(folder.path().join("variables")).unwrap();
    assert!(
        variables.contains("declare -x") && !variables.contains(" PATH="),
        "{variables}"
    );
}
