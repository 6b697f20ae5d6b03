//! A provider that does exactly what a test scripts, and records every byte that it received.

use super::wire;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// A request as it was received.
#[derive(Clone, Debug)]
pub(super) struct ReceivedRequest {
    pub(super) head: Vec<u8>,
    pub(super) body: Vec<u8>,
}

impl ReceivedRequest {
    /// Returns its first line.
    pub(super) fn line(&self) -> String {
        let end = self.head.iter().position(|byte| *byte == b'\r');
        String::from_utf8_lossy(&self.head[..end.unwrap()]).into_owned()
    }

    pub(super) fn headers(&self) -> Vec<(String, Vec<u8>)> {
        let begin = self.head.iter().position(|byte| *byte == b'\n').unwrap();
        wire::headers(&self.head[begin + 1..])
    }

    pub(super) fn header(&self, name: &str) -> Option<String> {
        let headers = self.headers();
        let header = headers.iter().find(|(known, _)| known == name);
        header.map(|(_, value)| String::from_utf8_lossy(value).into_owned())
    }

    /// Returns whether these bytes are anywhere in it.
    pub(super) fn holds(&self, bytes: &str) -> bool {
        let finder = memchr::memmem::Finder::new(bytes);
        finder.find(&self.head).is_some() || finder.find(&self.body).is_some()
    }
}

/// The response to a request.
#[derive(Clone, Debug)]
pub(super) struct ScriptedResponse {
    /// Each piece, and the time before it.
    pub(super) pieces: Vec<(Duration, Vec<u8>)>,
    pub(super) then: Then,
}

/// The state of the connection after the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// Another request may come over the same connection.
    Next,
    Close,
    Reset,
    /// Nothing, until the other side disconnects.
    Silence,
}

impl ScriptedResponse {
    /// Creates a response that is sent all at once.
    pub(super) fn at_once(bytes: impl Into<Vec<u8>>, then: Then) -> Self {
        Self::in_pieces(vec![bytes.into()], then)
    }

    /// Creates a response that is sent one piece after the other.
    pub(super) fn in_pieces(pieces: Vec<Vec<u8>>, then: Then) -> Self {
        let pieces = pieces.into_iter().map(|piece| (Duration::ZERO, piece));
        let pieces = pieces.collect();
        Self { pieces, then }
    }

    /// Delays the response.
    pub(super) fn after(mut self, wait: Duration) -> Self {
        match self.pieces.first_mut() {
            Some((before, _)) => *before += wait,
            None => self.pieces.push((wait, Vec::new())),
        }
        self
    }
}

/// Returns a response with its length.
pub(super) fn response(status: &str, headers: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let length = body.len();
    let head = format!("HTTP/1.1 {status}\r\n{headers}content-length: {length}\r\n\r\n");
    [head.as_bytes(), body].concat()
}

/// The head of a stream of events that ends with its connection.
pub(super) const EVENTS: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";

type Handler = dyn Fn(&ReceivedRequest) -> ScriptedResponse + Send + Sync;

/// A provider that runs until it is dropped.
pub(super) struct Upstream {
    pub(super) address: SocketAddr,
    shared: Arc<Shared>,
    accepting: tokio::task::JoinHandle<()>,
}

struct Shared {
    handler: Box<Handler>,
    seen: Mutex<Vec<ReceivedRequest>>,
    counts: watch::Sender<Counts>,
}

