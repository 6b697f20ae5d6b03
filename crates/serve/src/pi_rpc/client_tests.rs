use super::*;
use crate::lines::LineReader;
use futures_util::FutureExt as _;
use inbox::Inbox;
use tokio::io::{
    AsyncBufReadExt, AsyncWriteExt, BufReader, BufWriter, DuplexStream, ReadHalf, WriteHalf, duplex,
};
use tokio::task::JoinHandle;

#[path = "client_tests/process.rs"]
mod process;

/// The server's end of the connection.
struct Peer {
    lines: tokio::io::Lines<BufReader<ReadHalf<DuplexStream>>>,
    out: WriteHalf<DuplexStream>,
}

impl Peer {
    /// Receives the next command.
    async fn receive(&mut self) -> Value {
        let line = self.lines.next_line().await.unwrap().unwrap();
        serde_json::from_str(&line).unwrap()
    }

    async fn send(&mut self, frame: Value) {
        let line = format!("{frame}\n");
        self.out.write_all(line.as_bytes()).await.unwrap();
    }

    async fn reply(&mut self, command: &Value, data: Value) {
        let (id, name) = (&command["id"], &command["type"]);
        let reply =
            json!({ "id": id, "type": "response", "command": name, "success": true, "data": data });
        self.send(reply).await;
    }

    async fn reply_error(&mut self, command: &Value, error: &str) {
        let (id, name) = (&command["id"], &command["type"]);
        let reply = json!({ "id": id, "type": "response", "command": name, "success": false, "error": error });
        self.send(reply).await;
    }

    /// Receives a command of that name and replies with success.
    async fn expect_command(&mut self, name: &str) {
        let command = self.receive().await;
        assert_eq!(command["type"], name);
        self.reply(&command, Value::Null).await;
    }
}

fn connected(buffer: usize) -> (RpcClient, Peer) {
    let (near, far) = duplex(buffer);
    let (reader, writer) = tokio::io::split(near);
    let (far_reader, out) = tokio::io::split(far);
    let lines = BufReader::new(far_reader).lines();
    let client = RpcClient::from_streams(reader, BufWriter::new(writer));
    (client, Peer { lines, out })
}

/// Lets all tasks run until they block.
async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

type PendingPrompt = JoinHandle<Result<Vec<Value>, ClientError>>;

/// Starts a prompt that is accepted, and awaited in another task.
async fn under_way(client: &RpcClient, peer: &mut Peer) -> PendingPrompt {
    let own = client.clone();
    let waiting = tokio::spawn(async move { own.prompt_and_wait("hello").await });
    let command = peer.receive().await;
    assert_eq!(command["message"], "hello");
    peer.reply(&command, json!({ "disposition": "started" }))
        .await;
    waiting
}

#[tokio::test]
async fn replies_reach_their_callers_in_any_order() {
    let (client, mut peer) = connected(1024);
    let other = client.clone();
    let state = tokio::spawn(async move { other.get_state().await });
    let first = peer.receive().await;
    let bash = tokio::spawn(async move { client.bash("ls").await });
    let second = peer.receive().await;
    assert_ne!(first["id"], second["id"]);
    assert_eq!(second["command"], "ls");
    peer.reply(&second, json!({ "exitCode": 0 })).await;
    assert_eq!(bash.await.unwrap().unwrap(), json!({ "exitCode": 0 }));
    assert!(!state.is_finished());
    peer.reply(&first, json!({ "isStreaming": false })).await;
    let state = state.await.unwrap().unwrap();
    assert_eq!(state, json!({ "isStreaming": false }));
}

