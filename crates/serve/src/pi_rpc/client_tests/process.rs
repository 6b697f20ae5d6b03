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
async fn spawned_server_replies_and_exits_on_close() {
    let client = RpcClient::spawn(shell(ANSWERS)).unwrap();
    assert_eq!(client.get_state().await.unwrap(), 7);
    assert_eq!(client.bash("ls").await.unwrap(), 7);
    assert_eq!(client.close().await.unwrap().code(), Some(3));
    assert_eq!(client.close().await.unwrap().code(), Some(3));
}

#[tokio::test]
async fn killed_server_fails_pending_request() {
    let client = RpcClient::spawn(shell("read -r line; kill -9 $$")).unwrap();
    let error = client.get_state().await.unwrap_err();
    assert!(matches!(error, ClientError::Closed), "{error}");
    assert_eq!(client.close().await.unwrap().code(), None);
}

#[tokio::test(start_paused = true)]
async fn leftover_child_holding_stdout_blocks_no_caller() {
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
async fn server_is_killed_when_last_client_drops() {
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
async fn server_that_closes_stdout_may_finish() {
    let (reader, writer) = std::io::pipe().unwrap();
    let mut command = shell("exec >&-; read -r line; echo bye >&2");
    command.stderr(writer);
    let client = RpcClient::spawn(command).unwrap();
    assert!(client.events().next().await.is_none());
    assert_eq!(all(reader).await, "bye\n");
}

#[tokio::test]
async fn missing_program_is_a_spawn_error() {
    assert!(RpcClient::spawn(Command::new("/nowhere/outlast")).is_err());
}
