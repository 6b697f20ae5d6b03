//! A command that a client runs, with real processes.

use crate::tools_bash::{SOON, all_gone, written_pids};
use outlast_engine::CancellationToken;
use outlast_session::tools::shell::{ShellCommand, ShellOutput, run};
use std::path::Path;
use tempfile::TempDir;
use tokio::time::Instant;

fn shell(folder: &Path, command: &str) -> ShellCommand {
    ShellCommand {
        command: command.to_owned(),
        directory: folder.to_owned(),
        hidden_variables: Vec::new(),
    }
}

async fn run_shell(command: &str) -> (Vec<String>, ShellOutput) {
    let folder = TempDir::new().unwrap();
    let mut pieces = Vec::new();
    let mut on_piece = |piece: &str| pieces.push(piece.to_owned());
    let shell = shell(folder.path(), command);
    let end = run(shell, CancellationToken::new(), &mut on_piece).await;
    (pieces, end.unwrap())
}

#[tokio::test]
async fn output_is_streamed_and_returned_without_escapes() {
    let (pieces, end) =
        run_shell(r"printf '\033[31mred\033[0m\r\n'; printf 'é…' >&2; exit 3").await;
    assert_eq!(pieces.concat(), "red\né…");
    assert_eq!(end.output, "red\né…");
    assert_eq!(end.exit_code, Some(3));
    assert!(!end.cancelled && !end.truncated);
}

#[tokio::test]
async fn output_is_streamed_before_the_command_ends() {
    let folder = TempDir::new().unwrap();
    let go = folder.path().join("go");
    // The command ends after its first output has been reported, and not before.
    let command = "printf first; while [ ! -e go ]; do sleep 0.01; done; printf ' last'";
    let mut pieces = String::new();
    let mut on_piece = |piece: &str| {
        pieces += piece;
        std::fs::write(&go, "").unwrap();
    };
    let shell = shell(folder.path(), command);
    let end = run(shell, CancellationToken::new(), &mut on_piece).await;
    assert_eq!(end.unwrap().output, "first last");
    assert_eq!(pieces, "first last");
}

#[tokio::test]
async fn long_output_is_streamed_in_full_and_returned_cut() {
    let (pieces, end) = run_shell("printf first; yes 12345678 | head -n 100000; printf last").await;
    assert_eq!(pieces.concat().len(), 900_009);
    assert!(end.truncated);
    assert!(end.output.len() <= 64 * 1024);
    assert!(end.output.starts_with("first") && end.output.ends_with("last"));
}

#[tokio::test]
async fn cancelled_command_ends_with_all_its_processes() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("pids");
    let command = "trap '' TERM; printf begun; (trap '' TERM; echo $BASHPID >> pids; sleep 600) & timeout 600 sleep 600 & \
                   echo $$ >> pids; wait";
    let cancel = CancellationToken::new();
    let stop = async {
        let pids = written_pids(&file, 2).await;
        tokio::time::pause();
        let now = Instant::now();
        cancel.cancel();
        (pids, now)
    };
    let mut pieces = String::new();
    let mut on_piece = |piece: &str| pieces += piece;
    let running = run(shell(folder.path(), command), cancel.clone(), &mut on_piece);
    let (end, (pids, cancelled_at)) = tokio::join!(running, stop);
    assert!(
        cancelled_at.elapsed() < SOON,
        "{:?}",
        cancelled_at.elapsed()
    );
    tokio::time::resume();
    let end = end.unwrap();
    assert!(end.cancelled && end.exit_code.is_none());
    assert_eq!((end.output.as_str(), pieces.as_str()), ("begun", "begun"));
    all_gone(&pids).await;
}

#[tokio::test]
async fn command_has_no_hidden_variables_and_empty_stdin() {
    let folder = TempDir::new().unwrap();
    let shell = ShellCommand {
        hidden_variables: vec!["PATH".to_owned()],
        ..shell(
            folder.path(),
            "printf \"[${PATH-none}]\"; read line; echo $?",
        )
    };
    // A shell without a path has one of its own, which it does not export.
    let exported = ShellCommand {
        command: "export -p".to_owned(),
        ..shell.clone()
    };
    let end = run(exported, CancellationToken::new(), &mut |_| {}).await;
    assert!(!end.unwrap().output.contains(" PATH="));
    let end = run(shell, CancellationToken::new(), &mut |_| {}).await;
    assert!(end.unwrap().output.ends_with("]1\n"));
}

#[tokio::test]
async fn missing_folder_is_a_not_found_error() {
    let gone = shell(Path::new("/no/such/folder"), "true");
    let end = run(gone, CancellationToken::new(), &mut |_| {}).await;
    assert_eq!(end.unwrap_err().kind(), std::io::ErrorKind::NotFound);
}