#[tokio::test]
async fn commands_match_the_protocol() {
    let (client, mut peer) = connected(4096);
    let serving = tokio::spawn(async move {
        let mut commands = Vec::new();
        for _ in 0..11 {
            let mut command = peer.receive().await;
            peer.reply(&command, Value::Null).await;
            assert!(command["id"].is_string());
            command.as_object_mut().unwrap().remove("id");
            commands.push(command);
        }
        commands
    });
    assert_eq!(client.prompt("a").await.unwrap(), Disposition::Started);
    assert_eq!(client.steer("b").await.unwrap(), Disposition::Queued);
    assert_eq!(client.follow_up("c").await.unwrap(), Disposition::Queued);
    client.abort().await.unwrap();
    client.set_auto_retry(false).await.unwrap();
    client.abort_retry().await.unwrap();
    client.retry_now().await.unwrap();
    assert_eq!(client.get_state().await.unwrap(), Value::Null);
    client.compact(None).await.unwrap();
    client.compact(Some("the names")).await.unwrap();
    client.bash("ls").await.unwrap();
    let commands = serving.await.unwrap();
    let expected = json!([
        { "type": "prompt", "message": "a" },
        { "type": "steer", "message": "b" },
        { "type": "follow_up", "message": "c" },
        { "type": "abort" },
        { "type": "set_auto_retry", "enabled": false },
        { "type": "abort_retry" },
        { "type": "retry_now" },
        { "type": "get_state" },
        { "type": "compact" },
        { "type": "compact", "customInstructions": "the names" },
        { "type": "bash", "command": "ls" },
    ]);
    assert_eq!(Value::Array(commands), expected);
}

#[tokio::test]
async fn refused_or_invalid_command_is_an_error() {
    let (client, mut peer) = connected(1024);
    let serving = tokio::spawn(async move {
        let command = peer.receive().await;
        peer.reply_error(&command, "nothing to compact").await;
        let command = peer.receive().await;
        peer.reply(&command, json!({ "disposition": "eaten" }))
            .await;
        peer
    });
    let refused = client.compact(None).await.unwrap_err();
    assert_eq!(refused.to_string(), "compact: nothing to compact");
    let unexpected = client.prompt("a").await.unwrap_err();
    assert!(matches!(unexpected, ClientError::UnexpectedReply { .. }));
    for command in [json!(5), json!({}), json!({ "type": 5 })] {
        let error = client.request(command).await.unwrap_err();
        assert!(matches!(error, ClientError::MissingType));
    }
    serving.await.unwrap();
}

#[tokio::test]
async fn prompt_and_wait_returns_run_events_without_deltas() {
    let (client, mut peer) = connected(1024);
    let waiting = tokio::spawn(async move { client.prompt_and_wait("hello").await });
    let command = peer.receive().await;
    // A reply to another client, and the end of an earlier run.
    peer.reply(&json!({ "id": "99" }), Value::Null).await;
    peer.send(json!({ "type": "agent_settled", "aborted": true }))
        .await;
    peer.reply(&command, json!({ "disposition": "queued" }))
        .await;
    for kind in [
        "agent_start",
        "message_update",
        "tool_execution_update",
        "auto_retry_start",
        "message_end",
        "agent_end",
    ] {
        peer.send(json!({ "type": kind })).await;
    }
    settle().await;
    assert!(!waiting.is_finished());
    peer.send(json!({ "type": "agent_settled", "aborted": false }))
        .await;
    let said = waiting.await.unwrap().unwrap();
    let kinds: Vec<_> = said.iter().map(|event| &event["type"]).collect();
    assert_eq!(
        kinds,
        [
            "agent_start",
            "auto_retry_start",
            "message_end",
            "agent_end",
            "agent_settled"
        ]
    );
    assert_eq!(said[4]["aborted"], false);
}

#[tokio::test]
async fn handled_prompt_is_not_waited_for() {
    let (client, mut peer) = connected(1024);
    let waiting = tokio::spawn(async move { client.prompt_and_wait("/name x").await });
    let command = peer.receive().await;
    peer.reply(&command, json!({ "disposition": "handled" }))
        .await;
    assert_eq!(waiting.await.unwrap().unwrap(), Vec::<Value>::new());
}

