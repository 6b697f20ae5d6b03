//! A WebSocket to a server: requests with ids, replies, and what comes by itself.

use super::Serve;
use crate::support::HANG_TIMEOUT;
use serde_json::{Value, json};
use std::io::ErrorKind;
use std::net::TcpStream;
use std::time::Instant;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::{HeaderName, HeaderValue, Response};
use tokio_tungstenite::tungstenite::{self, Message, WebSocket};

/// What a server answers to somebody who wants to open one.
type Answered = Response<Option<Vec<u8>>>;

/// A client over a WebSocket.
pub(crate) struct Socket {
    socket: WebSocket<TcpStream>,
    ids: u64,
    /// What came while something else was waited for.
    came: Vec<Value>,
}

impl Socket {
    pub(crate) fn open(server: &Serve) -> Self {
        match Self::try_open(server, &[]) {
            Ok((socket, _)) => socket,
            Err(refused) => panic!("{refused:?}"),
        }
    }

    /// Opens one with these headers; the other answer is that of a server which does not let it.
    pub(crate) fn try_open(
        server: &Serve,
        headers: &[(&str, &str)],
    ) -> Result<(Self, Answered), Box<Answered>> {
        let mut request = format!("ws://{}/api/ws", server.address)
            .into_client_request()
            .unwrap();
        for (name, value) in headers {
            let name: HeaderName = name.parse().unwrap();
            let value: HeaderValue = value.parse().unwrap();
            request.headers_mut().insert(name, value);
        }
        let stream = TcpStream::connect(&server.address).unwrap();
        stream.set_read_timeout(Some(HANG_TIMEOUT)).unwrap();
        match tungstenite::client(request, stream) {
            Ok((socket, answer)) => {
                let client = Self {
                    socket,
                    ids: 0,
                    came: Vec::new(),
                };
                Ok((client, answer))
            }
            Err(tungstenite::HandshakeError::Failure(tungstenite::Error::Http(answer))) => {
                Err(answer)
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// Sends a message as it is.
    pub(crate) fn send(&mut self, message: Message) {
        self.socket.send(message).unwrap();
    }

    /// The next message that is a frame of JSON; `None` when it was closed.
    pub(crate) fn next(&mut self) -> Option<Value> {
        let until = Instant::now() + HANG_TIMEOUT;
        // Pings come, too, so that there is never silence for so long.
        while Instant::now() < until {
            match self.socket.read() {
                Ok(Message::Text(text)) => return Some(serde_json::from_str(&text).unwrap()),
                Ok(Message::Close(_)) => return None,
                Ok(_) => {}
                Err(tungstenite::Error::Io(error)) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => return None,
            }
        }
        panic!("nothing came after {:?}", self.came);
    }

    /// Why it is closed, in a number, when nothing more comes.
    pub(crate) fn close_code(&mut self) -> Option<u16> {
        loop {
            if let Message::Close(frame) = self.socket.read().ok()? {
                return frame.map(|frame| frame.code.into());
            }
        }
    }

    /// Sends a request and waits for its reply; what comes in between is kept.
    pub(crate) fn ask(&mut self, kind: &str, id: &str, more: Value) -> Value {
        self.ids += 1;
        let mut request = more;
        request["type"] = json!(kind);
        request["id"] = json!(self.ids);
        request["conversationId"] = json!(id);
        self.send(Message::text(request.to_string()));
        self.reply(&json!(self.ids))
    }

    /// The reply to what has that id.
    pub(crate) fn reply(&mut self, id: &Value) -> Value {
        loop {
            let frame = self.next().unwrap();
            if frame["type"] == "reply" && frame["id"] == *id {
                return frame;
            }
            self.came.push(frame);
        }
    }

    /// Asks something that must be done; the answer is its data.
    pub(crate) fn done(&mut self, kind: &str, id: &str, more: Value) -> Value {
        let mut reply = self.ask(kind, id, more);
        let (id, data) = (reply["id"].take(), reply["data"].take());
        let expected = json!({ "type": "reply", "id": null, "ok": true, "data": null });
        assert_eq!(reply, expected, "{kind} {id}");
        data
    }

    /// The next frame that is no reply.
    pub(crate) fn frame(&mut self) -> Value {
        if self.came.is_empty() {
            return self.next().unwrap();
        }
        self.came.remove(0)
    }

    /// All frames that come by themselves up to the first event of that kind.
    pub(crate) fn until(&mut self, kind: &str) -> Vec<Value> {
        let mut came = Vec::new();
        loop {
            let frame = self.frame();
            let is_last = frame["event"]["type"] == kind;
            came.push(frame);
            if is_last {
                return came;
            }
        }
    }
}
