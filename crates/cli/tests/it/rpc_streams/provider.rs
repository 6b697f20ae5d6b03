//! A provider that answers every prompt with many pieces of text, as fast as the client takes them.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Time without a successful write after which the reader counts as stopped.
const HELD_UP: Duration = Duration::from_millis(500);
/// Number of bytes in each write.
const BATCH: usize = 64 << 10;

pub(crate) struct Provider {
    pub(crate) url: String,
    pieces: usize,
    size: usize,
    so_far: Arc<AnswerProgress>,
}

/// The progress of a response.
#[derive(Default)]
struct AnswerProgress {
    is_held_up: AtomicBool,
    is_done: AtomicBool,
    is_unwanted: AtomicBool,
}

impl Provider {
    pub(crate) fn start(pieces: usize, size: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let provider = Self {
            url: format!("http://{}/v1", listener.local_addr().unwrap()),
            pieces,
            size,
            so_far: Arc::default(),
        };
        let answer = Arc::new(answer(pieces, size));
        let so_far = provider.so_far.clone();
        std::thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                let (answer, so_far) = (answer.clone(), so_far.clone());
                std::thread::spawn(move || serve(socket, &answer, &so_far));
            }
        });
        provider
    }

    /// Returns the arguments that select this provider.
    pub(crate) fn arguments(&self) -> [&str; 7] {
        let url = self.url.as_str();
        [
            "--provider",
            "openai",
            "--model",
            "m",
            "--base-url",
            url,
            "--no-tools",
        ]
    }

    /// Returns the whole text of a response.
    pub(crate) fn text(&self) -> String {
        (0..self.pieces).map(|it| piece(it, self.size)).collect()
    }

    /// Whether the reader has stopped.
    pub(crate) fn is_held_up(&self) -> bool {
        self.so_far.is_held_up.load(Ordering::Relaxed)
    }

    /// Whether the whole response was sent.
    pub(crate) fn is_done(&self) -> bool {
        self.so_far.is_done.load(Ordering::Relaxed)
    }

    /// Whether the connection was closed before the end of the response.
    pub(crate) fn is_unwanted(&self) -> bool {
        self.so_far.is_unwanted.load(Ordering::Relaxed)
    }
}

/// Returns a piece of a text without repetitions.
fn piece(number: usize, size: usize) -> String {
    format!("{number:.<width$}\n", width = size - 1)
}

fn answer(pieces: usize, size: usize) -> String {
    let chunk = |delta: String, finish: &str| {
        format!(
            "data: {{\"id\":\"c\",\"choices\":[{{\"index\":0,\"delta\":{delta},\"finish_reason\":{finish}}}]}}\n\n"
        )
    };
    let said = (0..pieces).map(|it| {
        let text = serde_json::Value::String(piece(it, size));
        chunk(format!("{{\"content\":{text}}}"), "null")
    });
    let end = chunk("{}".to_owned(), "\"stop\"");
    said.chain([end, "data: [DONE]\n\n".to_owned()]).collect()
}

fn serve(mut socket: TcpStream, answer: &str, so_far: &AnswerProgress) {
    read_request(&mut socket);
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    socket.set_write_timeout(Some(HELD_UP)).unwrap();
    let all = [head.as_bytes(), answer.as_bytes()].concat();
    let mut left = all.as_slice();
    while !left.is_empty() {
        match socket.write(&left[..left.len().min(BATCH)]) {
            Ok(sent) => left = &left[sent..],
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                so_far.is_held_up.store(true, Ordering::Relaxed);
            }
            Err(_) => {
                so_far.is_unwanted.store(true, Ordering::Relaxed);
                return;
            }
        }
    }
    so_far.is_done.store(true, Ordering::Relaxed);
}

fn read_request(socket: &mut TcpStream) {
    let (mut request, mut buffer) = (Vec::new(), [0; 4096]);
    let length = |head: &str| -> usize {
        let mut lines = head.lines();
        let line = lines.find(|line| line.to_lowercase().starts_with("content-length:"));
        line.unwrap()[15..].trim().parse().unwrap()
    };
    loop {
        let read = socket.read(&mut buffer).unwrap_or(0);
        request.extend_from_slice(&buffer[..read]);
        let text = String::from_utf8_lossy(&request);
        if read == 0 {
            return;
        }
        if let Some((head, body)) = text.split_once("\r\n\r\n")
            && body.len() >= length(head)
        {
            return;
        }
    }
}
