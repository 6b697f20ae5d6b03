//! `outlast serve` with many subscribers: each receives every event exactly once, at little cost.

use crate::serve_driver::Serve;
use crate::serve_driver::transcript::Transcript;
use crate::support::{HANG_TIMEOUT, Outlast};
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use std::time::Duration;
use tokio_tungstenite::tungstenite::Message;

/// The transcript that a client has built, and its cursor.
#[derive(Default)]
struct Client {
    transcript: Transcript,
    place: Option<String>,
    is_sealed: bool,
}

impl Client {
    /// Applies a frame of the socket.
    fn take(&mut self, frame: &Value) {
        match frame["type"].as_str().unwrap_or_default() {
            "chat.snapshot" => {
                self.transcript = Transcript::default();
                let events = frame["snapshot"]["events"].as_array().unwrap();
                events.iter().for_each(|event| self.hear(event));
            }
            "chat.delta" => self.hear(&frame["event"]),
            _ => return,
        }
        self.place = frame["place"].as_str().map(str::to_owned);
    }

    fn hear(&mut self, event: &Value) {
        self.transcript.apply(event);
        self.is_sealed |= event["type"] == "sealed";
    }
}

/// Follows a session until its turn is sealed, disconnecting at random and reconnecting with its cursor or
/// without one.
async fn follow(address: String, session: String, seed: u64) -> Transcript {
    let mut dice = fastrand::Rng::with_seed(seed);
    let mut client = Client::default();
    while !client.is_sealed {
        let url = format!("ws://{address}/api/ws");
        let (mut socket, _) = tokio_tungstenite::connect_async(url).await.unwrap();
        let mut subscribe = json!({ "type": "chat.subscribe", "id": 1, "conversationId": session });
        match dice.u8(..8) {
            // Reconnects without any state.
            0 => client = Client::default(),
            // Reconnects with a cursor of another server.
            1 => subscribe["after"] = "00000000-7".into(),
            _ => subscribe["after"] = client.place.clone().into(),
        }
        socket
            .send(Message::text(subscribe.to_string()))
            .await
            .unwrap();
        let stays = dice.usize(1..150);
        for _ in 0..stays {
            let Some(Ok(message)) = socket.next().await else {
                break;
            };
            let Message::Text(text) = message else {
                continue;
            };
            client.take(&serde_json::from_str(&text).unwrap());
            if client.is_sealed {
                break;
            }
        }
        // Some close the socket properly, others drop it.
        if dice.bool() {
            socket.close(None).await.ok();
        }
    }
    client.transcript
}

/// Tools run, and a completion breaks off in the middle and is retracted.
#[test]
fn hundred_reconnecting_clients_get_same_transcript() {
    let outlast = Outlast::new();
    let script = "overloaded:1+drop-after:30,of=long+drip:1200,of=agent,times=always";
    std::fs::write(outlast.folder.path().join("a.txt"), "one\ntwo\n").unwrap();
    let words: Vec<String> = (0..400).map(|number| format!("word{number}")).collect();
    let calls = "call read {\"path\":\"a.txt\"}\n".repeat(10);
    let prompt = format!("{calls}say {}", words.join(" "));
    let server = Serve::start(&outlast, script);
    let session = server.begin(&json!({ "after_content": "retract" }));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let transcripts = runtime.block_on(async {
        let clients: Vec<_> = (0..100)
            .map(|seed| tokio::spawn(follow(server.address.clone(), session.clone(), seed)))
            .collect();
        let disposition = tokio::task::block_in_place(|| server.leave(&session, &prompt));
        assert_eq!(disposition, "started");
        let all = futures_util::future::join_all(clients);
        let all = tokio::time::timeout(HANG_TIMEOUT, all).await.unwrap();
        all.into_iter().map(Result::unwrap).collect::<Vec<_>>()
    });
    let first = &transcripts[0];
    let text = format!("{first:?}");
    assert!(
        text.contains("word399") && text.contains("tool-result"),
        "{text}"
    );
    for (number, transcript) in transcripts.iter().enumerate() {
        assert!(
            transcript == first,
            "client {number}:\n{transcript:?}\n\nclient 0:\n{first:?}"
        );
    }
}

/// Returns the resident memory of a process, in KiB.
#[cfg(target_os = "linux")]
fn memory(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    field(&status, "VmRSS:")
}

/// Returns how often the threads of a process have gone to sleep, which equals how often they were woken.
#[cfg(target_os = "linux")]
fn wakes(pid: u32) -> u64 {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    // A thread may end while it is read.
    let statuses = threads
        .flatten()
        .flat_map(|thread| std::fs::read_to_string(thread.path().join("status")));
    statuses
        .map(|status| field(&status, "voluntary_ctxt_switches:"))
        .sum()
}

#[cfg(target_os = "linux")]
fn field(status: &str, name: &str) -> u64 {
    let value = status.lines().find_map(|line| line.strip_prefix(name));
    let word = value.and_then(|value| value.split_whitespace().next());
    word.unwrap().parse().unwrap()
}

/// Opens a socket that follows a session of its own and has received its snapshot.
#[cfg(target_os = "linux")]
async fn listen(address: &str, session: &str) -> impl Sized {
    let url = format!("ws://{address}/api/ws");
    let (mut socket, _) = tokio_tungstenite::connect_async(url).await.unwrap();
    let subscribe = json!({ "type": "chat.subscribe", "id": 1, "conversationId": session });
    socket
        .send(Message::text(subscribe.to_string()))
        .await
        .unwrap();
    for _ in 0..2 {
        assert!(socket.next().await.unwrap().unwrap().is_text());
    }
    socket
}

#[cfg(target_os = "linux")]
#[test]
fn thousand_idle_subscribed_sessions_cost_little() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
    const SESSIONS: u64 = 1000;
    const SECONDS: u64 = 3;
    let outlast = Outlast {
        scale: "1",
        ..Outlast::new()
    };
    let server = Serve::with(&outlast, &[]);
    // One-time allocations are made before the measurement.
    server.session();
    let before = memory(server.pid());
    let sessions: Vec<String> = (0..SESSIONS).map(|_| server.session()).collect();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (listeners, woken) = runtime.block_on(async {
        let mut listeners = Vec::new();
        for session in &sessions {
            listeners.push(listen(&server.address, session).await);
        }
        let begun = wakes(server.pid());
        tokio::time::sleep(Duration::from_secs(SECONDS)).await;
        (listeners, wakes(server.pid()) - begun)
    });
    let after = memory(server.pid());
    let each = (after - before) / SESSIONS;
    println!("{each} KiB each, woken {woken} times in {SECONDS} s");
    assert_eq!(listeners.len() as u64, SESSIONS);
    assert!(each < 64, "{each} KiB each: from {before} to {after} KiB");
    // A task for each session would be woken at least once for each.
    assert!(woken < SESSIONS, "woken {woken} times in {SECONDS} s");
}
