use super::*;
use std::fs;
use std::time::Duration;
use tempfile::TempDir;
use tokio::time::{Instant, timeout};

/// The maximum time from a stop to the end of all started processes, by the paused clock.
const PROMPT_EXIT_LIMIT: Duration = Duration::from_millis(250);
/// Fails a test that would hang.
const HANG_TIMEOUT: Duration = Duration::from_secs(120);

pub(crate) fn shell(line: &str) -> CommandLine {
    CommandLine::Shell(line.to_owned())
}

pub(crate) fn program(parts: &[&str]) -> CommandLine {
    CommandLine::Program(parts.iter().map(|part| (*part).to_owned()).collect())
}

fn in_folder<'a>(line: &'a CommandLine, directory: &'a Path) -> Spec<'a> {
    Spec {
        line,
        directory,
        env: &[],
        hidden_variables: &[],
        input: None,
    }
}

async fn run_quietly(spec: Spec<'_>) -> Result<ProcessResult, Problem> {
    let watching = ProcessObserver {
        on_start: &mut |_, _| {},
        on_output: &mut |_, _| {},
    };
    run(spec, watching, &CancellationToken::new()).await
}

/// Runs a command in a folder of its own.
pub(crate) async fn ran(line: &CommandLine) -> Result<ProcessResult, Problem> {
    let folder = TempDir::new().unwrap();
    run_quietly(in_folder(line, folder.path())).await
}

/// Returns whether the process runs; a zombie does not.
fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit_once(") ")
        .and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| state != 'Z')
}

