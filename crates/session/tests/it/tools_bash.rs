//! `bash` with real processes. Limits are measured on a clock that is paused when they begin to count.

use crate::tools::{call, run, standard};
use outlast_engine::CancellationToken;
use outlast_engine::clock::TimerClock;
use outlast_kernel::Timestamp;
use outlast_session::tools::{Output, Toolbox, Tools};
use serde_json::json;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

/// The longest time from a cancel to the end of all started processes, by the paused clock.
pub(crate) const SOON: Duration = Duration::from_millis(250);
/// Fails a test that would hang.
pub(crate) const HANG_TIMEOUT: Duration = Duration::from_secs(120);

fn with_bash(folder: &Path) -> Tools {
    standard(folder).with_allowed(["bash"])
}

async fn bash(tools: &Tools, command: &str) -> Output {
    run(tools, "bash", json!({"command": command})).await
}

/// Returns whether the process runs; one that has ended but is not reaped does not.
pub(crate) fn is_alive(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit_once(") ")
        .and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| state != 'Z')
}

/// Returns the process ids that a command writes, once there are that many.
pub(crate) async fn written_pids(file: &Path, count: usize) -> Vec<String> {
    let look = async {
        loop {
            let text = fs::read_to_string(file).unwrap_or_default();
            let pids: Vec<_> = text.lines().map(str::to_owned).collect();
            if pids.len() == count && text.ends_with('\n') {
                return pids;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(HANG_TIMEOUT, look).await.unwrap()
}

/// Keeps a paused clock from jumping ahead until `is_so` returns true: real processes need real time.
pub(crate) fn hold_time_until(is_so: impl Fn() -> bool + Send + 'static) -> JoinHandle<()> {
    // Tokio does not advance a paused clock while a blocking task runs.
    tokio::task::spawn_blocking(move || {
        let start = std::time::Instant::now();
        while !is_so() {
            assert!(start.elapsed() < HANG_TIMEOUT, "it never is so");
            std::thread::sleep(Duration::from_millis(2));
        }
    })
}

/// Waits in real time until these processes have ended.
pub(crate) async fn all_gone(pids: &[String]) {
    let look = async {
        while pids.iter().any(|pid| is_alive(pid)) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(
        timeout(HANG_TIMEOUT, look).await.is_ok(),
        "{pids:?} live on"
    );
}

/// The reaction of the command to the cancel.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CancelReaction {
    /// It runs as long as it can.
    Stays,
    /// Its first process ends, as soon as the machine lets it.
    Ends,
}

/// Runs the command until it has written its process ids, and cancels it then, on a paused clock.
async fn cancelled(
    command: &str,
    count: usize,
    then: CancelReaction,
) -> (Output, Duration, Vec<String>) {
    let folder = TempDir::new().unwrap();
    let tools = with_bash(folder.path());
    let cancel = CancellationToken::new();
    let bash = call("bash", json!({"command": command}));
    let file = folder.path().join("pids");
    let stop = async {
        let pids = written_pids(&file, count).await;
        assert!(pids.iter().all(|pid| is_alive(pid)), "{pids:?}");
        tokio::time::pause();
        let start = Instant::now();
        let first = pids[0].clone();
        let ends =
            (then == CancelReaction::Ends).then(|| hold_time_until(move || !is_alive(&first)));
        cancel.cancel();
        if let Some(ends) = ends {
            ends.await.unwrap();
        }
        (start, pids)
    };
    let ended = async {
        let output = tools.run(&bash, cancel.clone()).await;
        (output, Instant::now())
    };
    let ((output, end), (start, pids)) = tokio::join!(ended, stop);
    tokio::time::resume();
    (output, end - start, pids)
}

#[tokio::test]
async fn bash_returns_both_streams_in_order_and_exit_status() {
    let folder = TempDir::new().unwrap();
    let tools = with_bash(folder.path());
    let both = bash(&tools, "echo one; echo two >&2; echo three; echo four >&2").await;
    assert_eq!(both, Output::ok("one\ntwo\nthree\nfour\n"));
    let table = [
        ("echo no; exit 3", Output::error("no\n[exit status 3]")),
        ("false", Output::error("exit status 1")),
        ("kill -9 $$", Output::error("killed by signal 9")),
        ("true", Output::ok("[no output]")),
        ("cat", Output::ok("[no output]")),
        (
            "printf '\\033[31mred\\033[0m 1%%\\r2%%\\r\\n'",
            Output::ok("red 1%\n2%\n"),
        ),
        ("printf 'caf\\351'", Output::ok("caf\u{fffd}")),
        ("exec >&- 2>&-; exit 4", Output::error("exit status 4")),
        (
            "tty; (: </dev/tty) 2>/dev/null || echo no terminal",
            Output::ok("not a tty\nno terminal\n"),
        ),
    ];
    for (command, expected) in table {
        assert_eq!(bash(&tools, command).await, expected, "{command}");
    }
}

#[tokio::test]
async fn bash_runs_in_folder_without_hidden_variables() {
    let folder = TempDir::new().unwrap();
    let place = folder.path().canonicalize().unwrap();
    let seen = bash(
        &with_bash(&place),
        "pwd; echo ${PATH:+path} ${CARGO_MANIFEST_DIR:+manifest}",
    )
    .await;
    assert_eq!(seen.text, format!("{}\npath manifest\n", place.display()));
    let hiding = with_bash(&place).with_hidden_variables(["CARGO_MANIFEST_DIR", "NOT_THERE"]);
    let hidden = bash(
        &hiding,
        "echo ${PATH:+path} ${CARGO_MANIFEST_DIR:+manifest}; env",
    )
    .await;
    assert!(hidden.text.starts_with("path\n"), "{}", hidden.text);
    assert!(
        !hidden.text.contains("CARGO_MANIFEST_DIR"),
        "{}",
        hidden.text
    );
}

#[tokio::test]
async fn bash_in_missing_folder_is_an_error() {
    let folder = TempDir::new().unwrap();
    let tools = with_bash(&folder.path().join("gone"));
    let output = bash(&tools, "true").await;
    assert!(
        output.text.starts_with("no shell could be started in "),
        "{}",
        output.text
    );
}

#[tokio::test]
async fn a_gibibyte_of_output_stays_in_bounds() {
    let folder = TempDir::new().unwrap();
    let tools = with_bash(folder.path());
    let output = bash(&tools, "echo first; yes | head -c 1073741824; echo last").await;
    assert!(!output.is_error && output.text.len() <= 64 * 1024);
    assert!(output.text.starts_with("first\ny\n") && output.text.ends_with("y\nlast\n"));
    let left_out = 1_073_741_824 + 11 - 63 * 1024;
    assert!(
        output
            .text
            .contains(&format!("[{left_out} bytes were left out here]"))
    );
    let binary = bash(&tools, "head -c 3000000 /dev/urandom").await;
    assert!(binary.text.len() <= 64 * 1024);
}

#[tokio::test]
async fn background_process_does_not_delay_bash_and_survives() {
    let folder = TempDir::new().unwrap();
    let tools = with_bash(folder.path());
    for background in ["sleep 1000", "yes", "setsid sleep 1000"] {
        let command = format!("echo hi; {background} & echo $! > pid");
        let output = timeout(HANG_TIMEOUT, bash(&tools, &command)).await;
        let output = output.unwrap_or_else(|_| panic!("`{background}` is waited for"));
        assert!(!output.is_error, "{}", output.text);
        assert!(output.text.contains("hi\n") && output.text.len() <= 64 * 1024);
        let pid = fs::read_to_string(folder.path().join("pid")).unwrap();
        // The output of `yes` has no reader any more, which ends it.
        if background != "yes" {
            assert!(is_alive(pid.trim()), "{background}");
        }
        bash(&tools, &format!("kill {pid}")).await;
    }
}

#[tokio::test]
async fn cancel_kills_command_and_all_its_processes() {
    let stubborn = "trap '' TERM; echo begun; for i in 1 2 3; do (trap '' TERM; echo $BASHPID >> pids; while :; do sleep 1; done) & done; wait";
    let table = [
        (stubborn, 3),
        (
            "sleep 1000 & echo $! > pids; echo begun; echo $$ >> pids; wait",
            2,
        ),
        (
            "echo begun; timeout 1000 bash -c 'echo $$ > pids; sleep 1000; :'; echo never",
            1,
        ),
        ("echo begun; set -m; sleep 1000 & echo $! > pids; wait", 1),
        (
            "echo begun; kill -STOP $BASHPID & echo $$ > pids; kill -STOP $$",
            1,
        ),
    ];
    for (command, count) in table {
        let (output, took, pids) = cancelled(command, count, CancelReaction::Stays).await;
        assert!(took < SOON, "{command} took {took:?}");
        all_gone(&pids).await;
        assert_eq!(
            output,
            Output::error("begun\n[`bash` was interrupted; it may have partly run]")
        );
    }
}

#[tokio::test]
async fn a_cancelled_command_may_clean_up() {
    let cleaning = "trap 'echo cleaned; exit' TERM; echo $$ > pids; while :; do sleep 0.01; done";
    let (output, took, _) = cancelled(cleaning, 1, CancelReaction::Ends).await;
    assert!(took < SOON, "{took:?}");
    assert!(output.text.contains("cleaned\n["), "{}", output.text);
}

#[tokio::test]
async fn detached_process_does_not_delay_cancel() {
    let leaving = "setsid bash -c 'echo $$ > pids; exec sleep 1000' & wait";
    let (output, took, pids) = cancelled(leaving, 1, CancelReaction::Stays).await;
    assert!(took < SOON, "{took:?}");
    assert!(output.is_error && is_alive(&pids[0]));
    let folder = TempDir::new().unwrap();
    bash(&with_bash(folder.path()), &format!("kill {}", pids[0])).await;
}

#[tokio::test]
async fn one_cancel_leaves_other_commands_alone() {
    let folder = TempDir::new().unwrap();
    let tools = with_bash(folder.path());
    let cancel = CancellationToken::new();
    let one = call("bash", json!({"command": "echo $$ > pids; sleep 1000"}));
    let other = call(
        "bash",
        json!({"command": "until [ -e go ]; do sleep 0.01; done; echo finished"}),
    );
    let stop = async {
        let pids = written_pids(&folder.path().join("pids"), 1).await;
        cancel.cancel();
        all_gone(&pids).await;
        fs::write(folder.path().join("go"), "").unwrap();
    };
    let (one, other, ()) = tokio::join!(
        tools.run(&one, cancel.clone()),
        tools.run(&other, CancellationToken::new()),
        stop
    );
    assert!(one.text.contains("was interrupted"), "{}", one.text);
    assert_eq!(other, Output::ok("finished\n"));
}

#[tokio::test]
async fn dropped_bash_call_kills_its_processes() {
    let folder = TempDir::new().unwrap();
    let tools = with_bash(folder.path());
    let command = "trap '' TERM; (echo $BASHPID >> pids; sleep 1000; :) & echo $$ >> pids; wait";
    let bash = call("bash", json!({"command": command}));
    let file = folder.path().join("pids");
    let pids = tokio::select! {
        output = tools.run(&bash, CancellationToken::new()) => panic!("{output:?}"),
        pids = written_pids(&file, 2) => pids,
    };
    all_gone(&pids).await;
}

#[tokio::test]
async fn bash_timeout_uses_the_session_clock() {
    let folder = TempDir::new().unwrap();
    let clock = TimerClock::new(Timestamp::from_millis(1_800_000_000_000));
    let tools = Tools::standard(folder.path(), Arc::new(clock)).with_allowed(["bash"]);
    let file = folder.path().join("pids");
    let command = "echo begun; echo $$ > pids; sleep 1000";
    let arguments = json!({"command": command, "timeout": 300});
    // The session's clock jumps ahead as soon as the command has begun.
    let begun = async {
        let pids = written_pids(&file, 1).await;
        tokio::time::pause();
        (pids, Instant::now())
    };
    let (output, (pids, start)) = tokio::join!(run(&tools, "bash", arguments), begun);
    let took = start.elapsed();
    tokio::time::resume();
    let expected = "begun\n[`bash` took longer than 300s and was stopped; it may have partly run]";
    assert_eq!(output, Output::error(expected));
    // Time before the start of the command counts as well.
    assert!(took < Duration::from_secs(300) + SOON, "{took:?}");
    assert!(took > Duration::from_secs(300) - HANG_TIMEOUT, "{took:?}");
    all_gone(&pids).await;
    let hasty = tools.with_timeout(Duration::from_secs(100));
    let arguments = json!({"command": "sleep 1000", "timeout": 300});
    tokio::time::pause();
    let output = run(&hasty, "bash", arguments).await;
    assert!(output.text.contains("longer than 100s"), "{}", output.text);
}