#[tokio::test]
async fn abort_works_while_another_task_waits() {
    let (client, mut peer) = connected(1024);
    let waiting = under_way(&client, &mut peer).await;
    let (aborted, ()) = tokio::join!(client.abort(), peer.expect_command("abort"));
    aborted.unwrap();
    let (aborted, ()) = tokio::join!(client.abort_retry(), peer.expect_command("abort_retry"));
    aborted.unwrap();
    peer.send(json!({ "type": "agent_settled", "aborted": true }))
        .await;
    let said = waiting.await.unwrap().unwrap();
    assert_eq!(said, [json!({ "type": "agent_settled", "aborted": true })]);
}

#[tokio::test(start_paused = true)]
async fn run_wait_is_not_bounded_by_reply_timeout() {
    let (client, mut peer) = connected(1024);
    let client = client.with_timeout(Duration::from_secs(30));
    let waiting = under_way(&client, &mut peer).await;
    tokio::time::sleep(Duration::from_secs(8 * 3600)).await;
    assert!(!waiting.is_finished());
    peer.send(json!({ "type": "agent_settled" })).await;
    assert_eq!(waiting.await.unwrap().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn request_waits_for_reply_until_its_own_timeout() {
    let (client, mut peer) = connected(1024);
    let hasty = client.clone().with_timeout(Duration::from_secs(30));
    let before = tokio::time::Instant::now();
    let error = hasty.get_state().await.unwrap_err();
    assert_eq!(error.to_string(), "get_state: no answer within 30s");
    assert_eq!(before.elapsed(), Duration::from_secs(30));
    let patient = tokio::spawn(async move { client.get_state().await });
    settle().await;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    // The late reply to the first request is no event and answers nothing else.
    let mut events = hasty.events();
    let late = peer.receive().await;
    peer.reply(&late, json!("late")).await;
    let command = peer.receive().await;
    peer.reply(&command, json!("patient")).await;
    assert_eq!(patient.await.unwrap().unwrap(), "patient");
    assert!(events.next().now_or_never().is_none());
}

#[tokio::test]
async fn server_exit_fails_all_waiters() {
    let (client, mut peer) = connected(1024);
    let mut events = client.events();
    let following = under_way(&client, &mut peer).await;
    let own = client.clone();
    let asking = tokio::spawn(async move { own.get_state().await });
    peer.receive().await;
    drop(peer);
    let closed = |error| matches!(error, ClientError::Closed);
    assert!(closed(asking.await.unwrap().unwrap_err()));
    assert!(closed(following.await.unwrap().unwrap_err()));
    assert!(closed(client.get_state().await.unwrap_err()));
    assert!(closed(client.prompt_and_wait("x").await.unwrap_err()));
    assert!(events.next().await.is_none());
    assert!(client.events().next().await.is_none());
    assert_eq!(client.connection.inbox.waiting(), (0, 0));
    assert!(client.close().await.is_none());
}

#[tokio::test]
async fn slow_listener_gets_missed_count_run_waiter_gets_all() {
    let (client, mut peer) = connected(1 << 20);
    let mut events = client.events();
    let waiting = under_way(&client, &mut peer).await;
    for number in 0..3000 {
        peer.send(json!({ "type": "message_end", "number": number }))
            .await;
    }
    peer.send(json!({ "type": "agent_settled" })).await;
    assert_eq!(waiting.await.unwrap().unwrap().len(), 3001);
    let missed = events.next().await.unwrap().unwrap_err().missed;
    assert!(missed > 1000);
    let next = events.next().await.unwrap().unwrap();
    assert_eq!(next["number"], missed);
}

#[tokio::test]
async fn invalid_frames_are_skipped() {
    let (client, mut peer) = connected(1024);
    let mut events = client.events();
    peer.out
        .write_all(b"welcome\n\n5\n\xff\n[]\n")
        .await
        .unwrap();
    let complaint =
        json!({ "type": "response", "command": "parse", "success": false, "error": "x" });
    peer.send(complaint.clone()).await;
    assert_eq!(*events.next().await.unwrap().unwrap(), complaint);
}

#[tokio::test]
async fn overlong_line_ends_connection() {
    let inbox = Inbox::new();
    let asked = inbox.register_request(1).unwrap();
    let lines = LineReader::new(&b"{\"type\":\"response\"}"[..], 8);
    let why = connection::read(lines, &inbox).await;
    inbox.end(&why);
    let error = asked.wait().await.unwrap_err();
    assert!(matches!(error, ClientError::TooLong { bytes: 19 }));
    let later = inbox.register_request(2).map(drop).unwrap_err();
    assert!(matches!(later, ClientError::TooLong { bytes: 19 }));
}

#[tokio::test]
async fn dropped_request_writes_full_line_and_is_forgotten() {
    let (client, mut peer) = connected(8);
    for _ in 0..3 {
        let mut asking = Box::pin(client.set_auto_retry(true));
        assert!((&mut asking).now_or_never().is_none());
        settle().await;
        drop(asking);
    }
    assert_eq!(client.connection.inbox.waiting(), (0, 0));
    for _ in 0..3 {
        assert_eq!(peer.receive().await["type"], "set_auto_retry");
    }
}

#[tokio::test]
async fn dropped_run_waiter_is_removed() {
    let (client, mut peer) = connected(1024);
    let waiting = under_way(&client, &mut peer).await;
    settle().await;
    assert_eq!(client.connection.inbox.waiting(), (0, 1));
    waiting.abort();
    settle().await;
    peer.send(json!({ "type": "agent_start" })).await;
    settle().await;
    assert_eq!(client.connection.inbox.waiting(), (0, 0));
}

#[tokio::test]
async fn closed_write_side_fails_requests() {
    let (reader, _talks) = duplex(64);
    let (writer, listens) = duplex(64);
    let client = RpcClient::from_streams(reader, writer);
    drop(listens);
    let error = client.get_state().await.unwrap_err();
    assert!(matches!(error, ClientError::Closed), "{error}");
}

#[tokio::test]
async fn events_arrive_while_server_does_not_read() {
    let (client, mut peer) = connected(8);
    let mut events = client.events();
    let requests: Vec<_> = (0..200)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { client.abort().await })
        })
        .collect();
    settle().await;
    peer.send(json!({ "type": "agent_start" })).await;
    assert_eq!(events.next().await.unwrap().unwrap()["type"], "agent_start");
    drop(peer);
    for request in requests {
        request.await.unwrap().unwrap_err();
    }
}

