//! Tests with servers in other processes.

use super::*;
use std::io::Read;

/// Replies to every command, and exits with status 3 at the end of its input.
const ANSWERS: &str = r#"
while read -r line; do
  id=${line#*\"id\":\"}
  echo "{\"id\":\"${id%%\"*}\",\"type\":\"response\",\"command\":\"x\",\"success\":true,\"data\":7}"
done
exit 3"#;

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

/// Reads everything until all writers have closed the pipe.
async fn all(mut reader: std::io::PipeReader) -> String {
    let reading = tokio::task::spawn_blocking(move || {
        let mut text = String::new();
        reader.read_to_string(&mut text).map(|_| text)
    });
    reading.await.unwrap().unwrap()
}

#[tokio::test]
async fn a_process_answers_and_ends_when_it_is_let() {
    let client = RpcClient::spawn(shell(ANSWERS)).unwrap();
    assert_eq!(client.get_state().await.unwrap(), 7);
    assert_eq!(client.bash("ls").await.unwrap(), 7);
    assert_eq!(client.close().await.unwrap().code(), Some(3));
    assert_eq!(client.close().await.unwrap().code(), Some(3));
}

#[tokio::test]
async fn a_process_that_dies_fails_what_was_asked_of_it() {
    let client = RpcClient::spawn(shell("read -r line; kill -9 $$")).unwrap();
    let error = client.get_state().await.unwrap_err();
    assert!(matches!(error, ClientError::Closed), "{error}");
    assert_eq!(client.close().await.unwrap().code(), None);
}

#[tokio::test(start_paused = true)]
async fn what_a_process_leaves_behind_keeps_nobody_waiting() {
    let before = tokio::time::Instant::now();
    let script = "sleep 3 2>&- & echo '{\"type\":\"last\"}'; read -r line; exit 0";
    let client = RpcClient::spawn(shell(script)).unwrap();
    let mut events = client.events();
    let error = client.get_state().await.unwrap_err();
    assert!(matches!(error, ClientError::Closed), "{error}");
    assert_eq!(events.next().await.unwrap().unwrap()["type"], "last");
    assert_eq!(before.elapsed(), Duration::from_secs(1));
    assert_eq!(client.close().await.unwrap().code(), Some(0));
}

#[tokio::test(start_paused = true)]
async fn a_process_that_does_not_end_is_killed() {
    let client = RpcClient::spawn(shell("exec sleep 1000")).unwrap();
    let before = tokio::time::Instant::now();
    assert_eq!(client.close().await.unwrap().code(), None);
    assert_eq!(before.elapsed(), Duration::from_secs(5));
}

#[tokio::test]
async fn a_process_dies_with_its_last_client_and_its_errors_go_where_they_should() {
    let (reader, writer) = std::io::pipe().unwrap();
    let mut command = shell("echo oh >&2; echo '{\"type\":\"up\"}'; exec sleep 1000");
    command.stderr(writer);
    let client = RpcClient::spawn(command).unwrap();
    let mut events = client.events();
    let other = client.clone();
    drop(client);
    assert_eq!(events.next().await.unwrap().unwrap()["type"], "up");
    drop(other);
    assert_eq!(all(reader).await, "oh\n");
    assert!(events.next().await.is_none());
}

#[tokio::test]
async fn a_process_that_says_nothing_more_is_let_go() {
    let (reader, writer) = std::io::pipe().unwrap();
    let mut command = shell("exec >&-; read -r line; echo bye >&2");
    command.stderr(writer);
    let client = RpcClient::spawn(command).unwrap();
    assert!(client.events().next().await.is_none());
    assert_eq!(all(reader).await, "bye\n");
}

#[tokio::test]
async fn what_is_no_program_is_said_at_once() {
    assert!(RpcClient::spawn(Command::new("/nowhere/outlast")).is_err());
}