/// The counts of everything so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) requests: usize,
    /// Requests that are being answered.
    pub(super) in_flight: usize,
    pub(super) max_in_flight: usize,
    /// Requests whose client disconnected before they were answered.
    pub(super) disconnected: usize,
    /// Bytes that the other side read of all responses.
    pub(super) taken: usize,
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Upstream {
    pub(super) async fn start(
        handler: impl Fn(&ReceivedRequest) -> ScriptedResponse + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            handler: Box::new(handler),
            seen: Mutex::default(),
            counts: watch::Sender::default(),
        });
        let accepting = tokio::spawn({
            let shared = Arc::clone(&shared);
            async move {
                while let Ok((stream, _)) = listener.accept().await {
                    tokio::spawn(connection(stream, Arc::clone(&shared)));
                }
            }
        });
        Self {
            address,
            shared,
            accepting,
        }
    }

    pub(super) fn seen(&self) -> Vec<ReceivedRequest> {
        self.shared.seen.lock().unwrap().clone()
    }

    pub(super) fn counts(&self) -> Counts {
        *self.shared.counts.borrow()
    }

    /// Begins to count the requests in flight anew.
    pub(super) fn reset_max_in_flight(&self) {
        self.shared
            .count(|counts| counts.max_in_flight = counts.in_flight);
    }

    /// Waits until the counts meet the condition.
    pub(super) async fn until(&self, happened: impl FnMut(&Counts) -> bool) -> Counts {
        let mut counts = self.shared.counts.subscribe();
        *counts.wait_for(happened).await.unwrap()
    }
}

impl Shared {
    fn count(&self, change: impl FnOnce(&mut Counts)) {
        self.counts.send_modify(change);
    }
}

async fn connection(stream: TcpStream, shared: Arc<Shared>) {
    stream.set_nodelay(true).unwrap();
    let (mut reader, mut writer) = stream.into_split();
    let mut ahead = Vec::new();
    while let Some((head, body)) = request(&mut reader, &mut ahead).await {
        let seen = ReceivedRequest { head, body };
        shared.seen.lock().unwrap().push(seen.clone());
        shared.count(|counts| {
            counts.requests += 1;
            counts.in_flight += 1;
            counts.max_in_flight = counts.max_in_flight.max(counts.in_flight);
        });
        let say = (shared.handler)(&seen);
        let then = say.then;
        let stayed = tokio::select! {
            done = play(say, &mut writer, &shared) => done,
            () = gone(&mut reader, &mut ahead) => false,
        };
        shared.count(|counts| {
            counts.in_flight -= 1;
            counts.disconnected += usize::from(!stayed);
        });
        if !stayed || then == Then::Close {
            return;
        }
        if then == Then::Reset {
            let stream = reader.reunite(writer).unwrap();
            stream.set_zero_linger().unwrap();
            return;
        }
    }
}

/// Waits until the other side disconnects; the next request may come meanwhile.
async fn gone(reader: &mut OwnedReadHalf, ahead: &mut Vec<u8>) {
    while more(reader, ahead).await.is_some() {}
}

/// Sends the response; returns whether all of it was sent.
async fn play(say: ScriptedResponse, writer: &mut OwnedWriteHalf, shared: &Shared) -> bool {
    for (wait, piece) in say.pieces {
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
        for part in piece.chunks(64 << 10) {
            if writer.write_all(part).await.is_err() {
                return false;
            }
            shared.count(|counts| counts.taken += part.len());
        }
        tokio::task::yield_now().await;
    }
    if say.then == Then::Silence {
        std::future::pending::<()>().await;
    }
    true
}

/// Reads the next request of a connection, its head and its body.
async fn request(reader: &mut OwnedReadHalf, ahead: &mut Vec<u8>) -> Option<(Vec<u8>, Vec<u8>)> {
    let end = loop {
        match memchr::memmem::find(ahead, b"\r\n\r\n") {
            Some(end) => break end + 4,
            None => more(reader, ahead).await?,
        }
    };
    let head: Vec<u8> = ahead.drain(..end).collect();
    let headers = wire::headers(&head);
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length = length.map_or(0, |(_, length)| {
        std::str::from_utf8(length).unwrap().parse().unwrap()
    });
    while ahead.len() < length {
        more(reader, ahead).await?;
    }
    let body = ahead.drain(..length).collect();
    Some((head, body))
}

async fn more(reader: &mut OwnedReadHalf, ahead: &mut Vec<u8>) -> Option<()> {
    let length = reader.read_buf(ahead).await.ok()?;
    (length > 0).then_some(())
}