#[tokio::test(start_paused = true)]
async fn close_flushes_and_waits_for_server_to_finish() {
    let (client, mut peer) = connected(8);
    let frame = json!({ "type": "extension_ui_response", "id": "u1", "cancelled": true });
    client.send_frame(&frame).await.unwrap();
    let own = client.clone();
    let closing = tokio::spawn(async move { own.close().await });
    assert_eq!(peer.receive().await, frame);
    assert!(peer.lines.next_line().await.unwrap().is_none());
    let mut events = client.events();
    peer.send(json!({ "type": "agent_settled" })).await;
    assert!(events.next().await.unwrap().is_ok());
    assert!(!closing.is_finished());
    drop(peer);
    assert_eq!(closing.await.unwrap(), None);
    assert!(matches!(client.abort().await, Err(ClientError::Closed)));
}

#[tokio::test(start_paused = true)]
async fn close_gives_up_on_server_after_5s() {
    let (client, peer) = connected(1024);
    let before = tokio::time::Instant::now();
    client.close().await;
    assert_eq!(before.elapsed(), Duration::from_secs(5));
    drop(peer);
}

#[tokio::test]
async fn dropping_client_closes_connection() {
    let (client, mut peer) = connected(1024);
    let mut events = client.events();
    drop(client);
    assert!(peer.lines.next_line().await.unwrap().is_none());
    assert!(events.next().await.is_none());
}
