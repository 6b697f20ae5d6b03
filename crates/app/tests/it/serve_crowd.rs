//! `outlast serve` with many who watch: each sees everything, once, and nobody costs much.

use crate::support::Outlast;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::time::Duration;
use tokio_tungstenite::tungstenite::Message;

/// Whatever must come has come by then, also on a machine that has much to do.
const LIMIT: Duration = Duration::from_secs(60);

struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(outlast: &Outlast, arguments: &[&str]) -> Self {
        let all = [&["serve", "--listen", "127.0.0.1:0"], arguments].concat();
        let mut command = outlast.command(&all);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut first = String::new();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        output.read_line(&mut first).unwrap();
        let address = first.trim().strip_prefix("listening on http://").unwrap();
        Self {
            address: address.to_owned(),
            child,
        }
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        let (body, address) = (body.to_string(), &self.address);
        let mut socket = TcpStream::connect(address).unwrap();
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n\
             content-length: {}\r\nconnection: close\r\n\r\n{body}",
            body.len()
        );
        socket.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 20"), "{head} {body}");
        serde_json::from_str(body).unwrap_or_default()
    }

    fn begin(&self) -> String {
        let session = self.post("/api/sessions", &json!({ "after_content": "retract" }));
        session["id"].as_str().unwrap().to_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// What a client has put together: each event that counts, pieces of one text as one.
#[derive(Default)]
struct Transcript {
    items: Vec<Value>,
    place: Option<String>,
    is_sealed: bool,
}

impl Transcript {
    /// Takes a frame of the socket in.
    fn take(&mut self, frame: &Value) {
        match frame["type"].as_str().unwrap_or_default() {
            "chat.snapshot" => {
                self.items.clear();
                for event in frame["snapshot"]["events"].as_array().unwrap() {
                    self.event(event);
                }
            }
            "chat.delta" => self.event(&frame["event"]),
            _ => return,
        }
        self.place = frame["place"].as_str().map(str::to_owned);
    }

    fn event(&mut self, event: &Value) {
        let kind = event["type"].as_str().unwrap();
        let last = self.items.last_mut();
        match kind {
            "text-delta" | "reasoning-delta" => {
                let piece = event["delta"].as_str().unwrap();
                match last.filter(|last| last["type"] == kind) {
                    Some(last) => {
                        last["delta"] = (last["delta"].as_str().unwrap().to_owned() + piece).into()
                    }
                    None => self.items.push(json!({ "type": kind, "delta": piece })),
                }
            }
            // What was said since the last step does not count.
            "retracted" => {
                let is_step = |item: &Value| {
                    item["type"] != "text-delta" && item["type"] != "reasoning-delta"
                };
                let place = self.items.iter().rposition(is_step);
                self.items.truncate(place.map_or(0, |place| place + 1));
            }
            // They pass, or come as often as the provider likes.
            "provider-retry" | "usage" => {}
            _ => {
                self.is_sealed |= kind == "sealed";
                let mut event = event.clone();
                // Who is asked is known to those who were there at the beginning.
                event.as_object_mut().unwrap().remove("provider");
                self.items.push(event);
            }
        }
    }
}

/// Follows a session until its turn is sealed, leaving at random and coming back where it left, or from nowhere.
async fn follow(address: String, session: String, seed: u64) -> String {
    let mut dice = fastrand::Rng::with_seed(seed);
    let mut transcript = Transcript::default();
    while !transcript.is_sealed {
        let url = format!("ws://{address}/api/ws");
        let (mut socket, _) = tokio_tungstenite::connect_async(url).await.unwrap();
        let mut subscribe = json!({ "type": "chat.subscribe", "id": 1, "conversationId": session });
        match dice.u8(..8) {
            // One that has forgotten everything.
            0 => transcript = Transcript::default(),
            // One that has a place of another server.
            1 => subscribe["after"] = "00000000-7".into(),
            _ => subscribe["after"] = transcript.place.clone().into(),
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
            transcript.take(&serde_json::from_str(&text).unwrap());
            if transcript.is_sealed {
                break;
            }
        }
        // Some say goodbye, some are just gone.
        if dice.bool() {
            socket.close(None).await.ok();
        }
    }
    Value::from(transcript.items).to_string()
}

/// Tools run, and an answer breaks off in the middle and is taken back.
#[test]
fn a_hundred_clients_that_come_and_go_end_with_the_same_transcript() {
    let outlast = Outlast::new();
    let script = "overloaded:1+drop-after:30,of=long+drip:1200,of=agent,times=always";
    std::fs::write(outlast.folder.path().join("a.txt"), "one\ntwo\n").unwrap();
    let words: Vec<String> = (0..400).map(|number| format!("word{number}")).collect();
    let calls = "call read {\"path\":\"a.txt\"}\n".repeat(10);
    let prompt = format!("{calls}say {}", words.join(" "));
    let server = Server::start(&outlast, &["--model", script]);
    let session = server.begin();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let transcripts = runtime.block_on(async {
        let clients: Vec<_> = (0..100)
            .map(|seed| tokio::spawn(follow(server.address.clone(), session.clone(), seed)))
            .collect();
        let path = format!("/api/sessions/{session}/prompt");
        let accepted =
            tokio::task::block_in_place(|| server.post(&path, &json!({ "text": prompt })));
        assert_eq!(accepted["disposition"], "started");
        let all = futures_util::future::join_all(clients);
        let all = tokio::time::timeout(LIMIT, all).await.unwrap();
        all.into_iter().map(Result::unwrap).collect::<Vec<_>>()
    });
    let first = &transcripts[0];
    assert!(
        first.contains("word399") && first.contains("tool-result"),
        "{first}"
    );
    assert!(first.contains(r#""status":"completed""#), "{first}");
    for (number, transcript) in transcripts.iter().enumerate() {
        assert!(
            transcript == first,
            "client {number}:\n{transcript}\n\nclient 0:\n{first}"
        );
    }
}

/// What a process holds in memory, in KiB, and what it has used of a processor, in milliseconds.
#[cfg(target_os = "linux")]
fn cost(pid: u32) -> (u64, u64) {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS"))
        .unwrap();
    let memory = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat
        .rsplit_once(')')
        .unwrap()
        .1
        .split_whitespace()
        .collect();
    let ticks = |field: &str| field.parse::<u64>().unwrap();
    // A tick is ten milliseconds.
    (memory, (ticks(fields[11]) + ticks(fields[12])) * 10)
}

/// A socket that listens to a session of its own, and has its snapshot.
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
fn a_thousand_idle_sessions_with_a_listener_each_cost_little() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
    const SESSIONS: u64 = 1000;
    const SECONDS: u64 = 3;
    let outlast = Outlast {
        scale: "1",
        ..Outlast::new()
    };
    let server = Server::start(&outlast, &[]);
    // What is needed once is there.
    server.begin();
    let (before, _) = cost(server.child.id());
    let sessions: Vec<String> = (0..SESSIONS).map(|_| server.begin()).collect();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (listeners, spent) = runtime.block_on(async {
        let mut listeners = Vec::new();
        for session in &sessions {
            listeners.push(listen(&server.address, session).await);
        }
        let (_, begun) = cost(server.child.id());
        tokio::time::sleep(Duration::from_secs(SECONDS)).await;
        (listeners, cost(server.child.id()).1 - begun)
    });
    let (after, _) = cost(server.child.id());
    let each = (after - before) / SESSIONS;
    println!("{each} KiB each, {spent} ms of a processor in {SECONDS} s");
    assert_eq!(listeners.len() as u64, SESSIONS);
    assert!(each < 64, "{each} KiB each: from {before} to {after} KiB");
    assert!(
        spent < SECONDS * 50,
        "{spent} ms of a processor in {SECONDS} s"
    );
}