/// Returns the process ids that a command writes, once there are as many as expected.
async fn written_pids(file: &Path, count: usize) -> Vec<u32> {
    let look = async {
        loop {
            let text = fs::read_to_string(file).unwrap_or_default();
            let pids: Vec<u32> = text.lines().filter_map(|pid| pid.parse().ok()).collect();
            if pids.len() == count && text.ends_with('\n') {
                return pids;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(HANG_TIMEOUT, look).await.unwrap()
}

async fn all_gone(pids: &[u32]) {
    let look = async {
        while pids.iter().any(|pid| is_alive(*pid)) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let gone = timeout(HANG_TIMEOUT, look).await;
    assert!(gone.is_ok(), "{pids:?} live on");
}

#[tokio::test]
async fn streams_are_separate_and_tail_is_combined() {
    // The output of the two streams may arrive in another order: the command continues when each piece has arrived.
    let line = shell(
        r"heard() { until [ -e $1 ]; do sleep 0.01; done; }
        echo one; heard 1; printf '\033[31mred\033[0m\n' >&2; heard 2; echo two; exit 3",
    );
    let (folder, mut heard) = (TempDir::new().unwrap(), 0);
    let watching = ProcessObserver {
        on_start: &mut |_, _| {},
        on_output: &mut |_, _| {
            heard += 1;
            fs::write(folder.path().join(heard.to_string()), "").unwrap();
        },
    };
    let spec = in_folder(&line, folder.path());
    let ran = run(spec, watching, &CancellationToken::new()).await;
    let ran = ran.unwrap();
    assert_eq!(ran.stdout, b"one\ntwo\n");
    assert_eq!(ran.errors, "red");
    assert_eq!(ran.tail, "one\nred\ntwo");
    assert_eq!(
        (ran.code, ran.signal, ran.was_stopped),
        (Some(3), None, false)
    );
    assert!(!ran.is_success());
}

#[tokio::test]
async fn a_program_is_run_without_a_shell() {
    let line = program(&["printf", "%s|", "$HOME; echo", "{{ diff }}", "$(id)"]);
    let ran = ran(&line).await.unwrap();
    assert_eq!(ran.stdout, b"$HOME; echo|{{ diff }}|$(id)|");
    assert!(ran.is_success());
}

#[tokio::test]
async fn process_gets_env_and_input_but_no_hidden_variables() {
    let folder = TempDir::new().unwrap();
    let line = shell(r#"printf '%s %s ' "$INPUT_DIFF" "${HOME-hidden}"; pwd; cat"#);
    let env = [("INPUT_DIFF".to_owned(), "$(touch made); x".to_owned())];
    let spec = Spec {
        env: &env,
        hidden_variables: &["HOME".to_owned()],
        input: Some(b"what is read"),
        ..in_folder(&line, folder.path())
    };
    let ran = run_quietly(spec).await.unwrap();
    let place = folder.path().canonicalize().unwrap();
    let expected = format!("$(touch made); x hidden {}\nwhat is read", place.display());
    assert_eq!(String::from_utf8(ran.stdout).unwrap(), expected);
    assert!(!folder.path().join("made").exists());
}

#[tokio::test]
async fn start_failure_reports_its_cause() {
    use Cause::{Misconfigured, MissingBinary, PayloadTooLarge, Permission};
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("plain"), "text").unwrap();
    let long = "x".repeat(200_000);
    let missing = "echo before; no-such-program-9 --x";
    let table = [
        (
            program(&["no-such-program-9"]),
            MissingBinary,
            "not be started",
        ),
        (shell(missing), MissingBinary, "9: command not found"),
        (program(&["./plain"]), Permission, "`./plain` could not be"),
        (shell("./plain"), Permission, "Permission denied"),
        (shell("exit 127"), MissingBinary, "`exit 127` could not be"),
        (
            program(&["true", &long]),
            PayloadTooLarge,
            "`true` could not be",
        ),
        (program(&[]), Misconfigured, "could not be started"),
        (shell("echo a\0b"), Misconfigured, "could not be started"),
    ];
    for (line, cause, message) in table {
        let problem = run_quietly(in_folder(&line, folder.path())).await;
        let problem = problem.unwrap_err();
        assert_eq!(problem.cause, cause, "{line:?}: {problem:?}");
        assert!(problem.message.contains(message), "{problem:?}");
    }
    let nowhere = folder.path().join("nowhere");
    let problem = run_quietly(in_folder(&shell("true"), &nowhere)).await;
    let problem = problem.unwrap_err();
    assert_eq!(problem.cause, Misconfigured);
    assert!(problem.message.contains("there is no folder"));
}

#[tokio::test]
async fn program_may_exit_with_code_127() {
    let line = program(&["sh", "-c", "exit 127"]);
    assert_eq!(ran(&line).await.unwrap().code, Some(127));
}

#[tokio::test]
async fn signal_is_distinguished_from_exit_code() {
    let ran = ran(&shell("kill -9 $$")).await.unwrap();
    assert_eq!(
        (ran.code, ran.signal, ran.was_stopped),
        (None, Some(9), false)
    );
}

#[tokio::test]
async fn long_output_is_kept_as_beginning_and_end() {
    let line = shell("printf first; head -c 30000000 /dev/zero | tr '\\0' x; printf last");
    let ran = ran(&line).await.unwrap();
    assert!(ran.stdout.len() <= (16 << 20) + 100, "{}", ran.stdout.len());
    assert!(ran.stdout.starts_with(b"firstx") && ran.stdout.ends_with(b"xlast"));
    let text = String::from_utf8(ran.stdout).unwrap();
    assert!(text.contains("bytes were left out here"));
    assert!(ran.tail.len() <= TAIL_LIMIT && ran.tail.ends_with("xlast"));
}

#[tokio::test]
async fn tail_starts_at_line_boundary_and_redacts_keys() {
    let line = shell("seq 1 3000 | sed s/^/line-/; echo 'key sk-test-0123456789abcdef'");
    let ran = ran(&line).await.unwrap();
    assert!(ran.tail.len() <= TAIL_LIMIT && ran.tail.len() > TAIL_LIMIT / 2);
    assert!(ran.tail.starts_with("line-"), "{}", &ran.tail[..20]);
    assert!(ran.tail.ends_with("line-3000\nkey [secret]"));
}

#[tokio::test]
async fn observer_receives_pid_and_output() {
    let folder = TempDir::new().unwrap();
    let line = shell("echo $$; echo no >&2");
    let (mut started, mut told) = (Vec::new(), Vec::new());
    let watching = ProcessObserver {
        on_start: &mut |pid, born| started.push((pid, born)),
        on_output: &mut |stream, bytes| told.push((stream, bytes.to_vec())),
    };
    let stop = CancellationToken::new();
    let ran = run(in_folder(&line, folder.path()), watching, &stop)
        .await
        .unwrap();
    let [(pid, born)] = started[..] else {
        unreachable!("{started:?}")
    };
    assert_eq!(ran.stdout, format!("{pid}\n").into_bytes());
    assert!(born > 0);
    assert!(
        told.contains(&(Stream::Stdout, ran.stdout))
            && told.contains(&(Stream::Stderr, b"no\n".to_vec()))
    );
}

/// Processes that do not end by themselves: one ignores signals, one has a group of its own, one runs in the
/// background.
const STUBBORN: &str = "trap '' TERM; echo begun; echo $$ >> pids; \
    sh -c \"trap '' TERM; echo \\$\\$ >> pids; sleep 300; sleep 300\" & \
    timeout 300 sh -c 'echo $$ >> pids; sleep 300' & \
    sleep 300; sleep 300";

#[tokio::test]
async fn stop_kills_all_processes_of_command() {
    let folder = TempDir::new().unwrap();
    let line = shell(STUBBORN);
    let stop = CancellationToken::new();
    let watching = ProcessObserver {
        on_start: &mut |_, _| {},
        on_output: &mut |_, _| {},
    };
    let file = folder.path().join("pids");
    let stopping = async {
        let pids = written_pids(&file, 3).await;
        assert!(pids.iter().all(|pid| is_alive(*pid)), "{pids:?}");
        tokio::time::pause();
        stop.cancel();
        (pids, Instant::now())
    };
    let (ran, (pids, since)) = tokio::join!(
        async {
            let ran = run(in_folder(&line, folder.path()), watching, &stop).await;
            (ran.unwrap(), Instant::now())
        },
        stopping
    );
    tokio::time::resume();
    assert!(ran.0.was_stopped && !ran.0.is_success());
    assert_eq!(
        (ran.0.code, ran.0.stdout.as_slice()),
        (None, b"begun\n".as_slice())
    );
    assert!(ran.1 - since < PROMPT_EXIT_LIMIT, "{:?}", ran.1 - since);
    all_gone(&pids).await;
}

#[tokio::test]
async fn process_stopped_before_start_does_not_start() {
    let folder = TempDir::new().unwrap();
    let line = shell("touch made");
    let stop = CancellationToken::new();
    stop.cancel();
    let watching = ProcessObserver {
        on_start: &mut |_, _| unreachable!("it has begun"),
        on_output: &mut |_, _| {},
    };
    let ran = run(in_folder(&line, folder.path()), watching, &stop)
        .await
        .unwrap();
    assert!(ran.was_stopped);
    assert!(!folder.path().join("made").exists());
}

#[tokio::test]
async fn orphan_is_killed_only_if_its_start_time_matches() {
    let folder = TempDir::new().unwrap();
    let line = shell(STUBBORN);
    let (stop, file) = (CancellationToken::new(), folder.path().join("pids"));
    let (tell, told) = tokio::sync::oneshot::channel();
    let mut tell = Some(tell);
    let watching = ProcessObserver {
        on_start: &mut |pid, born| tell.take().unwrap().send((pid, born)).unwrap(),
        on_output: &mut |_, _| {},
    };
    let ending = async {
        let (pid, born) = told.await.unwrap();
        let pids = written_pids(&file, 3).await;
        kill_orphan(pid, born + 1);
        kill_orphan(pid, 0);
        assert!(
            pids.iter().all(|pid| is_alive(*pid)),
            "another one's processes"
        );
        kill_orphan(pid, born);
        pids
    };
    let (ran, pids) = tokio::join!(
        run(in_folder(&line, folder.path()), watching, &stop),
        ending
    );
    assert_eq!(ran.unwrap().signal, Some(9));
    all_gone(&pids).await;
}

#[tokio::test]
async fn background_processes_end_when_command_is_killed() {
    let folder = TempDir::new().unwrap();
    let line = shell("sleep 600 & echo $! >pids; kill -9 $$");
    let ran = run_quietly(in_folder(&line, folder.path())).await.unwrap();
    assert_eq!(ran.signal, Some(9));
    all_gone(&written_pids(&folder.path().join("pids"), 1).await).await;
}
